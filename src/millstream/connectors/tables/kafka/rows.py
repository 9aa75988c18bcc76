"""Converts messages to rows of a table, and rows to messages.

A message without a value (a tombstone) is not a row: the changelog's delete message precedes it. The columns of a
missing key are NULL. An unreadable message stops the job, unless the format is set to ignore it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.serialization import ByteArraySchema, SerializationSchema
from millstream.common.typeinfo import TypeInformation
from millstream.common.types import RowKind
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.clients import confluent
from millstream.connectors.kafka.offsets import Partition
from millstream.connectors.kafka.partitions import Subscription
from millstream.connectors.kafka.records import MessageReader, RecordLayout, headers_of, unreadable_headers
from millstream.connectors.kafka.source import KafkaSource
from millstream.connectors.messages.codecs import Decoded, MessageDecoder, MessageEncoder, Messages
from millstream.connectors.messages.dead_letters import DeadLetters
from millstream.errors import TypeMismatchError
from millstream.expressions import types
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import MapType, RowType
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN
from millstream.records.table_type import TableRowType

__all__ = ["METADATA", "KafkaColumn", "KafkaTableSource", "RowMessages", "RowMetadata", "TableReading"]

_STRING = types.VarCharType(0x7FFFFFFF, False)
METADATA: dict[str, DataType] = {
    "topic": _STRING,
    "partition": types.IntType(False),
    "headers": MapType(_STRING, types.VarBinaryType(0x7FFFFFFF, False), False),
    "leader-epoch": types.IntType(True),
    "offset": types.BigIntType(False),
    "timestamp": types.LocalZonedTimestampType(3, False),
    "timestamp-type": _STRING,
}
_TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")
_SHOWN_BYTES_MAX = 200
_REMOVES = (RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value)


@dataclass(frozen=True)
class KafkaColumn:
    """The origin of a column: a field of the key, of the value, or the message's `metadata`."""

    name: str
    type: DataType
    key: int | None = None
    value: int | None = None
    metadata: str | None = None


@dataclass(frozen=True)
class TableReading:
    """How messages are converted to rows."""

    columns: tuple[KafkaColumn, ...]
    value: MessageDecoder
    key: MessageDecoder | None
    is_upserts: bool = False  # a message replaces the row of its key; one without a value deletes it

    @property
    def row_type(self) -> RowType:
        """The type of the rows."""
        names, of = [each.name for each in self.columns], [each.type for each in self.columns]
        return RowType.of(names, of, nullable=False)


class KafkaTableSource(KafkaSource):
    """A Kafka source that emits rows of a table."""

    reading: TableReading

    @classmethod
    def of(
        cls, reading: TableReading, settings: ClientSettings, subscription: Subscription, **named: Any
    ) -> KafkaTableSource:
        """The source of a table; the other arguments are passed to `KafkaSource`."""
        source = cls(settings, subscription, RecordLayout(ByteArraySchema()), **named)
        source.reading = reading
        source.type_info = TableRowType(reading.row_type)
        return source

    def reader(self, partition: Partition) -> MessageReader:
        return TableRecords(self.reading, partition)


class TableRecords:
    """Converts messages of one partition to rows."""

    def __init__(self, reading: TableReading, partition: Partition) -> None:
        self._reading, self._partition = reading, partition
        self._message = confluent().Message
        self._row_type = reading.row_type

    def items(self, messages: list[Any]) -> list[Batch | DeadLetters]:
        """The rows of messages, with their timestamps."""
        if any(column.metadata == "headers" for column in self._reading.columns):
            messages = self._with_headers(messages)
        values = self._decoded(self._reading.value, messages, list(map(self._message.value, messages)), "value")
        origins = np.arange(len(messages)) if values.origins is None else values.origins
        rows = values.batch.columns()
        if self._reading.is_upserts:
            rows, origins = _with_deletions(rows, origins, [self._message.value(each) is None for each in messages])
        if not len(origins):
            return []
        keys: tuple[pa.RecordBatch, pa.Array] | None = None
        if self._reading.key is not None:
            decoded = self._decoded(self._reading.key, messages, list(map(self._message.key, messages)), "key")
            keys = decoded.batch.columns(), _places(decoded, len(messages)).take(pa.array(origins))
        chosen = messages
        if len(origins) != len(messages) or values.origins is not None:
            chosen = [messages[at] for at in origins.tolist()]
        arrays = [self._column(column, rows, keys, chosen) for column in self._reading.columns]
        schema = self._row_type.schema
        kinds = rows.schema.get_field_index(KIND_COLUMN)
        if kinds >= 0:
            arrays, schema = [*arrays, rows.column(kinds)], schema.append(rows.schema.field(kinds))
        whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
        is_whole = np.ones(len(chosen), np.bool_)
        for column, array in zip(self._reading.columns, arrays, strict=False):
            if column.value is None and array.null_count and not column.type.is_nullable:
                self._check_present(column, array, chosen)
                is_whole &= array.is_valid().to_numpy(zero_copy_only=False)
        if not is_whole.all():
            whole, chosen = whole.filter(pa.array(is_whole)), [chosen[at] for at in np.flatnonzero(is_whole)]
        return self._batch(whole, chosen) if chosen else []

    def _batch(self, rows: pa.RecordBatch, chosen: list[Any]) -> list[Batch | DeadLetters]:
        batch = Batch.of_columns(rows, TableRowType(self._row_type))
        stamps = np.fromiter((each.timestamp()[1] for each in chosen), np.int64, len(chosen))
        batch.timestamps = stamps
        return [batch]

    def _with_headers(self, messages: list[Any]) -> list[Any]:
        """The messages whose headers are readable."""
        bad = unreadable_headers(messages)
        if bad and not self._reading.value.ignores_bad:
            raise TypeMismatchError(
                f"{self._place(messages[bad[0].index])}: {bad[0].reason}. Omit the metadata column, or let the "
                "format ignore unreadable messages ('….ignore-parse-errors' = 'true')"
            ) from bad[0].error
        indices = {each.index for each in bad}
        return [each for at, each in enumerate(messages) if at not in indices]

    def _column(self, column: KafkaColumn, rows: pa.RecordBatch, keys: Any, messages: list[Any]) -> pa.Array:
        if column.value is not None:
            return rows.column(column.value)
        if column.key is not None:
            batch, places = keys
            return batch.column(column.key).take(places)
        assert column.metadata is not None
        values = pa.array(self._metadata(column.metadata, messages), column.type.arrow)
        if isinstance(column.type, MapType) and not column.type.value_type.is_nullable:
            values = _without_null_values(values)
        return values

    def _check_present(self, column: KafkaColumn, values: pa.Array, messages: list[Any]) -> None:
        """Raise if a message has no value for the column, unless bad messages are ignored."""
        if not self._reading.value.ignores_bad:
            first = pc.index(values.is_valid(), pa.scalar(False)).as_py()
            raise TypeMismatchError(
                f"{self._place(messages[first])}: column {column.name!r} is NOT NULL, and the message has no "
                f"{column.metadata or 'key'}. Omit NOT NULL, or let the format ignore unreadable messages "
                "('….ignore-parse-errors' = 'true')"
            )

    def _metadata(self, kind: str, messages: list[Any]) -> Sequence[Any]:
        if kind in ("topic", "partition"):
            value = self._partition.topic if kind == "topic" else self._partition.number
            return [value] * len(messages)
        if kind == "offset":
            return [each.offset() for each in messages]
        if kind == "timestamp":
            return [each.timestamp()[1] for each in messages]
        if kind == "timestamp-type":
            return [_TIMESTAMP_TYPES[each.timestamp()[0]] for each in messages]
        if kind == "leader-epoch":
            return [each.leader_epoch() for each in messages]
        # Header names may repeat; a map holds the last value, as in Flink.
        return [list(dict(headers_of(each) or ()).items()) for each in messages]

    def _place(self, message: Any) -> str:
        return f"topic {self._partition.topic}, partition {self._partition.number}, offset {message.offset()}"

    def _decoded(self, decoder: MessageDecoder, messages: list[Any], texts: list[bytes | None], part: str) -> Decoded:
        incoming = Messages(pa.array(texts, pa.binary()), lambda at: self._place(messages[at]))
        decoded = decoder.decode(incoming)
        if decoded.bad:
            bad = decoded.bad[0]
            shown = (texts[bad.index] or b"")[:_SHOWN_BYTES_MAX]
            raise TypeMismatchError(
                f"{incoming.place(bad.index)}: its {part} cannot be read: {bad.reason}. It is {shown!r}. Correct the "
                "table's columns, or let the format ignore unreadable messages ('….ignore-parse-errors' = 'true')",
                value=texts[bad.index],
            )
        return decoded


def _without_null_values(maps: pa.MapArray) -> pa.MapArray:
    """Headers with NULL replaced by empty values if the table declares NOT NULL values, as in Flink."""
    return pa.MapArray.from_arrays(maps.offsets, maps.keys, pc.fill_null(maps.items, b""))


def _with_deletions(
    rows: pa.RecordBatch, origins: npt.NDArray[np.int64], is_deletion: list[bool]
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """The rows of values, and between them, in message order, a row without values for each deletion."""
    deletions = np.flatnonzero(is_deletion)
    message_indexes = np.concatenate([origins, deletions])
    order = np.argsort(message_indexes, kind="stable")
    places = np.concatenate([np.arange(len(origins)), np.full(len(deletions), -1)])[order]
    kinds = np.where(places < 0, RowKind.DELETE.value, RowKind.UPDATE_AFTER.value).astype(np.int8)
    at = pa.array(places, pa.int64(), mask=places < 0)
    columns = [column.take(at) for column in rows.columns]
    schema = rows.schema.append(pa.field(KIND_COLUMN, pa.int8()))
    return pa.RecordBatch.from_arrays([*columns, pa.array(kinds)], schema=schema), message_indexes[order]


def _places(decoded: Decoded, count: int) -> pa.Array:
    """The position of each message's row among the decoded; NULL if it has none."""
    if decoded.origins is None:
        return pa.array(np.arange(count), pa.int64())
    places = np.full(count, -1, np.int64)
    places[decoded.origins] = np.arange(len(decoded.origins))
    return pa.array(places, pa.int64(), mask=places < 0)


# --- writing ----------------------------------------------------------------------------------------------------------


class RowMessages(SerializationSchema):
    """Encodes some columns of rows as messages; `with_kinds`: the format writes row kinds;
    `has_tombstones`: a delete is a message without a value."""

    def __init__(
        self,
        encoder: MessageEncoder,
        columns: Sequence[int],
        row_type: RowType,
        with_kinds: bool = False,
        has_tombstones: bool = False,
    ) -> None:
        super().__init__()
        self._encoder, self._columns, self._row_type = encoder, tuple(columns), row_type
        self._with_kinds, self._has_tombstones = with_kinds, has_tombstones

    def column_encoder(self, input_type: TypeInformation | None) -> MessageEncoder:
        return _SomeColumns(self._encoder, self._columns, self._row_type, self._with_kinds, self._has_tombstones)


@dataclass(frozen=True)
class _SomeColumns(MessageEncoder):
    encoder: MessageEncoder
    columns: tuple[int, ...]
    row_type: RowType
    with_kinds: bool = False
    has_tombstones: bool = False

    def encode(self, batch: Batch) -> pa.Array:
        columns = batch.columns()
        arrays, schema = [columns.column(at) for at in self.columns], self.row_type.schema
        kinds = columns.schema.get_field_index(KIND_COLUMN)
        if kinds >= 0 and self.with_kinds:
            arrays, schema = [*arrays, columns.column(kinds)], schema.append(columns.schema.field(kinds))
        rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
        messages = self.encoder.encode(Batch.of_columns(rows, TableRowType(self.row_type)))
        if kinds < 0 or not self.has_tombstones:
            return messages
        is_delete = pc.is_in(columns.column(kinds), value_set=pa.array(_REMOVES, pa.int8()))
        return pc.if_else(is_delete, pa.scalar(None, messages.type), messages)


@dataclass(frozen=True)
class RowMetadata:
    """The columns with the timestamp and the headers of messages."""

    timestamp: int | None = None
    header: int | None = None

    def timestamps(self, batch: Batch) -> pa.Array | None:
        """Milliseconds since 1970; the send time without a column, and where it is NULL."""
        if self.timestamp is None:
            return pa.nulls(batch.length, pa.int64())
        moments = batch.columns().column(self.timestamp).cast(pa.int64())
        earliest = pc.min(moments).as_py()
        if earliest is not None and earliest < 0:
            shown = np.datetime64(earliest, "ms")
            raise TypeMismatchError(
                f"the metadata 'timestamp' of a row is {shown}, and Kafka has no times before 1970. Use a later "
                "one, or NULL for the send time",
                value=earliest,
            )
        return moments

    def headers(self, batch: Batch) -> pa.Array | None:
        """Maps of header names to bytes."""
        return None if self.header is None else batch.columns().column(self.header)
