"""Filters go down: through projections, unions, unnesting and window functions, to where rows are made.

A filter does not pass a watermark: rows it would take out still move time on. It does not pass what others use as
well, for then that would be computed twice.
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
    is_deterministic,
    moved,
    only_uses,
    substituted,
    tells_keys_apart,
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
    """Put every filter as low as it can go."""
    used = consumers(sinks)
    done: dict[int, tuple[Relation, Relation]] = {}

    def visit(relation: Relation) -> Relation:
        held = done.get(id(relation))
        if held is None:
            held = done[id(relation)] = (relation, pushed(relation, []))
        return held[1]

    def pushed(relation: Relation, parts: Parts) -> Relation:
        """The relation with a filter of these parts, over its columns, as low as possible."""
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
        """An input with a filter: pushed into it, unless others use it, too."""
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
    # What is said twice is asked once; but RAND() < 0.5 is another question each time.
    asked = {part if is_deterministic(part) else (part, place): part for place, part in enumerate(parts)}
    condition = conjunction(list(asked.values()))
    return relation if condition is None else Filter(relation.schema, relation, condition)


# --- what of a filter passes a relation, and what stays above it ------------------------------------------------------


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
    """Columns of the input come first, and are the same in every row made of one."""
    width: Collection[int] = range(len(relation.input.schema))
    if isinstance(relation, WindowAssign) and relation.window.kind is WindowKind.SESSION:
        width = relation.window.partition  # a row that is left out might have joined two sessions
    is_kept = getattr(relation, "kind", JoinKind.INNER) is JoinKind.INNER or isinstance(relation, WindowAssign)
    if not is_kept and getattr(relation, "kind", None) is not JoinKind.LEFT:
        return [], parts
    lower = [part for part in parts if only_uses(part, width) and is_deterministic(part)]
    if isinstance(relation, WindowAssign) and relation.window.kind is WindowKind.SESSION:
        lower = [part for part in lower if not tells_keys_apart(part)]
    return lower, [part for part in parts if part not in lower]


def _through_join(relation: Join, parts: Parts) -> tuple[Parts, Parts, Parts, Parts]:
    """What goes into the left side, into the right one, into the condition, and what stays above. A side whose rows
    come without a partner, too, is not filtered by the condition, nor the other one by what stands above. What stands
    above a temporal join is of the version that was found, and must not find another one."""
    kind, width = relation.kind, len(relation.left.schema)
    left_only, both = range(width), range(width, width + len(relation.right.schema))
    if isinstance(relation, TemporalJoin):
        both = range(0)  # a version that is filtered out would be taken for no version, and the one before it be seen
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
    """A condition on groups alone takes out whole groups."""
    if not relation.groups or getattr(relation, "sets", None):
        return [], parts
    groups = range(len(relation.groups))
    window = window_columns(relation)
    # What is said of the window stays above: below, it would keep rows from being aggregated by panes.
    said_of_window = window.all if window is not None else frozenset()
    lower, upper = [], []
    for part in parts:
        used = columns_of(part)
        is_of_groups = used and not used & said_of_window and only_uses(part, groups)
        if is_of_groups and is_deterministic(part) and not tells_keys_apart(part):
            lower.append(moved(part, dict(enumerate(relation.groups))))
        else:
            upper.append(part)
    return lower, upper


def _through_lookup(relation: LookupJoin, parts: Parts) -> tuple[Parts, Parts]:
    """What is said of the input alone needs no looking up."""
    width = range(len(relation.input.schema))
    lower = [part for part in parts if columns_of(part) and only_uses(part, width) and is_deterministic(part)]
    return lower, [part for part in parts if part not in lower]


def _of_columns(columns: tuple[int, ...], parts: Parts) -> tuple[Parts, Parts]:
    """A condition on the key of rows, or on their partition, takes out all that has it."""
    lower = [
        part
        for part in parts
        if columns_of(part) and only_uses(part, columns) and is_deterministic(part) and not tells_keys_apart(part)
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
