"""Whether a job runs for ever or once."""

from __future__ import annotations

from enum import Enum

from millstream.pyflink_names import add_pyflink_names

__all__ = ["RuntimeExecutionMode"]


class RuntimeExecutionMode(Enum):
    """STREAMING tells results as they come. BATCH reads bounded input in epochs too, so that it need not fit into
    memory, but event time stands still until the input has ended: aggregations and windows give their final results
    once, and nothing is late. AUTOMATIC chooses BATCH when every source is bounded."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2


add_pyflink_names(globals())
