"""OVER as operations of the graph: what is computed of the rows around each row, and which rows those are.

Column 0 of the input is the partition's key, the others are the row. What is given is the row, then one column for each
call. By time (`OverTime`) rows of a table that only grows are given once, when their time has come. By any order
(`OverOrder`) the rows of a partition are kept, and what changes of their results is given.
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
    """Which rows around a row: from `preceding` before it to `following` behind it; below zero it is the other way.
    None: all. `unit` is ROWS, or RANGE: then bounds are in the unit of the column that rows are ordered by, and rows
    that are equal in the order are in the same frames."""

    unit: str = "RANGE"
    preceding: float | None = None
    following: float | None = 0


@dataclass(frozen=True)
class OverColumn:
    """One call: an aggregate of the frame (`measure`), or a `function` of the row's place and its neighbours, over
    `arguments`, which are columns of the row."""

    function: str
    frame: Frame = Frame()
    measure: BoundAggregate | None = None
    arguments: tuple[int, ...] = ()
    reach: int = 0
    """Of LAG: how many rows back it looks."""


@dataclass(frozen=True)
class OverTime(Operation):
    """Calls over rows in the order of their time, up to each row. `is_event_time`: rows wait until the watermark passes
    them; else they come in the order they arrive. `ttl_ms`: how long a partition is kept that nobody touches."""

    row_type: RowType
    columns: tuple[OverColumn, ...]
    is_event_time: bool
    ttl_ms: int | None = None

    @property
    def function(self) -> tuple[Any, ...]:
        """What travels to tasks and may hold code of the program's."""
        return _functions(self.columns)


@dataclass(frozen=True)
class OverOrder(Operation):
    """Calls over rows in any order. `is_changing`: rows of the input are taken away, too. `rowtime`: the column that is
    the time of rows in BATCH, where all rows are given when the input has ended."""

    row_type: RowType
    columns: tuple[OverColumn, ...]
    order: tuple[OrderKey, ...]
    is_changing: bool = False
    ttl_ms: int | None = None
    rowtime: int | None = None

    @property
    def function(self) -> tuple[Any, ...]:
        """What travels to tasks and may hold code of the program's."""
        return _functions(self.columns)


def _functions(columns: tuple[OverColumn, ...]) -> tuple[Any, ...]:
    measures = (column.measure for column in columns if column.measure is not None)
    return tuple(measure.function for measure in measures if measure.function is not None)
