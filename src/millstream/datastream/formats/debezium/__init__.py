"""Debezium's JSON messages: changes of a table's rows, as rows with a kind (in Flink's Table API `debezium-json`).

Dates and times are ISO 8601 and decimals are numbers or text, as in other JSON. Debezium's defaults are numbers and
bytes, so tell it `decimal.handling.mode=string`, and have a transform write timestamps as text.
"""

from __future__ import annotations

from typing import Any

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.common.types import Row
from millstream.connectors.messages.changelog import ChangelogEncoder, DebeziumDecoder, changelog_message
from millstream.connectors.messages.codecs import MessageEncoder, unreadable_error
from millstream.connectors.messages.row_decoder import NO_RECORD
from millstream.datastream.streams.argument_checks import checked_json_rows

__all__ = ["DebeziumJsonDeserializationSchema", "DebeziumJsonSerializationSchema"]


class DebeziumJsonDeserializationSchema(DeserializationSchema):
    """Rows of the changed table, with their kind; a change is two rows. `schema_include`: messages hold their schema.

    >>> from millstream.common import Types
    >>> schema = DebeziumJsonDeserializationSchema(Types.ROW_NAMED(["id"], [Types.INT()]))
    >>> [(str(row.get_row_kind()), row.id) for row in schema.deserialize(b'{"before": {"id": 1}, "op": "d"}')]
    [('-D', 1)]
    """

    def __init__(self, row_type: RowTypeInfo, schema_include: bool = False, ignore_parse_errors: bool = False) -> None:
        super().__init__()
        self._row_type = checked_json_rows("DebeziumJsonDeserializationSchema", row_type)
        self._schema_include, self._ignore_parse_errors = bool(schema_include), bool(ignore_parse_errors)

    def deserialize(self, message: bytes) -> list[Row]:
        """The message's rows, none or one or two."""
        try:
            return self.column_decoder().deserialized(message)
        except NO_RECORD as error:
            if self._ignore_parse_errors:
                return []
            raise unreadable_error(message, f"Debezium document of {self._row_type}", error) from error

    def produced_type(self) -> TypeInformation:
        return self._row_type

    @property
    def leaves_out_bad_messages(self) -> bool:
        return self._ignore_parse_errors

    def column_decoder(self) -> DebeziumDecoder:
        return DebeziumDecoder(self._row_type, self._schema_include, self._ignore_parse_errors)


class DebeziumJsonSerializationSchema(SerializationSchema):
    """Debezium's messages from rows: op `c` for a row that came, by an insertion or a change, `d` for one that went.

    >>> from millstream.common import Types
    >>> DebeziumJsonSerializationSchema(Types.ROW_NAMED(["id"], [Types.INT()])).serialize(Row(1))
    b'{"before":null,"after":{"id":1},"op":"c"}'
    """

    def __init__(self, row_type: RowTypeInfo) -> None:
        super().__init__()
        self._row_type = checked_json_rows("DebeziumJsonSerializationSchema", row_type)

    def serialize(self, value: Any) -> bytes:
        return changelog_message(value, self._row_type, "Debezium")

    def column_encoder(self, input_type: TypeInformation | None) -> MessageEncoder:
        return ChangelogEncoder(self._row_type, "Debezium")
