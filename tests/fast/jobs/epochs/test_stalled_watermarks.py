"""A stalled watermark that an operator waits for: the job names the source and the call to add, and withdraws the
notice when the watermark advances; other jobs get no notice.
"""

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
    """A script that more records could follow, like a topic or a watched folder."""

    bounded = False

    def finished(self, split: Any, offset: Any) -> bool:
        return False


def every_epoch(epochs: int, *, pause_ms: int = 0, records: bool = True) -> list[Any]:
    """A record in each epoch, that of epoch n at 10 n ms; the clock advances before the next one."""
    items: list[Any] = []
    for epoch in range(1, epochs + 1):
        items += [*([epoch * 10] if records else []), *([Pause(pause_ms)] if pause_ms else []), EPOCH]
    return items


def windows(stream: Any) -> Any:
    return stream.key_by(lambda value: 0).window(TUMBLING).reduce(max).name("largest").uid("largest")


def stall_messages(
    build: Callable[[Any], None], caplog: pytest.LogCaptureFixture, epochs: int, **options: Any
) -> list[str]:
    """The messages of a job about stalled or advancing watermarks in its first epochs."""
    caplog.clear()
    run(build, epochs=epochs, **options)
    return [record.getMessage() for record in caplog.records if "event time" in record.getMessage()]


def test_a_source_without_watermarks_is_reported_once_with_the_call_to_add(caplog: pytest.LogCaptureFixture) -> None:
    store = fresh_name("stalled")

    def build(env: Any) -> None:
        stream = env.from_source(Endless(every_epoch(8)), NONE, "clicks").uid("clicks")
        windows(stream).sink_to(Collect())

    [warning] = stall_messages(build, caplog, 8, store=store)
    assert warning.startswith(
        "event time is stalled: 'Source: clicks' emits no watermarks, so no window or timer of 'largest' fires. "
        "Define its event time: pass a WatermarkStrategy to from_source(), or call .assign_timestamps_and_watermarks("
    )
    assert "WATERMARK FOR" in warning and "test_stalled_watermarks.py" in warning
    stalled = stalled_watermarks_of(newest(store))["clicks"]
    assert (stalled.reason, stalled.is_long, stalled.epochs) == ("never", True, 8)


def newest(store: str) -> Manifest:
    manifest = ManifestLog(MemoryStore(store)).newest()
    assert manifest is not None
    return manifest


def test_the_first_two_epochs_never_warn(caplog: pytest.LogCaptureFixture) -> None:
    assert not stall_messages(
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
def test_event_time_timers_wait_and_processing_time_timers_do_not(
    is_timed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def build(env: Any) -> None:
        stream = env.from_source(Endless(every_epoch(6)), NONE, "timed clicks")
        stream.key_by(lambda value: 0, Types.INT()).process(Timed(is_timed)).name("remind").sink_to(Collect())

    warnings = stall_messages(build, caplog, 6)
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
def test_no_warning_if_no_operator_waits_or_the_watermark_advances(
    program: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert not stall_messages(lambda env: program(env).sink_to(Collect()), caplog, 6)


def union_with_quiet(quiet: Script, busy: Script, strategy: WatermarkStrategy = ASCENDING) -> Callable[[Any], None]:
    def build(env: Any) -> None:
        one = env.from_source(busy, ASCENDING, "busy clicks").uid("busy")
        other = env.from_source(quiet, strategy, "quiet clicks").uid("quiet")
        windows(one.union(other)).sink_to(Collect())

    return build


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ([], ": 'Source: quiet clicks' has had no record yet, so"),
        (
            [10],
            " at 00:00:00 UTC: 'Source: quiet clicks' has had no record for a minute or longer, so",
        ),
    ],
    ids=["never had one", "has had one"],
)
def test_a_source_without_records_is_reported_after_a_minute_if_others_have_some(
    before: list[int], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(0)
    busy, quiet = Endless(every_epoch(20, pause_ms=10_000), clock=clock), Endless([*before, EPOCH])
    [warning] = stall_messages(union_with_quiet(quiet, busy), caplog, 38, clock=clock)
    assert (
        f"event time is stalled{message}" in warning
        and "no window or timer of 'largest' fires" in warning
        and ADVICE_IDLE in warning
    )


@pytest.mark.parametrize("reason", ["too few epochs", "too short a time", "left out when idle"])
def test_a_briefly_quiet_or_idle_source_is_not_warned_about(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    epochs, pause_ms = {"too few epochs": (8, 30_000), "too short a time": (20, 1_000)}.get(reason, (20, 10_000))
    strategy = ASCENDING.with_idleness(Duration.of_seconds(5)) if reason == "left out when idle" else ASCENDING
    busy, quiet = Endless(every_epoch(epochs, pause_ms=pause_ms), clock=clock), Endless([10, EPOCH])
    assert not stall_messages(union_with_quiet(quiet, busy, strategy), caplog, 2 * epochs - 2, clock=clock)


def test_an_advancing_watermark_is_logged_and_the_notice_is_removed_from_the_store(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, store = ManualClock(0), fresh_name("stalled")
    busy = Endless(every_epoch(24, pause_ms=10_000), clock=clock)
    quiet = Endless([10, *([EPOCH] * 40), 1_000, EPOCH])
    build = union_with_quiet(quiet, busy)
    warning, withdrawal = stall_messages(build, caplog, 46, clock=clock, store=store)
    assert "'Source: quiet clicks' has had no record" in warning
    assert withdrawal == "event time no longer waits for 'Source: quiet clicks'"
    assert not stalled_watermarks_of(newest(store))


def test_a_split_without_records_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    script = Endless(every_epoch(20, pause_ms=10_000), [], clock=clock)
    [warning] = stall_messages(
        lambda env: windows(env.from_source(script, ASCENDING, "topic")).sink_to(Collect()), caplog, 38, clock=clock
    )
    assert "'Source: topic' in 'script-1' has had no record yet" in warning


def test_constant_timestamps_are_reported_as_a_watermark_that_does_not_follow_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock(0)
    constant = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: 7)
    script = Endless(every_epoch(20, pause_ms=10_000), clock=clock)
    [warning] = stall_messages(
        lambda env: windows(env.from_source(script, constant, "constant")).sink_to(Collect()), caplog, 38, clock=clock
    )
    assert "'Source: constant' has records, and its watermark does not follow them" in warning


def test_watermarks_assigned_in_mid_stream_are_reported_with_their_source(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    busy, quiet = Endless(every_epoch(20, pause_ms=10_000), clock=clock), Endless([EPOCH])

    def build(env: Any) -> None:
        streams = [
            env.from_source(script, NONE, name).assign_timestamps_and_watermarks(ASCENDING).name(f"time of {name}")
            for script, name in ((busy, "busy"), (quiet, "orders"))
        ]
        windows(streams[0].union(streams[1])).sink_to(Collect())

    [warning] = stall_messages(build, caplog, 38, clock=clock)
    assert "'time of orders' after 'Source: orders' has had no record yet" in warning


def test_list_shows_the_source_that_stalls_the_watermark() -> None:
    store = fresh_name("stalled")

    def build(env: Any) -> None:
        windows(env.from_source(Endless(every_epoch(6)), NONE, "listed clicks").uid("in")).sink_to(Collect())

    run(build, epochs=4, store=store, job_name="waiting")
    listed = json.loads(print_list(store, as_json=True))
    assert listed["time_awaits"] == ["Source: listed clicks"]


def print_list(store: str, *, as_json: bool) -> str:
    screen = io.StringIO()
    assert list_jobs(f"memory://{store}", as_json=as_json, screen=screen) == 0
    return screen.getvalue()


def test_the_printed_list_and_the_console_show_a_stalled_watermark() -> None:
    job = ListedJob("clicks", "0123456789", "RUNNING", 7, 1, 0, "jobs/a", is_alive=True, time_awaits=("views", "ads"))
    assert "RUNNING, event time waits for 'views', 'ads'" in table_text([job], now_ms=0)
    progress = JobProgress("clicks", "j1", "jobs/a", status="RUNNING", time_awaits=("views",))
    for text in (plain_line(ConsoleView(progress)), status_line(ConsoleView(progress), columns=120)):
        assert "event time is stalled: it waits for 'views'" in text


@pytest.mark.parametrize("is_held_by_another", [False, True], ids=["alone", "held by a quiet input"])
def test_rows_retained_for_later_over_frames_do_not_wait_for_the_watermark(
    is_held_by_another: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """OVER retains rows after it has emitted their results: a quiet source of these rows is no reason to warn."""
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

    messages = stall_messages(build, caplog, 38, clock=clock)
    assert len(messages) == is_held_by_another and all(
        "'Source: quiet' has had no record for a minute" in s for s in messages
    )
