"""OVER aggregates computed in columns agree with a row-by-row reference, whatever the frame, the order and the epoch
cut.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.errors import ProgramError
from millstream.expressions.types import BigIntType, BooleanType, DoubleType, VarCharType
from millstream.graph.over_nodes import Frame, OverColumn
from millstream.graph.table_nodes import OrderKey
from millstream.planner.lowering.aggregates import bound_aggregates
from millstream.planner.relations import AggregateCall
from millstream.runtime.tables.over_calls import Earlier, FrameCall, over_calls
from millstream.runtime.tables.over_frames import ordered, ordered_by_time
from millstream.runtime.tables.over_reference import over_values

TYPES = (BigIntType(), BigIntType(), DoubleType(), VarCharType(9), BooleanType(), BigIntType(False))
SCHEMA = pa.schema([(f"c{at}", type_.arrow) for at, type_ in enumerate(TYPES)])
KEY, VALUE, FLOAT, TEXT, MASK, TILES = range(6)

ROWS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.none() | st.integers(-6, 6),
        st.none() | st.integers(-8, 8).map(lambda n: n / 4),
        st.none() | st.sampled_from(("a", "b", "c")),
        st.none() | st.booleans(),
        st.integers(1, 4),
    ),
    max_size=14,
)
BOUNDS = st.none() | st.integers(-2, 4)
FRAMES = st.builds(Frame, st.sampled_from(("ROWS", "RANGE")), BOUNDS, BOUNDS).filter(
    lambda frame: frame.preceding is None or frame.following is None or -frame.preceding <= frame.following
)
ORDERS = st.builds(OrderKey, st.just(VALUE) | st.just(FLOAT), st.booleans(), st.booleans()).map(lambda key: (key,))
CALLS = (
    AggregateCall("COUNT", (), BigIntType(False), "n"),
    AggregateCall("COUNT", (VALUE,), BigIntType(False), "n", filter=MASK),
    AggregateCall("SUM", (VALUE,), BigIntType(), "s"),
    AggregateCall("SUM", (FLOAT,), DoubleType(), "s", filter=MASK),
    AggregateCall("AVG", (VALUE,), BigIntType(), "a"),
    AggregateCall("AVG", (FLOAT,), DoubleType(), "a"),
    AggregateCall("MIN", (FLOAT,), DoubleType(), "m"),
    AggregateCall("MAX", (TEXT,), VarCharType(9), "m"),
    AggregateCall("FIRST_VALUE", (TEXT,), VarCharType(9), "f"),
    AggregateCall("LAST_VALUE", (VALUE,), BigIntType(), "l", filter=MASK),
    AggregateCall("COUNT", (TEXT,), BigIntType(False), "d", distinct=True),
    AggregateCall("SUM", (VALUE,), BigIntType(), "d", distinct=True, filter=MASK),
    AggregateCall("VAR_POP", (FLOAT,), DoubleType(), "v"),
    AggregateCall("STDDEV_SAMP", (FLOAT,), DoubleType(), "v", filter=MASK),
    AggregateCall("LISTAGG", (TEXT,), VarCharType(99), "t"),
)
PLACES = (
    *(OverColumn(name) for name in ("ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST")),
    OverColumn("NTILE", arguments=(TILES,)),
    OverColumn("LAG", arguments=(TEXT,)),
    OverColumn("LAG", arguments=(VALUE, TILES, KEY)),
    OverColumn("LEAD", arguments=(VALUE, TILES)),
)


def aggregates(frame: Frame) -> list[OverColumn]:
    return [
        OverColumn(call.function, frame, measure)
        for call, measure in zip(CALLS, bound_aggregates(CALLS, TYPES), strict=True)
    ]


def close(values: list[Any]) -> list[Any]:
    """Values, floats without their last digits."""
    return [round(value, 9) + 0.0 if isinstance(value, float) else value for value in values]


def batch_of(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def in_columns(columns: list[OverColumn], order: tuple[OrderKey, ...], rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    batch = batch_of(rows)
    in_order = ordered(np.array([row[KEY] for row in rows], dtype=np.int64), batch.columns, order)
    sorted_batch = batch.take(pa.array(in_order.rows))
    results = []
    for call in over_calls(columns):
        values = call.results(in_order, sorted_batch).to_pylist()
        placed = [None] * len(rows)
        for place, row in enumerate(in_order.rows.tolist()):
            placed[row] = values[place]
        results.append(placed)
    return results


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(rows=ROWS.filter(len), frame=FRAMES, order=ORDERS)
def test_frame_aggregates_agree_with_the_reference(
    rows: list[tuple[Any, ...]], frame: Frame, order: tuple[OrderKey, ...]
) -> None:
    columns = aggregates(frame)
    partitions = [row[KEY] for row in rows]
    for column, results in zip(columns, in_columns(columns, order, rows), strict=True):
        assert close(results) == close(over_values(column, order, rows, partitions)), column


ENDS = (-(2**63), -(2**63) + 1, 0, 2**63 - 2, 2**63 - 1, None)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(ENDS), min_size=1, max_size=8), FRAMES, st.booleans())
@example([ENDS[0], ENDS[1]], Frame("RANGE", -2, 4), True)
@example([ENDS[-2]], Frame("RANGE", -1, 4), False)
def test_ranges_at_the_ends_of_integer_types_agree_with_the_reference(
    values: list[int | None], frame: Frame, descending: bool
) -> None:
    rows = [(0, value, 0.5, "a", True, 1) for value in values]
    [count, *_], order = aggregates(frame), (OrderKey(VALUE, descending),)
    assert in_columns([count], order, rows) == [over_values(count, order, rows, [0] * len(rows))]


def test_rows_are_split_into_several_parts() -> None:
    with pytest.raises(ProgramError, match="NTILE: the number of parts is 0 or less"):
        in_columns([OverColumn("NTILE", arguments=(TILES,))], (OrderKey(VALUE),), [(0, 5, 0.5, "a", True, 0)])


def test_an_empty_frame_has_count_0_and_null_aggregates() -> None:
    columns = [column for column in aggregates(Frame("ROWS", 2, -1)) if column.function in ("COUNT", "SUM", "MAX")]
    results = in_columns(columns, (OrderKey(VALUE),), [(0, 5, 0.5, "a", True, 1)])
    assert [values[0] for values in results] == [0, 0, None, None, None, 0, None]


@settings(max_examples=40, deadline=None)
@given(rows=ROWS.filter(len), order=ORDERS)
def test_ranks_and_neighbours_agree_with_the_reference(
    rows: list[tuple[Any, ...]], order: tuple[OrderKey, ...]
) -> None:
    partitions = [row[KEY] for row in rows]
    for column, results in zip(PLACES, in_columns(list(PLACES), order, rows), strict=True):
        assert results == pytest.approx(over_values(column, order, rows, partitions)), column


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(rows=ROWS.filter(len), cut=st.integers(0, 14), unit=st.sampled_from(("ROWS", "RANGE")))
def test_frames_across_an_epoch_cut_equal_those_of_the_whole_input(
    rows: list[tuple[Any, ...]], cut: int, unit: str
) -> None:
    # Times only grow, and rows on the two sides of the cut never share a time.
    times = np.array([number // 2 if number < cut else 100 + number // 2 for number in range(len(rows))])
    columns = aggregates(Frame(unit))
    timed = [(*row, int(time)) for row, time in zip(rows, times, strict=True)]
    partitions = [row[KEY] for row in rows]
    for column, call in zip(columns, over_calls(columns), strict=True):
        assert isinstance(call, FrameCall)
        known: dict[int, list[pa.Array]] = {}
        results: list[Any] = [None] * len(rows)
        for part in (range(min(cut, len(rows))), range(min(cut, len(rows)), len(rows))):
            if not len(part):
                continue
            own = np.array(part)
            in_order = ordered_by_time(np.array([partitions[at] for at in part], dtype=np.int64), times[own])
            keys = in_order.partitions[in_order.begins == in_order.places].tolist()
            had = np.array([key in known for key in keys], dtype=np.bool_)
            parts = [known[key] for key in keys if key in known]
            none = [pa.nulls(0, kind) for kind in call.kernel.part_kinds]
            earlier = Earlier(had, [pa.concat_arrays(each) for each in zip(*parts, strict=True)] if parts else none)
            batch = batch_of([rows[at] for at in part]).take(pa.array(in_order.rows))
            values, now = call.running(in_order, batch, times[own][in_order.rows], earlier)
            for place, row in enumerate(in_order.rows.tolist()):
                results[part[row]] = values[place].as_py()
            known |= {key: [column[at : at + 1] for column in now] for at, key in enumerate(keys)}
        assert close(results) == close(over_values(column, (OrderKey(6),), timed, partitions)), column


def test_range_distances_at_the_ends_of_integer_types_do_not_wrap() -> None:
    ends = [-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1]
    in_order = ordered(np.zeros(4, dtype=np.int64), [pa.array(ends)], (OrderKey(0),))
    starts, stops = in_order.frames(Frame("RANGE", 5, 5))
    assert starts.tolist() == [0, 0, 2, 2] and stops.tolist() == [2, 2, 4, 4]
