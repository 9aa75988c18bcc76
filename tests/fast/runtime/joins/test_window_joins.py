"""Joins and coGroups by window: what meets, when, what is late, what is kept, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waits.refusals import Refused

from millstream.aggregation.pane_firing import WindowRange
from millstream.checkpoint.manifest import Manifest
from millstream.common import Duration, Row, RowKind, Types, WatermarkStrategy
from millstream.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from millstream.datastream.functions import CoGroupFunction, FlatJoinFunction
from millstream.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.errors import JobFailedError, ProgramError
from millstream.runtime.joins.window_join import rows_by_window
from millstream.state.windows.pane_windows import PaneWindows
from millstream.testing import EPOCH, Collect, ManualClock, Pause, Result, Script, Watermark, run

TENS = TumblingEventTimeWindows.of(Duration.of_millis(10))
ORDER = Types.ROW_NAMED(["id", "cents", "at_ms"], [Types.STRING(), Types.LONG(), Types.LONG()])
PAYMENT = Types.ROW_NAMED(["id", "paid", "at_ms"], [Types.STRING(), Types.LONG(), Types.LONG()])
LATE = OutputTag("late", ORDER)
Build = Callable[[DataStream, DataStream], DataStream]
COUNTER = count()


def order(id: str, cents: int, at_ms: int) -> Row:
    return Row(id=id, cents=cents, at_ms=at_ms)


def payment(id: str, paid: int, at_ms: int) -> Row:
    return Row(id=id, paid=paid, at_ms=at_ms)


def timed() -> WatermarkStrategy:
    return WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda row, _: row[2])


def ran(lefts: list[Any], rights: list[Any], build: Build, typed: bool = True, **how: Any) -> tuple[Result, Collect]:
    """The program on these two scripts; what it returns goes to the sink."""
    out = Collect()
    env = StreamExecutionEnvironment()
    clock = how.get("clock")
    types = (ORDER, PAYMENT) if typed else (None, None)
    orders = env.from_source(Script(lefts, type_info=types[0], clock=clock), timed(), "orders")
    payments = env.from_source(Script(rights, type_info=types[1], clock=clock), timed(), "payments")
    build(orders, payments).sink_to(out)
    return run(env, parallelism=how.pop("parallelism", 1), **how), out


def results(lefts: list[Any], rights: list[Any], build: Build, typed: bool = True, **how: Any) -> list[Any]:
    result, out = ran(lefts, rights, build, typed, **how)
    return [tuple(value) if isinstance(value, Row) else value for value in result[out]]


def stored_rows(manifest: Manifest) -> int:
    """How many rows of both sides the segments of an epoch hold."""
    return sum(
        ref["rows"]
        for state in manifest.states.values()
        for account in state.get("subtasks", {}).values()
        for side in ("left", "right")
        for ref in account["tables"].get(side, [])
    )


def owed(one: Any, two: Any) -> tuple[str, int]:
    return one[0], one[1] - two[1]


def by_id(orders: DataStream, payments: DataStream, assigner: Any = TENS) -> Any:
    return orders.join(payments).where("id").equal_to("id").window(assigner)


# --- what meets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("typed", [True, False])
def test_records_of_one_key_and_window_are_joined_across_epochs(typed: bool) -> None:
    lefts = [order("a", 7, 1), order("b", 8, 2), Watermark(3), order("a", 9, 4), Watermark(30)]
    rights = [Watermark(3), payment("a", 5, 9), payment("b", 6, 10), Watermark(30)]
    joined = results(lefts, rights, lambda a, b: by_id(a, b).apply(owed), typed)
    assert joined == [("a", 2), ("a", 4)]


def test_results_carry_the_last_millisecond_of_their_window_and_can_be_joined_again() -> None:
    def build(orders: DataStream, payments: DataStream) -> DataStream:
        again = (
            by_id(orders, payments).apply(owed).join(payments).where(lambda pair: pair[0]).equal_to(lambda row: row.id)
        )
        return again.window(TENS).apply(lambda pair, row: (*pair, row.paid))

    result, out = ran([order("a", 7, 1)], [payment("a", 5, 2), payment("a", 1, 12)], build)
    assert [(found.value, found.timestamp) for found in result.of(out)] == [(("a", 2, 5), 9)]


def test_pairs_come_in_the_order_of_left_records_and_then_of_right_ones() -> None:
    lefts = [order("a", 3, 5), order("a", 1, 2)]
    rights = [payment("a", 20, 6), EPOCH, payment("a", 10, 1)]
    pairs = results(lefts, rights, lambda a, b: by_id(a, b).apply(lambda one, two: (one.cents, two.paid)))
    assert pairs == [(3, 20), (3, 10), (1, 20), (1, 10)]


def test_a_record_that_is_none_is_a_record() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda value, _: 5)
        left, right = (env.from_source(Script(items), strategy, "s") for items in ([None, 1], [None]))
        grouped = left.co_group(right).where(lambda _: 0).equal_to(lambda _: 0).window(TENS)
        grouped.apply(lambda one, two: [(one, two)]).sink_to(out)

    assert run(build)[out] == [([None, 1], [None])]


class FullOuter(CoGroupFunction):
    def co_group(self, first: list[Any], second: list[Any]) -> Iterable[Any]:
        for one in first or [None]:
            for two in second or [None]:
                yield one and one.cents, two and two.paid


def test_outer_joins_are_made_of_co_groups() -> None:
    lefts = [order("a", 7, 1), order("b", 8, 2)]
    rights = [payment("a", 5, 3), payment("c", 6, 4)]
    grouped = results(
        lefts, rights, lambda a, b: a.co_group(b).where("id").equal_to("id").window(TENS).apply(FullOuter())
    )
    assert sorted(grouped, key=str) == [(7, 5), (8, None), (None, 6)]


class Twice(FlatJoinFunction):
    def join(self, first: Any, second: Any) -> Iterable[int] | None:
        return None if first.cents < second.paid else [first.cents, second.paid]


def test_a_flat_join_emits_any_number_of_results() -> None:
    lefts, rights = [order("a", 7, 1), order("a", 2, 1)], [payment("a", 5, 3)]
    assert results(lefts, rights, lambda a, b: by_id(a, b).apply(Twice(), Types.LONG())) == [7, 5]


def test_processing_time_windows_join_records_of_the_same_interval() -> None:
    windows = TumblingProcessingTimeWindows.of(Duration.of_millis(10))
    clock = ManualClock(0)
    lefts, rights = [order("a", 7, 0), Pause(12), EPOCH, order("a", 1, 0), Pause(12)], [payment("a", 5, 0)]
    assert results(lefts, rights, lambda a, b: by_id(a, b, windows).apply(owed), clock=clock) == [("a", 2)]


def test_a_trigger_counts_the_records_of_both_sides_and_an_evictor_sees_them_tagged() -> None:
    class OnlyLarge(CountEvictor):
        def evict_before(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
            elements[:] = [e for e in elements if (e.value.one.cents if e.value.is_one else e.value.two.paid) > 1]

    def build(orders: DataStream, payments: DataStream) -> DataStream:
        grouped = orders.co_group(payments).where("id").equal_to("id").window(GlobalWindows.create())
        fired = grouped.trigger(PurgingTrigger.of(CountTrigger.of(3))).evictor(OnlyLarge(1))
        return fired.apply(lambda one, two: [([o.cents for o in one], [p.paid for p in two])])

    lefts = [order("a", 7, 0), EPOCH, order("a", 8, 0), order("a", 9, 0)]
    rights = [payment("a", 1, 0), EPOCH, payment("a", 2, 0), payment("a", 3, 0)]
    assert results(lefts, rights, build) == [([7, 8], []), ([9], [2, 3])]


# --- late records ---------------------------------------------------------------------------------------------------

LATE_LEFTS = [order("a", 7, 5), Watermark(12), order("a", 8, 6), order("a", 9, 15), Watermark(30)]
LATE_RIGHTS = [payment("a", 1, 5), Watermark(12), payment("a", 2, 16), Watermark(30)]


@pytest.mark.parametrize("in_columns", [True, False])
def test_late_records_go_to_the_output_of_their_side(in_columns: bool) -> None:
    main, late = Collect(), Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        orders = env.from_source(Script(LATE_LEFTS, type_info=ORDER), timed(), "orders")
        payments = env.from_source(Script(LATE_RIGHTS, type_info=PAYMENT), timed(), "payments")
        windows = by_id(orders, payments).side_output_left_late_data(LATE)
        joined = (
            windows.project(["cents"], ["paid"]) if in_columns else windows.apply(lambda a, b: Row(a.cents, b.paid))
        )
        joined.sink_to(main)
        joined.get_side_output(LATE).sink_to(late)

    result = run(build)
    assert [tuple(row) for row in result[main]] == [(7, 1), (9, 2)]
    assert result[late] == [order("a", 8, 6)]


@pytest.mark.parametrize("in_columns", [True, False])
def test_late_records_without_an_output_are_counted(in_columns: bool) -> None:
    def build(orders: DataStream, payments: DataStream) -> DataStream:
        windows = by_id(orders, payments)
        return windows.project(["cents"], ["paid"]) if in_columns else windows.apply(lambda a, b: (a.cents, b.paid))

    result, out = ran(LATE_LEFTS, LATE_RIGHTS, build)
    assert [tuple(row) for row in result[out]] == [(7, 1), (9, 2)]
    counted = [value for name, value in result.metrics.items() if name.endswith("numLateRecordsDropped")]
    assert counted == [{"counter": 1}]


def test_a_window_that_waits_for_late_records_fires_again_with_all_it_holds() -> None:
    fired = results(LATE_LEFTS, LATE_RIGHTS, lambda a, b: by_id(a, b).allowed_lateness(20).project(["cents"], ["paid"]))
    assert fired == [(7, 1), (7, 1), (8, 1), (9, 2)]


# --- chosen fields, in columns --------------------------------------------------------------------------------------


def test_chosen_fields_have_their_own_names_or_the_declared_ones() -> None:
    env = StreamExecutionEnvironment()
    orders, payments = env.from_collection([], ORDER), env.from_collection([], PAYMENT)
    windows = by_id(orders, payments)
    assert windows.project(["id", 1], ["paid"]).get_type().notation == "ROW<id STRING, cents LONG, paid LONG>"
    renamed = windows.project(["at_ms"], ["at_ms"], names=["asked_ms", "paid_ms"])
    assert renamed.get_type().notation == "ROW<asked_ms LONG, paid_ms LONG>"
    with Refused("join(...).project", "at_ms", "names="):
        windows.project(["at_ms"], ["at_ms"])
    with Refused("join(...).project('due')", "no such field"):
        windows.project(["due"], [])


def test_the_record_join_emits_the_same_rows_and_the_plan_names_the_variant() -> None:
    plans = []

    def build(assigner: Any) -> Build:
        def project(orders: DataStream, payments: DataStream) -> DataStream:
            joined = by_id(orders, payments, assigner).project(["id", "cents"], ["paid"])
            joined.sink_to(Collect())
            plans.append("joined in columns" in joined.get_execution_environment().explain())
            return joined

        return project

    lefts, rights = [order("a", 7, 1), order("b", 8, 2), EPOCH, order("a", 9, 3)], [payment("a", 5, 4)]
    gaps = EventTimeSessionWindows.with_gap(Duration.of_millis(10))
    rows = [results(lefts, rights, build(assigner)) for assigner in (TENS, gaps)]
    assert rows[0] == rows[1] == [("a", 7, 5), ("a", 9, 5)]
    assert plans == [True, False]


def test_a_side_of_which_no_field_is_wanted_still_has_to_be_there() -> None:
    lefts, rights = [order("a", 7, 1), order("b", 8, 2)], [payment("a", 5, 4), payment("a", 6, 5)]
    assert results(lefts, rights, lambda a, b: by_id(a, b).project(["cents"], [])) == [(7,), (7,)]


def test_rows_are_dropped_from_the_store_when_their_last_window_is_over() -> None:
    lefts: list[Any] = [item for n in range(30) for item in (order("a", n, n * 5), Watermark(n * 5))]
    rights: list[Any] = [item for n in range(30) for item in (payment("b", n, n * 5), Watermark(n * 5))]
    slides = SlidingEventTimeWindows.of(Duration.of_millis(20), Duration.of_millis(10))
    result, out = ran(lefts, rights, lambda a, b: by_id(a, b, slides).project(["cents"], ["paid"]))
    assert result[out] == []
    kept = [stored_rows(manifest) for manifest in result.manifests]
    assert 4 <= max(kept) <= 16 and kept[-1] == 0


def test_what_meets_within_an_epoch_is_never_stored() -> None:
    lefts, rights = [order("a", 7, 1), Watermark(9)], [payment("a", 5, 4), Watermark(9)]
    result, out = ran(lefts, rights, lambda a, b: by_id(a, b).project(["cents"], ["paid"]))
    assert len(result[out]) == 1
    assert [stored_rows(manifest) for manifest in result.manifests] == [0] * len(result.manifests)


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=12),
    st.sampled_from([PaneWindows(10, 10), PaneWindows(10, 4, 1), PaneWindows(12, 4), PaneWindows(30, 30, 0, 10)]),
    st.integers(-12, 8),
    st.integers(0, 12),
    st.integers(1, 6),
)
def test_rows_are_listed_by_window_in_blocks_as_a_loop_would_list_them(
    times: list[int], windows: PaneWindows, after: int, count: int, block_rows: int
) -> None:
    expected = [
        (row, number)
        for number in range(after + 1, after + count + 1)
        for row, time in enumerate(times)
        if windows.starts(number) <= time < windows.ends(number)
    ]
    blocks = list(rows_by_window(np.array(times), windows, WindowRange(after, after + count), block_rows))
    listed = [pair for rows, numbers in blocks for pair in zip(rows.tolist(), numbers.tolist(), strict=True)]
    assert listed == expected
    assert all(len(rows) <= block_rows or len(set(numbers.tolist())) == 1 for rows, numbers in blocks)


def test_a_record_without_fields_fails_the_job_with_advice() -> None:
    deleted = Row.of_kind(RowKind.DELETE, "a", 7, 1)
    with pytest.raises(JobFailedError, match=r"not an INSERT.*join with a function"):
        results([deleted], [payment("a", 5, 1)], lambda a, b: by_id(a, b).project(["cents"], ["paid"]))


@pytest.mark.parametrize("in_columns", [True, False])
def test_what_waits_for_the_other_side_is_there_after_a_restart_at_another_parallelism(in_columns: bool) -> None:
    ids = [f"id {n}" for n in range(20)]
    lefts = [*(order(id, n, n % 7) for n, id in enumerate(ids)), EPOCH, EPOCH, *(order(id, 50, 15) for id in ids)]
    rights = [EPOCH, *(payment(id, n, 9) for n, id in enumerate(ids)), EPOCH, *(payment(id, 60, 16) for id in ids)]

    def build(orders: DataStream, payments: DataStream) -> DataStream:
        windows = by_id(orders, payments)
        return windows.project(["cents"], ["paid"]) if in_columns else windows.apply(lambda a, b: (a.cents, b.paid))

    store, found = f"rescaled-{next(COUNTER)}", []
    for parallelism, epochs in ((2, 1), (3, 3), (1, None)):  # 2 is the first stop
        found += results(lefts, rights, build, parallelism=parallelism, store=store, epochs=epochs)
    assert sorted(found) == sorted([(n, n) for n in range(20)] + [(50, 60)] * 20)


def test_a_job_continued_with_other_windows_or_fields_is_rejected_with_advice() -> None:
    lefts, rights = [order("a", 7, 1), EPOCH, order("a", 8, 3)], [EPOCH, payment("a", 5, 4)]
    slides = SlidingEventTimeWindows.of(Duration.of_millis(20), Duration.of_millis(10))
    told = "were stored for other windows", "was saved with the fields cents"
    for assigner, fields, what in ((slides, ["cents"], told[0]), (TENS, ["at_ms"], told[1])):
        store = f"changed-{next(COUNTER)}"
        ran(lefts, rights, lambda a, b: by_id(a, b).project(["cents"], ["paid"]).uid("join"), store=store, epochs=1)
        with pytest.raises(JobFailedError, match=f"{what}.*another uid"):
            other = partial(projected, assigner=assigner, fields=fields)
            ran(lefts, rights, other, store=store)


def projected(orders: DataStream, payments: DataStream, assigner: Any, fields: list[str]) -> DataStream:
    joined: DataStream = by_id(orders, payments, assigner).project(fields, ["paid"])
    return joined.uid("join")


def test_the_plan_shows_both_inputs_and_their_stored_fields() -> None:
    env = StreamExecutionEnvironment()
    orders, payments = (env.from_source(Script([], type_info=kind), timed(), "s") for kind in (ORDER, PAYMENT))
    by_id(orders, payments).project(["id"], ["paid"]).sink_to(Collect())
    grouped = orders.co_group(payments).where("id").equal_to("id").window(TENS)
    grouped.evictor(CountEvictor.of(3)).allowed_lateness(5).apply(FullOuter()).sink_to(Collect())
    lines = [line.strip() for line in env.explain().splitlines()]
    joined, co_grouped = (
        next(at for at, line in enumerate(lines) if name in line) for name in ("] Join", "] Co-Group")
    )
    assert lines[joined - 2 : joined] == lines[co_grouped - 2 : co_grouped]
    assert [line.endswith("as input 2") for line in lines[joined - 2 : joined]] == [False, True]
    assert "keeps per key: records of both sides, joined in columns, for windows of 10 ms  → columns(" in lines[joined]
    kept = (
        "keeps per key and window: its records, evicted by CountEvictor, fired by EventTimeTrigger, late by up to 5 ms"
    )
    assert kept in lines[co_grouped]


# --- refusals -------------------------------------------------------------------------------------------------------


def streams() -> tuple[DataStream, DataStream]:
    env = StreamExecutionEnvironment()
    return env.from_collection([], ORDER), env.from_collection([], PAYMENT)


def test_a_missing_step_is_named() -> None:
    orders, payments = streams()
    with Refused("JoinedStreams has no 'equal_to'", "A step is missing before it: where(selector)"):
        orders.join(payments).equal_to("id")
    with Refused("JoinedStreams has no 'window'", "A step is missing before it: where(selector)"):
        orders.join(payments).window(TENS)
    with Refused("Where has no 'window'", "A step is missing before it: equal_to(selector)"):
        orders.co_group(payments).where("id").window(TENS)
    with Refused("EqualTo has no 'apply'", "A step is missing before it: window(assigner)"):
        orders.join(payments).where("id").equal_to("id").apply(owed)
    with Refused("EqualTo has no 'project'", "A step is missing before it: window(assigner)"):
        orders.join(payments).where("id").equal_to("id").project(["id"], [])
    with Refused("JoinedStreams has no 'reduce'", "A step is missing before it: where(selector)"):
        orders.join(payments).reduce(owed)
    assert not hasattr(orders.join(payments), "window")


def test_keys_of_different_types_are_refused() -> None:
    orders, payments = streams()
    with Refused("different types, STRING by where() and LONG by equal_to()", "the same key_type="):
        orders.join(payments).where("id").equal_to("paid")
    with Refused("different types, undeclared by where() and STRING", "key_type="):
        orders.co_group(payments).where(lambda row: row.id).equal_to("id")


def test_what_is_no_stream_key_window_or_function_is_refused() -> None:
    orders, payments = streams()
    with Refused("join: found 5 (int), expected a stream"):
        orders.join(5)  # type: ignore[arg-type]
    with Refused("co_group: the streams belong to different environments", "Create both in the same environment"):
        orders.co_group(streams()[0])
    with Refused("join(...).where('due')", "has no such field"):
        orders.join(payments).where("due")
    with Refused("join(...).where(...).equal_to: found None"):
        orders.join(payments).where("id").equal_to(None)  # type: ignore[arg-type]
    with Refused("join(...).window: found 10, expected a window assigner"):
        orders.join(payments).where("id").equal_to("id").window(10)  # type: ignore[arg-type]
    with Refused("side_output_left_late_data: found 'late', expected an OutputTag"):
        by_id(orders, payments).side_output_left_late_data("late")
    with Refused("join(...).apply: found a CoGroupFunction", "co_group(...)….apply()"):
        by_id(orders, payments).apply(FullOuter())
    with Refused("join(...).apply: found the class Twice", "Pass an instance"):
        by_id(orders, payments).apply(Twice)
    with Refused("co_group(...).apply: found a FlatJoinFunction"):
        orders.co_group(payments).where("id").equal_to("id").window(TENS).apply(Twice())  # type: ignore[arg-type]


def test_fields_of_a_stream_without_a_type_cannot_be_chosen() -> None:
    orders, payments = streams()
    untyped = payments.map(lambda row: row)
    with Refused("join(...).project: the right stream is untyped"):
        orders.join(untyped).where("cents").equal_to(lambda row: row[1], Types.LONG()).window(TENS).project(["id"], [1])


@pytest.mark.parametrize("bare", ["first", "second"])
@pytest.mark.parametrize("in_columns", [True, False])
def test_a_side_that_cannot_have_timestamps_is_named_before_the_job_starts(bare: str, in_columns: bool) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        orders, payments = env.from_collection([], ORDER), env.from_collection([], PAYMENT)
        if bare == "first":
            payments = payments.assign_timestamps_and_watermarks(timed())
        else:
            orders = orders.assign_timestamps_and_watermarks(timed())
        windows = by_id(orders, payments)
        (windows.project(["id"], []) if in_columns else windows.apply(owed)).sink_to(Collect())

    with pytest.raises(ProgramError, match=f"no operator before its {bare} input assigns timestamps"):
        run(build)


def test_an_unpicklable_function_is_reported_at_the_line_of_the_join() -> None:
    lock = Lock()
    with pytest.raises(ProgramError, match=r"it holds .*lock.*cannot be pickled.*test_window_joins"):
        ran([], [], lambda a, b: by_id(a, b).apply(lambda one, two: (lock, one)))


def test_an_error_in_a_join_function_fails_the_job() -> None:
    def broken(one: Any, two: Any) -> Any:
        raise ValueError("no such currency")

    with pytest.raises(JobFailedError, match="no such currency"):
        ran([order("a", 1, 1)], [payment("a", 1, 1)], lambda a, b: by_id(a, b).apply(broken))


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_programs_of_the_page_run_as_they_are_printed() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "datastream" / "joins.md").read_text()
    names: dict[str, Any] = {}
    exec(compile("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), "joins.md", "exec"), names)
    bought = Types.ROW_NAMED(["order", "item", "at_ms", "cents"], [*[Types.STRING()] * 2, *[Types.LONG()] * 2])
    paid = Types.ROW_NAMED(["order", "cents", "at_ms"], [Types.STRING(), Types.LONG(), Types.LONG()])
    owes, outer, items = Collect(), Collect(), Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        sold = [Row("1", "book", 1_000, 900), Row("2", "pen", 2_000, 200), EPOCH, Row("1", "lamp", 61_000, 5_000)]
        orders = env.from_source(Script(sold, type_info=bought), timed(), "orders")
        payments = env.from_source(Script([EPOCH, Row("1", 700, 59_999)], type_info=paid), timed(), "payments")
        names["still_owed"](orders, payments).sink_to(owes)
        names["with_and_without"](orders, payments).sink_to(outer)
        names["paid_items"](orders, payments).sink_to(items)

    result = run(build, parallelism=2)
    assert result[owes] == [("1", 200)]
    assert sorted(result[outer], key=str) == [("1", 700), ("1", None), ("2", None)]
    assert result[items] == [Row(order="1", item="book", paid=700)]
