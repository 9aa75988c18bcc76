"""Timers of keys and of windows: rows (key, time) due at their time, in the operator's store.

They are durable, rescale and spill like all state. Setting a timer twice has no further effect. Timers fire in time
order; a timer that is set during firing for a time already reached fires in the same epoch.

Invariant: when an epoch ends, no timer at or before its time remains.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import compress, count
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import ProgramError
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.keyed.states import Scope, StateHandle
from millstream.runtime.operators.user_code import TaskTimerService
from millstream.state.tables.state_table import StateTable

__all__ = ["KeyedTimerService", "Timers", "timer_time"]


class Timers(StateHandle):
    """The timers of one time domain of one operator in one subtask. Their keys are the table's: keys or places."""

    def __init__(self, table: StateTable) -> None:
        super().__init__(table, scope=None)

    def begin(self) -> None:
        self._set: dict[tuple[int, Any], bool] = {}  # (time, key) -> set (True) or deleted (False) in this epoch
        self._fresh: set[tuple[int, Any]] = set()  # first set in this epoch, and so perhaps never stored
        self._heap: list[tuple[int, int, Any]] = []
        self._order = count()
        self._through: int | None = None  # while firing: the time up to which timers fire

    def register(self, time: int, key: Any) -> None:
        """Set a timer."""
        timer = (time, key)
        before = self._set.get(timer)
        if before is True:
            return
        if before is None:
            self._fresh.add(timer)
        self._set[timer] = True
        if self._through is not None and time <= self._through:
            heapq.heappush(self._heap, (time, next(self._order), key))

    def delete(self, time: int, key: Any) -> None:
        """Delete a timer, if it is set."""
        self._set[time, key] = False

    def due_through(self, through: int, after: int | None) -> list[tuple[int, Any]]:
        """The timers up to `through`: stored ones that are not deleted, then those set in this epoch."""
        stored = [timer for timer in self._stored(through, after) if self._set.get(timer, True)]
        stored_timers = set(stored)
        return stored + [
            timer
            for timer, is_set in self._set.items()
            if is_set and timer[0] <= through and timer not in stored_timers
        ]

    def take_in_order(self, timers: list[tuple[int, Any]], through: int) -> Iterator[tuple[int, Any]]:
        """Yield these due timers in time order. The caller fires each before requesting the next."""
        self._heap = [(time, next(self._order), key) for time, key in timers]
        heapq.heapify(self._heap)
        self._through = through
        while self._heap:
            time, _, key = heapq.heappop(self._heap)
            # A timer that fired or was deleted in the meantime is marked; one that was set again fires again.
            if self._set.get((time, key), True):
                self._set[time, key] = False
                yield time, key
        self._through = None

    def _stored(self, through: int, after: int | None) -> list[tuple[int, Any]]:
        if not self.table.view.refs:
            return []
        rows = self.table.view.scan_due(through, after_ms=after)
        return list(zip(rows.column("due_ms").to_pylist(), self.table.keys_of(rows.column("key")), strict=True))

    def earliest(self, after: int | None) -> int | None:
        """The earliest remaining timer."""
        times = [time for (time, _), is_set in self._set.items() if is_set]
        stored = self.table.view.min_due(after_ms=after) if self.table.view.refs else None
        return min([*times, *([] if stored is None else [stored])], default=None)

    def leave(self) -> None:
        waiting = [timer for timer, is_set in self._set.items() if is_set]
        if waiting:
            times = np.array([time for time, _ in waiting], dtype=np.int64)
            self.table.put([key for _, key in waiting], None, pa.array(times), times)
        removed = self._removed() if self.table.view.refs else []
        if removed:
            self.table.delete([key for _, key in removed], pa.array([time for time, _ in removed], pa.int64()))

    def _removed(self) -> list[tuple[int, Any]]:
        """The timers to delete from the store. Those set and removed in this epoch (a growing session has one per
        record) are looked up first: few of them were ever stored."""
        removed = [timer for timer, is_set in self._set.items() if not is_set and timer not in self._fresh]
        passed = [timer for timer in self._fresh if not self._set[timer]]
        if passed:
            times = pa.array([time for time, _ in passed], pa.int64())
            stored = self.table.view.get_pairs(self.table.column([key for _, key in passed]), times).mask
            removed += compress(passed, stored.tolist())
        return removed


class KeyedTimerService(TaskTimerService):
    """The `TimerService` of a keyed function."""

    def __init__(self, scope: Scope, event: Timers, processing: Timers) -> None:
        super().__init__()
        self._scope = scope
        self._event = event
        self._processing = processing

    def register_event_time_timer(self, timestamp: int) -> None:
        self._event.register(timer_time(timestamp), self._scope.key)

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._processing.register(timer_time(timestamp), self._scope.key)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._event.delete(timer_time(timestamp), self._scope.key)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._processing.delete(timer_time(timestamp), self._scope.key)


def timer_time(timestamp: Any) -> int:
    """The time of a timer, validated."""
    if type(timestamp) is not int:
        raise ProgramError(
            f"a timer was set for {timestamp!r} ({type(timestamp).__name__}); "
            "its time is an int: milliseconds since 1970-01-01 UTC"
        )
    if not MIN_WATERMARK <= timestamp <= MAX_WATERMARK:
        raise ProgramError(
            f"a timer was set for {timestamp}, which does not fit 64 bits; its time is in milliseconds since "
            "1970-01-01 UTC. Results of count windows and global windows have the maximum timestamp"
        )
    return timestamp
