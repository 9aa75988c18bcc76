"""Lowers regular joins: prepends the key to each side's columns, and partitions both sides by it.

The key consists of the expressions that the condition equates; the join evaluates the rest of the condition per pair.
Without an equality all rows share one key, and the join runs in one task.

A row with a NULL in its key has no match. IS NOT DISTINCT FROM, which matches NULLs, is rewritten to a key without
NULL: an is-NULL flag, and the value or a substitute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from typing import Any

from millstream.aggregation.groups import is_flat
from millstream.expressions.coercion import as_type, common_type
from millstream.expressions.data_type import DataType
from millstream.expressions.nanosecond_range import has_nanoseconds
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, columns_of
from millstream.expressions.types import (
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    LocalZonedTimestampType,
    NumericType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
)
from millstream.graph.field_key import FieldKey
from millstream.graph.nodes import Edge, Partitioning
from millstream.graph.notices import warn_once
from millstream.graph.site import here
from millstream.graph.table_nodes import Calc, RegularJoin, TableJoin
from millstream.planner.lowering.aggregates import key_type_of
from millstream.planner.lowering.calcs import columns_of_row
from millstream.planner.lowering.context import Lowered, Lowering, named_row
from millstream.planner.lowering.join_growth import warn_about_growth
from millstream.planner.lowering.state_lifetimes import side_ttls_ms
from millstream.planner.passes.rewriting import conjunction, conjuncts, is_deterministic, moved
from millstream.planner.relations import Join, Relation
from millstream.planner.traits.changes import GROWS, changes_of
from millstream.planner.traits.keys import upsert_keys
from millstream.planner.traits.null_aware import null_aware_note

__all__ = ["JoinKeys", "join_keys", "keyed_rows", "lower_join", "lower_two_sides"]


@dataclass(frozen=True)
class JoinKeys:
    """The equated expressions of both sides, over the columns of each, with their common types; and the rest of the
    condition, over the columns of both."""

    left: tuple[RowExpression, ...]
    right: tuple[RowExpression, ...]
    types: tuple[DataType, ...]
    rest: RowExpression | None


def join_keys(relation: Join) -> JoinKeys:
    """Extracts the keys from a join's condition."""
    width = len(relation.left.schema)
    left: list[RowExpression] = []
    right: list[RowExpression] = []
    types: list[DataType] = []
    rest: list[RowExpression] = []
    for part in conjuncts(relation.condition) if relation.condition is not None else []:
        pairs = _equal_sides(part, width)
        if not pairs or _are_mixed_times(part):  # times truncated for the key may differ
            rest.append(part)
        for one, other, type_ in pairs:
            left.append(one)
            right.append(other)
            types.append(type_)
    return JoinKeys(tuple(left), tuple(right), tuple(types), conjunction(rest))


def _are_mixed_times(part: RowExpression) -> bool:
    """Whether a conjunct compares times of different units."""
    types = [each.type for each in part.arguments] if isinstance(part, Call) else []
    return any(map(has_nanoseconds, types)) and not all(map(has_nanoseconds, types))


_Pair = tuple[RowExpression, RowExpression, DataType]


def _equal_sides(part: RowExpression, width: int) -> list[_Pair]:
    """The two sides of an equality, left first, each over its own columns, with their common type; empty for other
    conjuncts."""
    if not isinstance(part, Call) or part.function not in ("=", "IS NOT DISTINCT FROM") or not is_deterministic(part):
        return []
    first, second = part.arguments
    type_ = _shared_type(first.type, second.type)
    if type_ is None or not is_flat(type_.arrow):
        return []
    if isinstance(type_, TimestampType | LocalZonedTimestampType):
        first, second = as_type(first, type_), as_type(second, type_)
    used = columns_of(first), columns_of(second)
    if not used[0] or not used[1]:
        return []
    if min(used[0]) >= width:
        first, second, used = second, first, (used[1], used[0])
    if max(used[0]) >= width or min(used[1]) < width:
        return []
    second = moved(second, {column: column - width for column in used[1]})
    # For NOT NULL values, IS NOT DISTINCT FROM is equality.
    may_be_null = part.function != "=" and first.type.is_nullable and second.type.is_nullable
    return _pairs_with_null(first, second, type_) if may_be_null else [(first, second, type_)]


def _pairs_with_null(first: RowExpression, second: RowExpression, type_: DataType) -> list[_Pair]:
    """Key pairs for IS NOT DISTINCT FROM, under which NULLs match; empty for types without a substitute value."""
    value = next((value for kinds, value in _NULL_SUBSTITUTES if isinstance(type_, kinds)), None)
    if value is None:
        return []
    substitute = Literal(type_.not_null(), value)

    def is_null(each: RowExpression) -> RowExpression:
        return Call(BooleanType(False), "IS NULL", (each,))

    def present(each: RowExpression) -> RowExpression:
        return Call(type_.not_null(), "COALESCE", (each, substitute))

    return [(is_null(first), is_null(second), BooleanType(False)), (present(first), present(second), type_)]


_NULL_SUBSTITUTES: tuple[tuple[tuple[type[DataType], ...], Any], ...] = (
    ((BooleanType,), False),
    ((NumericType,), 0),
    ((CharType, VarCharType), ""),
    ((BinaryType, VarBinaryType), b""),
    ((DateType,), date(1970, 1, 1)),
    ((TimeType,), time()),
    ((TimestampType, LocalZonedTimestampType), datetime(1970, 1, 1)),
)


def _shared_type(first: DataType, second: DataType) -> DataType | None:
    """The common type of both key values without conversion, or None. Strings of different lengths share a type, as do
    byte strings: comparison neither pads nor truncates them."""
    if first.nullable() == second.nullable():
        return first.nullable()
    for moments in (TimestampType, LocalZonedTimestampType):
        if isinstance(first, moments) and isinstance(second, moments):
            # The coarser unit, which covers all years: nanoseconds are truncated, and compared again per pair.
            return (first if first.precision < second.precision else second).nullable()
    for sized in (CharType | VarCharType, BinaryType | VarBinaryType):
        if isinstance(first, sized) and isinstance(second, sized):
            return common_type([first.nullable(), second.nullable()])
    return None


def lower_join(relation: Join, context: Lowering) -> Lowered:
    keys = join_keys(relation)
    is_batch = context.session.is_batch
    left_ms, right_ms = side_ttls_ms(relation.hints, 2, context)
    ttl_ms = left_ms, right_ms
    warn_about_growth(relation, ttl_ms, context.session)
    note = None if keys.left else null_aware_note(relation)
    if note is not None:
        warn_once(f"NOT IN of {relation.uid}", note, here())

    def operation(rows: tuple[RowType, RowType]) -> RegularJoin:
        changing = (
            changes_of(relation.left, is_batch=is_batch) != GROWS,
            changes_of(relation.right, is_batch=is_batch) != GROWS,
        )
        return RegularJoin(
            relation.kind.value,
            rows,
            keys.rest,
            changing,
            context.table_session,
            ttl_ms,
            relation.expiries,
            (_is_unique(relation.left, keys.left), _is_unique(relation.right, keys.right)),
        )

    made = lower_two_sides(relation, keys, "Join", operation, context)
    if changes_of(relation, is_batch=is_batch) != GROWS:
        context.let_change(made.nodes[0])
    return made


def _is_unique(side: Relation, keys: tuple[RowExpression, ...]) -> bool:
    """Whether a side has at most one row per key."""
    columns = {key.index for key in keys if isinstance(key, Column)}
    return any(key <= columns for key in upsert_keys(side))


def lower_two_sides(
    relation: Join,
    keys: JoinKeys,
    name: str,
    operation: Callable[[tuple[RowType, RowType]], TableJoin],
    context: Lowering,
) -> Lowered:
    """Keys both sides, partitions them, and joins them with an operation over rows of these types."""
    sides = (context.lowered(relation.left), context.lowered(relation.right))
    edges: list[Edge] = []
    for number, (rows, expressions) in enumerate(zip(sides, (keys.left, keys.right), strict=True), start=1):
        keyed = keyed_rows(rows, expressions, context, keys.types)
        key_type = key_type_of((0,), keyed.row_type)
        edges += [
            Edge(node, Partitioning.HASH, key_selector=FieldKey(0, 0), key_type=key_type, input=number)
            for node in keyed.nodes
        ]
    row_type = named_row(relation.schema.names, relation.schema.types)
    attributes = context.uid_for(relation) | ({} if keys.left else {"parallelism": 1})
    node = context.add(operation((sides[0].row_type, sides[1].row_type)), name, (), row_type, **attributes)
    context.builder.amend(node.id, inputs=tuple(edges))
    return Lowered((node.id,), row_type)


def keyed_rows(
    rows: Lowered, keys: tuple[RowExpression, ...], context: Lowering, types: Sequence[DataType] = ()
) -> Lowered:
    """Prepends the key to the rows: a column, or a row of several. `types`: the key columns' types, by default the
    types of the expressions."""
    types = [each.nullable() for each in types or [each.type for each in keys]]
    if not keys:
        key: RowExpression = Literal(TinyIntType(False), 0)
        key_type: DataType = key.type
    elif len(keys) == 1:
        key = replace(keys[0], type=keys[0].type.nullable()) if isinstance(keys[0], Column) else keys[0]
        key_type = types[0]
    else:
        key_type = RowType.of([f"key{number}" for number in range(len(keys))], types, False)
        key = Call(key_type, "ROW", keys)
    row_type = named_row(["key", *rows.row_type.names], [key_type.nullable(), *rows.types])
    calc = Calc((key, *columns_of_row(rows.row_type)), None, rows.types, context.table_session)
    return context.added(calc, "Calc", rows.nodes, row_type)
