"""Restamps rows of interval joins for consumers that use the other of the two time attributes.

Batches carry one timestamp per row: the left one (with RIGHT, the right one). A window over the other time attribute,
or an OVER ordered by it, reads its input restamped with that attribute. The watermark is the minimum of both.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.row_expressions import Column
from millstream.planner.changing_relations import LookupJoin
from millstream.planner.passes.rewriting import rewritten
from millstream.planner.relations import (
    Correlate,
    Filter,
    JoinKind,
    Limit,
    Over,
    Project,
    Relation,
    SetOperation,
    Sink,
    TimeKind,
    Unnest,
    WindowAggregate,
    WindowAssign,
)
from millstream.planner.session import PlannerSession
from millstream.planner.time_joins import IntervalJoin, Stamp, TemporalJoin, WindowJoin
from millstream.planner.traits.intervals import interval_of, version_of
from millstream.planner.traits.time_orders import time_order
from millstream.planner.traits.windows import window_columns
from millstream.planner.window_ranks import WindowRank

__all__ = ["stamp_rows"]

_ONE_BY_ONE = (Filter, Limit, Unnest, Correlate, Project, LookupJoin, Over, TemporalJoin, WindowRank)
"""Relations that pass on the rows of their first input, its columns first, together with the rows' time."""


def stamp_rows(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Restamps the inputs of relations that use another time attribute than the rows' timestamp."""

    def rule(relation: Relation) -> Relation:
        column = _time_column(relation, is_batch=session.is_batch)
        if column is None or not isinstance(relation, WindowAssign | WindowAggregate | Over):
            return relation
        below = relation.input
        if _timestamp_column(below, is_batch=session.is_batch) in (None, column):
            return relation
        return replace(relation, input=Stamp(below.schema, below, column))

    return rewritten(sinks, rule)


def _time_column(relation: Relation, *, is_batch: bool) -> int | None:
    """The event-time column by which a relation processes its input's rows; None if it uses no such column, or the
    rows' timestamps. BATCH sorts rows by the column itself."""
    if isinstance(relation, Over):
        return relation.order[0].column if time_order(relation) is TimeKind.ROWTIME and not is_batch else None
    if not isinstance(relation, WindowAssign | WindowAggregate):
        return None
    window = relation.window
    return window.time if window.attached is None and window.time_kind is TimeKind.ROWTIME else None


def _timestamp_column(relation: Relation, *, is_batch: bool) -> int | None:
    """For rows with two times, the column that equals their timestamp; -1 if it was dropped or is unknown. None for all
    other rows."""
    if isinstance(relation, IntervalJoin):
        interval = interval_of(relation)
        assert interval is not None
        left, right = interval.times
        return len(relation.left.schema) + right if relation.kind is JoinKind.RIGHT else left
    if isinstance(relation, Stamp):
        return relation.column
    if isinstance(relation, WindowJoin):
        return _time_of_window_join(relation)
    if isinstance(relation, SetOperation):
        return _time_of_union(relation, is_batch=is_batch)
    if not isinstance(relation, _ONE_BY_ONE):
        return None
    column = _timestamp_column(relation.inputs[0], is_batch=is_batch)
    if column is None:
        return None
    if isinstance(relation, Over) and is_batch:
        return -1
    if isinstance(relation, Over) and time_order(relation) is TimeKind.ROWTIME:
        return relation.order[0].column
    if isinstance(relation, TemporalJoin):
        return version_of(relation)[0][0]
    if isinstance(relation, Project):
        places = (
            at for at, each in enumerate(relation.expressions) if isinstance(each, Column) and each.index == column
        )
        return next(places, -1)
    return column


def _time_of_window_join(relation: WindowJoin) -> int | None:
    """The window time of the side that is never NULL; -1 for FULL, where either may be NULL. In an inner join both
    sides' window times equal the rows' timestamp."""
    if relation.kind in (JoinKind.INNER, JoinKind.SEMI, JoinKind.ANTI):
        return None
    windows = window_columns(relation)
    return -1 if windows is None else min(windows.times, default=-1)


def _time_of_union(relation: SetOperation, *, is_batch: bool) -> int | None:
    """The column that holds the rows' timestamp in every branch with two times; -1 if branches differ."""
    columns = {_timestamp_column(branch, is_batch=is_batch) for branch in relation.branches} - {None}
    return next(iter(columns), None) if len(columns) < 2 else -1
