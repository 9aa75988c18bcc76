"""FIRST_VALUE, LAST_VALUE and DISTINCT aggregates over inserts and deletes, with values that are spilled all the
time.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from functools import cache
from math import nan
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs.one_task import QueryPlan, QueryTask

from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.runtime.operators.user_code import UserFailureError
from millstream.runtime.tables import spilled_values
from millstream.runtime.tables.references.changes import table_after
from millstream.runtime.tables.references.groups import arrivals_of, values_by_arrival

TYPE = Types.ROW_NAMED(["k", "v", "s"], [Types.INT(), Types.LONG(), Types.STRING()])
ADDED = (RowKind.INSERT, RowKind.UPDATE_AFTER)
VALUES = [(number, text) for number in (None, -(2**40), 0, 7, 8) for text in (None, "", "begins alike 1")]


@cache
def plan() -> QueryPlan:
    query = """SELECT k, FIRST_VALUE(v), LAST_VALUE(v), FIRST_VALUE(s), LAST_VALUE(s), LAST_VALUE(DISTINCT s),
        LISTAGG(s), SUM(DISTINCT v), AVG(DISTINCT CAST(v AS DECIMAL(20, 2))), COUNT(DISTINCT s) FROM t GROUP BY k"""
    return QueryPlan(query, ["t"], TYPE)


def rows_of(key: int, values: tuple[Any, ...], times: int) -> list[Row]:
    return [Row.of_kind(RowKind.INSERT if times > 0 else RowKind.DELETE, key, *values) for _ in range(abs(times))]


@st.composite
def epochs_of_changes(draw: Any) -> list[list[tuple[int, Any, int]]]:
    """Changes in epochs, which may be cut anywhere: values are inserted, deleted and inserted again, perhaps several
    times in a row.
    """
    held = Counter[tuple[int, Any]]()
    epochs = []
    for _ in range(4):
        changes = []
        for key, values, times in draw(
            st.lists(st.tuples(st.integers(0, 1), st.sampled_from(VALUES), st.integers(-2, 2)), max_size=10)
        ):
            times = max(times, -held[key, values])
            if times:
                held[key, values] += times
                changes.append((key, values, times))
        epochs.append(changes)
    return epochs


def expected_rows(changes: list[tuple[int, Any, int]]) -> list[tuple[Any, ...]]:
    rows = []
    for key in {key for key, _, _ in changes}:
        held = Counter[Any]()
        for each, values, times in changes:
            held[values] += times if each == key else 0
        if not +held:
            continue
        numbers, texts = ([(row[at], times) for each, row, times in changes if each == key] for at in (0, 1))
        distinct = {row[0] for row in +held if row[0] is not None}
        total = sum(distinct) if distinct else None
        mean = round(Decimal(sum(distinct)) / len(distinct), 6) if distinct else None
        count = len({row[1] for row in +held if row[1] is not None})
        stays = values_by_arrival(texts)[0]
        newest, listed = next(reversed(stays), None), ",".join(Counter(stays).elements()) if stays else None
        rows.append((key, *arrivals_of(numbers), *arrivals_of(texts), newest, listed, total, mean, count))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("values_in_row", [0, 1, 2, 256])
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(epochs=epochs_of_changes(), reopened=st.lists(st.booleans(), min_size=4, max_size=4))
def test_results_agree_with_the_current_values(
    values_in_row: int, epochs: list[list[Any]], reopened: list[bool]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled_values, "VALUES_IN_ROW_MAX", values_in_row)
        task, emitted_rows, so_far = QueryTask(plan()), list[Row](), list[Any]()
        for changes, is_reopened in zip(epochs, reopened, strict=True):
            rows = [row for change in changes for row in rows_of(*change)]
            emitted_rows += task.run({"t": rows}, reopened=is_reopened)
            so_far += changes
            table = table_after((tuple(row), row.get_row_kind() in ADDED) for row in emitted_rows)
            assert Counter(table) == Counter(expected_rows(so_far))


def results(query: str, *epochs: list[tuple[Any, int]], values_in_row: int, type_info: Any = None) -> list[Any]:
    """The row of a query with one result row, after some epochs of changes of one column."""
    type_info = Types.ROW_NAMED(["v"], [type_info or Types.STRING()])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled_values, "VALUES_IN_ROW_MAX", values_in_row)
        task, emitted_rows = QueryTask(QueryPlan(query, ["t"], type_info)), list[Row]()
        for changes in epochs:
            kinds = [(value, RowKind.INSERT if sign > 0 else RowKind.DELETE) for value, sign in changes]
            emitted_rows += task.run({"t": [Row.of_kind(kind, value) for value, kind in kinds]})
    return [tuple(row) for row in emitted_rows if row.get_row_kind() in ADDED][-1:]


@pytest.mark.parametrize("values_in_row", [0, 256])
def test_a_value_that_rearrives_is_the_last_and_stays_the_first(values_in_row: int) -> None:
    query = "SELECT FIRST_VALUE(v), LAST_VALUE(v), LAST_VALUE(DISTINCT v) FROM t"
    arrived = [("a", 1), ("b", 1), ("a", 1)]
    assert results(query, arrived, values_in_row=values_in_row) == [("a", "a", "b")]
    assert results(query, arrived[:2], arrived[2:], values_in_row=values_in_row) == [("a", "a", "b")]
    assert results(query, arrived, [("a", -1)], values_in_row=values_in_row) == [("a", "a", "b")]
    assert results(query, arrived, [("a", -1), ("a", -1)], values_in_row=values_in_row) == [("b", "b", "b")]
    assert results(query, arrived, [("a", -1), ("a", -1)], [("a", 1)], values_in_row=values_in_row) == [("b", "a", "a")]


@pytest.mark.parametrize("values_in_row", [0, 256])
def test_a_value_deleted_and_inserted_in_one_epoch_arrives_anew(values_in_row: int) -> None:
    query = "SELECT FIRST_VALUE(v), LAST_VALUE(v), LAST_VALUE(DISTINCT v), LISTAGG(v) FROM t"
    arrived, both = [("a", 1), ("b", 1)], {"values_in_row": values_in_row}
    again = [("a", -1), ("a", 1)]  # as an update of another column does
    assert results(query, arrived, again, **both) == [("b", "a", "a", "b,a")]
    assert results(query, [*arrived, *again], **both) == [("b", "a", "a", "b,a")]
    assert results(query, arrived, again[:1], again[1:], **both) == [("b", "a", "a", "b,a")]
    # It was never deleted, but arrived last.
    assert results(query, arrived, [("a", 1), ("a", -1)], **both) == [("a", "a", "b", "a,b")]
    assert results(query, arrived, [("a", 1)], [("a", -1)], **both) == [("a", "a", "b", "a,b")]
    # A value inserted and deleted again was never in the group.
    assert results(query, arrived, [("c", 1), ("c", -1)], **both) == [("a", "b", "b", "a,b")]


@pytest.mark.parametrize("values_in_row", [0, 256])
def test_zeros_of_both_signs_are_one_value_and_so_are_all_nans(values_in_row: int) -> None:
    query = "SELECT COUNT(DISTINCT v), SUM(DISTINCT v), AVG(DISTINCT v), FIRST_VALUE(v) FROM t"
    arrived = [(0.0, 1), (-0.0, 1), (1.5, 1)]
    options: dict[str, Any] = {"values_in_row": values_in_row, "type_info": Types.DOUBLE()}
    assert results(query, arrived, **options) == [(2, 1.5, 0.75, 0.0)]
    assert results(query, arrived, [(-0.0, -1)], [(0.0, -1)], **options) == [(1, 1.5, 1.5, 1.5)]
    query = "SELECT SUM(DISTINCT v), COUNT(DISTINCT v) FROM t"
    after_deletes = results(
        query, [*arrived, (nan, 1), (-nan, 1), (1e300, 1)], [(nan, -1), (nan, -1), (1e300, -1)], **options
    )
    assert after_deletes == [(1.5, 2)]


@pytest.mark.parametrize("only_grows", [True, False])
def test_values_of_an_epoch_arrive_in_row_order(only_grows: bool) -> None:
    # Batches of five rows are grouped at once, that of the last row later: it still arrives last.
    type_info = Types.ROW_NAMED(["v"], [Types.STRING()])
    query = "SELECT FIRST_VALUE(v), LAST_VALUE(v), LISTAGG(v) FROM t"
    task = QueryTask(QueryPlan(query, ["t"], type_info, only_grows=only_grows))
    (result,) = task.run({"t": [Row(letter) for letter in "abcdef"]})
    assert tuple(result) == ("a", "f", "a,b,c,d,e,f")


@pytest.mark.parametrize("query", ["FIRST_VALUE(v)", "SUM(DISTINCT CHAR_LENGTH(v))"])
def test_deleting_a_value_that_was_never_inserted_fails(query: str) -> None:
    with pytest.raises(UserFailureError, match="was retracted that was never inserted"):
        results(f"SELECT {query} FROM t", [("a", 1), ("bb", 1)], [("ccc", -1)], values_in_row=0)
