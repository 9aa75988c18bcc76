"""The driver's scan of a log: determines how far the next epoch reads.

Requests the commits of a slot after an offset, and caches them: the same offset returns the same
result. While only other tables change, the offset advances occasionally, in an epoch without rows, so that the server
may remove log that no job needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.connectors.databases import slots
from millstream.connectors.databases.log_end import LogEnd, ScanPace

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["LogWatch"]

_MESSAGES_AT_LEAST = 1_000
_EMPTY_BYTES_MAX = 16 << 20
_BEHIND_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class _LogScan:
    """Log content from `offset`: the commits before `end`; `passed` messages precede the offset."""

    offset: int
    end: int
    passed: int
    commits: tuple[slots.LoggedCommit, ...]

    @property
    def is_empty(self) -> bool:
        return not self.commits

    def stop_within(self, budget: int) -> int:
        """The end of the last transaction within the budget, or of the first one: transactions are never divided."""
        within = [commit for commit in self.commits if commit.messages - self.passed <= budget]
        return within[-1].end if within else self.commits[0].end


class LogWatch:
    """One driver's cached scan of the log of one slot."""

    def __init__(self, subject: str, monotonic: Callable[[], float]) -> None:
        self._subject = subject
        self._log_end, self._pace = LogEnd(), ScanPace(monotonic)
        self._last_scan: _LogScan | None = None

    def reach(
        self,
        connection: Connection[Any],
        slot: slots.Slot,
        offset: int,
        budget: int,
        ends_at: int | None,
        committed_lsn: int,
    ) -> int:
        """The end of the last transaction within the budget; `offset` without one.

        Never beyond `ends_at`. The job no longer reads log before `committed_lsn` in normal operation.
        """
        next_record, flushed = slots.log_ends(connection)
        boundary, scan = self._log_end.newest(next_record, flushed), self._last_scan
        if scan is None or scan.offset != offset or (scan.is_empty and scan.end != flushed):
            if flushed <= offset or not self._pace.is_due():
                return offset
            started_s = self._pace.started_s()
            scan = self._last_scan = self._scan(connection, slot, offset, flushed, budget, ends_at, committed_lsn)
            if scan.is_empty:
                self._pace.record_empty(started_s)
        if not scan.is_empty:
            return scan.stop_within(budget)
        if ends_at is not None and scan.end >= ends_at:
            return ends_at
        boundary = min(boundary, scan.end) if ends_at is None else min(boundary, scan.end, ends_at)
        return boundary if boundary - offset >= _EMPTY_BYTES_MAX else offset

    def backlog(self, offset: int) -> int | None:
        """Approximate number of messages after `offset`, extrapolated from the last scan."""
        scan = self._last_scan
        if scan is None or scan.is_empty:
            return 0 if scan is not None and scan.offset == offset else None
        last = scan.commits[-1]
        per_byte = (last.messages - scan.passed) / max(1, last.end - scan.offset)
        return int(max(0, scan.end - offset) * per_byte)

    def _scan(
        self,
        connection: Connection[Any],
        slot: slots.Slot,
        offset: int,
        end: int,
        budget: int,
        ends_at: int | None,
        committed_lsn: int,
    ) -> _LogScan:
        nearest, slot_lsn = slots.slot_for(connection, slot, offset, self._subject)
        if committed_lsn - slot_lsn >= _BEHIND_BYTES_MAX:
            slots.advance(connection, slot.reader, committed_lsn)
        messages_max = max(budget, _MESSAGES_AT_LEAST)
        while True:
            commits = slots.commits(connection, nearest, end, messages_max)
            is_whole = not commits or commits[-1].messages < messages_max
            passed = max((commit.messages for commit in commits if commit.position < offset), default=0)
            if is_whole or commits[-1].messages - passed >= budget:
                fresh = [commit for commit in commits if commit.position >= offset]
                return _LogScan(offset, end, passed, tuple(c for c in fresh if ends_at is None or c.end <= ends_at))
            messages_max *= 4  # many messages precede the offset
