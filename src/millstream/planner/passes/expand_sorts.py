"""ORDER BY a time, in a stream: rows wait until event time has passed them, and come in its order.

The rows of a millisecond are those of a window of one, without a key: windows that are over at once come in the order
of their ends, from one task. Rows of one moment come by the other keys of the order, then as they came. Late rows are
dropped, as windows drop them. By processing time rows are in order as they come.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.planner.not_yet import not_yet
from millstream.planner.passes.kept_rows import kept_rows
from millstream.planner.passes.rewriting import rewritten
from millstream.planner.relations import Relation, Sink, Sort, TimeKind, WindowKind, WindowShape
from millstream.planner.session import PlannerSession

__all__ = ["expand_sorts"]


def expand_sorts(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Turn what `recognise_ranks` has left of ORDER BY, which goes by a time first, into windows of a moment."""

    def rule(relation: Relation) -> Relation:
        return _sorted(relation) if isinstance(relation, Sort) else relation

    return rewritten(sinks, rule)


def _sorted(sort: Sort) -> Relation:
    first, *others = sort.keys
    if sort.input.schema.fields[first.column].time is TimeKind.PROCTIME:
        if others:
            raise not_yet("ORDER BY processing time and more", getattr(sort.site, "span", None))
        return sort.input
    made = kept_rows(sort.input, WindowShape(WindowKind.TUMBLE, first.column, 1), order=tuple(others), site=sort.site)
    return replace(made, schema=sort.schema)
