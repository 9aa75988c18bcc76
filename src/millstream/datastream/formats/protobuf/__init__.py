"""Protobuf messages as rows (in Flink's Table API `protobuf`), from a compiled class or a descriptor set.

The rows' type is derived from the message: `schema.produced_type()` returns it.
"""

from __future__ import annotations

from typing import Any

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.messages.codecs import MessageDecoder, MessageEncoder, raise_if_of_program, unreadable_error
from millstream.connectors.messages.protobuf import ProtobufDecoder, ProtobufEncoder, ProtobufSource, protobuf_source
from millstream.connectors.messages.row_kinds import check_insert
from millstream.datastream.streams.argument_checks import at_users_line, checked_truth
from millstream.errors import TypeMismatchError

__all__ = ["ProtobufRowDeserializationSchema", "ProtobufRowSerializationSchema"]


def _source(message_class: Any, descriptor_set: bytes | None, message_name: str | None) -> ProtobufSource:
    with at_users_line():
        return protobuf_source(message_class, descriptor_set, message_name)


class ProtobufRowDeserializationSchema(DeserializationSchema):
    """Decodes messages of `message_class`, or of `message_name` in a `descriptor_set` written by protoc, to rows.

    >>> from google.protobuf.duration_pb2 import Duration
    >>> ProtobufRowDeserializationSchema(Duration).deserialize(Duration(seconds=7).SerializeToString())
    Row(seconds=7, nanos=0)
    """

    def __init__(
        self,
        message_class: Any = None,
        *,
        descriptor_set: bytes | None = None,
        message_name: str | None = None,
        ignore_parse_errors: bool = False,
    ) -> None:
        super().__init__()
        self._source = _source(message_class, descriptor_set, message_name)
        name = "ProtobufRowDeserializationSchema, ignore_parse_errors"
        self._ignore_parse_errors = checked_truth(name, ignore_parse_errors)

    def deserialize(self, message: bytes) -> Any:
        try:
            return self._source.read(message)
        except (ValueError, TypeMismatchError) as error:
            raise_if_of_program(error)
            if self._ignore_parse_errors:
                return None
            raise unreadable_error(message, f"{self._source.name}", error) from error

    def produced_type(self) -> TypeInformation:
        return self._source.row_type

    @property
    def leaves_out_bad_messages(self) -> bool:
        return self._ignore_parse_errors

    def column_decoder(self) -> MessageDecoder:
        return ProtobufDecoder(self._source, self._ignore_parse_errors)


class ProtobufRowSerializationSchema(SerializationSchema):
    """Encodes rows as messages.

    >>> from google.protobuf.duration_pb2 import Duration
    >>> ProtobufRowSerializationSchema(Duration).serialize((7, 0)) == Duration(seconds=7).SerializeToString()
    True
    """

    def __init__(
        self, message_class: Any = None, *, descriptor_set: bytes | None = None, message_name: str | None = None
    ) -> None:
        super().__init__()
        self._source = _source(message_class, descriptor_set, message_name)

    def serialize(self, value: Any) -> bytes:
        check_insert(value, "Protobuf")
        return self._source.write(value)

    def column_encoder(self, input_type: TypeInformation | None) -> MessageEncoder:
        return ProtobufEncoder(self._source)
