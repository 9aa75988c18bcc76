"""Completes upserts to a full changelog: stores the last row of every key and emits its predecessor as a retraction.

An epoch's rows of a key make one change: the last row counts. If it is a delete, its non-key columns are ignored. An
unchanged row and the delete of an absent key emit nothing. So duplicates that a source repeats after a failure
disappear here.

`normalised_slowly` is the slow reference implementation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.types import RowKind
from millstream.graph.changing_nodes import NormaliseRows
from millstream.records.columns import typed_schema
from millstream.records.table_type import TableRowType
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.keyed.states import StateHandle
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.changes import changed_mask, changed_rows
from millstream.runtime.tables.gathering import GatheringOperator
from millstream.runtime.tables.joined_rows import SignedRows
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn
from millstream.state.stored.table_names import UPSERTED_ROWS
from millstream.state.tables.state_table import StateTable

__all__ = ["NormaliseOperator", "last_of_keys", "normalised_slowly"]


class NormaliseOperator(GatheringOperator):
    """Stores the last row of each key and emits its changes."""

    def __init__(self, setting: OperatorSetting) -> None:
        node = setting.node
        operation, key_type, output_type = node.operation, node.inputs[0].key_type, node.output_type
        assert isinstance(operation, NormaliseRows) and key_type is not None and output_type is not None
        super().__init__(setting, operation.row_type)
        self._operation, self._type = operation, output_type
        self._schema = typed_schema(output_type)
        codec = task_codec(TableRowType(operation.row_type), f"state '{UPSERTED_ROWS}' of '{self.node.name}'")
        parallelism = setting.context.max_parallelism
        self._table = StateTable(UPSERTED_ROWS, key_type, parallelism, codec, ttl_ms=operation.ttl_ms)
        self.backend.keep(UPSERTED_ROWS, StateHandle(self._table, self.backend.scope))

    def apply_changes(self, rows: SignedRows) -> None:
        rows = rows.take(last_of_keys(rows))
        with self.call.running("state"):
            existed, stored = self._stored(rows.keys)
            exists = rows.signs > 0
            self._store(rows, existed, exists)
        before = stored.take(pa.array(np.where(existed, np.cumsum(existed) - 1, 0), mask=~existed)).flatten()
        after = rows.contents.flatten()
        at, kinds = changed_rows(existed, exists, changed_mask(before, after, len(rows)))
        both = [pa.concat_arrays(pair).take(pa.array(at)) for pair in zip(before, after, strict=True)]
        columns = pa.RecordBatch.from_arrays(both, schema=self._schema)
        self.emit_changes(columns, kinds, self._type, self._times(columns))

    def _times(self, columns: pa.RecordBatch) -> Int64s | None:
        if self._operation.rowtime is None:
            return None
        column = columns.column(self._operation.rowtime)
        millis = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
        return np.asarray(millis, dtype=np.int64)

    def _stored(self, keys: KeyColumn) -> tuple[Bools, pa.Array]:
        """Mask of the keys that have a row, and their rows."""
        if self._table.view.is_empty:
            return np.zeros(len(keys), dtype=np.bool_), pa.nulls(0, self.row_kind)
        lookup = self._table.view.get(keys)
        assert lookup.values is not None
        return lookup.mask, lookup.values

    def _store(self, rows: SignedRows, existed: Bools, exists: Bools) -> None:
        if existed.any():
            self._table.delete_keys(rows.keys.take(np.flatnonzero(existed & ~exists)))
        live = np.flatnonzero(exists)
        if not len(live):
            return
        expires = None
        if self._operation.ttl_ms:
            expires = np.full(len(live), self.time.now_ms + self._operation.ttl_ms, dtype=np.int64)
        self._table.changes.put(rows.keys.take(live), rows.contents.take(pa.array(live)), expires_ms=expires)


def last_of_keys(rows: SignedRows) -> Int64s:
    """The index of the last row of each key, in the order in which keys first arrived."""
    codes = key_numbers([rows.keys.array])[0]
    last = np.empty(int(codes.max()) + 1, dtype=np.int64)
    first = np.empty(len(last), dtype=np.int64)
    last[codes] = np.arange(len(codes))
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return last[np.argsort(first, kind="stable")]


def normalised_slowly(
    table: dict[Any, tuple[Any, ...]], epoch: Iterable[tuple[RowKind, Any, tuple[Any, ...]]]
) -> list[tuple[RowKind, tuple[Any, ...]]]:
    """The reference: applies an epoch's kinds, keys and rows one by one to `table` and returns the changes."""
    before = dict(table)
    touched: dict[Any, None] = {}
    for kind, key, row in epoch:
        touched[key] = None
        if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            table[key] = row
        else:
            table.pop(key, None)
    changes: list[tuple[RowKind, tuple[Any, ...]]] = []
    for key in touched:
        was, now = before.get(key), table.get(key)
        if was is not None and now is not None and repr(was) != repr(now):  # 0.0 is not -0.0
            changes += [(RowKind.UPDATE_BEFORE, was), (RowKind.UPDATE_AFTER, now)]
        elif was is not None and now is None:
            changes.append((RowKind.DELETE, was))
        elif was is None and now is not None:
            changes.append((RowKind.INSERT, now))
    return changes
