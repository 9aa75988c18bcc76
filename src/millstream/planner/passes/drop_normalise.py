"""Drops the normalisation of upserts that flow into a sink with the same key, which needs no update-before.

Only projections may be in between: a filter needs the row that it retracts, and all other relations retract previous
results. A delete carries only the key's values. The previous row is therefore needed by NOT NULL columns of the sink,
and by user functions that are otherwise never called with NULL.
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
    """Drops unneeded normalisations."""
    users: dict[int, list[Relation]] = {}
    relations = list(relations_of(sinks))
    for relation in relations:
        for below in relation.inputs:
            users.setdefault(id(below), []).append(relation)
    unneeded = {
        id(relation)
        for relation in relations
        if isinstance(relation, Normalise)
        and _reads_upserts(relation)
        and all(_is_by_key(user, relation, relation.keys, users, session) for user in users[id(relation)])
    }
    if not unneeded:
        return sinks
    known = {id(relation): relation for relation in relations}  # holds them: a collected object's id may be reused
    dropped = {id(known[each].inputs[0]): each for each in unneeded}

    def rule(relation: Relation) -> Relation:
        return relation.input if isinstance(relation, Normalise) and id(relation.input) in dropped else relation

    return rewritten(sinks, rule)


def _reads_upserts(relation: Normalise) -> bool:
    """Whether the source emits upserts; repeated changes do not count."""
    scan = scan_of(relation.input)
    return scan is not None and not any(str(kind) == "-U" for kind in scan_changes(scan))


def _is_by_key(
    user: Relation, below: Relation, keys: Sequence[int], users: dict[int, list[Relation]], session: PlannerSession
) -> bool:
    """Whether a relation's rows reach only sinks with these keys (columns of `below`)."""
    if isinstance(user, Project):
        places = column_places(user)
        if not set(keys) <= places.keys() or any(_never_takes_null(each, keys) for each in user.expressions):
            return False
        moved = [places[at] for at in keys]
        return all(_is_by_key(each, user, moved, users, session) for each in users[id(user)])
    if not isinstance(user, Sink) or not isinstance(user.target, TableEntry) or user.target.origin is not None:
        return False
    entry = user.target
    accepted = table_factory(entry).accepted_changes(table_definition(entry, session))
    names = {user.schema.names[at] for at in keys}
    is_by_key = "-U" not in accepted and "-D" in accepted and names == set(entry.primary_key)
    return is_by_key and not _is_enforced(user, entry)


def _never_takes_null(expression: RowExpression, keys: Sequence[int]) -> bool:
    """Whether an expression calls a user function with a value that is NULL only in deletes."""
    arguments = [each for part in walk(expression) if isinstance(part, UserCall) for each in part.arguments]
    return any(not each.type.is_nullable and not columns_of(each) <= set(keys) for each in arguments)


def _is_enforced(sink: Sink, entry: TableEntry) -> bool:
    """Whether rows are checked for NULLs that the table does not allow."""
    pairs = zip(sink.input.schema.types, entry.written, strict=True)
    return any(actual.is_nullable and not column.type.is_nullable for actual, column in pairs)
