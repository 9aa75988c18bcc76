"""Columns that may have another value when a row goes than they had when it came.

A row that is taken away is computed again, from the row below it. A function that has another value each time (RAND,
NOW, a function of the program's that says so) then makes another row of it, and what was added never goes. That does
no harm up to a sink; before anything that keeps rows, or counts them, it does.
"""

from __future__ import annotations

from millstream.expressions.row_expressions import RowExpression, columns_of
from millstream.planner.passes.rewriting import is_deterministic
from millstream.planner.relations import Correlate, Filter, Limit, Project, Relation, SetOperation, Unnest
from millstream.planner.traits.changes import GROWS, changes_of

__all__ = ["changing_columns", "is_unsteady"]

Columns = frozenset[int]


def changing_columns(relation: Relation) -> Columns:
    """The columns of a relation that are not the same when their row goes."""
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
        given = relation.arguments if isinstance(relation, Correlate) else (relation.collection,)
        added = frozenset(range(len(relation.input.schema), len(relation.schema)))
        if any(is_unsteady(each, below) for each in given):
            return below | added
        if relation.condition is not None and is_unsteady(relation.condition, below):
            return frozenset(range(len(relation.schema)))  # how many rows there are may be another number then
        return below
    return frozenset()


def is_unsteady(expression: RowExpression, columns: Columns) -> bool:
    """Whether an expression over rows that change may have another value each time; `columns` are such that do."""
    return not is_deterministic(expression) or bool(columns_of(expression) & columns)
