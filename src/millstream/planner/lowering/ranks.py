"""Lowers Top-N and deduplication: partitions the rows, orders them and emits the first ones."""

from __future__ import annotations

import pyarrow as pa

from millstream.errors import LATER, NotYetError
from millstream.expressions.row_expressions import Column
from millstream.graph.field_key import FieldKey
from millstream.graph.nodes import Edge, Partitioning
from millstream.graph.table_nodes import OrderKey, RankRows, RankWindows
from millstream.planner.lowering.aggregates import key_type_of
from millstream.planner.lowering.context import Lowered, Lowering, named_row
from millstream.planner.lowering.joins import keyed_rows
from millstream.planner.lowering.state_lifetimes import state_ttl_ms
from millstream.planner.relations import Rank, TimeKind
from millstream.planner.traits.changes import GROWS, changes_of
from millstream.planner.window_ranks import WindowRank
from millstream.state.windows.local_time import arrow_zone

__all__ = ["lower_rank"]


def lower_rank(relation: Rank, context: Lowering) -> Lowered:
    rows = context.lowered(relation.input)
    keyed = keyed_rows(rows, tuple(Column(rows.types[at], at) for at in relation.partition), context)
    key_type = key_type_of((0,), keyed.row_type)
    is_batch = context.session.is_batch
    order, latest_first = _order(relation)
    if isinstance(relation, WindowRank):
        latest_first |= relation.latest_first
    for key in order:
        if pa.types.is_nested(rows.types[key.column].arrow):
            name = relation.input.schema.names[key.column]
            raise NotYetError.of(f"ORDER BY '{name}', which is {rows.types[key.column]}", LATER)
    shape = (relation.kind, rows.row_type, order, relation.first, relation.last, relation.has_number, latest_first)
    if isinstance(relation, WindowRank):
        end = relation.bounds[1] if relation.time_kind is TimeKind.PROCTIME else None
        operation: RankRows = RankWindows(*shape, end=end, zone=arrow_zone(context.session.zone))
    else:
        is_changing = changes_of(relation.input, is_batch=is_batch) != GROWS
        fields = relation.input.schema.fields
        rowtime = next((at for at, field in enumerate(fields) if field.time is TimeKind.ROWTIME), None)
        operation = RankRows(*shape, is_changing, state_ttl_ms(relation, context), rowtime)
    row_type = named_row(relation.schema.names, relation.schema.types)
    attributes = context.uid_for(relation) | ({} if relation.partition else {"parallelism": 1})
    node = context.add(operation, type(relation).__name__, (), row_type, **attributes)
    edges = [Edge(each, Partitioning.HASH, key_selector=FieldKey(0, 0), key_type=key_type) for each in keyed.nodes]
    context.builder.amend(node.id, inputs=tuple(edges))
    if changes_of(relation, is_batch=is_batch) != GROWS:
        context.let_change(node.id)
    return Lowered((node.id,), row_type)


def _order(relation: Rank) -> tuple[tuple[OrderKey, ...], bool]:
    """The sort keys, and whether the latest of equal rows ranks first. Processing time means arrival order. Of several
    rows with the latest event time, the last to arrive is retained, as in Flink."""
    fields = relation.input.schema.fields
    keys: list[OrderKey] = []
    for key in relation.order:
        if fields[key.column].time is TimeKind.PROCTIME:
            return tuple(keys), key.descending
        keys.append(OrderKey(key.column, key.descending, key.nulls_first))
    is_last_by_time = (
        relation.last == 1
        and len(relation.order) == 1
        and fields[relation.order[0].column].time is TimeKind.ROWTIME
        and relation.order[0].descending
    )
    return tuple(keys), is_last_by_time
