"""Operators on updating tables agree, epoch by epoch, with slow references over all rows read.

Changes are inserts, updates and deletes of rows with NULLs and doubles, in epochs cut anywhere; state is written after
every epoch, and read back by new operators before some.
"""

from __future__ import annotations

import datetime as dt
import os
from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs.one_task import QueryPlan, QueryTask

from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.graph.table_nodes import OrderKey
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.tables.references.changes import table_after
from millstream.runtime.tables.references.groups import distinct_values, grouped_rows, present_values
from millstream.runtime.tables.references.joins import joined_tables
from millstream.runtime.tables.references.ranks import first_rows
from millstream.runtime.tables.references.sessions import SessionTable

TYPE = Types.ROW_NAMED(["k", "v", "s"], [Types.INT(), Types.LONG(), Types.STRING()])
ADDED = (RowKind.INSERT, RowKind.UPDATE_AFTER)
ROW = st.tuples(
    st.none() | st.integers(0, 2), st.none() | st.integers(-3, 3), st.none() | st.sampled_from(["", "a", "b"])
)
CHANGELOGS = int(os.environ.get("MILLSTREAM_CHANGELOGS", "6"))
"""How many examples each operator is tried with; `make chaos` takes more."""
EXAMPLES = settings(max_examples=CHANGELOGS, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def changelogs(draw: Any, only_grows: bool = False) -> list[list[Row]]:
    """The changes of a table in three epochs."""
    live: list[tuple[Any, ...]] = []
    epochs = []
    for _ in range(3):
        changes: list[Row] = []
        for number, row in draw(st.lists(st.tuples(st.integers(0, 7), ROW), max_size=7)):
            is_update, is_delete = number in (4, 5), number in (6, 7)
            if not only_grows and live and (is_update or is_delete):
                deleted = live.pop(number % len(live))
                changes.append(row_of_kind(deleted, RowKind.UPDATE_BEFORE if is_update else RowKind.DELETE))
                if is_delete:
                    continue
            live.append(row)
            changes.append(row_of_kind(row, RowKind.UPDATE_AFTER if is_update and not only_grows else RowKind.INSERT))
        epochs.append(changes)
    return epochs


def row_of_kind(values: tuple[Any, ...], kind: RowKind) -> Row:
    row = Row(*values)
    row.set_row_kind(kind)
    return row


def rows_after(changes: list[Row]) -> list[tuple[Any, ...]]:
    return table_after((tuple(row), row.get_row_kind() in ADDED) for row in changes)


@cache
def plan_of(query: str, only_grows: bool = False, is_timed: bool = False) -> QueryPlan:
    tables = [name for name in ("t", "u") if f"FROM {name}" in query or f"JOIN {name} " in query]
    return QueryPlan(query, tables, TIMED if is_timed else TYPE, only_grows=only_grows, is_timed=is_timed)


def check(plan: QueryPlan, tables: dict[str, list[list[Row]]], reopened: list[bool], expected: Any) -> None:
    """After every epoch the query's rows are those that `expected` makes of the tables."""
    task, emitted_rows = QueryTask(plan), list[Row]()
    for epoch in range(3):
        emitted_rows += task.run({name: log[epoch] for name, log in tables.items()}, reopened=reopened[epoch])
        so_far = {name: [row for rows in log[: epoch + 1] for row in rows] for name, log in tables.items()}
        assert Counter(rows_after(emitted_rows)) == Counter(expected(so_far))


REOPENED = st.lists(st.booleans(), min_size=3, max_size=3)


def total(values: list[Any]) -> Any:
    return sum(values) if values else None


def is_positive(row: Any) -> bool:
    return row[1] is not None and row[1] > 0


MEASURES = {
    "COUNT(*)": len,
    "COUNT(v)": lambda rows: len(present_values(rows, 1)),
    "SUM(v)": lambda rows: total(present_values(rows, 1)),
    "MIN(v)": lambda rows: min(present_values(rows, 1), default=None),
    "MAX(s)": lambda rows: max(present_values(rows, 2), default=None),
    "COUNT(DISTINCT s)": lambda rows: len(distinct_values(present_values(rows, 2))),
    "SUM(DISTINCT v) FILTER (WHERE v > 0)": lambda rows: total(distinct_values(present_values(rows, 1, is_positive))),
    "COUNT(*) FILTER (WHERE v > 0)": lambda rows: sum(map(is_positive, rows)),
}


@pytest.mark.slow
@pytest.mark.parametrize("keys", [(0,), (0, 2), ()], ids=str)
@EXAMPLES
@given(data=st.data())
def test_groups(keys: tuple[int, ...], data: st.DataObject) -> None:
    names = ["kvs"[at] for at in keys]
    query = f"SELECT {', '.join([*names, *MEASURES])} FROM t" + (f" GROUP BY {', '.join(names)}" if names else "")

    def expected(tables: dict[str, list[Row]]) -> list[Any]:
        rows = rows_after(tables["t"])
        return grouped_rows(rows, keys, list(MEASURES.values()), was_ever_touched=bool(tables["t"]))

    check(plan_of(query), {"t": data.draw(changelogs())}, data.draw(REOPENED), expected)


def is_less(a: Any, b: Any) -> bool | None:
    return None if a is None or b is None else a < b


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI"])
@EXAMPLES
@given(data=st.data())
def test_joins(kind: str, data: st.DataObject) -> None:
    only_grows = data.draw(st.booleans())
    query = f"SELECT * FROM t {kind} JOIN u ON t.k = u.k AND t.v < u.v"
    if kind in ("SEMI", "ANTI"):
        query = (
            f"SELECT * FROM t WHERE {'NOT ' * (kind == 'ANTI')}EXISTS (SELECT 1 FROM u WHERE t.k = u.k AND t.v < u.v)"
        )

    def matches(a: Any, b: Any) -> bool | None:
        return a[0] is not None and a[0] == b[0] and is_less(a[1], b[1])

    def expected(tables: dict[str, list[Row]]) -> list[Any]:
        return joined_tables(kind, rows_after(tables["t"]), rows_after(tables["u"]), (3, 3), matches)

    tables = {name: data.draw(changelogs(only_grows)) for name in "tu"}
    check(plan_of(query, only_grows), tables, data.draw(REOPENED), expected)


TOTAL_ORDER = (OrderKey(1, descending=True, nulls_first=False), OrderKey(2, nulls_first=True))
TOTAL_TEXT = "v DESC NULLS LAST, s ASC NULLS FIRST"


@pytest.mark.parametrize("kind", ["ROW_NUMBER", "RANK", "DENSE_RANK"])
@EXAMPLES
@given(data=st.data())
def test_top_n_rows(kind: str, data: st.DataObject) -> None:
    only_grows = data.draw(st.booleans())
    order, text = (TOTAL_ORDER, TOTAL_TEXT) if kind == "ROW_NUMBER" else (TOTAL_ORDER[:1], "v DESC NULLS LAST")
    numbered = f"SELECT k, v, s, {kind}() OVER (PARTITION BY k ORDER BY {text}) AS n FROM t"

    def expected(tables: dict[str, list[Row]]) -> list[Any]:
        return first_rows(kind, rows_after(tables["t"]), [0], order, 1, 2)

    query = f"SELECT * FROM ({numbered}) WHERE n <= 2"
    check(plan_of(query, only_grows), {"t": data.draw(changelogs(only_grows))}, data.draw(REOPENED), expected)


@EXAMPLES
@given(data=st.data())
def test_equal_rows_stay_in_arrival_order(data: st.DataObject) -> None:
    query = "SELECT * FROM (SELECT k, v, s, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM t) WHERE n <= 2"

    def expected(tables: dict[str, list[Row]]) -> list[Any]:
        return first_rows("ROW_NUMBER", rows_after(tables["t"]), [0], [OrderKey(1)], 1, 2)

    only_grows = data.draw(st.booleans())
    check(plan_of(query, only_grows), {"t": data.draw(changelogs(only_grows))}, data.draw(REOPENED), expected)


TIMED = Types.ROW_NAMED(["k", "v"], [Types.INT(), Types.LONG()])
SESSIONS = (
    "SELECT k, SESSION_START(ts, INTERVAL '0.010' SECOND), SESSION_END(ts, INTERVAL '0.010' SECOND), COUNT(*), SUM(v) "
    "FROM t GROUP BY k, SESSION(ts, INTERVAL '0.010' SECOND)"
)
TIMED_ROWS = st.lists(
    st.tuples(st.none() | st.integers(0, 1), st.none() | st.integers(0, 5), st.integers(0, 60)), max_size=6
)


@settings(EXAMPLES, max_examples=3 * CHANGELOGS)
@given(epochs=st.lists(st.tuples(TIMED_ROWS, st.integers(0, 25), st.booleans()), min_size=1, max_size=4))
def test_sessions_with_late_rows(epochs: list[Any]) -> None:
    task, reference = QueryTask(plan_of(SESSIONS, is_timed=True)), SessionTable(10)
    reached = MIN_WATERMARK
    for rows, step, reopened in epochs:
        before, reached = reached, max(reached, 0) + step
        values, times = [Row(k, v) for k, v, _ in rows], [time for *_, time in rows]
        emitted_rows = task.run({"t": values}, times={"t": times}, watermark=reached, reopened=reopened)
        over = reference.run([(k, time, (v,)) for k, v, time in rows], before, reached)
        expected = [
            (each.key, moment(each.start), moment(each.last + 10), len(each.rows), total(present_values(each.rows, 0)))
            for each in over
        ]
        assert Counter(map(tuple, emitted_rows)) == Counter(expected)


def moment(ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=ms)
