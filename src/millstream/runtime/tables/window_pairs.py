"""Window joins of append-only tables: rows with equal keys and windows are joined when the window ends. Nothing is
retracted.

The window's bounds are part of the key, and the time of a row is the last time of its window: a row is due when the
watermark reaches it. Rows whose window has ended are late: they are dropped and counted. Rows that arrive and are due
in one epoch are never written; emitted rows expire without being deleted.

`references.time_joins` is the slow reference implementation.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.joins.buffer import RowTable
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.joined_rows import JoinedRows, SignedRows
from millstream.runtime.tables.pairs import Pairs, columns_of_pairs
from millstream.runtime.tables.two_tables import TwoTablesOperator
from millstream.state.keys.hashing import Int64s
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import LEFT_TABLE, RIGHT_TABLE

__all__ = ["WindowPairsOperator"]

_LATE_RECORDS = "numLateRecordsDropped"
_TimedRows = tuple[SignedRows, Int64s]
"""Rows, and the last times of their windows."""


class WindowPairsOperator(TwoTablesOperator):
    """Joins two tables of rows in windows."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        self._late_records = setting.context.metrics.counter(_LATE_RECORDS)
        sides = []
        for number, name in enumerate((LEFT_TABLE, RIGHT_TABLE)):
            rows = JoinedRows(
                name,
                self.edges[number].key_type,
                setting.context.max_parallelism,
                self.codec(number, name),
                self.backend.scope,
                None,
                timed=RowTable,
            )
            self.backend.keep(name, rows)
            sides.append(rows)
        self._sides = tuple(sides)
        self._before_ms = MIN_WATERMARK

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        self._before_ms = self.event_ms
        self._move_time()
        super().open_states(accounts)

    def write_states(self) -> SubtaskAccount:
        self._move_time()
        return super().write_states()

    def _move_time(self) -> None:
        for side in self._sides:
            side.move_time(self.event_ms)

    def advance(self, watermark: int) -> int:
        reached = super().advance(watermark)
        self.started_ns = time.perf_counter_ns()
        (left, left_ms), (right, right_ms) = self._ended(0), self._ended(1)
        empty = self._sides[0].no_rows(), self._sides[1].no_rows()
        for pairs in self.matcher.joined(self.join.kind, left, right, empty):
            self._emit_pairs(pairs, left_ms, right_ms)
        self.busy_ns += time.perf_counter_ns() - self.started_ns
        return reached

    def _ended(self, number: int) -> _TimedRows:
        """The rows of a side whose windows have ended; stores the other new rows."""
        rows, due = self._new_rows(number)
        side, now_ms = self._sides[number], self.event_ms
        later = np.flatnonzero(due > now_ms)
        with self.call.running("state"):
            stored = side.due_through(now_ms) if now_ms > self._before_ms else (side.no_rows(), due[:0])
            side.add(rows.take(later), self.time.now_ms, due[later])
        ended = np.flatnonzero(due <= now_ms)
        return SignedRows.concat([stored[0], rows.take(ended)]), np.concatenate([stored[1], due[ended]])

    def _new_rows(self, number: int) -> _TimedRows:
        """The timely input of a side."""
        pieces, stamps = self.take_rows(number)
        if not pieces:
            return self._sides[number].no_rows(), np.empty(0, dtype=np.int64)
        rows, due = SignedRows.concat(pieces), np.concatenate([each for each in stamps if each is not None])
        timely = np.flatnonzero(due > self._before_ms)
        if len(timely) == len(rows):
            return rows, due
        self._late_records.inc(len(rows) - len(timely))
        return rows.take(timely), due[timely]

    def _emit_pairs(self, pairs: Pairs, left_ms: Int64s, right_ms: Int64s) -> None:
        if len(pairs.signs):
            is_right = pairs.left_rows < 0
            times = right_ms[pairs.right_rows] if is_right.all() else left_ms[pairs.left_rows]
            self.emit_rows(columns_of_pairs(pairs, self.schema, self.output_sides), stamps=times)
