"""Whole queries: WITH, the body (SELECT, VALUES, or set operations), ORDER BY and LIMIT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.errors import ProgramError, SqlError
from millstream.expressions.coercion import as_type, common_type
from millstream.expressions.data_type import DataType
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression
from millstream.expressions.types import IntegralType
from millstream.planner.binding.aggregate_syntax import parts_of
from millstream.planner.binding.calls import written_text
from millstream.planner.binding.context import QueryContext
from millstream.planner.binding.expressions import ExpressionBinder
from millstream.planner.binding.projections import item_name, project, renamed
from millstream.planner.binding.scope import Scope
from millstream.planner.binding.selects import bind_select, with_aliases
from millstream.planner.not_yet import not_yet
from millstream.planner.relations import Field, Limit, Project, Relation, Schema, SetOperation, Sort, SortKey, Values
from millstream.planner.session import PlannerSession
from millstream.sql import query_syntax as queries
from millstream.sql import syntax
from millstream.sql.places import problem

__all__ = ["bind_in", "bind_query", "bind_values", "cast_columns", "united"]


def bind_query(query: queries.Query, session: PlannerSession) -> Relation:
    """The relation of a query."""
    try:
        return bind_in(query, QueryContext(session))
    except RecursionError:
        raise problem("the query and its views are nested too deeply: flatten some of them", query) from None


def bind_in(query: queries.Query, context: QueryContext) -> Relation:
    """The relation of a query in its context."""
    for cte in query.ctes:
        relation = bind_in(cte.query, context)
        if cte.columns and len(cte.columns) != len(relation.schema):
            counts = f"{len(cte.columns)} names for {len(relation.schema)} columns"
            raise problem(f"Number of columns must match number of query columns in '{cte.name}': {counts}", cte)
        context = context.with_cte(cte.name, renamed(relation, cte.columns or relation.schema.names))
    relation = _body(query.body, context)
    width = len(relation.schema)
    if query.order_by:
        relation = _ordered(relation, query, context)
    if query.limit is not None:
        relation = _limited(relation, query.limit, context.session)
    if len(relation.schema) > width:  # drop sort columns that are not selected
        chosen = relation.schema.fields[:width]
        columns = [Column(field.type, at) for at, field in enumerate(chosen)]
        return project(relation, columns, [field.name for field in chosen])
    return relation


def _body(body: queries.QueryBody, context: QueryContext) -> Relation:
    if isinstance(body, queries.Select):
        return bind_select(body, context)
    if isinstance(body, queries.Values):
        return bind_values(body.rows, ExpressionBinder(Scope(), context.session, "VALUES"), body)
    if isinstance(body, queries.SetQuery):
        left, right = bind_in(body.left, context), bind_in(body.right, context)
        return united(left, right, body.kind, body.all, body)
    if isinstance(body, queries.BoundTable):
        if body.session.store is not context.session.store:
            raise ProgramError("in_: the tables belong to different environments. Create both in the same one")
        relation: Relation = body.relation
        return relation
    raise problem(f"{type(body).__name__} is not a query", body)


def bind_values(
    rows: Sequence[Sequence[syntax.Expression]], binder: ExpressionBinder, node: syntax.Node | None
) -> Values:
    """Rows of constants, with the values of each column cast to a common type."""
    widths = {len(row) for row in rows}
    if len(widths) != 1:
        raise problem(
            f"VALUES has rows of {' and '.join(map(str, sorted(widths)))} columns: all rows need the same number", node
        )
    bound = [[binder.bind(each) for each in row] for row in rows]
    types = []
    for index in range(widths.pop()):
        column = [row[index].type for row in bound]
        type_ = common_type(column)
        if type_ is None:
            words = " and ".join(dict.fromkeys(str(each.nullable()) for each in column))
            raise problem(f"VALUES: column {index + 1} has {words}, which have no common type. Write a CAST", node)
        types.append(type_)
    fields = tuple(Field(f"EXPR${index}", type_) for index, type_ in enumerate(types))
    cast = tuple(
        tuple(_cast_cell(cell, type_, node) for cell, type_, node in zip(row, types, nodes, strict=True))
        for row, nodes in zip(bound, rows, strict=True)
    )
    return Values(Schema(fields), cast)


def _cast_cell(cell: RowExpression, type_: DataType, node: syntax.Expression) -> RowExpression:
    """A constant cast to the column's type; a run-time cast carries its text for errors."""
    cast = as_type(cell, type_)
    return replace(cast, site=written_text(node)) if isinstance(cast, Call) and cast is not cell else cast


def united(left: Relation, right: Relation, kind: str, all_: bool, node: syntax.Node | None = None) -> SetOperation:
    """UNION, INTERSECT or EXCEPT with columns cast to common types and named as on the left side."""
    if len(left.schema) != len(right.schema):
        counts = f"{len(left.schema)} and {len(right.schema)}"
        raise problem(f"Column count mismatch in {kind}: the queries have {counts} columns", node)
    types: list[DataType] = []
    for index, (first, second) in enumerate(zip(left.schema.fields, right.schema.fields, strict=True)):
        type_ = common_type([first.type, second.type])
        if type_ is None:
            words = f"{first.type.nullable()} and {second.type.nullable()}"
            raise problem(f"Type mismatch in column {index + 1} of {kind}: {words}. Write a CAST", node)
        types.append(type_)
    branches = tuple(cast_columns(each, types) for each in (left, right))
    # As in Flink, a column remains a time attribute only if it is one in all branches.
    fields = tuple(
        Field(first.name, type_, first.time if first.time is second.time else None)
        for first, second, type_ in zip(left.schema.fields, right.schema.fields, types, strict=True)
    )
    flat: list[Relation] = []
    for branch in branches:
        same = isinstance(branch, SetOperation) and (branch.kind, branch.all) == (kind, all_) == ("UNION", True)
        flat += branch.inputs if same else [branch]
    return SetOperation(Schema(fields), tuple(flat), kind, all_, site=written_text(node))


def cast_columns(relation: Relation, types: Sequence[DataType]) -> Relation:
    """The relation with its columns cast to these types."""
    columns: list[RowExpression] = [Column(each.type, i) for i, each in enumerate(relation.schema.fields)]
    cast = [as_type(column, type_) for column, type_ in zip(columns, types, strict=True)]
    if cast == columns:
        return relation
    return project(relation, cast, relation.schema.names)


# --- order and limit --------------------------------------------------------------------------------------------------


def _ordered(relation: Relation, query: queries.Query, context: QueryContext) -> Sort:
    """Sorts a query's rows. Sort expressions that are not selected are appended as temporary columns.

    A name, also inside an expression, refers to an alias of SELECT first, then to a column of FROM."""
    body, items = query.body, list(query.order_by)
    if not isinstance(body, queries.Select) or body.distinct:
        return sorted_by(relation, items, context.session)
    binder = ExpressionBinder(Scope.of(relation), context.session, "ORDER BY")
    hidden: list[queries.SelectItem] = []
    computed: dict[str, RowExpression] = {}
    named = {item_name(item.expression, item.alias): item.expression for item in reversed(body.items)}
    for place, item in enumerate(items):
        key = _ordinal(item.expression, relation)
        try:
            if not any(isinstance(part, queries.Query) for part in parts_of(item.expression)):
                key = key or binder.bind(item.expression)
        except SqlError:
            key = None  # binding the SELECT decides whether it is a column below
        if isinstance(key, Column):
            continue
        name, span = f"$order{place}", item.expression.span
        items[place] = replace(item, expression=syntax.Name((name,), span=span))
        if key is None:
            below = with_aliases(item.expression, named, (), context.session)
            hidden.append(queries.SelectItem(below, name, span=span))
        else:
            computed[name] = key
    if hidden:
        relation = bind_select(replace(body, items=(*body.items, *hidden)), context)
    if computed:
        fields = (*relation.schema.fields, *(Field(name, key.type) for name, key in computed.items()))
        relation = Project(Schema(fields), relation, (*relation.schema.columns, *computed.values()))
    return sorted_by(relation, items, context.session)


def sorted_by(relation: Relation, items: Sequence[syntax.OrderItem], session: PlannerSession) -> Sort:
    """Sorts by output columns: by name, by position, or by an expression of them."""
    binder = ExpressionBinder(Scope.of(relation), session, "ORDER BY")
    bound: list[RowExpression] = [Column(each.type, i) for i, each in enumerate(relation.schema.fields)]
    width, keys = len(bound), []
    for item in items:
        key = _ordinal(item.expression, relation) or _order_key(item.expression, binder)
        if key not in bound:
            bound.append(key)
        nulls_first = item.nulls_first if item.nulls_first is not None else not item.descending
        keys.append(SortKey(bound.index(key), item.descending, nulls_first))
    if len(bound) > width:
        raise not_yet("ORDER BY an expression that is not selected", items[0])
    return Sort(relation.schema, relation, tuple(keys), site=written_text(items[0]))


def _order_key(written: syntax.Expression, binder: ExpressionBinder) -> RowExpression:
    """The sort expression over the selected columns."""
    try:
        return binder.bind(written)
    except SqlError as error:
        if isinstance(written, syntax.Name) and "not found" in error.message:
            selected = ", ".join(binder.scope.names)
            raise problem(
                f"ORDER BY {'.'.join(written.parts)}: it is not among the selected columns, which are {selected}. "
                "DISTINCT, UNION and similar queries can be ordered by selected columns only: select it as well, or "
                "order by one of these",
                written,
            ) from None
        raise


def _ordinal(written: syntax.Expression, relation: Relation) -> RowExpression | None:
    if not isinstance(written, syntax.Literal) or written.kind != "NUMBER" or not str(written.value).isdigit():
        return None
    place = int(written.value)
    if not 1 <= place <= len(relation.schema):
        raise problem(f"Ordinal out of range: there are {len(relation.schema)} columns", written)
    return Column(relation.schema.types[place - 1], place - 1)


def _limited(relation: Relation, limit: queries.Limit, session: PlannerSession) -> Relation:
    count = None if limit.count is None else _whole(limit.count, session, "LIMIT")
    offset = 0 if limit.offset is None else _whole(limit.offset, session, "OFFSET")
    return Limit(relation.schema, relation, count, offset) if count is not None or offset else relation


def _whole(written: syntax.Expression, session: PlannerSession, clause: str) -> int:
    bound = ExpressionBinder(Scope(), session, clause).bind(written)
    if not isinstance(bound, Literal) or not isinstance(bound.type, IntegralType) or bound.value < 0:
        raise problem(f"{clause} takes a whole number of at least 0", written)
    return int(bound.value)
