"""The columns of a relation that hold the start, end and time of its rows' window.

A window function or a window aggregation introduces them; they remain valid while relations pass them on unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.expressions.row_expressions import Column
from millstream.expressions.types import LocalZonedTimestampType
from millstream.planner.relations import (
    Aggregate,
    Filter,
    JoinKind,
    Limit,
    Project,
    Relation,
    SetOperation,
    WindowAggregate,
    WindowAssign,
    WindowProperty,
    WindowShape,
)
from millstream.planner.time_joins import WindowJoin
from millstream.planner.window_ranks import WindowRank

__all__ = ["WindowColumns", "are_equal_windows", "is_window_time", "window_columns"]


@dataclass(frozen=True)
class WindowColumns:
    """Positions of a window's columns in a relation (a column may occur twice), and the window's shape without its
    `time`, which is unused here."""

    shape: WindowShape
    starts: frozenset[int]
    ends: frozenset[int]
    times: frozenset[int]

    def are_all_in(self, groups: tuple[int, ...]) -> bool:
        """Whether grouping by these columns includes the whole window."""
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
    if isinstance(relation, Filter | Limit | WindowRank):
        return window_columns(relation.input)
    if isinstance(relation, WindowJoin):
        return _of_join(relation)
    if isinstance(relation, SetOperation) and (relation.kind, relation.all) == ("UNION", True):
        return _of_union(relation)
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
    """The window of an aggregation by a window's columns, before `recognise_windows` has rewritten it."""
    inside = window_columns(relation.input)
    if inside is None or not inside.are_all_in(relation.groups):
        return None

    # A group that is not in every set is NULL in some rows.
    whole = [at for at in range(len(relation.groups)) if all(at in positions for positions in relation.sets or ())]

    def moved(columns: frozenset[int]) -> frozenset[int]:
        return frozenset(position for position in whole if relation.groups[position] in columns)

    if not moved(inside.starts) or not moved(inside.ends):
        return None
    return replace(inside, starts=moved(inside.starts), ends=moved(inside.ends), times=moved(inside.times))


def _of_join(relation: WindowJoin) -> WindowColumns | None:
    """The window of the side that has a row in every result; of both sides for an inner join."""
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


def _of_union(relation: SetOperation) -> WindowColumns | None:
    """The columns that are window bounds in every branch, if all branches have equal windows."""
    shared = window_columns(relation.branches[0])
    for branch in relation.branches[1:]:
        other = window_columns(branch)
        if shared is None or other is None or not are_equal_windows(relation.branches[0], branch):
            return None
        starts, ends, times = shared.starts & other.starts, shared.ends & other.ends, shared.times & other.times
        shared = replace(shared, starts=starts, ends=ends, times=times)
    return shared


def are_equal_windows(left: Relation, right: Relation) -> bool:
    """Whether the windows of two relations have the same kind, size and kind of time."""
    windows = window_columns(left), window_columns(right)
    if windows[0] is None or windows[1] is None:
        return False
    specs = (replace(each.shape, time=0, attached=None, partition=(), is_legacy=False) for each in windows if each)
    return len(set(specs)) == 1 and _are_moments(left) is _are_moments(right)


def is_window_time(relation: Relation, column: int) -> bool:
    """Whether a column is the time by which rows were assigned to their windows."""
    while not isinstance(relation, WindowAssign):
        if isinstance(relation, Project):
            expression = relation.expressions[column]
            if not isinstance(expression, Column):
                return False
            column = expression.index
        elif not isinstance(relation, Filter | Limit | WindowRank):
            return False
        relation = relation.input
    return column == relation.window.time


def _are_moments(relation: Relation) -> bool:
    """Whether rows were assigned to windows by instants, which are displayed as local times of the session's zone."""
    while not isinstance(relation, WindowAssign | WindowAggregate) or relation.window.attached is not None:
        relation = relation.inputs[0]
    return isinstance(relation.input.schema.types[relation.window.time], LocalZonedTimestampType)


def _projected(inside: WindowColumns, relation: Project) -> WindowColumns:
    def moved(columns: frozenset[int]) -> frozenset[int]:
        return frozenset(
            position
            for position, expression in enumerate(relation.expressions)
            if isinstance(expression, Column) and expression.index in columns
        )

    return replace(inside, starts=moved(inside.starts), ends=moved(inside.ends), times=moved(inside.times))
