"""The Table API's operations give what the clauses of SQL give."""

from __future__ import annotations

import pytest
from planned import session_with

from millstream.errors import ProgramError, SqlError
from millstream.expressions.types import BigIntType, VarCharType
from millstream.expressions.user_functions import UserFunction, UserFunctionKind
from millstream.planner import table_operations as operations
from millstream.planner.binder import bind_query
from millstream.planner.explain import plan_tree
from millstream.planner.passes import optimised
from millstream.planner.relations import JoinKind, Relation, WindowKind
from millstream.planner.session import PlannerSession
from millstream.sql.parser import parse_expression, parse_query
from millstream.sql.syntax import Aggregated, As, Call, Expression, Literal, Name, Star


def parsed(text: str) -> Expression:
    return parse_expression(text)


def named(text: str, *names: str) -> As:
    return As(parsed(text), names)


def tree(relation: Relation, session: PlannerSession) -> str:
    return plan_tree(optimised([operations.collect(relation, None)], session))


def of_sql(text: str, session: PlannerSession) -> str:
    return tree(bind_query(parse_query(text), session), session)


@pytest.fixture
def session() -> PlannerSession:
    return session_with()


def test_select_and_where_are_those_of_sql(session: PlannerSession) -> None:
    table = operations.scan(["t"], session)
    kept = operations.where(table, parsed("a > 3"), session)
    chosen = operations.select(kept, [parsed("a"), named("b + 1", "more")], session)
    assert tree(chosen, session) == of_sql("SELECT a, b + 1 AS more FROM t WHERE a > 3", session)


def test_columns_without_a_name_are_numbered(session: PlannerSession) -> None:
    table = operations.scan(["n"], session)
    assert operations.select(table, [parsed("x + 1"), Star(), parsed("y * 2")], session).schema.names == (
        "_c0", "x", "y", "_c3",
    )  # fmt: skip


def test_columns_are_added_replaced_dropped_and_renamed(session: PlannerSession) -> None:
    table = operations.scan(["n"], session)
    more = operations.add_columns(table, [named("x + 1", "z")], session)
    assert more.schema.names == ("x", "y", "z")
    other = operations.add_columns(more, [named("'a'", "y")], session, replaces=True)
    assert [str(field) for field in other.schema.fields] == ["x INT", "y CHAR(1) NOT NULL", "z INT"]
    assert operations.drop_columns(other, [parsed("x")], session).schema.names == ("y", "z")
    assert operations.rename_columns(other, [named("x", "w")], session).schema.names == ("w", "y", "z")
    assert operations.rename(other, ["i", "j"]).schema.names == ("i", "j", "z")
    with pytest.raises(ProgramError, match="the column 'y' already exists"):
        operations.add_columns(table, [named("1", "y")], session)


def test_a_window_groups_as_group_by_tumble_does(session: PlannerSession) -> None:
    table = operations.scan(["t"], session)
    window = operations.GroupWindow(WindowKind.TUMBLE, "w", parsed("ts"), parsed("INTERVAL '10' MINUTE"))
    items = [parsed("s"), As(Call("WINDOW_START", (Name(("w",)),)), ("begin",)), named("SUM(b)", "total")]
    made = operations.window_select(table, window, [parsed("s")], items, session)
    tumbled = "TUMBLE(ts, INTERVAL '10' MINUTE)"
    sql = f"SELECT s, TUMBLE_START(ts, INTERVAL '10' MINUTE) AS `begin`, SUM(b) AS total FROM t GROUP BY {tumbled}, s"
    assert tree(made, session) == of_sql(sql, session)


def test_aggregates_without_groups_are_over_all_rows(session: PlannerSession) -> None:
    table = operations.scan(["n"], session)
    counted = operations.select(table, [Aggregated(Call("COUNT", (parsed("x"),)))], session)
    assert "GroupAggregate(select=[COUNT(x) AS EXPR$0])" in tree(counted, session)


def test_a_function_of_the_program_can_stand_in_a_call(session: PlannerSession) -> None:
    twice = UserFunction("twice", lambda value: value * 2, (BigIntType(),), (BigIntType(),))
    table = operations.scan(["n"], session)
    call = Call("twice", (parsed("x"),), options=(("function", twice),))
    assert "twice(CAST(x AS BIGINT)) AS _c0" in tree(operations.select(table, [call], session), session)
    wrong = Call("twice", (parsed("'a'"),), options=(("function", twice),))
    with pytest.raises(SqlError, match="the function twice takes BIGINT as argument 1"):
        operations.select(table, [wrong], session)


def test_a_table_function_is_joined_or_stands_alone(session: PlannerSession) -> None:
    types = (VarCharType(9), BigIntType())
    split = UserFunction("split", lambda text: [], types, None, UserFunctionKind.TABLE)
    call = Call("split", (parsed("s"),), options=(("function", split),))
    table = operations.select(operations.scan(["t"], session), [parsed("s")], session)
    both = operations.join_table_function(table, call, ["word", "size"], JoinKind.LEFT, session)
    assert both.schema.names == ("s", "word", "size")
    assert operations.flat_map(table, call, [], session).schema.names == ("f0", "f1")
    with pytest.raises(SqlError, match="it returns rows: write LATERAL TABLE"):
        operations.select(table, [call], session)


def test_values_of_the_program_take_the_types_that_are_given(session: PlannerSession) -> None:
    rows = [[Literal("VALUE", 1), Literal("VALUE", "a")], [Literal("VALUE", 2**40), Literal("VALUE", None)]]
    assert [str(field) for field in operations.values(rows, session).schema.fields] == [
        "f0 BIGINT NOT NULL",
        "f1 CHAR(1)",
    ]
    typed = operations.values(rows, session, [BigIntType(), VarCharType(5)], ["i", "s"])
    assert [str(field) for field in typed.schema.fields] == ["i BIGINT", "s VARCHAR(5)"]


def test_a_sink_is_checked_as_insert_is(session: PlannerSession) -> None:
    table = operations.scan(["n"], session)
    assert operations.sink(table, ["o"], session).schema.names == ("x", "y")
    with pytest.raises(SqlError, match="Different number of columns"):
        operations.sink(operations.scan(["t"], session), ["o"], session)
    with pytest.raises(SqlError, match="Table 'oo' was not found"):
        operations.sink(table, ["oo"], session)


def test_joined_tables_must_not_share_names(session: PlannerSession) -> None:
    table = operations.scan(["n"], session)
    with pytest.raises(ProgramError, match="ambiguous names: x, y"):
        operations.join(table, table, JoinKind.INNER, None, session)
