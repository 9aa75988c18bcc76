"""IN and EXISTS conditions that a WHERE combines by AND, as semi and anti joins.

    x IN (SELECT …), EXISTS (SELECT …)      matched rows: a semi join
    NOT IN, NOT EXISTS                      unmatched rows: an anti join

A subquery may refer to columns of the enclosing query (it is **correlated**): such conditions become conditions of the
join (`decorrelation`). LATERAL is bound in the same way. Subqueries elsewhere in expressions, and those without an
equivalent join, become columns (`query_values`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.expressions.row_expressions import Call, Column, RowExpression, columns_of
from millstream.expressions.types import BooleanType
from millstream.graph.notices import warn_once
from millstream.graph.site import here
from millstream.planner.binding.aggregate_syntax import parts_of
from millstream.planner.binding.calls import system_call, written_text
from millstream.planner.binding.context import QueryContext
from millstream.planner.binding.decorrelation import joining, pulled, row_of_nothing
from millstream.planner.binding.dependent_queries import dependent_rows
from millstream.planner.binding.scope import FIRST_OUTER, Scope
from millstream.planner.passes.rewriting import conjunction
from millstream.planner.relations import Join, JoinKind, Project, Relation, Schema
from millstream.planner.session import PlannerSession
from millstream.sql import query_syntax, syntax
from millstream.sql.places import problem

if TYPE_CHECKING:
    from millstream.planner.binding.expressions import ExpressionBinder

__all__ = [
    "JoinedMembership",
    "Membership",
    "bound_inside",
    "joined_membership",
    "lateral_query",
    "membership_of",
    "operands_of",
    "split_condition",
    "with_membership",
]


# --- conditions on the rows of a query --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Membership:
    """IN or EXISTS, possibly negated; without `operand` it is EXISTS."""

    query: query_syntax.Query
    operand: syntax.Expression | None
    negated: bool
    node: syntax.Expression


def split_condition(condition: syntax.Expression) -> Iterator[syntax.Expression]:
    """The conjuncts of a condition, as syntax."""
    if isinstance(condition, syntax.Call) and condition.name == "AND" and not condition.path:
        for argument in condition.arguments:
            yield from split_condition(argument)
    else:
        yield condition


def membership_of(part: syntax.Expression) -> Membership | None:
    """The IN or EXISTS subquery of a conjunct; None for others."""
    if isinstance(part, syntax.Call) and part.name == "NOT" and not part.path:
        inside = membership_of(part.arguments[0])
        return None if inside is None else replace(inside, negated=not inside.negated, node=part)
    if isinstance(part, syntax.In) and part.query is not None:
        if any(isinstance(each, query_syntax.Query) for each in parts_of(part.operand)):
            return None  # the operand needs a column first
        return Membership(part.query, part.operand, part.negated, part)
    return Membership(part.query, None, False, part) if isinstance(part, syntax.Exists) else None


@dataclass(frozen=True)
class JoinedMembership:
    """A membership as a join: the subquery's rows, the join's conditions, and the operands compared with the rows."""

    membership: Membership
    rows: Relation
    conditions: tuple[RowExpression, ...]
    operands: tuple[syntax.Expression, ...]


def joined_membership(membership: Membership, inner: Relation, session: PlannerSession) -> JoinedMembership | None:
    """The join for membership in a subquery's rows; None if no join is equivalent."""
    node = membership.node
    operands = () if membership.operand is None else operands_of(membership.operand, inner, node)
    parts = pulled(inner, node)
    if parts is None or row_of_nothing(inner, session):  # which no join emits
        return None
    return JoinedMembership(membership, parts[0], tuple(parts[1]), operands)


def with_membership(relation: Relation, joined: JoinedMembership, binder: ExpressionBinder) -> Relation:
    """Filters the rows by the membership."""
    width, membership, rows = len(relation.schema), joined.membership, joined.rows
    terms = [joining(each, width) for each in joined.conditions]
    for place, each in enumerate(joined.operands):
        operand, value = binder.bind(each), Column(rows.schema.types[place], width + place)
        equal: RowExpression = system_call("=", [operand, value], membership.node)
        terms.append(_or_null(equal, operand, value) if membership.negated else equal)
    kind = JoinKind.ANTI if membership.negated else JoinKind.SEMI
    fields = tuple(replace(each, time=None) for each in relation.schema.fields)
    return Join(Schema(fields), relation, rows, kind, conjunction(terms), site=written_text(membership.node))


def operands_of(operand: syntax.Expression, inner: Relation, node: syntax.Expression) -> tuple[syntax.Expression, ...]:
    """The operands to compare with a query's columns: (a, b) IN (SELECT x, y …) compares two pairs."""
    width = len(inner.schema)
    if isinstance(operand, syntax.RowValue) and len(operand.values) == width:
        return operand.values
    if width == 1:
        _note_outer_column(inner, node)
        return (operand,)
    if isinstance(operand, syntax.RowValue):
        counts = f"{len(operand.values)} columns with a query of {width}"
        raise problem(f"IN (SELECT …) needs as many columns as values: this compares {counts}", node)
    raise problem(f"IN (SELECT …) compares with one column, but the query has {width}", node)


_OUTER_NOTE = (
    "IN (SELECT column …): no table in the FROM of the subquery has the column, so it is a column of the enclosing "
    "query, and the condition is true for every row in which it is not NULL, if the subquery has rows. Qualify the "
    "column with its table if this is not intended"
)


def _note_outer_column(inner: Relation, node: syntax.Expression) -> None:
    """Warns once if the only column of an IN subquery belongs to the enclosing query."""
    named = columns_of(*inner.expressions) if isinstance(inner, Project) else set()
    if named and min(named) >= FIRST_OUTER:
        warn_once(f"outer column of {written_text(node)}", _OUTER_NOTE, here())


def _or_null(equal: RowExpression, *operands: RowExpression) -> RowExpression:
    """NOT IN is TRUE only if no row can be equal; a NULL on either side might be."""
    for operand in operands:
        if operand.type.is_nullable:
            absent = Call(BooleanType(False), "IS NULL", (operand,))
            equal = Call(equal.type, "OR", (equal, absent))
    return equal


# --- the enclosing query ----------------------------------------------------------------------------------------------


def bound_inside(query: query_syntax.Query, scope: Scope, context: QueryContext) -> Relation:
    """A subquery's relation, bound with the enclosing query's scope."""
    from millstream.planner.binding.queries import bind_in

    return bind_in(query, replace(context, outer=scope))


def lateral_query(
    source: query_syntax.Derived, left: Relation, scope: Scope, context: QueryContext
) -> tuple[Relation, int, list[RowExpression]]:
    """A query in FROM that may refer to the relations before it: its relation, the number of its own columns, and the
    conditions that join it to the rows on its left."""
    inner = bound_inside(source.query, scope, context)
    parts = pulled(inner, source)
    if parts is None or row_of_nothing(inner, context.session):  # which no join emits
        parts = dependent_rows(inner, left, source)
    inner_rows, conditions = parts
    return inner_rows, len(inner.schema), [joining(each, len(left.schema)) for each in conditions]
