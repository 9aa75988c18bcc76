"""Reading from and writing to Kafka, under PyFlink's module path: see `source` and `sink`.

The source is not built yet: `not_yet` has its names.
"""

from __future__ import annotations

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
from millstream.datastream.not_yet import names_of

_NOT_YET, __getattr__ = names_of(__name__)
__all__ = [
    *_NOT_YET,
    "FlinkKafkaProducer",
    "FlinkKafkaProducerBase",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaTopicSelector",
    "Semantic",
]
