"""Conditions on the rows of other queries that a WHERE joins by AND: IN and EXISTS as semi and anti joins.

    x IN (SELECT …), EXISTS (SELECT …)      rows with a partner: a semi join
    NOT IN, NOT EXISTS                      rows without one: an anti join

A query inside may name columns of the query around it (it is **correlated**): conditions with such columns become
conditions of the join (`decorrelation`). LATERAL is bound in the same way. Queries elsewhere in expressions, and those
that cannot be joined so, are columns (`query_values`).
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
    """IN or EXISTS, or the contrary; `operand` None: EXISTS."""

    query: query_syntax.Query
    operand: syntax.Expression | None
    negated: bool
    node: syntax.Expression


def split_condition(condition: syntax.Expression) -> Iterator[syntax.Expression]:
    """The parts of a condition that all must be true, as written."""
    if isinstance(condition, syntax.Call) and condition.name == "AND" and not condition.path:
        for argument in condition.arguments:
            yield from split_condition(argument)
    else:
        yield condition


def membership_of(part: syntax.Expression) -> Membership | None:
    """The IN or EXISTS of a query that a part of a condition is; None for others."""
    if isinstance(part, syntax.Call) and part.name == "NOT" and not part.path:
        inside = membership_of(part.arguments[0])
        return None if inside is None else replace(inside, negated=not inside.negated, node=part)
    if isinstance(part, syntax.In) and part.query is not None:
        if any(isinstance(each, query_syntax.Query) for each in parts_of(part.operand)):
            return None  # of which a column must be made first
        return Membership(part.query, part.operand, part.negated, part)
    return Membership(part.query, None, False, part) if isinstance(part, syntax.Exists) else None


@dataclass(frozen=True)
class JoinedMembership:
    """A membership whose query can be joined: its rows, the conditions of the join, and what is compared with them."""

    membership: Membership
    rows: Relation
    conditions: tuple[RowExpression, ...]
    operands: tuple[syntax.Expression, ...]


def joined_membership(membership: Membership, inner: Relation, session: PlannerSession) -> JoinedMembership | None:
    """How a membership in the rows of a query is a join; None where no join of the two can tell."""
    node = membership.node
    operands = () if membership.operand is None else operands_of(membership.operand, inner, node)
    parts = pulled(inner, node)
    if parts is None or row_of_nothing(inner, session):  # which no join gives
        return None
    return JoinedMembership(membership, parts[0], tuple(parts[1]), operands)


def with_membership(relation: Relation, joined: JoinedMembership, binder: ExpressionBinder) -> Relation:
    """The rows for which the condition holds."""
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
    """What is compared with each column of a query: (a, b) IN (SELECT x, y …) compares two pairs."""
    width = len(inner.schema)
    if isinstance(operand, syntax.RowValue) and len(operand.values) == width:
        return operand.values
    if width == 1:
        _note_outer_column(inner, node)
        return (operand,)
    if isinstance(operand, syntax.RowValue):
        counts = f"{len(operand.values)} columns with a query of {width}"
        raise problem(f"IN (SELECT …) compares as many columns as there are values: this is {counts}", node)
    raise problem(f"IN (SELECT …) compares with one column, and the query has {width}", node)


_OUTER_NOTE = (
    "IN (SELECT column …): no table in the FROM of the query inside has the column, so it is that of the query around "
    "it, and the condition is true of every row in which it is not NULL, if there are rows inside. Name the table of "
    "the column if this is not meant"
)


def _note_outer_column(inner: Relation, node: syntax.Expression) -> None:
    """Report the classic slip once: the only column of a query inside IN is one of the query around it."""
    named = columns_of(*inner.expressions) if isinstance(inner, Project) else set()
    if named and min(named) >= FIRST_OUTER:
        warn_once(f"outer column of {written_text(node)}", _OUTER_NOTE, here())


def _or_null(equal: RowExpression, *operands: RowExpression) -> RowExpression:
    """NOT IN is only true where it is known that nothing is equal: a NULL on either side might be."""
    for operand in operands:
        if operand.type.is_nullable:
            absent = Call(BooleanType(False), "IS NULL", (operand,))
            equal = Call(equal.type, "OR", (equal, absent))
    return equal


# --- the query around -------------------------------------------------------------------------------------------------


def bound_inside(query: query_syntax.Query, scope: Scope, context: QueryContext) -> Relation:
    """A query that stands in another one, whose names it can see."""
    from millstream.planner.binding.queries import bind_in

    return bind_in(query, replace(context, outer=scope))


def lateral_query(
    source: query_syntax.Derived, left: Relation, scope: Scope, context: QueryContext
) -> tuple[Relation, int, list[RowExpression]]:
    """A query of FROM that may name what stands before it: its relation, how many of its columns are its own, and the
    conditions by which it is joined to the rows on its left."""
    inner = bound_inside(source.query, scope, context)
    parts = pulled(inner, source)
    if parts is None or row_of_nothing(inner, context.session):  # which no join gives
        parts = dependent_rows(inner, left, source)
    inner_rows, conditions = parts
    return inner_rows, len(inner.schema), [joining(each, len(left.schema)) for each in conditions]
