"""Lowers scans to sources, with the event time of the table's WATERMARK.

Timestamps and watermarks are assigned in the source, split by split: a watermark above a projection is moved into the
source, with its expressions over the source's columns. Only a DataStream of the program, whose source is defined
elsewhere, gets its event time mid-stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millstream.common.options.table_options import SOURCE_IDLE_TIMEOUT
from millstream.common.time import Duration
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.tables.factory import TableDefinition, TableFactory
from millstream.errors import ProgramError, SqlError, did_you_mean
from millstream.expressions.coercion import as_type
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Call, Column, RowExpression, transform
from millstream.graph.nodes import AssignTimestamps, Edge, Read
from millstream.graph.table_nodes import ColumnWatermarks, StreamRows
from millstream.planner.entries import Options, TableEntry
from millstream.planner.lowering.calcs import columns_of_row, lower_calc, lower_casts
from millstream.planner.lowering.context import Lowered, Lowering, named_row
from millstream.planner.lowering.endpoints import SourceOrigin, StreamOrigin
from millstream.planner.relations import Project, Relation, Scan, WatermarkAssign
from millstream.planner.table_definitions import check_read_metadata, table_definition, table_factory
from millstream.planner.traits.changes import GROWS, scan_changes
from millstream.records.table_type import TableRowType

__all__ = ["definition_of", "lower_scan", "lower_watermark", "table_name"]

SOURCE_WATERMARK = "SOURCE_WATERMARK"
_ROWTIME = "rowtime"


def lower_scan(relation: Scan, context: Lowering) -> Lowered:
    """Lowers a source without event time."""
    return _scanned(relation, context, None)


def lower_watermark(relation: WatermarkAssign, context: Lowering) -> Lowered:
    """Lowers the input with its event time."""
    rowtime = Column(relation.input.schema.types[relation.column], relation.column)
    name = relation.schema.names[relation.column]
    if isinstance(relation.watermark, Call) and relation.watermark.function == SOURCE_WATERMARK:
        return context.lowered(relation.input)  # the source or stream carries timestamps and watermarks
    scan, projections = _scan_below(relation.input)
    if scan is None or isinstance(_origin(scan), StreamOrigin):
        rows = context.lowered(relation.input)
        strategy = _strategy(rowtime, relation.watermark, rows.row_type, name, {}, context)
        uid = context.uid_for(relation)
        return context.added(AssignTimestamps(strategy), "WatermarkAssigner", rows.nodes, rows.row_type, **uid)
    moment: RowExpression = rowtime
    watermark = relation.watermark
    for projection in projections:
        moment, watermark = (_through(projection, each) for each in (moment, watermark))
    rows = _scanned(scan, context, (moment, watermark, name))
    for projection in reversed(projections):
        rows = lower_calc(rows, projection.expressions, projection.schema.names, context)
    return rows


def _scan_below(relation: Relation) -> tuple[Scan | None, list[Project]]:
    """The scan below projections, and these, outermost first; no scan if another relation is in between."""
    projections: list[Project] = []
    while isinstance(relation, Project):
        projections.append(relation)
        relation = relation.input
    return (relation, projections) if isinstance(relation, Scan) else (None, [])


def _through(projection: Project, expression: RowExpression) -> RowExpression:
    """Converts an expression over a projection to one over its input."""
    return transform(expression, lambda part: projection.expressions[part.index] if isinstance(part, Column) else part)


def _origin(scan: Scan) -> Any:
    return scan.table.origin if isinstance(scan.table, TableEntry) else scan.table


Times = tuple[RowExpression, RowExpression, str]
"""Rowtime and watermark over the columns of a scan, and the rowtime's name."""


def _scanned(scan: Scan, context: Lowering, times: Times | None) -> Lowered:
    origin = _origin(scan)
    if isinstance(origin, StreamOrigin):
        return _stream(scan, origin, context)
    if isinstance(origin, SourceOrigin):
        positions = tuple(range(len(_row_type_of(origin.source).fields)))
        return _read(origin.source, f"Source: {origin.name}", scan, positions, {}, context, times)
    factory = table_factory(scan.table, scan.options)
    if type(factory).source is TableFactory.source:
        raise SqlError(
            f"Connector '{factory.name}' can only be used as a sink. It cannot be used as a source: "
            f"'{table_name(scan.table)}' cannot be read"
        )
    definition = definition_of(scan.table, context, scan.options)
    check_read_metadata(scan.table, definition, scan.schema.names)
    made = factory.source(definition, _with_a_column(scan), (*scan.filters, *scan.skips))
    positions = tuple(range(len(scan.table.read))) if made.columns is None else made.columns
    options = dict((*scan.table.options, *scan.options))
    return _read(made.source, f"Source: {table_name(scan.table)}", scan, positions, options, context, times)


def _read(
    source: Any,
    name: str,
    scan: Scan,
    positions: tuple[int, ...],
    options: Mapping[str, str],
    context: Lowering,
    times: Times | None,
) -> Lowered:
    """A source with its event time, which reads `positions` of the readable columns."""
    row_type = _row_type_of(source)
    strategy: WatermarkStrategy | None = None
    declared = _declared_metadata(scan)
    if times is not None:
        # Expressions refer to the scan's columns; the source may emit others, in another order.
        place = {position: index for index, position in enumerate(positions)}
        scanned = scan.columns if scan.columns is not None else tuple(range(len(positions)))
        places = {at: place[position] for at, position in enumerate(scanned)}
        own = {at: row_type.types[at] for at, position in enumerate(positions) if position in declared}
        moment, watermark = (_moved(each, places, own) for each in times[:2])
        strategy = _strategy(moment, watermark, row_type, times[2], options, context)
    parallelism = context.whole_number("scan.parallelism", options)
    attributes = context.uid_for(scan) | ({} if parallelism is None else {"parallelism": parallelism})
    rows = context.added(Read(source, strategy), name, (), row_type, **attributes)
    if scan_changes(scan) != GROWS:
        context.let_change(rows.nodes[0])
    wanted = _with_a_column(scan) or positions
    casts = {at: declared[position] for at, position in enumerate(wanted) if position in declared}
    return lower_casts(_chosen(rows, scan, positions, context), casts, context)


def _declared_metadata(scan: Scan) -> dict[int, DataType]:
    """The declared types of metadata columns, by position; the source emits the connector's own types."""
    if not isinstance(scan.table, TableEntry) or scan.table.origin is not None:
        return {}
    return {at: column.type for at, column in enumerate(scan.table.read) if column.metadata is not None}


def _moved(expression: RowExpression, places: Mapping[int, int], own_types: Mapping[int, DataType]) -> RowExpression:
    """Converts an expression over a scan to one over the source's columns, which have `own_types`."""

    def moved(part: RowExpression) -> RowExpression:
        if not isinstance(part, Column):
            return part
        index = places[part.index]
        return as_type(Column(own_types[index], index), part.type) if index in own_types else replace(part, index=index)

    return transform(expression, moved)


def _with_a_column(scan: Scan) -> tuple[int, ...] | None:
    """The columns to read: at least one, so that a batch has a row count."""
    return (0,) if scan.columns == () else scan.columns


def _chosen(rows: Lowered, scan: Scan, positions: tuple[int, ...], context: Lowering) -> Lowered:
    """Projects to the scan's columns if the source emits others, or in a different order."""
    wanted = _with_a_column(scan)
    if wanted is None or wanted == positions:
        return rows
    place = {position: index for index, position in enumerate(positions)}
    every = columns_of_row(rows.row_type)
    names = [rows.row_type.names[place[position]] for position in wanted]
    return lower_calc(rows, [every[place[position]] for position in wanted], names, context)


def _stream(scan: Scan, origin: StreamOrigin, context: Lowering) -> Lowered:
    """Converts a DataStream's records to rows."""
    entry = scan.table
    columns = entry.read if isinstance(entry, TableEntry) else scan.schema.fields
    row_type = named_row([column.name for column in columns], [column.type for column in columns])
    rowtime = next((at for at, each in enumerate(columns) if getattr(each, "metadata", None) == _ROWTIME), None)
    operation = StreamRows(row_type, rowtime, only_grows=origin.changes == GROWS)
    node = context.add(operation, f"Source: {origin.name}", (), row_type, parallelism=None)
    context.builder.amend(node.id, inputs=origin.edges or (Edge(origin.node, tag=origin.input_tag),))
    if origin.changes != GROWS:
        context.let_change(node.id)
    return _chosen(Lowered((node.id,), row_type), scan, tuple(range(len(columns))), context)


def _row_type_of(source: Any) -> RowType:
    assert isinstance(source.type_info, TableRowType), f"{type(source).__name__} emits no table rows"
    return source.type_info.row_type


# --- event time -------------------------------------------------------------------------------------------------------


def _strategy(
    rowtime: RowExpression,
    watermark: RowExpression,
    row_type: RowType,
    name: str,
    options: Mapping[str, str],
    context: Lowering,
) -> WatermarkStrategy:
    """Event time from expressions, with the idleness and alignment options of the table or the session."""
    strategy: WatermarkStrategy = ColumnWatermarks(rowtime, watermark, row_type.types, context.table_session, name)
    idle_ms = context.duration_ms("scan.watermark.idle-timeout", options)
    if idle_ms is None:
        idle_ms = context.duration_ms(SOURCE_IDLE_TIMEOUT.key)
    if idle_ms is not None:
        strategy = strategy.with_idleness(Duration.of_millis(idle_ms))
    group = options.get("scan.watermark.alignment.group")
    drift_ms = context.duration_ms("scan.watermark.alignment.max-drift", options)
    if (group is None) != (drift_ms is None):
        raise ProgramError(
            "'scan.watermark.alignment.group' and 'scan.watermark.alignment.max-drift' go together: set both, or none"
        )
    if group is not None and drift_ms is not None:
        every_ms = context.duration_ms("scan.watermark.alignment.update-interval", options) or 1_000
        strategy = strategy.with_watermark_alignment(group, Duration.of_millis(drift_ms), Duration.of_millis(every_ms))
    return strategy


# --- definitions ------------------------------------------------------------------------------------------------------


def definition_of(entry: TableEntry, context: Lowering, hints: Options = ()) -> TableDefinition:
    """A table's definition for its connector, without the options for watermarks and parallelism."""
    whole = table_definition(entry, context.session, hints)
    options = {name: value for name, value in whole.options.items() if not _is_planner_option(name, whole.name)}
    return replace(whole, options=options)


_OWN_OPTIONS = (
    "connector",
    "scan.parallelism",
    "sink.parallelism",
    "scan.watermark.idle-timeout",
    "scan.watermark.alignment.group",
    "scan.watermark.alignment.max-drift",
    "scan.watermark.alignment.update-interval",
    "scan.watermark.emit.strategy",
    "scan.watermark.emit.on-event.gap",
)


def _is_planner_option(name: str, table: str) -> bool:
    if name.startswith("scan.watermark.") and name not in _OWN_OPTIONS:
        raise ProgramError(f"table {table!r} has the unknown option {name!r}.{did_you_mean(name, _OWN_OPTIONS)}")
    return name in _OWN_OPTIONS


def table_name(entry: TableEntry) -> str:
    """A table's name for display."""
    return entry.path[-1] if entry.path else "Unregistered table"
