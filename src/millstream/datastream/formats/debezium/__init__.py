"""Debezium's JSON messages: changes of a table's rows, as rows with a kind (in Flink's Table API `debezium-json`).

Dates and times are ISO 8601 strings, and decimals are numbers or strings, as in other JSON. Debezium's defaults are
numbers and bytes, so set its `decimal.handling.mode=string`, and add a transform that writes timestamps as strings.
"""

from __future__ import annotations

from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.messages.changelog import DebeziumDecoder
from millstream.datastream.formats.changelog import ChangelogDeserializationSchema, ChangelogSerializationSchema
from millstream.datastream.streams.argument_checks import checked_truth

__all__ = ["DebeziumJsonDeserializationSchema", "DebeziumJsonSerializationSchema"]


class DebeziumJsonDeserializationSchema(ChangelogDeserializationSchema):
    """Decodes messages to rows of the changed table, with row kinds; an update is two rows. `schema_include`: messages
    contain their schema.

    >>> from millstream.common import Types
    >>> schema = DebeziumJsonDeserializationSchema(Types.ROW_NAMED(["id"], [Types.INT()]))
    >>> [(str(row.get_row_kind()), row.id) for row in schema.deserialize(b'{"before": {"id": 1}, "op": "d"}')]
    [('-D', 1)]
    """

    format_name = "Debezium"

    def __init__(self, row_type: RowTypeInfo, schema_include: bool = False, ignore_parse_errors: bool = False) -> None:
        super().__init__(row_type, ignore_parse_errors)
        name = "DebeziumJsonDeserializationSchema, schema_include"
        self._schema_include = checked_truth(name, schema_include)

    def column_decoder(self) -> DebeziumDecoder:
        return DebeziumDecoder(self._row_type, self._schema_include, self._ignore_parse_errors)


class DebeziumJsonSerializationSchema(ChangelogSerializationSchema):
    """Encodes rows as Debezium messages: op `c` for an insert or update-after, `d` for a delete or update-before.

    >>> from millstream.common import Row, Types
    >>> DebeziumJsonSerializationSchema(Types.ROW_NAMED(["id"], [Types.INT()])).serialize(Row(1))
    b'{"before":null,"after":{"id":1},"op":"c"}'
    """

    format_name = "Debezium"
