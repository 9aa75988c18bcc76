"""Assigns rows to sessions. A session's bounds are known when it ends, so its rows are buffered until then.

A SESSION in FROM left by `recognise_windows` needs the rows themselves. It becomes a session aggregation by the
PARTITION BY columns that collects all rows in an array, and an UNNEST of the array.
"""

from __future__ import annotations

from millstream.planner.passes.buffered_rows import buffered_rows
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
    """Turns window functions of sessions into aggregations."""

    def rule(relation: Relation) -> Relation:
        if not isinstance(relation, WindowAssign) or relation.window.kind is not WindowKind.SESSION:
            return relation
        window = relation.window
        third = WindowProperty.TIME if window.time_kind is TimeKind.ROWTIME else WindowProperty.PROCTIME
        bounds = dict(zip((WindowProperty.START, WindowProperty.END, third), relation.schema.fields[-3:], strict=True))
        shape = WindowShape(window.kind, window.time, window.size_ms, time_kind=window.time_kind)
        return buffered_rows(relation.input, shape, window.partition, bounds, site=relation.site)

    return rewritten(sinks, rule)
