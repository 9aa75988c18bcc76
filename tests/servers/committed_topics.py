"""Reads a topic to its end as an ordinary program does: confluent-kafka, read-committed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from inputs.fresh_names import fresh_name
from waits.patience import PATIENCE_S

from servers.kafka import KafkaBroker

__all__ = ["Message", "new_topic", "read_topic"]


@dataclass(frozen=True)
class Message:
    """A message as a consumer receives it."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    partition: int
    offset: int


def new_topic(broker: KafkaBroker, partitions: int = 2, **config: str) -> str:
    """A topic that no other test uses."""
    return broker.create_topic(fresh_name("t"), partitions, **config)


def read_topic(
    bootstrap: str, topic: str, isolation: str = "read_committed", timeout_s: float = PATIENCE_S
) -> list[Message]:
    """All messages, partition by partition; waits for open transactions."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": fresh_name("group"),
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": isolation,
    }
    consumer = confluent_kafka.Consumer(settings)
    deadline = time.monotonic() + timeout_s
    try:
        partitions, ends = _ends(bootstrap, topic, deadline)
        consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in partitions])
        messages: dict[int, list[Message]] = {p: [] for p in partitions}
        # The end of committed data is the last stable offset: it precedes the end while a transaction is open.
        while any(
            consumer.position([confluent_kafka.TopicPartition(topic, p)])[0].offset < ends[p]
            for p in partitions
            if ends[p]
        ):
            assert time.monotonic() < deadline, f"topic {topic} was not read to its end {ends}: {messages}"
            message = consumer.poll(0.2)
            if message is None or message.error():
                continue
            stamp = message.timestamp()[1]
            messages[message.partition()].append(
                Message(message.key(), message.value(), stamp, message.partition(), message.offset())
            )
        return [message for p in partitions for message in messages[p]]
    finally:
        consumer.close()


def _ends(bootstrap: str, topic: str, deadline: float) -> tuple[list[int], dict[int, int]]:
    """The partitions and their ends, including uncommitted data: a transaction that has just ended may not be marked
    as ended everywhere. A request to a broker that has just restarted is retried.
    """
    settings = {"bootstrap.servers": bootstrap, "group.id": "ends", "isolation.level": "read_uncommitted"}
    consumer = confluent_kafka.Consumer(settings)
    try:
        while True:
            try:
                partitions = sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
                places = [confluent_kafka.TopicPartition(topic, number) for number in partitions]
                return partitions, {at.partition: consumer.get_watermark_offsets(at, timeout=30)[1] for at in places}
            except confluent_kafka.KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
    finally:
        consumer.close()
