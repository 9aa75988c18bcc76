"""How far a log may be read, and how often it is scanned: the driver's view of a log while it waits for changes.

A range must end at a record boundary, or a commit could span two ranges. The server reports the start of the next
record, which is a boundary, and the end of the log on its disk, which may be inside a record. So a range ends at a
boundary that has since reached the disk.

A scan for changes makes the server decode the changes of all tables. Slow scans without a result become less frequent,
so that they take at most a third of the time; without new log, nothing is scanned.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["LogEnd", "ScanPace"]


class LogEnd:
    """The newest record boundary that is on the server's disk.

    >>> end = LogEnd()
    >>> end.newest(100, 100), end.newest(180, 140), end.newest(250, 200), end.newest(250, 250)
    (100, 100, 180, 250)
    """

    def __init__(self) -> None:
        self._reached = 0
        self._awaited = 0

    def newest(self, next_record: int, flushed: int) -> int:
        """The boundary, given the start of the next record and the end of the log on disk."""
        if next_record <= flushed:
            self._reached = max(self._reached, next_record)
            self._awaited = 0
        elif self._awaited <= flushed:
            self._reached = max(self._reached, self._awaited)
            self._awaited = next_record
        return self._reached


class ScanPace:
    """When to scan again after an empty scan."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._due_s = 0.0

    def is_due(self) -> bool:
        return self._monotonic() >= self._due_s

    def started_s(self) -> float:
        return self._monotonic()

    def record_empty(self, started_s: float) -> None:
        """Records that a scan found no changes."""
        ended_s = self._monotonic()
        self._due_s = ended_s + 2 * (ended_s - started_s)
