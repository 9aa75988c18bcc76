"""How often a record may count after a failure."""

from __future__ import annotations

from enum import Enum

__all__ = ["CheckpointingMode"]


class CheckpointingMode(Enum):
    """EXACTLY_ONCE: every record counts once. AT_LEAST_ONCE is accepted, and gets exactly-once all the same."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
