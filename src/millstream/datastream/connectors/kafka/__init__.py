"""Kafka sources and sinks, under PyFlink's module path: see `source` and `sink`."""

from __future__ import annotations

from millstream.datastream.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from millstream.datastream.connectors.kafka.record_schemas import KafkaRecordDeserializationSchema
from millstream.datastream.connectors.kafka.sink import (
    FlinkKafkaProducer,
    FlinkKafkaProducerBase,
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaSink,
    KafkaSinkBuilder,
    KafkaTopicSelector,
    Semantic,
)
from millstream.datastream.connectors.kafka.source import (
    FlinkKafkaConsumer,
    FlinkKafkaConsumerBase,
    KafkaSource,
    KafkaSourceBuilder,
)
from millstream.pyflink_names import add_pyflink_names

__all__ = [
    "FlinkKafkaConsumer",
    "FlinkKafkaConsumerBase",
    "FlinkKafkaProducer",
    "FlinkKafkaProducerBase",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecordDeserializationSchema",
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

add_pyflink_names(globals())
