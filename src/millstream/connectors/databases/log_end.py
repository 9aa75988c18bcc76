"""How far a log may be read now, and how often to look: what the driver learns of a log while it waits for changes.

A range must end where a record ends, or a commit could stand across two ranges. The server tells where the next record
will begin, which is such a place, and up to where the log is on its disk, which may be in the middle of one. So a range
ends at a beginning that has reached the disk since.

Looking for changes makes the server decode what all tables wrote. Where that takes long and finds nothing, it is done
less often, so that it takes a third of the time at most; where nothing was written, not at all.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["LogEnd", "LookPace"]


class LogEnd:
    """The newest boundary between two records that is on the server's disk.

    >>> end = LogEnd()
    >>> end.newest(100, 100), end.newest(180, 140), end.newest(250, 200), end.newest(250, 250)
    (100, 100, 180, 250)
    """

    def __init__(self) -> None:
        self._reached = 0
        self._awaited = 0

    def newest(self, next_record: int, flushed: int) -> int:
        """The boundary, after the server told where the next record begins and what is on disk."""
        if next_record <= flushed:
            self._reached = max(self._reached, next_record)
            self._awaited = 0
        elif self._awaited <= flushed:
            self._reached = max(self._reached, self._awaited)
            self._awaited = next_record
        return self._reached


class LookPace:
    """When to look again after nothing was found."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._due_s = 0.0

    def is_due(self) -> bool:
        return self._monotonic() >= self._due_s

    def started_s(self) -> float:
        return self._monotonic()

    def found_nothing(self, started_s: float) -> None:
        """A look that began then has shown nothing."""
        ended_s = self._monotonic()
        self._due_s = ended_s + 2 * (ended_s - started_s)
