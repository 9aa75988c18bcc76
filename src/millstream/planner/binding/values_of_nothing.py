"""What an aggregation without GROUP BY gives of no rows: one row all the same, in which COUNT is 0 and others are NULL.

A query as a value becomes a join with its groups, or with its one row. Where there are no rows there is no group, and
in a stream no row yet; what the query says then must be said beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.expressions.row_expressions import Call, Literal, RowExpression, columns_of
from millstream.planner.not_yet import not_yet
from millstream.planner.passes.fold_constants import folded
from millstream.planner.passes.rewriting import is_deterministic, substituted
from millstream.planner.relations import Aggregate, Filter, Project, Relation
from millstream.planner.session import PlannerSession
from millstream.sql.syntax import Node

__all__ = ["is_total", "value_of_nothing"]

_COUNTS = frozenset({"COUNT", "APPROX_COUNT_DISTINCT"})
_PICKED = frozenset({"MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "LISTAGG", "ARRAY_AGG"})
_COMPUTED = frozenset({"SUM", "AVG", "VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV_POP", "STDDEV_SAMP", "STDDEV"})
_ABSENT = _PICKED | _COMPUTED
"""Aggregates that are NULL of no rows. Others are not known here."""


def is_total(relation: Relation) -> bool:
    """Whether it is an aggregation without GROUP BY, and what is computed of its row."""
    while isinstance(relation, Project | Filter):
        relation = relation.input
    return isinstance(relation, Aggregate) and not relation.groups and relation.sets is None


def value_of_nothing(
    relation: Relation, session: PlannerSession, node: Node, *, is_correlated: bool
) -> RowExpression | None:
    """The value of a query of one column, where its aggregation has no rows; None: it is NULL, or not known here."""
    row = _row_of_nothing(relation)
    value = None if row is None else folded(row[0], session)
    if value is None or (isinstance(value, Literal) and value.value is None):
        return None
    if not _has_condition(relation):
        return value
    if is_correlated:  # a group that HAVING leaves out would look as if there were none
        raise not_yet("HAVING that holds of no rows, in a query as a value", node, "write it as CASE in its SELECT")
    return None


def _has_condition(relation: Relation) -> bool:
    """Whether what it computes of the aggregation's row may leave that out."""
    while isinstance(relation, Project):
        relation = relation.input
    return isinstance(relation, Filter)


def _row_of_nothing(relation: Relation) -> Sequence[RowExpression] | None:
    if isinstance(relation, Aggregate):
        if relation.groups or relation.sets is not None:
            return None
        names = [call.function.upper() for call in relation.calls]
        if not all(name in _COUNTS or name in _ABSENT for name in names):
            return None
        return [
            Literal(call.type, 0) if name in _COUNTS else Literal(call.type.nullable(), None)
            for call, name in zip(relation.calls, names, strict=True)
        ]
    if not isinstance(relation, Project | Filter):
        return None
    below = _row_of_nothing(relation.input)
    expressions = relation.expressions if isinstance(relation, Project) else (relation.condition,)
    if below is None or not all(_can_be_said(each, len(below)) for each in expressions):
        return None
    said = [substituted(each, below) for each in expressions]
    if isinstance(relation, Project):
        return said
    # HAVING: without it there is no row, and the value is NULL.
    return [Call(each.type.nullable(), "CASE", (*said, each, Literal(each.type.nullable(), None))) for each in below]


def _can_be_said(expression: RowExpression, width: int) -> bool:
    """Whether it is computed of the row alone."""
    return is_deterministic(expression) and all(column < width for column in columns_of(expression))
