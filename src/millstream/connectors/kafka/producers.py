"""Producers: how they are set, how messages are given to them, and how they are kept open between epochs.

A producer costs threads, connections and, with transactions, some round trips to the broker, so a process keeps those
it has made (`KeptProducers`). One is taken out while it is used: two users never share one. Whoever meets an error does
not give it back, and the next one starts afresh.

`send` is the loop that every message passes: one call into librdkafka per message, driven by `map`, without a line of
Python for each. (`produce_batch` takes no timestamps, and what it saves in calls it spends on a dict per message.) What
waits to be sent is bounded by some slices of bounded bytes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from operator import length_hint
from typing import Any, TypeVar

import pyarrow as pa

from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.clients import Complaints, confluent, new_client
from millstream.connectors.kafka.kafka_failures import DEFAULT_TIMEOUT_MS, failure_of, no_answer, timeout_s
from millstream.errors import ConfigurationError

__all__ = [
    "KEPT",
    "MESSAGE_BYTES_MAX",
    "KeptProducers",
    "OpenProducer",
    "called",
    "check_topic",
    "flush",
    "open_producer",
    "send",
]

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

MESSAGE_BYTES_MAX = 1_048_576
"""The largest message that is sent, unless the program says max.request.size; as Java's producer."""

_SLICE_RECORDS_MAX = 5_000
_SLICE_BYTES_MAX = 4 * 1024 * 1024
_SLICES_WAITING_MAX = 8
_GRACE_S = 2.0

_DEFAULTS: dict[str, Any] = {
    "client.id": "millstream",
    # As Java's producer, so that a key goes to the same partition whoever writes it.
    "partitioner": "murmur2_random",
    "enable.idempotence": True,
    "message.max.bytes": MESSAGE_BYTES_MAX,
    # `send` bounds what waits, by bytes; the queue itself must never be full.
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
}


@dataclass
class OpenProducer:
    """A producer and what became of its messages.

    Of transactions: it is ready when nothing of earlier producers is open; `marks` are those that stand, by topic, as
    far as they are known (-1: none stands), and `group` is that under which they are kept."""

    client: Any
    settings: ClientSettings
    errors: list[tuple[Any, str]] = field(default_factory=list)
    """Errors of messages that could not be delivered, with their topics; the first few."""
    complaints: Complaints = field(default_factory=Complaints)
    """What the client's threads told of, for a message about a broker that does not answer."""
    slices: deque[int] = field(default_factory=lambda: deque(maxlen=_SLICES_WAITING_MAX))
    """How many messages were given in the newest slices."""
    may_lose: bool = False
    """Whether a message that the broker refuses is only told of in the log."""
    is_ready: bool = False
    marks: dict[str, int] = field(default_factory=dict)
    group: Any = None

    def check(self) -> None:
        """Raise for the first message that could not be delivered, or tell of it."""
        if not self.errors:
            return
        error, topic = self.errors[0]
        failure = failure_of(error, self.settings, destination=topic)
        if not self.may_lose:
            raise failure
        self.errors.clear()
        _LOG.warning("messages are lost, for the delivery guarantee is NONE: %s", failure)

    def close(self) -> None:
        """Forget what waits, and let go. Must not wait for a broker."""
        self.client.purge()
        self.client = None


def open_producer(settings: ClientSettings, transactional_id: str | None = None) -> OpenProducer:
    """A producer that is not connected yet."""
    errors: list[tuple[Any, str]] = []
    complaints = Complaints()

    def on_delivery(error: Any, message: Any) -> None:
        # What was purged failed because the transaction had failed before, and its commit tells why.
        if error is not None and len(errors) < 10 and not error.name().startswith("_PURGE"):
            errors.append((error, message.topic()))

    ours: dict[str, Any] = {"delivery.report.only.error": True}
    if transactional_id is not None:
        ours["transactional.id"] = transactional_id
    given = settings.for_role("producer")
    if not {"delivery.timeout.ms", "message.timeout.ms"} & given.keys():
        ours["delivery.timeout.ms"] = DEFAULT_TIMEOUT_MS
    if transactional_id is not None and "transaction.timeout.ms" not in given:
        # Not shorter than a message may take, or librdkafka refuses it.
        ours["transaction.timeout.ms"] = max(120_000, int(timeout_s(settings) * 1000))
    if given.get("acks") in ("0", "1") and "enable.idempotence" not in given and transactional_id is None:
        ours["enable.idempotence"] = False  # as Java's producer: fewer acknowledgements, no idempotence
    defaults = {name: value for name, value in _DEFAULTS.items() if name not in given}
    client = new_client("producer", settings, complaints, on_delivery, **{**defaults, **ours})
    return OpenProducer(client, settings, errors, complaints)


def send(producer: OpenProducer, topic: str, messages: pa.RecordBatch) -> None:
    """Give messages to the producer, in order; waits while too much is on its way."""
    for piece in _slices(messages):
        _wait_for_room(producer)
        _send_slice(producer, topic, piece)
        producer.slices.append(piece.num_rows)
        called(producer.client.poll, 0)
        producer.check()


def called(call: Callable[..., T], *arguments: Any) -> T:
    """What a call of the client returns. When it raises that it was fenced, it also tells of the messages that failed
    for it, by a call of ours while the exception stands; Python makes a SystemError of that. Undone here."""
    try:
        return call(*arguments)
    except SystemError as error:
        if isinstance(error.__cause__, confluent().KafkaException):
            raise error.__cause__ from None
        raise


def _wait_for_room(producer: OpenProducer) -> None:
    """Until the oldest of the slices that may wait is delivered. No message waits for ever: each has its timeout."""
    slices = producer.slices
    while len(slices) == slices.maxlen and len(producer.client) > sum(slices) - slices[0]:
        called(producer.client.poll, 0.05)


def _slices(messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Pieces of about bounded bytes."""
    if messages.num_rows == 0:
        return
    record_bytes = max(1, messages.nbytes // messages.num_rows)
    size = max(1, min(_SLICE_RECORDS_MAX, _SLICE_BYTES_MAX // record_bytes))
    for start in range(0, messages.num_rows, size):
        yield messages.slice(start, size)


def _send_slice(producer: OpenProducer, topic: str, piece: pa.RecordBatch) -> None:
    keys, values = piece.column("key").to_pylist(), piece.column("value").to_pylist()
    # Zero stands for "now" at librdkafka.
    times = piece.column("timestamp").fill_null(0).to_pylist()
    headers = piece.column("headers").to_pylist() if "headers" in piece.schema.names else None
    produce, at = producer.client.produce, 0
    while True:
        rest = iter(times[at:])
        produced = map(produce, repeat(topic), values[at:], keys[at:], repeat(-1), repeat(None), repeat(None), rest)
        if headers is not None:
            produced = map(
                produce,
                repeat(topic),
                values[at:],
                keys[at:],
                repeat(-1),
                repeat(None),
                repeat(None),
                rest,
                headers[at:],
            )
        try:
            # A deque of length 0 drives the calls without keeping what they return.
            deque(produced, maxlen=0)
            return
        except BufferError as error:
            # The program has bounded the queue (buffer.memory). What is in it leaves it: each message has its timeout.
            at = len(times) - length_hint(rest) - 1
            if len(producer.client) == 0:
                raise ConfigurationError(
                    f"a message of {len(keys[at] or b'') + len(values[at] or b''):,} bytes is larger than the producer "
                    "may keep: buffer.memory (queue.buffering.max.kbytes). Raise it with set_property, or leave it out"
                ) from error
            called(producer.client.poll, 0.05)


def flush(producer: OpenProducer) -> None:
    """Wait until every message is delivered; raises when one was not."""
    left = called(producer.client.flush, timeout_s(producer.settings) + _GRACE_S)
    producer.slices.clear()
    producer.check()
    if left:
        raise no_answer(producer.settings, f"{left} messages were not acknowledged", producer.complaints)


def check_topic(settings: ClientSettings, topic: str | None) -> None:
    """Wait for the broker, and for the topic where it is known. A broker that creates topics is asked to."""
    producer = open_producer(settings)
    kafka, limit_s = confluent(), timeout_s(settings)
    deadline = time.monotonic() + limit_s
    try:
        while True:
            try:
                left_s = max(0.1, deadline - time.monotonic())
                answer = producer.client.list_topics(*(() if topic is None else (topic,)), timeout=left_s)
            except kafka.KafkaException as error:
                producer.client.poll(0)  # lets the client's threads tell what they know
                raise failure_of(error, settings, destination=topic, complaints=producer.complaints) from error
            trouble = None if topic is None else answer.topics[topic].error
            if trouble is None:
                return
            if trouble.name() not in ("UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE") or time.monotonic() > deadline:
                raise failure_of(trouble, settings, destination=topic)
            time.sleep(0.1)
    finally:
        producer.close()


class KeptProducers:
    """The producers that a process keeps open, by what they are for. The least recently used go when there are many,
    and those that nobody asked for in a while: the part of a sink may have moved to another process."""

    def __init__(self, most: int = 32, idle_s: float = 300.0) -> None:
        self._most, self._idle_s = most, idle_s
        self._open: OrderedDict[Any, tuple[float, OpenProducer]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def take(self, purpose: Any) -> OpenProducer | None:
        """The producer that was kept for this, which is the caller's from now on; None: there is none."""
        with self._lock:
            return self._open.pop(purpose, (0.0, None))[1]

    def give_back(self, purpose: Any, producer: OpenProducer) -> None:
        """Keep a producer that works and has nothing more to send."""
        now_s = time.monotonic()
        closing = []
        with self._lock:
            previous = self._open.pop(purpose, None)
            if previous is not None:
                closing.append(previous)
            self._open[purpose] = (now_s, producer)
            while len(self._open) > self._most or next(iter(self._open.values()))[0] < now_s - self._idle_s:
                closing.append(self._open.popitem(last=False)[1])
        for _, unused in closing:
            unused.client.flush(1.0)  # of a sink that waits for nothing, something may be on its way
            unused.close()


KEPT = KeptProducers()
"""Those of this process."""
