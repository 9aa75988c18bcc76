"""Lowers the sinks of a plan: connector tables, rows that the program collects, and streams."""

from __future__ import annotations

from millstream.common.options import read
from millstream.common.options.table_options import LENGTH_ENFORCER, NOT_NULL_ENFORCER
from millstream.errors import LATER, ConfigurationError, NotYetError
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Column
from millstream.graph.nodes import Node, Write
from millstream.graph.table_nodes import Calc, EnforceRows
from millstream.planner.entries import TableEntry
from millstream.planner.lowering.calcs import columns_of_row, lower_calc, lower_casts
from millstream.planner.lowering.context import Lowered, Lowering
from millstream.planner.lowering.endpoints import CollectTarget, StreamTarget
from millstream.planner.lowering.keyed_sinks import is_by_key, lower_by_key
from millstream.planner.lowering.materialised import is_stored_in_job, lower_materialised
from millstream.planner.lowering.scans import definition_of, table_name
from millstream.planner.relations import Sink
from millstream.planner.table_definitions import check_written_metadata, table_factory

__all__ = ["lower_sink"]


def lower_sink(sink: Sink, context: Lowering) -> Node:
    """Adds a sink's nodes and returns the last, which writes the rows or emits them to a stream."""
    rows, target = context.lowered(sink.input), sink.target
    if isinstance(target, StreamTarget):
        if target.key:
            rows = lower_by_key(sink, target.key, rows, context)
        return context.builder.nodes[_single(rows, context).nodes[0]]
    if isinstance(target, CollectTarget):
        return context.add(Write(target.sink), f"Sink: {target.name}", rows.nodes, None, **context.uid_for(sink))
    if not isinstance(target, TableEntry):
        raise NotYetError.of(f"a sink into {type(target).__name__}", LATER)
    return _table(sink, target, rows, context)


def _single(rows: Lowered, context: Lowering) -> Lowered:
    """Merges the rows into one node."""
    if len(rows.nodes) == 1:
        return rows
    calc = Calc(columns_of_row(rows.row_type), None, rows.types, context.table_session)
    return context.added(calc, "Calc", rows.nodes, rows.row_type)


def _table(sink: Sink, entry: TableEntry, rows: Lowered, context: Lowering) -> Node:
    # Connectors expect physical columns first, then writable metadata.
    order = [*entry.physical, *(each for each in entry.metadata if not each.is_virtual)]
    place = {column.name: at for at, column in enumerate(entry.written)}
    wanted = [Column(rows.types[place[each.name]], place[each.name]) for each in order]
    rows = lower_calc(rows, wanted, [each.name for each in order], context)
    rows = _enforced(rows, RowType.of([each.name for each in order], [each.type for each in order], False), context)
    if is_stored_in_job(entry):
        return lower_materialised(sink, entry, rows, context)
    factory, definition = table_factory(entry), definition_of(entry, context)
    check_written_metadata(entry, definition, factory)
    metadata = [each.type for each in definition.metadata if not each.is_virtual]
    rows = lower_casts(rows, dict(enumerate(metadata, len(entry.physical))), context)
    if is_by_key(factory.accepted_changes(definition)):
        rows = lower_by_key(sink, entry.primary_key, rows, context)
    written = factory.sink(definition, sink.overwrite)
    parallelism = context.whole_number("sink.parallelism", dict(entry.options))
    if parallelism is not None and context.is_changing(rows):
        raise ConfigurationError(
            f"'sink.parallelism' of '{table_name(entry)}' is {parallelism}, which would reorder changes on the way to "
            "its tasks. Remove the option: the sink has the parallelism of the query"
        )
    attributes = context.uid_for(sink) | ({} if parallelism is None else {"parallelism": parallelism})
    return context.add(Write(written), f"Sink: {table_name(entry)}", rows.nodes, None, **attributes)


def _enforced(rows: Lowered, row_type: RowType, context: Lowering) -> Lowered:
    """Enforces the table's NOT NULL constraints and lengths; adds no node if the types already guarantee them."""
    nulls = read(NOT_NULL_ENFORCER, context.session.config)
    lengths = read(LENGTH_ENFORCER, context.session.config)
    may_be_null = any(
        actual.is_nullable and not wanted.is_nullable for actual, wanted in zip(rows.types, row_type.types, strict=True)
    )
    if not may_be_null and lengths == "ignore":
        return rows if rows.row_type == row_type else _retyped(rows, row_type, context)
    return context.added(EnforceRows(nulls, lengths), "ConstraintEnforcer", rows.nodes, row_type)


def _retyped(rows: Lowered, row_type: RowType, context: Lowering) -> Lowered:
    """Retypes the columns to the table's own names and types, which differ in nullability only."""
    calc = Calc(columns_of_row(rows.row_type), None, rows.types, context.table_session)
    return context.added(calc, "Calc", rows.nodes, row_type)
