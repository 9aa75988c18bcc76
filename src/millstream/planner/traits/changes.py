"""The row kinds (+I -U +U -D) that a relation may emit.

Append-only tables emit +I, as do windows, which emit each result once. GROUP BY emits a group's previous and new row,
and a delete if its input emits deletes. Row-wise relations pass on their input's kinds. BATCH emits only final rows, as
+I.
"""

from __future__ import annotations

from millstream.common.types import RowKind
from millstream.planner.changing_relations import FromChangelog, LookupJoin, Normalise, ToChangelog
from millstream.planner.entries import TableEntry
from millstream.planner.relations import (
    Aggregate,
    AsOf,
    Filter,
    Join,
    JoinKind,
    Match,
    Over,
    Project,
    Rank,
    Relation,
    Scan,
    Sink,
    WatermarkAssign,
)
from millstream.planner.table_definitions import table_factory
from millstream.planner.time_joins import TemporalJoin
from millstream.planner.traits.time_orders import is_first_to_come, time_order
from millstream.planner.window_ranks import WindowRank

__all__ = [
    "GROWS",
    "Changes",
    "changes_of",
    "changes_text",
    "is_upserts",
    "scan_changes",
    "scan_of",
    "unsupported_clause",
]

Changes = frozenset[RowKind]
GROWS: Changes = frozenset({RowKind.INSERT})
_UPDATES: Changes = frozenset({RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER})
_ALL: Changes = frozenset(RowKind)
_LETTERS = {RowKind.INSERT: "I", RowKind.UPDATE_BEFORE: "UB", RowKind.UPDATE_AFTER: "UA", RowKind.DELETE: "D"}


def changes_of(relation: Relation, *, is_batch: bool = False) -> Changes:
    """The row kinds that a relation may emit."""
    if is_batch:
        return GROWS
    return _changes(relation, {})


def _changes(relation: Relation, known: dict[int, Changes]) -> Changes:
    if id(relation) not in known:
        below: Changes = frozenset().union(*(_changes(each, known) for each in relation.inputs))
        known[id(relation)] = _emitted(relation, below)
    return known[id(relation)]


def _emitted(relation: Relation, below: Changes) -> Changes:
    if isinstance(relation, Scan):
        return scan_changes(relation)
    if isinstance(relation, Sink):
        return frozenset()
    if isinstance(relation, Aggregate):
        if below == GROWS:
            # A group without aggregates consists of its key and never changes.
            return _UPDATES if relation.calls else GROWS
        return _ALL if relation.groups else _UPDATES
    if isinstance(relation, WindowRank) or (
        isinstance(relation, Rank) and below == GROWS and is_first_to_come(relation)
    ):
        return GROWS
    if isinstance(relation, Rank | Normalise) or (isinstance(relation, LookupJoin) and below != GROWS):
        return _ALL
    if isinstance(relation, Over) and (below != GROWS or time_order(relation) is None):
        # An inserted row changes the results of the rows around it.
        return _ALL
    if isinstance(relation, ToChangelog):
        return GROWS
    if isinstance(relation, FromChangelog):
        return frozenset(RowKind[name] for _, name in relation.kinds)
    if isinstance(relation, TemporalJoin):
        return GROWS  # a deleted version affects only rows that arrive later
    if type(relation) is Join and (below != GROWS or relation.kind not in (JoinKind.INNER, JoinKind.SEMI)):
        # An unmatched row is retracted when its first match arrives.
        return _ALL
    return below or GROWS


def scan_changes(scan: Scan) -> Changes:
    """The row kinds that a scan's source emits."""
    entry = scan.table
    origin = entry.origin if isinstance(entry, TableEntry) else entry
    if origin is not None or not isinstance(entry, TableEntry):
        changes: Changes = getattr(origin, "changes", GROWS)  # DataStreams of the program declare their own kinds
        return changes
    declared = table_factory(entry, scan.options).emitted_changes(dict((*entry.options, *scan.options)))
    return frozenset(kind for kind in RowKind if str(kind) in declared)


def scan_of(relation: Relation) -> Scan | None:
    """The scan below projections, filters and watermarks; None if another relation is in between."""
    while isinstance(relation, Project | Filter | WatermarkAssign):
        relation = relation.input
    return relation if isinstance(relation, Scan) else None


def is_upserts(changes: Changes) -> bool:
    """Whether rows replace others without retracting them. Plain inserts and deletes are not upserts."""
    return RowKind.UPDATE_AFTER in changes and RowKind.UPDATE_BEFORE not in changes


def changes_text(changes: Changes) -> str:
    """The kinds as EXPLAIN prints them: `I,UB,UA`; NONE for a sink."""
    return ",".join(letter for kind, letter in _LETTERS.items() if kind in changes) or "NONE"


def unsupported_clause(relation: Relation) -> str | None:
    """The SQL name of an unsupported relation; None for supported ones."""
    names = {Match: "MATCH_RECOGNIZE", AsOf: "FOR SYSTEM_TIME AS OF"}
    return names.get(type(relation))
