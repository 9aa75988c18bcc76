"""Physical operations: what the compiler puts in the place of what a program asked for, where there is a better way.

Each gives the results of the logical operation it stands for (`graph.nodes`): it is faster, never different. They are
made by the passes of the compiler alone, and read by the runtime.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.graph.nodes import Operation
from millstream.state.windows.measures import Measure
from millstream.state.windows.pane_windows import PaneWindows

__all__ = ["PaneAggregate", "PartialAggregate", "Rolling"]


@dataclass(frozen=True)
class Rolling(Operation):
    """A `RollingField` of a typed stream, in columns."""

    kind: str  # sum, min, max, min_by, max_by
    position: int


@dataclass(frozen=True)
class PartialAggregate(Operation):
    """Ready aggregates by key and pane, before the exchange: each task sums up what it reads."""

    measures: tuple[Measure, ...]
    windows: PaneWindows


@dataclass(frozen=True)
class PaneAggregate(Operation):
    """Ready aggregates by window, from partials, in columns. `has_key` and `has_bounds`: what stands before them in a
    result."""

    measures: tuple[Measure, ...]
    windows: PaneWindows
    has_key: bool = True
    has_bounds: bool = True
