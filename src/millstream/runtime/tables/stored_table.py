"""The result of a query in state: after every epoch the rows of a table, where readers of the store find them.

With a primary key a row is stored under its key, and nothing is read: of the changes of an epoch the last row that was
added for a key stands, and a key that only lost rows is removed. Without one, the row itself is the key, and how often
it is there is its value. Either way a stored epoch has exactly the rows that the query gives for what was read: in
the state or, where the table has an archive, in files that the state names (`archiving`).
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
from millstream.runtime.tables.archiving import ArchivedTable, refuse_another_archive
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
    """Of net changes by primary key, in the order they came: the rows that stand, and a row of each key that is gone.
    Of several rows that were added for a key the last one stands."""
    codes = key_numbers([rows.keys.array])[0]
    count = int(codes.max(initial=-1)) + 1
    last_added = np.full(count, -1, dtype=np.int64)
    added = np.flatnonzero(rows.signs > 0)
    last_added[codes[added]] = added  # numpy keeps the last of equal places
    taken = np.flatnonzero(rows.signs < 0)
    gone = taken[last_added[codes[taken]] < 0]
    return last_added[last_added >= 0], gone


class StoredTableOperator(GatheringOperator):
    """Keeps a table."""

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
            self._cut_ms = archive.cut_ms(self.time.watermark)  # where the last epoch left it
        self._writer_context = writer_context(self, spec, nonce)

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        refuse_another_archive(self.node.name, self._archived is not None, accounts)
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
                staged = self._archived.leave(cut_ms, self._writer_context)
            if staged is not None:
                self.emit(staged)
        return reached

    def _archive_time_ms(self) -> int:
        """By what rows are old: the clock, or the watermark."""
        archive = self._operation.archive
        return self.time.now_ms if archive is None or archive.by is None else self.time.watermark

    def abort(self) -> None:
        if self._archived is not None:
            self._archived.abort()
        super().abort()

    def is_enough(self) -> bool:
        # Counts add up, however the epoch is cut.
        return not self._operation.primary_key and self.gathered_bytes > _GATHERED_BYTES_MAX

    def change(self, rows: SignedRows) -> None:
        with self.call.running("state"):
            if self._operation.primary_key:
                net = rows.consolidated()
                standing, gone = last_rows(net)
                self._delete(net.take(gone))
                kept = net.take(standing)
                self._put(kept.keys, kept.contents, kept.contents)
            else:
                self._count(rows)

    def _delete(self, gone: SignedRows) -> None:
        """Keys that have no row any more, neither here nor in the archive."""
        self._table.changes.delete(gone.keys)
        if self._archived is not None and len(gone):
            left = np.flatnonzero(self._archived.may_have_left(gone.contents))
            self._archived.remove(gone.keys.take(left), self._archive_time_ms())

    def _count(self, rows: SignedRows) -> None:
        """Add up how often each row is there; of one that is in the archive, how often more or less than there."""
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
        if self._operation.ttl_ms:  # a row that was forgotten may go: there is nothing left of it
            counts = np.maximum(counts, 0)
        unknown = counts < 0
        if self._archived is not None and unknown.any():
            unknown &= ~self._archived.may_have_left(contents)
        if unknown.any():
            row = keys.array.slice(int(np.flatnonzero(unknown)[0]), 1).to_pylist()[0]
            raise ProgramError(
                f"a row of '{self.node.name}' was taken away that had never been added: {row}. Look at what the source "
                "says of its changes: each -U and -D is of a row that it has given before"
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
            born=() if self._archived is None or not any(self._archived.born) else self._archived.born,
        )
        return replace(account, queryable={self.node.queryable: table})
