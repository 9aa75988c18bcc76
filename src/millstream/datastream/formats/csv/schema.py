"""The format of a CSV file: its columns and delimiters.

A schema is a row type and a dialect, both frozen. Column types are the Table API's `DataTypes`, as in PyFlink, or
`Types`. Unsupported features of Jackson, Flink's CSV reader, are rejected where they are set.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.common.typeinfo import BasicType, BasicTypeInfo, DecimalTypeInfo, RowTypeInfo, TypeInformation, Types
from millstream.connectors.files.csv_records import CsvDialect, CsvRecords
from millstream.datastream.streams.argument_checks import at_users_line, checked_text, file_type, refuse
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.errors import NotAvailableError
from millstream.expressions.data_type import DataType

if TYPE_CHECKING:
    from typing import Self

__all__ = ["CsvSchema", "CsvSchemaBuilder"]

_NOT_NUMBERS = (BasicType.STRING, BasicType.CHAR, BasicType.BOOLEAN, BasicType.INSTANT)


class CsvSchema:
    """Columns and delimiters of a CSV file.

    >>> schema = CsvSchema.builder().add_string_column("ad").add_number_column("price", Types.DOUBLE()).build()
    >>> schema.size()
    2
    """

    def __init__(
        self, j_schema: Any = None, row_type: RowTypeInfo | None = None, *, dialect: CsvDialect | None = None
    ) -> None:
        no_java_object(self, j_schema)
        if not isinstance(row_type, RowTypeInfo):
            raise refuse("CsvSchema: create one with CsvSchema.builder().add_string_column(name)...build()")
        self._row_type = row_type
        self._dialect = dialect or CsvDialect()

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        return CsvSchemaBuilder()

    def size(self) -> int:
        """The number of columns."""
        return len(self._row_type.get_field_names())

    def get_row_type(self) -> RowTypeInfo:
        """The type of the rows (beyond PyFlink)."""
        return self._row_type

    def __repr__(self) -> str:
        return f"CsvSchema({self._row_type})"


class CsvSchemaBuilder:
    """Collects columns and delimiters."""

    def __init__(self) -> None:
        self._columns: dict[str, TypeInformation] = {}
        self._separators: dict[str, str] = {}
        self._dialect = CsvDialect()

    def build(self) -> CsvSchema:
        """The schema."""
        if not self._columns:
            raise refuse("CsvSchema: no column was added")
        positions = {name: position for position, name in enumerate(self._columns)}
        separators = tuple((positions[name], separator) for name, separator in self._separators.items())
        dialect = replace(self._dialect, column_separators=separators)
        row_type = Types.ROW_NAMED(list(self._columns), list(self._columns.values()))
        with at_users_line():
            CsvRecords(row_type, dialect)
        return CsvSchema(None, row_type, dialect=dialect)

    def _add(self, name: str, type_info: TypeInformation) -> Self:
        if checked_text("CsvSchema, column", name) in self._columns:
            raise refuse(f"CsvSchema: the column {name!r} already exists. Name each column once")
        self._columns[name] = type_info
        return self

    def add_array_column(
        self, name: str, separator: str = ";", element_type: TypeInformation | DataType | None = None
    ) -> Self:
        """Adds a list in one column; its elements are STRING by default."""
        element = file_type("add_array_column", element_type)
        self._add(name, Types.LIST(Types.STRING() if element is None else element))
        self._separators[name] = checked_text("add_array_column, separator", separator)
        return self

    def add_boolean_column(self, name: str) -> Self:
        return self._add(name, Types.BOOLEAN())

    def add_number_column(self, name: str, number_type: TypeInformation | DataType | None = None) -> Self:
        """Adds a number column; LONG by default."""
        column_type = Types.LONG() if number_type is None else file_type("add_number_column", number_type)
        is_number = isinstance(column_type, BasicTypeInfo) and column_type.basic_type not in _NOT_NUMBERS
        if not is_number and not isinstance(column_type, DecimalTypeInfo):
            raise refuse(f"add_number_column: found {number_type!r}, expected a number type, such as Types.DOUBLE()")
        return self._add(name, column_type)

    def add_string_column(self, name: str) -> Self:
        return self._add(name, Types.STRING())

    def add_columns_from(self, schema: CsvSchema) -> Self:
        """Adds all columns of another schema."""
        row_type = schema.get_row_type()
        separators = dict(schema._dialect.column_separators)
        columns = zip(row_type.get_field_names(), row_type.get_field_types(), strict=True)
        for position, (name, type_info) in enumerate(columns):
            self._add(name, type_info)
            if position in separators:
                self._separators[name] = separators[position]
        return self

    def clear_columns(self) -> Self:
        self._columns.clear()
        self._separators.clear()
        return self

    def _punctuate(self, **changes: Any) -> Self:
        with at_users_line():
            self._dialect = replace(self._dialect, **changes)
        return self

    def set_allow_comments(self, allow: bool = True) -> Self:
        """Skips lines that start with '#'."""
        return self._punctuate(comments=bool(allow))

    def set_any_property_name(self, name: str) -> Self:
        raise NotAvailableError("CsvSchema.set_any_property_name: surplus columns are an error here. Name all columns")

    def disable_array_element_separator(self) -> Self:
        """Resets the separator of list elements to ';'."""
        self._separators.clear()
        return self

    def remove_array_element_separator(self, index: int) -> Self:
        """Resets the element separator of the column at `index`."""
        names = list(self._columns)
        if not 0 <= index < len(names):
            raise refuse(f"remove_array_element_separator: column {index!r} does not exist; there are {len(names)}")
        self._separators.pop(names[index], None)
        return self

    def set_array_element_separator(self, separator: str) -> Self:
        """Sets the separator of list elements."""
        checked_text("set_array_element_separator", separator)
        self._separators = dict.fromkeys(self._separators, separator)
        return self._punctuate(array_separator=separator)

    def set_column_separator(self, char: str) -> Self:
        return self._punctuate(delimiter=char)

    def disable_escape_char(self) -> Self:
        return self._punctuate(escape=None)

    def set_escape_char(self, char: str) -> Self:
        return self._punctuate(escape=char)

    def set_line_separator(self, separator: str) -> Self:
        r"""Lines end at '\n' or '\r\n'; other separators are refused."""
        if separator not in ("\n", "\r\n"):
            raise NotAvailableError(f"CsvSchema.set_line_separator({separator!r}): lines end at '\\n' or '\\r\\n' here")
        return self

    def set_null_value(self, null_value: str) -> Self:
        """Sets the string that represents None."""
        return self._punctuate(null_text=null_value)

    def disable_quote_char(self) -> Self:
        return self._punctuate(quote=None)

    def set_quote_char(self, char: str) -> Self:
        return self._punctuate(quote=char)

    def set_skip_first_data_row(self, skip: bool = True) -> Self:
        """Skips the first line."""
        return self._head("skip", skip)

    def set_strict_headers(self, strict: bool = True) -> Self:
        """Uses the first line as column names; it must name all columns of the schema."""
        if strict and self._dialect.header == "position":
            return self._punctuate(header="names")
        return self._head("names", strict)

    def set_use_header(self, use: bool = True) -> Self:
        """Uses the first line as column names, also in written files. If it names all columns of the schema, they may
        be in any order; otherwise columns are matched by position, as in Flink."""
        if use and self._dialect.header == "names":  # set_strict_headers requires more
            return self
        return self._head("position", use)

    def _head(self, header: str, on: bool) -> Self:
        current = self._dialect.header
        if on and current not in ("none", header):
            raise refuse("CsvSchema: the first line is either skipped or used as the header, not both")
        if on:
            return self._punctuate(header=header)
        return self._punctuate(header="none") if current == header else self

    def size(self) -> int:
        """The number of columns so far."""
        return len(self._columns)
