"""Converts a table to a stream of its changes, with row kinds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millstream.errors import NotYetError
from millstream.graph.site import refuse
from millstream.planner import table_operations as operations
from millstream.planner.definitions import table_entry
from millstream.planner.lowering.endpoints import StreamTarget
from millstream.planner.relations import Relation, Sink
from millstream.planner.session import PlannerSession
from millstream.planner.sinks import into_table
from millstream.sql.statements import CreateTable
from millstream.table.changelog_mode import ChangelogMode
from millstream.table.schema import Schema

__all__ = ["changelog_sink"]


def changelog_sink(relation: Relation, schema: Any, mode: Any, session: PlannerSession) -> Sink:
    """The sink that feeds the changelog stream."""
    if not isinstance(mode, ChangelogMode):
        raise refuse(f"to_changelog_stream: found {mode!r}, expected a ChangelogMode")
    if schema is not None and not isinstance(schema, Schema):
        raise refuse(f"to_changelog_stream: found {schema!r}, expected a Schema")
    key = () if schema is None or schema._key is None else tuple(schema._key.columns)
    is_upsert = mode == ChangelogMode.upsert()
    if is_upsert and not key:
        raise refuse(
            "to_changelog_stream: upserts need a key. Pass a target schema with primary_key(...), or "
            "another ChangelogMode"
        )
    target = StreamTarget(changes=mode != ChangelogMode.insert_only(), key=key if is_upsert else ())
    if schema is None or not schema._columns:
        return operations.collect(relation, target)
    others = [column.name for column in schema._columns if column.expression is not None or column.metadata is not None]
    if others:
        raise NotYetError.of(
            f"to_changelog_stream into the column '{others[0]}', which is not physical", "its metadata"
        )
    keys = () if schema._key is None else (schema._key,)
    entry = table_entry(CreateTable(("stream",), schema._columns, (), keys), session)
    return replace(into_table(relation, replace(entry, path=("stream",))), target=target)
