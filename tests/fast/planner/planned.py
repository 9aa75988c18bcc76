"""A session with a few tables, and short names for planning a query."""

from __future__ import annotations

from millstream.planner.binder import bind_query
from millstream.planner.explain import plan_tree
from millstream.planner.passes import optimised
from millstream.planner.relations import Relation, Sink
from millstream.planner.session import PlannerSession
from millstream.planner.statement_result import StatementResult
from millstream.planner.statements import bind_insert, run
from millstream.planner.table_operations import collect
from millstream.sql.parser import parse_query, parse_statement, parse_statements
from millstream.sql.statements import Insert

TABLES = """
CREATE TABLE t (
  a INT, b BIGINT NOT NULL, c DECIMAL(10, 2), s STRING, l ARRAY<INT>, m MAP<STRING, INT>, r ROW<x INT, y ROW<z STRING>>,
  ts TIMESTAMP(3), k STRING METADATA FROM 'key', d AS a + 1, p AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'datagen');
CREATE TABLE n (x INT, y BIGINT) WITH ('connector' = 'datagen');
CREATE TABLE o (x INT, y BIGINT) WITH ('connector' = 'print')
"""


def session_with(text: str = TABLES) -> PlannerSession:
    session = PlannerSession()
    for statement in parse_statements(text):
        run(statement, session)
    return session


def bound(query: str, session: PlannerSession | None = None) -> Relation:
    return bind_query(parse_query(query), session or session_with())


def fields(query: str, session: PlannerSession | None = None) -> list[str]:
    """The columns of a query as text."""
    return [str(field) for field in bound(query, session).schema.fields]


def types(query: str) -> list[str]:
    return [str(field.type) for field in bound(query).schema.fields]


def plan(*texts: str, session: PlannerSession | None = None) -> str:
    return plan_tree(sinks(*texts, session=session))


def sinks(*texts: str, session: PlannerSession | None = None) -> tuple[Sink, ...]:
    session = session or session_with()
    made = []
    for text in texts:
        statement = parse_statement(text)
        if isinstance(statement, Insert):
            made.append(bind_insert(statement, session))
        else:
            made.append(collect(bound(text, session), None))
    return optimised(made, session)


def execute(text: str, session: PlannerSession) -> StatementResult:
    result = run(parse_statement(text), session)
    assert result is not None
    return result


def column(text: str, session: PlannerSession, place: int = 0) -> list[object]:
    """One column of the output of a SHOW statement."""
    return [row[place] for row in execute(text, session).rows]
