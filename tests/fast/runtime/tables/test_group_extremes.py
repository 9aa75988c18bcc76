"""MIN and MAX over inserts and deletes, with heads so small that values are spilled all the time."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs.one_task import QueryPlan, QueryTask

from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.runtime.tables import group_extremes
from millstream.runtime.tables.changes import equal_rows
from millstream.runtime.tables.references.changes import table_after
from millstream.runtime.tables.references.groups import extremes_of

TYPE = Types.ROW_NAMED(["k", "v", "s"], [Types.INT(), Types.LONG(), Types.STRING()])
ADDED = (RowKind.INSERT, RowKind.UPDATE_AFTER)
TEXTS = ["", "a", "ab", "begins alike, then b", "begins alike, then c", "ü"]
NUMBERS = [-(2**63), -3, -2, -1, 0, 1, 2, 3, 2**63 - 1]
CHANGE = st.tuples(st.integers(0, 1), st.none() | st.sampled_from(NUMBERS), st.none() | st.sampled_from(TEXTS))


@cache
def plan() -> QueryPlan:
    query = "SELECT k, MIN(v), MAX(v), MIN(s), MAX(s) FROM t GROUP BY k"
    return QueryPlan(query, ["t"], TYPE, only_grows=False, is_timed=False)


def row_of(values: tuple[Any, ...], sign: int) -> Row:
    row = Row(*values)
    row.set_row_kind(RowKind.INSERT if sign > 0 else RowKind.DELETE)
    return row


@st.composite
def signed_epochs(draw: Any) -> list[list[tuple[tuple[Any, ...], int]]]:
    """Changes in epochs. Values may be deleted before they are inserted, like those of an aggregate that was added to
    the query; a group's row count is never negative.
    """
    epochs = []
    sizes = Counter[int]()
    for _ in range(4):
        changes = []
        for values, goes in draw(st.lists(st.tuples(CHANGE, st.integers(0, 2)), max_size=12)):
            sign = -1 if goes == 0 and sizes[values[0]] > 1 else 1
            sizes[values[0]] += sign
            changes.append((values, sign))
        epochs.append(changes)
    return epochs


@pytest.mark.slow
@pytest.mark.parametrize(("values", "values_max"), [(1, 1), (2, 3), (64, 256)])
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(epochs=signed_epochs(), reopened=st.lists(st.booleans(), min_size=4, max_size=4))
def test_results_agree_with_all_current_values(
    values: int, values_max: int, epochs: list[list[Any]], reopened: list[bool]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_extremes, "HEAD_VALUES", values)
        patch.setattr(group_extremes, "HEAD_VALUES_MAX", values_max)
        task, emitted_rows, so_far = QueryTask(plan()), list[Row](), list[Any]()
        for changes, is_reopened in zip(epochs, reopened, strict=True):
            emitted_rows += task.run({"t": [row_of(*change) for change in changes]}, reopened=is_reopened)
            so_far += changes
            expected = []
            for key in {row[0] for row, _ in so_far}:
                of_key = [(row, sign) for row, sign in so_far if row[0] == key]
                numbers, texts = (extremes_of((row[at], sign) for row, sign in of_key) for at in (1, 2))
                expected.append((key, *numbers, *texts))
            rows = table_after((tuple(row), row.get_row_kind() in ADDED) for row in emitted_rows)
            assert Counter(rows) == Counter(expected)


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string(), pa.decimal128(38, 4)], ids=str)
@given(data=st.data())
def test_sort_positions_rise_with_values_independently_of_other_values(kind: pa.DataType, data: st.DataObject) -> None:
    values: Any = {
        "int64": st.integers(-(2**63), 2**63 - 1),
        "double": st.floats(allow_nan=False),
        "string": st.text(max_size=10),
        "decimal128(38, 4)": st.decimals(-(10**30), 10**30, places=4),
    }[str(kind)]
    column = sorted(data.draw(st.lists(values, min_size=1)))
    rising = group_extremes.places_of(pa.array(column, kind), descending=False)
    assert (rising[1:] >= rising[:-1]).all()
    assert (group_extremes.places_of(pa.array(column, kind), descending=True) == ~rising).all()
    single_positions = [int(group_extremes.places_of(pa.array([value], kind), descending=False)[0]) for value in column]
    assert rising.tolist() == single_positions
    sliced = group_extremes.places_of(pa.array([column[0], *column], kind).slice(1), descending=False)
    assert sliced.tolist() == single_positions


PAIR = st.tuples(st.none() | st.integers(0, 2), st.none() | st.sampled_from(["a", "b"]))


@given(st.lists(PAIR, max_size=12), st.lists(PAIR, max_size=12))
def test_equal_rows_of_two_sides_are_matched_one_to_one(left: list[Any], right: list[Any]) -> None:
    both = [*left, *right]
    columns = [pa.array([row[0] for row in both], pa.int64()), pa.array([row[1] for row in both], pa.string())]
    takes = [lambda rows, column=column: column.take(pa.array(rows)) for column in columns]
    equal = equal_rows(len(both), len(left), takes).tolist()
    common = Counter(left) & Counter(right)
    assert Counter(both[row] for row in equal if row < len(left)) == common
    assert Counter(both[row] for row in equal if row >= len(left)) == common
    assert len(set(equal)) == len(equal)
