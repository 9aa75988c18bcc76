"""Executes queries over tables of jobs in this process: reads rows from the stores and runs the batch engine on them.

The plan is made as for a BATCH query. Each job that it reads provides one epoch (the newest, or that of `FOR
SYSTEM_TIME AS OF`), so all tables of a job are consistent. From each table only the keys that a filter admits are read,
if it restricts them; from its archive, only the admitted times. The plan then runs over these rows, without Spark.
"""

from __future__ import annotations

import secrets
import time
from collections import ChainMap
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from millstream.connectors.tables.state_table import STATE_CONNECTOR
from millstream.errors import ProgramError, SqlError
from millstream.planner.binding.job_tables import AS_OF, past_moment
from millstream.planner.entries import TableEntry
from millstream.planner.explain import explained
from millstream.planner.lowering import lower
from millstream.planner.lowering.endpoints import SourceOrigin
from millstream.planner.passes import optimised
from millstream.planner.passes.key_filters import key_values
from millstream.planner.passes.rewriting import relations_of, rewritten
from millstream.planner.passes.time_filters import time_range
from millstream.planner.relations import Filter, Relation, Scan, Sink
from millstream.planner.session import PlannerSession
from millstream.query.archived_rows import ANY_TIME, TimeRange
from millstream.query.table_reads import ROWS_MAX, TableReads
from millstream.records.table_type import TableRowType
from millstream.table.conversions.column_source import ColumnSource

if TYPE_CHECKING:
    from millstream.jobs.launch.job import Job
    from millstream.query.epoch_view import EpochView
    from millstream.query.job_view import JobView

__all__ = ["TableFinder", "explained_live", "is_live", "started_live"]

_ROWS_MAX = "table.live.rows-max"
_MODE = "execution.runtime-mode"


@dataclass(frozen=True, eq=False)
class _LiveOrigin:
    """A job's table during planning: its epoch is resolved, but no row is read."""

    reads: TableReads
    name: str


def is_live(relation: Relation) -> bool:
    """Whether a query reads tables of jobs; SqlError if it also reads others."""
    scans = [each for each in relations_of([Sink(relation.schema, relation, None)]) if isinstance(each, Scan)]
    live = [scan for scan in scans if _is_of_job(scan)]
    if not live or len(live) == len(scans):
        return bool(live)
    other = next(scan for scan in scans if not _is_of_job(scan))
    name = ".".join(other.table.path) if isinstance(other.table, TableEntry) else "a stream"
    raise SqlError(
        f"'{'.'.join(live[0].table.path)}' is a table of a job, and '{name or 'a stream'}' is not: a query reads "
        "either kind. Store the second one in a job, too, or join them in the job's own query"
    )


def _is_of_job(scan: Scan) -> bool:
    return isinstance(scan.table, TableEntry) and scan.table.connector == STATE_CONNECTOR and scan.table.origin is None


class TableFinder(Protocol):
    """Looks up the jobs of tables."""

    def view_of(self, entry: TableEntry) -> JobView:
        """The job that stores a table."""


def started_live(sink: Sink, session: PlannerSession, tables: TableFinder) -> Job:
    """Starts a job in this process that runs a query over tables of jobs into its sink."""
    from millstream.datastream.environment.launch_defaults import with_launch_defaults
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
    from millstream.jobs.clock import SystemClock
    from millstream.jobs.launch.launch import Launch
    from millstream.runtime.task.local import LocalRunner
    from millstream.storage.memory import MemoryStore

    batch = _batch(session)
    with ExitStack() as open_epochs:
        [plan] = rewritten([sink], _with_epochs(tables, session, open_epochs))
        optimised_plan = optimised([plan], batch)
        ready = _with_rows(optimised_plan, _rows_max(session))
    with with_launch_defaults({}):  # command-line settings apply to the program's jobs only
        environment = StreamExecutionEnvironment().set_parallelism(1)
    lower(ready, environment._builder, batch)
    graph, settings = environment._graph("live query"), environment._job_settings()
    environment._builder.take()
    store = MemoryStore(f"live-{secrets.token_hex(8)}")
    settings = replace(settings, store=None, runtime_mode="BATCH")
    return Launch(SystemClock(), LocalRunner(), store).prepare(graph, settings).start()


def explained_live(sink: Sink, session: PlannerSession, tables: TableFinder, details: Sequence[str]) -> str:
    """The plan of a query over tables of jobs, as text; reads no rows."""
    with ExitStack() as open_epochs:
        return explained(rewritten([sink], _with_epochs(tables, session, open_epochs)), _batch(session), details)


def _batch(session: PlannerSession) -> PlannerSession:
    return replace(session, config=ChainMap({_MODE: "BATCH"}, session.config))


def _rows_max(session: PlannerSession) -> int:
    text = session.config.get(_ROWS_MAX)
    if text is None:
        return ROWS_MAX
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ProgramError(f"'{_ROWS_MAX}' is {text!r}, expected a whole number above 0. Set it to one")
    return int(text)


def _with_epochs(
    tables: TableFinder, session: PlannerSession, open_epochs: ExitStack
) -> Callable[[Relation], Relation]:
    """A rule that resolves the epoch of each scan; scans of the same job as of the same time share it."""
    epochs: dict[tuple[int, tuple[tuple[str, str], ...]], EpochView] = {}
    now_us = time.time_ns() // 1000  # one time for all scans

    def at(view: JobView, written: str) -> EpochView:
        moment = past_moment(written, session, now_us)
        return view.at(epoch=moment.epoch, time=moment.time_ms)

    def rule(relation: Relation) -> Relation:
        if not isinstance(relation, Scan) or not _is_of_job(relation):
            return relation
        view = tables.view_of(relation.table)
        key = (id(view), relation.options)
        if key not in epochs:
            written = dict(relation.options).get(AS_OF)
            epochs[key] = view.newest() if written is None else open_epochs.enter_context(at(view, written))
        origin = _LiveOrigin(_table(relation.table, epochs[key]), relation.table.path[-1])
        return replace(relation, table=replace(relation.table, origin=origin), options=())

    return rule


def _table(entry: TableEntry, epoch: EpochView) -> TableReads:
    """The table in the epoch. Before its first epoch a fork's table has the name of its origin, which may itself be a
    fork; it is then the only table of its job."""
    root: tuple[str, ...] = getattr(entry.definition, "root", ())
    name, names = entry.path[-1], epoch.tables()
    return epoch.table(names[0] if root and names and name not in names else name)


def _with_rows(plan: Sequence[Sink], rows_max: int) -> tuple[Sink, ...]:
    """The plan with scans replaced by the rows of their tables."""
    filters = {id(each.input): each for each in relations_of(plan) if isinstance(each, Filter)}
    uses: dict[int, int] = {}
    for each in relations_of(plan):
        for below in each.inputs:
            uses[id(below)] = uses.get(id(below), 0) + 1

    def rule(relation: Relation) -> Relation:
        if not isinstance(relation, Scan) or not isinstance(relation.table.origin, _LiveOrigin):
            return relation
        above = filters.get(id(relation)) if uses.get(id(relation)) == 1 else None
        rows = _read(relation, above, rows_max)
        origin = relation.table.origin
        source = ColumnSource(rows, TableRowType(relation.table.written_type))
        return replace(relation, table=replace(relation.table, origin=SourceOrigin(source, origin.name)))

    return rewritten(plan, rule)


def _read(scan: Scan, above: Filter | None, rows_max: int) -> pa.Table:
    reads: TableReads = scan.table.origin.reads
    entry: TableEntry = scan.table
    keys = None if above is None else key_values(above.condition, scan, reads.primary_key)
    rows = reads.all(rows_max, _times(scan, above, reads)) if keys is None else reads.of_keys(keys)
    # An older epoch may have different columns, or a different order. Missing columns are NULL, as in rows stored
    # before they were added.
    absent = [column for column in entry.columns if column.name not in rows.column_names]
    for column in absent:
        if not column.type.is_nullable:
            raise SqlError(
                f"table '{reads.name}' has no column '{column.name}' in the requested epoch, and it cannot be "
                f"NULL. It has {', '.join(rows.column_names)}"
            )
        rows = rows.append_column(column.name, pa.nulls(rows.num_rows, column.type.arrow))
    return rows.select([column.name for column in entry.columns]).cast(entry.written_type.schema)


def _times(scan: Scan, above: Filter | None, reads: TableReads) -> TimeRange:
    """The times of archived rows that the filter may admit."""
    by = reads.archived_by
    return ANY_TIME if above is None or by is None else time_range(above.condition, scan, by)
