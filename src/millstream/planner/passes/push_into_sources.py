"""Pushes filters into sources; conditions that a source guarantees are not checked again. Columns were pruned before
(`prune_columns`): a scan lists the columns it reads.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.planner.entries import TableEntry
from millstream.planner.passes.rewriting import (
    IsShared,
    conjunction,
    conjuncts,
    is_deterministic,
    moved,
    rewritten_by_uses,
)
from millstream.planner.relations import Filter, Relation, Scan, Sink
from millstream.planner.session import PlannerSession
from millstream.planner.table_definitions import table_definition, table_factory

__all__ = ["push_into_sources"]


def push_into_sources(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Pushes filters into the sources that accept them."""

    def rule(relation: Relation, is_shared: IsShared) -> Relation:
        if not isinstance(relation, Filter) or not isinstance(relation.input, Scan) or is_shared(relation.input):
            return relation
        return _pushed(relation, relation.input, session)

    return rewritten_by_uses(sinks, rule)


def _pushed(relation: Filter, scan: Scan, session: PlannerSession) -> Relation:
    entry = scan.table
    if not isinstance(entry, TableEntry) or entry.origin is not None or entry.connector is None or scan.filters:
        return relation
    columns = scan.columns if scan.columns is not None else tuple(range(len(scan.schema)))
    places = dict(enumerate(columns))
    back = {place: index for index, place in places.items()}
    offered = [moved(part, places) for part in conjuncts(relation.condition) if is_deterministic(part)]
    definition = table_definition(entry, session, scan.options)
    made = table_factory(entry, scan.options).source(definition, columns, offered)
    accepted = made.filters
    if not accepted:
        return replace(relation, input=replace(scan, skips=made.skips)) if made.skips else relation
    rest = [part for part in conjuncts(relation.condition) if moved(part, places) not in accepted]
    assert all(moved(part, back) in conjuncts(relation.condition) for part in accepted)
    filtered = replace(scan, filters=tuple(accepted), skips=made.skips)
    condition = conjunction(rest)
    return filtered if condition is None else replace(relation, input=filtered, condition=condition)
