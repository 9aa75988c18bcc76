"""Tables of jobs in FROM: `job.table`, or a table that this session keeps in a job, now or as of an epoch or a time.

Such a table is a scan like others until the query is run. `FOR SYSTEM_TIME AS OF` of it is a constant: a whole number
is an epoch, a timestamp the newest epoch that was committed by then. It stands in the scan's options.
"""

from __future__ import annotations

import datetime as dt
import time
from typing import Any
from zoneinfo import ZoneInfo

from millstream.connectors.tables.state_table import STATE_CONNECTOR
from millstream.planner.binding.context import QueryContext
from millstream.planner.binding.expressions import bind_expression
from millstream.planner.binding.scans import scan_table
from millstream.planner.binding.scope import Scope
from millstream.planner.entries import Options, TableEntry
from millstream.planner.relations import Relation
from millstream.planner.session import PlannerSession
from millstream.sql import query_syntax as queries
from millstream.sql.places import problem

__all__ = ["AS_OF_EPOCH", "AS_OF_TIME", "bind_job_table", "is_job_table"]

AS_OF_EPOCH, AS_OF_TIME = "as of epoch", "as of time"
"""Options of a scan: the number of an epoch; milliseconds since 1970."""


def bind_job_table(source: queries.NamedRelation, context: QueryContext) -> tuple[Relation, Scope] | None:
    """The table of a job that a name means; None where it means something else."""
    entry = _entry(source, context)
    if entry is None:
        return None
    options = () if source.system_time is None else _moment(source.system_time, context.session)
    relation = scan_table(entry, context.session, options)
    return relation, Scope.of(relation).named(entry.path, relation.schema.names)


def is_job_table(source: queries.Relation, context: QueryContext) -> bool:
    """Whether a relation of FROM is a table of a job."""
    inner = source.relation if isinstance(source, queries.AliasedRelation) else source
    return isinstance(inner, queries.NamedRelation) and _entry(inner, context) is not None


def _entry(source: queries.NamedRelation, context: QueryContext) -> TableEntry | None:
    if len(source.parts) == 1 and source.parts[0] in context.ctes:
        return None
    entry = context.session.find_table(source.parts)
    return entry if isinstance(entry, TableEntry) and entry.connector == STATE_CONNECTOR else None


def _moment(written: queries.SystemTime, session: PlannerSession) -> Options:
    value = _constant(written, session)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return ((AS_OF_EPOCH, str(value)),)
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=ZoneInfo(session.zone))
        return ((AS_OF_TIME, str(round(aware.timestamp() * 1000))),)
    raise problem(
        "FOR SYSTEM_TIME AS OF a table of a job takes the number of an epoch, or a timestamp: AS OF 42, "
        "AS OF TIMESTAMP '2026-11-16 12:00:00', AS OF CURRENT_TIMESTAMP - INTERVAL '1' HOUR",
        written,
    )


def _constant(written: queries.SystemTime, session: PlannerSession) -> Any:
    """The value of an expression without columns, at this moment."""
    from millstream.runtime.expressions.compile import compile_program
    from millstream.runtime.expressions.kernel import SessionFacts, load_kernels

    moment = bind_expression(written.moment, Scope(), session)
    load_kernels()
    facts = SessionFacts(
        zone=session.zone, catalog=session.catalog, database=session.database, now_us=time.time_ns() // 1000
    )
    return compile_program([moment], ()).run([], 1, facts).columns[0][0].as_py()
