"""Lowers the conversions between changes and rows to nodes."""

from __future__ import annotations

from millstream.common.types import RowKind
from millstream.graph.changing_nodes import ChangesAsRows, RowsAsChanges
from millstream.planner.changing_relations import FromChangelog, ToChangelog
from millstream.planner.lowering.context import Lowered, Lowering, named_row
from millstream.planner.lowering.keyed_sinks import lower_by_key
from millstream.planner.relations import Relation, Scan
from millstream.planner.traits.changes import GROWS, changes_of

__all__ = ["lower_from_changelog", "lower_to_changelog"]


def lower_to_changelog(relation: ToChangelog, context: Lowering) -> Lowered:
    rows = context.lowered(relation.input)
    if relation.key and changes_of(relation.input, is_batch=context.session.is_batch) != GROWS:
        # A filter may have dropped half of an update, or the halves have different keys: emit changes by key.
        rows = lower_by_key(relation, relation.key_names, rows, context)
    row_type = named_row(relation.schema.names, relation.schema.types)
    return context.added(ChangesAsRows(relation.codes), "ToChangelog", rows.nodes, row_type)


def lower_from_changelog(relation: FromChangelog, context: Lowering) -> Lowered:
    # The order of change rows matters from the source on: operators upstream of this one stay in the source's tasks.
    for scan in _scans(relation.input):
        for node in context.lowered(scan).nodes:
            context.let_change(node)
    rows = context.lowered(relation.input)
    row_type = named_row(relation.schema.names, relation.schema.types)
    operation = RowsAsChanges(
        relation.op, tuple((code, RowKind[name]) for code, name in relation.kinds), relation.skips
    )
    lowered = context.added(operation, "FromChangelog", rows.nodes, row_type)
    context.let_change(lowered.nodes[0])
    return lowered


def _scans(relation: Relation) -> list[Relation]:
    if isinstance(relation, Scan):
        return [relation]
    return [scan for each in relation.inputs for scan in _scans(each)]
