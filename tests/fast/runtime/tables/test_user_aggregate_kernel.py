"""The kernel of user-defined aggregates, against a loop over the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.aggregation.groups import Groups
from millstream.aggregation.row_arguments import RowOfArguments
from millstream.expressions.types import BigIntType, BooleanType, VarCharType
from millstream.expressions.user_functions import CallMode, UserFunction, UserFunctionKind
from millstream.planner.lowering.user_aggregates import bound_user_aggregate, window_aggregates
from millstream.planner.relations import AggregateCall
from millstream.runtime.tables.user_aggregates import UserAggregate


class Texts:
    """All values as a text, in arrival order, without retracted ones."""

    def create_accumulator(self) -> list[Any]:
        return []

    def accumulate(self, accumulator: list[Any], value: Any) -> None:
        accumulator.append(value)

    def retract(self, accumulator: list[Any], value: Any) -> None:
        accumulator.remove(value)

    def merge(self, accumulator: list[Any], accumulators: Any) -> None:
        for other in accumulators:
            accumulator += other

    def get_value(self, accumulator: list[Any]) -> str:
        return repr(accumulator)


CALL = AggregateCall(
    "",
    (0,),
    VarCharType(99),
    "texts",
    filter=1,
    user=UserFunction("texts", Texts(), (VarCharType(99),), kind=UserFunctionKind.AGGREGATE),
)
TYPES = (BigIntType(), BooleanType())
PIECE = st.lists(st.tuples(st.integers(0, 2), st.none() | st.integers(0, 9), st.none() | st.booleans()), max_size=8)


def kernel(detail: str) -> UserAggregate:
    return UserAggregate(replace(bound_user_aggregate(CALL, TYPES, "texts"), detail=detail))


def lift_rows(made: UserAggregate, piece: list[Any]) -> tuple[Any, np.ndarray]:
    batch = pa.record_batch(
        [pa.array([value for _, value, _ in piece], pa.int64()), pa.array([seen for *_, seen in piece], pa.bool_())],
        names=["v", "seen"],
    )
    rows = RowOfArguments((0,), 1)(batch)
    return made.lift([rows], np.zeros(len(piece), dtype=np.int64)), np.array([g for g, *_ in piece], dtype=np.int64)


@pytest.mark.parametrize("detail", ["groups", "folded", "rows"])
@given(pieces=st.lists(PIECE, min_size=1, max_size=4), merges=st.lists(st.booleans(), min_size=4, max_size=4))
def test_combining_piece_by_piece_agrees_with_a_loop(detail: str, pieces: Any, merges: Any) -> None:
    made = kernel(detail)
    held: Any = None
    for piece, is_settled in zip(pieces, merges, strict=False):
        parts, codes = lift_rows(made, piece)
        groups = Groups(codes, 3)
        fresh = made.combine(parts, groups)
        both = fresh if held is None else [pa.concat_arrays(pair) for pair in zip(held, fresh, strict=True)]
        twice = np.concatenate([np.arange(3)] * (1 if held is None else 2))
        held = made.combine(both, Groups(twice, 3))
        held = made.consolidated(held) if is_settled else held
    expected = [
        repr([value for piece in pieces for group, value, seen in piece if group == wanted and seen])
        for wanted in range(3)
    ]
    assert made.results(held).to_pylist() == expected


@given(pieces=st.lists(PIECE, min_size=2, max_size=4))
def test_accumulators_of_several_panes_are_merged(pieces: Any) -> None:
    made = kernel("folded")
    panes = []
    for piece in pieces:
        parts, codes = lift_rows(made, piece)
        panes.append(made.consolidated(made.combine(parts, Groups(codes, 3))))
    both = [pa.concat_arrays(columns) for columns in zip(*panes, strict=True)]
    merged = made.combine(both, Groups(np.tile(np.arange(3), len(panes)), 3))
    expected = [
        repr([value for piece in pieces for group, value, seen in piece if group == wanted and seen])
        for wanted in range(3)
    ]
    assert made.results(merged).to_pylist() == expected


def test_deletes_are_retracted_after_inserts() -> None:
    made = kernel("groups")
    parts, _ = lift_rows(made, [(0, 7, True), (0, 8, True), (0, 7, True)])
    signed = made.signed(parts, np.array([1, 1, -1]))
    assert made.results(made.combine(signed, Groups(np.zeros(3, dtype=np.int64), 1))).to_pylist() == ["[8]"]


def test_windows_of_several_panes_store_rows_where_accumulators_cannot_be_merged() -> None:
    whole = bound_user_aggregate(CALL, TYPES, "texts")
    unmerged = replace(whole, function=replace(CALL.user, missing_methods=("merge",)))
    pandas = replace(whole, function=replace(CALL.user, mode=CallMode.PANDAS))
    details = [
        [each.detail for each in window_aggregates([whole, unmerged, pandas], merges=merges)]
        for merges in (False, True)
    ]
    assert details == [["folded", "folded", "rows"], ["folded", "rows", "rows"]]
