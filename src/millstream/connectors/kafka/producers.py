"""Producers: their configuration, the send loop, and their reuse between epochs.

A producer costs threads, connections and, with transactions, some round trips to the broker, so a process caches
producers (`ProducerPool`). A user removes one while using it, so that two users never share one. After an error
it is not returned, and the next user creates a new one.

`send` is the hot loop: one call into librdkafka per message, driven by `map`, without executing Python code for each.
(`produce_batch` has no timestamps, and needs a dict per message, which costs as much as it saves in calls.) The send
queue is bounded by some slices of bounded bytes.
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
from millstream.connectors.kafka.clients import ClientErrors, confluent, new_client
from millstream.connectors.kafka.kafka_failures import DEFAULT_TIMEOUT_MS, failure_of, silence_error, timeout_s
from millstream.errors import ConfigurationError

__all__ = [
    "MESSAGE_BYTES_MAX",
    "POOL",
    "OpenProducer",
    "ProducerPool",
    "call_client",
    "check_topic",
    "flush",
    "open_producer",
    "send",
]

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

MESSAGE_BYTES_MAX = 1_048_576
"""The message size limit, unless max.request.size is set; as in Java's producer."""

_SLICE_RECORDS_MAX = 5_000
_SLICE_BYTES_MAX = 4 * 1024 * 1024
_SLICES_WAITING_MAX = 8
_GRACE_S = 2.0

_DEFAULTS: dict[str, Any] = {
    "client.id": "millstream",
    # As in Java's producer, so that all producers map a key to the same partition.
    "partitioner": "murmur2_random",
    "enable.idempotence": True,
    "message.max.bytes": MESSAGE_BYTES_MAX,
    # `send` bounds the queue, by bytes; the queue itself must never be full.
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
}


@dataclass
class OpenProducer:
    """A producer and the delivery results of its messages.

    With transactions: `is_ready` once earlier producers have no open transaction; `marks` are the known current marks
    by topic (-1: no mark), and `group` is the group that stores them."""

    client: Any
    settings: ClientSettings
    errors: list[tuple[Any, str]] = field(default_factory=list)
    """Errors of undelivered messages, with their topics; the first few."""
    client_errors: ClientErrors = field(default_factory=ClientErrors)
    """Errors reported by the client's threads, for a message about a silent broker."""
    slices: deque[int] = field(default_factory=lambda: deque(maxlen=_SLICES_WAITING_MAX))
    """Message counts of the newest slices."""
    may_lose: bool = False
    """Whether refused messages are only logged."""
    is_ready: bool = False
    marks: dict[str, int] = field(default_factory=dict)
    group: Any = None

    def check(self) -> None:
        """Raise for the first undelivered message, or log it."""
        if not self.errors:
            return
        error, topic = self.errors[0]
        failure = failure_of(error, self.settings, destination=topic)
        if not self.may_lose:
            raise failure
        self.errors.clear()
        _LOG.warning("messages are lost, because the delivery guarantee is NONE: %s", failure)

    def close(self) -> None:
        """Discard queued messages and close. Must not wait for a broker."""
        self.client.purge()
        self.client = None


def open_producer(settings: ClientSettings, transactional_id: str | None = None) -> OpenProducer:
    """An unconnected producer."""
    errors: list[tuple[Any, str]] = []
    client_errors = ClientErrors()

    def on_delivery(error: Any, message: Any) -> None:
        # Purged messages failed because the transaction had failed before; its commit reports the reason.
        if error is not None and len(errors) < 10 and not error.name().startswith("_PURGE"):
            errors.append((error, message.topic()))

    overrides: dict[str, Any] = {"delivery.report.only.error": True}
    if transactional_id is not None:
        overrides["transactional.id"] = transactional_id
    properties = settings.for_role("producer")
    if not {"delivery.timeout.ms", "message.timeout.ms"} & properties.keys():
        overrides["delivery.timeout.ms"] = DEFAULT_TIMEOUT_MS
    if transactional_id is not None and "transaction.timeout.ms" not in properties:
        # Not shorter than the delivery timeout, or librdkafka rejects it.
        overrides["transaction.timeout.ms"] = max(120_000, int(timeout_s(settings) * 1000))
    if properties.get("acks") in ("0", "1") and "enable.idempotence" not in properties and transactional_id is None:
        overrides["enable.idempotence"] = False  # as in Java's producer: fewer acknowledgements, no idempotence
    defaults = {name: value for name, value in _DEFAULTS.items() if name not in properties}
    client = new_client("producer", settings, client_errors, on_delivery, **{**defaults, **overrides})
    return OpenProducer(client, settings, errors, client_errors)


def send(producer: OpenProducer, topic: str, messages: pa.RecordBatch) -> None:
    """Queue messages in order; waits while too many are in flight."""
    for piece in _slices(messages):
        _wait_for_room(producer)
        _send_slice(producer, topic, piece)
        producer.slices.append(piece.num_rows)
        call_client(producer.client.poll, 0)
        producer.check()


def call_client(call: Callable[..., T], *arguments: Any) -> T:
    """The result of a client call. A call that raises because it was fenced also reports failed messages through our
    callback while the exception is active, which Python turns into a SystemError. This function restores the original
    error."""
    try:
        return call(*arguments)
    except SystemError as error:
        if isinstance(error.__cause__, confluent().KafkaException):
            raise error.__cause__ from None
        raise


def _wait_for_room(producer: OpenProducer) -> None:
    """Wait until the oldest queued slice is delivered. Terminates, because each message has its timeout."""
    slices = producer.slices
    while len(slices) == slices.maxlen and len(producer.client) > sum(slices) - slices[0]:
        call_client(producer.client.poll, 0.05)


def _slices(messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of about bounded bytes."""
    if messages.num_rows == 0:
        return
    record_bytes = max(1, messages.nbytes // messages.num_rows)
    size = max(1, min(_SLICE_RECORDS_MAX, _SLICE_BYTES_MAX // record_bytes))
    for start in range(0, messages.num_rows, size):
        yield messages.slice(start, size)


def _send_slice(producer: OpenProducer, topic: str, piece: pa.RecordBatch) -> None:
    keys, values = piece.column("key").to_pylist(), piece.column("value").to_pylist()
    # Zero means "now" to librdkafka.
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
            # A deque of length 0 drives the calls without storing their results.
            deque(produced, maxlen=0)
            return
        except BufferError as error:
            # The program bounds the queue (buffer.memory). It will drain: each message has its timeout.
            at = len(times) - length_hint(rest) - 1
            if len(producer.client) == 0:
                raise ConfigurationError(
                    f"a message of {len(keys[at] or b'') + len(values[at] or b''):,} bytes is larger than the producer "
                    "may queue: buffer.memory (queue.buffering.max.kbytes). Raise it with set_property, or remove it"
                ) from error
            call_client(producer.client.poll, 0.05)


def flush(producer: OpenProducer) -> None:
    """Wait until every message is delivered; raises if one was not."""
    left = call_client(producer.client.flush, timeout_s(producer.settings) + _GRACE_S)
    producer.slices.clear()
    producer.check()
    if left:
        raise silence_error(producer.settings, f"{left} messages were not acknowledged", producer.client_errors)


def check_topic(settings: ClientSettings, topic: str | None) -> None:
    """Wait for the broker, and for the topic if it is known. Creates the topic if the broker allows it."""
    producer = open_producer(settings)
    kafka, limit_s = confluent(), timeout_s(settings)
    deadline = time.monotonic() + limit_s
    try:
        while True:
            try:
                left_s = max(0.1, deadline - time.monotonic())
                answer = producer.client.list_topics(*(() if topic is None else (topic,)), timeout=left_s)
            except kafka.KafkaException as error:
                producer.client.poll(0)  # lets the client's threads report their errors
                raise failure_of(error, settings, destination=topic, client_errors=producer.client_errors) from error
            failure = None if topic is None else answer.topics[topic].error
            if failure is None:
                return
            if failure.name() not in ("UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE") or time.monotonic() > deadline:
                raise failure_of(failure, settings, destination=topic)
            time.sleep(0.1)
    finally:
        producer.close()


class ProducerPool:
    """The open producers of a process, by purpose. Closes the least recently used ones when there are many, and idle
    ones: a sink's task may have moved to another process."""

    def __init__(self, most: int = 32, idle_s: float = 300.0) -> None:
        self._most, self._idle_s = most, idle_s
        self._open: OrderedDict[Any, tuple[float, OpenProducer]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def take(self, purpose: Any) -> OpenProducer | None:
        """Remove and return the cached producer for this purpose, if any."""
        with self._lock:
            return self._open.pop(purpose, (0.0, None))[1]

    def put_back(self, purpose: Any, producer: OpenProducer) -> None:
        """Cache a working producer without messages in flight."""
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
            unused.client.flush(1.0)  # a sink without a guarantee may have messages in flight
            unused.close()


POOL = ProducerPool()
"""The pool of this process."""
