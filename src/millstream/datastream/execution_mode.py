"""The execution mode of a job: continuous or batch."""

from __future__ import annotations

from enum import Enum

from millstream.pyflink_names import add_pyflink_names

__all__ = ["RuntimeExecutionMode"]


class RuntimeExecutionMode(Enum):
    """STREAMING emits results continuously. BATCH also reads bounded input in epochs, so that it need not fit into
    memory, but event time advances only at the end of input: aggregations and windows emit only final results, and no
    record is late. AUTOMATIC selects BATCH if every source is bounded."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2


add_pyflink_names(globals())
