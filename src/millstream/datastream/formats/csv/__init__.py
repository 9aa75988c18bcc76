"""CSV files and messages. A `CsvSchema` (`schema`) defines the format of a file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.files.csv_records import CsvRecords
from millstream.connectors.files.parts import CsvParts
from millstream.connectors.messages.codecs import MessageDecoder, MessageEncoder, unreadable_error
from millstream.connectors.messages.csv_messages import CsvDecoder, CsvMessages
from millstream.connectors.messages.csv_writing import CsvEncoder
from millstream.connectors.messages.row_kinds import check_insert
from millstream.datastream.connectors.file_system.sink import PartsWriterFactory
from millstream.datastream.connectors.file_system.source import StreamFormat
from millstream.datastream.formats.csv.schema import CsvSchema, CsvSchemaBuilder
from millstream.datastream.streams.argument_checks import at_users_line, checked_file_row, checked_truth, refuse
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.errors import NotAvailableError, TypeMismatchError
from millstream.graph.site import refuse_type
from millstream.pyflink_names import add_pyflink_names
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
        raise refuse_type(f"{what}: found {schema!r}, expected a CsvSchema. A builder must be finished with build()")


class CsvReaderFormat(StreamFormat):
    """Rows from CSV files, for `FileSource.for_record_stream_format`."""

    def __init__(self, j_csv_format: Any = None, *, engine: CsvRecords | None = None) -> None:
        no_java_object(self, j_csv_format)
        super().__init__(engine=engine)

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """A format for files of `schema`."""
        _check_schema("CsvReaderFormat.for_schema", schema)
        with at_users_line():
            return CsvReaderFormat(engine=CsvRecords(schema.get_row_type(), schema._dialect))


class CsvBulkWriters:
    """Writes rows as CSV, for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> PartsWriterFactory:
        """A writer of files of `schema`, with a header if the schema uses one."""
        _check_schema("CsvBulkWriters.for_schema", schema)
        dialect = schema._dialect
        if dialect.quote is None or dialect.escape is not None:
            raise NotAvailableError(
                "CsvBulkWriters: files are written with quotes and without an escape character. Set both accordingly"
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
                schema.get_row_type(),
            )
        )


@dataclass(frozen=True)
class _Settings:
    """The settings of both message schemas."""

    messages: CsvMessages
    ignore_parse_errors: bool = False

    def changed(self, **changes: Any) -> _Settings:
        """A copy with changed settings."""
        return replace(self, messages=replace(self.messages, **changes))


def _settings(what: str, type_info: Any) -> _Settings:
    type_info = checked_file_row(what, type_info)
    with at_users_line():
        CsvRecords(type_info)
    return _Settings(CsvMessages(type_info))


class _MessageSchemaBuilder:
    """Base of the builders of both message schemas: settings and delimiters."""

    _settings: _Settings

    def _punctuate(self, **changes: Any) -> Self:
        with at_users_line():
            dialect = replace(self._settings.messages.dialect, **changes)
            self._settings = self._settings.changed(dialect=dialect)
        return self

    def set_array_element_delimiter(self, delimiter: str) -> Self:
        return self._punctuate(array_separator=delimiter)

    def set_quote_character(self, c: str) -> Self:
        return self._punctuate(quote=c)

    def set_escape_character(self, c: str) -> Self:
        return self._punctuate(escape=c)


class CsvRowDeserializationSchema(DeserializationSchema):
    """Decodes CSV records to rows.

    >>> from millstream.common.typeinfo import Types
    >>> row_type = Types.ROW_NAMED(["ad", "price"], [Types.STRING(), Types.DOUBLE()])
    >>> CsvRowDeserializationSchema.Builder(row_type).set_field_delimiter(";").build().deserialize(b"x;1.5")
    Row(ad='x', price=1.5)
    """

    def __init__(self, j_deserialization_schema: Any = None, *, settings: _Settings | None = None) -> None:
        super().__init__(j_deserialization_schema)
        if settings is None:
            raise refuse(
                "CsvRowDeserializationSchema: create one with CsvRowDeserializationSchema.Builder(row_type).build()"
            )
        self._settings = settings

    def deserialize(self, message: bytes) -> Any:
        settings = self._settings
        try:
            return settings.messages.read(message)
        except (ValueError, TypeMismatchError) as error:
            if settings.ignore_parse_errors:
                return None
            raise unreadable_error(message, f"CSV record of {settings.messages.row_type}", error) from error

    @property
    def leaves_out_bad_messages(self) -> bool:
        return self._settings.ignore_parse_errors

    def column_decoder(self) -> MessageDecoder:
        return CsvDecoder(self._settings.messages, self._settings.ignore_parse_errors)

    def produced_type(self) -> TypeInformation:
        return self._settings.messages.row_type

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
            ignored = checked_truth("set_ignore_parse_errors", ignore_parse_errors)
            self._settings = replace(self._settings, ignore_parse_errors=ignored)
            return self

        def build(self) -> CsvRowDeserializationSchema:
            return CsvRowDeserializationSchema(settings=self._settings)


class CsvRowSerializationSchema(SerializationSchema):
    r"""Encodes rows as CSV records.

    >>> from millstream.common import Row
    >>> from millstream.common.typeinfo import Types
    >>> row_type = Types.ROW_NAMED(["ad", "price"], [Types.STRING(), Types.DOUBLE()])
    >>> CsvRowSerializationSchema.Builder(row_type).build().serialize(Row("a,b", 1.5))
    b'"a,b",1.5\n'
    """

    def __init__(self, j_csv_row_serialization_schema: Any = None, *, settings: _Settings | None = None) -> None:
        super().__init__(j_csv_row_serialization_schema)
        if settings is None:
            raise refuse(
                "CsvRowSerializationSchema: create one with CsvRowSerializationSchema.Builder(row_type).build()"
            )
        self._settings = settings

    def serialize(self, value: Any) -> bytes:
        check_insert(value, "CSV")
        messages = self._settings.messages
        return messages.write(as_declared([value], messages.row_type))[0]

    def column_encoder(self, input_type: TypeInformation | None) -> MessageEncoder:
        return CsvEncoder(self._settings.messages)

    class Builder(_MessageSchemaBuilder):
        """Collects the settings."""

        def __init__(self, type_info: TypeInformation) -> None:
            self._settings = _settings("CsvRowSerializationSchema", type_info)

        def set_field_delimiter(self, c: str) -> Self:
            return self._punctuate(delimiter=c)

        def set_line_delimiter(self, delimiter: str) -> Self:
            """The delimiter of records; '' for none."""
            if delimiter not in ("", "\n", "\r", "\r\n"):
                raise refuse(f"set_line_delimiter: found {delimiter!r}, expected '', '\\n', '\\r' or '\\r\\n'")
            self._settings = self._settings.changed(line_delimiter=delimiter)
            return self

        def disable_quote_character(self) -> Self:
            return self._punctuate(quote=None)

        def set_null_literal(self, s: str) -> Self:
            return self._punctuate(null_text=s)

        def build(self) -> CsvRowSerializationSchema:
            return CsvRowSerializationSchema(settings=self._settings)


add_pyflink_names(globals())
