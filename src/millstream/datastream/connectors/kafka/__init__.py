"""Reading from and writing to Kafka, under PyFlink's module path: see `source` and `sink`.

The source is not built yet: `not_yet` has its names.
"""

from __future__ import annotations

from millstream.datastream.connectors.kafka import sink as _sink
from millstream.datastream.not_yet import names_of

__all__, __getattr__ = names_of(__name__)

FlinkKafkaProducer = _sink.FlinkKafkaProducer
FlinkKafkaProducerBase = _sink.FlinkKafkaProducerBase
KafkaRecordSerializationSchema = _sink.KafkaRecordSerializationSchema
KafkaRecordSerializationSchemaBuilder = _sink.KafkaRecordSerializationSchemaBuilder
KafkaSink = _sink.KafkaSink
KafkaSinkBuilder = _sink.KafkaSinkBuilder
KafkaTopicSelector = _sink.KafkaTopicSelector
Semantic = _sink.Semantic
