"""The two clocks a timer can follow."""

from __future__ import annotations

from enum import Enum

__all__ = ["TimeDomain"]


class TimeDomain(Enum):
    """Whether a timer fires by the watermark or by the clock."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1
