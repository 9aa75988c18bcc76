"""Which columns of a relation are the start, end and time of the window its rows are in.

They begin at a window function or a window aggregation, and are the same as long as they are passed on as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.expressions.row_expressions import Column
from millstream.planner.relations import (
    Aggregate,
    Filter,
    JoinKind,
    Limit,
    Project,
    Relation,
    WindowAggregate,
    WindowAssign,
    WindowProperty,
    WindowShape,
)
from millstream.planner.time_joins import WindowJoin

__all__ = ["WindowColumns", "window_columns"]


@dataclass(frozen=True)
class WindowColumns:
    """Positions of a window's columns in a relation (a column may be there twice), and the window's shape; its `time`
    means nothing here."""

    shape: WindowShape
    starts: frozenset[int]
    ends: frozenset[int]
    times: frozenset[int]

    def are_all_in(self, groups: tuple[int, ...]) -> bool:
        """Whether a grouping by these columns is a grouping by window."""
        return bool(self.starts & set(groups)) and bool(self.ends & set(groups))

    @property
    def all(self) -> frozenset[int]:
        return self.starts | self.ends | self.times


def window_columns(relation: Relation) -> WindowColumns | None:
    """The window of a relation's rows, if they are in one."""
    if isinstance(relation, WindowAssign):
        first = len(relation.input.schema)
        return WindowColumns(relation.window, frozenset({first}), frozenset({first + 1}), frozenset({first + 2}))
    if isinstance(relation, WindowAggregate):
        return _of_aggregate(relation)
    if isinstance(relation, Aggregate):
        return _of_grouping(relation)
    if isinstance(relation, Filter | Limit):
        return window_columns(relation.input)
    if isinstance(relation, WindowJoin):
        return _of_join(relation)
    if isinstance(relation, Project):
        inside = window_columns(relation.input)
        return None if inside is None else _projected(inside, relation)
    return None


def _of_aggregate(relation: WindowAggregate) -> WindowColumns:
    first = len(relation.groups) + len(relation.calls)

    def at(wanted: WindowProperty) -> frozenset[int]:
        return frozenset(first + i for i, each in enumerate(relation.properties) if each is wanted)

    shape = replace(relation.window, attached=None)
    return WindowColumns(shape, at(WindowProperty.START), at(WindowProperty.END), at(WindowProperty.TIME))


def _of_grouping(relation: Aggregate) -> WindowColumns | None:
    """An aggregation by the columns of a window is one in windows, before `recognise_windows` has said so."""
    inside = window_columns(relation.input)
    if inside is None or not inside.are_all_in(relation.groups):
        return None

    def moved(columns: frozenset[int]) -> frozenset[int]:
        return frozenset(position for position, group in enumerate(relation.groups) if group in columns)

    return replace(inside, starts=moved(inside.starts), ends=moved(inside.ends), times=moved(inside.times))


def _of_join(relation: WindowJoin) -> WindowColumns | None:
    """The window of the side whose rows are always there; both sides' where both are."""
    left, right, width = window_columns(relation.left), window_columns(relation.right), len(relation.left.schema)
    if left is None or right is None or relation.kind is JoinKind.FULL:
        return None
    if relation.kind in (JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI):
        return left

    def moved(columns: frozenset[int]) -> frozenset[int]:
        return frozenset(width + column for column in columns)

    right = replace(right, starts=moved(right.starts), ends=moved(right.ends), times=moved(right.times))
    if relation.kind is JoinKind.RIGHT:
        return right
    return replace(left, starts=left.starts | right.starts, ends=left.ends | right.ends, times=left.times | right.times)


def _projected(inside: WindowColumns, relation: Project) -> WindowColumns:
    def moved(columns: frozenset[int]) -> frozenset[int]:
        return frozenset(
            position
            for position, expression in enumerate(relation.expressions)
            if isinstance(expression, Column) and expression.index in columns
        )

    return replace(inside, starts=moved(inside.starts), ends=moved(inside.ends), times=moved(inside.times))
