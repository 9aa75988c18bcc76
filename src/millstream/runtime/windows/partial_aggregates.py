"""The half of a columnar aggregate that runs before the exchange: records become partials by key and pane.

`PartialsOperator` gathers and sends partials, whatever they are of; aggregates without windows have one pane.

A hot key is then a few rows per task and epoch, however many records it has, and does not pile up on the task that
owns it. Partials are kept until the epoch's input is in, or until there are many. Where grouping a batch hardly makes
it smaller, because almost every record has a key of its own, its records are kept as partials of one and grouped in
large: an exchange costs more than grouping does. If even that hardly makes them fewer, they are sent as they are.
Where the order of arrival tells (`first`, `last`, lists), what was kept one way is sent before records go the other.

The operator keeps nothing between epochs. Which partials are late is decided behind the exchange.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Parts
from millstream.aggregation.groups import Groups, groups_of_pairs
from millstream.aggregation.kernels import column_of
from millstream.aggregation.pane_rows import Accumulators
from millstream.errors import ProgramError
from millstream.graph.field_key import FieldKey
from millstream.plan.operations import PartialAggregate
from millstream.records.batch import Batch, Timestamps
from millstream.records.columns import KIND_COLUMN, typed_schema
from millstream.runtime.exchange.routing import Keying
from millstream.runtime.operators.event_times import window_times
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.task.spec import EpochSpec
from millstream.state.keys.hashing import Int64s
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["PartialAggregateOperator", "PartialsOperator", "SeenRecords"]

_GATHERED_ROWS_MAX = 1 << 17
# Grouping pays when it leaves at most this part of the rows.
_WORTHWHILE = 0.5
# After a batch (or a large lot) that was not worth grouping, so many are not tried before another is.
_SKIPPED_AFTER_MISS = 7
_LOT_BYTES = 96 << 20
_SENT_ROWS = 65_536


@dataclass(frozen=True)
class SeenRecords:
    """What aggregates see of records: the columns of each measure, the records' times, and their signs (-1: the record
    is taken away; None: none is)."""

    inputs: Sequence[Sequence[pa.Array]]
    at: Int64s
    signs: Int64s | None = None


class PartialsOperator(Operator):
    """Gathers partials of `measures`, and sends them."""

    def __init__(self, setting: OperatorSetting, measures: Sequence[BoundAggregate]) -> None:
        super().__init__(setting)
        output_type = self.node.output_type
        assert output_type is not None
        self._measures = measures
        self._accumulators = Accumulators(measures)
        self._goes_by_arrival = any(measure.goes_by_arrival for measure in measures)
        self._type = output_type
        self._schema = typed_schema(output_type)
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self._begin_lots()

    def _begin_lots(self) -> None:
        self._lot: list[pa.RecordBatch] = []
        self._lot_bytes = self._batches_to_skip = self._lots_to_skip = 0

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        super().begin(spec, nonce)
        self._gathered, self._gathered_rows = [], 0
        self._begin_lots()

    def _seen(self, columns: pa.RecordBatch, timestamps: Timestamps | None, signs: Int64s | None = None) -> SeenRecords:
        with self.call.running("aggregate"):
            measure_columns = [[column_of(look, columns) for look in m.arguments] for m in self._measures]
        # What goes by event time does so by the clock's windows too; without timestamps, the order of arrival is left.
        at = np.zeros(columns.num_rows, dtype=np.int64) if timestamps is None else timestamps
        return SeenRecords(measure_columns, at, signs)

    def _partial(self, keys: pa.Array, panes: Int64s, records: SeenRecords) -> Batch | None:
        """Take in records of these keys and panes."""
        if self._batches_to_skip:
            self._batches_to_skip -= 1
            return self._add_to_lot(self._singles(keys, panes, records))
        groups = groups_of_pairs(keys, pa.array(panes))
        if groups.count > _WORTHWHILE * len(panes):
            self._batches_to_skip = _SKIPPED_AFTER_MISS
            return self._add_to_lot(self._singles(keys, panes, records))
        if records.signs is not None:
            return self._gather(self._combined(self._singles(keys, panes, records), groups), groups)
        with self.call.running("aggregate"):  # a strict sum may be refused
            parts = self._accumulators.gather(records.inputs, records.at, groups)
        first = groups.firsts()
        return self._gather(self._rows(keys.take(pa.array(first)), panes[first], groups.sizes, parts), groups)

    def _singles(self, keys: pa.Array, panes: Int64s, records: SeenRecords) -> pa.RecordBatch:
        """Partials of one record each."""
        parts = self._accumulators.lift(records.inputs, records.at)
        if records.signs is None:
            return self._rows(keys, panes, np.ones(len(panes), dtype=np.int64), parts)
        return self._rows(keys, panes, records.signs, self._accumulators.negated(parts, records.signs))

    def _add_to_lot(self, rows: pa.RecordBatch) -> Batch | None:
        """Keep rows that are not worth grouping by themselves, to group many of them at once."""
        if self._goes_by_arrival and self._gathered:  # what came before is before them
            self.emit(self._batch(self._merged()))
        if self._lots_to_skip:
            self._lots_to_skip -= 1
            return self._batch(rows)
        self._lot.append(rows)
        self._lot_bytes += rows.nbytes
        if self._lot_bytes >= _LOT_BYTES:
            self._send_lot()
        return None

    def _send_lot(self) -> None:
        """Group the lot, and send it."""
        lot, self._lot, self._lot_bytes = self._lot, [], 0
        rows = pa.concat_batches(lot)
        groups = _groups(rows)
        if groups.count <= _WORTHWHILE * rows.num_rows:
            rows = self._combined(rows, groups)
        else:
            self._lots_to_skip = _SKIPPED_AFTER_MISS * len(lot)
        for start in range(0, rows.num_rows, _SENT_ROWS):
            self.emit(self._batch(rows.slice(start, _SENT_ROWS)))

    def _gather(self, partials: pa.RecordBatch, groups: Groups) -> Batch | None:
        """Keep partials until the epoch's input is in, unless they are too many for that."""
        if self._goes_by_arrival and self._lot:
            self._send_lot()
        self._gathered.append(partials)
        self._gathered_rows += groups.count
        if self._gathered_rows < _GATHERED_ROWS_MAX:
            return None
        merged = self._merged()
        if merged.num_rows > _WORTHWHILE * _GATHERED_ROWS_MAX:
            return self._batch(merged)
        self._gathered, self._gathered_rows = [merged], merged.num_rows
        return None

    def advance(self, watermark: int) -> int:
        """The epoch's input is in: send what was gathered."""
        if self._lot:
            self._send_lot()
        if self._gathered:
            started = time.perf_counter_ns()
            partials = self._batch(self._merged())
            self.busy_ns += time.perf_counter_ns() - started
            self.emit(partials)
        return super().advance(watermark)

    def _merged(self) -> pa.RecordBatch:
        """All gathered partials as one; they are gathered no more."""
        rows = pa.concat_batches(self._gathered)
        is_split = len(self._gathered) > 1
        self._gathered, self._gathered_rows = [], 0
        return self._combined(rows, _groups(rows)) if is_split else rows

    def _combined(self, rows: pa.RecordBatch, groups: Groups) -> pa.RecordBatch:
        first = pa.array(groups.firsts())
        counts = np.zeros(groups.count, dtype=np.int64)
        np.add.at(counts, groups.codes, rows.column(2).to_numpy())
        with self.call.running("aggregate"):  # a strict sum may be refused
            parts = self._accumulators.combine(rows.columns[3:], groups)
        return self._rows(rows.column(0).take(first), rows.column(1).take(first), counts, parts)

    def _rows(self, keys: pa.Array, panes: Int64s | pa.Array, records: Int64s, parts: Parts) -> pa.RecordBatch:
        columns = [keys, pa.array(panes), pa.array(records), *parts]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _batch(self, rows: pa.RecordBatch) -> Batch:
        return Batch.of_columns(rows, self._type)


class PartialAggregateOperator(PartialsOperator):
    """Aggregates what its task reads, by key and pane."""

    def __init__(self, setting: OperatorSetting) -> None:
        operation, edge = setting.node.operation, setting.node.inputs[0]
        assert isinstance(operation, PartialAggregate)
        super().__init__(setting, operation.measures)
        self._windows = operation.windows
        selector = edge.key_selector
        self._keying = None if selector is None else Keying(selector, edge.key_type, self.call.at(edge.site))
        self._key_column = selector.column if isinstance(selector, FieldKey) else None

    def apply(self, batch: Batch) -> Batch | None:
        columns = self._checked(batch)
        times = self._times(batch)
        keys = self._keys(batch, columns)
        panes = self._windows.pane_of(times)
        stamps = batch.timestamps
        if self._windows.has_gaps:
            # Between windows that do not touch there is time that belongs to none.
            in_windows = np.flatnonzero(self._windows.first_window(panes) <= self._windows.last_window(panes))
            rows = pa.array(in_windows)
            columns, keys, panes = columns.take(rows), keys.take(rows), panes[in_windows]
            stamps = None if stamps is None else stamps[in_windows]
        return self._partial(keys, panes, self._seen(columns, stamps))

    def _keys(self, batch: Batch, columns: pa.RecordBatch) -> pa.Array:
        if self._key_column is not None:
            return columns.column(self._key_column)
        if self._keying is None:  # all records have one key
            return pa.array(np.zeros(len(batch), dtype=np.int8))
        return self._keying.column(batch).array

    def _times(self, batch: Batch) -> Int64s:
        if not self._windows.is_event_time:
            return np.full(len(batch), self.time.now_ms, dtype=np.int64)
        return window_times(batch, self.call, "window")

    def _checked(self, batch: Batch) -> pa.RecordBatch:
        """The columns of records that can be aggregated: none is None or a change other than INSERT."""
        columns = batch.columns()
        kinds = columns.schema.get_field_index(KIND_COLUMN)
        if kinds < 0:
            return columns
        unfit = np.flatnonzero(np.asarray(columns.column(kinds).fill_null(1)) != 0)
        if len(unfit):
            error = ProgramError("the record is None or no INSERT, which has no aggregate. Filter such records out")
            raise self.call.failed(error, "aggregate", tuple(batch.slice(int(unfit[0]), 1).values()))
        return columns.remove_column(kinds)


def _groups(rows: pa.RecordBatch) -> Groups:
    return groups_of_pairs(rows.column(0), rows.column(1))
