"""Upserts as full changes: the last row of every key is kept, and what was goes before what is.

An epoch's rows of a key come to one change: the last of them counts, a deletion too, whatever its other columns are. A
row that is as it was is no change, and a deletion of what is not there is none. So duplicates that a source gives after
a failure of its own vanish here.

The slow, obvious form of it is `normalised_slowly`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.types import RowKind
from millstream.graph.changing_nodes import NormaliseRows
from millstream.records.batch import Batch
from millstream.records.columns import typed_schema
from millstream.records.table_type import TableRowType
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.keyed.states import StateHandle
from millstream.runtime.operators.keyed_operator import KeyedOperator
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.changes import changed_rows, differing, signs_of, with_kinds
from millstream.runtime.tables.joined_rows import SignedRows
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import UPSERTED_ROWS
from millstream.state.tables.state_table import StateTable

__all__ = ["NormaliseOperator", "last_of_keys", "normalised_slowly"]

_GIVEN_ROWS = 65_536


class NormaliseOperator(KeyedOperator):
    """Keeps the last row of each key, and gives out what changes of it."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, key_type, output_type = self.node.operation, self.node.inputs[0].key_type, self.node.output_type
        assert isinstance(operation, NormaliseRows) and key_type is not None and output_type is not None
        self._operation, self._type = operation, output_type
        self._schema = typed_schema(output_type)
        self._kind = pa.struct(list(operation.row_type.schema))
        codec = task_codec(TableRowType(operation.row_type), f"state '{UPSERTED_ROWS}' of '{self.node.name}'")
        parallelism = setting.context.max_parallelism
        self._table = StateTable(UPSERTED_ROWS, key_type, parallelism, codec, ttl_ms=operation.ttl_ms)
        self.backend.keep(UPSERTED_ROWS, StateHandle(self._table, self.backend.scope))
        self._come: list[SignedRows] = []

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        super().open_states(accounts)
        self._come = []

    def take(self, batch: Batch) -> None:
        """Keep upserts until the epoch's input is in."""
        started = time.perf_counter_ns()
        self.records_in += len(batch)
        columns, signs = signs_of(batch.columns())
        contents = pa.StructArray.from_arrays(columns.columns[1 : 1 + self._kind.num_fields], fields=list(self._kind))
        self._come.append(SignedRows.of(self.keying.column(batch), contents, signs))
        self.busy_ns += time.perf_counter_ns() - started

    def advance(self, watermark: int) -> int:
        reached = super().advance(watermark)
        if self._come:
            started = time.perf_counter_ns()
            rows, self._come = SignedRows.concat(self._come), []
            for batch in self._changes(rows.take(last_of_keys(rows))):
                self.busy_ns += time.perf_counter_ns() - started
                self.emit(batch)
                started = time.perf_counter_ns()
            self.busy_ns += time.perf_counter_ns() - started
        return reached

    def _changes(self, rows: SignedRows) -> Iterator[Batch]:
        """What changes of keys, each of which has one row; the store follows."""
        with self.call.running("state"):
            had, stored = self._stored(rows.keys)
            has = rows.signs > 0
            self._keep(rows, had, has)
        count = len(rows)
        before = stored.take(pa.array(np.where(had, np.cumsum(had) - 1, 0), mask=~had)).flatten()
        after = rows.contents.flatten()
        at, kinds = changed_rows(had, has, differing(before, after, count))
        both = [pa.concat_arrays(pair) for pair in zip(before, after, strict=True)]
        for start in range(0, len(at), _GIVEN_ROWS):
            some = pa.array(at[start : start + _GIVEN_ROWS])
            columns = pa.RecordBatch.from_arrays([column.take(some) for column in both], schema=self._schema)
            times = self._times(columns)
            yield Batch.of_columns(with_kinds(columns, kinds[start : start + _GIVEN_ROWS]), self._type, times)

    def _times(self, columns: pa.RecordBatch) -> Int64s | None:
        if self._operation.rowtime is None:
            return None
        column = columns.column(self._operation.rowtime)
        millis = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
        return np.asarray(millis, dtype=np.int64)

    def _stored(self, keys: KeyColumn) -> tuple[Bools, pa.Array]:
        """Which keys have a row, and the rows of those."""
        if self._table.view.is_empty:
            return np.zeros(len(keys), dtype=np.bool_), pa.nulls(0, self._kind)
        lookup = self._table.view.get(keys)
        assert lookup.values is not None
        return lookup.mask, lookup.values

    def _keep(self, rows: SignedRows, had: Bools, has: Bools) -> None:
        if had.any():
            self._table.delete_keys(rows.keys.take(np.flatnonzero(had & ~has)))
        live = np.flatnonzero(has)
        if not len(live):
            return
        expires = None
        if self._operation.ttl_ms:
            expires = np.full(len(live), self.time.now_ms + self._operation.ttl_ms, dtype=np.int64)
        self._table.changes.put(rows.keys.take(live), rows.contents.take(pa.array(live)), expires_ms=expires)


def last_of_keys(rows: SignedRows) -> Int64s:
    """Where the last row of each key is, in the order in which keys came first."""
    codes = key_numbers([rows.keys.array])[0]
    last = np.empty(int(codes.max()) + 1, dtype=np.int64)
    first = np.empty(len(last), dtype=np.int64)
    last[codes] = np.arange(len(codes))
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return last[np.argsort(first, kind="stable")]


def normalised_slowly(
    table: dict[Any, tuple[Any, ...]], epoch: Iterable[tuple[RowKind, Any, tuple[Any, ...]]]
) -> list[tuple[RowKind, tuple[Any, ...]]]:
    """The reference: kinds, keys and rows of an epoch, one by one, into `table`; what has changed of it then."""
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
        if was is not None and now is not None and was != now:
            changes += [(RowKind.UPDATE_BEFORE, was), (RowKind.UPDATE_AFTER, now)]
        elif was is not None and now is None:
            changes.append((RowKind.DELETE, was))
        elif was is None and now is not None:
            changes.append((RowKind.INSERT, now))
    return changes
