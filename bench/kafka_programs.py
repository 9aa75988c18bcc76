"""Records, topics and the programs that `bench_kafka` runs, in a separate module that workers import.

A record is JSON of about 120 bytes with five fields; its time is that of its message.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka

from millstream.common import Types, WatermarkStrategy
from millstream.common.serialization import RowFieldExtractorSchema
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream import aggregates as agg
from millstream.datastream.connectors import DeliveryGuarantee
from millstream.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from millstream.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from millstream.datastream.window import TumblingEventTimeWindows

__all__ = [
    "COUNT_TYPE",
    "FIRST_MS",
    "RECORD_TYPE",
    "SPAN_MS",
    "USERS",
    "WINDOW_MS",
    "count_in_windows",
    "fill",
    "messages_in",
    "pass_on",
    "pass_on_unbounded",
    "plain_loop",
    "record",
    "short_record",
]

USERS = 1_000
WINDOW_MS = 10_000
SPAN_MS = 60_000
"""The event time that all records of a topic span."""
FIRST_MS = int(time.time()) // 60 * 60_000 - 3_600_000
RECORD_TYPE = Types.ROW_NAMED(
    ["user", "page", "cents", "at", "ok"], [Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG(), Types.BOOLEAN()]
)
COUNT_TYPE = Types.ROW_NAMED(
    ["user", "window_start", "window_end", "records"], [Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()]
)


def record(number: int, at_ms: int) -> bytes:
    """The record of this number and time."""
    fields = {
        "user": f"user-{number * 7919 % USERS:06}",
        "page": f"/catalogue/articles/{number % 9973:05}/details",
        "cents": number % 100_000,
        "at": at_ms,
        "ok": number % 3 > 0,
    }
    return json.dumps(fields).encode()


def short_record(number: int, at_ms: int) -> bytes:
    """As `record`, in 100 bytes."""
    text = b'{"user": "user-%06d", "page": "/articles/%05d", "cents": %d, "at": %d, "ok": %s}'
    truth = b"true" if number % 3 else b"false"
    return text % (number * 7919 % USERS, number % 9973, 10_000 + number % 89_999, at_ms, truth)


def fill(bootstrap: str, topic: str, total: int, make: Callable[[int, int], bytes] = record) -> None:
    """Write all records, spread over the partitions, in order."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    partitions = len(producer.list_topics(topic, timeout=30).topics[topic].partitions)
    for number in range(total):
        at_ms = FIRST_MS + number * SPAN_MS // total
        while True:
            try:
                producer.produce(topic, make(number, at_ms), partition=number % partitions, timestamp=at_ms)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def _source(env: StreamExecutionEnvironment, bootstrap: str, topic: str, *, bounded: bool = True) -> DataStream:
    schema = JsonRowDeserializationSchema.builder().type_info(RECORD_TYPE).build()
    builder = (
        KafkaSource.builder()
        .set_bootstrap_servers(bootstrap)
        .set_topics(topic)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(schema)
    )
    source = (builder.set_bounded(KafkaOffsetsInitializer.latest()) if bounded else builder).build()
    return env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "records")


def _sink(bootstrap: str, topic: str, type_info: Any, guarantee: DeliveryGuarantee) -> KafkaSink:
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_key_serialization_schema(RowFieldExtractorSchema(0))
        .set_value_serialization_schema(JsonRowSerializationSchema.builder().with_type_info(type_info).build())
        .build()
    )
    builder = KafkaSink.builder().set_bootstrap_servers(bootstrap).set_record_serializer(serializer)
    return builder.set_delivery_guarantee(guarantee).build()


def count_in_windows(
    env: StreamExecutionEnvironment, bootstrap: str, source: str, target: str, guarantee: DeliveryGuarantee
) -> None:
    """The number of records of each user in windows of ten seconds."""
    windows = _source(env, bootstrap, source).key_by("user").window(TumblingEventTimeWindows(WINDOW_MS, 0))
    counts = windows.aggregate(agg.Aggregates(records=agg.count()))
    counts.sink_to(_sink(bootstrap, target, COUNT_TYPE, guarantee))


def pass_on(
    env: StreamExecutionEnvironment, bootstrap: str, source: str, target: str, guarantee: DeliveryGuarantee
) -> None:
    """Every record, decoded and written again: the whole cost is in source and sink."""
    _source(env, bootstrap, source).sink_to(_sink(bootstrap, target, RECORD_TYPE, guarantee))


def pass_on_unbounded(
    env: StreamExecutionEnvironment, bootstrap: str, source: str, target: str, guarantee: DeliveryGuarantee
) -> None:
    """As `pass_on`, of a topic that grows."""
    records = _source(env, bootstrap, source, bounded=False)
    records.sink_to(_sink(bootstrap, target, RECORD_TYPE, guarantee))


def plain_loop(bootstrap: str, source: str, target: str) -> int:
    """The same counts by confluent-kafka, json and a dict, in one process; returns how many records it read."""
    consumer = _reader(bootstrap, source, 0)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    counts: dict[tuple[str, int], int] = {}
    records = 0
    for message in consumer:
        fields = json.loads(message.value())
        place = fields["user"], fields["at"] // WINDOW_MS * WINDOW_MS
        counts[place] = counts.get(place, 0) + 1
        records += 1
    for (user, start_ms), count in counts.items():
        result = {"user": user, "window_start": start_ms, "window_end": start_ms + WINDOW_MS, "records": count}
        producer.produce(target, json.dumps(result).encode(), user.encode())
        producer.poll(0)
    producer.flush()
    return records


def messages_in(bootstrap: str, topic: str) -> Iterator[bytes]:
    """The values of all committed messages."""
    return (message.value() for message in _reader(bootstrap, topic, 0))


def _reader(bootstrap: str, topic: str, first: int) -> Iterator[Any]:
    """All messages up to the current end, a few thousand at a time."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    partitions = sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([confluent_kafka.TopicPartition(topic, number, first) for number in partitions])
    at_end: set[int] = set()
    while len(at_end) < len(partitions):
        for message in consumer.consume(5_000, timeout=1.0):
            if message.error():
                at_end.add(message.partition())
            else:
                yield message
    consumer.close()
