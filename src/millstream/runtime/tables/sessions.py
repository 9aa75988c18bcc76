"""SQL session windows, vectorised: rows of a key no further apart than a gap.

Each upstream task merges its rows into partial sessions. After the exchange an epoch's partial sessions are merged with
the stored ones of their keys. Sessions whose gap has passed are emitted; the others are stored by key and start, and
are due when their gap has passed. A session that ended before the epoch began and does not merge with an open one is
late: it is dropped and its records are counted. In processing time nothing is late. In BATCH all sessions are emitted
when the input has ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.aggregation.kernels import column_of
from millstream.aggregation.pane_rows import Accumulators, accumulator_type
from millstream.common.typeinfo import Types
from millstream.errors import ProgramError
from millstream.plan.operations import FinalSessions, PartialSessions
from millstream.records.batch import Batch
from millstream.records.columns import typed_schema
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.keyed.states import StateHandle
from millstream.runtime.operators.event_times import window_times
from millstream.runtime.operators.keyed_operator import KeyedOperator
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.tables.changes import change_signs
from millstream.runtime.tables.group_keys import GroupKeys
from millstream.runtime.tables.session_rows import SessionRows, merged_sessions
from millstream.runtime.tables.user_aggregates import user_functions_of
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import KeyColumn
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import TABLE_SESSIONS
from millstream.state.tables.layout import NEVER_MS
from millstream.state.tables.state_table import StateTable
from millstream.state.windows.local_time import local_ms

__all__ = ["PartialSessionsOperator", "SessionsOperator"]

_LATE_RECORDS = "numLateRecordsDropped"
_GATHERED_ROWS_MAX = 1 << 18
_BATCH_ROWS_MAX = 65_536


class PartialSessionsOperator(Operator):
    """Merges a task's input into sessions."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, output_type, key_type = self.node.operation, self.node.output_type, self.node.inputs[0].key_type
        assert isinstance(operation, PartialSessions) and output_type is not None and key_type is not None
        self._operation, self._type = operation, output_type
        self._schema = typed_schema(output_type)
        self._keys = GroupKeys(operation.keys, key_type)
        self._accumulators = Accumulators(operation.measures)
        self._gathered: list[SessionRows] = []

    def apply(self, batch: Batch) -> Batch | None:
        columns, signs = change_signs(batch.columns())
        if signs is not None:
            error = ProgramError("the row is a delete, and windows need an append-only table")
            raise self.call.failed(error, "window", tuple(batch.slice(int(np.flatnonzero(signs < 0)[0]), 1).values()))
        times = self._times(batch)
        with self.call.running("aggregate"):
            columns_of_measures = [
                [column_of(argument, columns) for argument in measure.arguments] for measure in self._operation.measures
            ]
            parts = self._accumulators.lift(columns_of_measures, times)
        keys = KeyColumn(np.zeros(len(batch), dtype=np.int64), self._keys.of(columns))
        rows = SessionRows(keys, times, times, np.ones(len(batch), dtype=np.int64), parts)
        self._gathered.append(self._merged(rows))
        if sum(map(len, self._gathered)) > _GATHERED_ROWS_MAX:
            self._send()
        return None

    def _times(self, batch: Batch) -> Int64s:
        if self._operation.is_event_time:
            return window_times(batch, self.call, "window")
        return np.full(len(batch), self.time.now_ms, dtype=np.int64)

    def _merged(self, rows: SessionRows) -> SessionRows:
        with self.call.running("aggregate"):
            return merged_sessions(rows, self._accumulators, self._operation.gap_ms)[0]

    def _send(self) -> None:
        rows, self._gathered = self._merged(SessionRows.concat(self._gathered)), []
        columns = [rows.keys.array, *map(pa.array, (rows.starts, rows.lasts, rows.records)), *rows.parts]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        for start in range(0, len(rows), _BATCH_ROWS_MAX):
            self.emit(Batch.of_columns(batch.slice(start, _BATCH_ROWS_MAX), self._type))

    def advance(self, watermark: int) -> int:
        if self._gathered:
            self._send()
        return super().advance(watermark)


class SessionsOperator(KeyedOperator):
    """Merges the sessions of each key across epochs."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, key_type, output_type = self.node.operation, self.node.inputs[0].key_type, self.node.output_type
        assert isinstance(operation, FinalSessions) and key_type is not None and output_type is not None
        self._operation, self._type, self._gap_ms = operation, output_type, operation.gap_ms
        self._schema = typed_schema(output_type)
        self._accumulators = Accumulators(operation.measures)
        held = accumulator_type(operation.measures)
        value = Types.ROW_NAMED(["last", "records", "parts"], [Types.LONG(), Types.LONG(), held])
        codec = task_codec(value, f"state '{TABLE_SESSIONS}' of '{self.node.name}'")
        self._table = StateTable(
            TABLE_SESSIONS,
            key_type,
            setting.context.max_parallelism,
            codec,
            sub_type=pa.int64(),
            has_due=True,
            evolves=False,
        )
        self.backend.keep(TABLE_SESSIONS, StateHandle(self._table, self.backend.scope))
        self._late_records = setting.context.metrics.counter(_LATE_RECORDS)
        self._is_batch = setting.facts.batch

    def user_functions(self) -> Iterable[Any]:
        return user_functions_of(self._operation.measures)

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        super().open_states(accounts)
        fired_ms = [account.fired_ms for account in accounts.values() if account.fired_ms is not None]
        self._before_ms = self._reached if self._operation.is_event_time else max(fired_ms, default=MIN_WATERMARK)
        self._received: list[SessionRows] = []

    @property
    def _reached(self) -> int:
        """The last time that has passed."""
        if self._operation.is_event_time or self._is_batch or self.time.watermark == MAX_WATERMARK:
            if self._is_batch and self.time.watermark != MAX_WATERMARK:
                return MIN_WATERMARK
            return self.time.watermark
        return self.time.now_ms - 1

    def take(self, batch: Batch) -> None:
        """Collect partial sessions until the epoch's input is complete."""
        started = time.perf_counter_ns()
        self.records_in += len(batch)
        columns = batch.columns()
        starts, lasts, records = (columns.column(at).to_numpy() for at in (1, 2, 3))
        self._received.append(SessionRows(self.keying.column(batch), starts, lasts, records, columns.columns[4:]))
        self.busy_ns += time.perf_counter_ns() - started

    def advance(self, watermark: int) -> int:
        reached = super().advance(watermark)
        started = time.perf_counter_ns()
        now_ms = max(self._before_ms, self._reached)
        with self.call.running("state"):
            over = list(self._sessions_over(now_ms))
        for rows in over:
            if len(rows):
                self.emit(self._results(rows))
        self._now_ms = now_ms
        self.busy_ns += time.perf_counter_ns() - started
        return reached

    def _sessions_over(self, now_ms: int) -> Iterator[SessionRows]:
        """The sessions that have ended; also updates the store."""
        fresh = SessionRows.concat(self._received) if self._received else None
        due = self._due(now_ms)
        if fresh is None:
            if due is not None:
                self._remove(due)
                yield due
            return
        stored = self._of_keys(fresh.keys)
        if due is not None:  # due sessions of keys with new rows are among the stored ones
            codes = key_numbers([due.keys.array, fresh.keys.array])
            others = due.take(np.flatnonzero(~np.isin(codes[0], codes[1])))
            self._remove(others)
            yield others
        both = fresh if stored is None else SessionRows.concat([stored, fresh])
        known = 0 if stored is None else len(stored)
        merged, groups = merged_sessions(both, self._accumulators, self._gap_ms)
        was_open = np.zeros(groups.count, dtype=np.bool_)
        was_open[groups.codes[:known]] = True
        ends = merged.lasts + self._gap_ms - 1
        is_late = ~was_open & (ends <= self._before_ms) & (self._operation.is_event_time and not self._is_batch)
        if is_late.any():
            self._late_records.inc(int(merged.records[is_late].sum()))
        is_over = (ends <= now_ms) & ~is_late
        if stored is not None:
            self._remove(stored)
        self._store(merged.take(np.flatnonzero(~is_over & ~is_late)))
        yield merged.take(np.flatnonzero(is_over))

    # --- the store ------------------------------------------------------------------------------------------------

    def _due(self, now_ms: int) -> SessionRows | None:
        """Stored sessions whose gap has passed."""
        if self._table.view.is_empty:
            return None
        rows = self._table.view.scan_due(max(-NEVER_MS, min(NEVER_MS - 1, now_ms)))
        return self._rows(rows) if rows.num_rows else None

    def _of_keys(self, keys: KeyColumn) -> SessionRows | None:
        if self._table.view.is_empty:
            return None
        distinct = np.sort(np.unique(key_numbers([keys.array])[0], return_index=True)[1])
        rows = self._table.view.scan_keys(keys.take(distinct))
        return self._rows(rows) if rows.num_rows else None

    def _rows(self, rows: pa.RecordBatch) -> SessionRows:
        keys = KeyColumn(rows.column("hash").to_numpy(), rows.column("key"))
        last, records, parts = rows.column("value").flatten()
        starts = rows.column("sub").to_numpy()
        return SessionRows(keys, starts, last.to_numpy(), records.to_numpy(), self._accumulators.read(parts))

    def _remove(self, rows: SessionRows) -> None:
        if len(rows):
            self._table.changes.delete(rows.keys, subs=pa.array(rows.starts))

    def _store(self, rows: SessionRows) -> None:
        if not len(rows):
            return
        kind = self._table.layout.value_type
        assert kind is not None
        columns = [pa.array(rows.lasts), pa.array(rows.records), self._accumulators.stored(rows.parts)]
        values = pa.StructArray.from_arrays(columns, fields=list(kind))
        due_ms = rows.lasts + self._gap_ms - 1
        self._table.changes.put(rows.keys, values, subs=pa.array(rows.starts), due_ms=due_ms)

    # --- results --------------------------------------------------------------------------------------------------

    def _results(self, rows: SessionRows) -> Batch:
        zone, ends = self._operation.zone, rows.lasts + self._gap_ms
        times = {"start": local_ms(rows.starts, zone), "end": local_ms(ends, zone), "time": ends - 1}
        with self.call.running("aggregate"):
            measures = self._accumulators.results(rows.parts)
        columns = []
        for column, field in zip(self._operation.columns, self._schema, strict=True):
            if column.kind == "key":
                keys = rows.keys.array
                columns.append(keys if self._operation.keys == 1 else keys.field(column.number))
            elif column.kind == "measure":
                columns.append(measures[column.number])
            elif column.kind == "proctime":
                columns.append(pa.array(np.full(len(rows), self.time.now_ms, dtype=np.int64)).view(field.type))
            else:
                columns.append(pa.array(times[column.kind]).view(field.type))
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return Batch.of_columns(batch, self._type, ends - 1)

    def write_states(self) -> SubtaskAccount:
        self._table.settle()
        account = super().write_states()
        if self._operation.is_event_time or self._is_batch:
            return account
        account = replace(account, fired_ms=self._now_ms)
        due_ms = None if self._table.view.is_empty else self._table.view.min_due()
        return account if due_ms is None else account.waking_at(due_ms + 1)
