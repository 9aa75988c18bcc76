"""Queries of open windows: a key's open windows, as any of the three operators stores them, match the records so far.

The model: every record belongs to the windows that contain its time; a window is open until the watermark passes its
end plus the allowed lateness.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.queryable import (
    NAME,
    OPERATIONS,
    RECORD,
    TIMED_EPOCHS,
    TOTALS,
    WINDOWS,
    Sum,
    check_windows,
    ms,
    record,
    stamped,
    sums,
)

from millstream import query
from millstream.common import Row, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import ProcessWindowFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import (
    EventTimeSessionWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.errors import JobFailedError, ProgramError
from millstream.testing import EPOCH, Collect, ManualClock, Script, Watermark, run

STORES = count()


def asked(build: Any, **options: Any) -> query.JobView:
    store = f"test-query-windows-{next(STORES)}"
    run(build, store=store, **options)
    return query.open(f"memory://{store}", unpickle=pickle.loads)


@pytest.mark.parametrize("operation", list(OPERATIONS))
@settings(deadline=None, max_examples=3)
@given(TIMED_EPOCHS, st.sampled_from(list(WINDOWS)), st.sampled_from([0, 15]), st.sampled_from([1, 2]))
def test_open_windows_match_the_records_so_far(
    operation: str, epochs: list[list[tuple[str, int, int]]], windows: str, lateness: int, parallelism: int
) -> None:
    check_windows(operation, epochs, windows, lateness, parallelism)


def test_all_built_in_aggregates_report_their_current_value() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        keyed = stamped(env, [record("a", 1, 4), record("a", 3, 7), EPOCH, record("a", 4, 1)]).key_by("key")
        keyed.window(TumblingEventTimeWindows.of(ms(20))).queryable(NAME).aggregate(TOTALS).sink_to(Collect())

    job = asked(build)
    with job.at(epoch=1) as view:
        assert view.windows(NAME, "a") == [query.WindowView(0, 20, Row(n=11, records=2, largest=7, mean=5.5))]
    assert job.newest().windows(NAME, "a") == []  # the job has ended, and all its windows with it
    [state] = job.states()
    assert (state.kind, state.key_type, state.is_pickled) == ("window", "STRING", False)
    assert state.value_type["row"][0] == ["n", "LONG"]


@pytest.mark.parametrize("operation", ["columns", "reduce", "records"])
def test_a_late_record_is_visible_in_the_next_epoch(operation: str) -> None:
    apply, shown = OPERATIONS[operation]

    def build(env: StreamExecutionEnvironment) -> None:
        items = [record("a", 5), EPOCH, record("b", 25), EPOCH, record("a", 6), EPOCH, record("b", 90)]
        windows = stamped(env, items).key_by("key").window(TumblingEventTimeWindows.of(ms(20)))
        apply(windows.allowed_lateness(30).queryable(NAME)).sink_to(Collect())

    told = [(epoch, value) for epoch, _, value in asked(build).series(NAME, "a")][:4]
    assert [(epoch, [shown(window.result) for window in value]) for epoch, value in told] == [
        (1, [1]),
        (2, [1]),
        (3, [2]),
        (4, []),
    ]


@pytest.mark.parametrize("operation", ["reduce", "aggregate", "records"])
def test_sessions_are_reported_with_their_merged_bounds(operation: str) -> None:
    apply, shown = OPERATIONS[operation]

    def build(env: StreamExecutionEnvironment) -> None:
        items = [record("a", 0, 1), record("a", 18, 2), EPOCH, record("a", 9, 4), record("a", 40, 8)]
        keyed = stamped(env, items).key_by("key")
        apply(keyed.window(EventTimeSessionWindows.with_gap(ms(10))).allowed_lateness(100).queryable(NAME)).sink_to(
            Collect()
        )

    job = asked(build)
    with job.at(epoch=1) as first, job.at(epoch=2) as second:
        assert sums(first, "a", shown) == [(0, 10, 1), (18, 28, 2)]
        assert sums(second, "a", shown) == [(0, 28, 7), (40, 50, 8)]
        assert sums(second, "nobody", shown) == []


def test_processing_time_windows_are_open_until_their_end() -> None:
    clock = ManualClock(1_005)

    def build(env: StreamExecutionEnvironment) -> None:
        keyed = env.add_source(Script([record("a", 0, 3), EPOCH, record("a", 0, 4)], type_info=RECORD)).key_by("key")
        windows = keyed.window(TumblingProcessingTimeWindows.of(ms(100))).queryable(NAME)
        windows.aggregate(TOTALS).sink_to(Collect())

    job = asked(build, clock=clock, epochs=2)
    with job.at(epoch=2) as view:
        assert sums(view, "a", lambda result: result["n"]) == [(1_000, 1_100, 7)]


def test_a_user_defined_accumulator_is_marked_as_such() -> None:
    store = f"test-query-windows-{next(STORES)}"

    def build(env: StreamExecutionEnvironment) -> None:
        keyed = stamped(env, [record("a", 1, 4), EPOCH, record("a", 2, 5)]).key_by("key")
        keyed.window(TumblingEventTimeWindows.of(ms(20))).queryable(NAME).aggregate(Sum()).sink_to(Collect())

    run(build, store=store)
    [window] = query.open(f"memory://{store}", unpickle=pickle.loads).at(epoch=2).windows(NAME, "a")
    assert (window.result, window.is_accumulator) == ([9], True)
    job = query.open(f"memory://{store}", functions={NAME: Sum()}, unpickle=pickle.loads)
    [window] = job.at(epoch=2).windows(NAME, "a")
    assert (window.result, window.is_accumulator) == (9, False)


def test_windows_of_a_whole_stream_have_the_one_key_zero() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        stream = stamped(env, [record("a", 1, 4), record("b", 2, 5)])
        stream.window_all(TumblingEventTimeWindows.of(ms(20))).queryable(NAME).aggregate(TOTALS).sink_to(Collect())

    with asked(build).at(epoch=1) as view:
        assert sums(view, 0, lambda result: result["n"]) == [(0, 20, 9)]


def test_windows_are_not_values_and_per_window_state_is_not_queryable() -> None:
    class Remembers(ProcessWindowFunction):  # type: ignore[type-arg]
        def process(self, key: str, context: Any, elements: Iterable[Row]) -> Iterable[Any]:
            descriptor = ValueStateDescriptor("seen", Types.LONG())
            descriptor.set_queryable("seen")
            context.window_state().get_state(descriptor)
            yield 1

    def build(env: StreamExecutionEnvironment) -> None:
        keyed = stamped(env, [record("a", 1), EPOCH]).key_by("key")
        keyed.window(TumblingEventTimeWindows.of(ms(20))).queryable(NAME).aggregate(TOTALS).sink_to(Collect())

    with pytest.raises(query.StateKindError, match=r"'per-window' is windows: a key may have several. Use windows"):
        asked(build).newest().get(NAME, "a")

    def remembering(env: StreamExecutionEnvironment) -> None:
        keyed = stamped(env, [record("a", 1), Watermark(50)]).key_by("key")
        keyed.window(TumblingEventTimeWindows.of(ms(20))).process(Remembers()).sink_to(Collect())

    with pytest.raises((ProgramError, JobFailedError), match="Make the windows queryable instead"):
        asked(remembering)
