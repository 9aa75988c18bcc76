"""Event time that stands still while something waits for it: the job names the source, says what to call, and takes it
back when time moves; other jobs hear nothing."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from inputs.fresh_names import fresh_name

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.stalled_watermarks import stalled_watermarks_of
from millstream.cli.listing import list_jobs, table_text
from millstream.common import Duration, Row, Time, Types, WatermarkStrategy
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.window import TumblingEventTimeWindows, TumblingProcessingTimeWindows
from millstream.jobs.console.console_view import ConsoleView, plain_line, status_line
from millstream.jobs.epochs.progress import JobProgress
from millstream.state_reader.stored_jobs import ListedJob
from millstream.storage.memory import MemoryStore
from millstream.table import Schema, StreamTableEnvironment
from millstream.testing import EPOCH, Collect, ManualClock, Pause, Script, run

ASCENDING = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
NONE = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda value, _: value)
TUMBLING = TumblingEventTimeWindows.of(Time.milliseconds(10))
ADVICE_IDLE = ".with_idleness(Duration.of_minutes(1)); in SQL, SET 'table.exec.source.idle-timeout' = '1 min'"


class Endless(Script):
    """A script that more could follow, as of a topic or a folder that is watched."""

    bounded = False

    def finished(self, split: Any, offset: Any) -> bool:
        return False


def every_epoch(epochs: int, *, pause_ms: int = 0, records: bool = True) -> list[Any]:
    """A record in each epoch, that of epoch n at 10 n ms; before the next one the clock moves."""
    items: list[Any] = []
    for epoch in range(1, epochs + 1):
        items += [*([epoch * 10] if records else []), *([Pause(pause_ms)] if pause_ms else []), EPOCH]
    return items


def windows(stream: Any) -> Any:
    return stream.key_by(lambda value: 0).window(TUMBLING).reduce(max).name("largest").uid("largest")


def played(build: Callable[[Any], None], caplog: pytest.LogCaptureFixture, epochs: int, **options: Any) -> list[str]:
    """What a job says of event time that stands or moves, in its first epochs."""
    caplog.clear()
    run(build, epochs=epochs, **options)
    return [record.getMessage() for record in caplog.records if "event time" in record.getMessage()]


def test_a_source_without_watermarks_is_named_once_with_what_to_call(caplog: pytest.LogCaptureFixture) -> None:
    store = fresh_name("stalled")

    def build(env: Any) -> None:
        stream = env.from_source(Endless(every_epoch(8)), NONE, "clicks").uid("clicks")
        windows(stream).sink_to(Collect())

    [warning] = played(build, caplog, 8, store=store)
    assert warning.startswith(
        "event time is stalled: 'Source: clicks' emits no watermarks, so no window or timer of 'largest' fires. "
        "Define its event time: pass a WatermarkStrategy to from_source(), or call .assign_timestamps_and_watermarks("
    )
    assert "WATERMARK FOR" in warning and "test_stalled_watermarks.py" in warning
    standing = stalled_watermarks_of(newest(store))["clicks"]
    assert (standing.reason, standing.is_long, standing.epochs) == ("never", True, 8)


def newest(store: str) -> Manifest:
    manifest = ManifestLog(MemoryStore(store)).newest()
    assert manifest is not None
    return manifest


def test_no_epoch_of_the_first_two_is_enough_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    assert not played(
        lambda env: windows(env.from_source(Endless(every_epoch(8)), NONE, "early")).sink_to(Collect()), caplog, 2
    )


class Timed(KeyedProcessFunction):
    """Sets a timer of event time for each record, or none."""

    def __init__(self, is_timed: bool) -> None:
        self.is_timed = is_timed

    def process_element(self, value: Any, ctx: Any) -> Any:
        if self.is_timed:
            ctx.timer_service().register_event_time_timer(value + 5)
        else:
            ctx.timer_service().register_processing_time_timer(2**50)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp


@pytest.mark.parametrize("is_timed", [True, False])
def test_timers_of_event_time_wait_and_those_of_processing_time_do_not(
    is_timed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def build(env: Any) -> None:
        stream = env.from_source(Endless(every_epoch(6)), NONE, "timed clicks")
        stream.key_by(lambda value: 0, Types.INT()).process(Timed(is_timed)).name("remind").sink_to(Collect())

    warnings = played(build, caplog, 6)
    assert len(warnings) == is_timed
    assert all(
        "'Source: timed clicks' emits no watermarks, so no window or timer of 'remind' fires" in w for w in warnings
    )


def _by_the_clock(env: Any) -> Any:
    keyed = env.from_source(Endless(every_epoch(6)), NONE, "clock").key_by(lambda value: 0)
    return keyed.window(TumblingProcessingTimeWindows.of(Time.days(1))).reduce(max)


def _bounded(env: Any) -> Any:
    return windows(env.from_source(Script(every_epoch(6)), NONE, "bounded"))


def _moving(env: Any) -> Any:
    return windows(env.from_source(Endless(every_epoch(6)), ASCENDING, "moving"))


def _assigned_later(env: Any) -> Any:
    return windows(env.from_source(Endless(every_epoch(6)), NONE, "late").assign_timestamps_and_watermarks(ASCENDING))


def _no_operator_waits(env: Any) -> Any:
    return env.from_source(Endless(every_epoch(6)), NONE, "plain").map(lambda value: value)


def _over_by_the_clock(env: Any) -> Any:
    t_env = StreamTableEnvironment.create(env)
    row = Types.ROW_NAMED(["v"], [Types.INT()])
    stream = env.from_source(Endless(every_epoch(6)), NONE, "over").map(lambda value: Row(v=value), output_type=row)
    schema = Schema.new_builder().column("v", "INT").column_by_expression("p", "PROCTIME()").build()
    t_env.create_temporary_view("numbers", t_env.from_data_stream(stream, schema))
    over = "OVER (ORDER BY p ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
    return t_env.to_data_stream(t_env.sql_query(f"SELECT SUM(v) {over} AS s FROM numbers"))


@pytest.mark.parametrize(
    "program", [_by_the_clock, _over_by_the_clock, _bounded, _moving, _assigned_later, _no_operator_waits]
)
def test_where_nothing_waits_for_event_time_or_it_moves_there_is_no_warning(
    program: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert not played(lambda env: program(env).sink_to(Collect()), caplog, 6)


def union_with_quiet(quiet: Script, busy: Script, strategy: WatermarkStrategy = ASCENDING) -> Callable[[Any], None]:
    def build(env: Any) -> None:
        one = env.from_source(busy, ASCENDING, "busy clicks").uid("busy")
        other = env.from_source(quiet, strategy, "quiet clicks").uid("quiet")
        windows(one.union(other)).sink_to(Collect())

    return build


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ([], ": 'Source: quiet clicks' has had no record yet, so"),
        (
            [10],
            " at 00:00:00 UTC: 'Source: quiet clicks' has had no record for a minute or longer, so",
        ),
    ],
    ids=["never had one", "has had one"],
)
def test_a_source_without_records_is_named_after_a_minute_while_others_have_some(
    before: list[int], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(0)
    busy, quiet = Endless(every_epoch(20, pause_ms=10_000), clock=clock), Endless([*before, EPOCH])
    [warning] = played(union_with_quiet(quiet, busy), caplog, 38, clock=clock)
    assert (
        f"event time is stalled{said}" in warning
        and "no window or timer of 'largest' fires" in warning
        and ADVICE_IDLE in warning
    )


@pytest.mark.parametrize("reason", ["too few epochs", "too short a time", "left out when idle"])
def test_a_source_that_is_quiet_for_a_while_or_left_out_is_no_reason_to_warn(
    reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(0)
    epochs, pause_ms = {"too few epochs": (8, 30_000), "too short a time": (20, 1_000)}.get(reason, (20, 10_000))
    strategy = ASCENDING.with_idleness(Duration.of_seconds(5)) if reason == "left out when idle" else ASCENDING
    busy, quiet = Endless(every_epoch(epochs, pause_ms=pause_ms), clock=clock), Endless([10, EPOCH])
    assert not played(union_with_quiet(quiet, busy, strategy), caplog, 2 * epochs - 2, clock=clock)


def test_when_time_moves_again_that_is_logged_and_the_store_says_no_more(caplog: pytest.LogCaptureFixture) -> None:
    clock, store = ManualClock(0), fresh_name("stalled")
    busy = Endless(every_epoch(24, pause_ms=10_000), clock=clock)
    quiet = Endless([10, *([EPOCH] * 40), 1_000, EPOCH])
    build = union_with_quiet(quiet, busy)
    warning, withdrawal = played(build, caplog, 46, clock=clock, store=store)
    assert "'Source: quiet clicks' has had no record" in warning
    assert withdrawal == "event time no longer waits for 'Source: quiet clicks'"
    assert not stalled_watermarks_of(newest(store))


def test_one_split_without_records_is_named(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    script = Endless(every_epoch(20, pause_ms=10_000), [], clock=clock)
    [warning] = played(
        lambda env: windows(env.from_source(script, ASCENDING, "topic")).sink_to(Collect()), caplog, 38, clock=clock
    )
    assert "'Source: topic' in 'script-1' has had no record yet" in warning


def test_timestamps_that_do_not_move_are_a_matter_of_the_strategy(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    constant = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: 7)
    script = Endless(every_epoch(20, pause_ms=10_000), clock=clock)
    [warning] = played(
        lambda env: windows(env.from_source(script, constant, "constant")).sink_to(Collect()), caplog, 38, clock=clock
    )
    assert "'Source: constant' has records, and its watermark does not follow them" in warning


def test_watermarks_made_in_mid_stream_are_named_with_their_source(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    busy, quiet = Endless(every_epoch(20, pause_ms=10_000), clock=clock), Endless([EPOCH])

    def build(env: Any) -> None:
        streams = [
            env.from_source(script, NONE, name).assign_timestamps_and_watermarks(ASCENDING).name(f"time of {name}")
            for script, name in ((busy, "busy"), (quiet, "orders"))
        ]
        windows(streams[0].union(streams[1])).sink_to(Collect())

    [warning] = played(build, caplog, 38, clock=clock)
    assert "'time of orders' after 'Source: orders' has had no record yet" in warning


def test_list_says_what_event_time_waits_for() -> None:
    store = fresh_name("stalled")

    def build(env: Any) -> None:
        windows(env.from_source(Endless(every_epoch(6)), NONE, "listed clicks").uid("in")).sink_to(Collect())

    run(build, epochs=4, store=store, job_name="waiting")
    listed = json.loads(printed(store, as_json=True))
    assert listed["time_awaits"] == ["Source: listed clicks"]


def printed(store: str, *, as_json: bool) -> str:
    screen = io.StringIO()
    assert list_jobs(f"memory://{store}", as_json=as_json, screen=screen) == 0
    return screen.getvalue()


def test_the_list_on_the_screen_and_the_console_say_it_too() -> None:
    job = ListedJob("clicks", "0123456789", "RUNNING", 7, 1, 0, "jobs/a", is_alive=True, time_awaits=("views", "ads"))
    assert "RUNNING, event time waits for 'views', 'ads'" in table_text([job], now_ms=0)
    progress = JobProgress("clicks", "j1", "jobs/a", status="RUNNING", time_awaits=("views",))
    for text in (plain_line(ConsoleView(progress)), status_line(ConsoleView(progress), columns=120)):
        assert "event time is stalled: it waits for 'views'" in text


@pytest.mark.parametrize("is_held_by_another", [False, True], ids=["alone", "held by a quiet input"])
def test_rows_that_later_ones_look_back_to_wait_for_nothing(
    is_held_by_another: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """OVER keeps rows after it has given their results: a quiet source of such rows is no reason to warn."""
    clock = ManualClock(0)

    def build(env: Any) -> None:
        quiet = env.from_source(Endless([10, EPOCH, 20, EPOCH]), ASCENDING, "quiet")
        busy = env.from_source(Endless(every_epoch(22, pause_ms=10_000), clock=clock), ASCENDING, "busy")
        busy.sink_to(Collect())
        rows = (quiet.union(busy) if is_held_by_another else quiet).map(
            lambda value: Row(value, 1), output_type=Types.ROW_NAMED(["v", "k"], [Types.LONG(), Types.LONG()])
        )
        t_env = StreamTableEnvironment.create(env)
        columns = Schema.new_builder().column("v", "BIGINT").column("k", "BIGINT")
        columns.column_by_metadata("t", "TIMESTAMP_LTZ(3)", "rowtime").watermark("t", "SOURCE_WATERMARK()")
        t_env.create_temporary_view("events", rows, columns.build())
        frame = "PARTITION BY k ORDER BY t ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"
        sums = t_env.sql_query(f"SELECT v, SUM(v) OVER ({frame}) FROM events")
        t_env.to_data_stream(sums).sink_to(Collect())

    said = played(build, caplog, 38, clock=clock)
    assert len(said) == is_held_by_another and all("'Source: quiet' has had no record for a minute" in s for s in said)
