"""Avro messages in the wire format of Confluent's schema registry (in Flink only a Java class).

The schema passed here is that of the rows. A message names its writer's schema, which is fetched from the registry;
both schemas are used for decoding.
"""

from __future__ import annotations

from typing import Any

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.messages.avro import AvroRecords
from millstream.connectors.messages.avro_schemas import AvroSource
from millstream.connectors.messages.codecs import MessageDecoder, MessageEncoder, raise_if_of_program, unreadable_error
from millstream.connectors.messages.registered_avro import (
    RegisteredAvroDecoder,
    RegisteredAvroEncoder,
    registered_value,
)
from millstream.connectors.messages.registry import SchemaRegistry, registered_head
from millstream.connectors.messages.row_kinds import check_insert
from millstream.datastream.formats.avro import AvroSchema
from millstream.datastream.streams.argument_checks import at_users_line, refuse
from millstream.errors import TypeMismatchError
from millstream.records.columns import as_declared

__all__ = [
    "ConfluentRegistryAvroDeserializationSchema",
    "ConfluentRegistryAvroSerializationSchema",
    "SchemaRegistry",
]


def _settings(what: str, schema: Any, registry: Any) -> tuple[AvroRecords, SchemaRegistry]:
    text = str(schema) if isinstance(schema, AvroSchema) else schema
    if not isinstance(text, str):
        raise refuse(f"{what}: found {schema!r}, expected an AvroSchema or its text")
    if not isinstance(registry, (str, SchemaRegistry)):
        raise refuse(f"{what}: found {registry!r}, expected the registry's address or a SchemaRegistry")
    with at_users_line():
        return AvroRecords(AvroSource(text)), SchemaRegistry(registry) if isinstance(registry, str) else registry


class ConfluentRegistryAvroDeserializationSchema(DeserializationSchema):
    """Decodes messages that name their writer's schema to rows of `schema`."""

    def __init__(self, schema: AvroSchema | str, registry: SchemaRegistry | str) -> None:
        super().__init__()
        self._records, self._registry = _settings("ConfluentRegistryAvroDeserializationSchema", schema, registry)

    def deserialize(self, message: bytes) -> Any:
        try:
            value = registered_value(self._records, self._registry, message)
            return as_declared([value], self._records.type_info)[0]
        except (ValueError, TypeMismatchError) as error:
            raise_if_of_program(error)
            raise unreadable_error(message, f"Avro record of {self._records.type_info}", error) from error

    def produced_type(self) -> TypeInformation:
        return self._records.type_info

    def column_decoder(self) -> MessageDecoder:
        return RegisteredAvroDecoder(self._records, self._registry)


class ConfluentRegistryAvroSerializationSchema(SerializationSchema):
    """Encodes rows of `schema`, which is registered under `subject` before the first message is written."""

    def __init__(self, subject: str, schema: AvroSchema | str, registry: SchemaRegistry | str) -> None:
        super().__init__()
        what = "ConfluentRegistryAvroSerializationSchema"
        if not isinstance(subject, str) or not subject:
            raise refuse(f"{what}: found the subject {subject!r}, expected a name, such as 'orders-value'")
        self._subject = subject
        self._records, self._registry = _settings(what, schema, registry)

    def serialize(self, value: Any) -> bytes:
        check_insert(value, "Avro")
        record = self._records.write(value)
        return registered_head(self._registry.register(self._subject, self._records.schema)) + record

    def column_encoder(self, input_type: TypeInformation | None) -> MessageEncoder:
        return RegisteredAvroEncoder(self._records, self._registry, self._subject)
