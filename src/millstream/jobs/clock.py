"""The time of day, passed to whoever needs it: nothing in `jobs/` asks the machine by itself, so that tests can say
what time it is."""

from __future__ import annotations

from typing import Protocol

from millstream.checkpoint.leases import system_ms

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Where a job gets the time from. Tests bring their own."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return system_ms()
