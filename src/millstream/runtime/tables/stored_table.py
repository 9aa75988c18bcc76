"""Stores a query's result: after every epoch, state holds the rows of the table for readers of the store.

With a primary key, rows are stored under their key without reading: the last row inserted for a key in an epoch
replaces the stored one, and a key with only deletes is removed. Without one, the row is the key and its multiplicity is
the value. Either way a committed epoch holds exactly the query's result over the input read so far: in state or, for a
table with an archive, in files named in the state (`archiving`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from millstream.connectors.contracts import WriterContext
from millstream.errors import ProgramError
from millstream.expressions.types import BigIntType
from millstream.graph.stored_table import KeptTable
from millstream.records.table_type import TableRowType, TableValueType
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.keyed.states import StateHandle
from millstream.runtime.operators.endpoints import writer_context
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.archiving import ArchivedTable, reject_archive_change
from millstream.runtime.tables.gathering import GatheringOperator
from millstream.runtime.tables.joined_rows import SignedRows
from millstream.runtime.task.spec import EpochSpec
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import KeyColumn
from millstream.state.schemas.saved_sql_types import written_sql_type
from millstream.state.schemas.saved_types import written_type
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.queryable import COUNTED_ROWS, KEYED_ROWS, Queryable
from millstream.state.stored.table_names import MATERIALISED_ROWS
from millstream.state.tables.state_table import StateTable

__all__ = ["StoredTableOperator", "last_rows"]

_GATHERED_BYTES_MAX = 64 << 20
_COUNT = TableValueType(BigIntType(False))


def last_rows(rows: SignedRows) -> tuple[Int64s, Int64s]:
    """From consolidated changes by primary key, in arrival order, the rows to store, and one row of each key to delete.
    Of several rows inserted for a key the last is stored."""
    codes = key_numbers([rows.keys.array])[0]
    count = int(codes.max(initial=-1)) + 1
    last_added = np.full(count, -1, dtype=np.int64)
    added = np.flatnonzero(rows.signs > 0)
    last_added[codes[added]] = added  # for equal indices numpy stores the last value
    deletes = np.flatnonzero(rows.signs < 0)
    deleted = deletes[last_added[codes[deletes]] < 0]
    return last_added[last_added >= 0], deleted


class StoredTableOperator(GatheringOperator):
    """Stores a table."""

    def __init__(self, setting: OperatorSetting) -> None:
        operation, edge = setting.node.operation, setting.node.inputs[0]
        assert isinstance(operation, KeptTable)
        super().__init__(setting, operation.row_type)
        self._operation, self._key_type = operation, edge.key_type
        self._value = TableRowType(operation.row_type) if operation.primary_key else _COUNT
        codec = task_codec(self._value, f"the rows of '{self.node.name}'")
        groups = setting.context.max_parallelism
        archive = operation.archive
        self._table = StateTable(
            MATERIALISED_ROWS, edge.key_type, groups, codec, ttl_ms=operation.ttl_ms, has_due=archive is not None
        )
        self.backend.keep(MATERIALISED_ROWS, StateHandle(self._table, self.backend.scope))
        self._archived: ArchivedTable | None = None
        self._writer_context: WriterContext | None = None
        self._cut_ms: int | None = None
        self._epoch = 0
        if archive is not None:
            assert edge.key_type is not None
            self._archived = ArchivedTable(archive, self._table, edge.key_type, self.backend, groups)

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        self._epoch = spec.epoch
        super().begin(spec, nonce)
        archive = self._operation.archive
        if self._archived is None or archive is None:
            return
        self._archived.begin()
        if archive.by is not None:
            self._cut_ms = archive.cut_ms(self.time.watermark)  # the watermark at the end of the last epoch
        self._writer_context = writer_context(self, spec, nonce)

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        reject_archive_change(self.node.name, self._archived is not None, accounts)
        super().open_states(accounts)
        if self._archived is not None:
            self._archived.remember_columns(accounts, f"{self.setting.facts.job_id}:{self._epoch}")

    def advance(self, watermark: int) -> int:
        reached = super().advance(watermark)
        archive = self._operation.archive
        if self._archived is None or archive is None:
            return reached
        assert self._writer_context is not None
        cut_ms = archive.cut_ms(self._archive_time_ms())
        if cut_ms is not None and (self._cut_ms is None or cut_ms > self._cut_ms):
            self._cut_ms = cut_ms
            with self.call.running("archive"):
                staged = self._archived.archive_due(cut_ms, self._writer_context)
            if staged is not None:
                self.emit(staged)
        return reached

    def _archive_time_ms(self) -> int:
        """The time that decides whether a row is old: the clock, or the watermark."""
        archive = self._operation.archive
        return self.time.now_ms if archive is None or archive.by is None else self.time.watermark

    def abort(self) -> None:
        if self._archived is not None:
            self._archived.abort()
        super().abort()

    def should_apply(self) -> bool:
        # Counts are additive, so changes may be applied in several pieces.
        return not self._operation.primary_key and self.gathered_bytes > _GATHERED_BYTES_MAX

    def apply_changes(self, rows: SignedRows) -> None:
        with self.call.running("state"):
            if self._operation.primary_key:
                net = rows.consolidated()
                latest, deleted = last_rows(net)
                self._delete(net.take(deleted))
                stored_rows = net.take(latest)
                self._put(stored_rows.keys, stored_rows.contents, stored_rows.contents)
            else:
                self._count(rows)

    def _delete(self, deleted: SignedRows) -> None:
        """Delete keys that no longer have a row, in state or in the archive."""
        self._table.changes.delete(deleted.keys)
        if self._archived is not None and len(deleted):
            left = np.flatnonzero(self._archived.may_be_archived(deleted.contents))
            self._archived.remove(deleted.keys.take(left), self._archive_time_ms())

    def _count(self, rows: SignedRows) -> None:
        """Add changes to multiplicities; an archived row stores the difference to its archived multiplicity."""
        codes = key_numbers([rows.keys.array])[0]
        first = np.unique(codes, return_index=True)[1]
        keys, contents = rows.keys.take(first), rows.contents.take(pa.array(first))
        counts = np.zeros(len(first), dtype=np.int64)
        np.add.at(counts, codes, rows.signs)
        self._table.settle()
        if not self._table.view.is_empty:
            stored = self._table.view.get(keys)
            if stored.values is not None:
                counts[stored.mask] += stored.values.to_numpy()
        if self._operation.ttl_ms:  # the row may have expired
            counts = np.maximum(counts, 0)
        unknown = counts < 0
        if self._archived is not None and unknown.any():
            unknown &= ~self._archived.may_be_archived(contents)
        if unknown.any():
            row = keys.array.slice(int(np.flatnonzero(unknown)[0]), 1).to_pylist()[0]
            raise ProgramError(
                f"a row of '{self.node.name}' was retracted that was never inserted: {row}. Check the source's "
                "changelog: every -U and -D must be of a row that it emitted before"
            )
        self._table.changes.delete(keys.take(np.flatnonzero(counts == 0)))
        live = np.flatnonzero(counts != 0)
        self._put(keys.take(live), pa.array(counts[live]), contents.take(pa.array(live)))

    def _put(self, keys: KeyColumn, values: pa.Array, rows: pa.StructArray) -> None:
        ttl_ms = self._operation.ttl_ms
        expires = np.full(len(keys), self.time.now_ms + ttl_ms, dtype=np.int64) if ttl_ms else None
        due = None if self._archived is None else self._archived.times_ms(rows, self.time.now_ms)
        self._table.changes.put(keys, values, due_ms=due, expires_ms=expires)

    def write_states(self) -> SubtaskAccount:
        account, operation, row = super().write_states(), self._operation, self._operation.row_type
        assert self.node.queryable is not None
        table = Queryable(
            MATERIALISED_ROWS,
            "value",
            written_type(self._key_type),
            written_type(self._value),
            KEYED_ROWS if operation.primary_key else COUNTED_ROWS,
            columns=tuple((name, written_sql_type(kind)) for name, kind in zip(row.names, row.types, strict=True)),
            primary_key=operation.primary_key,
            archived_by=None if operation.archive is None else operation.archive.by or "",
            births=() if self._archived is None or not any(self._archived.births) else self._archived.births,
        )
        return replace(account, queryable={self.node.queryable: table})
