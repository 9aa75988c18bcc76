"""Session windows, a row at a time: which rows form a session, when it ends, which rows are late."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Session", "SessionTable"]


@dataclass
class Session:
    """Rows of a key no further apart than the gap. `is_open`: it existed before this epoch."""

    key: Any
    start: int
    last: int
    rows: list[Sequence[Any]] = field(default_factory=list)
    is_open: bool = False


class SessionTable:
    """Sessions of all keys, across epochs."""

    def __init__(self, gap_ms: int) -> None:
        self._gap_ms = gap_ms
        self._sessions: list[Session] = []
        self.late_rows = 0

    def run(self, rows: Iterable[tuple[Any, int, Sequence[Any]]], before: int, now: int) -> list[Session]:
        """Run an epoch: rows with their key and time, and the watermark before and after it. Returns the sessions that
        ended. A session is late if it ended before the epoch began and did not merge with an open one."""
        for session in self._sessions:
            session.is_open = True
        for key, time, row in rows:
            self._add(Session(key, time, time, [row]))
        late = [each for each in self._sessions if not each.is_open and self._end(each) <= before]
        ended = [each for each in self._sessions if each not in late and self._end(each) <= now]
        self.late_rows += sum(len(each.rows) for each in late)
        self._sessions = [each for each in self._sessions if each not in late and each not in ended]
        return ended

    def _end(self, session: Session) -> int:
        """The session's last time."""
        return session.last + self._gap_ms - 1

    def _add(self, session: Session) -> None:
        """Add a session, merging those that touch it."""
        for other in list(self._sessions):
            if other.key == session.key and self._touch(other, session):
                self._sessions.remove(other)
                session = Session(
                    session.key,
                    min(session.start, other.start),
                    max(session.last, other.last),
                    [*other.rows, *session.rows],
                    session.is_open or other.is_open,
                )
        self._sessions.append(session)

    def _touch(self, session: Session, other: Session) -> bool:
        return session.start <= other.last + self._gap_ms and other.start <= session.last + self._gap_ms
