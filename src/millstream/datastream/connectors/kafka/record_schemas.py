"""Deserialization of Kafka records: only the value, or with key, time, headers and offset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from millstream.common.serialization import DeserializationSchema
from millstream.common.typeinfo import TypeInformation, Types
from millstream.connectors.kafka.records import METADATA, RecordLayout
from millstream.datastream.streams.argument_checks import at_users_line, refuse
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.graph.site import refuse_type

__all__ = ["KafkaRecordDeserializationSchema", "layout_of"]


class KafkaRecordDeserializationSchema(DeserializationSchema):
    """Deserializes records. Created by `value_only` or `with_metadata`.

    >>> from millstream.common import SimpleStringSchema
    >>> schema = KafkaRecordDeserializationSchema.with_metadata(SimpleStringSchema(), ["partition", "offset"])
    >>> schema.produced_type().get_field_names()
    ['value', 'partition', 'offset']
    """

    def __init__(self, j_deserialization_schema: Any = None, *, layout: RecordLayout | None = None) -> None:
        no_java_object(self, j_deserialization_schema)
        super().__init__()
        if layout is None:
            raise refuse(
                "KafkaRecordDeserializationSchema: create one with value_only(schema) or with_metadata(schema, …)"
            )
        self._layout = layout

    @staticmethod
    def value_only(deserialization_schema: DeserializationSchema) -> KafkaRecordDeserializationSchema:
        """The values, deserialized by a schema."""
        value_schema = _checked_schema("value_only", deserialization_schema)
        return KafkaRecordDeserializationSchema(layout=RecordLayout(value_schema))

    @staticmethod
    def with_metadata(
        deserialization_schema: DeserializationSchema,
        metadata: Iterable[str] | Mapping[str, str],
        key_schema: DeserializationSchema | None = None,
    ) -> KafkaRecordDeserializationSchema:
        """Rows of the value's fields, followed by metadata (beyond PyFlink).

        `metadata` is any of key, timestamp, timestamp_type, topic, partition, offset and headers; a dict renames them.
        A value that is not a row becomes the field `value`.
        """
        value_schema = _checked_schema("with_metadata", deserialization_schema)
        if isinstance(metadata, str) or not isinstance(metadata, Iterable):
            raise refuse_type(f"with_metadata: found {metadata!r}, expected a list of {', '.join(METADATA)}")
        names = dict(metadata) if isinstance(metadata, Mapping) else {kind: kind for kind in metadata}
        if key_schema is not None:
            _checked_schema("with_metadata, key_schema", key_schema)
        with at_users_line():
            layout = RecordLayout(value_schema, tuple(names.items()), key_schema)
        return KafkaRecordDeserializationSchema(layout=layout)

    def produced_type(self) -> TypeInformation:
        return self._layout.type_info or Types.PICKLED_BYTE_ARRAY()

    def deserialize(self, message: bytes) -> Any:
        """The value of a message; only a Kafka source has the record's metadata."""
        return self._layout.value_schema.deserialize(message)


def _checked_schema(method: str, schema: Any) -> DeserializationSchema:
    """Returns `schema`; rejects other objects."""
    if isinstance(schema, DeserializationSchema):
        return schema
    if isinstance(schema, type) and issubclass(schema, DeserializationSchema):
        raise refuse_type(f"{method}: found the class {schema.__name__}, expected a schema. Pass an instance of it")
    raise refuse_type(f"{method}: found {schema!r}, expected a DeserializationSchema, such as SimpleStringSchema()")


def layout_of(method: str, schema: Any) -> RecordLayout:
    """The layout that a source reads, from a schema for values or for records."""
    if isinstance(schema, KafkaRecordDeserializationSchema):
        layout = schema._layout
        if schema.dead_letter_tag is None:
            return layout
        return replace(layout, value_schema=layout.value_schema.with_dead_letters(schema.dead_letter_tag))
    return RecordLayout(_checked_schema(method, schema))
