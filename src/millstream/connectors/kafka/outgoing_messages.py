"""Converts a sink's records to messages in columns, and stages them in the store.

Columns of a batch of messages: `key` and `value` (binary, null: none), `timestamp` (int64 milliseconds, null: the send
time), `topic` only where messages of one sink have several topics, and `headers` (maps) only where the rows have some.

The staged output of a task in an epoch, as JSON in the manifest (`staged_columns`, with destination and time):

    {"form": 1, "topic": "out", "first_topic": "out", "records": 3, "bytes": 120,
     "staged_ms": 1794800000000, "chunks": [payloads of `staging`]}

Chunks hold the messages in the order of the records, and are sent in that order: messages with the same key keep
their order. Each chunk has its own length and checksum.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.serialization import SerializationSchema
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Json, WriterContext
from millstream.connectors.messages.codecs import encoder_of
from millstream.connectors.staged_columns import StagedColumns, read_staged_columns
from millstream.errors import ProgramError
from millstream.records.batch import Batch
from millstream.storage.store import Store

__all__ = ["MessageMaker", "MessageMetadata", "RecordSerializer", "StagedMessages", "by_topic", "read_messages"]

# The overhead of a message besides key and value, as Kafka clients count it against the limit.
_OVERHEAD_BYTES = 70
_HEADER_OVERHEAD_BYTES = 10
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_TOPIC_NAME_RULE = "at most 249 letters, digits, '.', '_' and '-'"


class MessageMetadata(Protocol):
    """Timestamp and headers of messages, from columns of the rows. None: messages have none."""

    def timestamps(self, batch: Batch) -> pa.Array | None:
        """Milliseconds since 1970."""

    def headers(self, batch: Batch) -> pa.Array | None:
        """Maps of names to bytes."""


@dataclass(frozen=True)
class RecordSerializer:
    """How a record becomes a message. Either `topic` or `selector` is set; without `key` messages have none."""

    value: SerializationSchema
    key: SerializationSchema | None = None
    topic: str | None = None
    selector: Callable[[Any], str] | None = None
    with_timestamps: bool = True
    metadata: MessageMetadata | None = None

    def __post_init__(self) -> None:
        if self.topic is not None and not _is_topic_name(self.topic):
            raise ProgramError(f"Kafka does not support the topic name {self.topic!r}: {_TOPIC_NAME_RULE}")


def _is_topic_name(name: Any) -> bool:
    return isinstance(name, str) and _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


class MessageMaker:
    """Converts the records of one stream to messages. Rejects unsupported ones before they are staged: a
    committed epoch must be publishable."""

    def __init__(
        self, serializer: RecordSerializer, input_type: TypeInformation | None, message_bytes_max: int
    ) -> None:
        self._serializer = serializer
        self._value = encoder_of(serializer.value, input_type)
        self._key = None if serializer.key is None else encoder_of(serializer.key, input_type)
        self._message_bytes_max = message_bytes_max

    def messages(self, batch: Batch) -> pa.RecordBatch:
        """One message per record, in order."""
        value = _binary(self._value.encode(batch))
        key = pa.nulls(len(value), pa.binary()) if self._key is None else _binary(self._key.encode(batch))
        columns: dict[str, pa.Array] = {"key": key, "value": value, "timestamp": self._timestamps(batch)}
        if self._serializer.selector is not None:
            columns["topic"] = self._topics(batch)
        headers = None if self._serializer.metadata is None else self._serializer.metadata.headers(batch)
        self._check_size(key, value, headers)
        if headers is not None:
            columns["headers"] = headers
        return pa.RecordBatch.from_pydict(columns)

    def _timestamps(self, batch: Batch) -> pa.Array:
        times = None if self._serializer.metadata is None else self._serializer.metadata.timestamps(batch)
        if times is not None:
            return pc.if_else(pc.less(times, 0), pa.scalar(None, pa.int64()), times)
        if batch.timestamps is None or not self._serializer.with_timestamps:
            return pa.nulls(batch.length, pa.int64())
        # As in Flink: Kafka has no timestamps before 1970.
        return pa.array(batch.timestamps, pa.int64(), mask=batch.timestamps < 0)

    def _topics(self, batch: Batch) -> pa.Array:
        selector = self._serializer.selector
        assert selector is not None
        topics = [selector(value) for value in batch.values()]
        invalid = [topic for topic in topics if not isinstance(topic, str)]
        invalid = invalid or [topic for topic in dict.fromkeys(topics) if not _is_topic_name(topic)]
        if invalid:
            raise ProgramError(
                f"the topic selector returned {invalid[0]!r} for {batch.values()[topics.index(invalid[0])]!r}, "
                f"expected the name of a topic: {_TOPIC_NAME_RULE}"
            )
        return pa.array(topics, pa.string()).dictionary_encode()

    def _check_size(self, key: pa.Array, value: pa.Array, headers: pa.Array | None) -> None:
        sizes = pc.add(pc.fill_null(pc.binary_length(key), 0), pc.fill_null(pc.binary_length(value), 0))
        if headers is not None:
            sizes = pc.add(sizes.cast(pa.int64()), pa.array(_header_bytes(headers)))
        largest = pc.max(sizes).as_py()
        if largest is not None and largest + _OVERHEAD_BYTES > self._message_bytes_max:
            raise ProgramError(
                f"a message of {largest:,} bytes is larger than max.request.size, which is "
                f"{self._message_bytes_max:,}. Raise it with set_property('max.request.size', ...), and "
                "max.message.bytes of the topic; or write smaller records"
            )


def _header_bytes(headers: pa.Array) -> npt.NDArray[np.int64]:
    """An upper bound of the header bytes of each message."""
    sizes = pc.add(pc.binary_length(headers.keys), pc.fill_null(pc.binary_length(headers.items), 0))
    sums = np.append(0, np.cumsum(np.asarray(sizes, np.int64) + _HEADER_OVERHEAD_BYTES))
    offsets = np.asarray(headers.offsets)
    sizes_of_rows: npt.NDArray[np.int64] = sums[offsets[1:]] - sums[offsets[:-1]]
    return sizes_of_rows


def _binary(column: pa.Array) -> pa.Array:
    return column if column.type == pa.binary() else column.cast(pa.binary())


class StagedMessages:
    """Buffers the messages of one writer, with their destination."""

    def __init__(self, context: WriterContext, topic: str | None) -> None:
        self._staged = StagedColumns(context)
        self._topic = topic
        self._topics: set[str] = set() if topic is None else {topic}

    def add(self, messages: pa.RecordBatch) -> None:
        if self._topic is None:
            self._topics.update(pc.unique(messages.column("topic").cast(pa.string())).to_pylist())
        self._staged.add(messages)

    def stage(self) -> Sequence[Json]:
        """The result of `SinkWriter.stage`: one item, or none without messages."""
        return [
            {
                **staged,
                "topic": self._topic,
                "first_topic": min(self._topics),
                "bytes": sum(chunk["bytes"] for chunk in staged["chunks"]),
                # The machine's clock, not the job's, which a test may set: a broker counts real days.
                "staged_ms": int(time.time() * 1000),
            }
            for staged in self._staged.stage()
        ]


def read_messages(staged: Json, store: Store) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The output staged by a writer: topic and messages, in order, with one chunk in memory at a time."""
    for messages in read_staged_columns(staged, store):
        yield from by_topic(staged["topic"], messages)


def by_topic(topic: str | None, messages: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The messages of each topic, in order; Kafka has no order between topics."""
    if topic is not None:
        yield topic, messages
        return
    column = messages.column("topic")
    codes = column.indices.to_numpy(zero_copy_only=False)
    for code, name in enumerate(column.dictionary.to_pylist()):
        rows = np.flatnonzero(codes == code)
        if len(rows):
            yield name, messages.take(pa.array(rows))
