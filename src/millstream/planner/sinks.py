"""Writes a query into a table: checks its columns, casts them without loss, and puts them in the table's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.errors import did_you_mean
from millstream.expressions.coercion import as_type, can_cast
from millstream.expressions.row_expressions import Column, Literal, RowExpression
from millstream.expressions.types import NullType
from millstream.planner.binding.projections import project
from millstream.planner.entries import ColumnEntry, TableEntry
from millstream.planner.insert_places import InsertPlaces
from millstream.planner.relations import Field, Relation, Schema, Sink
from millstream.sql.places import problem
from millstream.sql.syntax import Span

__all__ = ["into_table", "written_schema"]

_NOWHERE = InsertPlaces()


def written_schema(entry: TableEntry) -> Schema:
    """The columns that an INSERT into a table provides, in order."""
    return Schema(tuple(Field(column.name, column.type) for column in entry.written))


def into_table(
    relation: Relation,
    entry: TableEntry,
    places: InsertPlaces = _NOWHERE,
    columns: Sequence[str] = (),
    partition: Mapping[str, RowExpression] | None = None,
    overwrite: bool = False,
) -> Sink:
    """The sink of a relation into a table. `columns`: the list of INSERT INTO t (…); `partition`: constants by
    column."""
    fixed = dict(partition or {})
    wanted = _wanted(entry, columns, fixed, places)
    if len(wanted) != len(relation.schema):
        place = places.values_from(len(wanted))
        raise _mismatch("Different number of columns.", relation, entry, wanted, place)
    values: dict[str, RowExpression] = {
        column.name: Column(field.type, index)
        for index, (column, field) in enumerate(zip(wanted, relation.schema.fields, strict=True))
    }
    values |= fixed
    expressions = []
    for position, column in enumerate(entry.written):
        value = values.get(column.name)
        if value is None:
            if not column.type.is_nullable:
                raise problem(f"Column '{column.name}' has no default value and does not allow NULLs", places.table())
            value = Literal(column.type, None)
        if not can_cast(value.type.nullable(), column.type.nullable(), explicit=False):
            cause = f"Incompatible types for sink column '{column.name}' at position {position + 1}."
            raise _mismatch(cause, relation, entry, wanted, _place(value, column, places))
        if isinstance(value.type, NullType) and not column.type.is_nullable:
            place = _place(value, column, places)
            raise problem(f"Column '{column.name}' does not allow NULLs: the query's value for it is NULL", place)
        expressions.append(as_type(value, column.type))
    projected = project(relation, expressions, [column.name for column in entry.written])
    return Sink(written_schema(entry), projected, entry, overwrite=overwrite, partition=tuple(fixed.items()))


def _wanted(
    entry: TableEntry, columns: Sequence[str], fixed: Mapping[str, RowExpression], places: InsertPlaces
) -> list[ColumnEntry]:
    """The columns that the query provides values for, in its order."""
    known = {column.name: column for column in entry.written}
    for name in [*columns, *fixed]:
        if name not in known:
            there = entry.column(name)
            why = "is not in the table"
            if there is not None:
                why = f"is {'computed' if there.is_computed else 'VIRTUAL metadata'}, and cannot be written"
            near = did_you_mean(name, known) if there is None else ""
            hint = f".{near}" if near else ""
            raise problem(f"Column '{name}' {why}: it has {', '.join(known)}{hint}", places.column(name))
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise problem("Target column is assigned more than once", places.column(twice, 2))
    names = list(columns) or [name for name in known if name not in fixed]
    return [known[name] for name in names]


def _mismatch(
    cause: str, relation: Relation, entry: TableEntry, wanted: Sequence[ColumnEntry], place: Span | None
) -> Exception:
    """Flink's error with the schemas of the query and the sink."""
    query = ", ".join(f"{field.name}: {field.type}" for field in relation.schema.fields)
    sink = ", ".join(f"{column.name}: {column.type}" for column in wanted)
    return problem(
        f"Column types of query result and sink for '{'.'.join(entry.path)}' do not match.\nCause: {cause}\n\n"
        f"Query schema: [{query}]\nSink schema:  [{sink}]",
        place,
    )


def _place(value: RowExpression, column: ColumnEntry, places: InsertPlaces) -> Span | None:
    """The location of a column's value: in the query, or in PARTITION."""
    return places.value(value.index) if isinstance(value, Column) else places.column(column.name)
