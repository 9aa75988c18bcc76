"""Lowers INSERT into a table stored in the job: rows are partitioned by primary key, or by the whole row."""

from __future__ import annotations

from millstream.aggregation.groups import is_flat
from millstream.connectors.archives.archive_sink import STAGED_TYPE, ArchiveSink
from millstream.connectors.tables.state_table import STATE_CONNECTOR, archive_of
from millstream.errors import SqlError
from millstream.graph.field_key import FieldKey
from millstream.graph.nodes import Edge, Node, Partitioning, Write
from millstream.graph.notices import warn_once
from millstream.graph.site import here
from millstream.graph.stored_table import KeptTable
from millstream.planner.entries import TableEntry
from millstream.planner.lowering.aggregates import key_type_of
from millstream.planner.lowering.calcs import columns_of_row
from millstream.planner.lowering.context import Lowered, Lowering
from millstream.planner.lowering.joins import keyed_rows
from millstream.planner.lowering.keyed_sinks import lower_by_key
from millstream.planner.lowering.scans import definition_of, table_name
from millstream.planner.passes.rewriting import relations_of
from millstream.planner.relations import Scan, Sink, WatermarkAssign
from millstream.planner.traits.changes import GROWS, changes_of, is_upserts
from millstream.planner.traits.keys import upsert_keys

__all__ = ["is_stored_in_job", "lower_materialised"]


def is_stored_in_job(entry: TableEntry) -> bool:
    """Whether the job stores the table."""
    return entry.connector == STATE_CONNECTOR


def lower_materialised(sink: Sink, entry: TableEntry, rows: Lowered, context: Lowering) -> Node:
    """Adds the node that stores the rows. `rows` have the columns of the table."""
    definition = definition_of(entry, context)
    archive = archive_of(definition)
    if archive is not None and archive.by is not None:
        _warn_without_time(sink, definition.name)
    if not _is_one_row(sink, entry, context):
        rows = lower_by_key(sink, entry.primary_key, rows, context)
    names = entry.primary_key or rows.row_type.names
    every = columns_of_row(rows.row_type)
    keys = tuple(every[rows.row_type.names.index(name)] for name in names)
    for name, key in zip(names, keys, strict=True):
        if not is_flat(key.type.arrow):
            raise SqlError(
                f"table '{definition.name}' cannot be stored by its column '{name}' of {key.type}: values of that type "
                "are not comparable. Declare a PRIMARY KEY of other columns"
            )
    keyed = keyed_rows(rows, keys, context)
    key_type = key_type_of((0,), keyed.row_type)
    ttl_ms = context.duration_ms("ttl", definition.options)
    operation = KeptTable(rows.row_type, entry.primary_key, ttl_ms, archive)
    name = _free_name(table_name(entry), context)
    named, staged = context.uid_for(sink), None if archive is None else STAGED_TYPE
    node = context.add(operation, f"Table: {name}", (), staged, queryable=name, **named)
    edges = [Edge(each, Partitioning.HASH, key_selector=FieldKey(0, 0), key_type=key_type) for each in keyed.nodes]
    stored = context.builder.amend(node.id, inputs=tuple(edges))
    if archive is not None:
        uid = f"{named['uid']}-archive" if "uid" in named else None
        context.add(Write(ArchiveSink(archive.sink())), f"Archive: {name}", (node.id,), None, uid=uid)
    return stored


def _warn_without_time(sink: Sink, table: str) -> None:
    """Warns if an archived table's query has no watermark: without one, rows never become old enough to archive."""
    below = list(relations_of([sink]))
    # A DataStream may have watermarks that its table does not declare.
    streams = any(isinstance(each, Scan) and getattr(each.table, "origin", each.table) is not None for each in below)
    if not streams and not any(isinstance(each, WatermarkAssign) for each in below):
        warn_once(
            f"archive of {table}",
            f"table '{table}' is archived by event time, and its query has no watermark: no row ever ages, and all "
            "stay in state. Declare WATERMARK FOR in the source table, or leave 'archive.by' out",
            here(),
        )


def _is_one_row(sink: Sink, entry: TableEntry, context: Lowering) -> bool:
    """Whether the table has at most one row per key, so that a delete by key removes it. In an append-only table later
    rows replace earlier ones."""
    changes = changes_of(sink.input, is_batch=context.session.is_batch)
    if not entry.primary_key or changes == GROWS or is_upserts(changes):
        return True
    written = frozenset(sink.schema.names.index(name) for name in entry.primary_key)
    return any(key <= written for key in upsert_keys(sink.input))


def _free_name(name: str, context: Lowering) -> str:
    """The table's name for queries; the second of two tables with the same name in different databases gets a
    number."""
    used = {node.queryable for node in context.builder.nodes.values()}
    number, free = 1, name
    while free in used:
        number += 1
        free = f"{name}_{number}"
    return free
