"""Kafka sinks: PyFlink's builders, which collect the settings of `millstream.connectors.kafka.sink`.

Building a sink opens no connection. The job queries the broker for the topic when it starts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from millstream.common.serialization import SerializationSchema
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.outgoing_messages import RecordSerializer
from millstream.connectors.kafka.sink import Delivery, kafka_sink
from millstream.connectors.kafka.sink import KafkaSink as EngineKafkaSink
from millstream.datastream.connectors.base import DeliveryGuarantee, Sink, StreamTransformer, SupportsPreprocessing
from millstream.datastream.functions.source_and_sink import SinkFunction
from millstream.datastream.streams.argument_checks import at_users_line, checked_count, checked_text, refuse
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.graph.notices import log_once
from millstream.graph.site import refuse_type

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "FlinkKafkaProducer",
    "FlinkKafkaProducerBase",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaTopicSelector",
    "Semantic",
]

_DELIVERIES: dict[str, Delivery] = {
    "EXACTLY_ONCE": "exactly-once",
    "AT_LEAST_ONCE": "at-least-once",
    "NONE": "none",
}
_TRANSACTIONAL_ID_BYTES_MAX = 200


class KafkaTopicSelector(ABC):
    """Selects the topic of a record."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """The name of the topic for `data`."""


class KafkaRecordSerializationSchema(SerializationSchema):
    """Converts a record to a message: topic, key and value. Created by its builder.

    >>> from millstream.common.serialization import SimpleStringSchema
    >>> builder = KafkaRecordSerializationSchema.builder().set_topic("out")
    >>> schema = builder.set_value_serialization_schema(SimpleStringSchema()).build()
    """

    def __init__(
        self,
        j_serialization_schema: Any = None,
        topic_selector: Any = None,
        *,
        serializer: RecordSerializer | None = None,
    ) -> None:
        super().__init__(j_serialization_schema)
        if serializer is None:
            raise refuse("KafkaRecordSerializationSchema: create one with KafkaRecordSerializationSchema.builder()")
        self._serializer = serializer

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Starts an empty builder."""
        return KafkaRecordSerializationSchemaBuilder()

    def serialize(self, value: Any) -> bytes:
        """The value of the message for `value`."""
        return self._serializer.value.serialize(value)


class KafkaRecordSerializationSchemaBuilder:
    """Collects the settings of a `KafkaRecordSerializationSchema`: a topic or a selector, and the schema of values."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._selector: Callable[[Any], str] | None = None
        self._key: SerializationSchema | None = None
        self._value: SerializationSchema | None = None

    def build(self) -> KafkaRecordSerializationSchema:
        """The schema."""
        if self._topic is None and self._selector is None:
            raise refuse("KafkaRecordSerializationSchema: no topic. Call set_topic(...) or set_topic_selector(...)")
        if self._value is None:
            raise refuse(
                "KafkaRecordSerializationSchema: no schema for values. Call "
                "set_value_serialization_schema(...), with SimpleStringSchema() for text"
            )
        with at_users_line():
            serializer = RecordSerializer(self._value, self._key, self._topic, self._selector)
        return KafkaRecordSerializationSchema(serializer=serializer)

    def set_topic(self, topic: str) -> Self:
        """Writes every record to `topic`."""
        self._refuse_second_topic("set_topic")
        self._topic = checked_text("set_topic", topic)
        return self

    def set_topic_selector(self, topic_selector: KafkaTopicSelector | Callable[[Any], str]) -> Self:
        """Selects the topic of each record with `topic_selector`: a `KafkaTopicSelector`, or a function."""
        self._refuse_second_topic("set_topic_selector")
        if isinstance(topic_selector, KafkaTopicSelector):
            self._selector = topic_selector.apply
        elif callable(topic_selector) and not isinstance(topic_selector, type):
            self._selector = topic_selector
        else:
            raise refuse(f"set_topic_selector: found {topic_selector!r}, expected a KafkaTopicSelector or a function")
        return self

    def set_key_serialization_schema(self, key_serialization_schema: SerializationSchema) -> Self:
        """Writes keys with this schema, which receives the whole record. Without it messages have no key."""
        self._key = _checked_schema("set_key_serialization_schema", key_serialization_schema)
        return self

    def set_value_serialization_schema(self, value_serialization_schema: SerializationSchema) -> Self:
        """Writes values with this schema."""
        self._value = _checked_schema("set_value_serialization_schema", value_serialization_schema)
        return self

    def _refuse_second_topic(self, method: str) -> None:
        if self._topic is not None or self._selector is not None:
            raise refuse(f"{method}: a topic or a selector is set already. Set one of them, once")


def _checked_schema(method: str, schema: Any) -> SerializationSchema:
    if isinstance(schema, SerializationSchema):
        return schema
    hint = f". Pass an instance: {schema.__name__}()" if isinstance(schema, type) else ""
    raise refuse_type(f"{method}: found {schema!r}, expected a SerializationSchema such as SimpleStringSchema(){hint}")


class KafkaSink(Sink, SupportsPreprocessing):
    """A sink that writes to Kafka, for `DataStream.sink_to`."""

    def __init__(
        self,
        j_kafka_sink: Any = None,
        transformer: StreamTransformer | None = None,
        *,
        engine: EngineKafkaSink | None = None,
    ) -> None:
        no_java_object(self, j_kafka_sink)
        if engine is None:
            raise refuse("KafkaSink: create one with KafkaSink.builder()")
        super().__init__(engine)
        self._transformer = transformer

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Starts an empty builder."""
        return KafkaSinkBuilder()

    def get_transformer(self) -> StreamTransformer | None:
        """None: records become messages inside the sink."""
        return self._transformer


class KafkaSinkBuilder:
    """Collects the settings of a `KafkaSink`. As in Flink, the default delivery guarantee is NONE."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._delivery: Delivery = "none"
        self._prefix = "millstream"
        self._serializer: RecordSerializer | None = None

    def build(self) -> KafkaSink:
        """The sink."""
        if "bootstrap.servers" not in self._properties:
            raise refuse("KafkaSink: no broker. Call set_bootstrap_servers('host:9092')")
        if self._serializer is None:
            raise refuse(
                "KafkaSink: no serializer for records. Call set_record_serializer(...) with the result of "
                "KafkaRecordSerializationSchema.builder()….build()"
            )
        with at_users_line():
            settings = ClientSettings.of(self._properties)
            settings.for_role("producer")  # rejects unsupported settings at the program's line
            return KafkaSink(engine=kafka_sink(settings, self._serializer, self._delivery, self._prefix))

    def set_bootstrap_servers(self, bootstrap_servers: str) -> Self:
        """Sets the broker addresses: 'host:9092', comma-separated."""
        self._properties["bootstrap.servers"] = checked_text("set_bootstrap_servers", bootstrap_servers)
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> Self:
        """Sets the guarantee after a failure."""
        if not isinstance(delivery_guarantee, DeliveryGuarantee):
            raise refuse_type(
                f"set_delivery_guarantee: found {delivery_guarantee!r}, expected one of DeliveryGuarantee"
            )
        self._delivery = _DELIVERIES[delivery_guarantee.name]
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> Self:
        """Sets the prefix, relevant for permissions, of transaction names and of the groups that store their markers.
        The job's id follows it, so two jobs with the same prefix do not conflict."""
        prefix = checked_text("set_transactional_id_prefix", transactional_id_prefix)
        if len(prefix.encode()) > _TRANSACTIONAL_ID_BYTES_MAX:
            raise refuse(
                f"set_transactional_id_prefix: found {len(prefix.encode())} bytes, expected at most "
                f"{_TRANSACTIONAL_ID_BYTES_MAX}"
            )
        self._prefix = prefix
        return self

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> Self:
        """Sets the conversion of records to messages."""
        if not isinstance(record_serializer, KafkaRecordSerializationSchema):
            raise refuse_type(
                f"set_record_serializer: found {record_serializer!r}, expected a KafkaRecordSerializationSchema. "
                "Create one with its builder(), and finish it with build()"
                ""
            )
        self._serializer = record_serializer._serializer
        return self

    def set_property(self, key: str, value: str) -> Self:
        """Sets a producer property under its Kafka name."""
        if not isinstance(key, str) or not key.strip():
            raise refuse_type(
                f"set_property: found {key!r}, expected the name of a property, such as 'compression.type'"
            )
        self._properties[key.strip()] = value
        return self


class Semantic(Enum):
    """The guarantee of a `FlinkKafkaProducer` after a failure."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class FlinkKafkaProducerBase(SinkFunction, ABC):
    """Base of the older Kafka sinks."""

    def __init__(self, j_flink_kafka_producer: EngineKafkaSink) -> None:
        super().__init__(j_flink_kafka_producer)
        self._sink = j_flink_kafka_producer

    def set_log_failures_only(self, log_failures_only: bool) -> Self:
        """True: a message that cannot be written does not fail the job, which then gives no guarantee."""
        if log_failures_only:
            self._replace(delivery="none")
        return self

    def set_flush_on_checkpoint(self, flush_on_checkpoint: bool) -> Self:
        """False: an epoch ends without waiting for the broker, which then gives no guarantee."""
        if not flush_on_checkpoint and self._sink.delivery == "at-least-once":
            self._replace(delivery="none")
        return self

    def set_write_timestamp_to_kafka(self, write_timestamp_to_kafka: bool) -> Self:
        """True: messages have their records' timestamps; False: the time of sending."""
        self._replace(with_timestamps=bool(write_timestamp_to_kafka))
        return self

    def _replace(self, delivery: Delivery | None = None, with_timestamps: bool | None = None) -> None:
        sink, serializer = self._sink, self._sink.serializer
        if with_timestamps is not None:
            serializer = replace(serializer, with_timestamps=with_timestamps)
        self._sink = self._connector = kafka_sink(sink.settings, serializer, delivery or sink.delivery)


class FlinkKafkaProducer(FlinkKafkaProducerBase):
    """The older form of `KafkaSink`, for `DataStream.add_sink`. Messages have no key.

    >>> from millstream.common.serialization import SimpleStringSchema
    >>> sink = FlinkKafkaProducer("out", SimpleStringSchema(), {"bootstrap.servers": "localhost:9092"})
    """

    def __init__(
        self,
        topic: str,
        serialization_schema: SerializationSchema,
        producer_config: dict[str, Any],
        kafka_producer_pool_size: int = 5,
        semantic: Semantic = Semantic.AT_LEAST_ONCE,
    ) -> None:
        checked_text("FlinkKafkaProducer, topic", topic)
        schema = _checked_schema("FlinkKafkaProducer, serialization_schema", serialization_schema)
        checked_count("FlinkKafkaProducer, kafka_producer_pool_size", kafka_producer_pool_size)
        if not isinstance(producer_config, dict) or "bootstrap.servers" not in producer_config:
            raise refuse("FlinkKafkaProducer: producer_config must be a dict that contains 'bootstrap.servers'")
        if not isinstance(semantic, Semantic):
            raise refuse_type(f"FlinkKafkaProducer: found {semantic!r}, expected one of Semantic")
        with at_users_line():
            settings = ClientSettings.of(producer_config)
            settings.for_role("producer")
            serializer = RecordSerializer(schema, topic=topic, with_timestamps=False)
            super().__init__(kafka_sink(settings, serializer, _DELIVERIES[semantic.name]))

    def ignore_failures_after_transaction_timeout(self) -> Self:
        """Accepted without effect: a timed-out transaction is repeated from the staged output."""
        log_once(
            "kafka transaction timeout",
            "ignore_failures_after_transaction_timeout has no effect here: the content of a timed-out transaction is "
            "published again",
        )
        return self
