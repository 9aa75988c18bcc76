"""Canal's JSON messages: changes of MySQL's rows, as rows with a kind (in Flink's Table API `canal-json`)."""

from __future__ import annotations

import re
from typing import Any

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.common.types import Row
from millstream.connectors.files.values import text_converter
from millstream.connectors.messages.changelog import CanalDecoder, ChangelogEncoder, changelog_message
from millstream.connectors.messages.codecs import MessageEncoder, unreadable_error
from millstream.connectors.messages.row_decoder import NO_RECORD
from millstream.datastream.streams.argument_checks import checked_json_rows, refuse
from millstream.errors import ProgramError

__all__ = ["CanalJsonDeserializationSchema", "CanalJsonSerializationSchema"]


class CanalJsonDeserializationSchema(DeserializationSchema):
    """Rows of the changed table, with their kind; a message may hold several, and a change is two.

    `database_include` and `table_include` are regular expressions: messages of others are left out.
    """

    def __init__(
        self,
        row_type: RowTypeInfo,
        database_include: str | None = None,
        table_include: str | None = None,
        ignore_parse_errors: bool = False,
    ) -> None:
        super().__init__()
        self._row_type = checked_json_rows("CanalJsonDeserializationSchema", row_type)
        for name, field in zip(row_type.get_field_names(), row_type.get_field_types(), strict=True):
            try:
                text_converter(field)
            except ProgramError:
                raise refuse(
                    f"CanalJsonDeserializationSchema: field {name!r} is {field}, and Canal's values are text. Read it "
                    "as STRING"
                ) from None
        for pattern in (database_include, table_include):
            try:
                re.compile(pattern or "")
            except (re.error, TypeError) as error:
                raise refuse(f"CanalJsonDeserializationSchema: {pattern!r} is no pattern: {error}") from error
        self._patterns, self._ignore_parse_errors = (database_include, table_include), bool(ignore_parse_errors)

    def deserialize(self, message: bytes) -> list[Row]:
        """The message's rows, any number of them."""
        try:
            return self.column_decoder().deserialized(message)
        except NO_RECORD as error:
            if self._ignore_parse_errors:
                return []
            raise unreadable_error(message, f"Canal document of {self._row_type}", error) from error

    def produced_type(self) -> TypeInformation:
        return self._row_type

    @property
    def leaves_out_bad_messages(self) -> bool:
        return self._ignore_parse_errors

    def column_decoder(self) -> CanalDecoder:
        return CanalDecoder(self._row_type, *self._patterns, self._ignore_parse_errors)


class CanalJsonSerializationSchema(SerializationSchema):
    """Canal's messages from rows: INSERT for a row that came, by an insertion or a change, DELETE for one that went.

    >>> from millstream.common import Types
    >>> CanalJsonSerializationSchema(Types.ROW_NAMED(["id"], [Types.INT()])).serialize(Row(1))
    b'{"data":[{"id":1}],"type":"INSERT"}'
    """

    def __init__(self, row_type: RowTypeInfo) -> None:
        super().__init__()
        self._row_type = checked_json_rows("CanalJsonSerializationSchema", row_type)

    def serialize(self, value: Any) -> bytes:
        return changelog_message(value, self._row_type, "Canal")

    def column_encoder(self, input_type: TypeInformation | None) -> MessageEncoder:
        return ChangelogEncoder(self._row_type, "Canal")
