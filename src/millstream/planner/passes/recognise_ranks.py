"""Recognises Top-N: ROW_NUMBER() with a bound on it, ORDER BY with LIMIT, and in BATCH ORDER BY without LIMIT.

A filter that bounds the row number of each partition by a constant, directly above the OVER that computes it, is
Flink's Top-N (or deduplication, for the first row by a time). Other conditions stay above.

If the partition contains the window's start and end, each window's first rows are emitted once, at its end.
"""

from __future__ import annotations

from dataclasses import fields as fields_of
from dataclasses import replace

from millstream.errors import SqlError
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression
from millstream.planner.passes.rewriting import conjunction, conjuncts, rewritten
from millstream.planner.relations import Filter, Limit, Over, Rank, Relation, Sink, Sort
from millstream.planner.session import PlannerSession
from millstream.planner.traits.changes import GROWS, changes_of
from millstream.planner.traits.windows import is_window_time, window_columns
from millstream.planner.window_ranks import WindowRank
from millstream.sql.places import problem

__all__ = ["RANKED_MAX", "rank_in_windows", "recognise_ranks"]

RANKED_MAX = 2**31
"""A bound of this size includes all rows."""

_RANKS = ("ROW_NUMBER", "RANK", "DENSE_RANK")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def recognise_ranks(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Replaces queries for the first rows of an order by Rank."""

    def rule(relation: Relation) -> Relation:
        if isinstance(relation, Filter) and isinstance(relation.input, Over):
            relation = _of_filter(relation, relation.input)
        elif isinstance(relation, Limit):
            relation = _of_limit(relation, session)
        if isinstance(relation, Filter):
            return replace(relation, input=rank_in_windows(relation.input, is_batch=session.is_batch))
        return rank_in_windows(relation, is_batch=session.is_batch)

    def end(relation: Relation) -> Relation:
        return _of_sort(relation, session) if isinstance(relation, Sort) else relation

    return rewritten(rewritten(sinks, rule), end)


def rank_in_windows(relation: Relation, *, is_batch: bool) -> Relation:
    """Turns a Rank whose partitions are each within one window into a WindowRank; other relations are unchanged."""
    if type(relation) is not Rank or is_batch or changes_of(relation.input) != GROWS:
        return relation
    inside = window_columns(relation.input)
    if inside is None or not inside.are_all_in(relation.partition):
        return relation
    start_at, end_at = (
        next(at for at, column in enumerate(relation.partition) if column in bounds)
        for bounds in (inside.starts, inside.ends)
    )
    # Window deduplication orders by the windows' time attribute, and retains the last of equal rows, as in Flink.
    by_time = len(relation.order) == 1 and is_window_time(relation.input, relation.order[0].column)
    is_latest = by_time and relation.last == 1 and relation.order[0].descending
    values = {each.name: getattr(relation, each.name) for each in fields_of(relation)}
    return WindowRank(**values, bounds_at=(start_at, end_at), time_kind=inside.shape.time_kind, latest_first=is_latest)


def _of_filter(relation: Filter, over: Over) -> Relation:
    if len(over.calls) != 1 or over.calls[0].call.function not in _RANKS:
        return relation
    number = len(over.schema) - 1
    first, last = 1, RANKED_MAX
    others: list[RowExpression] = []
    for part in conjuncts(relation.condition):
        bounds = _bounds(part, number)
        if bounds is None:
            others.append(part)
        else:
            first, last = max(first, bounds[0]), min(last, bounds[1])
    if last == RANKED_MAX:
        return relation
    kind = over.calls[0].call.function
    rank = Rank(
        over.schema,
        over.input,
        over.partition,
        over.order,
        first,
        max(last, 0),
        kind,
        has_number=True,
        hints=over.hints,
        site=over.site,
    )
    condition = conjunction(others)
    return rank if condition is None else Filter(rank.schema, rank, condition)


def _bounds(part: RowExpression, number: int) -> tuple[int, int] | None:
    """The smallest and the largest row number that a condition admits; None if it does not concern the row number."""
    if not isinstance(part, Call) or part.function not in _MIRRORED or len(part.arguments) != 2:
        return None
    left, right = part.arguments
    function = part.function
    if isinstance(left, Literal):
        left, right, function = right, left, _MIRRORED[function]
    if not isinstance(left, Column) or left.index != number or not isinstance(right, Literal):
        return None
    if not isinstance(right.value, int):
        return None
    bound = right.value
    return {
        "<": (1, bound - 1),
        "<=": (1, bound),
        ">": (bound + 1, RANKED_MAX),
        ">=": (bound, RANKED_MAX),
        "=": (bound, bound),
    }[function]


def _of_limit(relation: Limit, session: PlannerSession) -> Relation:
    below = relation.input
    is_sorted = isinstance(below, Sort)
    if not is_sorted and (session.is_batch or changes_of(below) == GROWS):
        return relation  # any rows qualify: take the first to arrive
    order = below.keys if isinstance(below, Sort) else ()
    last = RANKED_MAX if relation.count is None else relation.offset + relation.count
    input_ = below.input if isinstance(below, Sort) else below
    return Rank(relation.schema, input_, (), order, relation.offset + 1, last, site=below.site)


def _of_sort(sort: Sort, session: PlannerSession) -> Relation:
    if session.is_batch:
        return Rank(sort.schema, sort.input, (), sort.keys, 1, RANKED_MAX, site=sort.site)
    fields = sort.schema.fields
    if sort.keys and fields[sort.keys[0].column].time is not None and not sort.keys[0].descending:
        return sort  # by time: rows are emitted in this order as time advances
    raise _refusal(sort)


def _refusal(sort: Sort) -> SqlError:
    return problem(
        "Sort on a non-time-attribute field is not supported. A stream has no last row: add a LIMIT, or use BATCH",
        getattr(sort.site, "span", None),
    )
