"""Converts a DataStream to a table, and a table to a DataStream.

The columns come from the stream's type or from a Schema, which may add computed columns, the stream's timestamps
(`column_by_metadata("rowtime", …)`) and watermarks (`SOURCE_WATERMARK()`). The legacy form is a list of fields:
`col("a"), col("b").alias("c"), col("ts").rowtime`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from millstream.common.types import RowKind
from millstream.datastream.streams.stream import DataStream
from millstream.errors import did_you_mean
from millstream.expressions.canonical_types import construction_hint
from millstream.expressions.nested_types import RowType
from millstream.expressions.types import TimestampType
from millstream.graph.nodes import Edge, Partitioning
from millstream.graph.site import refuse
from millstream.planner import table_operations as operations
from millstream.planner.definitions import table_entry
from millstream.planner.lowering.endpoints import StreamOrigin
from millstream.planner.relations import Relation
from millstream.planner.session import PlannerSession
from millstream.sql.statements import ColumnDefinition, CreateTable, KeyDefinition, WatermarkDefinition
from millstream.sql.syntax import As, Call, Name
from millstream.table.conversions.stream_types import columns_of_stream
from millstream.table.expression import Expression
from millstream.table.schema import Schema

__all__ = ["stream_relation"]

_ROWTIME = "rowtime"
_GROWS = frozenset({RowKind.INSERT})


@dataclass(frozen=True)
class _StreamTable:
    """A stream's columns as a table. `physical`: one per field of its records, in order; `others`: computed and
    metadata columns; `shown`: the names of the table's columns, in order."""

    physical: tuple[ColumnDefinition, ...]
    others: tuple[ColumnDefinition, ...] = ()
    shown: tuple[str, ...] = ()
    watermarks: tuple[WatermarkDefinition, ...] = ()
    key: KeyDefinition | None = None


def stream_relation(
    stream: DataStream, fields: Sequence[Any], session: PlannerSession, changes: frozenset[RowKind] = _GROWS
) -> Relation:
    """Converts a stream to a table by a schema, by a list of fields, or by the stream's type. `changes`: the row kinds
    that may occur."""
    row_type = columns_of_stream(stream._stream_type())
    if len(fields) == 1 and isinstance(fields[0], Schema):
        table = _of_schema(fields[0], row_type)
    elif fields:
        table = _of_fields(fields, row_type)
    else:
        table = _StreamTable(_columns(row_type.names, row_type))
    keys = () if table.key is None else (table.key,)
    statement = CreateTable(("stream",), table.physical + table.others, table.watermarks, keys)
    entry = replace(table_entry(statement, session), origin=replace(_origin(stream), changes=changes))
    held = {type_.nullable() for type_ in row_type.types}
    for column in entry.columns[: len(table.physical)]:
        way = construction_hint(column.type) if column.type.nullable() not in held else None
        if way is not None:
            raise refuse(f"the schema says that {column.name!r} of the stream is {column.type}: {way}")
    relation = operations.scan_entry(entry, session)
    if not table.shown or table.shown == relation.schema.names:
        return relation
    return operations.select(relation, [Name((name,)) for name in table.shown], session)


def _origin(stream: DataStream) -> StreamOrigin:
    edge = _plain_edge(stream)
    return StreamOrigin(edge.source, stream._node(edge.source).name.removeprefix("Source: "), edge.tag)


def _plain_edge(stream: DataStream) -> Edge:
    """The single node that emits the stream's records, which is added for a union or a partitioned stream."""
    if len(stream._edges) == 1 and stream._edges[0].partitioning is Partitioning.UNSPECIFIED:
        return stream._edges[0]
    return stream.filter(_every_record)._edges[0]


def _every_record(record: Any) -> bool:
    return True


def _columns(names: Sequence[str], row_type: RowType) -> tuple[ColumnDefinition, ...]:
    """The fields of a stream under these names."""
    pairs: Any = zip(names, row_type.types, strict=True)
    return tuple(ColumnDefinition(name, type_) for name, type_ in pairs)


def _of_schema(schema: Schema, row_type: RowType) -> _StreamTable:
    """The columns of a schema. Its types apply to the fields of the same name. Without physical columns, the stream's
    fields precede the schema's columns."""
    declared = {column.name: column for column in schema._columns if _is_physical(column)}
    others = tuple(column for column in schema._columns if not _is_physical(column))
    parts = schema._watermarks, schema._key
    if not declared:
        return _StreamTable(_columns(row_type.names, row_type), others, (), *parts)
    shown = tuple(column.name for column in schema._columns)
    unknown = [name for name in declared if name not in row_type.names]
    if not unknown:
        fields = zip(row_type.names, _columns(row_type.names, row_type), strict=True)
        physical = tuple(declared.get(name, column) for name, column in fields)
        hidden = {column.name for column in others}
        # A computed column may have the name of a field that the schema omits.
        physical = tuple(replace(each, name=f"${each.name}") if each.name in hidden else each for each in physical)
        return _StreamTable(physical, others, shown, *parts)
    if len(declared) != len(row_type.fields):
        raise refuse(
            f"the stream has no column {unknown[0]!r} of the schema.{did_you_mean(unknown[0], row_type.names)} "
            f"The stream has {', '.join(row_type.names)}"
        )
    return _StreamTable(tuple(declared.values()), others, shown, *parts)  # renames all fields, in order


def _is_physical(column: ColumnDefinition) -> bool:
    return column.expression is None and column.metadata is None


def _of_fields(fields: Sequence[Any], row_type: RowType) -> _StreamTable:
    """The columns of a list of fields, matched by name if the stream has all names, otherwise by position."""
    parts = [_field(each) for each in fields]
    plain = [part for part in parts if part.time is None]
    by_name = all(part.source in row_type.names for part in plain)
    if not by_name and len(plain) > len(row_type.fields):
        raise refuse(f"found {len(plain)} fields for a stream with {len(row_type.fields)}: {', '.join(row_type.names)}")
    names = [f"${name}" for name in row_type.names]
    for place, part in enumerate(plain):
        names[row_type.names.index(part.source) if by_name else place] = part.name
    others: list[ColumnDefinition] = []
    watermarks: list[WatermarkDefinition] = []
    for part in parts:
        if part.time == "PROCTIME":
            others.append(ColumnDefinition(part.name, expression=Call("PROCTIME")))
        elif part.time == "ROWTIME":
            moment: Any = TimestampType(3)
            others.append(ColumnDefinition(part.name, moment, metadata=_ROWTIME, is_virtual=True))
            watermarks.append(WatermarkDefinition((part.name,), Call("SOURCE_WATERMARK")))
    shown = tuple(part.name for part in parts)
    return _StreamTable(_columns(names, row_type), tuple(others), shown, tuple(watermarks))


@dataclass(frozen=True)
class _Field:
    source: str
    name: str
    time: str | None = None


def _field(field: Any) -> _Field:
    """Parses one field: a name, optionally with an alias or as a time attribute."""
    node = field._node if isinstance(field, Expression) else None
    alias = None
    if isinstance(node, As):
        alias, node = node.names[0], node.operand
    time = None
    if isinstance(node, Call) and node.name in ("ROWTIME", "PROCTIME") and len(node.arguments) == 1:
        time, node = node.name, node.arguments[0]
        if isinstance(node, As):
            alias, node = node.names[0], node.operand
    if not isinstance(node, Name):
        raise refuse(f"found {field!r} as a field of a stream, expected col('name'), .alias('other') and .rowtime")
    return _Field(node.parts[-1], alias or node.parts[-1], time)
