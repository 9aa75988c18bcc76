"""Values shared by several DISTINCT aggregates: stored once in a group, with the marks of the aggregates that include
them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.aggregation import marked_kernels
from millstream.aggregation.distinct_arguments import MARKS_MAX, distinct_arguments, partial_measures
from millstream.aggregation.groups import Groups
from millstream.aggregation.kernels import column_of, kernels_of
from millstream.aggregation.list_kernels import flat
from millstream.aggregation.marked_kernels import MarkedPairs, united, united_reference
from millstream.common.typeinfo import Types
from millstream.state.windows.bound_aggregates import AggregateArgument, BoundAggregate

LONG = Types.LONG()
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "close": (pa.int64(), st.integers(-3, 3)),
    "far": (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])),
    "narrow": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "times": (pa.timestamp("ms"), st.sampled_from([-1, 0, 10**12])),
    "texts": (pa.string(), st.sampled_from(["", "a", "b"])),
    "reals": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5])),
}
MARKS = st.sampled_from([1, 2, 3, 8, 1 << (MARKS_MAX - 1)])


def as_dict(pairs: MarkedPairs) -> dict[tuple[int, Any], int]:
    triples = list(zip(pairs.codes.tolist(), pairs.values.to_pylist(), pairs.marks.tolist(), strict=True))
    marks = {(code, value): marks for code, value, marks in triples}
    assert len(marks) == len(triples), "a duplicate pair of group and value"
    assert pairs.codes.tolist() == sorted(pairs.codes.tolist())
    return marks


@pytest.mark.parametrize("places_per_pair", [0, 4, 1_000])
@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_marks_of_a_group_and_value_are_unioned(name: str, places_per_pair: int, data: st.DataObject) -> None:
    kind, values = VALUES[name]
    rows = data.draw(st.lists(st.tuples(st.integers(0, 2), values, MARKS), max_size=12))
    codes, column, marks = ([row[at] for row in rows] for at in range(3))
    pairs = MarkedPairs(np.array(codes, np.int64), pa.array(column, kind), np.array(marks, np.int64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marked_kernels, "_PLACES_PER_PAIR", places_per_pair)
        result = united(pairs, 3)
    assert as_dict(result) == united_reference(zip(codes, pairs.values.to_pylist(), marks, strict=True))
    assert result.values.type == kind


def distinct(number: int, field: int, mask: int | None = None, kind: str = "count") -> BoundAggregate:
    arguments = (AggregateArgument(LONG, field, mask=mask),)
    inner = BoundAggregate("inner", kind, arguments, result=LONG)
    return BoundAggregate(f"{number}_{kind}", "distinct", arguments, result=LONG, inner=inner)


ROW = st.tuples(st.integers(0, 2), st.none() | st.integers(-2, 2), st.none() | st.booleans(), st.none() | st.booleans())


@given(st.lists(ROW, min_size=1, max_size=15), st.data())
def test_values_have_the_marks_of_the_aggregates_whose_filter_they_pass(rows: list[Any], data: st.DataObject) -> None:
    batch = pa.record_batch(
        [
            pa.array([row[at] for row in rows], kind)
            for at, kind in enumerate((pa.int64(), pa.int64(), pa.bool_(), pa.bool_()))
        ],
        names=["k", "v", "a", "b"],
    )
    filters = data.draw(st.sampled_from([(None, 2), (2, 3), (2, None, 3)]))
    (measure,) = partial_measures([distinct(number, 1, mask) for number, mask in enumerate(filters)], None)
    (kernel,) = kernels_of([measure])
    columns = [column_of(argument, batch) for argument in measure.arguments]
    codes, at = np.array([row[0] for row in rows]), np.zeros(len(rows), np.int64)
    expected: dict[tuple[int, Any], int] = {}
    for row in rows:
        marks = sum(1 << bit for bit, mask in enumerate(filters) if mask is None or row[mask])
        if row[1] is not None and marks:
            expected[row[0], row[1]] = expected.get((row[0], row[1]), 0) | marks
    cut = data.draw(st.integers(0, len(rows)))
    pieces = [
        kernel.gather([column[piece] for column in columns], at[piece], Groups(codes[piece], 3))[0]
        for piece in (slice(0, cut), slice(cut, None))
    ]
    together = Groups(np.tile(np.arange(3), 2), 3)
    for lists in (
        kernel.combine([pa.concat_arrays(pieces)], together)[0],
        kernel.combine(kernel.lift(columns, at), Groups(codes, 3))[0],
    ):
        values, lengths = flat(lists)
        pairs = MarkedPairs(np.repeat(np.arange(3), lengths), values.field(0), values.field(1).to_numpy())
        assert as_dict(pairs) == expected


def test_aggregates_of_one_argument_are_sent_at_the_position_of_the_first() -> None:
    measures = [
        distinct(0, 1),
        BoundAggregate("1_count", "count"),
        distinct(2, 2),
        distinct(3, 1, 3),
        distinct(4, 1, 4, "sum"),
    ]
    assert distinct_arguments(measures, None) == ((0, 3, 4), (2,))
    assert [(each.name, each.kind) for each in partial_measures(measures, None)] == [
        ("0_count", "marked_values"),
        ("1_count", "count"),
        ("2_count", "distinct"),
    ]
    assert partial_measures(measures, 1_000) == tuple(measures)


def test_an_added_aggregate_preserves_the_marks_of_the_others() -> None:
    many = [distinct(number, 1, number) for number in range(MARKS_MAX + 2)]
    for count in range(1, len(many)):
        before, after = (distinct_arguments(many[:size], None) for size in (count, count + 1))
        for numbers, more in zip(before, after, strict=False):
            assert more[: len(numbers)] == numbers
    assert len(distinct_arguments(many, None)) == 2
