"""Emits one change per sink key and epoch: its row, or its delete. So a keyed sink's writes are correct in any order.

Rows of a query reach a sink from many tasks. Rows with the same sink key are sent to one task, which emits the epoch's
change of the key once. So the delete of an old row cannot arrive after its successor, in whatever order tasks are read.

If the key of the query's rows is within the sink's key, a key has at most one row and there is no state. Otherwise
(`is_stored`) all rows of a key are stored in arrival order; the last is the key's row, and when it is deleted, the one
before it returns. Of equal rows the first is deleted. Flink's SinkUpsertMaterializer does the same row by row.

`materialised_slowly` is the slow reference implementation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.types import RowKind
from millstream.graph.changing_nodes import MaterialiseRows
from millstream.metrics.metricbase import Counter
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN, typed_schema
from millstream.records.table_type import TableRowType
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.tables.changes import changed_mask
from millstream.runtime.tables.emitted_results import expired_retractions
from millstream.runtime.tables.gathering import GatheringOperator
from millstream.runtime.tables.joined_rows import JoinedRows, SignedRows
from millstream.state.keys.hashing import Int64s
from millstream.state.stored.table_names import SINK_ROWS

__all__ = ["LatestOperator", "MaterialiseOperator", "materialised_slowly"]

_INSERT, _BEFORE, _AFTER, _DELETE = (
    kind.value for kind in (RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE)
)


class MaterialiseOperator(GatheringOperator):
    """Emits one change for each key that an epoch changed."""

    def __init__(self, setting: OperatorSetting) -> None:
        operation, edge, output_type = setting.node.operation, setting.node.inputs[0], setting.node.output_type
        assert isinstance(operation, MaterialiseRows) and output_type is not None
        super().__init__(setting, operation.row_type)
        self._type = output_type
        self._schema = typed_schema(output_type)
        self._rows: JoinedRows | None = None
        self._expired_retractions: Counter | None = None
        if operation.is_stored:
            codec = task_codec(TableRowType(operation.row_type), f"state '{SINK_ROWS}' of '{self.node.name}'")
            parallelism, scope = setting.context.max_parallelism, self.backend.scope
            self._rows = JoinedRows(SINK_ROWS, edge.key_type, parallelism, codec, scope, operation.ttl_ms)
            self.backend.keep(SINK_ROWS, self._rows)
            self._expired_retractions = expired_retractions(setting) if self._rows.has_ttl else None

    def apply_changes(self, rows: SignedRows) -> None:
        with self.call.running("materialise"):
            before, after = self._sides(rows) if self._rows is None else self._applied(self._rows, rows)
            changed, kinds = winners_changed(before, after)
        self.emit_changes(pa.RecordBatch.from_arrays(changed.flatten(), schema=self._schema), kinds, self._type)

    def _sides(self, rows: SignedRows) -> tuple[SignedRows, SignedRows]:
        """The previous and the current rows of keys that have at most one row."""
        changes = rows.consolidated()
        return changes.take(np.flatnonzero(changes.signs < 0)), changes.take(np.flatnonzero(changes.signs > 0))

    def _applied(self, stored: JoinedRows, changes: SignedRows) -> tuple[SignedRows, SignedRows]:
        """The previous and current rows of the keys; also updates the store."""
        before = stored.of_keys(changes.keys)
        is_deleted, is_added, missing = before.match_changes(changes, "the table", has_ttl=stored.has_ttl)
        if self._expired_retractions is not None:
            self._expired_retractions.inc(len(missing))
        added = changes.where(is_added)
        stored.delete(before, np.flatnonzero(is_deleted))
        stored.add(added, self.time.now_ms)
        return before, SignedRows.concat([before.take(np.flatnonzero(~is_deleted)), added])


def winners_changed(before: SignedRows, after: SignedRows) -> tuple[pa.Array, Int64s]:
    """For each key whose last row changed: the new row, or the deleted one, and the kind of the change."""
    both = SignedRows.concat([before, after])
    codes = key_numbers([both.keys.array])[0]
    count = int(codes.max(initial=-1)) + 1
    was, now = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    was[codes[: len(before)]] = np.arange(len(before))
    now[codes[len(before) :]] = np.arange(len(before), len(both))
    existed, exists = was >= 0, now >= 0
    differ = np.ones(count, dtype=np.bool_)
    in_both = np.flatnonzero(existed & exists)
    old, new = both.contents.take(pa.array(was[in_both])), both.contents.take(pa.array(now[in_both]))
    differ[in_both] = changed_mask(old.flatten(), new.flatten(), len(in_both))
    kinds = np.where(exists, np.where(existed, _AFTER, _INSERT), _DELETE)
    changed = np.flatnonzero(differ)
    return both.contents.take(pa.array(np.where(exists, now, was)[changed])), kinds[changed]


class LatestOperator(Operator):
    """Drops update-before rows."""

    role = "rows of a table"

    def apply(self, batch: Batch) -> Batch | None:
        columns = batch.columns()
        at = columns.schema.get_field_index(KIND_COLUMN)
        if at < 0:
            return batch
        retained = np.flatnonzero(columns.column(at).to_numpy() != _BEFORE)
        if not len(retained):
            return None
        times = None if batch.timestamps is None else batch.timestamps[retained]
        assert batch.type_info is not None
        return Batch.of_columns(columns.take(pa.array(retained)), batch.type_info, times)


def materialised_slowly(
    table: dict[Any, list[tuple[Any, ...]]], epoch: Iterable[tuple[int, Any, tuple[Any, ...]]]
) -> dict[Any, tuple[Any, ...] | None]:
    """The reference: applies an epoch's signs, keys and rows one by one to `table`; returns the current row of each key
    whose row changed, None if it was deleted."""
    changes = list(epoch)
    was = {key: (table[key][-1] if table.get(key) else None) for _, key, _ in changes}
    # Deletes remove the first of equal rows, so they may follow all inserts: tasks are read in any order.
    for sign, key, row in sorted(changes, key=lambda apply_changes: -apply_changes[0]):
        rows = table.setdefault(key, [])
        if sign > 0:
            rows.append(row)
        else:
            rows.remove(row)
    now = {key: (table[key][-1] if table.get(key) else None) for key in was}
    return {key: row for key, row in now.items() if row != was[key]}
