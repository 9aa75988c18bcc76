"""The time of day, passed to every component that needs it: nothing in `jobs/` reads the machine's clock itself, so
that tests can set the time."""

from __future__ import annotations

from typing import Protocol

from millstream.checkpoint.leases import system_ms

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """The source of the time of a job. Tests provide their own."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return system_ms()
