"""Window Top-N and window deduplication: the first rows of every partition, emitted when their window ends.

A partition's key holds the bounds of its window, so that all its rows are due at the last time of the window. Until
then only rows that may be among the first are stored; emitted rows expire without being deleted. In event time a row
whose window has ended is late: it is dropped and counted. In processing time nothing is late, and windows end with the
input.

`references.ranks` is the slow reference implementation.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from millstream.aggregation.groups import groups_of
from millstream.common.types import RowKind
from millstream.graph.table_nodes import RankWindows
from millstream.records.batch import Batch
from millstream.records.columns import typed_schema
from millstream.records.table_type import TableRowType
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.joins.buffer import RowTable
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.operators.event_times import window_times
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.gathering import GatheringOperator
from millstream.runtime.tables.joined_rows import SignedRows
from millstream.runtime.tables.ranked_rows import CandidateRows, RankedRows, emitted_rows
from millstream.runtime.tables.ranking import ranks_of
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import plain_view
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import RANKED_ROWS
from millstream.state.windows.local_time import moments_ms

__all__ = ["WindowRankOperator"]

_LATE_RECORDS = "numLateRecordsDropped"


class WindowRankOperator(GatheringOperator):
    """Emits the first rows of every partition when its window ends."""

    def __init__(self, setting: OperatorSetting) -> None:
        operation, edge, output_type = setting.node.operation, setting.node.inputs[0], setting.node.output_type
        assert isinstance(operation, RankWindows) and output_type is not None
        super().__init__(setting, operation.row_type, "rank")
        self._operation, self._type, self._schema = operation, output_type, typed_schema(output_type)
        codec = task_codec(TableRowType(operation.row_type), f"state '{RANKED_ROWS}' of '{self.node.name}'")
        max_parallelism = setting.context.max_parallelism
        self._rows = RankedRows(
            RANKED_ROWS, edge.key_type, max_parallelism, codec, self.backend.scope, None, timed=RowTable
        )
        self.backend.keep(RANKED_ROWS, self._rows)
        self._late_records = setting.context.metrics.counter(_LATE_RECORDS)
        self._is_batch = setting.facts.batch
        self._epoch_due: list[Int64s] = []

    @property
    def _is_event_time(self) -> bool:
        return self._operation.end is None

    @property
    def _reached(self) -> int:
        """The last time that has passed."""
        if self.time.watermark == MAX_WATERMARK:
            return MAX_WATERMARK
        if self._is_batch:
            return MIN_WATERMARK
        return self.time.watermark if self._is_event_time else self.time.now_ms - 1

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        fired_ms = [account.fired_ms for account in accounts.values() if account.fired_ms is not None]
        self._before_ms = self._reached if self._is_event_time else max(fired_ms, default=MIN_WATERMARK)
        self._now_ms = self._before_ms
        self._rows.move_time(self._before_ms)
        super().open_states(accounts)
        self._epoch_due = []
        self._ended = self._rows.no_rows(), np.empty(0, dtype=np.int64)

    def take(self, batch: Batch) -> None:
        """Collect rows, and their due times, until the epoch's input is complete."""
        self._epoch_due.append(self._due(batch))
        super().take(batch)

    def _due(self, batch: Batch) -> Int64s:
        """The last times of the windows of rows."""
        if self._operation.end is None:
            return window_times(batch, self.call, "rank")
        ends = batch.columns().column(1 + self._operation.end).cast(pa.timestamp("ms"))
        return moments_ms(plain_view(ends.view(pa.int64())) - 1, self._operation.zone)

    def advance(self, watermark: int) -> int:
        reached = super().advance(watermark)
        started = time.perf_counter_ns()
        self._now_ms = max(self._before_ms, self._reached)
        ended, ended_due = self._ended
        if self._now_ms > self._before_ms:
            with self.call.running("state"):
                stored, due = self._rows.due_through(self._now_ms)
            ended, ended_due = SignedRows.concat([stored, ended]), np.concatenate([due, ended_due])
        self._emit_first(ended, ended_due)
        self.busy_ns += time.perf_counter_ns() - started
        return reached

    def apply_changes(self, rows: SignedRows) -> None:
        due, self._epoch_due = np.concatenate(self._epoch_due), []
        now_ms = max(self._before_ms, self._reached)
        if self._is_event_time:
            timely = np.flatnonzero(due > self._before_ms)
            self._late_records.inc(len(rows) - len(timely))
            rows, due = rows.take(timely), due[timely]
        ended, later = np.flatnonzero(due <= now_ms), np.flatnonzero(due > now_ms)
        self._ended = rows.take(ended), due[ended]
        if len(later):
            with self.call.running("rank"):
                self._store(rows.take(later), due[later])

    def _store(self, added: SignedRows, due: Int64s) -> None:
        """Store the rows of these partitions that may be among the first when their window ends."""
        groups = groups_of(added.keys.array)
        before, partitions = self._rows.of_partitions(added.keys.take(groups.firsts()))
        candidates = CandidateRows(before, added, np.concatenate([partitions, groups.codes]))
        ordered = np.arange(len(candidates))
        columns = {key.column: candidates.column(key.column, ordered) for key in self._operation.order}
        is_retained = self._ranked(candidates.partitions, columns)[0] <= self._operation.last
        self._rows.delete(before, np.flatnonzero(~is_retained[: len(before)]))
        retained = np.flatnonzero(is_retained[len(before) :])
        self._rows.add(added.take(retained), self.time.now_ms, due[retained])

    def _emit_first(self, rows: SignedRows, due: Int64s) -> None:
        """Emit the first rows of ended windows: window by window, partition by partition, in order."""
        if not len(rows):
            return
        with self.call.running("rank"):
            ranks, order = self._ranked(key_numbers([rows.keys.array])[0], rows.contents.flatten())
        operation = self._operation
        chosen = order[(ranks[order] >= operation.first) & (ranks[order] <= operation.last)]
        chosen = chosen[np.argsort(due[chosen], kind="stable")]
        if len(chosen):
            first = emitted_rows(self._schema, rows, ranks[chosen], chosen)
            self.emit_changes(first, np.full(len(chosen), RowKind.INSERT.value), self._type, due[chosen])

    def _ranked(self, partitions: Int64s, columns: Mapping[int, pa.Array] | list[pa.Array]) -> tuple[Int64s, Int64s]:
        operation = self._operation
        return ranks_of(operation.kind, partitions, columns, operation.order, latest_first=operation.latest_first)

    def write_states(self) -> SubtaskAccount:
        self._rows.move_time(self._now_ms)
        if self._is_event_time or self._is_batch:
            return super().write_states()
        self._rows.table.settle()
        account = replace(super().write_states(), fired_ms=self._now_ms)
        view = self._rows.table.view
        due_ms = None if view.is_empty else view.min_due(after_ms=self._now_ms)
        return account if due_ms is None else account.waking_at(due_ms + 1)
