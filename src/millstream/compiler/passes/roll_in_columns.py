"""Vectorises rolling aggregations of a field if its type allows it, otherwise lowers them to a reduction of records.

This requires a declared type with an Arrow representation that adds and compares like the values. Both forms return the
same results.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.aggregation.rolling_columns import rolls_in_columns
from millstream.aggregation.rolling_records import FieldReduce
from millstream.common.typeinfo import BasicType, PickledBytesTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from millstream.compiler.stream_types import typed_input
from millstream.graph.nodes import Graph, Node, Reduce, RollingField
from millstream.plan.operations import Rolling
from millstream.records.columns import arrow_type
from millstream.records.shapes import plain_type
from millstream.state.windows.bound_aggregates import basic_type

__all__ = ["roll_in_columns", "rolling_operation"]

# These types are stored in an encoding that does not add and compare like the values.
_ENCODED = (BasicType.BIG_INT, BasicType.BIG_DEC, BasicType.INSTANT)


def roll_in_columns(graph: Graph) -> Graph:
    """Turns every RollingField into a Rolling or a Reduce."""

    def lowered(node: Node) -> Node:
        if not isinstance(node.operation, RollingField):
            return node
        return replace(node, operation=rolling_operation(node.operation, typed_input(graph, node)))

    return replace(graph, nodes=tuple(map(lowered, graph.nodes)))


def rolling_operation(operation: RollingField, stream_type: TypeInformation | None) -> Rolling | Reduce:
    """The operation over a stream of this type; None means untyped."""
    kind, field, is_strict = operation.kind, operation.field, operation.is_strict
    if stream_type is None:
        return Reduce(FieldReduce(kind, field))
    assert isinstance(field, int), "a field of a typed stream is a position"
    plain = plain_type(stream_type)
    field_type = plain.get_field_types()[field] if isinstance(plain, RowTypeInfo | TupleTypeInfo) else stream_type
    if isinstance(plain_type(field_type), PickledBytesTypeInfo):
        return Reduce(FieldReduce(kind, field))
    basic, arrow = basic_type(field_type), arrow_type(field_type)
    if basic not in _ENCODED and arrow is not None and rolls_in_columns(kind, arrow):
        return Rolling(kind, field, is_strict)
    return Reduce(FieldReduce(kind, field, basic, is_strict))
