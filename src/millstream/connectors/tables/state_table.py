"""Tables that a job keeps in its state, to be asked for live: `'connector' = 'state'`.

There is no system behind one. What is put into it is kept by the job that puts it there (`KeptTable`), and what
is asked of it is read from that job's store; so the planner makes neither a source nor a sink of this factory.

With `'archive.path'` old rows leave the state for files of Parquet, or for a Delta table (`connectors.archives`).
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
"""Unless 'archive.every' says otherwise, so many files are written in the time that a row stays."""


class StateFactory(TableFactory):
    """A table in the state of a job."""

    name = STATE_CONNECTOR
    options = (
        TableOption("ttl", "how long a row is kept that nobody changes", default="for ever"),
        TableOption(ARCHIVE_PATH, "a folder, or an address as s3://bucket/folder, that old rows go to"),
        TableOption(_AFTER, "how old a row is when it goes there"),
        TableOption(ARCHIVE_BY, "the column that says when a row was; without it, a row is as old as its last change"),
        TableOption(_EVERY, "how much time the rows of a file are of", default=f"a {_STEPS}th of '{_AFTER}'"),
        TableOption(_FORMAT, "parquet or delta", default=PARQUET),
    )

    def source(
        self, table: TableDefinition, columns: Sequence[int] | None, filters: Sequence[RowExpression]
    ) -> TableSource:
        raise ProgramError(
            f"'{table.name}' is kept in the state of a job: it is asked by a SELECT over such tables alone, and no job "
            "reads it. Give the job the query that makes it, as a view"
        )

    def sink(self, table: TableDefinition, overwrite: bool = False) -> Sink:
        raise ProgramError(f"'{table.name}' is kept by the job itself, and has no sink")

    def takes_changes(self, table: TableDefinition) -> tuple[str, ...]:
        return ("+I", "-U", "+U", "-D")


def archive_of(table: TableDefinition) -> Archive | None:
    """Where old rows of a table go, by its options; ProgramError says what is wrong with them."""
    options = TableOptions(table.name, table.options, StateFactory.options)
    if ARCHIVE_PATH not in options:
        stray = [name for name in (_AFTER, ARCHIVE_BY, _EVERY, _FORMAT) if name in options]
        if stray:
            raise ProgramError(
                f"table {table.name!r} has the option {stray[0]!r} and no {ARCHIVE_PATH!r}. Name the folder of its "
                f"archive, or leave {stray[0]!r} out"
            )
        return None
    if "ttl" in options:
        raise ProgramError(
            f"table {table.name!r} has 'ttl' and {ARCHIVE_PATH!r}: a row that was forgotten cannot be archived. Leave "
            "'ttl' out; rows leave the state for the archive"
        )
    after_ms = options.duration_ms(_AFTER)
    if after_ms is None:
        raise ProgramError(
            f"table {table.name!r} has an archive, and does not say when rows go there. Add {_AFTER!r} = '1 h'"
        )
    every_ms = options.duration_ms(_EVERY) if _EVERY in options else after_ms // _STEPS
    format = str(options.choice(_FORMAT, (PARQUET, DELTA)))
    by = options.text(ARCHIVE_BY)
    _check_columns(table, options, by, format)
    path = str(options.text(ARCHIVE_PATH))
    refuse_credentials(path, f"table {table.name!r}: {ARCHIVE_PATH}")
    archive = Archive(open_store(path).url, format, table.physical, table.primary_key, by, after_ms, every_ms or 0)
    archive.sink()  # what it cannot take is told now
    return archive


def _check_columns(table: TableDefinition, options: TableOptions, by: str | None, format: str) -> None:
    """The column of time is one, and the archive can hold the others."""
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
            f"table {table.name!r} has a column {own[0]!r}, which files of an archive have of their own. Name it "
            "otherwise"
        )
    for name, kind in kinds.items() if format == DELTA else ():
        if isinstance(kind, types.TimestampType | types.LocalZonedTimestampType) and kind.precision > MICROSECONDS:
            raise ProgramError(
                f"table {table.name!r}: column {name!r} is {kind}, and a Delta table has times of microseconds. Cast "
                f"it to a precision of {MICROSECONDS}, or take {_FORMAT!r} = 'parquet'"
            )
