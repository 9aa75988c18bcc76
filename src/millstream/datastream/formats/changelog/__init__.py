"""Base classes of the message schemas for changelogs: Debezium's and Canal's.

A message is decoded to any number of rows with row kinds. A row is encoded as one message.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.common.types import Row
from millstream.connectors.messages.changelog import ChangelogDecoder, ChangelogEncoder, changelog_message
from millstream.connectors.messages.codecs import MessageEncoder, unreadable_error
from millstream.connectors.messages.row_decoder import NO_RECORD
from millstream.datastream.streams.argument_checks import checked_json_rows, checked_truth

__all__ = ["ChangelogDeserializationSchema", "ChangelogSerializationSchema"]


class ChangelogDeserializationSchema(DeserializationSchema):
    """Decodes messages to rows of the changed table. `format_name` is Debezium or Canal."""

    format_name: str

    def __init__(self, row_type: RowTypeInfo, ignore_parse_errors: bool) -> None:
        super().__init__()
        name = type(self).__name__
        self._row_type = checked_json_rows(name, row_type)
        self._ignore_parse_errors = checked_truth(f"{name}, ignore_parse_errors", ignore_parse_errors)

    def deserialize(self, message: bytes) -> list[Row]:
        """The message's rows, possibly none."""
        try:
            return self.column_decoder().deserialized(message)
        except NO_RECORD as error:
            if self._ignore_parse_errors:
                return []
            raise unreadable_error(message, f"{self.format_name} document of {self._row_type}", error) from error

    def produced_type(self) -> TypeInformation:
        return self._row_type

    @property
    def leaves_out_bad_messages(self) -> bool:
        return self._ignore_parse_errors

    @abstractmethod
    def column_decoder(self) -> ChangelogDecoder:
        """A vectorised decoder of messages."""


class ChangelogSerializationSchema(SerializationSchema):
    """Encodes rows as messages. `format_name` is Debezium or Canal."""

    format_name: str

    def __init__(self, row_type: RowTypeInfo) -> None:
        super().__init__()
        self._row_type = checked_json_rows(type(self).__name__, row_type)

    def serialize(self, value: Any) -> bytes:
        return changelog_message(value, self._row_type, self.format_name)

    def column_encoder(self, input_type: TypeInformation | None) -> MessageEncoder:
        return ChangelogEncoder(self._row_type, self.format_name)
