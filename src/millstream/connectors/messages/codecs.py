"""The contracts of message decoders and encoders.

A connector that transports bytes is independent of formats. It passes batches of a split's messages (`Messages`), in
order, to a decoder: `decoder_of(schema)` is the schema's columnar decoder if it has one, and otherwise calls the
schema's `deserialize` per message. Both return the same rows: the columnar one is the fast path, the other the
reference.

The numbers of rows and messages may differ: an update is two rows, and a message that the schema skips has none. So
`Decoded.origins` maps each row to its message, and connectors use it to attach a message's properties (its time, its
headers).

An unreadable message never becomes a null and is never lost: it is in `Decoded.bad`, and the connector raises
`bad_message_error`, with the message's position and bytes, or sends it to the user's side output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    RowFieldExtractorSchema,
    SerializationSchema,
    SimpleStringSchema,
)
from millstream.common.typeinfo import TypeInformation, Types
from millstream.errors import MillstreamError, ProgramError, TypeMismatchError
from millstream.records.batch import Batch, is_typed
from millstream.records.conformance import conform
from millstream.records.shapes import is_byte_array, plain_type

__all__ = [
    "BadMessage",
    "Decoded",
    "MessageDecoder",
    "MessageEncoder",
    "Messages",
    "bad_message_error",
    "decoder_of",
    "encoder_of",
    "raise_if_of_program",
    "unreadable_error",
]

_SHOWN_BYTES_MAX = 200
_REASON_CHARS_MAX = 1_000


@dataclass(frozen=True)
class Messages:
    """Some messages of one split, in order. Null means a message without a value (Kafka's tombstone).

    `place(i)` describes the position of message `i` for people: "topic orders, partition 3, offset 17".
    """

    values: pa.Array
    place: Callable[[int], str]
    keys: pa.Array | None = None


@dataclass(frozen=True)
class BadMessage:
    """A message that cannot be read: its index among the messages decoded together, and the reason."""

    index: int
    reason: str
    error: Exception | None = field(default=None, compare=False, repr=False)
    """The exception that a schema raised, for its traceback."""

    @classmethod
    def of(cls, index: int, error: Exception) -> BadMessage:
        """With the error's text as the reason, shortened."""
        text = str(error).rstrip(".")
        if not isinstance(error, (ValueError, TypeMismatchError)):
            text = f"{type(error).__name__}: {text}"  # such as a KeyError, whose text is only the key
        reason = text if len(text) <= _REASON_CHARS_MAX else f"{text[:_REASON_CHARS_MAX]} …"
        # An error may quote characters that cannot be stored.
        return cls(index, reason.encode("utf-8", "backslashreplace").decode(), error)


@dataclass(frozen=True)
class Decoded:
    """The rows of some messages. `origins`: the message index of each row, ascending; None: row `i` is message `i`."""

    batch: Batch
    origins: npt.NDArray[np.int64] | None = None
    bad: tuple[BadMessage, ...] = ()


class MessageDecoder(ABC):
    """Decodes messages to rows of `type_info` (None: plain Python values). Stateless between calls."""

    type_info: TypeInformation | None
    ignores_bad: bool = False
    """Whether unreadable messages are skipped, as set by the program."""

    @abstractmethod
    def decode(self, messages: Messages) -> Decoded:
        """The rows of all readable messages, in order, and the unreadable messages."""


class MessageEncoder(ABC):
    """Encodes the rows of a batch as messages."""

    @abstractmethod
    def encode(self, batch: Batch) -> pa.Array:
        """One binary value per row, in order; null: a message without a value."""


def decoder_of(schema: DeserializationSchema) -> MessageDecoder:
    """The schema's columnar decoder, or one that calls `deserialize` per message."""
    if _overrides(schema, ("deserialize", "produced_type"), "column_decoder"):
        return PerMessageDecoder(schema)
    return _plain_decoder(schema) or schema.column_decoder() or PerMessageDecoder(schema)


def encoder_of(schema: SerializationSchema, input_type: TypeInformation | None) -> MessageEncoder:
    """The schema's columnar encoder for rows of `input_type`, or one that calls `serialize` per row."""
    if _overrides(schema, ("serialize",), "column_encoder") or input_type is None or not is_typed(input_type):
        return PerMessageEncoder(schema)
    return _plain_encoder(schema, input_type) or schema.column_encoder(input_type) or PerMessageEncoder(schema)


def _overrides(schema: Any, methods: tuple[str, ...], column_method: str) -> bool:
    """Whether a user's subclass overrides `methods` below the class that defines the columnar method: then only the
    overrides define the bytes."""
    order = type(schema).__mro__
    makers = [next(at for at, kind in enumerate(order) if method in vars(kind)) for method in methods]
    column_maker = next(
        at
        for at, kind in enumerate(order)
        if column_method in vars(kind) or kind in (SimpleStringSchema, ByteArraySchema, RowFieldExtractorSchema)
    )
    return min(makers) < column_maker


def _plain_decoder(schema: DeserializationSchema) -> MessageDecoder | None:
    """The decoders for schemas that cannot refer to decoders, because they are in a lower layer."""
    from millstream.connectors.messages.text import BytesDecoder, TextDecoder

    if isinstance(schema, SimpleStringSchema):
        return TextDecoder(schema.charset)
    return BytesDecoder() if isinstance(schema, ByteArraySchema) else None


def _plain_encoder(schema: SerializationSchema, input_type: TypeInformation) -> MessageEncoder | None:
    from millstream.connectors.messages.text import BytesEncoder, FieldEncoder, TextEncoder

    plain = plain_type(input_type)
    if isinstance(schema, RowFieldExtractorSchema):
        return FieldEncoder.of(schema, plain)
    if isinstance(schema, SimpleStringSchema) and plain == Types.STRING():
        return TextEncoder(schema, schema.charset)
    return BytesEncoder(schema) if isinstance(schema, ByteArraySchema) and is_byte_array(plain) else None


def bad_message_error(bad: BadMessage, messages: Messages) -> TypeMismatchError:
    """The error for a message that cannot be read."""
    value = messages.values[bad.index].as_py()
    shown = "no value" if value is None else repr(value[:_SHOWN_BYTES_MAX])
    more = f" and {len(value) - _SHOWN_BYTES_MAX} bytes more" if value and len(value) > _SHOWN_BYTES_MAX else ""
    return TypeMismatchError(
        f"{messages.place(bad.index)}: {bad.reason}. The message is {shown}{more}. Correct the declared type, "
        "or send unreadable messages to a side output: schema.with_dead_letters(tag)",
        value=value,
    )


def raise_if_of_program(error: Exception) -> None:
    """Reraise errors that are not caused by a message, such as a missing package: a ProgramError is also a
    ValueError."""
    if isinstance(error, ProgramError) and not isinstance(error, TypeMismatchError):
        raise error


def unreadable_error(message: bytes, expected: str, error: Exception) -> TypeMismatchError:
    """The exception of our schemas' `deserialize` for bytes that are not a valid `expected`."""
    reason = BadMessage.of(0, error).reason
    return TypeMismatchError(
        f"a message is not a valid {expected}: {reason}. Found {message[:_SHOWN_BYTES_MAX]!r}. Correct the schema's "
        "type, or send unreadable messages to a side output with its with_dead_letters(tag)",
        value=message,
    )


class PerMessageDecoder(MessageDecoder):
    """Calls `deserialize` for every message: the reference, and the decoder for user-defined schemas.

    >>> from millstream.common.serialization import SimpleStringSchema
    >>> messages = Messages(pa.array([b"a", None, b"b"]), lambda i: f"message {i}")
    >>> decoded = PerMessageDecoder(SimpleStringSchema()).decode(messages)
    >>> decoded.batch.values(), decoded.origins.tolist()
    (['a', 'b'], [0, 2])
    """

    def __init__(self, schema: DeserializationSchema) -> None:
        self._schema = schema
        produced = schema.produced_type()
        self.type_info = produced if is_typed(produced) else None

    def decode(self, messages: Messages) -> Decoded:
        values: list[Any] = []
        origins: list[int] = []
        bad: list[BadMessage] = []
        for index, message in enumerate(messages.values.to_pylist()):
            if message is None:
                continue  # no value to decode: Flink does not call its schemas either
            try:
                value = self._schema.deserialize(message)
            except (MemoryError, MillstreamError) as error:
                if not isinstance(error, TypeMismatchError):
                    raise  # an unavailable registry is not the message's error
                bad.append(BadMessage.of(index, error))
                continue
            except Exception as error:  # any other error means that the schema cannot read this message
                bad.append(BadMessage.of(index, error))
                continue
            if value is not None:
                values.append(value)
                origins.append(index)
        try:
            batch = Batch.of_values(values, self.type_info)
        except TypeMismatchError:
            values, origins = self._conforming(values, origins, bad)
            batch = Batch.of_values(values, self.type_info)
            bad.sort(key=lambda each: each.index)
        row_origins = None if len(origins) == len(messages.values) else np.array(origins, np.int64)
        return Decoded(batch, row_origins, tuple(bad))

    def _conforming(self, values: list[Any], origins: list[int], bad: list[BadMessage]) -> tuple[list[Any], list[int]]:
        """The values that match the schema's declared type; other messages become bad ones."""
        assert self.type_info is not None
        fitting: list[tuple[Any, int]] = []
        for value, index in zip(values, origins, strict=True):
            try:
                conform(value, self.type_info)
            except TypeMismatchError as error:
                bad.append(BadMessage.of(index, error))
            else:
                fitting.append((value, index))
        return [value for value, _ in fitting], [index for _, index in fitting]


class PerMessageEncoder(MessageEncoder):
    """Calls `serialize` for every row."""

    def __init__(self, schema: SerializationSchema) -> None:
        self._schema = schema

    def encode(self, batch: Batch) -> pa.Array:
        messages: Sequence[Any] = [self._schema.serialize(value) for value in batch.values()]
        try:
            return pa.array(messages, pa.binary())
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            for value, message in zip(batch.values(), messages, strict=True):
                if message is not None and not isinstance(message, (bytes, str)):
                    raise TypeMismatchError(
                        f"{type(self._schema).__name__}.serialize returned {message!r} ({type(message).__name__}) for "
                        f"{value!r}, expected bytes. Encode it, or return None for a message without a value",
                        value=value,
                    ) from None
            raise
