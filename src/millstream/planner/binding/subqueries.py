"""Queries inside expressions: IN, EXISTS and a query as a value, as joins of the rows they are asked for.

    x IN (SELECT …), EXISTS (SELECT …)      rows with a partner: a semi join
    NOT IN, NOT EXISTS                      rows without one: an anti join
    (SELECT MAX(…) …)                       a column of a left join with what gives at most one row; without that row,
                                            what the query says of no rows (`values_of_nothing`)

A query inside may name columns of the query around it (it is **correlated**). They are numbered from a high number on;
conditions with such columns are pulled up out of the query, through projections and aggregations, and become conditions
of the join. A correlated aggregation is grouped by what it is equal to outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, columns_of, mapped
from millstream.expressions.types import BigIntType, BooleanType
from millstream.planner.binding.calls import system_call, written_text
from millstream.planner.binding.context import QueryContext
from millstream.planner.binding.scope import FIRST_OUTER, Scope
from millstream.planner.binding.values_of_nothing import is_total, value_of_nothing
from millstream.planner.not_yet import not_yet
from millstream.planner.passes.rewriting import conjunction, conjuncts, moved, relations_of
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

__all__ = ["FIRST_VALUE", "Membership", "QueryValues", "membership_of", "split_condition", "with_membership"]

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
    pulled, conditions = _pulled(inner, membership.node)
    if conditions and is_total(inner):
        # It has a row for every row outside, and no group where there are none to group.
        instead = "compare its value, as in x = (SELECT …) or (SELECT COUNT(*) …) > 0"
        raise not_yet("IN or EXISTS of an aggregation that names outer columns", membership.node, instead)
    joining = [_joining(each, width) for each in conditions]
    if membership.operand is not None:
        operand = binder.bind(membership.operand)
        value = Column(pulled.schema.types[0], width)
        equal: RowExpression = system_call("=", [operand, value], membership.node)
        if membership.negated:
            equal = _or_null(equal, operand, value)
        joining.append(equal)
    kind = JoinKind.ANTI if membership.negated else JoinKind.SEMI
    fields = tuple(replace(each, time=None) for each in relation.schema.fields)
    return Join(Schema(fields), relation, pulled, kind, conjunction(joining), site=written_text(membership.node))


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
        pulled, conditions = _pulled(inner, node)
        type_, place = pulled.schema.types[0].nullable(), FIRST_VALUE + 2 * len(self._queries)
        column: RowExpression = Column(type_, place)
        session, is_correlated = self._context.session, bool(conditions)
        if _is_count(inner):  # of no rows there are none
            column = Call(BigIntType(False), "COALESCE", (column, Literal(BigIntType(False), 0)))
        elif (otherwise := value_of_nothing(inner, session, node, is_correlated=is_correlated)) is not None:
            pulled = _marked(pulled)
            is_absent = Call(BooleanType(False), "IS NULL", (Column(BooleanType(), place + 1),))
            column = Call(type_, "CASE", (is_absent, otherwise, column))
        self._queries.append((node, pulled, conditions))
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
            condition = conjunction([_joining(each, width) for each in conditions])
            relation = Join(Schema(fields), relation, inner, JoinKind.LEFT, condition, site=written_text(node))

        def placed(part: RowExpression) -> RowExpression:
            return Column(part.type, places[part.index]) if isinstance(part, Column) and part.index in places else part

        return relation, [mapped(each, placed) for each in above]


def _marked(relation: Relation) -> Relation:
    """The rows with a last column that tells them from none."""
    fields = relation.schema.fields
    columns = tuple(Column(each.type, at) for at, each in enumerate(fields))
    schema = Schema((*fields, Field("$there", BooleanType(False))))
    return Project(schema, relation, (*columns, Literal(BooleanType(False), True)))


def _is_single(relation: Relation) -> bool:
    """Whether it gives at most one row."""
    if isinstance(relation, Project | Filter):
        return _is_single(relation.input)
    if isinstance(relation, Aggregate):
        return not relation.groups and relation.sets is None
    if isinstance(relation, Limit):
        return relation.count is not None and relation.count <= 1
    return isinstance(relation, Values) and len(relation.rows) <= 1


def _is_count(relation: Relation) -> bool:
    """Whether its value is a COUNT, which is 0 of no rows."""
    column = 0
    while isinstance(relation, Project):
        expression = relation.expressions[column]
        if not isinstance(expression, Column):
            return False
        column, relation = expression.index, relation.input
    return isinstance(relation, Aggregate) and relation.calls[column].function == "COUNT"


# --- correlation ------------------------------------------------------------------------------------------------------


def _bound(query: query_syntax.Query, scope: Scope, context: QueryContext) -> Relation:
    from millstream.planner.binding.queries import bind_in

    return bind_in(query, replace(context, outer=replace(scope, outer=None)))


def _joining(condition: RowExpression, width: int) -> RowExpression:
    """A condition over the inner query's columns and outer ones, as one over both sides of a join."""
    columns = columns_of(condition)
    places = {at: at - FIRST_OUTER if at >= FIRST_OUTER else at + width for at in columns}
    return moved(condition, places)


def _is_correlated(expression: RowExpression) -> bool:
    return any(at >= FIRST_OUTER for at in columns_of(expression))


def _pulled(relation: Relation, node: syntax.Node) -> tuple[Relation, list[RowExpression]]:
    """The relation without conditions that name outer columns, and those, over its columns, of which there may be more
    at the end than there were."""
    made, conditions = _pull(relation, node)
    for each in relations_of([made]):
        expressions = [*getattr(each, "expressions", ()), getattr(each, "condition", None)]
        if any(part is not None and _is_correlated(part) for part in expressions):
            raise not_yet("A query inside that names outer columns elsewhere than in its WHERE", node)
    return made, conditions


def _pull(relation: Relation, node: syntax.Node) -> tuple[Relation, list[RowExpression]]:
    if isinstance(relation, Filter):
        below, conditions = _pull(relation.input, node)
        parts = conjuncts(relation.condition)
        plain = conjunction([part for part in parts if not _is_correlated(part)])
        made = below if plain is None else Filter(below.schema, below, plain)
        return made, [*conditions, *(part for part in parts if _is_correlated(part))]
    if isinstance(relation, Project):
        below, conditions = _pull(relation.input, node)
        return _through_project(relation, below, conditions)
    if isinstance(relation, Aggregate):
        below, conditions = _pull(relation.input, node)
        return _through_groups(relation, below, conditions, node) if conditions else (relation, [])
    return relation, []


def _inner_columns(conditions: Sequence[RowExpression]) -> list[int]:
    return sorted({at for each in conditions for at in columns_of(each) if at < FIRST_OUTER})


def _through_project(
    relation: Project, below: Relation, conditions: list[RowExpression]
) -> tuple[Relation, list[RowExpression]]:
    if not conditions:
        return (relation if below is relation.input else replace(relation, input=below)), []
    needed = _inner_columns(conditions)
    width = len(relation.schema)
    fields = (*relation.schema.fields, *(replace(below.schema.fields[at], name=f"$c{at}") for at in needed))
    columns = tuple(Column(below.schema.types[at], at) for at in needed)
    made = Project(Schema(fields), below, (*relation.expressions, *columns), site=relation.site)
    places = {at: width + number for number, at in enumerate(needed)}
    return made, [_moved_inner(each, places) for each in conditions]


def _through_groups(
    relation: Aggregate, below: Relation, conditions: list[RowExpression], node: syntax.Node
) -> tuple[Relation, list[RowExpression]]:
    """The aggregation, grouped by the inner sides of `inner = outer` too: each whole, for many rows may have one
    MOD(a, 2). What says something of outer columns alone stays as it is: it takes all groups, or none."""
    columns: list[RowExpression] = [Column(each.type, at) for at, each in enumerate(below.schema.fields)]
    width, joining = len(columns), list[RowExpression]()
    for each in conditions:
        inner = _inner_side(each)
        if relation.sets is not None or (inner is None and _inner_columns([each])):
            raise not_yet("An aggregation inside whose rows are told by more than what they are equal to outside", node)
        if inner is None or not isinstance(each, Call):
            joining.append(each)
            continue
        sides = list(each.arguments)
        if sides[inner] not in columns:
            columns.append(sides[inner])
        sides[inner] = Column(sides[inner].type, columns.index(sides[inner]))
        joining.append(replace(each, arguments=tuple(sides)))
    if len(columns) > width:
        added = tuple(Field(f"$c{at}", columns[at].type) for at in range(width, len(columns)))
        below = Project(Schema((*below.schema.fields, *added)), below, tuple(columns), site=relation.site)
    return _grouped(relation, below, joining)


def _inner_side(condition: RowExpression) -> int | None:
    """The argument of `=` that looks at inner columns, where the other one looks at outer ones alone; None: there is no
    such."""
    if not isinstance(condition, Call) or condition.function != "=":
        return None
    for side, (value, other) in enumerate((condition.arguments, condition.arguments[::-1])):
        if columns_of(value) and not _is_correlated(value) and not _inner_columns([other]):
            return side
    return None


def _grouped(
    relation: Aggregate, below: Relation, conditions: list[RowExpression]
) -> tuple[Relation, list[RowExpression]]:
    """The aggregation, grouped by the inner columns of conditions too; these stand behind its own columns."""
    needed = _inner_columns(conditions)
    first = len(relation.groups)
    keys = tuple(Field(f"$c{at}", below.schema.types[at]) for at in needed)
    fields = relation.schema.fields
    grouped = Aggregate(
        Schema((*fields[:first], *keys, *fields[first:])),
        below,
        (*relation.groups, *needed),
        relation.calls,
        site=relation.site,
    )
    # As it was, and the new groups behind it.
    order = [*range(first), *range(first + len(keys), len(grouped.schema)), *range(first, first + len(keys))]
    schema = Schema(tuple(grouped.schema.fields[at] for at in order))
    made = Project(schema, grouped, tuple(Column(grouped.schema.types[at], at) for at in order))
    places = {at: len(fields) + number for number, at in enumerate(needed)}
    return made, [_moved_inner(each, places) for each in conditions]


def _moved_inner(condition: RowExpression, places: dict[int, int]) -> RowExpression:
    return moved(condition, {at: places.get(at, at) for at in columns_of(condition)})
