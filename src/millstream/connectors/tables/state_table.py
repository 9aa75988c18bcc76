"""Queryable tables in the state of a job: `'connector' = 'state'`.

No external system is involved. The job that inserts into the table stores it (`KeptTable`), and queries
read it from that job's store; so the planner builds neither a source nor a sink from this factory.

With `'archive.path'` old rows move from the state to Parquet files, or to a Delta table (`connectors.archives`).
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.connectors.archives.archive import DELTA, MICROSECONDS, PARQUET, Archive
from millstream.connectors.archives.archived_files import ARCHIVED_COUNT, ARCHIVED_REMOVED, ARCHIVED_VERSION
from millstream.connectors.contracts import Sink
from millstream.connectors.files.places import refuse_credentials
from millstream.connectors.tables.factory import TableDefinition, TableFactory, TableOption, TableSource
from millstream.connectors.tables.options import TableOptions
from millstream.errors import ProgramError, did_you_mean
from millstream.expressions import types
from millstream.expressions.row_expressions import RowExpression
from millstream.storage.store import open_store

__all__ = ["ARCHIVE_BY", "ARCHIVE_PATH", "STATE_CONNECTOR", "StateFactory", "archive_of"]

STATE_CONNECTOR = "state"
ARCHIVE_PATH, ARCHIVE_BY = "archive.path", "archive.by"
_AFTER, _EVERY, _FORMAT = "archive.after", "archive.every", "archive.format"
_TIMES = (types.TimestampType, types.LocalZonedTimestampType, types.DateType)
_STEPS = 10
"""Unless 'archive.every' is set, this many files are written in the time that a row stays."""


class StateFactory(TableFactory):
    """A table in the state of a job."""

    name = STATE_CONNECTOR
    options = (
        TableOption("ttl", "how long an unchanged row is stored", default="forever"),
        TableOption(ARCHIVE_PATH, "a folder, or an address such as s3://bucket/folder, for old rows"),
        TableOption(_AFTER, "the age at which a row is archived"),
        TableOption(ARCHIVE_BY, "the time column of rows; default: the time of the last change"),
        TableOption(_EVERY, "the time span of a file's rows", default=f"a {_STEPS}th of '{_AFTER}'"),
        TableOption(_FORMAT, "parquet or delta", default=PARQUET),
    )

    def source(
        self, table: TableDefinition, columns: Sequence[int] | None, filters: Sequence[RowExpression]
    ) -> TableSource:
        raise ProgramError(
            f"'{table.name}' is stored in the state of a job: only a SELECT over such tables can query it, and no job "
            "reads it. Use the query that fills it in this job, as a view"
        )

    def sink(self, table: TableDefinition, overwrite: bool = False) -> Sink:
        raise ProgramError(f"'{table.name}' is stored by the job itself, and has no sink")

    def accepted_changes(self, table: TableDefinition) -> tuple[str, ...]:
        return ("+I", "-U", "+U", "-D")


def archive_of(table: TableDefinition) -> Archive | None:
    """The archive of a table, by its options; raises ProgramError for wrong ones."""
    options = TableOptions(table.name, table.options, StateFactory.options)
    if ARCHIVE_PATH not in options:
        unused = [name for name in (_AFTER, ARCHIVE_BY, _EVERY, _FORMAT) if name in options]
        if unused:
            raise ProgramError(
                f"table {table.name!r} has the option {unused[0]!r} but no {ARCHIVE_PATH!r}. Name the folder of its "
                f"archive, or remove {unused[0]!r}"
            )
        return None
    if "ttl" in options:
        raise ProgramError(
            f"table {table.name!r} has 'ttl' and {ARCHIVE_PATH!r}: an expired row cannot be archived. Remove "
            "'ttl'; rows leave the state for the archive"
        )
    after_ms = options.duration_ms(_AFTER)
    if after_ms is None:
        raise ProgramError(
            f"table {table.name!r} has an archive, but no age at which rows are archived. Add {_AFTER!r} = '1 h'"
        )
    every_ms = options.duration_ms(_EVERY) if _EVERY in options else after_ms // _STEPS
    format = str(options.choice(_FORMAT, (PARQUET, DELTA)))
    by = options.text(ARCHIVE_BY)
    _check_columns(table, options, by, format)
    path = str(options.text(ARCHIVE_PATH))
    refuse_credentials(path, f"table {table.name!r}: {ARCHIVE_PATH}")
    archive = Archive(open_store(path).url, format, table.physical, table.primary_key, by, after_ms, every_ms or 0)
    archive.sink()  # report unsupported options now
    return archive


def _check_columns(table: TableDefinition, options: TableOptions, by: str | None, format: str) -> None:
    """Check that the time column is one, and that the archive supports the others."""
    names, kinds = table.physical.names, dict(zip(table.physical.names, table.physical.types, strict=True))
    if by is not None and (by not in kinds or not isinstance(kinds[by], _TIMES)):
        times = [name for name in names if isinstance(kinds[name], _TIMES)]
        raise options.wrong(
            ARCHIVE_BY,
            f"a column of DATE, TIMESTAMP or TIMESTAMP_LTZ: {', '.join(times) or 'there is none'}."
            f"{did_you_mean(by, times)}",
        )
    own = [name for name in (ARCHIVED_VERSION, ARCHIVED_COUNT, ARCHIVED_REMOVED) if name in names]
    if own:
        raise ProgramError(
            f"table {table.name!r} has a column {own[0]!r}, a name that archive files reserve. Rename the column"
        )
    for name, kind in kinds.items() if format == DELTA else ():
        if isinstance(kind, types.TimestampType | types.LocalZonedTimestampType) and kind.precision > MICROSECONDS:
            raise ProgramError(
                f"table {table.name!r}: column {name!r} is {kind}, but a Delta table has times of microseconds. Cast "
                f"it to a precision of {MICROSECONDS}, or use {_FORMAT!r} = 'parquet'"
            )
