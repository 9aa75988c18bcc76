"""Whether a job runs for ever or once."""

from __future__ import annotations

from enum import Enum

__all__ = ["RuntimeExecutionMode"]


class RuntimeExecutionMode(Enum):
    """STREAMING runs epoch after epoch; BATCH runs the same stages once over bounded input; AUTOMATIC chooses BATCH
    when every source is bounded."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
