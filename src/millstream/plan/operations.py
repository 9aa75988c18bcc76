"""Physical operations: what the compiler puts in the place of what a program asked for, where there is a better way.

Each gives the results of the logical operation it stands for (`graph.nodes`): it is faster, never different. They are
made by the passes of the compiler alone, and read by the runtime.
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
    """A `RollingField` of a typed stream, in columns."""

    kind: str  # sum, min, max, min_by, max_by
    position: int
    is_strict: bool = False  # a sum that does not fit its type is an error


@dataclass(frozen=True)
class PartialAggregate(Operation):
    """Ready aggregates by key and pane, before the exchange: each task sums up what it reads."""

    measures: tuple[BoundAggregate, ...]
    windows: PaneWindows


@dataclass(frozen=True)
class PaneAggregate(Operation):
    """Ready aggregates by window, from partials, in columns. `has_key` and `has_bounds`: what stands before them in a
    result."""

    measures: tuple[BoundAggregate, ...]
    windows: PaneWindows
    has_key: bool = True
    has_bounds: bool = True


@dataclass(frozen=True)
class TablePartialAggregate(PartialAggregate):
    """The same of rows of a table: `keys` are its columns, and times are those that clocks of `zone` show."""

    keys: tuple[int, ...] = ()
    zone: str = "UTC"


@dataclass(frozen=True)
class TablePaneAggregate(PaneAggregate):
    """The same of rows of a table: results have these `columns`. `keys` is how many columns a key has; `attached` are
    the windows whose bounds results have, where those of `windows` only say when they are over."""

    columns: tuple[WindowColumn, ...] = ()
    keys: int = 0
    zone: str = "UTC"
    attached: PaneWindows | None = None


@dataclass(frozen=True)
class PartialGroups(Operation):
    """Aggregates of rows by group, before the exchange: each task sums up what it reads. See `GroupAggregate`."""

    keys: tuple[int, ...]
    measures: tuple[BoundAggregate, ...]
    is_signed: bool


@dataclass(frozen=True)
class FinalGroups(Operation):
    """Groups in the store, from partials, and what changes of them. `keys` is how many columns a key has."""

    keys: int
    measures: tuple[BoundAggregate, ...]
    is_signed: bool
    ttl_ms: int | None = None


@dataclass(frozen=True)
class PartialRank(Operation):
    """Of a table that only grows: rows that others of the same task come before are dropped before the exchange."""

    rank: RankRows


@dataclass(frozen=True)
class PartialSessions(Operation):
    """Sessions of what a task reads, before the exchange. See `SessionAggregate`."""

    keys: tuple[int, ...]
    measures: tuple[BoundAggregate, ...]
    gap_ms: int
    is_event_time: bool


@dataclass(frozen=True)
class FinalSessions(Operation):
    """Sessions in the store, from partial ones. `keys` is how many columns a key has."""

    keys: int
    measures: tuple[BoundAggregate, ...]
    gap_ms: int
    is_event_time: bool
    columns: tuple[WindowColumn, ...]
    zone: str = "UTC"


@dataclass(frozen=True)
class FoldedWindow(Window):
    """Windows that stand fixed in time, keep one value each and fire at their end: records are folded into them
    together."""

    panes: PaneWindows = field(kw_only=True)
    window_type: type[Any] = field(kw_only=True)  # what a window is to functions: made of its start and its end
    passes_through: bool = field(kw_only=True)  # whether `function` gives out the one value as it is


@dataclass(frozen=True)
class WindowJoin(Process):
    """Pairs of records of two keyed streams that are in one window, in columns: results are `fields` of both."""

    types: tuple[TypeInformation | None, TypeInformation | None] = field(kw_only=True)  # of the two streams
    windows: PaneWindows = field(kw_only=True)
    fields: PairFields = field(kw_only=True)
    late_tags: tuple[Any, Any] = (None, None)  # where late records of each side go; None: dropped and counted


@dataclass(frozen=True)
class ProjectedIntervalJoin(IntervalJoin):
    """An interval join that gives `fields` of every pair, in columns."""
