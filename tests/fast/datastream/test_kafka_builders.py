"""What a program says wrong of a Kafka source or sink is refused where it says it, in words that say what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream.common.serialization import SimpleStringSchema
from millstream.datastream.connectors.dynamic_kafka import DynamicKafkaSource, SingleClusterTopicMetadataService
from millstream.datastream.connectors.kafka import (
    FlinkKafkaConsumer,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
)
from millstream.errors import ProgramError

BROKERS = {"bootstrap.servers": "a:9092", "group.id": "g"}


def source() -> KafkaSourceBuilder:
    builder = KafkaSource.builder().set_bootstrap_servers("a:9092").set_topics("t")
    return builder.set_value_only_deserializer(SimpleStringSchema())


def values(topic: str) -> Any:
    builder = KafkaRecordSerializationSchema.builder().set_topic(topic)
    return builder.set_value_serialization_schema(SimpleStringSchema())


def consumer() -> FlinkKafkaConsumer:
    return FlinkKafkaConsumer("t", SimpleStringSchema(), BROKERS)


def dynamic() -> Any:
    return DynamicKafkaSource.builder().set_kafka_metadata_service(SingleClusterTopicMetadataService("c", BROKERS))


@pytest.mark.parametrize(
    ("slip", "sentence"),
    [
        (lambda: source().set_topics("u"), "it already reads topic t"),
        (lambda: source().set_starting_offsets("earliest"), r"such as KafkaOffsetsInitializer.earliest\(\)"),
        (lambda: source().set_property("commit.offsets.on.checkpoint", "yes").build(), "'yes', expected true or false"),
        (lambda: source().set_property("isolation.level", "dirty").build(), "expected read_committed or"),
        (lambda: source().set_property("partition.discovery.interval.ms", "5 s").build(), "expected milliseconds"),
        (lambda: KafkaSource.builder().build(), r"Call set_topics\(…\)"),
        (lambda: dynamic().build(), r"Call set_stream_ids\(\{…\}\) or set_stream_pattern"),
        (lambda: values("a b").build(), "does not support the topic name 'a b'"),
        (lambda: KafkaTopicPartition("t", 1 << 31), "found the partition 2147483648"),
        (lambda: KafkaTopicPartition("t", "0"), "found the partition '0'"),  # type: ignore[arg-type]
        (lambda: KafkaOffsetsInitializer.offsets({KafkaTopicPartition("t", 0): 1 << 63}), "expected 0 or more"),
        (lambda: KafkaOffsetsInitializer.offsets({KafkaTopicPartition("t", 0): -4}), "expected 0 or more"),
        (lambda: KafkaOffsetsInitializer.timestamp(1 << 63), "expected milliseconds since 1970"),
        (lambda: FlinkKafkaConsumer(None, SimpleStringSchema(), BROKERS), "found None"),  # type: ignore[arg-type]
        (lambda: FlinkKafkaConsumer([], SimpleStringSchema(), BROKERS), "found no topic"),
        (lambda: consumer().set_commit_offsets_on_checkpoints("false"), "'false', expected True or False"),  # type: ignore[arg-type]
    ],
)
def test_a_slip_is_refused_at_the_line_it_was_made_in(slip: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ProgramError, match=sentence) as refusal:
        slip()
    assert "test_kafka_builders.py" in str(refusal.value)
