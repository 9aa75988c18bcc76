"""Rows of a kept table leave the state for its archive, in one step of one epoch (decision 0023).

Rows up to the cut are written to a file, taken out of the state, and the file is named in the state. All three are of
the same epoch: its manifest has them all, or nothing of it has happened. What was staged is handed on, to be published.

A row that changes after it left is put into the state again; nothing is looked up for that. Only what is taken away
needs a mark: of a table by key the key, with the version (`removed`); of a table of counted rows a count below 0. Marks
leave as rows do, so that the state does not grow with what is gone: the next file says that the key is there no more.

Versions are numbers of this module's own, and grow within a key group, whichever subtask has it, by the clock where
that goes on. An epoch's number would not do: epochs that run ahead and are committed as one may have the same.
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

__all__ = ["ArchivedTable", "refuse_another_archive"]

_STAGED = TableRowType(STAGED_TYPE)
_EARLIEST_MS = MIN_WATERMARK + 1
"""The earliest time that a row can be due at."""


class ArchivedTable:
    """What is archived of one subtask's part of `table`."""

    def __init__(
        self, archive: Archive, table: StateTable, key_type: TypeInformation, backend: KeyedBackend, groups: int
    ) -> None:
        self._archive, self._table, self._groups = archive, table, groups
        self._sink = archive.sink()
        self._row_type = TableRowType(archive.file_type)
        self._writer: SinkWriter | None = None
        self._entries: list[tuple[Int64s, pa.StructArray]] | None = None
        self.born: tuple[str, ...] = ("",) * len(archive.row_type.names)
        entries = task_codec(TableRowType(ENTRY_TYPE), ARCHIVED_FILES)
        self._files = StateTable(ARCHIVED_FILES, key_type, groups, entries, sub_type=pa.int64())
        backend.keep(ARCHIVED_FILES, StateHandle(self._files, backend.scope))
        epochs = task_codec(TableValueType(BigIntType(False)), ARCHIVED_REMOVALS)
        self._removed = StateTable(ARCHIVED_REMOVALS, key_type, groups, epochs, has_due=True)
        backend.keep(ARCHIVED_REMOVALS, StateHandle(self._removed, backend.scope))

    def begin(self) -> None:
        """An epoch begins. What earlier ones staged is not this one's to abort."""
        self._writer = None
        self._entries = None

    def remember_columns(self, accounts: Mapping[int, SubtaskAccount], now: str) -> None:
        """Of each column since when it is there, by what the epoch before says; one that this had not is born `now`,
        which is the same for all subtasks."""
        tables = [table for account in accounts.values() for table in account.queryable.values()]
        if tables:
            before = tables[0]
            born = dict(
                zip([name for name, _ in before.columns], before.born or [""] * len(before.columns), strict=True)
            )
            self.born = tuple(born.get(name, now) for name in self._archive.row_type.names)

    def times_ms(self, rows: pa.StructArray, now_ms: int) -> Int64s:
        """By what each row is old some day."""
        if self._archive.by is None:
            return np.full(len(rows), now_ms, dtype=np.int64)
        return self._archive.times_ms(rows.flatten())

    def may_have_left(self, rows: pa.StructArray) -> Bools:
        """Which rows, or rows of their keys, may be in the archive."""
        until_ms = latest_ms(value for _, value in self._named())
        if until_ms is None:
            return np.zeros(len(rows), dtype=np.bool_)
        if not self._archive.has_fixed_times:
            return np.ones(len(rows), dtype=np.bool_)
        return self._archive.times_ms(rows.flatten()) <= until_ms

    def _named(self) -> list[tuple[Int64s, pa.StructArray]]:
        """The files that are named under keys of this subtask: key groups, and what is said of a file for each. There
        may be very many: they are read once an epoch, until it names another."""
        if self._entries is None:
            self._files.settle()
            blocks = () if self._files.view.is_empty else self._files.view.scan()
            self._entries = [
                (self._groups_of(block.column("hash").to_numpy()), block.column("value")) for block in blocks
            ]
        return self._entries

    def _versions(self) -> Int64s:
        """The newest version that rows of each key group have; 0 where none has left."""
        newest = np.zeros(self._groups, dtype=np.int64)
        for groups, entries in self._named():
            np.maximum.at(newest, groups, entries.field("version").to_numpy())
        return newest

    def _groups_of(self, hashes: Int64s) -> Int64s:
        return key_groups(hashes, self._groups).astype(np.int64)

    def remove(self, keys: KeyColumn, time_ms: int) -> None:
        """Rows of these keys, which may have left, are in the table no more: no version so far counts. That is the key
        group's, which whoever has the group knows, at any parallelism. `time_ms`: the watermark, or the clock; the mark
        leaves with the next portion."""
        if len(keys):
            due_ms = np.full(len(keys), max(time_ms - self._archive.after_ms, _EARLIEST_MS), dtype=np.int64)
            versions = pa.array(self._versions()[self._groups_of(keys.hashes)])
            self._removed.changes.put(keys, versions, due_ms=due_ms)

    def leave(self, cut_ms: int, context: WriterContext) -> Batch | None:
        """Let rows and marks up to the cut leave; what was staged of them, if there are any."""
        due, marks = _due(self._table, cut_ms), self._leaving_marks(cut_ms)
        if not len(due) and not len(marks):
            return None
        # Not below the clock: of a table that is made anew, whose old files stay, others take the newer rows.
        version = max(int(self._versions().max()) + 1, context.now_ms)
        keys = KeyColumn.concat([due.keys, marks.keys])
        times_ms = np.concatenate([due.times_ms, self._times_of_marks(marks)])
        self._writer = self._sink.writer(context)
        self._writer.write(Batch.of_columns(self._as_written(due, marks, version), self._row_type))
        [staged] = self._writer.stage()
        groups = self._groups_of(keys.hashes)
        births = births_of(self._archive.row_type.names, self.born)
        entry = self._archive.entry(staged, context.epoch, version, times_ms, groups, births)
        first = np.unique(groups, return_index=True)[1]
        versions = pa.array(np.full(len(first), version))
        self._files.changes.put(keys.take(first), entry_column([entry] * len(first)), subs=versions)
        self._entries = None
        self._table.changes.delete(due.keys)
        self._forget_marks(due.keys)
        text = pa.RecordBatch.from_arrays([pa.array([json.dumps(staged)])], schema=STAGED_TYPE.schema)
        return Batch.of_columns(text, _STAGED)

    def _leaving_marks(self, cut_ms: int) -> _DueRows:
        """The marks up to the cut, which are in the state no more. One of a key that has a row again is not needed: the
        row counts, here and when it has left, and if it goes there is a new mark."""
        marks = _due(self._removed, cut_ms)
        self._removed.changes.delete(marks.keys)
        if not len(marks) or self._table.view.is_empty:
            return marks
        return marks.take(np.flatnonzero(~self._table.view.get(marks.keys).mask))

    def _forget_marks(self, keys: KeyColumn) -> None:
        """Rows of these keys leave: they are newer than their marks, which would take them away when they leave later,
        as they might where clocks differ."""
        if len(keys) and not self._removed.view.is_empty:
            self._removed.changes.delete(keys.take(np.flatnonzero(self._removed.view.get(keys).mask)))

    def _times_of_marks(self, marks: _DueRows) -> Int64s:
        """The times by which the file of a mark is found: where keys have one, that."""
        if not len(marks) or not self._archive.has_fixed_times:
            return marks.times_ms
        return milliseconds(self._key_columns(marks)[self._archive.primary_key.index(self._archive.by or "")])

    def _key_columns(self, marks: _DueRows) -> list[pa.Array]:
        return [marks.keys.array] if len(self._archive.primary_key) == 1 else marks.keys.array.flatten()

    def _as_written(self, due: _DueRows, marks: _DueRows, version: int) -> pa.RecordBatch:
        """Rows and marks as a file has them, sorted so that a key is found by the statistics of row groups."""
        archive, schema = self._archive, self._archive.file_type.schema
        pieces = [self._rows_as_written(due, version)]
        if len(marks):
            keys = dict(zip(archive.primary_key, self._key_columns(marks), strict=True))
            keys |= {ARCHIVED_VERSION: _repeated(version, len(marks)), ARCHIVED_REMOVED: _repeated(True, len(marks))}
            nulls = [keys.get(field.name, pa.nulls(len(marks), field.type)).cast(field.type) for field in schema]
            pieces.append(pa.RecordBatch.from_arrays(nulls, schema=schema))
        batch = pa.concat_batches(pieces)
        names = archive.primary_key or archive.row_type.names
        order = [(name, "ascending") for name in names if not pa.types.is_nested(schema.field(name).type)]
        return batch.take(pc.sort_indices(batch, order)) if order else batch

    def _rows_as_written(self, due: _DueRows, version: int) -> pa.RecordBatch:
        archive, schema = self._archive, self._archive.file_type.schema
        if not len(due):
            return pa.RecordBatch.from_pylist([], schema=schema)
        value = due.keys.array if archive.is_counted else due.values
        # A row of one column is a key without a row around it, and may be a ROW itself.
        is_bare = archive.is_counted and len(archive.row_type.names) == 1
        last = due.values if archive.is_counted else _repeated(False, len(due))
        columns = [*([value] if is_bare else value.flatten()), _repeated(version, len(due)), last]
        typed = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(typed, schema=schema)

    def abort(self) -> None:
        """The attempt failed."""
        if self._writer is not None:
            self._writer.abort()


@dataclass(frozen=True)
class _DueRows:
    """Rows of a table whose time has come, by that time."""

    keys: KeyColumn
    values: pa.Array
    times_ms: Int64s

    def __len__(self) -> int:
        return len(self.times_ms)

    def take(self, rows: Int64s) -> _DueRows:
        """These rows."""
        return _DueRows(self.keys.take(rows), self.values.take(pa.array(rows)), self.times_ms[rows])


def _due(table: StateTable, cut_ms: int) -> _DueRows:
    table.settle()
    rows = table.view.scan_due(cut_ms)
    keys = KeyColumn(rows.column("hash").to_numpy(), rows.column("key"))
    return _DueRows(keys, rows.column("value"), rows.column("due_ms").to_numpy())


def _repeated(value: int | bool, times: int) -> pa.Array:
    return pa.array(np.full(times, value))


def refuse_another_archive(table: str, has_archive: bool, accounts: Mapping[int, SubtaskAccount]) -> None:
    """A table goes on with an archive if it began with one. Without, archived rows would be forgotten; and rows that
    were saved without one do not say when they are old."""
    for account in accounts.values():
        had_archive = any(each.archived_by is not None for each in account.queryable.values())
        if account.tables is None or had_archive == has_archive:
            continue
        if had_archive:
            raise ProgramError(
                f"'{table}' has an archive, and its options name none any more: rows there would be missing in every "
                "answer. Give it 'archive.path' and 'archive.after' again"
            )
        raise ProgramError(
            f"'{table}' was kept without an archive so far: its rows do not say when they go to one. Leave "
            "'archive.path' out, or make the table anew, with a store of its own"
        )
