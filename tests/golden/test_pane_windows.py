"""Columnar windows with built-in aggregates match a plain definition for random windows, epoch cuts and crashes."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.lowered_operators import lowered_operation

from millstream.aggregation import pane_firing
from millstream.checkpoint.manifest import Manifest
from millstream.common import Configuration, Row, Types, WatermarkStrategy
from millstream.datastream import (
    DataStream,
    OutputTag,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    WindowedStream,
)
from millstream.datastream import aggregates as agg
from millstream.datastream.streams.windowing import Windowing
from millstream.datastream.window import (
    CountEvictor,
    CumulativeEventTimeWindows,
    CumulativeProcessingTimeWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.errors import JobFailedError, ProgramError
from millstream.graph import notices
from millstream.graph.nodes import Window
from millstream.plan.operations import PaneAggregate
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.windows import pane_operator, partial_aggregates
from millstream.testing import CRASH, EPOCH, Collect, ManualClock, Pause, Result, Script, Watermark, run

CLICK = Types.ROW_NAMED(["ad", "at", "price"], [Types.STRING(), Types.LONG(), Types.LONG()])
EVERY = agg.Aggregates(
    n=agg.count(),
    total=agg.sum("price"),
    least=agg.min("price"),
    most=agg.max("price"),
    mean=agg.avg("price"),
    first=agg.first("price"),
    last=agg.last("price"),
    different=agg.approx_distinct("price"),
    top=agg.top_n(2, "price", "at"),
    all=agg.collect("price"),
    halves=agg.sum(lambda columns: pc.multiply(columns["price"], 0.5), Types.DOUBLE()),
)
DIFFERENT = agg.Aggregates(different=agg.approx_distinct()).bound(Types.LONG())
SPLITS = 3


def every(ad: str, start: int, end: int, clicks: list[tuple[str, int, int]]) -> Row:
    """The result of EVERY, from its definition."""
    timed = sorted(clicks, key=lambda click: click[1])
    prices = [price for _, _, price in timed]
    best = sorted(timed, key=lambda click: -click[2])[:2]
    sketch = DIFFERENT.create_accumulator()
    for price in prices:  # two values may share a register: the estimate is only approximate
        sketch = DIFFERENT.add(price, sketch)
    return Row(
        ad=ad, window_start=start, window_end=end, n=len(prices), total=sum(prices), least=min(prices),
        most=max(prices), mean=sum(prices) / len(prices), first=prices[0], last=prices[-1],
        different=DIFFERENT.get_result(sketch).different, top=[at for _, at, _ in best], all=prices,
        halves=sum(prices) / 2,
    )  # fmt: skip


def windowed(stream: DataStream, windowing: Windowing) -> WindowedStream:
    windows = stream.key_by("ad").window(windowing.assigner).allowed_lateness(windowing.allowed_lateness_ms)
    return windows if windowing.late_tag is None else windows.side_output_late_data(windowing.late_tag)


def columnar(stream: DataStream, windowing: Windowing, aggregates: agg.Aggregates = EVERY) -> DataStream:
    results = windowed(stream, windowing).aggregate(aggregates)
    assert isinstance(lowered_operation(results), PaneAggregate)
    return results


def stamped(env: StreamExecutionEnvironment, source: Script) -> DataStream:
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda click, _: click["at"])
    return env.from_source(source, strategy, "clicks")


# --- the definition ---------------------------------------------------------------------------------------------------


@dataclass
class ClickHistory:
    """Epochs of clicks by split, and the watermark at the end of each; the last watermark ends event time."""

    assigner: Any
    lateness_ms: int
    epochs: list[list[list[tuple[str, int, int]]]]
    watermarks: list[int]
    crashes: list[tuple[int, int]] = field(default_factory=list)

    def script(self) -> Script:
        splits: list[list[Any]] = []
        for split in range(SPLITS):
            items: list[Any] = []
            for number, epoch in enumerate(self.epochs):
                items += [Row(*click) for click in epoch[split]]
                if (split, number) in self.crashes:
                    items.append(CRASH)
                # The last epoch ends with a mark too, so that a split without clicks in it does not end earlier.
                last = number == len(self.epochs) - 1
                items.append(EPOCH if last else Watermark(self.watermarks[number]))
            splits.append(items)
        return Script(*splits, type_info=CLICK)

    def expected(self) -> tuple[Counter[str], int]:
        """The windows emitted in each epoch, and the number of clicks that are late for every window."""
        held: dict[tuple[str, int, int], list[tuple[str, int, int]]] = defaultdict(list)
        out: Counter[str] = Counter()
        dropped, before = 0, MIN_WATERMARK
        for number, epoch in enumerate(self.epochs, start=1):
            now = self.watermarks[number - 1] if number < len(self.epochs) else MAX_WATERMARK
            updated = set()
            for click in (click for split in epoch for click in split):
                windows = self.assigner.assign_windows(click, click[1], None)
                open_ = [w for w in windows if w.max_timestamp() + self.lateness_ms > before]
                dropped += bool(windows) and not open_
                for window in open_:
                    held[click[0], window.start, window.end].append(click)
                    if window.max_timestamp() <= before:
                        updated.add((click[0], window.start, window.end))
            due = {place for place in held if before < place[2] - 1 <= now}
            for place in updated | due:
                out[repr((number, place[2] - 1, every(*place, held[place])))] += 1
            before = now
        return out, dropped


def assigners() -> st.SearchStrategy[Any]:
    tumbling = st.builds(TumblingEventTimeWindows, st.integers(5, 40), st.integers(-4, 4))
    sliding = st.builds(SlidingEventTimeWindows, st.integers(1, 60), st.integers(5, 30), st.integers(-4, 4))
    growing = st.builds(
        lambda step, count: CumulativeEventTimeWindows(step * count, step, 0), st.integers(3, 15), st.integers(1, 4)
    )
    return tumbling | sliding | growing


@st.composite
def stories(draw: st.DrawFn) -> ClickHistory:
    times = draw(st.lists(st.integers(-20, 150), min_size=1, max_size=30, unique=True))
    count = draw(st.integers(1, 4))
    epochs: list[list[list[tuple[str, int, int]]]] = [[[] for _ in range(SPLITS)] for _ in range(count)]
    for number, at in enumerate(times):
        click = (draw(st.sampled_from("abc")), at, number * 7 % 31 - 9 + 31 * number)
        epochs[draw(st.integers(0, count - 1))][draw(st.integers(0, SPLITS - 1))].append(click)
    watermarks = sorted(draw(st.lists(st.integers(-30, 170), min_size=count, max_size=count)))
    crashes = draw(st.lists(st.tuples(st.integers(0, SPLITS - 1), st.integers(0, count - 1)), max_size=2, unique=True))
    return ClickHistory(draw(assigners()), draw(st.sampled_from([0, 0, 7, 40])), epochs, watermarks, crashes)


def published(result: Result, out: Collect) -> Counter[str]:
    return Counter(repr((record.epoch, record.timestamp, record.value)) for record in result.of(out))


def dropped(result: Result) -> int:
    return sum(metric["counter"] for name, metric in result.metrics.items() if name.endswith("numLateRecordsDropped"))


@settings(max_examples=40, deadline=None)
@given(stories(), st.integers(1, 3))
def test_columnar_windows_match_their_definition(story: ClickHistory, parallelism: int) -> None:
    out = Collect()
    windowing = Windowing(story.assigner, allowed_lateness_ms=story.lateness_ms)
    result = run(lambda env: columnar(stamped(env, story.script()), windowing).sink_to(out), parallelism=parallelism)
    expected, late = story.expected()
    assert published(result, out) == expected
    assert dropped(result) == late


@settings(max_examples=25, deadline=None)
@given(stories(), st.sampled_from([0, 1_000]))
def test_results_do_not_depend_on_batch_merge_read_or_fire_sizes(story: ClickHistory, rows_read: int) -> None:
    out = Collect()
    windowing = Windowing(story.assigner, allowed_lateness_ms=story.lateness_ms)

    def build(env: StreamExecutionEnvironment) -> None:
        small = Configuration()
        small.set_integer("millstream.batch.max-records", 3)
        env.configure(small)
        columnar(stamped(env, story.script()), windowing).sink_to(out)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(partial_aggregates, "_GATHERED_ROWS_MAX", 2)
        patched.setattr(partial_aggregates, "_SKIPPED_AFTER_MISS", 1)
        patched.setattr(partial_aggregates, "_CHUNK_BYTES", 200)
        patched.setattr(partial_aggregates, "_BATCH_ROWS_MAX", 2)
        patched.setattr(pane_operator, "_MERGED_BYTES_MIN", 1)
        patched.setattr(pane_operator, "_ROWS_PER_LOOKUP", rows_read)  # panes are either all looked up, or all scanned
        patched.setattr(pane_firing, "_BLOCK_WINDOWS", 2)
        patched.setattr(pane_firing, "_BLOCK_ROWS", 3)
        result = run(build, parallelism=2)
    expected, late = story.expected()
    assert published(result, out) == expected
    assert dropped(result) == late


@settings(max_examples=15, deadline=None)
@given(stories(), st.integers(1, 3))
def test_processing_one_record_at_a_time_emits_the_same_results(story: ClickHistory, parallelism: int) -> None:
    fast, slow = Collect(), Collect()
    windowing = Windowing(story.assigner, allowed_lateness_ms=story.lateness_ms)
    asked_for_more = replace(windowing, late_tag=OutputTag("late", CLICK))

    def build(env: StreamExecutionEnvironment) -> None:
        clicks = stamped(env, story.script())
        columnar(clicks, windowing).sink_to(fast)
        results = windowed(clicks, asked_for_more).aggregate(EVERY)
        assert isinstance(lowered_operation(results), Window)
        results.sink_to(slow)

    result = run(build, parallelism=parallelism)
    # One by one a late record fires its window at once, columnar windows fire once per epoch: the last results agree.
    assert final(result, fast) == final(result, slow)


def final(result: Result, out: Collect) -> dict[tuple[Any, ...], Any]:
    """The last result of each window in each epoch."""
    return {(r.epoch, *r.value[:3]): (r.timestamp, repr(r.value)) for r in result.of(out)}


@settings(max_examples=15, deadline=None)
@given(stories())
def test_batch_mode_emits_every_window_once_with_all_its_records(story: ClickHistory) -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        columnar(stamped(env, story.script()), Windowing(story.assigner)).sink_to(out)

    one_epoch = [[click for epoch in story.epochs for click in epoch[split]] for split in range(SPLITS)]
    whole, _ = ClickHistory(story.assigner, 0, [one_epoch], [MAX_WATERMARK]).expected()
    found = Counter(repr((1, record.timestamp, record.value)) for record in run(build, parallelism=2).of(out))
    assert found == whole


# --- visible behaviour ------------------------------------------------------------------------------------------------

CLICKS = [Row("a", 1, 5), Row("b", 3, 1), Row("a", 11, 7)]
SMALL = agg.Aggregates(n=agg.count(), total=agg.sum("price"))


def totals(items: list[Any], windowing: Windowing, **options: Any) -> list[tuple[Any, ...]]:
    out = Collect()
    source = Script(items, type_info=CLICK, clock=options.get("clock"))
    result = run(lambda env: columnar(stamped(env, source), windowing, SMALL).sink_to(out), **options)
    return [(record.epoch, *record.value) for record in result.of(out)]


def test_a_window_fires_again_for_late_records_once_per_epoch() -> None:
    items = [
        *CLICKS,
        Watermark(15),
        Row("a", 2, 10),
        Row("a", 4, 20),
        EPOCH,
        Row("a", 5, 40),
        Watermark(100),
        CLICKS[0],
    ]
    found = totals(items, Windowing(TumblingEventTimeWindows(10, 0), allowed_lateness_ms=30))
    assert found == [
        (1, "a", 0, 10, 1, 5), (1, "b", 0, 10, 1, 1),
        (2, "a", 0, 10, 3, 35),
        (3, "a", 0, 10, 4, 75), (3, "a", 10, 20, 1, 7),
    ]  # fmt: skip


@pytest.mark.parametrize("rows_read", [0, 1_000])
def test_looked_up_and_scanned_panes_agree(rows_read: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pane_operator, "_ROWS_PER_LOOKUP", rows_read)
    items: list[Any] = []
    for epoch, reached in enumerate([-5, -4, 11]):
        items += [Row("a", at + epoch, 1) for at in (1, 11, 21)] + [Row("bcd"[epoch], 21, 5), Watermark(reached)]
    found = totals(items, Windowing(TumblingEventTimeWindows(10, 0)))
    of_a = [("a", start, start + 10, 3, 3) for start in (0, 10, 20)]
    assert sorted(row[1:] for row in found) == [*of_a, *[(ad, 20, 30, 1, 5) for ad in "bcd"]]


def test_panes_survive_a_rescale() -> None:
    items = [*CLICKS, EPOCH, Row("b", 4, 2), Watermark(5), Row("a", 12, 3)]
    source = Script(items, type_info=CLICK)
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        columnar(stamped(env, source), Windowing(SlidingEventTimeWindows(20, 10, 0)), SMALL).sink_to(out)

    name = "panes-rescale"
    first = run(build, parallelism=1, store=name, epochs=1)[out]
    rest = run(build, parallelism=3, store=name)[out]
    assert first == []
    assert sorted(map(tuple, rest)) == [
        ("a", -10, 10, 1, 5), ("a", 0, 20, 3, 15), ("a", 10, 30, 2, 10), ("b", -10, 10, 2, 3), ("b", 0, 20, 2, 3),
    ]  # fmt: skip


def test_stored_panes_split_by_changed_windows_are_rejected() -> None:
    source = Script([*CLICKS, EPOCH, CLICKS[0]], type_info=CLICK)
    windowings = [Windowing(TumblingEventTimeWindows(size, 0)) for size in (20, 10)]

    def build(env: StreamExecutionEnvironment, windowing: Windowing) -> None:
        columnar(stamped(env, source), windowing, SMALL).sink_to(Collect())

    run(lambda env: build(env, windowings[0]), store="panes-changed", epochs=1)
    with pytest.raises(JobFailedError, match="stored in panes of 20 ms"):
        run(lambda env: build(env, windowings[1]), store="panes-changed")


def test_processing_time_windows_order_their_records_by_event_time() -> None:
    edges = agg.Aggregates(first=agg.first("price"), last=agg.last("price"), all=agg.collect("price"))
    found: list[Any] = []
    for late_tag in (None, OutputTag("late", CLICK)):  # columnar, then one record at a time
        out, clock = Collect(), ManualClock()
        items = [Row("a", 9, 1), Row("a", 4, 2), Pause(3), Row("a", 6, 3), Pause(50), Row("z", 0, 0)]
        source = Script(items, type_info=CLICK, clock=clock)
        windowing = Windowing(SlidingProcessingTimeWindows(10, 5, 0), late_tag=late_tag)
        result = run(
            lambda env, w=windowing, s=source, o=out: windowed(stamped(env, s), w).aggregate(edges).sink_to(o),
            clock=clock,
        )
        found.append(sorted(tuple(row) for row in result[out]))
    assert found[0] == found[1]
    assert ("a", 0, 10, 2, 1, [2, 3, 1]) in found[0]


def test_session_windows_of_built_in_aggregates_run_record_by_record() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        clicks = stamped(env, Script([*CLICKS, Row("a", 6, 2)], type_info=CLICK))
        clicks.key_by("ad").window(EventTimeSessionWindows(6)).aggregate(SMALL).sink_to(out)

    expected = [
        Row(ad="a", window_start=1, window_end=17, n=3, total=14),
        Row(ad="b", window_start=3, window_end=9, n=1, total=1),
    ]
    assert sorted(run(build, parallelism=2)[out], key=lambda row: row.ad) == expected


@pytest.mark.parametrize(
    ("assigner", "expected"),
    [
        (TumblingProcessingTimeWindows(10, 0), [("a", 0, 10, 2), ("a", 10, 20, 1)]),
        (SlidingProcessingTimeWindows(20, 10, 0), [("a", -10, 10, 2), ("a", 0, 20, 3), ("a", 10, 30, 1)]),
        (CumulativeProcessingTimeWindows(20, 10, 0), [("a", 0, 10, 2), ("a", 0, 20, 3)]),
    ],
)
def test_processing_time_windows_fire_at_their_end(assigner: Any, expected: list[Any]) -> None:
    click = Row("a", 0, 1)
    items = [click, Pause(9), click, Pause(1), click, Pause(50), Row("z", 0, 1)]
    found = totals(items, Windowing(assigner), clock=ManualClock(), parallelism=2)
    assert sorted(row[1:5] for row in found) == expected


def test_the_job_wakes_up_for_a_processing_time_window_without_input() -> None:
    clock = ManualClock(3)
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        source = Script([CLICKS[0]], type_info=CLICK)
        columnar(stamped(env, source), Windowing(SlidingProcessingTimeWindows(20, 10, 0)), SMALL).sink_to(out)

    result = run(build, clock=clock)
    accounts = [
        account
        for manifest in result.manifests
        for state in manifest.states.values()
        for account in state.get("subtasks", {}).values()
        if "wake_ms" in account
    ]
    assert accounts and {account["wake_ms"] for account in accounts} == {10}


def test_without_key_and_bounds_only_the_aggregates_are_emitted() -> None:
    out = Collect()
    bare = agg.Aggregates(with_key=False, n=agg.count())
    result = run(
        lambda env: columnar(
            stamped(env, Script(CLICKS, type_info=CLICK)), Windowing(TumblingEventTimeWindows(100, 0)), bare
        ).sink_to(out)
    )
    assert sorted(row.n for row in result[out]) == [1, 2]


def test_a_window_over_a_whole_stream_has_no_key_in_its_results() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        clicks = stamped(env, Script(CLICKS[::2], CLICKS[1::2], type_info=CLICK))
        results = clicks.window_all(TumblingEventTimeWindows(10, 0)).aggregate(SMALL)
        assert isinstance(lowered_operation(results), PaneAggregate)
        results.sink_to(out)

    found = run(build, parallelism=2)[out]
    expected = [Row(window_start=0, window_end=10, n=2, total=6), Row(window_start=10, window_end=20, n=1, total=7)]
    assert sorted(found, key=lambda row: row.window_start) == expected


def test_an_evictor_is_allowed_with_a_warning_that_it_is_slower(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_LOGGED", set())
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        windows = stamped(env, Script(CLICKS, type_info=CLICK)).key_by("ad").window(TumblingEventTimeWindows(100, 0))
        windows.evictor(CountEvictor.of(1)).aggregate(SMALL).sink_to(out)

    with caplog.at_level("INFO", "millstream.datastream"):
        found = run(build)[out]
    assert sorted(map(tuple, found)) == [("a", 0, 100, 1, 7), ("b", 0, 100, 1, 1)]
    (said,) = [record.message for record in caplog.records if "evictor" in record.message]
    assert "slower" in said and "test_pane_windows.py" in said


def test_a_result_that_does_not_fit_its_declared_type_is_reported_with_its_value() -> None:
    wrong = agg.Aggregates(it=agg.sum(lambda columns: columns["ad"], Types.LONG()))
    short = agg.Aggregates(it=agg.sum(lambda columns: columns["price"].slice(1), Types.LONG()))
    windowing = Windowing(TumblingEventTimeWindows(10, 0))
    for aggregates, said in ((wrong, "declared as LONG but returned string"), (short, "2 values for 3 records")):
        with pytest.raises(JobFailedError, match=said):
            run(
                lambda env, it=aggregates: columnar(
                    stamped(env, Script(CLICKS, type_info=CLICK)), windowing, it
                ).sink_to(Collect())
            )


def test_the_plan_shows_the_window_state_and_its_form() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    windowing = Windowing(SlidingEventTimeWindows(60_000, 1_000, 0))
    columnar(stamped(env, Script(CLICKS, type_info=CLICK)), windowing, SMALL).sink_to(Collect())
    plan = env.explain()
    assert "adds up by key and pane of 1000 ms: count, sum, in columns" in plan
    assert "keeps per key and pane: count, sum, in columns, for windows of 60000 ms every 1000 ms" in plan
    assert plan.count("⇐ hash") == 1 and "stage 2" not in plan


def test_a_composite_key_is_a_column() -> None:
    out = Collect()
    key_type = Types.TUPLE([Types.STRING(), Types.LONG()])

    def build(env: StreamExecutionEnvironment) -> None:
        keyed = stamped(env, Script(CLICKS * 2, type_info=CLICK)).key_by(lambda r: (r["ad"], r["at"] % 2), key_type)
        results = keyed.window(TumblingEventTimeWindows(100, 0)).aggregate(SMALL)
        assert isinstance(lowered_operation(results), PaneAggregate)
        results.sink_to(out)

    found = run(build, parallelism=2)[out]
    assert sorted((row.key, row.n, row.total) for row in found) == [(("a", 1), 4, 24), (("b", 1), 2, 2)]


def test_each_input_of_a_union_is_pre_aggregated_upstream() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        left, right = (stamped(env, Script(CLICKS, type_info=CLICK)) for _ in range(2))
        columnar(left.union(right), Windowing(TumblingEventTimeWindows(100, 0)), SMALL).sink_to(out)
        assert env.explain().count("adds up by key and pane") == 2

    assert sorted((row.ad, row.n) for row in run(build, parallelism=2)[out]) == [("a", 4), ("b", 2)]


def test_a_hot_key_crosses_the_exchange_as_one_row_per_task_and_pane() -> None:
    out = Collect()
    clicks = [Row("a", at, 1) for at in range(1_000)]

    def build(env: StreamExecutionEnvironment) -> None:
        windowing = Windowing(TumblingEventTimeWindows(500, 0))
        columnar(stamped(env, Script(clicks[::2], clicks[1::2], type_info=CLICK)), windowing, SMALL).sink_to(out)

    result = run(build, parallelism=2)
    operators = result.manifests[-1].counters["operators"]
    (taken,) = [counts["in"] for uid, counts in operators.items() if uid.startswith("tumbling")]
    assert taken == 4
    assert sorted(tuple(row) for row in result[out]) == [("a", 0, 500, 500, 500), ("a", 500, 1000, 500, 500)]


def stored_rows(manifest: Manifest) -> int:
    """Number of pane rows in the segments of an epoch."""
    return sum(
        ref["rows"]
        for state in manifest.states.values()
        for account in state.get("subtasks", {}).values()
        for ref in account["tables"].get("panes", [])
    )


def test_a_pane_is_written_once_however_many_windows_hold_it() -> None:
    items: list[Any] = [*CLICKS, EPOCH, Row("a", 1, 1), EPOCH]
    source, windowing = Script(items, type_info=CLICK), Windowing(SlidingEventTimeWindows(3_600, 1, 0))
    result = run(lambda env: columnar(stamped(env, source), windowing, SMALL).sink_to(Collect()), epochs=1)
    assert stored_rows(result.manifests[0]) == len(CLICKS)


def test_expired_windows_leave_no_state() -> None:
    items: list[Any] = []
    for number in range(60):
        items += [Row("a", number * 10 + 5, 1), Row("b", number * 10 + 15, 1), Watermark(number * 10)]
    source, windowing = Script(items, type_info=CLICK), Windowing(TumblingEventTimeWindows(10, 0))
    result = run(lambda env: columnar(stamped(env, source), windowing, SMALL).sink_to(Collect()))
    held = [stored_rows(manifest) for manifest in result.manifests]
    assert 0 < max(held) < 20, held


def test_a_segment_of_expired_panes_is_removed_from_the_manifest() -> None:
    source = Script([*CLICKS, EPOCH, CLICKS[0], Watermark(100), Row("a", 105, 1), EPOCH, CLICKS[0]], type_info=CLICK)
    windowing = Windowing(TumblingEventTimeWindows(10, 0))
    result = run(lambda env: columnar(stamped(env, source), windowing, SMALL).sink_to(Collect()))
    assert [stored_rows(manifest) for manifest in result.manifests[:3]] == [3, 3, 1]


def test_late_records_are_counted_individually_after_pre_aggregation() -> None:
    late = [Row("a", at % 7, 1) for at in range(50)]
    source = Script([*CLICKS, Watermark(20), *late, Row("a", 30, 1)], type_info=CLICK)
    windowing, out = Windowing(TumblingEventTimeWindows(10, 0)), Collect()
    result = run(lambda env: columnar(stamped(env, source), windowing, SMALL).sink_to(out))
    assert dropped(result) == len(late)
    assert [row.n for row in result[out] if row.window_start == 0 and row.ad == "a"] == [1]


def test_panes_that_open_and_expire_in_one_epoch_are_never_written() -> None:
    source = Script([*CLICKS, Watermark(500), Row("a", 600, 1)], type_info=CLICK)
    windowing = Windowing(SlidingEventTimeWindows(20, 10, 0))
    result = run(lambda env: columnar(stamped(env, source), windowing, SMALL).sink_to(Collect()))
    assert stored_rows(result.manifests[0]) == 0


def test_records_without_timestamps_are_refused() -> None:
    def unstamped(env: StreamExecutionEnvironment) -> DataStream:
        return env.add_source(Script(CLICKS, type_info=CLICK))

    windowing = Windowing(TumblingEventTimeWindows(10, 0))
    with pytest.raises(ProgramError, match="no operator before it assigns timestamps"):
        run(lambda env: columnar(unstamped(env), windowing, SMALL).sink_to(Collect()))
    # If only some records have no timestamp, the job fails with the record.
    with pytest.raises(JobFailedError, match="no timestamps") as failed:
        run(
            lambda env: columnar(
                stamped(env, Script(CLICKS, type_info=CLICK)).union(unstamped(env)).map(lambda row: row, CLICK),
                windowing,
                SMALL,
            ).sink_to(Collect())
        )
    assert "ad='a'" in failed.value.report


@pytest.mark.parametrize(
    "windowing",
    [
        Windowing(EventTimeSessionWindows(10)),
        Windowing(
            TumblingEventTimeWindows(10, 0), trigger=TumblingProcessingTimeWindows(1, 0).get_default_trigger(None)
        ),
    ],
)
def test_features_that_need_every_record_use_the_general_operator(windowing: Windowing) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    keyed = stamped(env, Script(CLICKS, type_info=CLICK)).key_by("ad")
    windows = keyed.window(windowing.assigner)
    if windowing.trigger is not None:
        windows.trigger(windowing.trigger)
    assert isinstance(lowered_operation(windows.aggregate(SMALL)), Window)
    untyped = env.from_collection([("a", 1)]).key_by(0).window(TumblingEventTimeWindows(10, 0))
    assert isinstance(lowered_operation(untyped.aggregate(agg.Aggregates(n=agg.count()))), Window)
