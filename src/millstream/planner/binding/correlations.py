"""Rows derived from each input row: table functions (LATERAL TABLE) and collection elements (UNNEST)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import FunctionDefinition, FunctionKind
from millstream.expressions.nested_types import ArrayType, MapType, MultisetType, RowType
from millstream.expressions.row_expressions import Literal, RowExpression
from millstream.expressions.types import IntType
from millstream.expressions.user_functions import UserFunction, UserFunctionKind
from millstream.planner.binding.calls import bound_arguments, cast_for_user, find_function, placed_arguments
from millstream.planner.binding.changelogs import CHANGELOG_FUNCTIONS
from millstream.planner.binding.context import QueryContext
from millstream.planner.binding.expressions import ExpressionBinder, bind_condition
from millstream.planner.binding.scope import Scope
from millstream.planner.binding.windows import WINDOW_FUNCTIONS
from millstream.planner.relations import Correlate, Field, Filter, JoinKind, Relation, Schema, Unnest
from millstream.planner.session import PlannerSession
from millstream.sql import query_syntax as queries
from millstream.sql import syntax
from millstream.sql.places import problem

__all__ = ["bind_correlated", "correlate", "is_correlated", "meeting", "unnest"]


def is_correlated(source: queries.Relation) -> bool:
    """Whether a relation of FROM is evaluated for each row of the relations before it."""
    if isinstance(source, queries.AliasedRelation):
        return is_correlated(source.relation)
    if isinstance(source, queries.TableFunctionCall):
        return source.call.name.upper() not in (*WINDOW_FUNCTIONS, *CHANGELOG_FUNCTIONS)
    return isinstance(source, queries.LateralTable | queries.Unnest)


def bind_correlated(
    relation: Relation,
    scope: Scope,
    source: queries.Relation,
    kind: JoinKind,
    condition: syntax.Expression | None,
    context: QueryContext,
) -> tuple[Relation, Scope]:
    """Joins each row of a relation with the rows derived from it."""
    alias: str | None = None
    names: tuple[str, ...] = ()
    if isinstance(source, queries.AliasedRelation):
        alias, names, source = source.alias, source.columns, source.relation
    binder = ExpressionBinder(replace(scope, outer=context.outer), context.session, "FROM")
    made: Correlate | Unnest
    if isinstance(source, queries.Unnest):
        made = unnest(relation, source, binder, names, kind)
    elif isinstance(source, queries.LateralTable | queries.TableFunctionCall):
        made = correlate(relation, source.call, binder, names, kind, context.session)
    else:
        raise problem("this relation cannot be evaluated per row", source)
    added = made.schema.fields[len(relation.schema) :]
    path = (alias,) if alias else _own_path(source)
    whole = scope + Scope((replace(Scope.of(made).sources[0], fields=added, path=path),))
    if condition is None:
        return made, whole
    names_seen = replace(whole, outer=context.outer)
    bound = bind_condition(condition, ExpressionBinder(names_seen, context.session, "ON"), "ON")
    if isinstance(bound, Literal) and bound.value is True:
        return made, whole
    return meeting(made, bound), whole


def meeting(made: Correlate | Unnest, condition: RowExpression) -> Relation:
    """Restricts the derived rows to those that meet a condition. For an INNER join this is a filter above the join,
    which passes may move; for a LEFT join it is part of the join, because rows without a match are emitted with
    NULLs."""
    if made.kind is JoinKind.INNER:
        return Filter(made.schema, made, condition)
    return replace(made, condition=condition)


def _own_path(source: queries.Relation) -> tuple[str, ...]:
    call = getattr(source, "call", None)
    return (call.name,) if call is not None else ()


def correlate(
    relation: Relation,
    call: syntax.Call,
    binder: ExpressionBinder,
    names: Sequence[str],
    kind: JoinKind,
    session: PlannerSession,
) -> Correlate:
    """A table function, called for each row."""
    function = find_function(call, session)
    placed = placed_arguments(function, call) if isinstance(function, UserFunction) else call.arguments
    operands = binder.bind_all(placed)
    if isinstance(function, UserFunction) and function.kind is UserFunctionKind.TABLE:
        arguments: tuple[RowExpression, ...] = cast_for_user(function, operands, call)
        types: Sequence[DataType] = function.result_types
        if len(types) == 1 and isinstance(types[0], RowType):
            names, types = names or types[0].names, types[0].types
    elif isinstance(function, FunctionDefinition) and function.kind is FunctionKind.TABLE:
        arguments, result = bound_arguments(function, operands, call, call.options)
        types = result.types if isinstance(result, RowType) else (result,)
    else:
        raise problem(f"{call.name} returns one value per row, not rows: use it in SELECT", call)
    own = [f"f{i}" for i in range(len(types))] if len(types) > 1 else ["EXPR$0"]
    fields = _named_fields(list(names) or own, types, kind, call)
    return Correlate(relation.schema + Schema(fields), relation, function, arguments, kind)


def _named_fields(
    names: Sequence[str], types: Sequence[DataType], kind: JoinKind, node: syntax.Node
) -> tuple[Field, ...]:
    if len(names) != len(types):
        raise problem(f"the alias has {len(names)} names for {len(types)} columns", node)
    outer = kind is JoinKind.LEFT
    return tuple(Field(name, type_.nullable() if outer else type_) for name, type_ in zip(names, types, strict=True))


def unnest(
    relation: Relation, source: queries.Unnest, binder: ExpressionBinder, names: tuple[str, ...], kind: JoinKind
) -> Unnest:
    """Joins every row with each element of a collection."""
    collection = binder.bind(source.operand)
    type_ = collection.type
    own: list[str]
    types: list[DataType]
    if isinstance(type_, ArrayType | MultisetType):
        element = type_.element_type
        if isinstance(element, RowType):
            own, types = list(element.names), [_inside(each, element) for each in element.types]
        else:
            own, types = ["EXPR$0"], [element]
    elif isinstance(type_, MapType):
        own, types = ["KEY", "VALUE"], [type_.key_type, type_.value_type]
    else:
        raise problem(f"UNNEST takes an array, map or multiset, got {type_.nullable()}", source)
    if source.with_ordinality:
        own, types = [*own, "ORDINALITY"], [*types, IntType(False)]
    fields = _named_fields(list(names) or own, types, kind, source)
    return Unnest(relation.schema + Schema(fields), relation, collection, source.with_ordinality, kind)


def _inside(field: DataType, row: RowType) -> DataType:
    return field.nullable() if row.is_nullable else field
