"""Physical operations: what the compiler puts in the place of what a program asked for, where there is a better way.

Each gives the results of the logical operation it stands for (`graph.nodes`): it is faster, never different. They are
made by the passes of the compiler alone, and read by the runtime.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.graph.nodes import Operation

__all__ = ["Rolling"]


@dataclass(frozen=True)
class Rolling(Operation):
    """A `RollingField` of a typed stream, in columns."""

    kind: str  # sum, min, max, min_by, max_by
    position: int
