"""Restamps rows of interval joins for consumers that use the other of the two time attributes.

Batches carry one timestamp per row: the left one (with RIGHT, the right one). A window over the other time attribute
reads its input restamped with it, and so does OVER ordered by it. The watermark waits for both.
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
    Sink,
    TimeKind,
    Unnest,
    WindowAggregate,
    WindowAssign,
)
from millstream.planner.session import PlannerSession
from millstream.planner.time_joins import IntervalJoin, Stamp, TemporalJoin
from millstream.planner.traits.intervals import interval_of, version_of
from millstream.planner.traits.time_orders import time_order

__all__ = ["stamp_rows"]

_ONE_BY_ONE = (Filter, Limit, Unnest, Correlate, Project, LookupJoin, Over, TemporalJoin)
"""Relations whose rows are those of their first input, with its columns first and its timestamps."""


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
    """The column of event time by which a relation processes its input's rows; None if it uses none, or their
    timestamps. BATCH sorts rows by the column itself."""
    if isinstance(relation, Over):
        return relation.order[0].column if time_order(relation) is TimeKind.ROWTIME and not is_batch else None
    if not isinstance(relation, WindowAssign | WindowAggregate):
        return None
    window = relation.window
    return window.time if window.attached is None and window.time_kind is TimeKind.ROWTIME else None


def _timestamp_column(relation: Relation, *, is_batch: bool) -> int | None:
    """The column of the rows' timestamps, for rows with two times; -1 if it is no longer a column, or unknown. None for
    all other rows."""
    if isinstance(relation, IntervalJoin):
        interval = interval_of(relation)
        assert interval is not None
        left, right = interval.times
        return len(relation.left.schema) + right if relation.kind is JoinKind.RIGHT else left
    if isinstance(relation, Stamp):
        return relation.column
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
