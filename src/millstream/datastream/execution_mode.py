"""The execution mode of a job: continuous or batch."""

from __future__ import annotations

from enum import Enum

from millstream.pyflink_names import add_pyflink_names

__all__ = ["RuntimeExecutionMode"]


class RuntimeExecutionMode(Enum):
    """STREAMING emits results continuously. BATCH reads bounded input in epochs too, so that it need not fit into
    memory, but event time does not advance until the input has ended: aggregations and windows emit their final results
    once, and nothing is late. AUTOMATIC selects BATCH if every source is bounded."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2


add_pyflink_names(globals())
