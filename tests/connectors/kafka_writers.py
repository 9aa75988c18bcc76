"""Writes to Kafka as other programs do: records, committed and aborted transactions, tombstones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from waits.patience import PATIENCE_S, until

from millstream.storage.memory import MemoryStore

__all__ = ["administer", "next_message", "produce", "producer_of", "transact", "written_later"]


def producer_of(bootstrap: str, **settings: Any) -> Producer:
    """Its `flush()` waits as long as the broker takes, and raises the broker's errors. Idempotent: a request that a
    busy broker answers late is sent again, and records must stay in order.
    """
    named = {name.replace("_", "."): value for name, value in settings.items()}
    standard = {"log_level": 0, "on_delivery": _check_delivery, "enable.idempotence": True}
    return Producer({"bootstrap.servers": bootstrap, **standard, **named})


def _check_delivery(error: Any, message: Message) -> None:
    if error is not None:
        raise KafkaException(error)


def next_message(consumer: Consumer) -> Message:
    """The next message of a consumer, or the end of a partition, or what failed."""
    # A message without a value has length 0, so that it is falsy.
    return until("a message", lambda: [each for each in (consumer.poll(0.5),) if each is not None])[0]


def administer(bootstrap: str, act: Callable[[AdminClient], dict[Any, Any]]) -> None:
    """Call `act` on the admin client, and wait until it is done."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in act(admin).values():
        future.result(PATIENCE_S)


def produce(bootstrap: str, topic: str, values: Sequence[Any], partition: int = 0, **more: Any) -> None:
    """Write values: texts, bytes, or None for a tombstone."""
    producer = producer_of(bootstrap)
    for value in values:
        producer.produce(topic, value.encode() if isinstance(value, str) else value, partition=partition, **more)
    producer.flush()


def transact(producer: Producer, topic: str, values: Sequence[str], *, commit: bool, partition: int = 0) -> None:
    """Write values in one transaction, and end it."""
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value.encode(), partition=partition)
    producer.flush()
    producer.commit_transaction(PATIENCE_S) if commit else producer.abort_transaction(PATIENCE_S)


@contextmanager
def written_later(store: str, write: Callable[[], None]) -> Iterator[None]:
    """Call `write` after the job in `store` has fixed its starting offsets."""
    writer = threading.Thread(
        target=lambda: (until("a discovery", lambda: MemoryStore(store).list("input/kafka-in")), write())
    )
    writer.start()
    try:
        yield
    finally:
        writer.join()
