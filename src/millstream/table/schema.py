"""`Schema`: the columns of a table as declared by a program; a table resolves names and checks types on use.

Columns are physical, computed, or metadata of the connector; one may be the rowtime, with its watermark. A schema holds
the same definitions as parsed CREATE TABLE syntax.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.datastream.streams.argument_checks import at_users_line
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.graph.site import refuse
from millstream.pyflink_names import add_pyflink_names
from millstream.sql.parser import parse_expression
from millstream.sql.statements import ColumnDefinition, KeyDefinition, WatermarkDefinition
from millstream.table.catalogs.resolved_schema import ResolvedSchema
from millstream.table.expression import Expression
from millstream.table.expression_methods.written import written
from millstream.table.schemas.type_arguments import checked_type

__all__ = ["Schema"]


class Schema:
    """Columns, watermark and primary key.

    >>> from millstream.table.types import DataTypes
    >>> print(Schema.new_builder().column("price", DataTypes.BIGINT()).build())
    (
      `price` BIGINT
    )
    """

    def __init__(
        self,
        j_schema: Any = None,
        *,
        columns: Sequence[ColumnDefinition] = (),
        watermarks: Sequence[WatermarkDefinition] = (),
        key: KeyDefinition | None = None,
    ) -> None:
        if j_schema is not None:
            raise refuse(f"Schema: found {j_schema!r}. Make one by Schema.new_builder()….build()")
        self._columns = tuple(columns)
        self._watermarks = tuple(watermarks)
        self._key = key

    @staticmethod
    def new_builder() -> Schema.Builder:
        """Starts a schema."""
        return Schema.Builder()

    def __str__(self) -> str:
        lines = [_shown_column(column) for column in self._columns]
        lines += [f"WATERMARK FOR `{w.column[0]}` AS [{_text(w.expression)}]" for w in self._watermarks]
        if self._key is not None:
            name = f"CONSTRAINT `{self._key.name}` " if self._key.name else ""
            columns = ", ".join(f"`{column}`" for column in self._key.columns)
            lines.append(f"{name}PRIMARY KEY ({columns}) NOT ENFORCED")
        return "(\n" + ",\n".join(f"  {line}" for line in lines) + "\n)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    @property
    def _parts(self) -> tuple[Any, ...]:
        return self._columns, self._watermarks, self._key

    class Builder:
        """Collects the columns of a schema, in order."""

        def __init__(self, j_builder: Any = None) -> None:
            self._columns: list[ColumnDefinition] = []
            self._watermarks: list[WatermarkDefinition] = []
            self._key: KeyDefinition | None = None

        def from_schema(self, unresolved_schema: Schema) -> Schema.Builder:
            """Adds all definitions of another schema."""
            self._columns += unresolved_schema._columns
            self._watermarks += unresolved_schema._watermarks
            self._key = unresolved_schema._key or self._key
            return self

        def from_resolved_schema(self, resolved_schema: ResolvedSchema) -> Schema.Builder:
            """Adds the columns of a table's schema."""
            return self.from_schema(_unresolved(resolved_schema))

        def from_row_data_type(self, data_type: DataType) -> Schema.Builder:
            """Adds a physical column for each field of a row type."""
            if not isinstance(data_type, RowType):
                raise refuse(f"from_row_data_type: found {data_type!r}, expected DataTypes.ROW([...])")
            return self.from_fields(data_type.names, data_type.types)

        def from_fields(self, field_names: Sequence[str], field_data_types: Sequence[Any]) -> Schema.Builder:
            """Adds physical columns with these names and types."""
            if len(field_names) != len(field_data_types):
                raise refuse(
                    f"from_fields: found {len(field_names)} names and {len(field_data_types)} types, expected as many"
                )
            for name, data_type in zip(field_names, field_data_types, strict=True):
                self.column(name, data_type)
            return self

        def column(self, column_name: str, data_type: Any) -> Schema.Builder:
            """Adds a physical column, which the connector stores."""
            type_ = checked_type(f"column {column_name!r}", data_type)
            self._columns.append(ColumnDefinition(_name("column", column_name), type_))  # type: ignore[arg-type]
            return self

        def column_by_expression(self, column_name: str, expr: Expression[Any] | str) -> Schema.Builder:
            """Adds a computed column: an expression, or SQL text."""
            node = _expression("column_by_expression", expr)
            self._columns.append(ColumnDefinition(_name("column_by_expression", column_name), expression=node))
            return self

        def column_by_metadata(
            self, column_name: str, data_type: Any, metadata_key: str | None = None, is_virtual: bool = False
        ) -> Schema.Builder:
            """Adds a metadata column of the connector; a virtual one is never written."""
            type_: Any = checked_type(f"column_by_metadata {column_name!r}", data_type)
            name = _name("column_by_metadata", column_name)
            self._columns.append(ColumnDefinition(name, type_, metadata=metadata_key or "", is_virtual=is_virtual))
            return self

        def watermark(self, column_name: str, watermark_expr: Expression[Any] | str) -> Schema.Builder:
            """Makes a column the rowtime, with the watermark's expression."""
            node = _expression("watermark", watermark_expr)
            self._watermarks.append(WatermarkDefinition((_name("watermark", column_name),), node))
            return self

        def primary_key(self, *column_names: str) -> Schema.Builder:
            """Sets the primary key, which is not enforced."""
            return self._keyed(None, column_names)

        def primary_key_named(self, constraint_name: str, *column_names: str) -> Schema.Builder:
            """Sets the primary key, with a constraint name."""
            return self._keyed(constraint_name, column_names)

        def _keyed(self, name: str | None, columns: tuple[str, ...]) -> Schema.Builder:
            if not columns:
                raise refuse("primary_key: found no columns, expected the name of one at least")
            if self._key is not None:
                raise refuse("primary_key: found a second one. A table has one primary key, of several columns perhaps")
            self._key = KeyDefinition(columns, name)
            return self

        def build(self) -> Schema:
            """The schema."""
            return Schema(columns=self._columns, watermarks=self._watermarks, key=self._key)


def _name(method: str, name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise refuse(f"{method}: found {name!r}, expected the name of a column as text")
    return name


def _expression(method: str, expr: Any) -> Any:
    if isinstance(expr, Expression):
        return expr._node
    if not isinstance(expr, str):
        raise refuse(f"{method}: found {expr!r}, expected an expression, or one as SQL writes it")
    with at_users_line():
        return parse_expression(expr)


def _text(node: Any) -> str:
    return node.span.text if node.span is not None else written(node)


def _shown_column(column: ColumnDefinition) -> str:
    if column.expression is not None:
        return f"`{column.name}` AS [{_text(column.expression)}]"
    shown = f"`{column.name}` {column.type}"
    if column.metadata is None:
        return shown
    key = f" FROM '{column.metadata}'" if column.metadata else ""
    return f"{shown} METADATA{key}{' VIRTUAL' if column.is_virtual else ''}"


def _unresolved(schema: ResolvedSchema) -> Schema:
    columns = [column._definition for column in schema.get_columns()]
    watermarks = [spec._definition for spec in schema.get_watermark_specs()]
    key = schema.get_primary_key()
    definition = None if key is None else KeyDefinition(tuple(key.get_columns()), key.get_name())
    return Schema(columns=columns, watermarks=watermarks, key=definition)


add_pyflink_names(globals())
