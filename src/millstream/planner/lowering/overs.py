"""Lowers OVER: partitions the rows and computes the calls over their frames.

In time order over an append-only table each row is emitted once (`OverTime`). With any other order, a changing table,
or in BATCH, results are computed over all rows of a partition (`OverOrder`).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millstream.errors import ProgramError
from millstream.expressions.data_type import DataType
from millstream.expressions.row_expressions import Column
from millstream.graph.field_key import FieldKey
from millstream.graph.nodes import Edge, Partitioning
from millstream.graph.over_nodes import Frame, OverColumn, OverOrder, OverTime
from millstream.graph.table_nodes import OrderKey
from millstream.planner.lowering.aggregates import bound_aggregates, key_type_of
from millstream.planner.lowering.context import Lowered, Lowering, named_row
from millstream.planner.lowering.joins import keyed_rows
from millstream.planner.lowering.state_lifetimes import state_ttl_ms
from millstream.planner.relations import Over, OverCall, TimeKind
from millstream.planner.traits.changes import GROWS, changes_of
from millstream.planner.traits.constants import NO_ROWS, Constants, constant_columns
from millstream.planner.traits.time_orders import time_order

__all__ = ["lower_over"]

_OF_PLACES = ("ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTILE", "LAG", "LEAD")
_DAY_MS = 86_400_000


def lower_over(relation: Over, context: Lowering) -> Lowered:
    rows = context.lowered(relation.input)
    keyed = keyed_rows(rows, tuple(Column(rows.types[at], at) for at in relation.partition), context)
    key_type = key_type_of((0,), keyed.row_type)
    is_batch = context.session.is_batch
    is_changing = changes_of(relation.input, is_batch=is_batch) != GROWS
    kind = time_order(relation)
    ttl_ms = state_ttl_ms(relation, context)
    if kind is not None and not is_changing and not is_batch:
        columns = _columns(relation, rows.types, None, kind)
        if any(column.reach < 0 for column in columns):
            raise ProgramError("LAG by time with a negative number of rows would read rows that have not arrived yet")
        operation: OverTime | OverOrder = OverTime(rows.row_type, columns, kind is TimeKind.ROWTIME, ttl_ms)
    else:
        fields = relation.input.schema.fields
        order = [
            OrderKey(key.column, key.descending, key.nulls_first)
            for key in relation.order
            if fields[key.column].time is not TimeKind.PROCTIME  # processing time is the arrival order
        ]
        unit = rows.types[order[0].column].arrow if order else None
        rowtime = next((at for at, field in enumerate(fields) if field.time is TimeKind.ROWTIME), None)
        columns = _columns(relation, rows.types, unit, kind)
        operation = OverOrder(rows.row_type, columns, tuple(order), is_changing, ttl_ms, rowtime)
    row_type = named_row(relation.schema.names, relation.schema.types)
    attributes = context.uid_for(relation) | ({} if relation.partition else {"parallelism": 1})
    node = context.add(operation, "Over", (), row_type, **attributes)
    edges = [Edge(each, Partitioning.HASH, key_selector=FieldKey(0, 0), key_type=key_type) for each in keyed.nodes]
    context.builder.amend(node.id, inputs=tuple(edges))
    if changes_of(relation, is_batch=is_batch) != GROWS:
        context.let_change(node.id)
    return Lowered((node.id,), row_type)


def _columns(
    relation: Over, types: Sequence[DataType], unit: pa.DataType | None, kind: TimeKind | None
) -> tuple[OverColumn, ...]:
    constants = constant_columns(relation.input)
    measured = [call for call in relation.calls if call.call.function not in _OF_PLACES]
    aggregates = iter(bound_aggregates([call.call for call in measured], types, constants) if measured else ())
    columns = []
    for call in relation.calls:
        frame = _frame(call, unit, relation, kind)
        if call.call.function in _OF_PLACES:
            reach = _reach(call, constants) if call.call.function == "LAG" else 0
            columns.append(OverColumn(call.call.function, frame, None, call.call.arguments, reach))
        else:
            columns.append(OverColumn(call.call.function, frame, next(aggregates)))
    return tuple(columns)


def _frame(call: OverCall, unit: pa.DataType | None, relation: Over, kind: TimeKind | None) -> Frame:
    """The frame, with bounds in the unit of the sort column. Processing time without a start bound means arrival order:
    no two rows are peers."""
    if not relation.order:
        if call.frame == "ROWS":
            return Frame("ROWS", call.preceding, call.following)
        return Frame("RANGE", None, None)  # without an order all rows are peers
    bounds = (call.preceding, call.following)
    if kind is TimeKind.PROCTIME and unit is None and call.preceding is None and call.frame == "RANGE":
        return Frame("ROWS", *bounds)
    if call.frame == "ROWS" or unit is None:
        return Frame(call.frame, *bounds)
    return Frame("RANGE", *(None if bound is None else _in_unit(bound, unit) for bound in bounds))


def _in_unit(bound: float, unit: pa.DataType) -> float:
    """Converts a distance in milliseconds to the unit of a time column; numbers are unchanged."""
    if pa.types.is_date32(unit):
        return bound // _DAY_MS
    if pa.types.is_timestamp(unit) or pa.types.is_time(unit):
        factors = {"ms": 1, "us": 1_000, "ns": 1_000_000}
        return bound // 1_000 if unit.unit == "s" else bound * factors[unit.unit]
    return bound


def _reach(call: OverCall, constants: Constants) -> int:
    """The row offset of LAG."""
    if len(call.call.arguments) < 2:
        return 1
    rows = constants.get(call.call.arguments[1])
    if rows is NO_ROWS:
        return 1
    if not isinstance(rows, int):
        raise ProgramError("LAG: the number of rows must be a constant, such as LAG(price, 2)")
    return rows
