"""The processing guarantee after a failure."""

from __future__ import annotations

from enum import Enum

from millstream.pyflink_names import add_pyflink_names

__all__ = ["CheckpointingMode"]


class CheckpointingMode(Enum):
    """EXACTLY_ONCE: every record affects results once. AT_LEAST_ONCE is accepted, and also runs exactly-once."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1


add_pyflink_names(globals())
