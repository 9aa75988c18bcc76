"""What other programs write to Kafka: records, transactions that end in either way, tombstones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from millstream.storage.memory import MemoryStore

__all__ = ["administer", "produce", "producer_of", "transact", "until", "written_later"]


def producer_of(bootstrap: str, **settings: Any) -> Producer:
    return Producer(
        {"bootstrap.servers": bootstrap, "log_level": 0, **{name.replace("_", "."): v for name, v in settings.items()}}
    )


def administer(bootstrap: str, act: Callable[[AdminClient], dict[Any, Any]]) -> None:
    """Do something to topics, and wait until it is done."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in act(admin).values():
        future.result(60)


def produce(bootstrap: str, topic: str, values: Sequence[Any], partition: int = 0, **more: Any) -> None:
    """Write values: texts, bytes, or None for a tombstone."""
    producer = producer_of(bootstrap)
    for value in values:
        producer.produce(topic, value.encode() if isinstance(value, str) else value, partition=partition, **more)
    assert producer.flush(60) == 0


def transact(producer: Producer, topic: str, values: Sequence[str], *, commit: bool, partition: int = 0) -> None:
    """Write values in one transaction, and end it."""
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value.encode(), partition=partition)
    assert producer.flush(60) == 0
    producer.commit_transaction(60) if commit else producer.abort_transaction(60)


def until(what: str, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What `condition` gives once it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {seconds} s")


@contextmanager
def written_later(store: str, write: Callable[[], None]) -> Iterator[None]:
    """Call `write` when the job in `store` has decided where its partitions begin."""
    writer = threading.Thread(
        target=lambda: (until("a discovery", lambda: MemoryStore(store).list("input/kafka-in")), write())
    )
    writer.start()
    try:
        yield
    finally:
        writer.join()
