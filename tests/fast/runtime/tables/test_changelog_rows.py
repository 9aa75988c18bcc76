"""TO_CHANGELOG and FROM_CHANGELOG: changes as rows that tell them, and such rows as changes."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs.one_task import QueryPlan, QueryTask

from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.errors import MillstreamError
from millstream.runtime.operators.user_code import UserFailureError
from millstream.runtime.tables.references.changes import table_after
from millstream.table import EnvironmentSettings, PlanReference, TableEnvironment
from millstream.table.expressions import descriptor, lit, map_

TYPE = Types.ROW_NAMED(["k", "op", "v"], [Types.INT(), Types.STRING(), Types.LONG()])
ADDED = (RowKind.INSERT, RowKind.UPDATE_AFTER)
CODES = "op_mapping => MAP['c, r', 'INSERT', 'b', 'UPDATE_BEFORE', 'u', 'UPDATE_AFTER', 'd', 'DELETE']"
UPSERTS = "op_mapping => MAP['c, r', 'INSERT', 'u', 'UPDATE_AFTER', 'd', 'DELETE']"


@cache
def plan(query: str, only_grows: bool) -> QueryPlan:
    return QueryPlan(query, ["t"], TYPE, only_grows=only_grows)


def emitted_rows(query: str, *rows: Row, only_grows: bool = False) -> list[tuple[str, Any]]:
    given_ = QueryTask(plan(query, only_grows)).run({"t": rows})
    return [(str(row.get_row_kind()), tuple(row)) for row in given_]


def test_changes_become_rows_with_the_columns_of_the_partition_first() -> None:
    changes = [Row.of_kind(kind, 1, "x", 5) for kind in RowKind]
    told = emitted_rows("SELECT * FROM TO_CHANGELOG(input => TABLE t PARTITION BY v, op => DESCRIPTOR(what))", *changes)
    assert told == [("+I", (5, kind.name, 1, "x")) for kind in RowKind]
    mapping = "op_mapping => MAP['INSERT, UPDATE_AFTER', 'put', 'DELETE', 'gone']"
    mapping += ", produces_full_deletes => TRUE"
    told = emitted_rows(f"SELECT * FROM TO_CHANGELOG(TABLE t, DESCRIPTOR(what), {mapping})", *changes)
    assert [row[0] for _, row in told] == ["put", "put", "gone"]


def test_upserts_by_partition_emit_each_key_once_and_deletes() -> None:
    puts = "DESCRIPTOR(what), MAP['INSERT, UPDATE_AFTER', 'put', 'DELETE', 'gone']"
    # The filter lets half of an update pass, and an update moves a row to another key.
    source = "TABLE (SELECT k, v FROM t WHERE v < 8) PARTITION BY k"
    task = QueryTask(plan(f"SELECT * FROM TO_CHANGELOG({source}, {puts})", False))
    epochs = [
        ([Row(1, "x", 5), Row(2, "x", 6)], [(1, "put", 5), (2, "put", 6)]),
        (
            [Row.of_kind(RowKind.UPDATE_BEFORE, 1, "x", 5), Row.of_kind(RowKind.UPDATE_AFTER, 1, "x", 9)],
            [(1, "gone", 5)],
        ),
        (
            [Row.of_kind(RowKind.UPDATE_BEFORE, 2, "x", 6), Row.of_kind(RowKind.UPDATE_AFTER, 3, "x", 7)],
            [(2, "gone", 6), (3, "put", 7)],
        ),
        (
            [Row.of_kind(RowKind.UPDATE_BEFORE, 3, "x", 7), Row.of_kind(RowKind.UPDATE_AFTER, 3, "x", 2)],
            [(3, "put", 2)],
        ),
    ]
    for changes, told in epochs:
        assert sorted(tuple(row) for row in task.run({"t": changes})) == told
    # Rows that only come are all told.
    grows = plan(f"SELECT * FROM TO_CHANGELOG({source}, {puts})", True)
    assert len(QueryTask(grows).run({"t": [Row(1, "x", 5), Row(1, "x", 6)]})) == 2


def test_rows_become_changes_by_their_operation_codes() -> None:
    rows = [Row(1, "c", 5), Row(1, "b", 5), Row(1, "u", 6), Row(2, "r", 7), Row(1, "d", 6)]
    query = f"SELECT * FROM FROM_CHANGELOG(input => TABLE t PARTITION BY v, {CODES})"
    assert emitted_rows(query, *rows, only_grows=True) == [
        ("+I", (5, 1)),
        ("-U", (5, 1)),
        ("+U", (6, 1)),
        ("+I", (7, 2)),
        ("-D", (6, 1)),
    ]


def test_a_code_that_is_not_known_fails_or_is_left_out() -> None:
    query = "SELECT * FROM FROM_CHANGELOG(input => TABLE t, op_mapping => MAP['c', 'INSERT']{})"
    rows = [Row(1, "c", 5), Row(1, "?", 5), Row(1, None, 5)]
    with pytest.raises(UserFailureError, match=r"the operation '\?' is none of 'c'"):
        emitted_rows(query.format(""), *rows, only_grows=True)
    left = emitted_rows(query.format(", invalid_op_handling => 'SKIP'"), *rows, only_grows=True)
    assert left == [("+I", (1, 5))]


CHANGE = st.tuples(st.integers(0, 2), st.sampled_from(["a", "b"]), st.none() | st.integers(0, 2))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=st.lists(st.tuples(CHANGE, st.booleans()), max_size=20))
def test_a_table_is_restored_from_its_changelog_rows(changes: list[Any]) -> None:
    query = (
        "SELECT k, op, v FROM FROM_CHANGELOG(TABLE (SELECT * FROM TO_CHANGELOG(TABLE t, DESCRIPTOR(what))), "
        "DESCRIPTOR(what))"
    )
    held, rows = Counter[Any](), list[Row]()
    for row, goes in changes:
        sign = -1 if goes and held[row] else 1
        held[row] += sign
        rows.append(Row.of_kind(RowKind.INSERT if sign > 0 else RowKind.DELETE, *row))
    told = QueryTask(plan(query, False)).run({"t": rows})
    table = table_after((tuple(row), row.get_row_kind() in ADDED) for row in told)
    assert Counter(table) == +held


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(epochs=st.lists(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("crud"), st.integers(0, 2)), max_size=8)))
def test_upserts_by_the_key_of_the_partition_are_the_last_rows(epochs: list[list[Any]]) -> None:
    query = f"SELECT k, v FROM FROM_CHANGELOG(input => TABLE t PARTITION BY k, {UPSERTS})"
    task, told, last = QueryTask(plan(query, True)), list[Row](), dict[int, int]()
    for rows in epochs:
        told += task.run({"t": [Row(*row) for row in rows]})
        for key, code, value in rows:
            last.pop(key, None)
            if code != "d":
                last[key] = value
        table = table_after((tuple(row), row.get_row_kind() in ADDED) for row in told)
        assert Counter(table) == Counter(last.items())


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("TO_CHANGELOG(input => TABLE t)", "the table has a column 'op'"),
        ("TO_CHANGELOG(input => t)", "input must be a table"),
        ("TO_CHANGELOG(TABLE t, DESCRIPTOR(a, b))", "with a single column"),
        ("TO_CHANGELOG(TABLE t, DESCRIPTOR(a), MAP['INSRT', 'I'])", "op_mapping has 'INSRT', expected INSERT"),
        ("TO_CHANGELOG(TABLE t, DESCRIPTOR(a), MAP['INSERT', 'I', 'INSERT, DELETE', 'D'])", "has INSERT twice"),
        ("TO_CHANGELOG(TABLE t, DESCRIPTOR(a), produces_full_deletes => FALSE)", "emitted as the whole row"),
        ("TO_CHANGELOG(input => TABLE t, ops => DESCRIPTOR(a))", "has no argument 'ops'"),
        ("FROM_CHANGELOG(TABLE t, DESCRIPTOR(what))", "has no column 'what'"),
        ("FROM_CHANGELOG(TABLE t, DESCRIPTOR(v))", "expected STRING"),
        (f"FROM_CHANGELOG(input => TABLE t, {UPSERTS})", "denotes upserts: name the key"),
        ("FROM_CHANGELOG(TABLE t, DESCRIPTOR(op), MAP['b', 'UPDATE_BEFORE'])", "no UPDATE_AFTER"),
        ("FROM_CHANGELOG(input => TABLE t, invalid_op_handling => 'LOG')", "'FAIL' or 'SKIP'"),
    ],
)
def test_what_cannot_be_meant_is_refused(call: str, told: str) -> None:
    with pytest.raises(MillstreamError) as refused:
        QueryPlan(f"SELECT * FROM {call}", ["t"], TYPE, only_grows=True)
    assert told in str(refused.value)


def test_changing_rows_are_rejected_as_changelog_rows() -> None:
    with pytest.raises(MillstreamError, match="FromChangelog doesn't support consuming"):
        QueryPlan("SELECT * FROM FROM_CHANGELOG(TABLE t)", ["t"], TYPE, only_grows=False)


def test_the_table_api_agrees() -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.execute_sql("CREATE TABLE t (k INT, op STRING, v BIGINT) WITH ('connector' = 'values', 'data' = '[]')")
    table = t_env.from_path("t")
    pairs = [
        (
            table.to_changelog(descriptor("w").as_argument("op"), map_("INSERT", "I").as_argument("op_mapping")),
            "TO_CHANGELOG(TABLE t, DESCRIPTOR(w), MAP['INSERT', 'I'])",
        ),
        (
            table.from_changelog(lit("SKIP").as_argument("invalid_op_handling")),
            "FROM_CHANGELOG(input => TABLE t, invalid_op_handling => 'SKIP')",
        ),
    ]
    for made, call in pairs:
        plans = [each.explain().split("== Optimized")[1:] for each in (made, t_env.sql_query(f"SELECT * FROM {call}"))]
        assert plans[0] == plans[1]
    with pytest.raises(MillstreamError, match="arguments with names"):
        table.to_changelog(descriptor("w"))


def test_a_stored_plan_agrees() -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.execute_sql("CREATE TABLE t (k INT, op STRING, v BIGINT) WITH ('connector' = 'values', 'data' = '[]')")
    t_env.execute_sql("CREATE TABLE told (k INT, op STRING, v BIGINT) WITH ('connector' = 'blackhole')")
    query = f"FROM_CHANGELOG(input => TABLE t PARTITION BY k, {UPSERTS})"
    plan = t_env.compile_plan_sql(f"INSERT INTO told SELECT k, op, v FROM TO_CHANGELOG(TABLE (SELECT * FROM {query}))")
    loaded = t_env.load_plan(PlanReference.from_json_string(plan.as_json_string()))
    assert "UPDATE_AFTER" in loaded.explain() and loaded.explain() == plan.explain()


def test_the_operation_column_is_not_a_key_column() -> None:
    with pytest.raises(MillstreamError, match="PARTITION BY names 'op', the operation"):
        plan("SELECT * FROM FROM_CHANGELOG(input => TABLE t PARTITION BY op)", True)
