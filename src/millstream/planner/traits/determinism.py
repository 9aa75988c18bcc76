"""Columns whose value may differ between a row's insert and its delete.

A deleted row is computed again from the row below it. A nondeterministic function (RAND, NOW, or a user's function
declared as such) then computes a different row, and the inserted row is never deleted. This is harmless on the way to a
sink, but not upstream of an operator that stores or counts rows.
"""

from __future__ import annotations

from millstream.expressions.row_expressions import RowExpression, columns_of
from millstream.planner.passes.rewriting import is_deterministic
from millstream.planner.relations import Correlate, Filter, Limit, Project, Relation, SetOperation, Unnest
from millstream.planner.traits.changes import GROWS, changes_of

__all__ = ["changing_columns", "is_unsteady"]

Columns = frozenset[int]


def changing_columns(relation: Relation) -> Columns:
    """The columns of a relation whose value may have changed when the row is deleted."""
    if changes_of(relation) == GROWS:
        return frozenset()
    if isinstance(relation, Project):
        below = changing_columns(relation.input)
        return frozenset(at for at, each in enumerate(relation.expressions) if is_unsteady(each, below))
    if isinstance(relation, Filter | Limit):
        return changing_columns(relation.input)
    if isinstance(relation, SetOperation):
        return frozenset().union(*(changing_columns(each) for each in relation.branches))
    if isinstance(relation, Correlate | Unnest):
        below = changing_columns(relation.input)
        arguments = relation.arguments if isinstance(relation, Correlate) else (relation.collection,)
        added = frozenset(range(len(relation.input.schema), len(relation.schema)))
        if any(is_unsteady(each, below) for each in arguments):
            return below | added
        if relation.condition is not None and is_unsteady(relation.condition, below):
            return frozenset(range(len(relation.schema)))  # the number of rows may differ as well
        return below
    return frozenset()


def is_unsteady(expression: RowExpression, columns: Columns) -> bool:
    """Whether an expression may have a different value when recomputed; `columns` are the input's unsteady columns."""
    return not is_deterministic(expression) or bool(columns_of(expression) & columns)
