"""Rows of a kept table leave the state for its archive, in one step of one epoch (decision 0023).

Rows up to the cut are written to a file, taken out of the state, and the file is named in the state. All three are of
the same epoch: its manifest has them all, or nothing of it has happened. What was staged is handed on, to be published.

A row that changes after it left is put into the state again; nothing is looked up for that. Only what is taken away
needs a mark: of a table by key the key, with the version (`removed`); of a table of counted rows a count below 0.

Versions are numbers of this module's own, and grow within a key group, whichever subtask has it. An epoch's number
would not do: epochs that run ahead and are committed as one may have the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.archives.archive import Archive
from millstream.connectors.archives.archive_sink import STAGED_TYPE
from millstream.connectors.archives.archived_files import ENTRY_TYPE, entries_of, entry_column
from millstream.connectors.contracts import SinkWriter, WriterContext
from millstream.errors import ProgramError
from millstream.expressions.types import BigIntType
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType, TableValueType
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


class ArchivedTable:
    """What is archived of one subtask's part of `table`."""

    def __init__(
        self, archive: Archive, table: StateTable, key_type: TypeInformation, backend: KeyedBackend, groups: int
    ) -> None:
        self._archive, self._table, self._groups = archive, table, groups
        self._sink = archive.sink()
        self._row_type = TableRowType(archive.file_type)
        self._writer: SinkWriter | None = None
        entries = task_codec(TableRowType(ENTRY_TYPE), ARCHIVED_FILES)
        self._files = StateTable(ARCHIVED_FILES, key_type, groups, entries, sub_type=pa.int64())
        backend.keep(ARCHIVED_FILES, StateHandle(self._files, backend.scope))
        epochs = task_codec(TableValueType(BigIntType(False)), ARCHIVED_REMOVALS)
        self._removed = StateTable(ARCHIVED_REMOVALS, key_type, groups, epochs)
        backend.keep(ARCHIVED_REMOVALS, StateHandle(self._removed, backend.scope))

    def begin(self) -> None:
        """An epoch begins. What earlier ones staged is not this one's to abort."""
        self._writer = None

    def times_ms(self, rows: pa.StructArray, now_ms: int) -> Int64s:
        """By what each row is old some day."""
        if self._archive.by is None:
            return np.full(len(rows), now_ms, dtype=np.int64)
        return self._archive.times_ms(rows.flatten())

    def may_have_left(self, rows: pa.StructArray) -> Bools:
        """Which rows, or rows of their keys, may be in the archive."""
        named = self._named()
        latest_ms = max((entry.high_ms for entry in entries_of(value for _, value in named)), default=None)
        if latest_ms is None:
            return np.zeros(len(rows), dtype=np.bool_)
        if not self._archive.has_fixed_times:
            return np.ones(len(rows), dtype=np.bool_)
        return self._archive.times_ms(rows.flatten()) <= latest_ms

    def _named(self) -> list[tuple[Int64s, pa.StructArray]]:
        """The files that are named under keys of this subtask: key groups, and what is said of a file for each."""
        blocks = () if self._files.view.is_empty else self._files.view.scan()
        return [(self._groups_of(block.column("hash").to_numpy()), block.column("value")) for block in blocks]

    def _versions(self) -> Int64s:
        """The newest version that rows of each key group have; 0 where none has left."""
        newest = np.zeros(self._groups, dtype=np.int64)
        for groups, entries in self._named():
            np.maximum.at(newest, groups, entries.field("version").to_numpy())
        return newest

    def _groups_of(self, hashes: Int64s) -> Int64s:
        return key_groups(hashes, self._groups).astype(np.int64)

    def remove(self, keys: KeyColumn) -> None:
        """Rows of these keys, which may have left, are in the table no more: no version so far counts. That is the key
        group's, which whoever has the group knows, at any parallelism."""
        if len(keys):
            self._removed.changes.put(keys, pa.array(self._versions()[self._groups_of(keys.hashes)]))

    def leave(self, cut_ms: int, context: WriterContext) -> Batch | None:
        """Let rows up to the cut leave; what was staged of them, if there are any."""
        self._table.settle()
        if self._table.view.is_empty:
            return None
        due = self._table.view.scan_due(cut_ms)
        if not due.num_rows:
            return None
        version = int(self._versions().max()) + 1
        rows = self._as_written(due, version)
        self._writer = self._sink.writer(context)
        self._writer.write(Batch.of_columns(rows, self._row_type))
        [staged] = self._writer.stage()
        keys = KeyColumn(due.column("hash").to_numpy(), due.column("key"))
        times_ms = due.column("due_ms").to_numpy()
        groups = self._groups_of(keys.hashes)
        entry = self._archive.entry(staged, context.epoch, version, times_ms, groups)
        first = np.unique(groups, return_index=True)[1]
        versions = pa.array(np.full(len(first), version))
        self._files.changes.put(keys.take(first), entry_column([entry] * len(first)), subs=versions)
        self._table.changes.delete(keys)
        text = pa.RecordBatch.from_arrays([pa.array([json.dumps(staged)])], schema=STAGED_TYPE.schema)
        return Batch.of_columns(text, _STAGED)

    def _as_written(self, due: pa.RecordBatch, version: int) -> pa.RecordBatch:
        """Rows as a file has them, sorted so that a key is found by the statistics of row groups."""
        archive = self._archive
        value = due.column("key" if archive.is_counted else "value")
        # A row of one column is a key without a row around it, and may be a ROW itself.
        is_bare = archive.is_counted and len(archive.row_type.names) == 1
        columns = [value] if is_bare else value.flatten()
        columns.append(pa.array(np.full(due.num_rows, version)))
        if archive.is_counted:
            columns.append(due.column("value"))
        schema = archive.file_type.schema
        typed = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        batch = pa.RecordBatch.from_arrays(typed, schema=schema)
        names = archive.primary_key or archive.row_type.names
        order = [(name, "ascending") for name in names if not pa.types.is_nested(schema.field(name).type)]
        return batch.take(pc.sort_indices(batch, order)) if order else batch

    def abort(self) -> None:
        """The attempt failed."""
        if self._writer is not None:
            self._writer.abort()


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
