"""JSON documents as messages (schemas) and, beyond PyFlink, as files with one document per line.

Rows are objects with their field names. A field missing in a document is None, unless configured to fail; a field that
is not in the type is dropped. To read files of JSON lines see `StreamFormat.json_line_format`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.connectors.files.parts import JsonParts
from millstream.connectors.messages.codecs import MessageDecoder, MessageEncoder, unreadable_error
from millstream.connectors.messages.json_reading import JsonDecoder
from millstream.connectors.messages.json_schemas import row_type_of_json_schema
from millstream.connectors.messages.json_values import JsonDocuments
from millstream.connectors.messages.json_writing import JsonEncoder
from millstream.connectors.messages.row_decoder import NO_RECORD
from millstream.connectors.messages.row_kinds import check_insert
from millstream.datastream.connectors.file_system.sink import PartsWriterFactory
from millstream.datastream.streams.argument_checks import at_users_line, checked_json_rows, checked_row_type, refuse
from millstream.pyflink_names import add_pyflink_names

if TYPE_CHECKING:
    from typing import Self

__all__ = ["JsonBulkWriters", "JsonRowDeserializationSchema", "JsonRowSerializationSchema"]


class JsonRowDeserializationSchema(DeserializationSchema):
    """Decodes JSON documents to rows.

    >>> from millstream.common.typeinfo import Types
    >>> row_type = Types.ROW_NAMED(["ad", "clicks"], [Types.STRING(), Types.INT()])
    >>> schema = JsonRowDeserializationSchema.builder().type_info(row_type).build()
    >>> schema.deserialize(b'{"clicks": 3, "ad": "x"}')
    Row(ad='x', clicks=3)
    """

    def __init__(
        self, j_deserialization_schema: Any = None, *, builder: JsonRowDeserializationSchema.Builder | None = None
    ):
        super().__init__(j_deserialization_schema)
        if builder is None or builder._type_info is None:
            raise refuse("JsonRowDeserializationSchema: create one with builder().type_info(row_type).build()")
        self._documents = JsonDocuments(builder._type_info, builder._fail_on_missing_field)
        self._ignore_parse_errors = builder._ignore_parse_errors

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        return JsonRowDeserializationSchema.Builder()

    def deserialize(self, message: bytes) -> Any:
        try:
            return self._documents.read(message)
        except NO_RECORD as error:
            if self._ignore_parse_errors:
                return None
            raise unreadable_error(message, f"JSON document of {self._documents.type_info}", error) from error

    def produced_type(self) -> TypeInformation:
        return self._documents.type_info

    @property
    def leaves_out_bad_messages(self) -> bool:
        return self._ignore_parse_errors

    def column_decoder(self) -> MessageDecoder:
        documents = self._documents
        assert isinstance(documents.type_info, RowTypeInfo)
        return JsonDecoder(documents.type_info, documents.fails_on_missing_field, self._ignore_parse_errors)

    class Builder:
        """Collects the settings."""

        def __init__(self) -> None:
            self._type_info: RowTypeInfo | None = None
            self._fail_on_missing_field = False
            self._ignore_parse_errors = False

        def type_info(self, type_info: TypeInformation) -> Self:
            """The rows' type."""
            self._type_info = checked_json_rows("JsonRowDeserializationSchema, type_info", type_info)
            return self

        def json_schema(self, json_schema: str) -> Self:
            """Sets the rows' type by the text of a JSON schema for an object."""
            with at_users_line():
                return self.type_info(row_type_of_json_schema(json_schema))

        def fail_on_missing_field(self) -> Self:
            """Makes a missing field an error."""
            self._fail_on_missing_field = True
            return self

        def ignore_parse_errors(self) -> Self:
            """Skips unreadable documents."""
            self._ignore_parse_errors = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            if self._fail_on_missing_field and self._ignore_parse_errors:
                raise refuse(
                    "JsonRowDeserializationSchema: fail_on_missing_field() and ignore_parse_errors() contradict "
                    "each other. Use one of them"
                    ""
                )
            return JsonRowDeserializationSchema(builder=self)


class JsonRowSerializationSchema(SerializationSchema):
    """Encodes rows as JSON documents.

    >>> from millstream.common import Row
    >>> from millstream.common.typeinfo import Types
    >>> row_type = Types.ROW_NAMED(["ad", "clicks"], [Types.STRING(), Types.INT()])
    >>> JsonRowSerializationSchema.builder().with_type_info(row_type).build().serialize(Row("x", 3))
    b'{"ad":"x","clicks":3}'
    """

    def __init__(self, j_serialization_schema: Any = None, *, row_type: RowTypeInfo | None = None) -> None:
        super().__init__(j_serialization_schema)
        if row_type is None:
            raise refuse("JsonRowSerializationSchema: create one with builder().with_type_info(row_type).build()")
        self._type_info = row_type

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        return JsonRowSerializationSchema.Builder()

    def serialize(self, value: Any) -> bytes:
        check_insert(value, "JSON")
        return JsonDocuments(self._type_info).write(value)

    def column_encoder(self, input_type: TypeInformation | None) -> MessageEncoder:
        return JsonEncoder(self._type_info)

    class Builder:
        """Collects the settings."""

        def __init__(self) -> None:
            self._type_info: RowTypeInfo | None = None

        def with_type_info(self, type_info: TypeInformation) -> Self:
            """The rows' type."""
            self._type_info = checked_row_type("JsonRowSerializationSchema, type_info", type_info)
            return self

        def build(self) -> JsonRowSerializationSchema:
            return JsonRowSerializationSchema(row_type=self._type_info)


class JsonBulkWriters:
    """Writes records as files of JSON lines, for `FileSink.for_bulk_format` (beyond PyFlink)."""

    @staticmethod
    def for_lines() -> PartsWriterFactory:
        """One document per line; rows become objects."""
        return PartsWriterFactory(JsonParts())


add_pyflink_names(globals())
