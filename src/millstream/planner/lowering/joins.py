"""Regular joins as nodes: each side with its key as the first column, brought together by it.

The key is what the condition says is equal in both sides; the rest of the condition is looked at pair by pair. Without
anything equal all rows have one key, and the join runs in one task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from millstream.aggregation.groups import can_be_grouped
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, columns_of
from millstream.expressions.types import TinyIntType
from millstream.graph.field_key import FieldKey
from millstream.graph.nodes import Edge, Partitioning
from millstream.graph.table_nodes import Calc, RegularJoin, TableJoin
from millstream.planner.lowering.aggregates import key_type_of
from millstream.planner.lowering.calcs import columns_of_row
from millstream.planner.lowering.context import Lowered, Lowering, named_row
from millstream.planner.lowering.join_growth import tell_growth
from millstream.planner.lowering.state_lifetimes import kept_sides_ms
from millstream.planner.passes.rewriting import conjunction, conjuncts, is_deterministic, moved
from millstream.planner.relations import Join
from millstream.planner.traits.changes import GROWS, changes_of

__all__ = ["JoinKeys", "join_keys", "keyed_rows", "lower_join", "lower_two_sides"]


@dataclass(frozen=True)
class JoinKeys:
    """What is equal in both sides, over the columns of each; and the rest of the condition, over those of both."""

    left: tuple[RowExpression, ...]
    right: tuple[RowExpression, ...]
    rest: RowExpression | None


def join_keys(relation: Join) -> JoinKeys:
    """The keys of a join's condition."""
    width = len(relation.left.schema)
    left: list[RowExpression] = []
    right: list[RowExpression] = []
    rest: list[RowExpression] = []
    for part in conjuncts(relation.condition) if relation.condition is not None else []:
        pair = _equal_sides(part, width)
        if pair is None:
            rest.append(part)
        else:
            left.append(pair[0])
            right.append(pair[1])
    return JoinKeys(tuple(left), tuple(right), conjunction(rest))


def _equal_sides(part: RowExpression, width: int) -> tuple[RowExpression, RowExpression] | None:
    """What an equality compares, the left side's first and the right one's over its own columns; None for others."""
    if not isinstance(part, Call) or part.function != "=" or not is_deterministic(part):
        return None
    first, second = part.arguments
    if first.type.nullable() != second.type.nullable() or not can_be_grouped(first.type.arrow):
        return None
    used = columns_of(first), columns_of(second)
    if not used[0] or not used[1]:
        return None
    if min(used[0]) >= width:
        first, second, used = second, first, (used[1], used[0])
    if max(used[0]) >= width or min(used[1]) < width:
        return None
    return first, moved(second, {column: column - width for column in used[1]})


def lower_join(relation: Join, context: Lowering) -> Lowered:
    keys = join_keys(relation)
    is_batch = context.session.is_batch
    left_ms, right_ms = kept_sides_ms(relation.hints, 2, context)
    ttl_ms = left_ms, right_ms
    tell_growth(relation, ttl_ms, context.session)

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
        )

    made = lower_two_sides(relation, keys, "Join", operation, context)
    if changes_of(relation, is_batch=is_batch) != GROWS:
        context.let_change(made.nodes[0])
    return made


def lower_two_sides(
    relation: Join,
    keys: JoinKeys,
    name: str,
    operation: Callable[[tuple[RowType, RowType]], TableJoin],
    context: Lowering,
) -> Lowered:
    """Both sides with their keys before them, brought together by an operation over rows of these types."""
    sides = (context.lowered(relation.left), context.lowered(relation.right))
    edges: list[Edge] = []
    for number, (rows, expressions) in enumerate(zip(sides, (keys.left, keys.right), strict=True), start=1):
        keyed = keyed_rows(rows, expressions, context)
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


def keyed_rows(rows: Lowered, keys: tuple[RowExpression, ...], context: Lowering) -> Lowered:
    """The rows with their key before them: one column, or a row of several."""
    if not keys:
        key: RowExpression = Literal(TinyIntType(False), 0)
    elif len(keys) == 1:
        key = replace(keys[0], type=keys[0].type.nullable()) if isinstance(keys[0], Column) else keys[0]
    else:
        types = [each.type.nullable() for each in keys]
        key = Call(RowType.of([f"key{number}" for number in range(len(keys))], types, False), "ROW", keys)
    row_type = named_row(["key", *rows.row_type.names], [key.type.nullable(), *rows.types])
    calc = Calc((key, *columns_of_row(rows.row_type)), None, rows.types, context.table_session)
    return context.added(calc, "Calc", rows.nodes, row_type)
