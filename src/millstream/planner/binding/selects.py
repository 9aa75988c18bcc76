"""SELECT: binds its clauses in order of evaluation: FROM, WHERE, GROUP BY, HAVING, items, DISTINCT."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Column, RowExpression
from millstream.planner.binding.aggregate_syntax import has_aggregates, is_aggregate
from millstream.planner.binding.calls import written_text
from millstream.planner.binding.context import QueryContext
from millstream.planner.binding.expressions import ExpressionBinder, bind_condition
from millstream.planner.binding.grouping import Grouping
from millstream.planner.binding.hints import check_select_hints
from millstream.planner.binding.overs import OverCalls
from millstream.planner.binding.projections import item_name, project, project_items, unique_names
from millstream.planner.binding.query_values import QueryValues
from millstream.planner.binding.scope import Scope
from millstream.planner.binding.sources import bind_source, one_row
from millstream.planner.binding.state_hints import hinted_select, state_hints
from millstream.planner.binding.subqueries import (
    JoinedMembership,
    joined_membership,
    membership_of,
    split_condition,
    with_membership,
)
from millstream.planner.passes.rewriting import conjunction
from millstream.planner.relations import Aggregate, Field, Filter, Relation, Schema
from millstream.planner.session import PlannerSession
from millstream.sql import query_syntax as queries
from millstream.sql import syntax
from millstream.sql.places import problem

__all__ = ["Item", "bind_items", "bind_select", "distinct_rows", "expanded_items", "where_rows", "with_aliases"]

_SQL_PREFIX = "EXPR$"
"""The prefix of unnamed columns in SQL; the column's number follows."""


@dataclass(frozen=True)
class Item:
    """A column of SELECT: an expression as written, or a column expanded from `*`."""

    written: syntax.Expression
    name: str | None
    column: int | None = None


def bind_select(select: queries.Select, context: QueryContext) -> Relation:
    """The rows of a SELECT."""
    if select.source is None:
        source: Relation = one_row()
        scope = Scope()
    else:
        source, scope = bind_source(select.source, replace(context, hints=select.hints))
    check_select_hints(select.hints, scope)
    hints, relation = state_hints(select.hints, scope), source
    scope = replace(scope, outer=context.outer)
    if select.where is not None:
        aliases = frozenset(item.alias for item in select.items if item.alias)
        binder = ExpressionBinder(scope, context.session, "WHERE", aliases)
        relation = where_rows(relation, select.where, binder, context)
    items = expanded_items([(item.expression, item.alias) for item in select.items], scope)
    written = [item.written for item in items if item.column is None]
    is_grouped = select.group_by is not None or has_aggregates([*written, select.having], context.session)
    if select.having is not None and not is_grouped:
        raise problem("HAVING needs a GROUP BY or an aggregate", select.having)
    if is_grouped:
        relation = _grouped(relation, scope, select, items, context)
    else:
        binder = ExpressionBinder(scope, context.session, "SELECT")
        binder.overs, binder.values = OverCalls(select.windows), QueryValues(scope, context)
        relation = bind_items(relation, items, binder, qualify=select.qualify)
    if select.distinct:
        relation = replace(distinct_rows(relation), site=written_text(select.items[0]))
    return hinted_select(relation, source, hints)


def where_rows(
    relation: Relation, condition: syntax.Expression, binder: ExpressionBinder, context: QueryContext
) -> Relation:
    """Filters rows by a condition of WHERE or of the Table API's `where`. Conditions with subqueries are applied
    last."""
    binder.values = QueryValues(binder.scope, context)
    members: list[JoinedMembership] = []
    plain: list[syntax.Expression] = []
    schema = relation.schema
    for part in split_condition(condition):
        member = membership_of(part)
        inner = None if member is None else binder.values.inside(member.query)
        joined = None if member is None or inner is None else joined_membership(member, inner, context.session)
        if joined is None:
            plain.append(part)
        else:
            members.append(joined)
    if plain:
        bound = [bind_condition(part, binder, binder.in_clause) for part in plain]
        relation, bound = binder.values.joined(relation, bound)
        whole = conjunction(bound)
        assert whole is not None
        relation = Filter(relation.schema, relation, whole)
        if len(relation.schema) > len(schema):
            relation = project(relation, schema.columns, schema.names)
    for each in members:
        relation = with_membership(relation, each, binder)
    return relation


def expanded_items(items: Sequence[tuple[syntax.Expression, str | None]], scope: Scope) -> list[Item]:
    """The items, with every `*` expanded to its columns."""
    result = []
    for expression, alias in items:
        if isinstance(expression, syntax.Star):
            row = _row_column(expression, scope)
            if row is not None:
                fields = [syntax.FieldAccess(row, name, span=expression.span) for name in _field_names(row, scope)]
                result += [Item(each, each.name) for each in fields]
                continue
            columns = scope.expanded(expression.qualifier, expression)
            result += [_star_item(expression, column, field, scope) for column, field in columns]
        else:
            result.append(Item(expression, item_name(expression, alias)))
    return result


def _star_item(star: syntax.Star, column: int, field: Field, scope: Scope) -> Item:
    """A column expanded from `*`; for columns that USING merged, the merged value."""
    name = field.written or field.name
    if star.qualifier or isinstance(scope.value(column), Column):
        return Item(star, name, column)
    return Item(syntax.Name((name,), span=star.span), name)


def _row_column(star: syntax.Star, scope: Scope) -> syntax.Name | None:
    """The row column whose fields `r.*` expands to; None if it expands to columns."""
    if not star.qualifier or any(source.answers_to(star.qualifier) for source in scope.sources):
        return None
    name = syntax.Name(star.qualifier, span=star.span)
    first = star.qualifier[0]
    is_there = first in scope.names or any(source.answers_to((first,)) for source in scope.sources)
    return name if is_there and len(scope.sources) > 0 and isinstance(_type_of(name, scope), RowType) else None


def _type_of(name: syntax.Name, scope: Scope) -> DataType:
    return scope.resolve(name.parts, name).type


def _field_names(name: syntax.Name, scope: Scope) -> tuple[str, ...]:
    row = _type_of(name, scope)
    assert isinstance(row, RowType)
    return row.names


def bind_items(
    relation: Relation,
    items: Sequence[Item],
    binder: ExpressionBinder,
    prefix: str = "EXPR$",
    qualify: syntax.Expression | None = None,
) -> Relation:
    """Projects to the items, after filtering by QUALIFY."""
    bound = [_bound(item, binder) for item in items]
    names = [item.name for item in items]
    condition = [] if qualify is None else [_qualified(qualify, items, binder)]
    overs = binder.overs or OverCalls()
    if binder.values:
        relation, placed = binder.values.joined(relation, [*bound, *condition, *overs.slots])
        bound, condition = placed[: len(bound)], placed[len(bound) : len(bound) + len(condition)]
        overs.slots[:] = placed[len(bound) + len(condition) :]
    if overs:
        relation, placed = overs.over(relation, overs.slots, [*bound, *condition])
        bound, condition = placed[: len(bound)], placed[len(bound) :]
    if condition:
        relation = Filter(relation.schema, relation, condition[0])
    return project_items(relation, bound, names, prefix)


def _qualified(qualify: syntax.Expression, items: Sequence[Item], binder: ExpressionBinder) -> RowExpression:
    """QUALIFY's condition, which may use aliases of SELECT."""
    named = {item.name: item.written for item in items if item.column is None and item.name is not None}
    return bind_condition(with_aliases(qualify, named, binder.scope.names), binder, "QUALIFY")


def with_aliases(
    node: Any, named: Mapping[Any, syntax.Expression], columns: Collection[str], session: PlannerSession | None = None
) -> Any:
    """Substitutes aliases of SELECT by their expressions; `columns` take precedence. With a `session`, aggregates are
    left unchanged: aliases are not visible in their input."""
    if isinstance(node, syntax.Name) and len(node.parts) == 1 and node.parts[0] not in columns:
        return named.get(node.parts[0], node)
    if isinstance(node, tuple):
        return tuple(with_aliases(each, named, columns, session) for each in node)
    if isinstance(node, syntax.Node) and is_dataclass(node):
        if session is not None and is_aggregate(node, session):
            return node
        changed = {each.name: with_aliases(getattr(node, each.name), named, columns, session) for each in fields(node)}
        return replace(node, **changed)
    return node


def _bound(item: Item, binder: ExpressionBinder) -> RowExpression:
    return binder.bind(item.written) if item.column is None else binder.scope.column(item.column)


def _grouped(
    relation: Relation, scope: Scope, select: queries.Select, items: Sequence[Item], context: QueryContext
) -> Relation:
    grouping = Grouping(relation, scope, context, select.group_by or ())
    grouping.overs = OverCalls(select.windows)
    return grouped_items(grouping, items, select.having, qualify=select.qualify)


def grouped_items(
    grouping: Grouping,
    items: Sequence[Item],
    having: syntax.Expression | None = None,
    prefix: str = _SQL_PREFIX,
    qualify: syntax.Expression | None = None,
) -> Relation:
    """Binds the aggregation, then HAVING, OVER and QUALIFY, then the items above it."""
    bound = []
    for item in items:
        if item.column is None:
            bound.append(grouping.bind(item.written))
        else:
            name = grouping.scope.fields[item.column].name
            bound.append(grouping.bind(syntax.Name((name,), span=item.written.span)))
    written = [item.name for item in items]
    if prefix != _SQL_PREFIX:  # the Table API numbers only expressions over aggregates by position
        written = [name or grouping.slot_name(each) for name, each in zip(written, bound, strict=True)]
    names = unique_names(written, prefix)
    for expression, name in zip(bound, names, strict=True):
        grouping.name_call(expression, name)
    qualified = [] if qualify is None else [_qualified(qualify, items, grouping)]
    condition = [] if having is None else [bind_condition(having, grouping, "HAVING")]
    overs = grouping.overs or OverCalls()
    aggregated, placed = grouping.finished(*bound, *qualified, *overs.slots, *condition)
    aggregated, placed = grouping.with_queries(aggregated, placed)
    if having is not None:
        aggregated = Filter(aggregated.schema, aggregated, placed.pop())
    if overs:
        cut = len(placed) - len(overs.slots)
        aggregated, placed = overs.over(aggregated, placed[cut:], placed[:cut])
    if qualified:
        aggregated = Filter(aggregated.schema, aggregated, placed.pop())
    return project_items(aggregated, placed, written, prefix)


def distinct_rows(relation: Relation) -> Aggregate:
    """Removes duplicate rows: groups by all columns."""
    fields = tuple(Field(each.name, each.type) for each in relation.schema.fields)
    return Aggregate(Schema(fields), relation, tuple(range(len(fields))), ())
