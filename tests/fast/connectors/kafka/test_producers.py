"""Queueing messages at a producer, and the producers pooled by a process. No broker: the client is a stub."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.kafka import producers
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.producers import OpenProducer, ProducerPool, open_producer, send

SETTINGS = ClientSettings.of({"bootstrap.servers": "127.0.0.1:1"})


class Client:
    """Accepts messages as confluent-kafka's producer does, and delivers all pending messages on every poll."""

    def __init__(self) -> None:
        self.queued: list[tuple[Any, ...]] = []
        self.waiting = self.waiting_most = self.polls = 0

    def __len__(self) -> int:
        return self.waiting

    def produce(self, topic: str, value: Any, key: Any, partition: int, _: None, __: None, timestamp: int) -> None:
        self._take(topic, value, key, timestamp)

    def _take(self, *message: Any) -> None:
        self.queued.append(message)
        self.waiting += 1
        self.waiting_most = max(self.waiting, self.waiting_most)

    def poll(self, timeout_s: float) -> int:
        if timeout_s:
            self.waiting = 0
        return 0

    def flush(self, timeout_s: float) -> int:
        self.waiting = 0
        return 0

    def purge(self) -> None:
        self.waiting = 0


small = st.none() | st.binary(max_size=9)
messages = st.lists(st.tuples(small, small, st.none() | st.integers(0, 2**40)), max_size=60)


@given(messages, st.booleans())
def test_every_message_is_queued_once_in_order_and_few_are_pending(
    rows: list[tuple[Any, Any, Any]], timeless: bool
) -> None:
    client = Client()
    producer = OpenProducer(client, SETTINGS)
    stamps = [None if timeless else stamp for _, _, stamp in rows]
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key for key, _, _ in rows], pa.binary()),
            "value": pa.array([value for _, value, _ in rows], pa.binary()),
            "timestamp": pa.array(stamps, pa.int64()),
        }
    )
    old = producers._SLICE_RECORDS_MAX
    producers._SLICE_RECORDS_MAX = 3
    try:
        send(producer, "out", batch)
    finally:
        producers._SLICE_RECORDS_MAX = old
    expected = [("out", value, key, stamp or 0) for (key, value, _), stamp in zip(rows, stamps, strict=True)]
    assert client.queued == expected
    assert client.waiting_most <= 3 * producers._SLICES_WAITING_MAX


def test_a_pooled_producer_has_one_user_at_a_time_and_idle_ones_are_closed() -> None:
    pool = ProducerPool(most=2)
    first, second, third = (OpenProducer(Client(), SETTINGS) for _ in range(3))
    pool.put_back("first", first)
    assert pool.take("first") is first
    assert pool.take("first") is None
    pool.put_back("first", first)
    pool.put_back("second", second)
    pool.put_back("third", third)
    assert len(pool) == 2
    assert first.client is None
    assert pool.take("second") is second
    impatient = ProducerPool(idle_s=0.0)
    impatient.put_back("third", third)
    impatient.put_back("second", second)
    assert third.client is None
    assert impatient.take("second") is second


def test_a_released_producer_closes_at_once_although_no_broker_responds() -> None:
    producer = open_producer(SETTINGS)
    producer.client.produce("out", b"never")
    producer.close()
    assert producer.client is None
