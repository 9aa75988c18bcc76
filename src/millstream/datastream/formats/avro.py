"""Avro records as messages, and in files.

The rows' type is derived from the schema. PyFlink's `record_class` is a Java class and not supported; use
`avro_schema_string`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from millstream.common.io import InputFormat
from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.connectors.files.avro_files import AvroParts
from millstream.connectors.messages.avro import AvroDecoder, AvroEncoder, AvroRecords
from millstream.connectors.messages.avro_schemas import AvroSource
from millstream.connectors.messages.codecs import MessageDecoder, MessageEncoder, raise_if_of_program, unreadable_error
from millstream.connectors.messages.row_kinds import check_insert
from millstream.datastream.connectors.file_system.sink import PartsWriterFactory
from millstream.datastream.connectors.file_system.source import BulkFormat, FileSource
from millstream.datastream.streams.argument_checks import at_users_line, refuse
from millstream.datastream.utils import ResultTypeQueryable
from millstream.errors import NotAvailableError, TypeMismatchError
from millstream.graph.site import refuse_type
from millstream.pyflink_names import add_pyflink_names

__all__ = [
    "AvroBulkWriters",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "GenericRecordAvroTypeInfo",
]


class AvroSchema:
    """A parsed Avro schema.

    >>> schema = AvroSchema.parse_string('{"type": "record", "name": "Ad", "fields": [{"name": "id", "type": "long"}]}')
    >>> schema.get_row_type()
    Types.ROW_NAMED(['id'], [Types.LONG()])
    """

    def __init__(self, j_schema: Any = None, *, source: AvroSource | None = None) -> None:
        if source is None:
            raise refuse("AvroSchema: create one with AvroSchema.parse_string(text) or AvroSchema.parse_file(path)")
        self._source = source

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """The schema in a string."""
        if not isinstance(json_schema, str):
            raise refuse_type(f"AvroSchema.parse_string: found {json_schema!r}, expected the schema's text, as JSON")
        source = AvroSource(json_schema)
        with at_users_line():
            assert source.parsed is not None
        return AvroSchema(source=source)

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        """The schema in a file."""
        try:
            text = Path(file_path).read_text(encoding="utf-8")
        except OSError as error:
            raise refuse(f"AvroSchema.parse_file: {file_path!r} cannot be read: {error}") from error
        return AvroSchema.parse_string(text)

    def get_row_type(self) -> RowTypeInfo:
        """The type of the schema's records as rows (beyond PyFlink)."""
        with at_users_line():
            return self._source.row_type

    def __str__(self) -> str:
        return self._source.text


class GenericRecordAvroTypeInfo(TypeInformation):
    """The type of Avro records that are dicts. They are sent between tasks as pickles, unlike rows of
    `AvroSchema.get_row_type()`."""

    def __init__(self, schema: AvroSchema) -> None:
        if not isinstance(schema, AvroSchema):
            raise refuse_type(f"GenericRecordAvroTypeInfo: found {schema!r}, expected an AvroSchema")
        super().__init__()
        self._schema = schema

    @property
    def schema(self) -> AvroSchema:
        """The records' schema."""
        return self._schema

    def _parts(self) -> tuple[object, ...]:
        return (str(self._schema),)

    @property
    def notation(self) -> str:
        return "AVRO"

    def __repr__(self) -> str:
        return f"GenericRecordAvroTypeInfo({str(self._schema)!r})"


class AvroInputFormat(InputFormat, ResultTypeQueryable):
    """Reads Avro files at `path`, for `StreamExecutionEnvironment.create_input`. Records are rows of the schema.

    To watch a folder for new files: `FileSource.for_bulk_file_format(BulkFormat.avro_format(schema), path)`.
    """

    def __init__(self, path: str, schema: AvroSchema) -> None:
        super().__init__(None)
        source = _checked("AvroInputFormat", schema)
        self.file_source = FileSource.for_bulk_file_format(BulkFormat.avro_format(source.text), path).build()
        self._row_type = source.row_type

    def get_produced_type(self) -> TypeInformation:
        return self._row_type


class AvroBulkWriters:
    """Writes rows as Avro files, for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> PartsWriterFactory:
        """The writer of records of the schema, which are rows of `schema.get_row_type()`."""
        return PartsWriterFactory(AvroParts(_checked("AvroBulkWriters.for_generic_record", schema)))


def _checked(name: str, schema: Any) -> AvroSource:
    if not isinstance(schema, AvroSchema):
        raise refuse_type(f"{name}: found {schema!r}, expected an AvroSchema, such as AvroSchema.parse_string(text)")
    with at_users_line():
        assert schema._source.row_type is not None
    return schema._source


def _records(what: str, record_class: Any, avro_schema_string: Any) -> AvroRecords:
    if record_class is not None:
        raise NotAvailableError(f"{what}: Java class {record_class!r} is not supported. Use avro_schema_string=")
    if not isinstance(avro_schema_string, str):
        raise refuse_type(
            f"{what}: found {avro_schema_string!r} as avro_schema_string, expected the schema's text, as JSON"
        )
    with at_users_line():
        return AvroRecords(AvroSource(avro_schema_string))


class AvroRowDeserializationSchema(DeserializationSchema):
    """Decodes messages that hold one Avro record each, without its schema, to rows.

    >>> text = '{"type": "record", "name": "Ad", "fields": [{"name": "id", "type": "long"}]}'
    >>> AvroRowDeserializationSchema(avro_schema_string=text).deserialize(bytes([14]))
    Row(id=7)
    """

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        super().__init__()
        self._records = _records("AvroRowDeserializationSchema", record_class, avro_schema_string)

    def deserialize(self, message: bytes) -> Any:
        try:
            return self._records.read(message)
        except (ValueError, TypeMismatchError) as error:
            raise_if_of_program(error)
            raise unreadable_error(message, f"Avro record of {self._records.type_info}", error) from error

    def produced_type(self) -> TypeInformation:
        return self._records.type_info

    def column_decoder(self) -> MessageDecoder:
        return AvroDecoder(self._records)


class AvroRowSerializationSchema(SerializationSchema):
    """Encodes rows as Avro records.

    >>> text = '{"type": "record", "name": "Ad", "fields": [{"name": "id", "type": "long"}]}'
    >>> AvroRowSerializationSchema(avro_schema_string=text).serialize((7,))
    b'\\x0e'
    """

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        super().__init__()
        self._records = _records("AvroRowSerializationSchema", record_class, avro_schema_string)

    def serialize(self, value: Any) -> bytes:
        check_insert(value, "Avro")
        return self._records.write(value)

    def column_encoder(self, input_type: TypeInformation | None) -> MessageEncoder:
        return AvroEncoder(self._records)


add_pyflink_names(globals())
