"""Partial columnar aggregation, upstream of the exchange: aggregates records to partials by key and pane.

`PartialsOperator` gathers and sends partials of any aggregation; aggregates without windows have a single pane.

A hot key is then a few rows per task and epoch, however many records it has, and does not overload the task that owns
it. Partials are gathered until the epoch's input is complete, or until there are many. If grouping a batch hardly
reduces it, because almost every record has its own key, its records are collected as single-record partials and grouped
in larger chunks: an exchange costs more than grouping does. If that hardly reduces them either, they are sent
ungrouped. Where arrival order matters (`first`, `last`, lists), rows collected in one way are sent before records
switch to the other.

The operator has no state between epochs. Lateness is determined downstream of the exchange.
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

__all__ = ["AggregateInput", "PartialAggregateOperator", "PartialsOperator"]

_GATHERED_ROWS_MAX = 1 << 17
# Grouping pays if it leaves at most this fraction of the rows.
_WORTHWHILE = 0.5
# After a batch (or a large chunk) that was not worth grouping, grouping is not tried for this many.
_SKIPPED_AFTER_MISS = 7
_CHUNK_BYTES = 96 << 20
_BATCH_ROWS_MAX = 65_536


@dataclass(frozen=True)
class AggregateInput:
    """The input of aggregates: the argument columns of each measure, the records' times, and their signs (-1: a delete;
    None: all are inserts)."""

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
        self._begin_chunks()

    def _begin_chunks(self) -> None:
        self._chunk: list[pa.RecordBatch] = []
        self._chunk_bytes = self._batches_to_skip = self._chunks_to_skip = 0

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        super().begin(spec, nonce)
        self._gathered, self._gathered_rows = [], 0
        self._begin_chunks()

    def _input_of(
        self, columns: pa.RecordBatch, timestamps: Timestamps | None, signs: Int64s | None = None
    ) -> AggregateInput:
        with self.call.running("aggregate"):
            measure_columns = [[column_of(argument, columns) for argument in m.arguments] for m in self._measures]
        # Event-time order applies to processing-time windows, too; without timestamps, arrival order does.
        at = np.zeros(columns.num_rows, dtype=np.int64) if timestamps is None else timestamps
        return AggregateInput(measure_columns, at, signs)

    def _partial(self, keys: pa.Array, panes: Int64s, records: AggregateInput) -> Batch | None:
        """Add records of these keys and panes."""
        if self._batches_to_skip:
            self._batches_to_skip -= 1
            return self._add_to_chunk(self._single_partials(keys, panes, records))
        groups = groups_of_pairs(keys, pa.array(panes))
        if groups.count > _WORTHWHILE * len(panes):
            self._batches_to_skip = _SKIPPED_AFTER_MISS
            return self._add_to_chunk(self._single_partials(keys, panes, records))
        if records.signs is not None:
            return self._gather(self._combined(self._single_partials(keys, panes, records), groups), groups)
        with self.call.running("aggregate"):  # a strict sum may overflow
            parts = self._accumulators.gather(records.inputs, records.at, groups)
        first = groups.firsts()
        return self._gather(self._rows(keys.take(pa.array(first)), panes[first], groups.sizes, parts), groups)

    def _single_partials(self, keys: pa.Array, panes: Int64s, records: AggregateInput) -> pa.RecordBatch:
        """Partials of one record each."""
        parts = self._accumulators.lift(records.inputs, records.at)
        if records.signs is None:
            return self._rows(keys, panes, np.ones(len(panes), dtype=np.int64), parts)
        return self._rows(keys, panes, records.signs, self._accumulators.negated(parts, records.signs))

    def _add_to_chunk(self, rows: pa.RecordBatch) -> Batch | None:
        """Collect rows that are not worth grouping alone, to group many of them at once."""
        if self._goes_by_arrival and self._gathered:  # earlier rows are sent first
            self.emit(self._batch(self._merged()))
        if self._chunks_to_skip:
            self._chunks_to_skip -= 1
            return self._batch(rows)
        self._chunk.append(rows)
        self._chunk_bytes += rows.nbytes
        if self._chunk_bytes >= _CHUNK_BYTES:
            self._send_chunk()
        return None

    def _send_chunk(self) -> None:
        """Group the collected rows, and send them."""
        chunk, self._chunk, self._chunk_bytes = self._chunk, [], 0
        rows = pa.concat_batches(chunk)
        groups = _groups(rows)
        if groups.count <= _WORTHWHILE * rows.num_rows:
            rows = self._combined(rows, groups)
        else:
            self._chunks_to_skip = _SKIPPED_AFTER_MISS * len(chunk)
        for start in range(0, rows.num_rows, _BATCH_ROWS_MAX):
            self.emit(self._batch(rows.slice(start, _BATCH_ROWS_MAX)))

    def _gather(self, partials: pa.RecordBatch, groups: Groups) -> Batch | None:
        """Gather partials until the epoch's input is complete, unless there are too many."""
        if self._goes_by_arrival and self._chunk:
            self._send_chunk()
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
        """Send the gathered partials: the epoch's input is complete."""
        if self._chunk:
            self._send_chunk()
        if self._gathered:
            started = time.perf_counter_ns()
            partials = self._batch(self._merged())
            self.busy_ns += time.perf_counter_ns() - started
            self.emit(partials)
        return super().advance(watermark)

    def _merged(self) -> pa.RecordBatch:
        """Remove and merge all gathered partials."""
        rows = pa.concat_batches(self._gathered)
        is_split = len(self._gathered) > 1
        self._gathered, self._gathered_rows = [], 0
        return self._combined(rows, _groups(rows)) if is_split else rows

    def _combined(self, rows: pa.RecordBatch, groups: Groups) -> pa.RecordBatch:
        first = pa.array(groups.firsts())
        counts = np.zeros(groups.count, dtype=np.int64)
        np.add.at(counts, groups.codes, rows.column(2).to_numpy())
        with self.call.running("aggregate"):  # a strict sum may overflow
            parts = self._accumulators.combine(rows.columns[3:], groups)
        return self._rows(rows.column(0).take(first), rows.column(1).take(first), counts, parts)

    def _rows(self, keys: pa.Array, panes: Int64s | pa.Array, records: Int64s, parts: Parts) -> pa.RecordBatch:
        columns = [keys, pa.array(panes), pa.array(records), *parts]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _batch(self, rows: pa.RecordBatch) -> Batch:
        return Batch.of_columns(rows, self._type)


class PartialAggregateOperator(PartialsOperator):
    """Pre-aggregates a task's input by key and pane."""

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
            # Times in gaps between windows do not belong to any window.
            in_windows = np.flatnonzero(self._windows.first_window(panes) <= self._windows.last_window(panes))
            rows = pa.array(in_windows)
            columns, keys, panes = columns.take(rows), keys.take(rows), panes[in_windows]
            stamps = None if stamps is None else stamps[in_windows]
        return self._partial(keys, panes, self._input_of(columns, stamps))

    def _keys(self, batch: Batch, columns: pa.RecordBatch) -> pa.Array:
        if self._key_column is not None:
            return columns.column(self._key_column)
        if self._keying is None:  # all records have the same key
            return pa.array(np.zeros(len(batch), dtype=np.int8))
        return self._keying.column(batch).array

    def _times(self, batch: Batch) -> Int64s:
        if not self._windows.is_event_time:
            return np.full(len(batch), self.time.now_ms, dtype=np.int64)
        return window_times(batch, self.call, "window")

    def _checked(self, batch: Batch) -> pa.RecordBatch:
        """The columns of records that can be aggregated: reject None and changes other than INSERT."""
        columns = batch.columns()
        kinds = columns.schema.get_field_index(KIND_COLUMN)
        if kinds < 0:
            return columns
        unfit = np.flatnonzero(np.asarray(columns.column(kinds).fill_null(1)) != 0)
        if len(unfit):
            error = ProgramError("the record is None or not an INSERT, which has no aggregate. Filter such records out")
            raise self.call.failed(error, "aggregate", tuple(batch.slice(int(unfit[0]), 1).values()))
        return columns.remove_column(kinds)


def _groups(rows: pa.RecordBatch) -> Groups:
    return groups_of_pairs(rows.column(0), rows.column(1))
