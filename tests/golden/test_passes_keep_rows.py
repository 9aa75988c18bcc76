"""The passes preserve the rows of a plan: random queries over random rows, evaluated by the plan interpreter."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from inputs.plan_queries import TABLES, random_queries, rows
from oracles.plan_interpreter import Row, counted, rows_of

from millstream.planner.binder import bind_query
from millstream.planner.passes import PASSES, optimised
from millstream.planner.session import PlannerSession
from millstream.planner.statements import run
from millstream.planner.table_operations import collect
from millstream.sql.parser import parse_query, parse_statements


def session_with_tables() -> PlannerSession:
    session = PlannerSession()
    for statement in parse_statements(TABLES):
        run(statement, session)
    return session


@settings(suppress_health_check=list(HealthCheck))
@given(random_queries(), rows)
def test_every_pass_preserves_the_rows_of_a_plan(text: str, emitted_rows: list[Row]) -> None:
    session = session_with_tables()
    plan = (collect(bind_query(parse_query(text), session), None),)
    tables = {"t": emitted_rows}
    expected = counted(rows_of(plan[0], tables))
    for each in PASSES:
        plan = each(plan, session)
        assert counted(rows_of(plan[0], tables)) == expected, f"{each.__name__} changed the rows of {text}"
        assert plan[0].schema.names == plan[0].input.schema.names


@settings(suppress_health_check=list(HealthCheck))
@given(random_queries(), random_queries(), rows)
def test_passes_preserve_the_rows_of_both_sinks(first: str, second: str, emitted_rows: list[Row]) -> None:
    session = session_with_tables()
    plan = tuple(collect(bind_query(parse_query(text), session), None) for text in (first, second))
    expected = [counted(rows_of(sink, {"t": emitted_rows})) for sink in plan]
    assert [counted(rows_of(sink, {"t": emitted_rows})) for sink in optimised(plan, session)] == expected
