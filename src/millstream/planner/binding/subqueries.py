"""Queries inside expressions: IN, EXISTS and a query as a value, as joins of the rows they are asked for.

    x IN (SELECT …), EXISTS (SELECT …)      rows with a partner: a semi join
    NOT IN, NOT EXISTS                      rows without one: an anti join
    (SELECT MAX(…) …)                       a column of a left join with what gives at most one row; without that row,
                                            what the query says of no rows (`row_of_nothing`)

A query inside may name columns of the query around it (it is **correlated**): conditions with such columns become
conditions of the join (`decorrelation`). LATERAL is bound in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, mapped
from millstream.expressions.types import BooleanType
from millstream.planner.binding.calls import system_call, written_text
from millstream.planner.binding.context import QueryContext
from millstream.planner.binding.decorrelation import is_told_outside, joining, pulled, row_of_nothing
from millstream.planner.binding.scope import Scope
from millstream.planner.not_yet import not_yet
from millstream.planner.passes.rewriting import conjunction
from millstream.planner.relations import (
    Aggregate,
    Field,
    Filter,
    Join,
    JoinKind,
    Limit,
    Project,
    Relation,
    Schema,
    Values,
)
from millstream.sql import query_syntax, syntax
from millstream.sql.places import problem

if TYPE_CHECKING:
    from millstream.planner.binding.expressions import ExpressionBinder

__all__ = [
    "FIRST_VALUE",
    "Membership",
    "QueryValues",
    "lateral_query",
    "membership_of",
    "split_condition",
    "with_membership",
]

FIRST_VALUE = 5_000_000


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
        return Membership(part.query, part.operand, part.negated, part)
    return Membership(part.query, None, False, part) if isinstance(part, syntax.Exists) else None


def with_membership(
    relation: Relation, scope: Scope, membership: Membership, binder: ExpressionBinder, context: QueryContext
) -> Relation:
    """The rows for which the condition holds."""
    inner = _bound(membership.query, scope, context)
    width = len(relation.schema)
    if membership.operand is not None and len(inner.schema) != 1:
        raise problem(f"IN (SELECT …) compares with one column, and the query has {len(inner.schema)}", membership.node)
    inner_rows, conditions = pulled(inner, membership.node)
    if is_told_outside(inner) and row_of_nothing(inner, context.session):  # which no join gives
        instead = "compare with it as a value: x = (SELECT COUNT(*) …)"
        raise not_yet("IN or EXISTS of an aggregate without GROUP BY", membership.node, instead)
    terms = [joining(each, width) for each in conditions]
    if membership.operand is not None:
        operand = binder.bind(membership.operand)
        value = Column(inner_rows.schema.types[0], width)
        equal: RowExpression = system_call("=", [operand, value], membership.node)
        if membership.negated:
            equal = _or_null(equal, operand, value)
        terms.append(equal)
    kind = JoinKind.ANTI if membership.negated else JoinKind.SEMI
    fields = tuple(replace(each, time=None) for each in relation.schema.fields)
    return Join(Schema(fields), relation, inner_rows, kind, conjunction(terms), site=written_text(membership.node))


def _or_null(equal: RowExpression, *operands: RowExpression) -> RowExpression:
    """NOT IN is only true where it is known that nothing is equal: a NULL on either side might be."""
    for operand in operands:
        if operand.type.is_nullable:
            absent = Call(BooleanType(False), "IS NULL", (operand,))
            equal = Call(equal.type, "OR", (equal, absent))
    return equal


# --- queries as values ------------------------------------------------------------------------------------------------


class QueryValues:
    """Queries that stand for their one value, gathered while a clause is bound."""

    def __init__(self, scope: Scope, context: QueryContext) -> None:
        self._scope, self._context = scope, context
        self._queries: list[tuple[syntax.Expression, Relation, list[RowExpression]]] = []

    def __bool__(self) -> bool:
        return bool(self._queries)

    def column(self, node: syntax.Scalar) -> RowExpression:
        """The column that the value will be."""
        if node.quantifier is not None:
            raise not_yet(f"{node.operator} {node.quantifier} (SELECT …)", node)
        inner = _bound(node.query, self._scope, self._context)
        if len(inner.schema) != 1:
            raise problem(f"A query as a value has one column, and this one has {len(inner.schema)}", node)
        if not _is_single(inner):
            raise problem(
                "A query as a value gives at most one row: write an aggregate without GROUP BY, or LIMIT 1", node
            )
        inner_rows, conditions = pulled(inner, node)
        type_, place = inner.schema.types[0], FIRST_VALUE + 2 * len(self._queries)
        column: RowExpression = Column(type_.nullable(), place)
        nothing = row_of_nothing(inner, self._context.session)
        value = Literal(type_.nullable(), None) if nothing is None else nothing.values[0]
        if nothing is not None and not (isinstance(value, Literal) and value.value is None):
            if not nothing.is_sure:
                if is_told_outside(inner):  # a group that HAVING leaves out would look as if there were none
                    instead = "write it as CASE in its SELECT"
                    raise not_yet("HAVING that holds of no rows, in a query as a value", node, instead)
            elif not type_.is_nullable:
                column = Call(type_, "COALESCE", (column, value))  # of no rows a COUNT is 0
            else:
                inner_rows = _marked(inner_rows)
                is_absent = Call(BooleanType(False), "IS NULL", (Column(BooleanType(), place + 1),))
                column = Call(type_, "CASE", (is_absent, value, column))
        self._queries.append((node, inner_rows, conditions))
        return column

    def joined(self, relation: Relation, above: Sequence[RowExpression]) -> tuple[Relation, list[RowExpression]]:
        """The relation with the values behind its columns, and expressions above it."""
        places: dict[int, int] = {}
        for number, (node, inner, conditions) in enumerate(self._queries):
            width = len(relation.schema)
            places[FIRST_VALUE + 2 * number] = width
            places[FIRST_VALUE + 2 * number + 1] = width + len(inner.schema) - 1
            optional = tuple(replace(each, type=each.type.nullable(), time=None) for each in inner.schema.fields)
            fields = (*(replace(each, time=None) for each in relation.schema.fields), *optional)
            condition = conjunction([joining(each, width) for each in conditions])
            relation = Join(Schema(fields), relation, inner, JoinKind.LEFT, condition, site=written_text(node))

        def placed(part: RowExpression) -> RowExpression:
            return Column(part.type, places[part.index]) if isinstance(part, Column) and part.index in places else part

        return relation, [mapped(each, placed) for each in above]


def _marked(relation: Relation) -> Relation:
    """The rows with a last column that tells them from none."""
    schema = Schema((*relation.schema.fields, Field("$there", BooleanType(False))))
    return Project(schema, relation, (*relation.schema.columns, Literal(BooleanType(False), True)))


def _is_single(relation: Relation) -> bool:
    """Whether it gives at most one row."""
    if isinstance(relation, Project | Filter):
        return _is_single(relation.input)
    if isinstance(relation, Aggregate):
        return not relation.groups and relation.sets is None
    if isinstance(relation, Limit):
        return relation.count is not None and relation.count <= 1
    return isinstance(relation, Values) and len(relation.rows) <= 1


# --- the query around -------------------------------------------------------------------------------------------------


def _bound(query: query_syntax.Query, scope: Scope, context: QueryContext) -> Relation:
    from millstream.planner.binding.queries import bind_in

    return bind_in(query, replace(context, outer=replace(scope, outer=None)))


def lateral_query(
    source: query_syntax.Derived, scope: Scope, width: int, context: QueryContext
) -> tuple[Relation, int, list[RowExpression]]:
    """A query of FROM that may name what stands before it, which has `width` columns: its relation, how many of its
    columns are its own, and the conditions by which it is joined."""
    inner = _bound(source.query, scope, context)
    inner_rows, conditions = pulled(inner, source)
    if is_told_outside(inner) and row_of_nothing(inner, context.session):  # which no join gives
        raise not_yet(
            "LATERAL of an aggregate without GROUP BY", source, "write it as a value: SELECT (SELECT COUNT(*) …)"
        )
    return inner_rows, len(inner.schema), [joining(each, width) for each in conditions]
