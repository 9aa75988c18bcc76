"""Merges projections over projections, and removes those without effect.

A projection that computes something and has other consumers is retained, so that it is computed once.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.row_expressions import Call, Column, walk
from millstream.planner.passes.rewriting import IsShared, can_be_substituted, is_plain, rewritten_by_uses, substituted
from millstream.planner.relations import (
    Aggregate,
    Project,
    Relation,
    SetOperation,
    Sink,
    Unnest,
    Values,
    WindowAggregate,
    WindowAssign,
)
from millstream.planner.session import PlannerSession

__all__ = ["merge_projections"]

_DRAWING = ("RAND", "RAND_INTEGER")
_FREELY_NAMED = (Project, Values, Aggregate, WindowAggregate, SetOperation, Unnest, WindowAssign)
"""Relations whose column names follow their schema."""


def merge_projections(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Merges nested projections."""

    def rule(relation: Relation, is_shared: IsShared) -> Relation:
        if not isinstance(relation, Project):
            return relation
        merged = relation
        while isinstance(merged.input, Project) and _may_merge(merged, merged.input, is_shared(merged.input)):
            inner = merged.input
            expressions = tuple(substituted(each, inner.expressions) for each in merged.expressions)
            merged = replace(merged, input=inner.input, expressions=expressions)
        if isinstance(merged.input, Values) and not is_shared(merged.input) and _may_enter(merged, merged.input):
            rows = tuple(tuple(substituted(each, row) for each in merged.expressions) for row in merged.input.rows)
            return Values(merged.schema, rows)
        return _without_identity(merged, is_shared(merged.input))

    return rewritten_by_uses(sinks, rule)


def _may_merge(outer: Project, inner: Project, is_shared: bool) -> bool:
    if is_shared and not all(is_plain(each) for each in inner.expressions):
        return False
    return can_be_substituted(inner.expressions, outer.expressions)


def _may_enter(outer: Project, values: Values) -> bool:
    """Whether an expression may be merged upwards: RAND() read twice must stay one number, RAND(1) one per row."""
    parts = (part for each in outer.expressions for part in walk(each))
    if len(values.rows) > 1 and any(isinstance(part, Call) and part.function in _DRAWING for part in parts):
        return False
    return all(can_be_substituted(row, outer.expressions) for row in values.rows)


def _without_identity(relation: Project, is_shared: bool) -> Relation:
    """Replaces a projection that only passes on its input by the input, renamed if its names can be changed."""
    inner = relation.input
    is_same = len(relation.expressions) == len(inner.schema) and all(
        isinstance(each, Column) and each.index == index for index, each in enumerate(relation.expressions)
    )
    if not is_same:
        return relation
    if relation.schema == inner.schema:
        return inner
    if isinstance(inner, _FREELY_NAMED) and not is_shared and relation.schema.types == inner.schema.types:
        return replace(inner, schema=relation.schema)
    return relation
