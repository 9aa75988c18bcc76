"""KafkaSource on Spark: tasks read partitions with their own consumers, and a job is rescaled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException, Producer
from servers.kafka import KafkaBroker

from millstream.common import Configuration, Row, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from millstream.datastream.formats.json import JsonRowDeserializationSchema
from millstream.testing import Collect

ROWS = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.LONG()])


def written_topic(broker: KafkaBroker, name: str) -> tuple[str, Counter[str]]:
    """A topic with transactions, and its committed records by user. A busy broker may fail the producer for good: then
    another topic is written."""
    for attempt in range(5):
        topic = broker.create_topic(f"{name}-{attempt}", 3)
        with suppress(KafkaException):
            return topic, write(broker, topic)
    raise AssertionError("five producers failed")


def write(broker: KafkaBroker, topic: str) -> Counter[str]:
    """Transactions over all partitions, every third of which is aborted; returns the committed records by user."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(60)
    expected: Counter[str] = Counter()
    for number in range(9):
        producer.begin_transaction()
        for n in range(200):
            user = f"user-{n % 7}"
            producer.produce(topic, json.dumps({"user": user, "n": n}), partition=n % 3)
            expected[user] += number % 3 != 0
        producer.abort_transaction(60) if number % 3 == 0 else producer.commit_transaction(60)
    return expected


def test_counts_are_exact_through_a_stop_and_a_rescale(
    new_env: Callable[[], StreamExecutionEnvironment], kafka_broker: KafkaBroker, unique_name: str
) -> None:
    topic, expected = written_topic(kafka_broker, unique_name)
    out = Collect()

    def start(parallelism: int) -> Any:
        env = new_env().set_parallelism(parallelism)
        env.configure(Configuration().set_integer("millstream.epoch.max-records", 150))
        source = (
            KafkaSource.builder()
            .set_bootstrap_servers(kafka_broker.bootstrap)
            .set_topics(topic)
            .set_group_id(unique_name)
            .set_bounded(KafkaOffsetsInitializer.latest())
            .set_value_only_deserializer(JsonRowDeserializationSchema.builder().type_info(ROWS).build())
            .build()
        )
        rows = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "topic").uid("topic")
        ones = rows.map(lambda row: Row(row["user"], 1), ROWS)
        counts = ones.key_by(lambda row: row[0], Types.STRING()).reduce(lambda a, b: Row(a[0], a[1] + b[1]))
        counts.uid("counts").sink_to(out)
        return env._launch("kafka")

    job = start(2)
    while not out.publications:
        assert not job.wait(0.02), job.result()
    job.stop()
    job.result()
    job = start(3)
    job.result()
    counts = Counter(row[0] for row in out.values)
    final = {row[0]: row[1] for row in out.values}  # the last of each
    assert counts == expected
    assert final == expected
