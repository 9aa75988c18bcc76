"""Which changes a relation gives: the kinds of rows (+I -U +U -D) that may come out of it.

A table that only grows gives +I, and so do windows, which emit a result once. GROUP BY gives a group's row as it was
and as it is, and a deletion where its input takes rows away. What works on one row at a time hands on what it is given.
In BATCH all is +I: only final rows come.
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
    "what_is_not_built",
]

Changes = frozenset[RowKind]
GROWS: Changes = frozenset({RowKind.INSERT})
_UPDATES: Changes = frozenset({RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER})
_ALL: Changes = frozenset(RowKind)
_LETTERS = {RowKind.INSERT: "I", RowKind.UPDATE_BEFORE: "UB", RowKind.UPDATE_AFTER: "UA", RowKind.DELETE: "D"}


def changes_of(relation: Relation, *, is_batch: bool = False) -> Changes:
    """The kinds of rows that a relation may give."""
    if is_batch:
        return GROWS
    return _changes(relation, {})


def _changes(relation: Relation, known: dict[int, Changes]) -> Changes:
    if id(relation) not in known:
        given: Changes = frozenset().union(*(_changes(each, known) for each in relation.inputs))
        known[id(relation)] = _given(relation, given)
    return known[id(relation)]


def _given(relation: Relation, below: Changes) -> Changes:
    if isinstance(relation, Scan):
        return scan_changes(relation)
    if isinstance(relation, Sink):
        return frozenset()
    if isinstance(relation, Aggregate):
        if below == GROWS:
            # A group that is nothing but its key never changes.
            return _UPDATES if relation.calls else GROWS
        return _ALL if relation.groups else _UPDATES
    if isinstance(relation, WindowRank) or (
        isinstance(relation, Rank) and below == GROWS and is_first_to_come(relation)
    ):
        return GROWS
    if isinstance(relation, Rank | Normalise) or (isinstance(relation, LookupJoin) and below != GROWS):
        return _ALL
    if isinstance(relation, Over) and (below != GROWS or time_order(relation) is None):
        # Rows that come between others change what these have.
        return _ALL
    if isinstance(relation, ToChangelog):
        return GROWS
    if isinstance(relation, FromChangelog):
        return frozenset(RowKind[name] for _, name in relation.kinds)
    if isinstance(relation, TemporalJoin):
        return GROWS  # versions that go are seen by later rows only
    if type(relation) is Join and (below != GROWS or relation.kind not in (JoinKind.INNER, JoinKind.SEMI)):
        # A row that stood without a partner goes when one comes.
        return _ALL
    return below or GROWS


def scan_changes(scan: Scan) -> Changes:
    """The kinds of rows that the source of a scan gives."""
    entry = scan.table
    origin = entry.origin if isinstance(entry, TableEntry) else entry
    if origin is not None or not isinstance(entry, TableEntry):
        changes: Changes = getattr(origin, "changes", GROWS)  # a stream of the program says so
        return changes
    given = table_factory(entry, scan.options).emitted_changes(dict((*entry.options, *scan.options)))
    return frozenset(kind for kind in RowKind if str(kind) in given)


def scan_of(relation: Relation) -> Scan | None:
    """The scan below projections, filters and watermarks; None where something else stands there."""
    while isinstance(relation, Project | Filter | WatermarkAssign):
        relation = relation.input
    return relation if isinstance(relation, Scan) else None


def is_upserts(changes: Changes) -> bool:
    """Whether rows are put in the place of others, which are not given back. Rows that just come and go are not."""
    return RowKind.UPDATE_AFTER in changes and RowKind.UPDATE_BEFORE not in changes


def changes_text(changes: Changes) -> str:
    """As EXPLAIN shows them: `I,UB,UA`; NONE of a sink."""
    return ",".join(letter for kind, letter in _LETTERS.items() if kind in changes) or "NONE"


def what_is_not_built(relation: Relation) -> str | None:
    """What SQL calls a relation that cannot be run yet; None where it can be."""
    names = {Match: "MATCH_RECOGNIZE", AsOf: "FOR SYSTEM_TIME AS OF"}
    return names.get(type(relation))
