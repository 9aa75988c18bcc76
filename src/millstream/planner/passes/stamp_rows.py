"""Rows of an interval join have two times, and one travels beside them: who goes by the other has them stamped anew.

The time beside rows is that of the left one (with RIGHT, of the right one). A window over the other time attribute gets
its input with that one as the rows' time, and so does OVER in its order. The watermark waits for both.
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
"""Relations whose rows are those of their first input, with its columns before others, and a time beside them."""


def stamp_rows(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Stamp the rows of those who go by another time than the one beside their rows."""

    def rule(relation: Relation) -> Relation:
        column = _time_gone_by(relation, is_batch=session.is_batch)
        if column is None or not isinstance(relation, WindowAssign | WindowAggregate | Over):
            return relation
        below = relation.input
        if _time_beside(below, is_batch=session.is_batch) in (None, column):
            return relation
        return replace(relation, input=Stamp(below.schema, below, column))

    return rewritten(sinks, rule)


def _time_gone_by(relation: Relation, *, is_batch: bool) -> int | None:
    """The column of event time by which a relation takes the rows of its input; None: it goes by none, or by theirs. In
    BATCH rows are sorted by the column itself."""
    if isinstance(relation, Over):
        return relation.order[0].column if time_order(relation) is TimeKind.ROWTIME and not is_batch else None
    if not isinstance(relation, WindowAssign | WindowAggregate):
        return None
    window = relation.window
    return window.time if window.attached is None and window.time_kind is TimeKind.ROWTIME else None


def _time_beside(relation: Relation, *, is_batch: bool) -> int | None:
    """The column whose time travels beside rows that have two; -1: it is no column any more, or not known which. None
    of all others."""
    if isinstance(relation, IntervalJoin):
        interval = interval_of(relation)
        assert interval is not None
        left, right = interval.times
        return len(relation.left.schema) + right if relation.kind is JoinKind.RIGHT else left
    if isinstance(relation, Stamp):
        return relation.column
    if not isinstance(relation, _ONE_BY_ONE):
        return None
    beside = _time_beside(relation.inputs[0], is_batch=is_batch)
    if beside is None:
        return None
    if isinstance(relation, Over) and is_batch:
        return -1
    if isinstance(relation, Over) and time_order(relation) is TimeKind.ROWTIME:
        return relation.order[0].column
    if isinstance(relation, TemporalJoin):
        return version_of(relation)[0][0]
    if isinstance(relation, Project):
        places = (
            at for at, each in enumerate(relation.expressions) if isinstance(each, Column) and each.index == beside
        )
        return next(places, -1)
    return beside
