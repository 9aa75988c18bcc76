"""The driver's look at a log: how far the next epoch reads.

It asks the server for the commits that a slot tells behind an offset, and remembers them: the same offset has the same
answer. Where other tables write and this one does not, the offset is moved on now and then, in an epoch without rows,
so that the server may forget what nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.connectors.databases import slots
from millstream.connectors.databases.log_end import LogEnd, LookPace

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["LogWatch"]

_MESSAGES_AT_LEAST = 1_000
_EMPTY_BYTES_MAX = 16 << 20
_BEHIND_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class _Look:
    """What stands in the log from `offset` on: some commits before `end`, after `passed` messages before the offset."""

    offset: int
    end: int
    passed: int
    commits: tuple[slots.LoggedCommit, ...]

    @property
    def is_empty(self) -> bool:
        return not self.commits

    def stop_within(self, budget: int) -> int:
        """The end of the last transaction within the budget, or of the first one: transactions are whole."""
        within = [commit for commit in self.commits if commit.messages - self.passed <= budget]
        return within[-1].end if within else self.commits[0].end


class LogWatch:
    """What one driver has seen of the log of one slot."""

    def __init__(self, subject: str, monotonic: Callable[[], float]) -> None:
        self._subject = subject
        self._log_end, self._pace = LogEnd(), LookPace(monotonic)
        self._look: _Look | None = None

    def reach(
        self,
        connection: Connection[Any],
        slot: slots.Slot,
        offset: int,
        budget: int,
        ends_at: int | None,
        committed_lsn: int,
    ) -> int:
        """The end of the last transaction within the budget; `offset` where there is nothing new.

        Nothing is read beyond `ends_at`. Nothing before `committed_lsn` will be read by the job as it goes.
        """
        next_record, flushed = slots.log_ends(connection)
        boundary, look = self._log_end.newest(next_record, flushed), self._look
        if look is None or look.offset != offset or (look.is_empty and look.end != flushed):
            if flushed <= offset or not self._pace.is_due():
                return offset
            started_s = self._pace.started_s()
            look = self._look = self._look_at(connection, slot, offset, flushed, budget, ends_at, committed_lsn)
            if look.is_empty:
                self._pace.found_nothing(started_s)
        if not look.is_empty:
            return look.stop_within(budget)
        if ends_at is not None and look.end >= ends_at:
            return ends_at
        boundary = min(boundary, look.end) if ends_at is None else min(boundary, look.end, ends_at)
        return boundary if boundary - offset >= _EMPTY_BYTES_MAX else offset

    def backlog(self, offset: int) -> int | None:
        """About how many messages stand behind `offset`, by how many there were where it was looked last."""
        look = self._look
        if look is None or look.is_empty:
            return 0 if look is not None and look.offset == offset else None
        last = look.commits[-1]
        per_byte = (last.messages - look.passed) / max(1, last.end - look.offset)
        return int(max(0, look.end - offset) * per_byte)

    def _look_at(
        self,
        connection: Connection[Any],
        slot: slots.Slot,
        offset: int,
        end: int,
        budget: int,
        ends_at: int | None,
        committed_lsn: int,
    ) -> _Look:
        nearest, stands_at = slots.slot_for(connection, slot, offset, self._subject)
        if committed_lsn - stands_at >= _BEHIND_BYTES_MAX:
            slots.advance(connection, slot.reader, committed_lsn)
        messages_max = max(budget, _MESSAGES_AT_LEAST)
        while True:
            found = slots.commits(connection, nearest, end, messages_max)
            is_whole = not found or found[-1].messages < messages_max
            passed = max((commit.messages for commit in found if commit.position < offset), default=0)
            if is_whole or found[-1].messages - passed >= budget:
                fresh = [commit for commit in found if commit.position >= offset]
                return _Look(offset, end, passed, tuple(c for c in fresh if ends_at is None or c.end <= ends_at))
            messages_max *= 4  # much of it was before the offset
