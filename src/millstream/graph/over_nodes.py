"""OVER as operations of the graph: functions over a frame of rows around each row.

Column 0 of the input is the partition's key, the others are the row. The output is the row, then one column per call.
`OverTime` orders by time: the input is append-only, and each row is emitted once, when its time has been reached.
`OverOrder` allows any order: the rows of a partition are stored, and changes of their results are emitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.expressions.nested_types import RowType
from millstream.graph.nodes import Operation
from millstream.graph.table_nodes import OrderKey
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["Frame", "OverColumn", "OverOrder", "OverTime"]


@dataclass(frozen=True)
class Frame:
    """The rows around a row: from `preceding` before it to `following` after it; negative values reverse the direction.
    None: unbounded. `unit` is ROWS or RANGE. With RANGE, bounds are in the unit of the order column, and rows with
    equal order values have the same frame."""

    unit: str = "RANGE"
    preceding: float | None = None
    following: float | None = 0


@dataclass(frozen=True)
class OverColumn:
    """One call: an aggregate over the frame (`measure`), or a `function` of the row's position and its neighbours.
    `arguments` are columns of the row."""

    function: str
    frame: Frame = Frame()
    measure: BoundAggregate | None = None
    arguments: tuple[int, ...] = ()
    reach: int = 0
    """For LAG: the number of rows back."""


@dataclass(frozen=True)
class OverTime(Operation):
    """Calls over rows in the order of their time, up to each row. `is_event_time`: rows are buffered until the
    watermark passes them; otherwise they are processed in order of arrival. `ttl_ms`: partitions expire after this time
    without access."""

    row_type: RowType
    columns: tuple[OverColumn, ...]
    is_event_time: bool
    ttl_ms: int | None = None

    @property
    def function(self) -> tuple[Any, ...]:
        """User code that is sent to tasks."""
        return _functions(self.columns)


@dataclass(frozen=True)
class OverOrder(Operation):
    """Calls over rows in any order. `is_changing`: the input contains retractions. `rowtime`: the time column of rows
    in BATCH, where all rows are emitted at the end of the input."""

    row_type: RowType
    columns: tuple[OverColumn, ...]
    order: tuple[OrderKey, ...]
    is_changing: bool = False
    ttl_ms: int | None = None
    rowtime: int | None = None

    @property
    def function(self) -> tuple[Any, ...]:
        """User code that is sent to tasks."""
        return _functions(self.columns)


def _functions(columns: tuple[OverColumn, ...]) -> tuple[Any, ...]:
    measures = (column.measure for column in columns if column.measure is not None)
    return tuple(measure.function for measure in measures if measure.function is not None)
