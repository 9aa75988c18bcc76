"""OVER by time, on append-only tables: each row is emitted once, with aggregates of the rows up to it.

In event time a row waits until the watermark passes it; then all rows with its timestamp have arrived, and rows are
emitted in time order. Rows behind the watermark are late: they are dropped and counted. In processing time a row is
emitted at once, and its time is its arrival time.

Only data that later rows can reach is stored: rows of bounded frames (until the watermark passes the frame's start, or
as many rows as the frame has), and accumulators of each partition for frames that begin with its first row.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.aggregation.aggregate_columns import Parts
from millstream.aggregation.groups import groups_of
from millstream.common.typeinfo import Types
from millstream.graph.over_nodes import OverColumn, OverTime
from millstream.records.batch import Batch
from millstream.records.columns import typed_schema
from millstream.records.table_type import TableRowType
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.keyed.states import Scope, StateHandle
from millstream.runtime.operators.event_times import window_times
from millstream.runtime.operators.keyed_operator import KeyedOperator
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.changes import change_signs, reject_retractions
from millstream.runtime.tables.over_calls import Earlier, FrameCall, PlaceCall, functions_of, over_calls
from millstream.runtime.tables.over_frames import OrderedRows, ordered_by_time
from millstream.runtime.tables.over_rows import StoredTimedRows, TimedRows
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import OVER_ROWS, OVER_TOTALS
from millstream.state.tables.layout import NEVER_MS
from millstream.state.tables.state_table import StateTable
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["OverTimeOperator"]

_LATE_RECORDS = "numLateRecordsDropped"
_BATCH_ROWS_MAX = 65_536


@dataclass(frozen=True)
class Total:
    """Running state of partitions: a mask of the partitions with state, their counts of rows and of distinct times, and
    their accumulators for each running call."""

    present: Bools
    rows: Int64s
    moments: Int64s
    parts: list[Parts]


class Totals(StateHandle):
    """The stored running state, by partition."""

    def __init__(self, name: str, setting: OperatorSetting, measures: Sequence[BoundAggregate], scope: Scope) -> None:
        operation, edge = setting.node.operation, setting.node.inputs[0]
        assert isinstance(operation, OverTime)
        parts = [part for measure in measures for part in measure.parts]
        names, types = [name for name, _ in parts], [type_info for _, type_info in parts]
        value = Types.ROW_NAMED(["rows", "moments", *names], [Types.LONG(), Types.LONG(), *types])
        codec = task_codec(value, f"state '{name}' of '{setting.node.name}'")
        self._ttl_ms = operation.ttl_ms
        max_parallelism = setting.context.max_parallelism
        super().__init__(
            StateTable(name, edge.key_type, max_parallelism, codec, ttl_ms=self._ttl_ms, evolves=False), scope
        )
        self._edges = list(itertools.accumulate([2, *(len(measure.parts) for measure in measures)]))

    def read(self, keys: KeyColumn) -> Total:
        """The running state of these partitions."""
        kind = self.table.layout.value_type
        assert kind is not None
        present, values = np.zeros(len(keys), dtype=np.bool_), pa.nulls(0, kind)
        if not self.table.view.is_empty:
            lookup = self.table.view.get(keys)
            present, values = lookup.mask, values if lookup.values is None else lookup.values
        columns = values.flatten()
        numbers = np.zeros((2, len(keys)), dtype=np.int64)
        numbers[0, present], numbers[1, present] = columns[0].to_numpy(), columns[1].to_numpy()
        parts = [columns[low:high] for low, high in itertools.pairwise(self._edges)]
        return Total(present, numbers[0], numbers[1], parts)

    def write(self, keys: KeyColumn, rows: Int64s, moments: Int64s, parts: list[Parts], now_ms: int) -> None:
        """Store the running state of these partitions."""
        kind = self.table.layout.value_type
        assert kind is not None
        columns = [pa.array(rows), pa.array(moments), *itertools.chain.from_iterable(parts)]
        values = pa.StructArray.from_arrays(columns, fields=list(kind))
        expires = np.full(len(keys), now_ms + self._ttl_ms, dtype=np.int64) if self._ttl_ms else None
        self.table.changes.put(keys, values, expires_ms=expires)


@dataclass(frozen=True)
class Reach:
    """The lookback of later rows, in rows and in milliseconds; None: no lookback by time."""

    rows: int = 0
    range_ms: int | None = None

    @classmethod
    def of(cls, columns: Sequence[OverColumn]) -> Reach:
        """The largest lookback of all calls."""
        rows, ranges = [0], []
        for column in columns:
            frame = column.frame
            if column.measure is None:
                rows.append(column.reach)
            elif frame.preceding is not None and frame.unit == "ROWS":
                rows.append(int(frame.preceding))
            elif frame.preceding is not None:
                ranges.append(int(frame.preceding))
        return cls(max(rows), max(ranges, default=None))

    def __bool__(self) -> bool:
        return bool(self.rows or self.range_ms)

    def due_ms(self, times: Int64s) -> Int64s:
        """When rows leave the lookback by time alone; never, if the lookback counts rows."""
        if self.rows:
            return np.full(len(times), NEVER_MS, dtype=np.int64)
        return times + (self.range_ms or 0)

    def retained(self, rows: OrderedRows, now_ms: int) -> Bools:
        """Mask of the rows within the lookback of later rows, whose times are after `now_ms`."""
        retained = rows.ends - rows.places <= self.rows
        if self.range_ms is not None:
            retained |= rows.values > now_ms - self.range_ms
        return retained


class OverTimeOperator(KeyedOperator):
    """Emits every row once, with its results."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, output_type = self.node.operation, self.node.output_type
        assert isinstance(operation, OverTime) and output_type is not None
        self.operation, self._type = operation, output_type
        self._schema = typed_schema(output_type)
        self._kind = pa.struct(list(operation.row_type.schema))
        self._calls = over_calls(operation.columns)
        self._running = [call for call in self._calls if isinstance(call, FrameCall) and call.is_running]
        has_places = any(isinstance(call, PlaceCall) for call in self._calls)
        value = Types.ROW_NAMED(["time", "row"], [Types.LONG(), TableRowType(operation.row_type)])
        codec = task_codec(value, f"state '{OVER_ROWS}' of '{self.node.name}'")
        key_type, max_parallelism = self.node.inputs[0].key_type, setting.context.max_parallelism
        self._rows = StoredTimedRows(OVER_ROWS, key_type, max_parallelism, codec, self.backend.scope, operation.ttl_ms)
        self.backend.keep(OVER_ROWS, self._rows)
        self._totals: Totals | None = None
        if self._running or has_places:
            measures = [replace(call.measure, name=f"call{n}") for n, call in enumerate(self._running)]
            self._totals = Totals(OVER_TOTALS, setting, measures, self.backend.scope)
            self.backend.keep(OVER_TOTALS, self._totals)
        self._reach = Reach.of(operation.columns)
        self._late_records = setting.context.metrics.counter(_LATE_RECORDS)

    def user_functions(self) -> Iterable[Any]:
        return functions_of(self.operation.columns)

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        super().open_states(accounts)
        fired_ms = [account.fired_ms for account in accounts.values() if account.fired_ms is not None]
        # In processing time all stored rows are in the past, even if the clock was set back.
        self._before_ms = self.time.watermark if self.operation.is_event_time else max(fired_ms, default=0)
        self._now_ms = max(self._before_ms, self.time.now_ms)
        self._epoch_rows: list[TimedRows] = []
        self._stamps: list[Int64s | None] = []

    def take(self, batch: Batch) -> None:
        """Collect rows until the epoch's input is complete."""
        started = time.perf_counter_ns()
        self.records_in += len(batch)
        columns, signs = change_signs(batch.columns())
        reject_retractions(self.call, batch, signs, "over")
        contents = pa.StructArray.from_arrays(columns.columns[1 : 1 + self._kind.num_fields], fields=list(self._kind))
        keys, numbers = self.keying.column(batch), np.full(len(batch), -1, dtype=np.int64)
        if self.operation.is_event_time:
            rows = TimedRows(keys, contents, window_times(batch, self.call, "over"), numbers)
            is_late = rows.times <= self._before_ms
            if is_late.any():
                self._late_records.inc(int(is_late.sum()))
                rows = rows.take(np.flatnonzero(~is_late))
        else:
            rows = TimedRows(keys, contents, np.full(len(batch), self._now_ms, dtype=np.int64), numbers)
            self._stamps.append(batch.timestamps)
        self._epoch_rows.append(rows)
        self.busy_ns += time.perf_counter_ns() - started

    def advance(self, watermark: int) -> int:
        reached = super().advance(watermark)
        started = time.perf_counter_ns()
        now_ms = reached if self.operation.is_event_time else self._now_ms
        with self.call.running("over"):
            output = self._due_batches(now_ms)
        self.busy_ns += time.perf_counter_ns() - started
        for batch in output:
            self.emit(batch)
        return reached

    def _due_batches(self, now_ms: int) -> list[Batch]:
        """The rows to emit now; also updates the store."""
        gathered, self._epoch_rows = self._epoch_rows, []
        due = self._rows.due(now_ms if self.operation.is_event_time else now_ms - 1)
        has_waited = due.times > self._before_ms
        firing = due.take(np.flatnonzero(has_waited))
        waited, waiting = len(firing), None
        if gathered:
            fresh = self._rows.numbered(TimedRows.concat(gathered))
            is_over = fresh.times <= now_ms
            waiting = fresh.take(np.flatnonzero(~is_over))
            firing = TimedRows.concat([firing, fresh.take(np.flatnonzero(is_over))])
        earlier = self._lookback_rows(firing.keys)
        # All reads are done; the store changes from here on.
        self._rows.remove(due.take(np.flatnonzero(~has_waited)))  # out of reach
        if waiting is not None:
            self._rows.store(waiting, waiting.times)
        if not len(firing):
            return []
        was_stored = np.arange(len(firing)) < waited
        both = TimedRows.concat([earlier, firing])
        is_new = np.arange(len(both)) >= len(earlier)
        was_stored = np.concatenate([np.ones(len(earlier), dtype=np.bool_), was_stored])
        # Rows with equal times stay in arrival order.
        by_number = np.argsort(both.numbers, kind="stable")
        partitions = groups_of(both.keys.array).codes
        rows = ordered_by_time(
            partitions[by_number], both.times[by_number], has_peers=self.operation.is_event_time or self._has_ranges
        )
        order = by_number[rows.rows]
        both, is_new, was_stored = both.take(order), is_new[order], was_stored[order]
        columns = self._results(rows, both, is_new)
        self._store(rows, both, is_new, was_stored, now_ms)
        return self._batches(both, columns, np.flatnonzero(is_new))

    @property
    def _has_ranges(self) -> bool:
        """Whether rows with equal times share frames: in processing time, only for ranges with a start."""
        return self._reach.range_ms is not None

    def _lookback_rows(self, keys: KeyColumn) -> TimedRows:
        """The emitted rows within the lookback of calls."""
        stored = self._rows.of_keys(keys if self._reach else keys.take(np.empty(0, dtype=np.int64)))
        return stored.take(np.flatnonzero(stored.times <= self._before_ms))

    def _results(self, rows: OrderedRows, both: TimedRows, is_new: Bools) -> list[pa.Array]:
        """The columns of all calls, valid for new rows only."""
        contents = pa.RecordBatch.from_struct_array(both.contents)
        if self._totals is None:
            return [call.results(rows, contents) for call in self._calls]
        # Running calls read only new rows: the totals cover the others.
        new = np.flatnonzero(is_new)
        fresh = ordered_by_time(rows.partitions[new], both.times[new], has_peers=self.operation.is_event_time)
        first = fresh.begins == fresh.places
        keys = both.keys.take(new[first])
        total = self._totals.read(keys)
        new_contents = contents if len(new) == len(rows) else contents.take(pa.array(new))
        at = both.times[new] if self.operation.is_event_time else both.numbers[new]
        columns: list[pa.Array] = []
        parts: list[Parts] = []
        for call in self._calls:
            if isinstance(call, FrameCall) and call.is_running:
                earlier = Earlier(total.present, total.parts[len(parts)])
                column, now = call.running(fresh, new_contents, at, earlier)
                parts.append(now)
                columns.append(_spread(column, new, len(rows)))
            elif isinstance(call, PlaceCall):
                before = total.moments if call.column.function == "DENSE_RANK" else total.rows
                column = pc.add(call.results(fresh, new_contents), pa.array(before[fresh.partition_numbers]))
                columns.append(_spread(column, new, len(rows)))
            else:
                columns.append(call.results(rows, contents))
        last = fresh.ends - 1 == fresh.places
        counts = (fresh.ends - fresh.begins)[last]
        self._totals.write(
            keys, total.rows + counts, total.moments + PlaceCall.moments(fresh)[last], parts, self.time.now_ms
        )
        return columns

    def _store(self, rows: OrderedRows, both: TimedRows, is_new: Bools, was_stored: Bools, now_ms: int) -> None:
        """Store only the rows and totals that later rows can reach."""
        retained = self._reach.retained(rows, now_ms) if self._reach else np.zeros(len(rows), dtype=np.bool_)
        self._rows.remove(both.take(np.flatnonzero(~retained & was_stored)))
        ttl_ms = self.operation.ttl_ms
        # A change renews the time-to-live of its whole partition.
        stored = both.take(np.flatnonzero(retained & is_new if ttl_ms is None else retained))
        self._rows.store(
            stored, self._reach.due_ms(stored.times), None if ttl_ms is None else self.time.now_ms + ttl_ms
        )

    def _batches(self, both: TimedRows, columns: list[pa.Array], new: Int64s) -> list[Batch]:
        """The new rows with their results, in time order."""
        order = new[np.lexsort((both.numbers[new], both.times[new]))]
        stamps: Int64s | None = both.times[order]
        if not self.operation.is_event_time:
            known = [each for each in self._stamps if each is not None]
            stamps = np.concatenate(known) if known and len(known) == len(self._stamps) else None
        at = pa.array(order)
        output = [column.take(at) for column in (*both.contents.flatten(), *columns)]
        batch = pa.RecordBatch.from_arrays(output, schema=self._schema)
        return [
            Batch.of_columns(
                batch.slice(start, _BATCH_ROWS_MAX),
                self._type,
                None if stamps is None else stamps[start : start + _BATCH_ROWS_MAX],
            )
            for start in range(0, len(order), _BATCH_ROWS_MAX)
        ]

    def write_states(self) -> SubtaskAccount:
        account = super().write_states()
        return account if self.operation.is_event_time else replace(account, fired_ms=self._now_ms)


def _spread(column: pa.Array, rows: Int64s, count: int) -> pa.Array:
    """The column's values at these rows, NULL elsewhere."""
    if len(rows) == count:
        return column
    at = np.full(count, -1, dtype=np.int64)
    at[rows] = np.arange(len(rows))
    return column.take(pa.array(at, mask=at < 0))
