"""Queries inside expressions: IN, EXISTS and a query as a value, as joins of the rows they are asked for.

    x IN (SELECT …), EXISTS (SELECT …)      rows with a partner: a semi join
    NOT IN, NOT EXISTS                      rows without one: an anti join
    (SELECT MAX(…) …)                       a column of a left join with what gives at most one row

A query inside may name columns of the query around it (it is **correlated**). They are numbered from a high number on;
conditions with such columns are pulled up out of the query, through projections, aggregations and LIMIT, and become
conditions of the join. A correlated aggregation is grouped by what is equal to something outside, and of a correlated
LIMIT the first rows of each such group are taken. LATERAL is bound in the same way.
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
    Rank,
    Relation,
    Schema,
    Sort,
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
    pulled, conditions = _pulled(inner, membership.node)
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
        self._queries: list[tuple[syntax.Expression, Relation, list[RowExpression], bool]] = []

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
        is_count = _is_count(inner)
        pulled, conditions = _pulled(inner, node)
        self._queries.append((node, pulled, conditions, is_count))
        type_ = pulled.schema.types[0].nullable()
        column: RowExpression = Column(type_, FIRST_VALUE + len(self._queries) - 1)
        if is_count:  # of no rows there are none
            column = Call(BigIntType(False), "COALESCE", (column, Literal(BigIntType(False), 0)))
        return column

    def joined(self, relation: Relation, above: Sequence[RowExpression]) -> tuple[Relation, list[RowExpression]]:
        """The relation with the values behind its columns, and expressions above it."""
        places: dict[int, int] = {}
        for number, (node, inner, conditions, _) in enumerate(self._queries):
            width = len(relation.schema)
            places[FIRST_VALUE + number] = width
            optional = tuple(replace(each, type=each.type.nullable(), time=None) for each in inner.schema.fields)
            fields = (*(replace(each, time=None) for each in relation.schema.fields), *optional)
            condition = conjunction([_joining(each, width) for each in conditions])
            relation = Join(Schema(fields), relation, inner, JoinKind.LEFT, condition, site=written_text(node))

        def placed(part: RowExpression) -> RowExpression:
            return Column(part.type, places[part.index]) if isinstance(part, Column) and part.index in places else part

        return relation, [mapped(each, placed) for each in above]


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


def lateral_query(
    source: query_syntax.Derived, scope: Scope, width: int, context: QueryContext
) -> tuple[Relation, int, list[RowExpression]]:
    """A query of FROM that may name what stands before it, which has `width` columns: its relation, how many of its
    columns are its own, and the conditions by which it is joined."""
    inner = _bound(source.query, scope, context)
    pulled, conditions = _pulled(inner, source)
    if conditions and _is_aggregate_of_all(inner):  # it has a row of nothing, too, which no join gives
        raise not_yet(
            "LATERAL of an aggregate without GROUP BY", source, "write it as a value: SELECT (SELECT COUNT(*) …)"
        )
    return pulled, len(inner.schema), [_joining(each, width) for each in conditions]


def _is_aggregate_of_all(relation: Relation) -> bool:
    while isinstance(relation, Project | Filter | Sort | Limit):
        relation = relation.input
    return isinstance(relation, Aggregate) and not relation.groups


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
    if isinstance(relation, Limit):
        return _through_limit(relation, node)
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


def _with_keys(
    below: Relation, conditions: Sequence[RowExpression], node: syntax.Node
) -> tuple[Relation, list[int], list[RowExpression]]:
    """The columns that conditions say to be equal to something outside, and conditions of these columns. What is no
    column of `below` becomes one, behind the others."""
    width, added = len(below.schema), list[RowExpression]()
    keys: list[int] = []
    made: list[RowExpression] = []
    for each in conditions:
        if not _inner_columns([each]):  # it says nothing of the rows inside
            made.append(each)
            continue
        sides = each.arguments if isinstance(each, Call) and each.function == "=" else ()
        own = [side for side in sides if not _is_correlated(side)]
        outer = [side for side in sides if not _inner_columns([side])]
        if len(own) != 1 or len(outer) != 1:
            raise not_yet("A query inside whose groups, or first rows, are told by more than an equality", node)
        if not isinstance(own[0], Column):
            added.append(own[0])
        at = own[0].index if isinstance(own[0], Column) else width + len(added) - 1
        keys.append(at)
        made.append(Call(each.type, "=", (Column(own[0].type, at), outer[0])))
    if added:
        fields = (*below.schema.fields, *(Field(f"$e{number}", part.type) for number, part in enumerate(added)))
        columns = (Column(type_, at) for at, type_ in enumerate(below.schema.types))
        below = Project(Schema(fields), below, (*columns, *added))
    return below, sorted(set(keys)), made


def _through_limit(relation: Limit, node: syntax.Node) -> tuple[Relation, list[RowExpression]]:
    sort = relation.input if isinstance(relation.input, Sort) else None
    below, conditions = _pull(relation.input if sort is None else sort.input, node)
    if not conditions:
        return relation, []
    if relation.count is None:
        raise not_yet("A query inside with OFFSET and no LIMIT, whose rows are told by columns outside", node)
    below, keys, conditions = _with_keys(below, conditions, node)
    order, last = () if sort is None else sort.keys, relation.offset + relation.count
    return Rank(below.schema, below, tuple(keys), order, relation.offset + 1, last, site=written_text(node)), conditions


def _through_groups(
    relation: Aggregate, below: Relation, conditions: list[RowExpression], node: syntax.Node
) -> tuple[Relation, list[RowExpression]]:
    if relation.sets is not None:
        raise not_yet("GROUPING SETS inside, whose rows are told by columns outside", node)
    below, needed, conditions = _with_keys(below, conditions, node)
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
