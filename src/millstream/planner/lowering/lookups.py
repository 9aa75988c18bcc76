"""Lowers lookup joins. They need no exchange or state unless input rows may be deleted; then results are stored by
key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from millstream.common.options.quantities import parse_duration_ms
from millstream.common.options.table_options import STATE_LIFETIME
from millstream.connectors.tables.lookups import LookupSettings
from millstream.errors import ProgramError, SqlError, did_you_mean
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Column
from millstream.graph import changing_nodes
from millstream.graph.field_key import FieldKey
from millstream.graph.nodes import Edge, Partitioning
from millstream.planner.changing_relations import LookupJoin
from millstream.planner.lowering.aggregates import key_type_of
from millstream.planner.lowering.context import Lowered, Lowering, named_row
from millstream.planner.lowering.joins import keyed_rows
from millstream.planner.lowering.scans import definition_of
from millstream.planner.relations import JoinKind
from millstream.planner.table_definitions import table_factory
from millstream.planner.traits.changes import GROWS, changes_of
from millstream.planner.traits.keys import upsert_keys

__all__ = ["lower_lookup"]

_HINTS = (
    "table",
    "async",
    "output-mode",
    "capacity",
    "timeout",
    "retry-predicate",
    "retry-strategy",
    "fixed-delay",
    "max-attempts",
)


def lower_lookup(relation: LookupJoin, context: Lowering) -> Lowered:
    rows = context.lowered(relation.input)
    definition = definition_of(relation.table, context, relation.options)
    key_columns = tuple(key.column for key in relation.keys)
    lookup = table_factory(relation.table, relation.options).lookup(definition, relation.columns, key_columns)
    lookup = replace(lookup, settings=_hinted(lookup.settings, dict(relation.hints)))
    operation = changing_nodes.LookupJoin(
        lookup,
        tuple(key.value for key in relation.keys),
        key_columns,
        rows.types,
        relation.condition,
        relation.kind is JoinKind.LEFT,
        context.table_session,
    )
    row_type = named_row(relation.schema.names, relation.schema.types)
    if changes_of(relation.input, is_batch=context.session.is_batch) != GROWS:
        return _changing(relation, operation, rows, row_type, context)
    return context.added(operation, "LookupJoin", rows.nodes, row_type, **context.uid_for(relation))


def _changing(
    relation: LookupJoin, plain: changing_nodes.LookupJoin, rows: Lowered, row_type: RowType, context: Lowering
) -> Lowered:
    """Lowers a lookup join of changing rows: partitions them by an upsert key, or the whole row, and stores results."""
    by = min(upsert_keys(relation.input), key=len, default=frozenset(range(len(rows.types))))
    keyed = keyed_rows(rows, tuple(Column(rows.types[at], at) for at in sorted(by)), context)
    key_type = key_type_of((0,), keyed.row_type)
    parts = {each.name: getattr(plain, each.name) for each in fields(plain)}
    ttl_ms = context.duration_ms(STATE_LIFETIME.key)
    operation = changing_nodes.ChangingLookupJoin(**parts, row_type=rows.row_type, ttl_ms=ttl_ms)
    node = context.add(operation, "LookupJoin", (), row_type, **context.uid_for(relation))
    edges = [Edge(each, Partitioning.HASH, key_selector=FieldKey(0, 0), key_type=key_type) for each in keyed.nodes]
    context.builder.amend(node.id, inputs=tuple(edges))
    context.let_change(node.id)
    return Lowered((node.id,), row_type)


def _hinted(settings: LookupSettings, hints: Mapping[str, str]) -> LookupSettings:
    """Applies a LOOKUP hint to the settings."""
    for name in hints:
        if name not in _HINTS:
            raise SqlError(f"Invalid LOOKUP hint: unknown option '{name}'.{did_you_mean(name, _HINTS)}")
    try:
        if "capacity" in hints:
            settings = replace(settings, requests=max(1, int(hints["capacity"])))
        retried = {"retry-predicate", "retry-strategy", "fixed-delay", "max-attempts"} & hints.keys()
        if not retried:
            return settings
        if len(retried) < 4 or hints["retry-predicate"] != "lookup_miss" or hints["retry-strategy"] != "fixed_delay":
            raise SqlError(
                "Invalid LOOKUP hint: retry options can be both null or all not null. Set 'retry-predicate' = "
                "'lookup_miss', 'retry-strategy' = 'fixed_delay', 'fixed-delay' and 'max-attempts'"
            )
        pause_ms, attempts = parse_duration_ms(hints["fixed-delay"]), int(hints["max-attempts"])
    except (ValueError, ProgramError) as error:
        raise SqlError(f"Invalid LOOKUP hint: {error}") from None
    return replace(settings, miss_attempts=attempts + 1, miss_pause_ms=pause_ms)
