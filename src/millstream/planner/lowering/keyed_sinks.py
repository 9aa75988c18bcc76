"""Sinks by key: sends the rows of a key to one task and reduces them to one change per key and epoch.

Chooses the cheapest of four correct strategies. Upserts by the sink's own key are passed on. An aggregation by the
sink's key emits each key from one task: its update-before rows are dropped. If the sink's key contains an upsert key of
the query, changes are consolidated by key. Otherwise several rows may share a key, and are stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.common.options import read
from millstream.common.options.table_options import NOT_NULL_ENFORCER, STATE_LIFETIME, UPSERT_MATERIALIZE
from millstream.expressions.row_expressions import Column
from millstream.graph.changing_nodes import LatestRows, MaterialiseRows
from millstream.graph.field_key import FieldKey
from millstream.graph.nodes import Edge, Partitioning
from millstream.planner.changing_relations import ToChangelog
from millstream.planner.lowering.aggregates import key_type_of
from millstream.planner.lowering.context import Lowered, Lowering
from millstream.planner.lowering.joins import keyed_rows
from millstream.planner.passes.check_determinism import check_steady
from millstream.planner.relations import Aggregate, Project, Relation, Sink
from millstream.planner.traits.changes import GROWS, changes_of, is_upserts
from millstream.planner.traits.keys import column_places, upsert_keys

__all__ = ["is_by_key", "lower_by_key"]


def is_by_key(changes: Sequence[str]) -> bool:
    """Whether a sink replaces rows by key and needs no update-before."""
    return "+U" in changes and "-U" not in changes


def lower_by_key(sink: Sink | ToChangelog, names: Sequence[str], rows: Lowered, context: Lowering) -> Lowered:
    """The rows as changes by the key with these column names, as a sink or changelog requires."""
    key = tuple(rows.row_type.names.index(name) for name in names)
    changes = changes_of(sink.input, is_batch=context.session.is_batch)
    if not key or is_upserts(changes):
        return rows
    written = frozenset(sink.schema.names.index(name) for name in names)
    mode = read(UPSERT_MATERIALIZE, context.session.config)
    has_key = changes == GROWS or any(each <= written for each in upsert_keys(sink.input))
    # A row rejected for a NULL also rejects its predecessor: only an operator that receives both can do that.
    drops = read(NOT_NULL_ENFORCER, context.session.config) == "drop"
    if mode != "force" and not drops and _is_grouped(sink.input, written):
        return context.added(LatestRows(), "LatestRows", rows.nodes, rows.row_type)
    is_stored = mode == "force" or (mode == "auto" and not has_key)
    if is_stored and changes != GROWS:
        check_steady(sink, context.session)
    keyed = keyed_rows(rows, tuple(Column(rows.types[at], at) for at in key), context)
    key_type = key_type_of((0,), keyed.row_type)
    ttl_ms = context.duration_ms(STATE_LIFETIME.key)
    uid = context.uid_for(sink).get("uid")
    meaning = context.meanings.of_sink_by_key(sink, names, rows.row_type.names) if is_stored else None
    attributes = {} if uid is None else {"uid": f"{uid}-by-key", "meaning": meaning}
    node = context.add(
        MaterialiseRows(rows.row_type, is_stored, ttl_ms), "SinkMaterializer", (), rows.row_type, **attributes
    )
    edges = [Edge(each, Partitioning.HASH, key_selector=FieldKey(0, 0), key_type=key_type) for each in keyed.nodes]
    context.builder.amend(node.id, inputs=tuple(edges))
    context.let_change(node.id)
    return Lowered((node.id,), rows.row_type)


def _is_grouped(relation: Relation, key: frozenset[int]) -> bool:
    """Whether rows are groups by exactly these columns, directly from the tasks that own them."""
    while isinstance(relation, Project):
        places = {at: below for below, at in column_places(relation).items()}
        if not key <= places.keys():
            return False
        key, relation = frozenset(places[at] for at in key), relation.input
    # Rows of different GROUPING SETS may share a key.
    return isinstance(relation, Aggregate) and not relation.sets and key == frozenset(range(len(relation.groups)))
