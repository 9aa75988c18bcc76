"""Tables of jobs in FROM: `job.table`, or a table that this session stores in a job, now or as of an epoch or a time.

A scan represents the table until the query runs. The argument of `FOR SYSTEM_TIME AS OF` is constant: an integer is an
epoch, a timestamp the newest epoch committed by then. The scan's options hold the argument as text, which is evaluated
once per query, when it runs: two tables of a job read at `CURRENT_TIMESTAMP` have the same epoch, and a Table or view
queried later uses the later time.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from millstream.connectors.tables.state_table import STATE_CONNECTOR
from millstream.planner.binding.context import QueryContext
from millstream.planner.binding.expressions import bind_expression
from millstream.planner.binding.hints import hinted_options
from millstream.planner.binding.scans import scan_table
from millstream.planner.binding.scope import Scope
from millstream.planner.entries import Options, TableEntry
from millstream.planner.relations import Relation
from millstream.planner.session import PlannerSession
from millstream.sql import query_syntax as queries
from millstream.sql.parser import parse_expression
from millstream.sql.places import problem
from millstream.sql.syntax import Expression
from millstream.sql.writing import written

__all__ = ["AS_OF", "PastMoment", "bind_job_table", "is_job_table", "past_moment"]

AS_OF = "as of"
"""The scan option with the requested epoch: an expression in SQL."""

_BEGIN = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class PastMoment:
    """An epoch by number, or by a time in milliseconds since 1970; the other field is None."""

    epoch: int | None = None
    time_ms: int | None = None


def past_moment(text: str, session: PlannerSession, now_us: int) -> PastMoment:
    """The current value of a scan's AS_OF option."""
    moment = _moment(parse_expression(text), session, now_us)
    assert moment is not None, "the binder checked the moment"
    return moment


def bind_job_table(source: queries.NamedRelation, context: QueryContext) -> tuple[Relation, Scope] | None:
    """The job's table that a name refers to; None if it refers to something else."""
    entry = _entry(source, context)
    if entry is None:
        return None
    if hinted_options(source.hints):
        raise problem(
            f"a job stores '{'.'.join(source.parts)}', so queries on it take no options. Leave the hint out, or "
            "write FOR SYSTEM_TIME AS OF",
            source,
        )
    options: Options = ()
    if source.system_time is not None:
        options = ((AS_OF, _checked(source.system_time, context.session)),)
    relation = scan_table(entry, context.session, options)
    return relation, Scope.of(relation).named(entry.path, relation.schema.names)


def is_job_table(source: queries.Relation, context: QueryContext) -> bool:
    """Whether a relation of FROM is a job's table."""
    inner = source.relation if isinstance(source, queries.AliasedRelation) else source
    return isinstance(inner, queries.NamedRelation) and _entry(inner, context) is not None


def _entry(source: queries.NamedRelation, context: QueryContext) -> TableEntry | None:
    if len(source.parts) == 1 and source.parts[0] in context.ctes:
        return None
    entry = context.session.find_table(source.parts)
    return entry if isinstance(entry, TableEntry) and entry.connector == STATE_CONNECTOR else None


def _checked(system_time: queries.SystemTime, session: PlannerSession) -> str:
    """The text of the argument, after validation."""
    if _moment(system_time.moment, session, time.time_ns() // 1000) is None:
        raise problem(
            "FOR SYSTEM_TIME AS OF a table of a job takes the number of an epoch, or a timestamp: AS OF 42, "
            "AS OF TIMESTAMP '2026-11-16 12:00:00', AS OF CURRENT_TIMESTAMP - INTERVAL '1' HOUR",
            system_time,
        )
    return written(system_time.moment)


def _moment(expression: Expression, session: PlannerSession, now_us: int) -> PastMoment | None:
    value = _constant(expression, session, now_us)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return PastMoment(epoch=value)
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=ZoneInfo(session.zone))
        return PastMoment(time_ms=(aware - _BEGIN) // dt.timedelta(milliseconds=1))
    return None


def _constant(expression: Expression, session: PlannerSession, now_us: int) -> Any:
    """The value of an expression without columns, at a time."""
    from millstream.runtime.expressions.compile import compile_program
    from millstream.runtime.expressions.kernel import SessionFacts, load_kernels

    bound = bind_expression(expression, Scope(), session)
    load_kernels()
    facts = SessionFacts(zone=session.zone, catalog=session.catalog, database=session.database, now_us=now_us)
    return compile_program([bound], ()).run([], 1, facts).columns[0][0].as_py()
