"""Messages of a RabbitMQ queue. A thread on the driver stores what comes (`received_input`), then acknowledges it.

The server forgets a message when it is acknowledged, and gives it again when the connection is lost before. So a
message is stored first: none is lost. One that was stored while its acknowledgement was lost comes again, and is known
by its **correlation id**, if the sender gives each message one of its own: then every message counts exactly once.
Without, at least once. The server has at most `prefetch_count` messages on their way, so as many ids are remembered,
and read from the newest chunks after a restart.

The form of a chunk: `millstream-messages-1`, a line end, the CRC-32 of the rest in four bytes, and an Arrow stream with
the columns `body` and `id`.
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
    "it has no correlation id, and the source was told to go by them. Have its sender give every message one of its "
    "own, or set use_correlation_id to False: at least once"
)
_AWAY_S_MAX = 30.0
_RETRY_S = 0.5


class RabbitSource(ReceivedSource):
    """The messages of `queue`, read by `schema`."""

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
    """Consumes a queue. A connection that is lost is made again, for `_AWAY_S_MAX` seconds."""

    # A chunk is acknowledged right after it is stored. The acknowledgements of several may be on their way when the
    # connection and the driver are lost together: the next driver must find the ids of all of these.
    kept_chunks = 16

    def __init__(
        self, address: RabbitAddress, queue: str, has_ids: bool, store: Store, bases: tuple[Store, ...], folder: str
    ) -> None:
        super().__init__("rabbitmq", store, bases, folder)
        self._address, self._queue, self._has_ids = address, queue, has_ids
        self._connection, self._channel = open_channel(address, queue)
        self._known: dict[str, None] = {}  # ids in the order they came; a dictionary forgets the oldest cheaply
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
        away_since: float | None = None
        while not self.stop_requested.is_set():
            try:
                if self._connection is None:
                    self._connection, self._channel = open_channel(self._address, self._queue)
                away_since = None
                with rabbit_errors(self._address, self._queue):
                    self._consume()
            except ConnectorAwayError:
                self.disconnect()
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > _AWAY_S_MAX:
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
                    self._remember(chunk_ids)  # not before: what was not stored must be taken when it comes again
                # Stored: now the server may forget them. If it does not hear of it, they come again.
                channel.basic_ack(newest_tag, multiple=True)
                bodies, ids, chunk_ids, newest_tag, since = [], [], {}, None, time.monotonic()
            while not self.has_room and not self.stop_requested.is_set():
                self._connection.sleep(_FLUSH_S)  # with the server's heartbeats answered
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
            except Exception:  # it is given up in any case; what was not acknowledged comes again
                return


def _without(bodies: pa.Array, is_bad: Any) -> pa.Array:
    """The bodies; those of bad messages are not there to be read."""
    return pc.if_else(pa.array(is_bad), pa.scalar(None, pa.binary()), bodies) if is_bad.any() else bodies


def id_text(correlation_id: str | bytes | None) -> str | None:
    """A correlation id as it is stored and compared; the client gives bytes where it is no UTF-8.

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
    """The messages of a chunk; ValueError when it is not what was stored.

    >>> _unpacked(packed([b"a"], ["1"]), 1).to_pylist()
    [{'body': b'a', 'id': '1'}]
    """
    content = data[len(_HEAD) + 4 :]
    if not data.startswith(_HEAD):
        raise ValueError(f"it begins with {data[:24]!r}, and not as stored messages do")
    if zlib.crc32(content).to_bytes(4) != data[len(_HEAD) : len(_HEAD) + 4]:
        raise ValueError("its checksum is another one")
    [columns] = decode_columns(content)
    if columns.num_rows != count:
        raise ValueError(f"it has {columns.num_rows} messages, and {count} were received")
    return columns
