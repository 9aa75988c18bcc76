"""ORDER BY a time in a stream: buffers rows until event time has passed them, and emits them in its order.

The rows of a millisecond form a window of one millisecond without a key: windows that end together are emitted in order
of their ends, from one task. Rows with equal times are ordered by the other sort keys, then by arrival. Late rows are
dropped, as in any window. In processing time rows already arrive in order.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.planner.not_yet import not_yet
from millstream.planner.passes.buffered_rows import buffered_rows
from millstream.planner.passes.rewriting import rewritten
from millstream.planner.relations import Relation, Sink, Sort, TimeKind, WindowKind, WindowShape
from millstream.planner.session import PlannerSession

__all__ = ["expand_sorts"]


def expand_sorts(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Turns each Sort by a time that `recognise_ranks` left into windows of one millisecond."""

    def rule(relation: Relation) -> Relation:
        return _sorted(relation) if isinstance(relation, Sort) else relation

    return rewritten(sinks, rule)


def _sorted(sort: Sort) -> Relation:
    first, *others = sort.keys
    if sort.input.schema.fields[first.column].time is TimeKind.PROCTIME:
        if others:
            raise not_yet("ORDER BY processing time and more", getattr(sort.site, "span", None))
        return sort.input
    made = buffered_rows(
        sort.input, WindowShape(WindowKind.TUMBLE, first.column, 1), order=tuple(others), site=sort.site
    )
    return replace(made, schema=sort.schema)
