"""A clock that moves only when the test advances it."""

from __future__ import annotations

from millstream.errors import ProgramError

__all__ = ["ManualClock"]


class ManualClock:
    """Processing time under the test's control. It never goes back.

    >>> clock = ManualClock(now_ms=1_000)
    >>> clock.advance(250)
    >>> clock.now_ms()
    1250
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """The current time, in milliseconds since 1970-01-01 UTC."""
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass."""
        if ms < 0:
            raise ProgramError(f"ManualClock.advance: found {ms} ms; time does not go back. Give 0 or more")
        self._now_ms += ms

    def __repr__(self) -> str:
        return f"ManualClock(now_ms={self._now_ms})"
