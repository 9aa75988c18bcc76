"""Pushes filters down through projections, unions, unnesting and window functions, towards the sources.

A filter is not pushed below a watermark, because rows that it drops must still advance event time, nor below a relation
with other consumers, which would then be computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from millstream.expressions.row_expressions import RowExpression, columns_of
from millstream.planner.changing_relations import LookupJoin, Normalise
from millstream.planner.passes.rewriting import (
    can_be_substituted,
    conjunction,
    conjuncts,
    consumers,
    distinguishes_equal_keys,
    is_deterministic,
    moved,
    only_uses,
    substituted,
)
from millstream.planner.relations import (
    Aggregate,
    Correlate,
    Filter,
    Join,
    JoinKind,
    Over,
    Project,
    Relation,
    SetOperation,
    Sink,
    Unnest,
    WindowAggregate,
    WindowAssign,
    WindowKind,
)
from millstream.planner.session import PlannerSession
from millstream.planner.time_joins import TemporalJoin
from millstream.planner.traits.intervals import selects_version
from millstream.planner.traits.windows import window_columns

__all__ = ["push_filters"]

Parts = list[RowExpression]


def push_filters(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Pushes every filter as low as possible."""
    used = consumers(sinks)
    done: dict[int, tuple[Relation, Relation]] = {}

    def visit(relation: Relation) -> Relation:
        entry = done.get(id(relation))
        if entry is None:
            entry = done[id(relation)] = (relation, pushed(relation, []))
        return entry[1]

    def pushed(relation: Relation, parts: Parts) -> Relation:
        """The relation with these conjuncts, over its columns, filtered as low as possible."""
        if isinstance(relation, Filter) and (not parts or used[id(relation)] <= 1):
            return below(relation.input, [*conjuncts(relation.condition), *parts])
        if isinstance(relation, Join):
            lefts, rights, joining, upper = _through_join(relation, parts)
            both = [below(relation.left, lefts), below(relation.right, rights)]
            joined = replace(relation.with_inputs(*both), condition=conjunction(joining))  # type: ignore[call-arg]
            return _filter(joined, upper)
        split = _SPLITS.get(type(relation))
        if split is None:
            renewed = [visit(each) for each in relation.inputs]
            return _filter(_renewed(relation, renewed), parts)
        lower, upper = split(relation, parts)
        return _filter(_renewed(relation, [below(each, lower) for each in relation.inputs]), upper)

    def below(relation: Relation, parts: Parts) -> Relation:
        """Filters an input; the filter is pushed into it unless it has other consumers."""
        if not parts:
            return visit(relation)
        if used[id(relation)] > 1:
            return _filter(visit(relation), parts)
        return pushed(relation, parts)

    return tuple(replace(sink, input=visit(sink.input)) for sink in sinks)


def _renewed(relation: Relation, inputs: list[Relation]) -> Relation:
    same = all(new is old for new, old in zip(inputs, relation.inputs, strict=True))
    return relation if same else relation.with_inputs(*inputs)


def _filter(relation: Relation, parts: Parts) -> Relation:
    # Repeated conjuncts are evaluated once, unless nondeterministic: each RAND() < 0.5 is evaluated separately.
    distinct_parts = {part if is_deterministic(part) else (part, place): part for place, part in enumerate(parts)}
    condition = conjunction(list(distinct_parts.values()))
    return relation if condition is None else Filter(relation.schema, relation, condition)


# --- which conjuncts pass below a relation, and which stay above ------------------------------------------------------


def _through_project(relation: Project, parts: Parts) -> tuple[Parts, Parts]:
    lower, upper = [], []
    for part in parts:
        used = columns_of(part)
        is_free = is_deterministic(part) and all(is_deterministic(relation.expressions[column]) for column in used)
        if is_free and can_be_substituted(relation.expressions, [part]):
            lower.append(substituted(part, relation.expressions))
        else:
            upper.append(part)
    return lower, upper


def _through_union(relation: SetOperation, parts: Parts) -> tuple[Parts, Parts]:
    return (parts, []) if relation.kind == "UNION" and relation.all else ([], parts)


def _through_rows(relation: Unnest | Correlate | WindowAssign, parts: Parts) -> tuple[Parts, Parts]:
    """For relations whose first columns are the input's, with equal values in all rows derived from one input row."""
    width: Collection[int] = range(len(relation.input.schema))
    if isinstance(relation, WindowAssign) and relation.window.kind is WindowKind.SESSION:
        width = relation.window.partition  # a dropped row might have joined two sessions
    is_inner = getattr(relation, "kind", JoinKind.INNER) is JoinKind.INNER or isinstance(relation, WindowAssign)
    if not is_inner and getattr(relation, "kind", None) is not JoinKind.LEFT:
        return [], parts
    lower = [part for part in parts if only_uses(part, width) and is_deterministic(part)]
    if isinstance(relation, WindowAssign) and relation.window.kind is WindowKind.SESSION:
        lower = [part for part in lower if not distinguishes_equal_keys(part)]
    return lower, [part for part in parts if part not in lower]


def _through_join(relation: Join, parts: Parts) -> tuple[Parts, Parts, Parts, Parts]:
    """Splits conjuncts for the left side, the right side, the condition, and above. The condition cannot filter a side
    that is also emitted unmatched, and a filter above cannot be applied to the other side. A filter above a temporal
    join applies to the matched version, and must not select another."""
    kind, width = relation.kind, len(relation.left.schema)
    left_only, both = range(width), range(width, width + len(relation.right.schema))
    if isinstance(relation, TemporalJoin):
        both = range(0)  # filtering versions below would expose the previous version
    lefts: Parts = []
    rights: Parts = []
    joining: Parts = []
    upper: Parts = []
    for part in conjuncts(relation.condition) if relation.condition is not None else []:
        is_free = is_deterministic(part) and bool(columns_of(part))
        if is_free and only_uses(part, left_only) and kind not in (JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI):
            lefts.append(part)
        elif is_free and only_uses(part, both) and kind not in (JoinKind.RIGHT, JoinKind.FULL):
            rights.append(moved(part, {column: column - width for column in columns_of(part)}))
        else:
            joining.append(part)
    for part in parts:
        is_free = is_deterministic(part) and bool(columns_of(part))
        if is_free and only_uses(part, left_only) and kind not in (JoinKind.RIGHT, JoinKind.FULL):
            lefts.append(part)
        elif is_free and only_uses(part, both) and kind in (JoinKind.INNER, JoinKind.RIGHT):
            rights.append(moved(part, {column: column - width for column in columns_of(part)}))
        elif is_free and kind is JoinKind.INNER and not (isinstance(relation, TemporalJoin) and selects_version(part)):
            joining.append(part)
        else:
            upper.append(part)
    return lefts, rights, joining, upper


def _through_groups(relation: Aggregate | WindowAggregate, parts: Parts) -> tuple[Parts, Parts]:
    """A condition that uses only group columns drops whole groups."""
    if not relation.groups or getattr(relation, "sets", None):
        return [], parts
    groups = range(len(relation.groups))
    window = window_columns(relation)
    # Conditions on the window stay above: below it they would prevent aggregation by panes.
    window_parts = window.all if window is not None else frozenset()
    lower, upper = [], []
    for part in parts:
        used = columns_of(part)
        is_of_groups = used and not used & window_parts and only_uses(part, groups)
        if is_of_groups and is_deterministic(part) and not distinguishes_equal_keys(part):
            lower.append(moved(part, dict(enumerate(relation.groups))))
        else:
            upper.append(part)
    return lower, upper


def _through_lookup(relation: LookupJoin, parts: Parts) -> tuple[Parts, Parts]:
    """Conditions that use only the input are checked before the lookup."""
    width = range(len(relation.input.schema))
    lower = [part for part in parts if columns_of(part) and only_uses(part, width) and is_deterministic(part)]
    return lower, [part for part in parts if part not in lower]


def _of_columns(columns: tuple[int, ...], parts: Parts) -> tuple[Parts, Parts]:
    """A condition that uses only the key or partition columns drops all rows of a key."""
    lower = [
        part
        for part in parts
        if columns_of(part)
        and only_uses(part, columns)
        and is_deterministic(part)
        and not distinguishes_equal_keys(part)
    ]
    return lower, [part for part in parts if part not in lower]


_SPLITS: dict[type, Callable[..., tuple[Parts, Parts]]] = {
    Project: _through_project,
    SetOperation: _through_union,
    Unnest: _through_rows,
    Correlate: _through_rows,
    WindowAssign: _through_rows,
    Aggregate: _through_groups,
    Over: lambda relation, parts: _of_columns(relation.partition, parts),
    WindowAggregate: _through_groups,
    Normalise: lambda relation, parts: _of_columns(relation.keys, parts),
    LookupJoin: _through_lookup,
}
