"""CSV: files of rows, and rows as messages. How a file looks is said by a `CsvSchema` (`schema`)."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.connectors.files.csv_records import CsvDialect, CsvRecords
from millstream.connectors.files.csv_text import CsvLines, field_text
from millstream.connectors.files.parts import CsvParts
from millstream.connectors.files.values import text_converter
from millstream.datastream.connectors.file_system.sink import PartsWriterFactory
from millstream.datastream.connectors.file_system.source import StreamFormat
from millstream.datastream.formats.csv.schema import CsvSchema, CsvSchemaBuilder
from millstream.datastream.streams.argument_checks import at_users_line, refuse
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.errors import NotAvailableError, TypeMismatchError
from millstream.records.columns import as_declared

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]


def _check_schema(what: str, schema: Any) -> None:
    if not isinstance(schema, CsvSchema):
        raise refuse(f"{what}: found {schema!r}, expected a CsvSchema. A builder must be finished with build()")


class CsvReaderFormat(StreamFormat):
    """Rows from CSV files, for `FileSource.for_record_stream_format`."""

    def __init__(self, j_csv_format: Any = None, *, engine: CsvRecords | None = None) -> None:
        no_java_object(self, j_csv_format)
        super().__init__(engine=engine)

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """Of files that look like `schema`."""
        _check_schema("CsvReaderFormat.for_schema", schema)
        with at_users_line():
            return CsvReaderFormat(engine=CsvRecords(schema.get_row_type(), schema._dialect))


class CsvBulkWriters:
    """Writes rows as CSV, for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> PartsWriterFactory:
        """Into files that look like `schema`; with a header if the schema uses one."""
        _check_schema("CsvBulkWriters.for_schema", schema)
        dialect = schema._dialect
        if dialect.quote is None or dialect.escape is not None:
            raise NotAvailableError(
                "CsvBulkWriters: files are written with quotes and without an escape character. Set them so"
            )
        return PartsWriterFactory(
            CsvParts(
                tuple(schema.get_row_type().get_field_names()),
                dialect.delimiter,
                dialect.quote,
                dialect.null_text or "",
                dialect.header in ("names", "position"),
                dialect.array_separator,
                dialect.column_separators,
            )
        )


_USUAL = CsvDialect()
_LINE_END = "\r\n"


@dataclass(frozen=True)
class _Settings:
    """What both message schemas are made of."""

    row_type: RowTypeInfo
    dialect: CsvDialect = _USUAL
    line_delimiter: str = "\n"
    ignore_parse_errors: bool = False


def _settings(what: str, type_info: Any) -> _Settings:
    if not isinstance(type_info, RowTypeInfo):
        raise refuse(f"{what}: found {type_info!r}, expected a row type, such as Types.ROW_NAMED([names], [types])")
    with at_users_line():
        CsvRecords(type_info)
    return _Settings(type_info)


class _MessageSchemaBuilder:
    """What the builders of both message schemas share: the settings, and the punctuation in them."""

    _settings: _Settings

    def _punctuate(self, **changes: Any) -> Self:
        with at_users_line():
            self._settings = replace(self._settings, dialect=replace(self._settings.dialect, **changes))
        return self

    def set_array_element_delimiter(self, delimiter: str) -> Self:
        return self._punctuate(array_separator=delimiter)

    def set_quote_character(self, c: str) -> Self:
        return self._punctuate(quote=c)

    def set_escape_character(self, c: str) -> Self:
        return self._punctuate(escape=c)


class CsvRowDeserializationSchema(DeserializationSchema):
    """Rows from CSV records.

    >>> from millstream.common.typeinfo import Types
    >>> row_type = Types.ROW_NAMED(["ad", "price"], [Types.STRING(), Types.DOUBLE()])
    >>> CsvRowDeserializationSchema.Builder(row_type).set_field_delimiter(";").build().deserialize(b"x;1.5")
    Row(ad='x', price=1.5)
    """

    def __init__(self, j_deserialization_schema: Any = None, *, settings: _Settings | None = None) -> None:
        super().__init__(j_deserialization_schema)
        if settings is None:
            raise refuse(
                "CsvRowDeserializationSchema: make one with CsvRowDeserializationSchema.Builder(row_type).build()"
            )
        self._settings = settings

    def deserialize(self, message: bytes) -> Any:
        try:
            return self._row(message.decode())
        except (ValueError, csv.Error, TypeMismatchError) as error:
            if self._settings.ignore_parse_errors:
                return None
            raise TypeMismatchError(
                f"a message is no CSV record of {self._settings.row_type}: {error}. Found {message[:200]!r}. "
                "Correct the type, or leave such messages out with set_ignore_parse_errors(True)",
                value=message,
            ) from error

    def _row(self, text: str) -> Any:
        row_type, dialect = self._settings.row_type, self._settings.dialect
        if dialect.comments and text.startswith("#"):
            return None
        fields = next(csv.reader(io.StringIO(text, newline=""), **_dialect_arguments(dialect), strict=True), [])
        types = row_type.get_field_types()
        if len(fields) != len(types):
            raise ValueError(f"it has {len(fields)} fields, expected {len(types)}")
        converters = (text_converter(field_type, dialect.array_separator) for field_type in types)
        values = [
            None if field == dialect.null_text else field if convert is None else convert(field)
            for field, convert in zip(fields, converters, strict=True)
        ]
        return as_declared([tuple(values)], row_type)[0]

    def produced_type(self) -> TypeInformation:
        return self._settings.row_type

    class Builder(_MessageSchemaBuilder):
        """Collects the settings."""

        def __init__(self, type_info: TypeInformation) -> None:
            self._settings = _settings("CsvRowDeserializationSchema", type_info)

        def set_field_delimiter(self, delimiter: str) -> Self:
            return self._punctuate(delimiter=delimiter)

        def set_allow_comments(self, allow_comments: bool) -> Self:
            return self._punctuate(comments=bool(allow_comments))

        def set_null_literal(self, null_literal: str) -> Self:
            return self._punctuate(null_text=null_literal)

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> Self:
            self._settings = replace(self._settings, ignore_parse_errors=bool(ignore_parse_errors))
            return self

        def build(self) -> CsvRowDeserializationSchema:
            return CsvRowDeserializationSchema(settings=self._settings)


class CsvRowSerializationSchema(SerializationSchema):
    r"""CSV records from rows.

    >>> from millstream.common import Row
    >>> from millstream.common.typeinfo import Types
    >>> row_type = Types.ROW_NAMED(["ad", "price"], [Types.STRING(), Types.DOUBLE()])
    >>> CsvRowSerializationSchema.Builder(row_type).build().serialize(Row("a,b", 1.5))
    b'"a,b",1.5\n'
    """

    def __init__(self, j_csv_row_serialization_schema: Any = None, *, settings: _Settings | None = None) -> None:
        super().__init__(j_csv_row_serialization_schema)
        if settings is None:
            raise refuse("CsvRowSerializationSchema: make one with CsvRowSerializationSchema.Builder(row_type).build()")
        self._settings = settings

    def serialize(self, value: Any) -> bytes:
        row_type, dialect = self._settings.row_type, self._settings.dialect
        row = as_declared([value], row_type)[0]
        types = row_type.get_field_types()
        if dialect.quote is not None and dialect.escape is None:
            lines = CsvLines(dialect.delimiter, dialect.quote, dialect.null_text or "", dialect.array_separator)
            return (lines.write([row], row_type)[0] + self._settings.line_delimiter).encode()
        fields = [
            field_text(field, field_type, dialect.array_separator, dialect.null_text or "")
            for field, field_type in zip(row, types, strict=True)
        ]
        text = io.StringIO(newline="")
        # The writer quotes only the line ends it is told of, and a reader knows both: so it is told of both.
        writer = csv.writer(text, **_dialect_arguments(dialect), lineterminator=_LINE_END)
        try:
            writer.writerow(fields)
        except csv.Error as error:
            raise TypeMismatchError(
                f"{value!r} cannot be written as a CSV record without quotes: {error}. "
                "Leave the quote character on, or set an escape character",
                value=value,
            ) from error
        return (text.getvalue().removesuffix(_LINE_END) + self._settings.line_delimiter).encode()

    class Builder(_MessageSchemaBuilder):
        """Collects the settings."""

        def __init__(self, type_info: TypeInformation) -> None:
            self._settings = _settings("CsvRowSerializationSchema", type_info)

        def set_field_delimiter(self, c: str) -> Self:
            return self._punctuate(delimiter=c)

        def set_line_delimiter(self, delimiter: str) -> Self:
            """What ends a record; '' for nothing."""
            if delimiter not in ("", "\n", "\r", "\r\n"):
                raise refuse(f"set_line_delimiter: found {delimiter!r}, expected '', '\\n', '\\r' or '\\r\\n'")
            self._settings = replace(self._settings, line_delimiter=delimiter)
            return self

        def disable_quote_character(self) -> Self:
            return self._punctuate(quote=None)

        def set_null_literal(self, s: str) -> Self:
            return self._punctuate(null_text=s)

        def build(self) -> CsvRowSerializationSchema:
            return CsvRowSerializationSchema(settings=self._settings)


def _dialect_arguments(dialect: CsvDialect) -> dict[str, Any]:
    """A dialect in the words of Python's csv module."""
    return {
        "delimiter": dialect.delimiter,
        "quotechar": dialect.quote,
        "escapechar": dialect.escape,
        "quoting": csv.QUOTE_NONE if dialect.quote is None else csv.QUOTE_MINIMAL,
    }
