"""Upserts that go straight into a sink by the same key need no row as it was: nothing is kept of them.

Only projections may stand between: a filter must know the row that it lets go, and every other relation takes away what
it was given. A deletion has no values but its key's. So a function of the program's that is never called with NULL
otherwise, and columns of the sink that must have a value, need the row as it was, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.expressions.row_expressions import RowExpression, UserCall, columns_of, walk
from millstream.planner.changing_relations import Normalise
from millstream.planner.entries import TableEntry
from millstream.planner.passes.rewriting import relations_of, rewritten
from millstream.planner.relations import Project, Relation, Sink
from millstream.planner.session import PlannerSession
from millstream.planner.table_definitions import table_definition, table_factory
from millstream.planner.traits.changes import scan_changes, scan_of
from millstream.planner.traits.keys import column_places

__all__ = ["drop_normalise"]


def drop_normalise(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Leave out what nobody needs."""
    users: dict[int, list[Relation]] = {}
    relations = list(relations_of(sinks))
    for relation in relations:
        for below in relation.inputs:
            users.setdefault(id(below), []).append(relation)
    unneeded = {
        id(relation)
        for relation in relations
        if isinstance(relation, Normalise)
        and _gives_upserts(relation)
        and all(_is_by_key(user, relation, relation.keys, users, session) for user in users[id(relation)])
    }
    if not unneeded:
        return sinks
    known = {id(relation): relation for relation in relations}  # an id is free when its object is gone
    gone = {id(known[each].inputs[0]): each for each in unneeded}

    def rule(relation: Relation) -> Relation:
        return relation.input if isinstance(relation, Normalise) and id(relation.input) in gone else relation

    return rewritten(sinks, rule)


def _gives_upserts(relation: Normalise) -> bool:
    """Whether rows of updates are whole; changes that may come twice are not."""
    scan = scan_of(relation.input)
    return scan is not None and not any(str(kind) == "-U" for kind in scan_changes(scan))


def _is_by_key(
    user: Relation, below: Relation, keys: Sequence[int], users: dict[int, list[Relation]], session: PlannerSession
) -> bool:
    """Whether all that a relation comes to is sinks by these keys, columns of `below`."""
    if isinstance(user, Project):
        places = column_places(user)
        if not set(keys) <= places.keys() or any(_never_takes_null(each, keys) for each in user.expressions):
            return False
        moved = [places[at] for at in keys]
        return all(_is_by_key(each, user, moved, users, session) for each in users[id(user)])
    if not isinstance(user, Sink) or not isinstance(user.target, TableEntry) or user.target.origin is not None:
        return False
    entry = user.target
    taken = table_factory(entry).accepted_changes(table_definition(entry, session))
    names = {user.schema.names[at] for at in keys}
    is_by_key = "-U" not in taken and "-D" in taken and names == set(entry.primary_key)
    return is_by_key and not _is_enforced(user, entry)


def _never_takes_null(expression: RowExpression, keys: Sequence[int]) -> bool:
    """Whether it calls a function of the program's with a value that is NULL in deletions only."""
    arguments = [each for part in walk(expression) if isinstance(part, UserCall) for each in part.arguments]
    return any(not each.type.is_nullable and not columns_of(each) <= set(keys) for each in arguments)


def _is_enforced(sink: Sink, entry: TableEntry) -> bool:
    """Whether rows are looked through for NULLs that the table does not allow."""
    pairs = zip(sink.input.schema.types, entry.written, strict=True)
    return any(given.is_nullable and not column.type.is_nullable for given, column in pairs)
