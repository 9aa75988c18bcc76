"""Lowers unbounded GROUP BY to a node."""

from __future__ import annotations

from millstream.graph.table_nodes import GroupAggregate
from millstream.planner.lowering.aggregates import bound_aggregates, key_type_of, signed_aggregate
from millstream.planner.lowering.arrival_order import warn_about_arrival_order
from millstream.planner.lowering.context import Lowered, Lowering, named_row
from millstream.planner.lowering.state_lifetimes import state_ttl_ms
from millstream.planner.lowering.user_aggregates import group_aggregates
from millstream.planner.relations import Aggregate
from millstream.planner.traits.changes import GROWS, changes_of
from millstream.planner.traits.constants import constant_columns
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["lower_aggregate"]


def lower_aggregate(relation: Aggregate, context: Lowering) -> Lowered:
    rows = context.lowered(relation.input)
    warn_about_arrival_order(relation, context.session)
    is_signed = changes_of(relation.input, is_batch=context.session.is_batch) != GROWS
    measures = bound_aggregates(relation.calls, rows.types, constant_columns(relation.input))
    measures = group_aggregates(measures, relation, is_signed=is_signed, is_batch=context.session.is_batch)
    if is_signed:
        counted = () if not relation.calls else (BoundAggregate("rows", "count"),)
        measures = (*(signed_aggregate(each) for each in measures), *counted)
    operation = GroupAggregate(
        relation.groups,
        key_type_of(relation.groups, rows.row_type),
        measures,
        is_signed,
        state_ttl_ms(relation, context),
    )
    row_type = named_row(relation.schema.names, relation.schema.types)
    attributes = context.uid_for(relation) | ({} if relation.groups else {"parallelism": 1})
    lowered = context.added(operation, "GroupAggregate", rows.nodes, row_type, **attributes)
    if changes_of(relation, is_batch=context.session.is_batch) != GROWS:
        context.let_change(lowered.nodes[0])
    return lowered
