"""The base of row format decoders: a fast path for most messages, a slow path for doubtful ones.

A format implements two methods. `columns` reads many messages at once, directly into columns, and marks doubtful ones;
it may also fail for the whole batch. `rows` reads one message and is the reference: its exception makes the message a
bad one. Where the fast path fails, its messages are halved until few remain around the cause, and these are
read one by one. So one bad message in a batch costs little, and results are always exact.

Invariant: rows and bad messages equal those obtained by calling `rows` for every message, in order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.messages.codecs import BadMessage, Decoded, MessageDecoder, Messages, raise_if_of_program
from millstream.errors import TypeMismatchError
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN, stream_schema, to_record_batch
from millstream.records.conformance import conform

__all__ = ["NO_RECORD", "ReadColumns", "RowDecoder"]

NO_RECORD = (ValueError, ArithmeticError, TypeMismatchError, RecursionError)
"""Exceptions of `rows` for a message that is not a record. ArithmeticError: a number that Python does not compute with;
the last: nested deeper than Python can read."""

_PIECE_MESSAGES = 16_384
_PIECE_BYTES = 32 << 20
_HALVED_MIN = 256
_HALVINGS_MAX = 32  # with many bad messages, halving for each would cost more than reading all slowly

_UTF8 = (
    r"^(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    r"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*$"
)
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ReadColumns:
    """The result of reading messages in bulk: the rows, the messages that were read, and the row count of each (None:
    one). `is_open`: some of the others may be read at once, too; at least half of all were."""

    batch: pa.RecordBatch
    is_read: npt.NDArray[np.bool_]
    counts: npt.NDArray[np.int64] | None = None
    is_open: bool = False


class RowDecoder(MessageDecoder):
    """Decodes messages to rows of `type_info`."""

    type_info: TypeInformation
    is_text: bool = True
    """Whether messages are UTF-8."""
    has_columns: bool = False
    """Whether `columns` may return anything other than None."""

    def columns(self, values: pa.Array) -> ReadColumns | None:
        """The rows of the messages that can be read at once. None: `rows` must read them. `values` are binary, without
        nulls."""
        return None

    @abstractmethod
    def rows(self, message: bytes) -> Sequence[Any]:
        """The rows of one message, empty to skip it. Raises one of `NO_RECORD`."""

    def batch_of(self, rows: list[Any]) -> pa.RecordBatch:
        """The columns of rows returned by `rows`. Raises TypeMismatchError."""
        return to_record_batch(rows, self.type_info)

    def decode(self, messages: Messages) -> Decoded:
        values = messages.values
        present = np.flatnonzero(np.asarray(values.is_valid())) if values.null_count else None
        present_values = values if present is None else values.drop_null()
        work = _DecodeCall(self)
        for start, length in _pieces(present_values):
            work.read_piece(present_values.slice(start, length), np.arange(start, start + length))
        batch, origins = work.gathered()
        bad = work.bad
        if present is not None:
            origins = present[origins]
            bad = [replace(message, index=int(present[message.index])) for message in bad]
        is_one_to_one = len(origins) == len(values) and not bad and bool(np.all(origins == np.arange(len(values))))
        return Decoded(
            Batch.of_columns(batch, self.type_info),
            None if is_one_to_one else origins,
            () if self.ignores_bad else tuple(sorted(bad, key=lambda message: message.index)),
        )


class _DecodeCall:
    """The messages of one call, with the rows read so far."""

    def __init__(self, decoder: RowDecoder) -> None:
        self._decoder = decoder
        self._batches: list[pa.RecordBatch] = []
        self._origins: list[Indices] = []
        self.bad: list[BadMessage] = []
        self._halvings_left = _HALVINGS_MAX

    def read_piece(self, values: pa.Array, indices: Indices) -> None:
        """Read messages. Separates invalid text first: one such message would make all others doubtful."""
        is_text = utf8_mask(values) if self._decoder.has_columns and self._decoder.is_text else None
        if is_text is None:
            self.read(values, indices)
            return
        chosen = pa.array(is_text)
        if is_text.any():
            self.read(values.filter(chosen), indices[is_text])
        self._read_slowly(values.filter(pc.invert(chosen)), indices[~is_text])

    def read(self, values: pa.Array, indices: Indices) -> None:
        """Read the messages with the numbers `indices`."""
        result = self._decoder.columns(values)
        if result is not None:
            is_read, origins = result.is_read, indices[result.is_read]
            self._batches.append(result.batch)
            self._origins.append(origins if result.counts is None else np.repeat(origins, result.counts))
            if not is_read.all():
                rest, numbers = values.filter(pa.array(~is_read)), indices[~is_read]
                (self.read if result.is_open and is_read.any() else self._read_slowly)(rest, numbers)
        elif len(values) > _HALVED_MIN and self._decoder.has_columns and self._halvings_left:
            self._halvings_left -= 1
            half = len(values) // 2
            self.read(values.slice(0, half), indices[:half])
            self.read(values.slice(half), indices[half:])
        else:
            self._read_slowly(values, indices)

    def _read_slowly(self, values: pa.Array, indices: Indices) -> None:
        rows: list[Any] = []
        origins: list[int] = []
        for message, index in zip(values.to_pylist(), indices.tolist(), strict=True):
            try:
                part = self._decoder.rows(message)
            except NO_RECORD as error:
                raise_if_of_program(error)
                self._refuse(index, error)
                continue
            rows += part
            origins += [index] * len(part)
        try:
            batch = self._decoder.batch_of(rows)
        except TypeMismatchError:
            rows, origins = self._conforming(rows, origins)
            batch = self._decoder.batch_of(rows)
        if origins:
            self._batches.append(batch)
            self._origins.append(np.array(origins, np.int64))

    def _conforming(self, rows: list[Any], origins: list[int]) -> tuple[list[Any], list[int]]:
        """The rows of the messages whose rows all match the type."""
        for row, index in zip(rows, origins, strict=True):
            try:
                conform(row, self._decoder.type_info)
            except TypeMismatchError as error:
                if not self.bad or self.bad[-1].index != index:
                    self._refuse(index, error)
        refused = {message.index for message in self.bad}
        matching = [(row, index) for row, index in zip(rows, origins, strict=True) if index not in refused]
        return [row for row, _ in matching], [index for _, index in matching]

    def _refuse(self, index: int, error: Exception) -> None:
        # Its frames would keep the messages and everything derived alive until garbage collection.
        self.bad.append(BadMessage.of(index, error.with_traceback(None)))

    def gathered(self) -> tuple[pa.RecordBatch, Indices]:
        """All rows in the order of their messages, and the message of each."""
        schema = stream_schema(self._decoder.type_info)
        assert schema is not None, "decoders of rows have a type"
        if not self._batches:
            return _empty(schema), np.zeros(0, np.int64)
        batch = pa.concat_batches(_with_one_schema(self._batches)) if len(self._batches) > 1 else self._batches[0]
        origins = np.concatenate(self._origins)
        if np.all(origins[:-1] <= origins[1:]):
            return batch, origins
        order = np.argsort(origins, kind="stable")
        return batch.take(pa.array(order)), origins[order]


def utf8_mask(values: pa.Array) -> npt.NDArray[np.bool_] | None:
    """The mask of messages that are UTF-8; None: all are.

    >>> utf8_mask(pa.array([b"a", "é".encode(), b"\\xe9"])).tolist()
    [True, True, False]
    """
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        pass
    else:
        return None
    present_values = values.cast(pa.binary())
    _, offsets, data = present_values.buffers()
    ends = np.frombuffer(offsets, np.int32)[present_values.offset + 1 : present_values.offset + len(present_values) + 1]
    letters = np.frombuffer(data, np.uint8)[: ends[-1]]
    # Usually either few or all messages have non-ASCII characters. Positions before the first message belong to others.
    places = np.flatnonzero(letters >= 0x80)
    rows = np.unique(
        np.searchsorted(ends, places[places >= ends[0] - len(present_values[0].as_buffer())], side="right")
    )
    mask = np.ones(len(present_values), np.bool_)
    mask[rows] = pc.match_substring_regex(present_values.take(pa.array(rows)), _UTF8).to_numpy(zero_copy_only=False)
    return mask


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _with_one_schema(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The batches with the same schema: if one has row kinds, all get them."""
    if not any(KIND_COLUMN in batch.schema.names for batch in batches):
        return batches
    return [batch if KIND_COLUMN in batch.schema.names else _with_inserts(batch) for batch in batches]


def _with_inserts(batch: pa.RecordBatch) -> pa.RecordBatch:
    kinds = pa.array(np.zeros(batch.num_rows, np.int8))
    return batch.append_column(pa.field(KIND_COLUMN, pa.int8()), kinds)


def _pieces(values: pa.Array) -> Iterator[tuple[int, int]]:
    """Ranges of messages that are read together: bounded in number and, except for single large ones, in bytes."""
    start = 0
    while start < len(values):
        length = min(_PIECE_MESSAGES, len(values) - start)
        while length > 1 and values.slice(start, length).nbytes > _PIECE_BYTES:
            length //= 2
        yield start, length
        start += length
