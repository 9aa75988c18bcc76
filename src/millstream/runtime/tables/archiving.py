"""Moves old rows of a stored table from state to its archive, in one step of one epoch (decision 0023).

Rows up to the cut are written to a file and deleted from state, and the file is named in state. All three happen in one
epoch, whose manifest commits them atomically. The staged file is passed downstream, to be published.

A row that changes after it was archived is stored in state again, without a lookup. Only a delete needs a mark: for a
table with a key, the key with the version (`removed`); for a table of counted rows, a count below 0. Marks are archived
like rows, so that state does not grow with deleted rows: the next file then marks the key as deleted.

This module assigns version numbers. They increase within a key group, whichever subtask owns it, and follow the clock
where it advances. The epoch's number cannot serve: epochs that run ahead and are committed as one may share it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.archives.archive import Archive
from millstream.connectors.archives.archive_sink import STAGED_TYPE
from millstream.connectors.archives.archived_files import (
    ARCHIVED_REMOVED,
    ARCHIVED_VERSION,
    ENTRY_TYPE,
    births_of,
    entry_column,
    latest_ms,
    milliseconds,
)
from millstream.connectors.contracts import SinkWriter, WriterContext
from millstream.errors import ProgramError
from millstream.expressions.types import BigIntType
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType, TableValueType
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.keyed.keyed_backend import KeyedBackend
from millstream.runtime.keyed.states import StateHandle
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn, key_groups
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import ARCHIVED_FILES, ARCHIVED_REMOVALS
from millstream.state.tables.state_table import StateTable

__all__ = ["ArchivedTable", "reject_archive_change"]

_STAGED = TableRowType(STAGED_TYPE)
_EARLIEST_MS = MIN_WATERMARK + 1
"""The earliest time at which a row can be due."""


class ArchivedTable:
    """Archives one subtask's part of `table`."""

    def __init__(
        self, archive: Archive, table: StateTable, key_type: TypeInformation, backend: KeyedBackend, groups: int
    ) -> None:
        self._archive, self._table, self._groups = archive, table, groups
        self._sink = archive.sink()
        self._row_type = TableRowType(archive.file_type)
        self._writer: SinkWriter | None = None
        self._entries: list[tuple[Int64s, pa.StructArray]] | None = None
        self.births: tuple[str, ...] = ("",) * len(archive.row_type.names)
        entries = task_codec(TableRowType(ENTRY_TYPE), ARCHIVED_FILES)
        self._files = StateTable(ARCHIVED_FILES, key_type, groups, entries, sub_type=pa.int64())
        backend.keep(ARCHIVED_FILES, StateHandle(self._files, backend.scope))
        epochs = task_codec(TableValueType(BigIntType(False)), ARCHIVED_REMOVALS)
        self._removed = StateTable(ARCHIVED_REMOVALS, key_type, groups, epochs, has_due=True)
        backend.keep(ARCHIVED_REMOVALS, StateHandle(self._removed, backend.scope))

    def begin(self) -> None:
        """Start an epoch. Aborting it must not affect output staged by earlier epochs."""
        self._writer = None
        self._entries = None

    def remember_columns(self, accounts: Mapping[int, SubtaskAccount], now: str) -> None:
        """Record when each column was added, from the previous epoch's accounts; for a new column that is `now`, the
        same in all subtasks."""
        tables = [table for account in accounts.values() for table in account.queryable.values()]
        if tables:
            before = tables[0]
            births = dict(
                zip([name for name, _ in before.columns], before.births or [""] * len(before.columns), strict=True)
            )
            self.births = tuple(births.get(name, now) for name in self._archive.row_type.names)

    def times_ms(self, rows: pa.StructArray, now_ms: int) -> Int64s:
        """The times that determine when rows are due for archiving."""
        if self._archive.by is None:
            return np.full(len(rows), now_ms, dtype=np.int64)
        return self._archive.times_ms(rows.flatten())

    def may_be_archived(self, rows: pa.StructArray) -> Bools:
        """Mask of the rows that, or whose keys, may be in the archive."""
        until_ms = latest_ms(value for _, value in self._named_files())
        if until_ms is None:
            return np.zeros(len(rows), dtype=np.bool_)
        if not self._archive.has_fixed_times:
            return np.ones(len(rows), dtype=np.bool_)
        return self._archive.times_ms(rows.flatten()) <= until_ms

    def _named_files(self) -> list[tuple[Int64s, pa.StructArray]]:
        """The files named under keys of this subtask: key groups, and the file's entry for each. There may be very
        many, so they are read once per epoch, until the epoch names another."""
        if self._entries is None:
            self._files.settle()
            blocks = () if self._files.view.is_empty else self._files.view.scan()
            self._entries = [
                (self._groups_of(block.column("hash").to_numpy()), block.column("value")) for block in blocks
            ]
        return self._entries

    def _versions(self) -> Int64s:
        """The newest version of each key group's archived rows; 0 without archived rows."""
        newest = np.zeros(self._groups, dtype=np.int64)
        for groups, entries in self._named_files():
            np.maximum.at(newest, groups, entries.field("version").to_numpy())
        return newest

    def _groups_of(self, hashes: Int64s) -> Int64s:
        return key_groups(hashes, self._groups).astype(np.int64)

    def remove(self, keys: KeyColumn, time_ms: int) -> None:
        """Mark archived rows of these keys as deleted: all previous versions become invalid. Versions are per key
        group, so its owner knows them at any parallelism. `time_ms`: the watermark, or the clock; the mark is archived
        with the next file."""
        if len(keys):
            due_ms = np.full(len(keys), max(time_ms - self._archive.after_ms, _EARLIEST_MS), dtype=np.int64)
            versions = pa.array(self._versions()[self._groups_of(keys.hashes)])
            self._removed.changes.put(keys, versions, due_ms=due_ms)

    def archive_due(self, cut_ms: int, context: WriterContext) -> Batch | None:
        """Archive rows and marks up to the cut; the staged file, if there are any."""
        due, marks = _due(self._table, cut_ms), self._take_marks(cut_ms)
        if not len(due) and not len(marks):
            return None
        # At least the clock: if a table is recreated and its old files remain, the new rows must win.
        version = max(int(self._versions().max()) + 1, context.now_ms)
        keys = KeyColumn.concat([due.keys, marks.keys])
        times_ms = np.concatenate([due.times_ms, self._times_of_marks(marks)])
        self._writer = self._sink.writer(context)
        self._writer.write(Batch.of_columns(self._file_rows(due, marks, version), self._row_type))
        [staged] = self._writer.stage()
        groups = self._groups_of(keys.hashes)
        births = births_of(self._archive.row_type.names, self.births)
        entry = self._archive.entry(staged, context.epoch, version, times_ms, groups, births)
        first = np.unique(groups, return_index=True)[1]
        versions = pa.array(np.full(len(first), version))
        self._files.changes.put(keys.take(first), entry_column([entry] * len(first)), subs=versions)
        self._entries = None
        self._table.changes.delete(due.keys)
        self._delete_marks(due.keys)
        text = pa.RecordBatch.from_arrays([pa.array([json.dumps(staged)])], schema=STAGED_TYPE.schema)
        return Batch.of_columns(text, _STAGED)

    def _take_marks(self, cut_ms: int) -> _DueRows:
        """Remove the marks up to the cut from state. A mark is not needed if its key has a row again: the row takes
        precedence, here and in the archive, and its delete makes a new mark."""
        marks = _due(self._removed, cut_ms)
        self._removed.changes.delete(marks.keys)
        if not len(marks) or self._table.view.is_empty:
            return marks
        return marks.take(np.flatnonzero(~self._table.view.get(marks.keys).mask))

    def _delete_marks(self, keys: KeyColumn) -> None:
        """Delete the marks of these archived keys. The rows are newer than the marks, which, archived later, would
        delete them where clocks differ."""
        if len(keys) and not self._removed.view.is_empty:
            self._removed.changes.delete(keys.take(np.flatnonzero(self._removed.view.get(keys).mask)))

    def _times_of_marks(self, marks: _DueRows) -> Int64s:
        """The times that locate a mark's file: the keys' times, if keys have a time."""
        if not len(marks) or not self._archive.has_fixed_times:
            return marks.times_ms
        return milliseconds(self._key_columns(marks)[self._archive.primary_key.index(self._archive.by or "")])

    def _key_columns(self, marks: _DueRows) -> list[pa.Array]:
        return [marks.keys.array] if len(self._archive.primary_key) == 1 else marks.keys.array.flatten()

    def _file_rows(self, due: _DueRows, marks: _DueRows, version: int) -> pa.RecordBatch:
        """Rows and marks as a file stores them, sorted so that row-group statistics can locate a key."""
        archive, schema = self._archive, self._archive.file_type.schema
        pieces = [self._value_rows(due, version)]
        if len(marks):
            keys = dict(zip(archive.primary_key, self._key_columns(marks), strict=True))
            keys |= {ARCHIVED_VERSION: _repeated(version, len(marks)), ARCHIVED_REMOVED: _repeated(True, len(marks))}
            nulls = [keys.get(field.name, pa.nulls(len(marks), field.type)).cast(field.type) for field in schema]
            pieces.append(pa.RecordBatch.from_arrays(nulls, schema=schema))
        batch = pa.concat_batches(pieces)
        names = archive.primary_key or archive.row_type.names
        order = [(name, "ascending") for name in names if not pa.types.is_nested(schema.field(name).type)]
        return batch.take(pc.sort_indices(batch, order)) if order else batch

    def _value_rows(self, due: _DueRows, version: int) -> pa.RecordBatch:
        archive, schema = self._archive, self._archive.file_type.schema
        if not len(due):
            return pa.RecordBatch.from_pylist([], schema=schema)
        value = due.keys.array if archive.is_counted else due.values
        # A row of one column is stored as a bare key, which may itself be a ROW.
        is_bare = archive.is_counted and len(archive.row_type.names) == 1
        last = due.values if archive.is_counted else _repeated(False, len(due))
        columns = [*([value] if is_bare else value.flatten()), _repeated(version, len(due)), last]
        typed = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(typed, schema=schema)

    def abort(self) -> None:
        """Abort the failed attempt."""
        if self._writer is not None:
            self._writer.abort()


@dataclass(frozen=True)
class _DueRows:
    """Due rows of a table, with their times."""

    keys: KeyColumn
    values: pa.Array
    times_ms: Int64s

    def __len__(self) -> int:
        return len(self.times_ms)

    def take(self, rows: Int64s) -> _DueRows:
        """The rows at these positions."""
        return _DueRows(self.keys.take(rows), self.values.take(pa.array(rows)), self.times_ms[rows])


def _due(table: StateTable, cut_ms: int) -> _DueRows:
    table.settle()
    rows = table.view.scan_due(cut_ms)
    keys = KeyColumn(rows.column("hash").to_numpy(), rows.column("key"))
    return _DueRows(keys, rows.column("value"), rows.column("due_ms").to_numpy())


def _repeated(value: int | bool, times: int) -> pa.Array:
    return pa.array(np.full(times, value))


def reject_archive_change(table: str, has_archive: bool, accounts: Mapping[int, SubtaskAccount]) -> None:
    """Reject adding or removing a table's archive. Without it, archived rows would be lost; and rows saved without one
    have no archive time."""
    for account in accounts.values():
        had_archive = any(each.archived_by is not None for each in account.queryable.values())
        if account.tables is None or had_archive == has_archive:
            continue
        if had_archive:
            raise ProgramError(
                f"'{table}' has an archive, but its options no longer name one: archived rows would be missing in "
                "every answer. Restore 'archive.path' and 'archive.after'"
            )
        raise ProgramError(
            f"'{table}' was stored without an archive so far: its rows have no archive time. Remove "
            "'archive.path', or recreate the table with a store of its own"
        )
