"""Rows with the session they are in: a session is known when it is over, so its rows are kept until then.

What is left of SESSION in FROM after `recognise_windows` wants the rows themselves. They are an aggregation in sessions
by the columns of PARTITION BY, of an array of all rows, which is unnested.
"""

from __future__ import annotations

from millstream.planner.passes.kept_rows import kept_rows
from millstream.planner.passes.rewriting import rewritten
from millstream.planner.relations import (
    Relation,
    Sink,
    TimeKind,
    WindowAssign,
    WindowKind,
    WindowProperty,
    WindowShape,
)
from millstream.planner.session import PlannerSession

__all__ = ["expand_sessions"]


def expand_sessions(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Turn window functions of sessions into aggregations."""

    def rule(relation: Relation) -> Relation:
        if not isinstance(relation, WindowAssign) or relation.window.kind is not WindowKind.SESSION:
            return relation
        window = relation.window
        third = WindowProperty.TIME if window.time_kind is TimeKind.ROWTIME else WindowProperty.PROCTIME
        bounds = dict(zip((WindowProperty.START, WindowProperty.END, third), relation.schema.fields[-3:], strict=True))
        shape = WindowShape(window.kind, window.time, window.size_ms, time_kind=window.time_kind)
        return kept_rows(relation.input, shape, window.partition, bounds, site=relation.site)

    return rewritten(sinks, rule)
