"""Rows of an interval join have two times, and one travels beside them: who goes by the other has them stamped anew.

The time beside rows is that of the left one (with RIGHT, of the right one). A window over the other time attribute gets
its input with that one as the rows' time. The watermark waits for both.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.row_expressions import Column
from millstream.planner.passes.rewriting import rewritten
from millstream.planner.relations import (
    Correlate,
    Filter,
    JoinKind,
    Limit,
    Project,
    Relation,
    Sink,
    TimeKind,
    Unnest,
    WindowAggregate,
    WindowAssign,
)
from millstream.planner.session import PlannerSession
from millstream.planner.time_joins import IntervalJoin, Stamp
from millstream.planner.traits.intervals import interval_of

__all__ = ["stamp_rows"]


def stamp_rows(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Stamp the rows of windows that go by another time than the one beside their rows."""

    def rule(relation: Relation) -> Relation:
        if not isinstance(relation, WindowAssign | WindowAggregate):
            return relation
        window = relation.window
        if window.attached is not None or window.time_kind is not TimeKind.ROWTIME:
            return relation
        below = relation.input
        if not _is_other_time(below, window.time):
            return relation
        return replace(relation, input=Stamp(below.schema, below, window.time))

    return rewritten(sinks, rule)


def _is_other_time(relation: Relation, column: int) -> bool:
    """Whether a column is a time of an interval join's that is not beside its rows."""
    while not isinstance(relation, IntervalJoin):
        if isinstance(relation, Project):
            expression = relation.expressions[column]
            if not isinstance(expression, Column):
                return False
            column = expression.index
        elif not isinstance(relation, Filter | Limit | Unnest | Correlate):
            return False
        relation = relation.inputs[0]
    interval = interval_of(relation)
    assert interval is not None
    left, right = interval.times
    beside = len(relation.left.schema) + right if relation.kind is JoinKind.RIGHT else left
    return column != beside
