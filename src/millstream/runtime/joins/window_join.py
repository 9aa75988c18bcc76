"""Window joins, vectorised: emits chosen fields of every pair of records with equal keys in one window.

For event-time windows with fixed bounds (tumbling, sliding, cumulative) that fire once, when the watermark passes their
end. In an epoch (`sides`):

1. records of both inputs are gathered as rows; those whose windows have all ended are late;
2. when the watermark has passed the ends of some windows, the stored rows of these windows are read, by time, and
   joined with the new ones: each left row, once for each of those windows it is in, with the right rows of the window;
3. new rows that a later window needs are stored until their last window ends. Rows that arrive and expire within an
   epoch are never written, and expiry costs nothing.

Memory is bounded: overlapping windows are processed in blocks, and pairs in pieces.

Order: windows by end; within a window, pairs by arrival of their left records, then by the time of the right records.
`co_group_reference` is the slow reference implementation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from millstream.aggregation.pane_firing import WindowRange
from millstream.errors import ProgramError
from millstream.plan.operations import WindowJoin
from millstream.runtime.joins.buffer import SideRows
from millstream.runtime.joins.matching import key_numbers, pairs
from millstream.runtime.joins.projected_rows import ProjectedRows
from millstream.runtime.joins.sides import Side, TwoSidedOperator
from millstream.runtime.operators.operator import OperatorSetting
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools
from millstream.state.segments.lookup import expanded
from millstream.state.stored.accounts import SubtaskAccount, WindowLengths
from millstream.state.windows.pane_windows import PaneWindows

__all__ = ["WindowJoinOperator", "rows_by_window"]

_EARLIEST_MS, _LATEST_MS = -(2**63), 2**63 - 1
# The number of left rows, counted once per window, that are joined at a time.
_BLOCK_ROWS = 1 << 20


class WindowJoinOperator(TwoSidedOperator):
    """A window join with chosen fields as results, in one subtask."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = setting.node.operation
        assert isinstance(operation, WindowJoin)
        self._windows = operation.windows
        self._results = ProjectedRows(operation.fields, operation.types, setting.node.output_type)
        self.late_tags = operation.late_tags
        self.sides = (
            self.make_side(1, "left", *self._results.stored_fields(1)),
            self.make_side(2, "right", *self._results.stored_fields(2)),
        )

    # --- an epoch -------------------------------------------------------------------------------------------------

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        for account in accounts.values():
            self._check_windows(account.windows)
        super().open_states(accounts)

    def _check_windows(self, stored: WindowLengths | None) -> None:
        """Reject rows that were stored for other windows."""
        if stored is not None and stored != self._windows.lengths_ms:
            error = ProgramError(
                f"the rows of '{self.node.name}' were stored for other windows than the program now has "
                f"({self._windows.describe()}). Use the previous windows, or give the join another uid to start afresh"
            )
            raise self.call.failed(error, "state")

    def write_states(self) -> SubtaskAccount:
        by_clock = not self._windows.is_event_time
        return replace(super().write_states(), windows=self._windows.lengths_ms, by_clock=by_clock)

    def are_late(self, times: Int64s) -> Bools:
        late: Bools = self._windows.last_window(self._windows.pane_of(times)) <= self._ended_through(self.before_ms)
        return late

    def _ended_through(self, time_ms: int) -> int:
        """The last window that has ended at this time."""
        return self._windows.fired_through(time_ms)

    def join(self, left: SideRows, right: SideRows) -> None:
        closing = WindowRange(self._ended_through(self.before_ms), self._ended_through(self.now_ms))
        if closing:
            with self.call.running("state"):
                rows = [self._due(side, new, closing) for side, new in zip(self.sides, (left, right), strict=True)]
            self._join_windows(rows[0], rows[1], closing)
        with self.call.running("state"):
            for side, new in zip(self.sides, (left, right), strict=True):
                if len(new):
                    self.store_rows(side, new, self._windows.expiry_ms(self._windows.pane_of(new.times)))

    def _due(self, side: Side, new: SideRows, closing: WindowRange) -> SideRows:
        """The rows of a side that are in windows of the range: stored ones, then new ones, in arrival order."""
        first_ms = max(self._windows.starts(closing.after + 1), _EARLIEST_MS)
        last_ms = min(self._windows.ends(closing.through) - 1, _LATEST_MS)
        due = np.flatnonzero((new.times >= first_ms) & (new.times <= last_ms))
        fresh = new if len(due) == len(new) else new.take(due)
        if side.buffer.is_empty:
            return fresh
        return SideRows.concat([side.buffer.between(first_ms, last_ms), fresh])

    def _join_windows(self, left: SideRows, right: SideRows, closing: WindowRange) -> None:
        """Emit the pairs of all windows of the range."""
        if not len(left) or not len(right):
            return
        left_codes, right_codes = key_numbers([left.keys.array, right.keys.array])
        for rows, numbers in rows_by_window(left.times, self._windows, closing):
            first_ms, last_ms = self._windows.starts(numbers), self._windows.ends(numbers) - 1
            for at, right_rows in pairs(left_codes[rows], first_ms, last_ms, right_codes, right.times):
                self.hand_on(None, self._results.batch(left, rows[at], right, right_rows, last_ms[at]))


def rows_by_window(
    times: Int64s, windows: PaneWindows, range_: WindowRange, block_rows: int = _BLOCK_ROWS
) -> Iterator[tuple[Int64s, Int64s]]:
    """Every row with each of its windows in the range: its position in `times`, and the window's number; in blocks of
    windows, ordered by window, then by row.

    >>> sliding = PaneWindows(size_ms=20, slide_ms=10)
    >>> [(rows.tolist(), at.tolist()) for rows, at in rows_by_window(np.array([15, 5]), sliding, WindowRange(-9, 0))]
    [([1, 0, 1], [-1, 0, 0])]
    """
    panes = windows.pane_of(times)
    first = np.maximum(windows.first_window(panes), range_.after + 1)
    last = np.minimum(windows.last_window(panes), range_.through)
    for start, stop in _blocks(first, last, block_rows):
        rows = np.flatnonzero((first < stop) & (last >= start) & (last >= first))
        if len(rows):
            bounds = np.maximum(first[rows], start), np.minimum(last[rows] + 1, stop)
            numbers, run = expanded(*bounds)
            order = np.argsort(numbers, kind="stable")
            yield rows[run[order]], numbers[order]


def _blocks(first: Int64s, last: Int64s, rows_max: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of windows with about `rows_max` rows each, counted once per window; at least one window each.

    >>> list(_blocks(np.array([0, 0, 1]), np.array([2, 0, 2]), 3))
    [(0, 1), (1, 2), (2, 3)]
    """
    if int((np.maximum(last + 1, first) - first).sum()) <= rows_max:
        yield int(first.min()), int(last.max()) + 1
        return
    starts, stops = np.sort(first), np.sort(np.maximum(last + 1, first))
    start_sums, stop_sums = np.append(0, np.cumsum(starts - starts[0])), np.append(0, np.cumsum(stops - starts[0]))

    def before(window: int) -> int:
        """The total number of rows in all windows before this one."""
        started, ended = int(np.searchsorted(starts, window)), int(np.searchsorted(stops, window))
        return (started - ended) * (window - int(starts[0])) - int(start_sums[started]) + int(stop_sums[ended])

    start, end = int(starts[0]), int(stops[-1])
    while start < end:
        low, high, limit = start + 1, end, before(start) + rows_max
        while low < high:  # the last end that keeps the block within its limit
            middle = (low + high + 1) // 2
            low, high = (middle, high) if before(middle) <= limit else (low, middle - 1)
        yield start, low
        start = low
