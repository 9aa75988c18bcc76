"""Lowers upsert normalisation: partitions rows by key and stores the last row of each."""

from __future__ import annotations

from millstream.common.options.table_options import STATE_LIFETIME
from millstream.expressions.row_expressions import Column
from millstream.graph.changing_nodes import NormaliseRows
from millstream.graph.field_key import FieldKey
from millstream.graph.nodes import Edge, Partitioning
from millstream.planner.changing_relations import Normalise
from millstream.planner.lowering.aggregates import key_type_of
from millstream.planner.lowering.context import Lowered, Lowering
from millstream.planner.lowering.joins import keyed_rows
from millstream.planner.relations import TimeKind

__all__ = ["lower_normalise"]


def lower_normalise(relation: Normalise, context: Lowering) -> Lowered:
    rows = context.lowered(relation.input)
    keyed = keyed_rows(rows, tuple(Column(rows.types[at], at) for at in relation.keys), context)
    key_type = key_type_of((0,), keyed.row_type)
    times = [at for at, field in enumerate(relation.schema.fields) if field.time is TimeKind.ROWTIME]
    ttl_ms = context.duration_ms(STATE_LIFETIME.key)
    operation = NormaliseRows(rows.row_type, times[0] if times else None, ttl_ms)
    node = context.add(operation, "ChangelogNormalize", (), rows.row_type, **context.uid_for(relation))
    edges = [Edge(each, Partitioning.HASH, key_selector=FieldKey(0, 0), key_type=key_type) for each in keyed.nodes]
    context.builder.amend(node.id, inputs=tuple(edges))
    context.let_change(node.id)
    return Lowered((node.id,), rows.row_type)
