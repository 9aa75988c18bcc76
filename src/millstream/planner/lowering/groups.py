"""GROUP BY without a window as a node: the groups of all rows so far."""

from __future__ import annotations

from millstream.graph.table_nodes import GroupAggregate
from millstream.planner.lowering.aggregates import key_type_of, measures_of, signed_measure
from millstream.planner.lowering.arrival_order import tell_arrival_order
from millstream.planner.lowering.context import Lowered, Lowering, named_row
from millstream.planner.lowering.state_lifetimes import kept_ms
from millstream.planner.lowering.user_aggregates import kept_by_groups
from millstream.planner.relations import Aggregate
from millstream.planner.traits.changes import GROWS, changes_of
from millstream.planner.traits.constants import constant_columns
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["lower_aggregate"]


def lower_aggregate(relation: Aggregate, context: Lowering) -> Lowered:
    rows = context.lowered(relation.input)
    tell_arrival_order(relation, context.session)
    is_signed = changes_of(relation.input, is_batch=context.session.is_batch) != GROWS
    measures = measures_of(relation.calls, rows.types, constant_columns(relation.input))
    measures = kept_by_groups(measures, relation, is_signed=is_signed, is_batch=context.session.is_batch)
    if is_signed:
        counted = () if not relation.calls else (BoundAggregate("rows", "count"),)
        measures = (*(signed_measure(each) for each in measures), *counted)
    operation = GroupAggregate(
        relation.groups,
        key_type_of(relation.groups, rows.row_type),
        measures,
        is_signed,
        kept_ms(relation, context),
    )
    row_type = named_row(relation.schema.names, relation.schema.types)
    attributes = context.uid_for(relation) | ({} if relation.groups else {"parallelism": 1})
    lowered = context.added(operation, "GroupAggregate", rows.nodes, row_type, **attributes)
    if changes_of(relation, is_batch=context.session.is_batch) != GROWS:
        context.let_change(lowered.nodes[0])
    return lowered
