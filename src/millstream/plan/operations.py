"""Physical operations: faster implementations that the compiler substitutes for logical operations.

Each returns the same results as the logical operation that it replaces (`graph.nodes`). Only compiler passes create
them; the runtime executes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.graph.nodes import IntervalJoin, Operation, PairFields, Process, Window
from millstream.graph.table_nodes import RankRows, WindowColumn
from millstream.state.windows.bound_aggregates import BoundAggregate
from millstream.state.windows.pane_windows import PaneWindows

__all__ = [
    "FinalGroups",
    "FinalSessions",
    "FoldedWindow",
    "PaneAggregate",
    "PartialAggregate",
    "PartialGroups",
    "PartialRank",
    "PartialSessions",
    "ProjectedIntervalJoin",
    "Rolling",
    "TablePaneAggregate",
    "TablePartialAggregate",
    "WindowJoin",
]


@dataclass(frozen=True)
class Rolling(Operation):
    """A vectorised `RollingField` of a typed stream."""

    kind: str  # sum, min, max, min_by, max_by
    position: int
    is_strict: bool = False  # an overflowing sum is an error


@dataclass(frozen=True)
class PartialAggregate(Operation):
    """Built-in aggregates by key and pane, upstream of the exchange: each task pre-aggregates its input."""

    measures: tuple[BoundAggregate, ...]
    windows: PaneWindows


@dataclass(frozen=True)
class PaneAggregate(Operation):
    """Vectorised built-in aggregates by window, merged from partials. `has_key` and `has_bounds`: whether results start
    with the key and the window's bounds."""

    measures: tuple[BoundAggregate, ...]
    windows: PaneWindows
    has_key: bool = True
    has_bounds: bool = True


@dataclass(frozen=True)
class TablePartialAggregate(PartialAggregate):
    """`PartialAggregate` for table rows: `keys` are columns, and window bounds are local times of `zone`."""

    keys: tuple[int, ...] = ()
    zone: str = "UTC"


@dataclass(frozen=True)
class TablePaneAggregate(PaneAggregate):
    """`PaneAggregate` for table rows: results have these `columns`. `keys` is the number of key columns. `attached`:
    the windows with the bounds shown in results, if `windows` only determine when they end."""

    columns: tuple[WindowColumn, ...] = ()
    keys: int = 0
    zone: str = "UTC"
    attached: PaneWindows | None = None


@dataclass(frozen=True)
class PartialGroups(Operation):
    """Aggregates by group, upstream of the exchange: each task pre-aggregates its input. See `GroupAggregate`."""

    keys: tuple[int, ...]
    measures: tuple[BoundAggregate, ...]
    is_signed: bool


@dataclass(frozen=True)
class FinalGroups(Operation):
    """Merges partials into stored groups and emits their changes. `keys` is the number of key columns."""

    keys: int
    measures: tuple[BoundAggregate, ...]
    is_signed: bool
    ttl_ms: int | None = None


@dataclass(frozen=True)
class PartialRank(Operation):
    """Top-N over an append-only table, upstream of the exchange: drops rows outside the first N of their task."""

    rank: RankRows


@dataclass(frozen=True)
class PartialSessions(Operation):
    """Sessions of a task's input, upstream of the exchange. See `SessionAggregate`."""

    keys: tuple[int, ...]
    measures: tuple[BoundAggregate, ...]
    gap_ms: int
    is_event_time: bool


@dataclass(frozen=True)
class FinalSessions(Operation):
    """Merges partial sessions into stored ones. `keys` is the number of key columns."""

    keys: int
    measures: tuple[BoundAggregate, ...]
    gap_ms: int
    is_event_time: bool
    columns: tuple[WindowColumn, ...]
    zone: str = "UTC"


@dataclass(frozen=True)
class FoldedWindow(Window):
    """Fixed windows that store a single value and fire at their end: records are folded into them in batches."""

    panes: PaneWindows = field(kw_only=True)
    window_type: type[Any] = field(kw_only=True)  # the window class for functions, constructed from start and end
    passes_through: bool = field(kw_only=True)  # whether `function` emits the value unchanged


@dataclass(frozen=True)
class WindowJoin(Process):
    """Vectorised pairs of records of two keyed streams in the same window: results are `fields` of both."""

    types: tuple[TypeInformation | None, TypeInformation | None] = field(kw_only=True)  # of the two streams
    windows: PaneWindows = field(kw_only=True)
    fields: PairFields = field(kw_only=True)
    late_tags: tuple[Any, Any] = (None, None)  # side outputs for late records of each side; None: dropped


@dataclass(frozen=True)
class ProjectedIntervalJoin(IntervalJoin):
    """A vectorised interval join that emits `fields` of every pair."""
