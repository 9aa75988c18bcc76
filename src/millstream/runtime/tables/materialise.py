"""One change per key of a sink in an epoch: its row, or its deletion. What a sink by key writes is right in any order.

Rows of a query come to a sink from many tasks. Those with one key of the sink are sent to one task, and what an epoch
changes of a key is told there once. So no deletion of an old row can follow its successor, whatever the order in which
tasks are read.

Where the key of the query's rows is within the key of the sink, a key has one row at most: nothing is kept. Otherwise
(`is_stored`) all rows of a key are kept in the order they came; the last stands for the key, and when it goes, the one
before it comes back. Of equal rows the first goes. Flink's SinkUpsertMaterializer does the same row by row.

The slow, obvious form of it is `materialised_slowly`.
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
    """Gives one change for each key that an epoch changed."""

    def __init__(self, setting: OperatorSetting) -> None:
        operation, edge, output_type = setting.node.operation, setting.node.inputs[0], setting.node.output_type
        assert isinstance(operation, MaterialiseRows) and output_type is not None
        super().__init__(setting, operation.row_type)
        self._type = output_type
        self._schema = typed_schema(output_type)
        self._rows: JoinedRows | None = None
        self._forgotten: Counter | None = None
        if operation.is_stored:
            codec = task_codec(TableRowType(operation.row_type), f"state '{SINK_ROWS}' of '{self.node.name}'")
            parallelism, scope = setting.context.max_parallelism, self.backend.scope
            self._rows = JoinedRows(SINK_ROWS, edge.key_type, parallelism, codec, scope, operation.ttl_ms)
            self.backend.keep(SINK_ROWS, self._rows)
            self._forgotten = expired_retractions(setting) if self._rows.forgets else None

    def change(self, rows: SignedRows) -> None:
        with self.call.running("materialise"):
            before, after = self._sides(rows) if self._rows is None else self._applied(self._rows, rows)
            changed, kinds = winners_changed(before, after)
        self.give(pa.RecordBatch.from_arrays(changed.flatten(), schema=self._schema), kinds, self._type)

    def _sides(self, rows: SignedRows) -> tuple[SignedRows, SignedRows]:
        """What was and what is, of keys that have one row at most."""
        changes = rows.consolidated()
        return changes.take(np.flatnonzero(changes.signs < 0)), changes.take(np.flatnonzero(changes.signs > 0))

    def _applied(self, stored: JoinedRows, changes: SignedRows) -> tuple[SignedRows, SignedRows]:
        """All rows of the keys as they were, and as they are; the store follows."""
        before = stored.of_keys(changes.keys)
        gone, is_added, missing = before.followed_by(changes, "the table", forgets=stored.forgets)
        if self._forgotten is not None:
            self._forgotten.inc(len(missing))
        added = changes.where(is_added)
        stored.forget(before, np.flatnonzero(gone))
        stored.add(added, self.time.now_ms)
        return before, SignedRows.concat([before.take(np.flatnonzero(~gone)), added])


def winners_changed(before: SignedRows, after: SignedRows) -> tuple[pa.Array, Int64s]:
    """For each key whose last row is another one: that row, or the one that went, and the kind of the change."""
    both = SignedRows.concat([before, after])
    codes = key_numbers([both.keys.array])[0]
    count = int(codes.max(initial=-1)) + 1
    was, now = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    was[codes[: len(before)]] = np.arange(len(before))
    now[codes[len(before) :]] = np.arange(len(before), len(both))
    had, has = was >= 0, now >= 0
    differ = np.ones(count, dtype=np.bool_)
    there = np.flatnonzero(had & has)
    old, new = both.contents.take(pa.array(was[there])), both.contents.take(pa.array(now[there]))
    differ[there] = changed_mask(old.flatten(), new.flatten(), len(there))
    kinds = np.where(has, np.where(had, _AFTER, _INSERT), _DELETE)
    changed = np.flatnonzero(differ)
    return both.contents.take(pa.array(np.where(has, now, was)[changed])), kinds[changed]


class LatestOperator(Operator):
    """Leaves out rows that say what was before an update."""

    role = "rows of a table"

    def apply(self, batch: Batch) -> Batch | None:
        columns = batch.columns()
        at = columns.schema.get_field_index(KIND_COLUMN)
        if at < 0:
            return batch
        kept = np.flatnonzero(columns.column(at).to_numpy() != _BEFORE)
        if not len(kept):
            return None
        times = None if batch.timestamps is None else batch.timestamps[kept]
        assert batch.type_info is not None
        return Batch.of_columns(columns.take(pa.array(kept)), batch.type_info, times)


def materialised_slowly(
    table: dict[Any, list[tuple[Any, ...]]], epoch: Iterable[tuple[int, Any, tuple[Any, ...]]]
) -> dict[Any, tuple[Any, ...] | None]:
    """The reference: signs, keys and rows of an epoch, one by one, into `table`; what stands for each key that has
    another row now, None where it has none."""
    changes = list(epoch)
    was = {key: (table[key][-1] if table.get(key) else None) for _, key, _ in changes}
    # Of equal rows the first go, so what goes may wait for all that comes: tasks are read in any order.
    for sign, key, row in sorted(changes, key=lambda change: -change[0]):
        rows = table.setdefault(key, [])
        if sign > 0:
            rows.append(row)
        else:
            rows.remove(row)
    now = {key: (table[key][-1] if table.get(key) else None) for key in was}
    return {key: row for key, row in now.items() if row != was[key]}
