"""Messages of a RabbitMQ queue. A thread on the driver stores each message (`received_input`), then acknowledges it.

The server removes a message when it is acknowledged, and redelivers it if the connection is lost before that. So a
message is stored first, and none is lost. A message that was stored while its acknowledgement was lost is delivered
again, and recognised by its **correlation id**, if the sender uses unique ones: then every message counts exactly once.
Otherwise, at least once. The server has at most `prefetch_count` unacknowledged messages, so as many ids are
remembered, and read from the newest chunks after a restart.

The format of a chunk: `millstream-messages-1`, a line end, the CRC-32 of the rest in four bytes, and an Arrow stream
with the columns `body` and `id`.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.serialization import DeserializationSchema
from millstream.connectors.messages.codecs import BadMessage, Messages, decoder_of
from millstream.connectors.messages.dead_letters import dead_letters
from millstream.connectors.rabbitmq.connection import RabbitAddress, open_channel, rabbit_errors
from millstream.connectors.received_input import ReceivedSource, Receiver, newest_chunks
from millstream.connectors.staging import decode_columns, encode_columns
from millstream.errors import ConnectorAwayError
from millstream.storage.names import INPUT
from millstream.storage.path_parts import safe
from millstream.storage.store import Store

__all__ = ["RabbitSource", "id_text", "packed"]

_HEAD = b"millstream-messages-1\n"
_CHUNK_MESSAGES_MAX = 10_000
_FLUSH_S = 0.05
_NO_ID = (
    "it has no correlation id, which the source is set to use. Have its sender set a unique one on every message, "
    "or set use_correlation_id to False: at least once"
)
_UNAVAILABLE_S_MAX = 30.0
_RETRY_S = 0.5


class RabbitSource(ReceivedSource):
    """The messages of `queue`, decoded by `schema`."""

    split_name = "queue"

    def __init__(self, address: RabbitAddress, queue: str, has_ids: bool, schema: DeserializationSchema) -> None:
        super().__init__(f"{INPUT}/rabbitmq-{safe(address.place)}-{safe(queue)}")
        self._address, self._queue, self._has_ids, self._schema = address, queue, has_ids, schema
        self.type_info = decoder_of(schema).type_info
        self.dead_letter_tag = schema.dead_letter_tag

    @property
    def subject(self) -> str:
        return f"queue {self._queue!r} of RabbitMQ at {self._address.place}"

    def copied(self) -> RabbitSource:
        return RabbitSource(self._address, self._queue, self._has_ids, self._schema)

    def connected(self, store: Store, bases: tuple[Store, ...], folder: str) -> Receiver:
        return _QueueReceiver(self._address, self._queue, self._has_ids, store, bases, folder)

    def records_of(self, data: bytes, count: int) -> list[tuple[bytes, str | None]]:
        columns = _unpacked(data, count)
        return list(zip(columns.column("body").to_pylist(), columns.column("id").to_pylist(), strict=True))

    def items_of(self, records: list[tuple[bytes, str | None]], first: int) -> Iterator[Any]:
        bodies = pa.array([body for body, _ in records], pa.binary())
        messages = Messages(bodies, lambda i: f"{self.subject}, message {first + i} of the job")
        is_bad = np.array([self._has_ids and correlation_id is None for _, correlation_id in records])
        decoded = decoder_of(self._schema).decode(replace(messages, values=_without(bodies, is_bad)))
        if is_bad.any():
            bad = [*decoded.bad, *(BadMessage(int(at), _NO_ID) for at in np.flatnonzero(is_bad))]
            decoded = replace(decoded, bad=tuple(sorted(bad, key=lambda each: each.index)))
        letters = dead_letters(decoded, messages, self.dead_letter_tag)
        if letters is not None:
            yield letters
        yield decoded.batch

    def describe(self) -> str:
        guarantee = "exactly once, by correlation ids" if self._has_ids else "at least once"
        return f"{self.subject} ({guarantee})"


class _QueueReceiver(Receiver):
    """Consumes a queue. Reconnects for `_UNAVAILABLE_S_MAX` seconds after a lost connection."""

    # A chunk is acknowledged right after it is stored. Several acknowledgements may be in flight when the
    # connection and the driver are lost together: the next driver must know the ids of all of these.
    retained_chunks = 16

    def __init__(
        self, address: RabbitAddress, queue: str, has_ids: bool, store: Store, bases: tuple[Store, ...], folder: str
    ) -> None:
        super().__init__("rabbitmq", store, bases, folder)
        self._address, self._queue, self._has_ids = address, queue, has_ids
        self._connection, self._channel = open_channel(address, queue)
        self._known: dict[str, None] = {}  # ids in order of arrival; removing a dictionary's oldest entry is cheap
        self._stored_in = ((store, *bases), folder)

    def take_over(self) -> None:
        if self._has_ids:
            chunks = list(newest_chunks(*self._stored_in, self._known_max))
            for data, count in reversed(chunks):
                self._remember(_unpacked(data, count).column("id").to_pylist())

    @property
    def _known_max(self) -> int:
        return 2 * self._address.prefetch_count

    def receive(self) -> None:
        unavailable_since: float | None = None
        while not self.stop_requested.is_set():
            try:
                if self._connection is None:
                    self._connection, self._channel = open_channel(self._address, self._queue)
                unavailable_since = None
                with rabbit_errors(self._address, self._queue):
                    self._consume()
            except ConnectorAwayError:
                self.disconnect()
                unavailable_since = unavailable_since or time.monotonic()
                if time.monotonic() - unavailable_since > _UNAVAILABLE_S_MAX:
                    raise
                self.stop_requested.wait(_RETRY_S)

    def _consume(self) -> None:
        channel, since = self._channel, time.monotonic()
        bodies: list[bytes] = []
        ids: list[str | None] = []
        chunk_ids: dict[str | None, None] = {}
        newest_tag: int | None = None
        channel.basic_qos(prefetch_count=self._address.prefetch_count)
        for delivery, properties, body in channel.consume(self._queue, inactivity_timeout=_FLUSH_S):
            if delivery is not None:
                newest_tag = delivery.delivery_tag
                correlation_id = id_text(properties.correlation_id)
                if correlation_id not in self._known and correlation_id not in chunk_ids:
                    bodies.append(body)
                    ids.append(correlation_id)
                    chunk_ids.update({correlation_id: None} if self._has_ids and correlation_id else {})
            is_due = len(bodies) >= _CHUNK_MESSAGES_MAX or time.monotonic() - since >= _FLUSH_S
            if newest_tag is not None and (is_due or delivery is None):
                if bodies:
                    self.keep(packed(bodies, ids), len(bodies))
                    self._remember(
                        chunk_ids
                    )  # not earlier: an unstored message must be accepted when it is redelivered
                # Stored: now the server may remove them. If the acknowledgement is lost, it delivers them again.
                channel.basic_ack(newest_tag, multiple=True)
                bodies, ids, chunk_ids, newest_tag, since = [], [], {}, None, time.monotonic()
            while not self.has_room and not self.stop_requested.is_set():
                self._connection.sleep(_FLUSH_S)  # answers the server's heartbeats
            if self.stop_requested.is_set():
                return

    def _remember(self, ids: Iterable[Any]) -> None:
        self._known.update({each: None for each in ids if each})
        while len(self._known) > self._known_max:
            del self._known[next(iter(self._known))]

    def disconnect(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None and connection.is_open:
            try:
                connection.close()
            except Exception:  # the connection is dropped anyway; unacknowledged messages are delivered again
                return


def _without(bodies: pa.Array, is_bad: Any) -> pa.Array:
    """The bodies, with null for bad messages."""
    return pc.if_else(pa.array(is_bad), pa.scalar(None, pa.binary()), bodies) if is_bad.any() else bodies


def id_text(correlation_id: str | bytes | None) -> str | None:
    """A correlation id as stored and compared; the client returns bytes if it is not UTF-8.

    >>> id_text("a"), id_text(b"\\xff"), id_text("")
    ('a', '�ff', None)
    """
    if isinstance(correlation_id, bytes):
        return f"\N{REPLACEMENT CHARACTER}{correlation_id.hex()}"
    return correlation_id or None


def packed(bodies: Sequence[bytes], ids: Sequence[str | None]) -> bytes:
    columns = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary()), "id": pa.array(ids, pa.string())})
    data = encode_columns([columns])
    return _HEAD + zlib.crc32(data).to_bytes(4) + data


def _unpacked(data: bytes, count: int) -> pa.RecordBatch:
    """The messages of a chunk; ValueError if it is damaged.

    >>> _unpacked(packed([b"a"], ["1"]), 1).to_pylist()
    [{'body': b'a', 'id': '1'}]
    """
    content = data[len(_HEAD) + 4 :]
    if not data.startswith(_HEAD):
        raise ValueError(f"it starts with {data[:24]!r}, not like stored messages")
    if zlib.crc32(content).to_bytes(4) != data[len(_HEAD) : len(_HEAD) + 4]:
        raise ValueError("its checksum does not match")
    [columns] = decode_columns(content)
    if columns.num_rows != count:
        raise ValueError(f"it has {columns.num_rows} messages, but {count} were received")
    return columns
