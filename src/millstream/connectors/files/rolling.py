"""When a part that is being gathered becomes a file that readers see.

A policy is asked once per part and epoch, with numbers that are in the manifest: the same manifest always gives the
same files.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import ProgramError

__all__ = ["OnCheckpoint", "RollingPolicy", "WhenLargeOrOld"]


@dataclass(frozen=True)
class OnCheckpoint:
    """Every epoch publishes what it wrote."""

    @property
    def chunk_bytes_max(self) -> int | None:
        return None

    def rolls(self, part_bytes: int, since_ms: int, touched_ms: int, now_ms: int) -> bool:
        return True

    def due_ms(self, since_ms: int, touched_ms: int) -> int:
        return since_ms


@dataclass(frozen=True)
class WhenLargeOrOld:
    """A part is published when it is large, has been open for long, or has not grown for a while. Flink's default.

    >>> policy = WhenLargeOrOld()
    >>> policy.rolls(part_bytes=10, since_ms=0, touched_ms=0, now_ms=59_999)
    False
    >>> policy.rolls(part_bytes=10, since_ms=0, touched_ms=59_999, now_ms=60_000)
    True
    """

    part_bytes: int = 128 * 1024 * 1024
    rollover_ms: int = 60_000
    inactivity_ms: int = 60_000

    def __post_init__(self) -> None:
        for name in ("part_bytes", "rollover_ms", "inactivity_ms"):
            if getattr(self, name) <= 0:
                raise ProgramError(f"Rolling policy: {name} is {getattr(self, name)}. Give more than 0.")

    @property
    def chunk_bytes_max(self) -> int | None:
        """A writer cuts what it stages at this size, so that one long epoch still makes parts of the wished size."""
        return self.part_bytes

    def rolls(self, part_bytes: int, since_ms: int, touched_ms: int, now_ms: int) -> bool:
        return part_bytes >= self.part_bytes or now_ms >= self.due_ms(since_ms, touched_ms)

    def due_ms(self, since_ms: int, touched_ms: int) -> int:
        """When a part must be published though nothing more is written to it."""
        return min(since_ms + self.rollover_ms, touched_ms + self.inactivity_ms)


RollingPolicy = OnCheckpoint | WhenLargeOrOld
