"""The time domain of a timer."""

from __future__ import annotations

from enum import Enum

__all__ = ["TimeDomain"]


class TimeDomain(Enum):
    """Whether a timer is in event time or in processing time."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1
