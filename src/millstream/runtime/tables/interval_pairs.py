"""Interval joins of tables: pairs of rows of one key whose times lie close to each other. Nothing is taken back.

In an epoch the new rows of either side meet the other side's, stored ones and new ones: every pair is met once, in the
epoch in which the later of the two came. A left row is kept while the watermark is at most its time plus the upper
bound, a right one while it is at most its time minus the lower: as long as a row that is not late can meet it. A row
that comes late meets what is still kept, as in Flink.

With outer joins a row that has met nothing is given with NULLs when it goes. So results come up to the larger bound
behind the watermark, and event time behind the join is held back by as much: both times stay time attributes.

`references.time_joins` is the slow and obvious form of the same.
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


class _Lot:
    """Rows of one side with their times, and which of them have met a partner in this epoch."""

    def __init__(self, rows: SignedRows, times: Int64s) -> None:
        self.rows, self.times = rows, times
        self.has_met: Bools = np.zeros(len(rows), dtype=np.bool_)


class IntervalPairsOperator(TwoTablesOperator):
    """Joins two tables that only grow, by key and time."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = self.node.operation
        assert isinstance(operation, IntervalPairs)
        self._interval = operation
        # How long after its time a row of each side can be met.
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
                timed=WaitingTable if self.is_whole[number] else RowTable,
            )
            self.backend.keep(name, rows)
            sides.append(rows)
        self._sides = tuple(sides)

    # --- time -----------------------------------------------------------------------------------------------------

    @property
    def _now_ms(self) -> int:
        """The time that rows expire by."""
        if self._interval.times is not None or self.is_batch or self.time.watermark == MAX_WATERMARK:
            return self.event_ms  # when the input has ended, nothing can come, whatever the clock says
        return self.time.now_ms

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        # What is known of the last epoch is the time behind this operator.
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
        self.time.watermark = self._behind(self.time.watermark)

    def _behind(self, watermark: int) -> int:
        """Where event time stands behind this operator."""
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
            kept = [side.partners(new[1 - number].rows.keys) for number, side in enumerate(self._sides)]
        stored = [
            _Lot(rows, moved_times(until, -reach))
            for (rows, until, _), reach in zip(kept, self._reaches_ms, strict=True)
        ]
        for left, right in ((stored[0], new[1]), (new[0], stored[1]), (new[0], new[1])):
            self._meet(left, right)
        for number, (rows, until, waits) in enumerate(kept):
            met = np.flatnonzero(waits & stored[number].has_met)
            with self.call.running("state"):
                self._sides[number].end_waiting(rows.take(met), until[met])
            self._keep(number, new[number])
            if self.is_whole[number]:
                with self.call.running("state"):
                    alone, until = self._sides[number].take_due(self._now_ms)
                self._give_alone(number, _Lot(alone, moved_times(until, -self._reaches_ms[number])))
        self.busy_ns += time.perf_counter_ns() - self.started_ns
        return self._behind(reached)

    def _new_rows(self, number: int) -> _Lot:
        lots, _ = self.take_rows(number)
        rows = SignedRows.concat(lots) if lots else self._sides[number].no_rows()
        columns = self._interval.times
        if columns is None:
            return _Lot(rows, np.full(len(rows), 0 if self.is_batch else self.time.now_ms, dtype=np.int64))
        return _Lot(rows, milliseconds_of(rows.contents.field(columns[number]), MIN_WATERMARK))

    def _meet(self, left: _Lot, right: _Lot) -> None:
        """Give out the pairs of two lots."""
        first, last = moved_times(left.times, self._interval.lower_ms), moved_times(left.times, self._interval.upper_ms)
        for left_rows, right_rows in self.matcher.matches(left.rows, right.rows, (first, last, right.times)):
            left.has_met[left_rows], right.has_met[right_rows] = True, True
            pairs = Pairs(left.rows, left_rows, right.rows, right_rows, np.ones(len(left_rows), dtype=np.int64))
            times = right.times[right_rows] if self.join.kind == "RIGHT" else left.times[left_rows]
            self._give(pairs, times)

    def _keep(self, number: int, new: _Lot) -> None:
        """Store new rows that may be met later; those that will not, and have not been, are given alone."""
        until = moved_times(new.times, self._reaches_ms[number])
        is_needed = until > self._now_ms
        waits = ~new.has_met if self.is_whole[number] else np.zeros(len(new.rows), dtype=np.bool_)
        at = np.flatnonzero(is_needed)
        with self.call.running("state"):
            self._sides[number].keep(new.rows.take(at), until[at], waits[at])
        gone = np.flatnonzero(~is_needed & waits)
        self._give_alone(number, _Lot(new.rows.take(gone), new.times[gone]))

    def _give_alone(self, number: int, lot: _Lot) -> None:
        if len(lot.rows):
            nothing = self._sides[1 - number].no_rows()
            self._give(Pairs.alone(number, lot.rows, np.arange(len(lot.rows)), nothing), lot.times)

    def _give(self, pairs: Pairs, times: Int64s) -> None:
        if len(pairs.signs):
            stamps = None if self._interval.times is None else times
            self.give(columns_of_pairs(pairs, self.schema, self.given_sides), stamps=stamps)
