"""Upsert keys: sets of columns whose values identify at most one row of a relation at any time.

A declared primary key is trusted, as in Flink. Uncertain sets are omitted: a sink whose key contains no upsert key
stores the rows that it received.
"""

from __future__ import annotations

from collections.abc import Mapping

from millstream.expressions.row_expressions import Column
from millstream.planner.changing_relations import Normalise
from millstream.planner.entries import TableEntry
from millstream.planner.relations import (
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Limit,
    Project,
    Rank,
    Relation,
    Scan,
    Sink,
    WatermarkAssign,
    WindowAggregate,
)

__all__ = ["Keys", "column_places", "upsert_keys"]

Keys = frozenset[frozenset[int]]
_NONE: Keys = frozenset()
_KEYS_MAX = 16


def upsert_keys(relation: Relation) -> Keys:
    """The sets of columns that identify a row."""
    if isinstance(relation, Scan):
        return _declared(relation)
    if isinstance(relation, Normalise):
        return frozenset({frozenset(relation.keys)})
    if isinstance(relation, Filter | Limit | WatermarkAssign | Sink):
        return upsert_keys(relation.input)
    if isinstance(relation, Project):
        places = column_places(relation)
        return _moved(upsert_keys(relation.input), places)
    if isinstance(relation, Aggregate) and not relation.sets:
        return frozenset({frozenset(range(len(relation.groups)))})
    if isinstance(relation, WindowAggregate):
        return _NONE  # rows that never change need no key
    if isinstance(relation, Rank):
        return _of_rank(relation)
    if isinstance(relation, Join):
        return _of_join(relation)
    return _NONE


def column_places(relation: Project) -> dict[int, int]:
    """Maps the input's columns that a projection passes on unchanged to their positions in its result."""
    places: dict[int, int] = {}
    for at, expression in enumerate(relation.expressions):
        if isinstance(expression, Column):
            places.setdefault(expression.index, at)
    return places


def _moved(keys: Keys, places: Mapping[int, int]) -> Keys:
    return frozenset(frozenset(places[at] for at in key) for key in keys if key <= places.keys())


def _declared(scan: Scan) -> Keys:
    entry = scan.table
    if not isinstance(entry, TableEntry) or not entry.primary_key:
        return _NONE
    names = scan.schema.names
    if not set(entry.primary_key) <= set(names):
        return _NONE
    return frozenset({frozenset(names.index(name) for name in entry.primary_key)})


def _of_rank(rank: Rank) -> Keys:
    width = len(rank.input.schema)
    keys = set(upsert_keys(rank.input))
    if rank.first == rank.last == 1 and rank.kind == "ROW_NUMBER":
        keys.add(frozenset(rank.partition))
    if rank.has_number and rank.kind == "ROW_NUMBER":
        keys.add(frozenset({*rank.partition, width}))
    return frozenset(keys)


def _of_join(join: Join) -> Keys:
    """A row of each side identifies a pair; one side identifies an unmatched row, as the other is NULL."""
    left = upsert_keys(join.left)
    if join.kind in (JoinKind.SEMI, JoinKind.ANTI):
        return left
    width = len(join.left.schema)
    right = frozenset(frozenset(at + width for at in key) for key in upsert_keys(join.right))
    pairs = frozenset(one | other for one in left for other in right)
    return pairs if len(pairs) <= _KEYS_MAX else _NONE
