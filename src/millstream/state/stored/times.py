"""The stored event-time state of one split or subtask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from millstream.records.watermarks import IDLE_WATERMARK, MIN_WATERMARK
from millstream.storage.json_records import ALWAYS

__all__ = ["EventTimeState"]


@dataclass(frozen=True)
class EventTimeState:
    """Event-time state of one split or subtask: its watermark, the time of its last records, its generator's state.

    >>> state = EventTimeState(watermark=40, active_ms=1_000)
    >>> state.effective_watermark(timeout_ms=500, now_ms=1_499)
    40
    >>> state.effective_watermark(timeout_ms=500, now_ms=1_500) == IDLE_WATERMARK
    True
    >>> EventTimeState.of(state.details(), state.watermark) == state
    True
    """

    watermark: Annotated[int, ALWAYS] = MIN_WATERMARK
    active_ms: int | None = None  # None: there is no idle timeout
    marked_idle: bool = False
    generator: Any = None

    def effective_watermark(self, timeout_ms: int | None, now_ms: int) -> int:
        """Its watermark, or IDLE_WATERMARK if it had no records for `timeout_ms`."""
        quiet = timeout_ms is not None and self.active_ms is not None and now_ms - self.active_ms >= timeout_ms
        return IDLE_WATERMARK if quiet or self.marked_idle else self.watermark

    def awake(self, run_started_ms: int, now_ms: int) -> EventTimeState:
        """The state with idleness counted from the start of the run, if it last had records before it or in the future.

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
        """The inverse of `details`."""
        return cls(
            watermark, details.get("active_ms"), bool(details.get("marked_idle", False)), details.get("generator")
        )
