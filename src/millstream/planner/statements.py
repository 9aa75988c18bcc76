"""Statements that are no queries, carried out on the catalog: syntax and a session in, rows to show out.

INSERT and queries give relations instead (`bind_insert`, `planner.binder.bind_query`): whoever runs the program
optimises and lowers them. What is about jobs, jars or the client's own is not carried out here: `run` returns None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.planner.relations import Schema, Sink
from millstream.planner.session import PlannerSession
from millstream.sql.statements import Insert, Statement

__all__ = ["StatementResult", "bind_insert", "run"]


@dataclass(frozen=True)
class StatementResult:
    """What a statement says: rows of a schema. Flink's own result of a definition is one row, OK."""

    schema: Schema
    rows: tuple[tuple[Any, ...], ...]
    is_ok: bool = False


def run(statement: Statement, session: PlannerSession) -> StatementResult | None:
    """Carry out a definition, USE, SHOW or DESCRIBE. None: it is not the catalog's affair."""
    raise NotImplementedError


def bind_insert(statement: Insert, session: PlannerSession) -> Sink:
    """INSERT INTO: the query, cast to the table's columns, and the table."""
    raise NotImplementedError
