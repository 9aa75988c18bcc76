"""Random queries, from text to rows: parsed, bound, optimised, lowered and run in memory, they match the interpretation
of the unoptimised plan (`plan_interpreter`).
"""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from inputs.plan_queries import TABLES, random_queries, rows
from oracles.plan_interpreter import Row, counted, rows_of

from millstream.connectors.program_sources import CollectionSource
from millstream.expressions.nested_types import RowType
from millstream.planner.binder import bind_query
from millstream.planner.entries import TableEntry
from millstream.planner.lowering import CollectTarget, SourceOrigin, lower
from millstream.planner.passes import optimised
from millstream.planner.session import PlannerSession
from millstream.planner.statements import run as carry_out
from millstream.planner.table_operations import collect
from millstream.records.table_type import TableRowType
from millstream.sql.parser import parse_query, parse_statements
from millstream.testing import Collect, run

NEVER_LATE = TABLES.replace("ts - INTERVAL '1' SECOND", "ts - INTERVAL '1' DAY")


def session_over(emitted_rows: list[Row]) -> PlannerSession:
    """A session whose table has these rows."""
    session = PlannerSession()
    for statement in parse_statements(NEVER_LATE):
        carry_out(statement, session)
    entry = session.find_table(["t"])
    assert isinstance(entry, TableEntry)
    row_type = RowType.of([each.name for each in entry.read], [each.type for each in entry.read], nullable=False)
    source = CollectionSource([as_values(row) for row in emitted_rows], TableRowType(row_type))
    session.store.add_table(entry.path, replace(entry, origin=SourceOrigin(source), options=()), replaces=True)
    return session


def as_values(row: Row) -> Row:
    return tuple((value["x"], value["y"]) if isinstance(value, dict) else value for value in row)


def plain(value: Any) -> Any:
    """A value in the form that both sides share: rows as tuples, timestamps without a zone."""
    if isinstance(value, dict):
        return tuple(plain(value[name]) for name in sorted(value))
    if type(value).__name__ == "Row":
        return tuple(plain(each) for each in value)
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.replace(tzinfo=None) if isinstance(value, datetime.datetime) else value


@settings(suppress_health_check=list(HealthCheck))
@given(random_queries(), rows)
def test_a_query_matches_the_plan_interpreter(text: str, emitted_rows: list[Row]) -> None:
    session = session_over(emitted_rows)
    relation = bind_query(parse_query(text), session)
    expected = [tuple(plain(value) for value in row) for row in rows_of(relation, {"t": emitted_rows})]
    out = Collect()
    sink = collect(relation, CollectTarget(out))
    run(lambda env: lower(optimised([sink], session), env._builder, session))
    assert counted([tuple(plain(value) for value in row) for row in out.values]) == counted(expected), text
