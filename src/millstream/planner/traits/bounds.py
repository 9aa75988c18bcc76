"""Columns bounded by the watermark: no later row, late ones included, has a smaller value.

A window that has ended emits no further row and drops late ones: the window end of later rows exceeds the watermark, as
do the columns that the window derives from its rows. A rowtime is not bounded, because rows may arrive late and only
windows drop them. A group or a partition changes only when one of its rows arrives.
"""

from __future__ import annotations

from millstream.expressions.types import LocalZonedTimestampType
from millstream.planner.relations import (
    Aggregate,
    Correlate,
    Filter,
    Limit,
    Project,
    Rank,
    Relation,
    SetOperation,
    TimeKind,
    Unnest,
    WindowAggregate,
    WindowAssign,
    WindowKind,
    WindowProperty,
    WindowShape,
)
from millstream.planner.time_joins import WindowJoin
from millstream.planner.traits.times import time_term
from millstream.planner.traits.windows import window_columns
from millstream.planner.window_ranks import WindowRank

__all__ = ["Bounds", "bounded_columns", "window_bounds"]

_UTC = ("UTC", "Z", "GMT")

Bounds = dict[int, int]
"""Column → milliseconds: once event time reaches W, all later values are at least W plus this."""


def bounded_columns(relation: Relation, zone: str) -> Bounds:
    """The bounded columns of a relation; `zone` is the session's."""
    if isinstance(relation, WindowAggregate):
        return _of_windows(relation, zone)
    if isinstance(relation, WindowJoin | WindowRank):
        return _of_rows(relation, zone)
    if isinstance(relation, Filter | Limit | Unnest | Correlate | WindowAssign):
        return bounded_columns(relation.input, zone)
    if isinstance(relation, Project):
        return _projected(relation, bounded_columns(relation.input, zone))
    if isinstance(relation, Aggregate | Rank):
        below = bounded_columns(relation.input, zone)
        if isinstance(relation, Aggregate):
            return {at: below[group] for at, group in enumerate(relation.groups) if group in below}
        return {column: below[column] for column in relation.partition if column in below}
    if isinstance(relation, SetOperation) and relation.all and relation.kind == "UNION":
        branches = [bounded_columns(each, zone) for each in relation.branches]
        shared = set(branches[0]).intersection(*branches)
        return {column: min(bounds[column] for bounds in branches) for column in shared}
    return {}


def _of_rows(relation: WindowJoin | WindowRank, zone: str) -> Bounds:
    """A window that has ended emits no further pairs or ranked rows."""
    inside = window_columns(relation)
    if inside is None or inside.shape.time_kind is not TimeKind.ROWTIME:
        return {}
    # The windows may be aligned to the zone's local time, which is not known here: then only the window's time is
    # bounded.
    is_known = zone in _UTC
    bounds = dict.fromkeys(inside.times, 1)
    return bounds | {column: 2 for column in inside.ends if is_known}


def _projected(relation: Project, below: Bounds) -> Bounds:
    terms = ((at, time_term(each)) for at, each in enumerate(relation.expressions))
    return {at: below[term.column] + term.offset_ms for at, term in terms if term is not None and term.column in below}


def _of_windows(relation: WindowAggregate, zone: str) -> Bounds:
    first = len(relation.groups) + len(relation.calls)
    by_property = window_bounds(relation.window, relation.input, zone)
    return {first + at: by_property[each] for at, each in enumerate(relation.properties) if each in by_property}


def window_bounds(window: WindowShape, below: Relation, zone: str) -> dict[WindowProperty, int]:
    """Bounds of window properties, for windows emitted at their end. At watermark W, windows with a last millisecond ≤
    W have ended."""
    if window.time_kind is not TimeKind.ROWTIME:
        return {}
    bounds = {WindowProperty.TIME: 1}
    is_zoned = isinstance(below.schema.types[window.time], LocalZonedTimestampType)
    if is_zoned and zone not in _UTC:
        return bounds  # local times there differ from the watermark's
    bounds[WindowProperty.END] = 2
    if window.kind is not WindowKind.SESSION:
        bounds[WindowProperty.START] = 2 - window.size_ms
    return bounds
