"""Event time as it is stored: what is remembered of one split or subtask from epoch to epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from millstream.records.watermarks import IDLE_WATERMARK, MIN_WATERMARK
from millstream.storage.json_records import ALWAYS

__all__ = ["EventTimeState"]


@dataclass(frozen=True)
class EventTimeState:
    """What is remembered of one split or subtask: its watermark, when it last had records, what its generator knows.

    >>> kept = EventTimeState(watermark=40, active_ms=1_000)
    >>> kept.stands(timeout_ms=500, now_ms=1_499), kept.stands(timeout_ms=500, now_ms=1_500) == IDLE_WATERMARK
    (40, True)
    >>> EventTimeState.of(kept.details(), kept.watermark) == kept
    True
    """

    watermark: Annotated[int, ALWAYS] = MIN_WATERMARK
    active_ms: int | None = None  # None: nobody asks, there is no idle timeout
    marked_idle: bool = False
    generator: Any = None

    def stands(self, timeout_ms: int | None, now_ms: int) -> int:
        """Its watermark, or IDLE_WATERMARK when it has been quiet for so long."""
        quiet = timeout_ms is not None and self.active_ms is not None and now_ms - self.active_ms >= timeout_ms
        return IDLE_WATERMARK if quiet or self.marked_idle else self.watermark

    def awake(self, run_started_ms: int, now_ms: int) -> EventTimeState:
        """Nobody was idle while the job was down, or before the clock was set back beyond the last record.

        >>> [EventTimeState(40, active_ms).awake(1_000, 1_200).active_ms for active_ms in (900, 9_000)]
        [1000, 1000]
        """
        if self.active_ms is None or run_started_ms <= self.active_ms <= now_ms:
            return self
        return replace(self, active_ms=run_started_ms)

    def details(self) -> dict[str, Any]:
        """Everything but the watermark, as JSON."""
        details = {"active_ms": self.active_ms, "marked_idle": self.marked_idle or None, "generator": self.generator}
        return {name: value for name, value in details.items() if value is not None}

    @classmethod
    def of(cls, details: Mapping[str, Any], watermark: int) -> EventTimeState:
        """Read what `details` gave."""
        return cls(
            watermark, details.get("active_ms"), bool(details.get("marked_idle", False)), details.get("generator")
        )
