"""Interval joins of append-only tables: pairs of rows with equal keys and close times. Nothing is retracted.

In an epoch the new rows of each side are matched with the other side's stored and new rows, so every pair is formed
once, in the epoch in which its later row arrives. A left row is stored while the watermark is at most its time plus the
upper bound, a right one while it is at most its time minus the lower: as long as a timely row can match it. A late row
is matched with the rows still stored, as in Flink.

Outer joins emit an unmatched row with NULLs when it expires. So results lag the watermark by up to the larger bound,
and the operator delays its output watermark by the same amount: both times stay time attributes.

`references.time_joins` is the slow reference implementation.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from millstream.graph.join_nodes import IntervalPairs
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.exchange.messages import Acknowledgement
from millstream.runtime.joins.buffer import RowTable, moved_times
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.joined_rows import SignedRows
from millstream.runtime.tables.pairs import Pairs, columns_of_pairs
from millstream.runtime.tables.row_expiry import milliseconds_of
from millstream.runtime.tables.two_tables import TwoTablesOperator
from millstream.runtime.tables.waiting_rows import WaitingRows, WaitingTable
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import LEFT_TABLE, RIGHT_TABLE

__all__ = ["IntervalPairsOperator"]


class _TimedSide:
    """Rows of one side with their times, and a mask of those that were matched in this epoch."""

    def __init__(self, rows: SignedRows, times: Int64s) -> None:
        self.rows, self.times = rows, times
        self.is_matched: Bools = np.zeros(len(rows), dtype=np.bool_)


class IntervalPairsOperator(TwoTablesOperator):
    """Joins two append-only tables by key and time."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = self.node.operation
        assert isinstance(operation, IntervalPairs)
        self._interval = operation
        # How long after its timestamp a row of each side can be matched.
        self._reaches_ms = operation.upper_ms + 1, 1 - operation.lower_ms
        self._delay_ms = max(operation.upper_ms, -operation.lower_ms, 0) + 1 if operation.times is not None else 0
        sides = []
        for number, name in enumerate((LEFT_TABLE, RIGHT_TABLE)):
            rows = WaitingRows(
                name,
                self.edges[number].key_type,
                setting.context.max_parallelism,
                self.codec(number, name),
                self.backend.scope,
                None,
                timed=WaitingTable if self.preserves_rows[number] else RowTable,
            )
            self.backend.keep(name, rows)
            sides.append(rows)
        self._sides = tuple(sides)

    # --- time -----------------------------------------------------------------------------------------------------

    @property
    def _now_ms(self) -> int:
        """The current time, which determines which rows expire."""
        if self._interval.times is not None or self.is_batch or self.time.watermark == MAX_WATERMARK:
            return self.event_ms  # the input has ended: no row can arrive
        return self.time.now_ms

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        # The stored watermark is the output watermark.
        if MIN_WATERMARK < self.time.watermark < MAX_WATERMARK:
            self.time.watermark += self._delay_ms
        self._move_time()
        super().open_states(accounts)

    def write_states(self) -> SubtaskAccount:
        wakes = [side.earliest_due() for side in self._sides] if self._interval.times is None else []
        self._move_time()
        account = super().write_states()
        if not self.is_batch:
            for wake_ms in wakes:
                account = account if wake_ms is None else account.waking_at(wake_ms)
        return account

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        super().acknowledge(acknowledgement)
        self.time.watermark = self._output_watermark(self.time.watermark)

    def _output_watermark(self, watermark: int) -> int:
        """The output watermark."""
        return watermark if watermark in (MIN_WATERMARK, MAX_WATERMARK) else watermark - self._delay_ms

    def _move_time(self) -> None:
        for side in self._sides:
            side.move_time(self._now_ms)

    # --- an epoch -------------------------------------------------------------------------------------------------

    def advance(self, watermark: int) -> int:
        reached = super().advance(watermark)
        self.started_ns = time.perf_counter_ns()
        new = self._new_rows(0), self._new_rows(1)
        with self.call.running("state"):
            stored_sides = [side.waiting_matches(new[1 - number].rows.keys) for number, side in enumerate(self._sides)]
        stored = [
            _TimedSide(rows, moved_times(until, -reach))
            for (rows, until, _), reach in zip(stored_sides, self._reaches_ms, strict=True)
        ]
        for left, right in ((stored[0], new[1]), (new[0], stored[1]), (new[0], new[1])):
            self._match(left, right)
        for number, (rows, until, is_waiting) in enumerate(stored_sides):
            matched = np.flatnonzero(is_waiting & stored[number].is_matched)
            with self.call.running("state"):
                self._sides[number].end_waiting(rows.take(matched), until[matched])
            self._store(number, new[number])
            if self.preserves_rows[number]:
                with self.call.running("state"):
                    unmatched, until = self._sides[number].take_due(self._now_ms)
                self._emit_unmatched(number, _TimedSide(unmatched, moved_times(until, -self._reaches_ms[number])))
        self.busy_ns += time.perf_counter_ns() - self.started_ns
        return self._output_watermark(reached)

    def _new_rows(self, number: int) -> _TimedSide:
        pieces, _ = self.take_rows(number)
        rows = SignedRows.concat(pieces) if pieces else self._sides[number].no_rows()
        columns = self._interval.times
        if columns is None:
            return _TimedSide(rows, np.full(len(rows), 0 if self.is_batch else self.time.now_ms, dtype=np.int64))
        return _TimedSide(rows, milliseconds_of(rows.contents.field(columns[number]), MIN_WATERMARK))

    def _match(self, left: _TimedSide, right: _TimedSide) -> None:
        """Emit the matching pairs of two sides."""
        first, last = moved_times(left.times, self._interval.lower_ms), moved_times(left.times, self._interval.upper_ms)
        for left_rows, right_rows in self.matcher.matches(left.rows, right.rows, (first, last, right.times)):
            left.is_matched[left_rows], right.is_matched[right_rows] = True, True
            pairs = Pairs(left.rows, left_rows, right.rows, right_rows, np.ones(len(left_rows), dtype=np.int64))
            times = right.times[right_rows] if self.join.kind == "RIGHT" else left.times[left_rows]
            self._emit_pairs(pairs, times)

    def _store(self, number: int, new: _TimedSide) -> None:
        """Store new rows that may be matched later; emit unmatched ones that cannot."""
        until = moved_times(new.times, self._reaches_ms[number])
        is_needed = until > self._now_ms
        is_waiting = ~new.is_matched if self.preserves_rows[number] else np.zeros(len(new.rows), dtype=np.bool_)
        at = np.flatnonzero(is_needed)
        with self.call.running("state"):
            self._sides[number].add_waiting(new.rows.take(at), until[at], is_waiting[at])
        unmatched = np.flatnonzero(~is_needed & is_waiting)
        self._emit_unmatched(number, _TimedSide(new.rows.take(unmatched), new.times[unmatched]))

    def _emit_unmatched(self, number: int, side: _TimedSide) -> None:
        if len(side.rows):
            empty = self._sides[1 - number].no_rows()
            self._emit_pairs(Pairs.unmatched(number, side.rows, np.arange(len(side.rows)), empty), side.times)

    def _emit_pairs(self, pairs: Pairs, times: Int64s) -> None:
        if len(pairs.signs):
            stamps = None if self._interval.times is None else times
            self.emit_rows(columns_of_pairs(pairs, self.schema, self.output_sides), stamps=stamps)
