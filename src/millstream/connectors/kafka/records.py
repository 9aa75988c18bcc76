"""Converts Kafka records: the value, decoded by a schema, and the requested metadata.

A `RecordLayout` without metadata emits the rows of its schema. With metadata it emits rows of the value's
fields (for a value that is not a row: the one field `value`), followed by a column for each of

    key             bytes, or the value decoded by the key's schema
    timestamp       milliseconds since 1970, set by the producer or the broker
    timestamp_type  "CreateTime", "LogAppendTime" or "NoTimestampType"
    topic, partition, offset
    headers         a list of (name, bytes), in order; names may repeat

The record's timestamp is always the timestamp of its rows. The row kind of a row is preserved.

The content of a message, a client object, is extracted by `map` over the client's own methods: the cheapest way, which
still takes a third of the read time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter, methodcaller
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from millstream.common.serialization import DeserializationSchema
from millstream.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from millstream.common.types import Row
from millstream.connectors.kafka.clients import confluent
from millstream.connectors.kafka.offsets import Partition
from millstream.connectors.messages.codecs import BadMessage, Decoded, MessageDecoder, Messages, decoder_of
from millstream.connectors.messages.dead_letters import DeadLetters, dead_letters
from millstream.errors import ProgramError
from millstream.records.batch import Batch, is_typed
from millstream.records.columns import KIND_COLUMN, arrow_type, stream_schema, to_record_batch

__all__ = ["METADATA", "MessageReader", "RecordLayout", "RecordReader", "headers_of", "unreadable_headers"]

_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
METADATA: Mapping[str, TypeInformation] = {
    "key": _BYTES,
    "timestamp": Types.LONG(),
    "timestamp_type": Types.STRING(),
    "topic": Types.STRING(),
    "partition": Types.INT(),
    "offset": Types.LONG(),
    "headers": Types.LIST(Types.TUPLE([Types.STRING(), _BYTES])),
}
_WITH_FIELDS = (RowTypeInfo, TupleTypeInfo)
_TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")
_SHOWN_BYTES_MAX = 200
_second = itemgetter(1)


@dataclass(frozen=True)
class RecordLayout:
    """How records are decoded: values by `value_schema`, and the `metadata`, each with the name of its column.

    >>> from millstream.common.serialization import SimpleStringSchema
    >>> RecordLayout(SimpleStringSchema(), (("offset", "at"),)).type_info
    Types.ROW_NAMED(['value', 'at'], [Types.STRING(), Types.LONG()])
    """

    value_schema: DeserializationSchema
    metadata: tuple[tuple[str, str], ...] = ()
    key_schema: DeserializationSchema | None = None

    def __post_init__(self) -> None:
        unknown = [kind for kind, _ in self.metadata if kind not in METADATA]
        if unknown:
            raise ProgramError(f"Kafka metadata: found {unknown[0]!r}, expected one of {', '.join(METADATA)}.")
        names = [*self._value_fields(), *(name for _, name in self.metadata)]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates and self.metadata:
            raise ProgramError(
                f"Kafka metadata: two columns are named {duplicates[0]!r}. Rename one: metadata={{'{duplicates[0]}': "
                f"'kafka_{duplicates[0]}'}}."
            )

    @property
    def value_type(self) -> TypeInformation | None:
        """The type of the values; None: plain Python values."""
        produced = self.value_schema.produced_type()
        return produced if is_typed(produced) else None

    @property
    def dead_letter_tag(self) -> Any:
        """The tag for unreadable records; None: they stop the job."""
        return self.value_schema.dead_letter_tag

    @property
    def type_info(self) -> TypeInformation | None:
        """The type of the records; None: plain Python values."""
        value_type = self.value_type
        if not self.metadata or value_type is None:
            return value_type
        fields = list(value_type.get_field_types()) if isinstance(value_type, _WITH_FIELDS) else [value_type]
        types = [self.metadata_type(kind) for kind, _ in self.metadata]
        if any(not is_typed(type_info) for type_info in types):
            return None
        names = [*self._value_fields(), *(name for _, name in self.metadata)]
        return Types.ROW_NAMED(names, [*fields, *types])

    def _value_fields(self) -> list[str]:
        value_type = self.value_type
        schema = stream_schema(value_type) if isinstance(value_type, _WITH_FIELDS) else None
        return ["value"] if schema is None else list(schema.names)

    def metadata_type(self, kind: str) -> TypeInformation:
        """The type of a kind of metadata."""
        return METADATA[kind] if kind != "key" or self.key_schema is None else self.key_schema.produced_type()


class MessageReader(Protocol):
    """Converts the messages of one partition to batches."""

    def items(self, messages: list[Any]) -> list[Batch | DeadLetters]:
        """The rows of `messages`, with their times, and the unreadable messages if they have a tag."""


class RecordReader:
    """Converts messages of one partition to batches. Created in the task, for one range.

    `declared_type` is the program's type for records whose schema has none.
    """

    def __init__(self, layout: RecordLayout, partition: Partition, declared_type: TypeInformation | None) -> None:
        self._layout, self._partition, self._declared_type = layout, partition, declared_type
        self._of = confluent().Message
        self._type = layout.type_info
        self._schema = None if self._type is None else stream_schema(self._type)
        self._decoder = decoder_of(layout.value_schema)
        self._key_decoder = None if layout.key_schema is None else decoder_of(layout.key_schema)

    def items(self, messages: list[Any]) -> list[Batch | DeadLetters]:
        """The rows of `messages`, with their times, and the unreadable messages if they have a tag.

        A list, so that no reference to the messages remains when the rows are emitted.
        """
        if any(kind == "headers" for kind, _ in self._layout.metadata):
            unreadable = unreadable_headers(messages)
            if unreadable:
                letters = dead_letters(
                    Decoded(Batch.of_values([], None), None, unreadable),
                    self._messages(messages),
                    self._layout.dead_letter_tag,
                )
                assert letters is not None
                return [letters, *self.items(_without(messages, unreadable))]
        keys = None
        if self._key_decoder is not None:
            keys, letters = self._decoded(self._key_decoder, messages, list(map(self._of.key, messages)), "its key, ")
            if letters is not None:
                return [letters, *self.items(_without(messages, keys.bad))]
        decoded, letters = self._decoded(self._decoder, messages, list(map(self._of.value, messages)))
        items: list[Batch | DeadLetters] = [] if letters is None else [letters]
        if len(decoded.batch):
            items.append(self._batch(decoded, messages, keys))
        return items

    def _decoded(
        self, decoder: MessageDecoder, messages: list[Any], texts: list[bytes | None], part: str = ""
    ) -> tuple[Decoded, DeadLetters | None]:
        """The decoded values or keys of messages, and the unreadable ones. `part` names the part
        of the message, if it is not the value."""
        incoming = Messages(pa.array(texts, pa.binary()), lambda index: self._place(messages[index]))
        decoded = decoder.decode(incoming)
        if not decoded.bad:
            return decoded, None
        if part:
            named = (
                replace(bad, reason=f"{part}{(texts[bad.index] or b'')[:_SHOWN_BYTES_MAX]!r}: {bad.reason}")
                for bad in decoded.bad
            )
            decoded = replace(decoded, bad=tuple(named))
        return decoded, dead_letters(decoded, self._messages(messages), self._layout.dead_letter_tag)

    def _messages(self, messages: list[Any]) -> Messages:
        columns = (pa.array(list(map(of, messages)), pa.binary()) for of in (self._of.value, self._of.key))
        return Messages(next(columns), lambda index: self._place(messages[index]), next(columns))

    def _batch(self, decoded: Decoded, messages: list[Any], keys: Decoded | None) -> Batch:
        stamps = np.fromiter(map(_second, map(self._of.timestamp, messages)), np.int64, len(messages))
        if decoded.origins is not None:
            stamps = stamps[decoded.origins]
        batch = self._with_metadata(decoded, messages, keys) if self._layout.metadata else decoded.batch
        if self._type is None and self._declared_type is not None:
            batch = Batch.of_values(batch.values(), self._declared_type)
        batch.timestamps = stamps
        return batch

    def _place(self, message: Any) -> str:
        return f"topic {self._partition.topic}, partition {self._partition.number}, offset {message.offset()}"

    # --- metadata ---------------------------------------------------------------------------------------------

    def _with_metadata(self, decoded: Decoded, messages: list[Any], keys: Decoded | None) -> Batch:
        origins = None if decoded.origins is None else decoded.origins.tolist()
        chosen = messages if origins is None else [messages[at] for at in origins]
        columns = [
            _chosen(_by_message(keys, len(messages)), origins)
            if kind == "key" and keys is not None
            else self._column(kind, chosen)
            for kind, _ in self._layout.metadata
        ]
        if self._type is None or self._schema is None:
            return Batch.of_values(self._rows(decoded.batch.values(), columns), None)
        rows = decoded.batch.columns()
        kind_at = rows.schema.get_field_index(KIND_COLUMN)
        value_columns = rows.columns if kind_at < 0 else rows.columns[:kind_at]
        arrays = [*value_columns, *map(self._array, self._layout.metadata, columns)]
        schema = self._schema
        if kind_at >= 0:
            arrays, schema = [*arrays, rows.column(kind_at)], schema.append(rows.schema.field(kind_at))
        return Batch.of_columns(pa.RecordBatch.from_arrays(arrays, schema=schema), self._type)

    def _array(self, metadata: tuple[str, str], values: Sequence[Any]) -> pa.Array:
        kind, type_info = metadata[0], self._layout.metadata_type(metadata[0])
        if kind == "headers" or (kind == "key" and self._key_decoder is not None):
            # Converted as one column of a row, which checks nested values.
            row_type = Types.ROW_NAMED(["value"], [type_info])
            return to_record_batch([(value,) for value in values], row_type).column(0)
        return pa.array(values, arrow_type(type_info))

    def _column(self, kind: str, messages: list[Any]) -> Sequence[Any]:
        """The metadata of this kind, one value per message."""
        if kind == "key":
            return list(map(self._of.key, messages))
        if kind == "timestamp":
            return list(map(_second, map(self._of.timestamp, messages)))
        if kind == "timestamp_type":
            return [_TIMESTAMP_TYPES[type_] for type_, _ in map(self._of.timestamp, messages)]
        if kind == "offset":
            return list(map(self._of.offset, messages))
        if kind == "headers":
            return [headers or [] for headers in map(headers_of, messages)]
        return [self._partition.topic if kind == "topic" else self._partition.number] * len(messages)

    def _rows(self, values: list[Any], columns: list[Sequence[Any]]) -> list[Any]:
        """Rows of untyped values."""
        names = ["value", *(name for _, name in self._layout.metadata)]
        rows = []
        for fields in zip(values, *columns, strict=True):
            row = Row(*fields)
            row.set_field_names(names)
            rows.append(row)
        return rows


headers_of = methodcaller("headers")
"""The headers of a message, instead of `message.headers()`: for a name that is not UTF-8 the client returns a result
and sets an exception. A specialised method call in Python does not check for that, and raises it later."""


def unreadable_headers(messages: list[Any]) -> tuple[BadMessage, ...]:
    """The messages with a header whose name is not UTF-8, for which the client raises a SystemError."""
    bad = []
    for at, message in enumerate(messages):
        try:
            headers_of(message)
        except (SystemError, UnicodeError) as error:
            cause = error.__cause__ or error.__context__ or error
            bad.append(BadMessage(at, f"the name of one of its headers is not UTF-8 ({cause})", error))
    return tuple(bad)


def _without(messages: list[Any], unreadable: Sequence[BadMessage]) -> list[Any]:
    indices = {bad.index for bad in unreadable}
    return [each for at, each in enumerate(messages) if at not in indices]


def _by_message(decoded: Decoded, count: int) -> list[Any]:
    """The values, at most one per message; None for messages without a value."""
    values = decoded.batch.values()
    if decoded.origins is None:
        return values
    placed = dict(zip(decoded.origins.tolist(), values, strict=True))
    return [placed.get(at) for at in range(count)]


def _chosen(values: list[Any], origins: list[int] | None) -> list[Any]:
    return values if origins is None else [values[at] for at in origins]
