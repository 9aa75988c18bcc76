"""Reading from and writing to Kafka.

Comes with connectors. The names and signatures are PyFlink's, so that programs can be written against them; making
or calling any of them says that it is not built yet, and what does the job meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any

from millstream.common.serialization import SerializationSchema
from millstream.datastream.connectors.base import Sink, Source, SupportsPreprocessing
from millstream.datastream.functions.source_and_sink import SinkFunction, SourceFunction
from millstream.errors import NotYetError

__all__ = [
    "FlinkKafkaConsumer",
    "FlinkKafkaConsumerBase",
    "FlinkKafkaProducer",
    "FlinkKafkaProducerBase",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
    "Semantic",
]

_INSTEAD = "a PythonSource or TwoPhaseSink of your own, or Spark's connector by from_spark() and to_spark()"


def _not_yet(name: str) -> NotYetError:
    return NotYetError.of(name, "connectors", _INSTEAD)


class FlinkKafkaConsumerBase(SourceFunction):
    """PyFlink's `FlinkKafkaConsumerBase`; not built yet."""

    def __init__(self, j_flink_kafka_consumer: Any = None) -> None:
        raise _not_yet("FlinkKafkaConsumerBase")

    def set_commit_offsets_on_checkpoints(self, commit_on_checkpoints: Any = None) -> Any:
        raise _not_yet("FlinkKafkaConsumerBase.set_commit_offsets_on_checkpoints")

    def set_start_from_earliest(self) -> Any:
        raise _not_yet("FlinkKafkaConsumerBase.set_start_from_earliest")

    def set_start_from_latest(self) -> Any:
        raise _not_yet("FlinkKafkaConsumerBase.set_start_from_latest")

    def set_start_from_timestamp(self, startup_offsets_timestamp: Any = None) -> Any:
        raise _not_yet("FlinkKafkaConsumerBase.set_start_from_timestamp")

    def set_start_from_group_offsets(self) -> Any:
        raise _not_yet("FlinkKafkaConsumerBase.set_start_from_group_offsets")

    def disable_filter_restored_partitions_with_subscribed_topics(self) -> Any:
        raise _not_yet("FlinkKafkaConsumerBase.disable_filter_restored_partitions_with_subscribed_topics")

    def get_produced_type(self) -> Any:
        raise _not_yet("FlinkKafkaConsumerBase.get_produced_type")


class FlinkKafkaConsumer(FlinkKafkaConsumerBase):
    """PyFlink's `FlinkKafkaConsumer`; not built yet."""

    def __init__(self, topics: Any = None, deserialization_schema: Any = None, properties: Any = None) -> None:
        raise _not_yet("FlinkKafkaConsumer")


class Semantic(Enum):
    """What a producer promises after a failure."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class FlinkKafkaProducerBase(SinkFunction):
    """PyFlink's `FlinkKafkaProducerBase`; not built yet."""

    def __init__(self, j_flink_kafka_producer: Any = None) -> None:
        raise _not_yet("FlinkKafkaProducerBase")

    def set_log_failures_only(self, log_failures_only: Any = None) -> Any:
        raise _not_yet("FlinkKafkaProducerBase.set_log_failures_only")

    def set_flush_on_checkpoint(self, flush_on_checkpoint: Any = None) -> Any:
        raise _not_yet("FlinkKafkaProducerBase.set_flush_on_checkpoint")

    def set_write_timestamp_to_kafka(self, write_timestamp_to_kafka: Any = None) -> Any:
        raise _not_yet("FlinkKafkaProducerBase.set_write_timestamp_to_kafka")


class FlinkKafkaProducer(FlinkKafkaProducerBase):
    """PyFlink's `FlinkKafkaProducer`; not built yet."""

    def __init__(
        self,
        topic: Any = None,
        serialization_schema: Any = None,
        producer_config: Any = None,
        kafka_producer_pool_size: Any = None,
        semantic: Any = None,
    ) -> None:
        raise _not_yet("FlinkKafkaProducer")

    def ignore_failures_after_transaction_timeout(self) -> Any:
        raise _not_yet("FlinkKafkaProducer.ignore_failures_after_transaction_timeout")


class KafkaSource(Source):
    """PyFlink's `KafkaSource`; not built yet."""

    def __init__(self, j_kafka_source: Any = None) -> None:
        raise _not_yet("KafkaSource")

    @staticmethod
    def builder() -> Any:
        raise _not_yet("KafkaSource.builder")


class KafkaSourceBuilder:
    """PyFlink's `KafkaSourceBuilder`; not built yet."""

    def __init__(self) -> None:
        raise _not_yet("KafkaSourceBuilder")

    def build(self) -> Any:
        raise _not_yet("KafkaSourceBuilder.build")

    def set_bootstrap_servers(self, bootstrap_servers: Any = None) -> Any:
        raise _not_yet("KafkaSourceBuilder.set_bootstrap_servers")

    def set_group_id(self, group_id: Any = None) -> Any:
        raise _not_yet("KafkaSourceBuilder.set_group_id")

    def set_topics(self, *topics: Any) -> Any:
        raise _not_yet("KafkaSourceBuilder.set_topics")

    def set_topic_pattern(self, topic_pattern: Any = None) -> Any:
        raise _not_yet("KafkaSourceBuilder.set_topic_pattern")

    def set_partitions(self, partitions: Any = None) -> Any:
        raise _not_yet("KafkaSourceBuilder.set_partitions")

    def set_starting_offsets(self, starting_offsets_initializer: Any = None) -> Any:
        raise _not_yet("KafkaSourceBuilder.set_starting_offsets")

    def set_unbounded(self, stopping_offsets_initializer: Any = None) -> Any:
        raise _not_yet("KafkaSourceBuilder.set_unbounded")

    def set_bounded(self, stopping_offsets_initializer: Any = None) -> Any:
        raise _not_yet("KafkaSourceBuilder.set_bounded")

    def set_value_only_deserializer(self, deserialization_schema: Any = None) -> Any:
        raise _not_yet("KafkaSourceBuilder.set_value_only_deserializer")

    def set_client_id_prefix(self, prefix: Any = None) -> Any:
        raise _not_yet("KafkaSourceBuilder.set_client_id_prefix")

    def set_property(self, key: Any = None, value: Any = None) -> Any:
        raise _not_yet("KafkaSourceBuilder.set_property")

    def set_properties(self, props: Any = None) -> Any:
        raise _not_yet("KafkaSourceBuilder.set_properties")


class KafkaTopicPartition:
    """PyFlink's `KafkaTopicPartition`; not built yet."""

    def __init__(self, topic: Any = None, partition: Any = None) -> None:
        raise _not_yet("KafkaTopicPartition")


class KafkaOffsetResetStrategy(Enum):
    """Where to begin when no offset is stored."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


class KafkaOffsetsInitializer:
    """PyFlink's `KafkaOffsetsInitializer`; not built yet."""

    def __init__(self, j_initializer: Any = None) -> None:
        raise _not_yet("KafkaOffsetsInitializer")

    @staticmethod
    def committed_offsets(offset_reset_strategy: Any = None) -> Any:
        raise _not_yet("KafkaOffsetsInitializer.committed_offsets")

    @staticmethod
    def timestamp(timestamp: Any = None) -> Any:
        raise _not_yet("KafkaOffsetsInitializer.timestamp")

    @staticmethod
    def earliest() -> Any:
        raise _not_yet("KafkaOffsetsInitializer.earliest")

    @staticmethod
    def latest() -> Any:
        raise _not_yet("KafkaOffsetsInitializer.latest")

    @staticmethod
    def offsets(offsets: Any = None, offset_reset_strategy: Any = None) -> Any:
        raise _not_yet("KafkaOffsetsInitializer.offsets")


class KafkaSink(Sink, SupportsPreprocessing):
    """PyFlink's `KafkaSink`; not built yet."""

    def __init__(self, j_kafka_sink: Any = None, transformer: Any = None) -> None:
        raise _not_yet("KafkaSink")

    @staticmethod
    def builder() -> Any:
        raise _not_yet("KafkaSink.builder")

    def get_transformer(self) -> Any:
        raise _not_yet("KafkaSink.get_transformer")


class KafkaSinkBuilder:
    """PyFlink's `KafkaSinkBuilder`; not built yet."""

    def __init__(self) -> None:
        raise _not_yet("KafkaSinkBuilder")

    def build(self) -> Any:
        raise _not_yet("KafkaSinkBuilder.build")

    def set_bootstrap_servers(self, bootstrap_servers: Any = None) -> Any:
        raise _not_yet("KafkaSinkBuilder.set_bootstrap_servers")

    def set_delivery_guarantee(self, delivery_guarantee: Any = None) -> Any:
        raise _not_yet("KafkaSinkBuilder.set_delivery_guarantee")

    def set_transactional_id_prefix(self, transactional_id_prefix: Any = None) -> Any:
        raise _not_yet("KafkaSinkBuilder.set_transactional_id_prefix")

    def set_record_serializer(self, record_serializer: Any = None) -> Any:
        raise _not_yet("KafkaSinkBuilder.set_record_serializer")

    def set_property(self, key: Any = None, value: Any = None) -> Any:
        raise _not_yet("KafkaSinkBuilder.set_property")


class KafkaRecordSerializationSchema(SerializationSchema):
    """PyFlink's `KafkaRecordSerializationSchema`; not built yet."""

    def __init__(self, j_serialization_schema: Any = None, topic_selector: Any = None) -> None:
        raise _not_yet("KafkaRecordSerializationSchema")

    @staticmethod
    def builder() -> Any:
        raise _not_yet("KafkaRecordSerializationSchema.builder")


class KafkaRecordSerializationSchemaBuilder:
    """PyFlink's `KafkaRecordSerializationSchemaBuilder`; not built yet."""

    def __init__(self) -> None:
        raise _not_yet("KafkaRecordSerializationSchemaBuilder")

    def build(self) -> Any:
        raise _not_yet("KafkaRecordSerializationSchemaBuilder.build")

    def set_topic(self, topic: Any = None) -> Any:
        raise _not_yet("KafkaRecordSerializationSchemaBuilder.set_topic")

    def set_topic_selector(self, topic_selector: Any = None) -> Any:
        raise _not_yet("KafkaRecordSerializationSchemaBuilder.set_topic_selector")

    def set_key_serialization_schema(self, key_serialization_schema: Any = None) -> Any:
        raise _not_yet("KafkaRecordSerializationSchemaBuilder.set_key_serialization_schema")

    def set_value_serialization_schema(self, value_serialization_schema: Any = None) -> Any:
        raise _not_yet("KafkaRecordSerializationSchemaBuilder.set_value_serialization_schema")


class KafkaTopicSelector(ABC):
    """Chooses the topic of a record."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """The topic `data` goes to."""
