"""Decodes many Avro messages at once into columns, field by field, for schemas without lists and maps.

Every message has a position. A field is read in all messages at their positions, which then advance. A doubtful message
(a number that is too long, a premature end, an unknown branch) is marked and read individually, and so is a message
that does not end with its record.

Invariant: for an unmarked message the row equals that of `AvroRecords.value`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.connectors.messages.avro_schemas import fastavro_module, row_type_of
from millstream.connectors.messages.row_decoder import ReadColumns
from millstream.records.columns import arrow_type, stream_schema

__all__ = ["avro_columns", "has_avro_columns"]

Rows = npt.NDArray[np.int64]
_VARINT_BYTES_MAX = 9  # ten bytes may overflow, and are rare
_DAY_US = 86_400_000_000
_DAYS = (-719_162, 2_932_896)  # the years 1 to 9999
_MICROS = (_DAYS[0] * _DAY_US, (_DAYS[1] + 1) * _DAY_US - 1)


class _Messages:
    """The bytes of all messages, the position in each, and the mask of doubtful ones."""

    def __init__(self, values: pa.Array, skipped_bytes: int) -> None:
        _, offsets, data = values.buffers()
        bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
        self.data = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        self.position = bounds[:-1] + skipped_bytes
        self.end = bounds[1:]
        self.doubt = self.position > self.end

    def starts(self, rows: Rows, size: Any) -> Rows:
        """The positions of the next `size` bytes of these messages, which are then skipped; 0 where too few remain."""
        begins = self.position[rows]
        is_short = begins + size > self.end[rows]
        if is_short.any():
            self.doubt[rows[is_short]] = True
            begins = np.where(is_short, 0, begins)
        self.position[rows] += np.where(is_short, 0, size)
        return begins

    def longs(self, rows: Rows) -> npt.NDArray[np.int64]:
        """The next number in each of these messages."""
        numbers = np.zeros(len(rows), np.uint64)
        at = np.arange(len(rows))
        for place in range(_VARINT_BYTES_MAX):
            letters = self.data[self.starts(rows[at], 1)]
            numbers[at] |= (letters & 0x7F).astype(np.uint64) << np.uint64(7 * place)
            at = at[letters >= 0x80]
            if not len(at):
                break
        self.doubt[rows[at]] = True
        return (numbers >> np.uint64(1)).astype(np.int64) ^ -(numbers & np.uint64(1)).astype(np.int64)

    def fixed(self, rows: Rows, size: int) -> npt.NDArray[np.uint8]:
        """The next `size` bytes of each, one row per message."""
        begins = self.starts(rows, size)
        at = np.minimum(begins[:, None] + np.arange(size), len(self.data) - 1)
        data: npt.NDArray[np.uint8] = self.data[at]
        return data

    def mark(self, rows: Rows, is_odd: npt.NDArray[np.bool_]) -> None:
        """Mark these messages as doubtful."""
        if is_odd.any():
            self.doubt[rows[is_odd]] = True


Read = Callable[[_Messages, Rows], pa.Array]
"""Reads a field of the selected messages as a column of the same length."""


def has_avro_columns(text: str) -> bool:
    """Whether records of this schema can be read in bulk."""
    return _readers(text) is not None


def avro_columns(values: pa.Array, text: str, skipped_bytes: int = 0) -> ReadColumns | None:
    """The rows of messages that start after `skipped_bytes`; None if they must be read individually."""
    readers = _readers(text)
    if readers is None or not len(values):
        return None
    messages = _Messages(values.cast(pa.binary()), skipped_bytes)
    rows = np.arange(len(values))
    try:
        columns = [read(messages, rows) for read in readers]
    except pa.ArrowInvalid:  # strings that are not UTF-8
        return None
    messages.doubt |= messages.position != messages.end
    batch = pa.RecordBatch.from_arrays(columns, schema=stream_schema(row_type_of(text)))
    is_read = ~messages.doubt
    return ReadColumns(batch if is_read.all() else batch.filter(pa.array(is_read)), is_read)


@lru_cache(maxsize=256)
def _readers(text: str) -> list[Read] | None:
    schema = fastavro_module().parse_schema(json.loads(text), expand=True)
    types = row_type_of(text).get_field_types()
    readers = [
        _reader(field["type"], arrow_type(type_info)) for field, type_info in zip(schema["fields"], types, strict=True)
    ]
    known = [reader for reader in readers if reader is not None]
    return known if len(known) == len(readers) else None


def _reader(schema: Any, arrow: pa.DataType | None) -> Read | None:
    """The reader from values of a schema to a column of this type; None: one by one only."""
    if arrow is None:
        return None
    if isinstance(schema, list):
        return _nullable(schema, arrow)
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, (dict, list)):
        return _reader(kind, arrow)
    logical = None if isinstance(schema, str) else schema.get("logicalType")
    if kind in ("record", "error"):
        return _record(schema, arrow)
    if kind == "enum":
        return _enum(schema["symbols"])
    if logical in ("decimal", "uuid"):
        return None
    if kind == "fixed":
        return lambda messages, rows: pa.array(list(map(bytes, messages.fixed(rows, schema["size"]))), pa.binary())
    return _logical(kind, logical) or _SINGLES.get(kind)


def _nullable(branches: list[Any], arrow: pa.DataType) -> Read | None:
    others = [at for at, branch in enumerate(branches) if branch not in ("null", {"type": "null"})]
    read = _reader(branches[others[0]], arrow) if len(others) == 1 and len(branches) == 2 else None
    if read is None:
        return None

    def read_some(messages: _Messages, rows: Rows) -> pa.Array:
        branch = messages.longs(rows)
        messages.mark(rows, (branch != 0) & (branch != 1))
        is_present = branch == others[0]
        if is_present.all():
            return read(messages, rows)
        at = np.cumsum(is_present) - 1
        return read(messages, rows[is_present]).take(pa.array(at, mask=~is_present))

    return read_some


def _record(schema: Any, arrow: pa.DataType) -> Read | None:
    fields = [_reader(field["type"], arrow.field(at).type) for at, field in enumerate(schema["fields"])]
    known = [field for field in fields if field is not None]
    if not known or len(known) < len(fields):
        return None
    return lambda messages, rows: pa.StructArray.from_arrays([read(messages, rows) for read in known], type=arrow)


def _enum(symbols: list[str]) -> Read:
    def read(messages: _Messages, rows: Rows) -> pa.Array:
        numbers = messages.longs(rows)
        is_odd = (numbers < 0) | (numbers >= len(symbols))
        messages.mark(rows, is_odd)
        return pa.array(symbols, pa.string()).take(pa.array(np.where(is_odd, 0, numbers)))

    return read


def _within(messages: _Messages, rows: Rows, numbers: npt.NDArray[np.int64], low: int, high: int) -> Any:
    """The numbers; those out of range are doubtful, and 0 here."""
    is_odd = (numbers < low) | (numbers > high)
    messages.mark(rows, is_odd)
    return np.where(is_odd, 0, numbers) if is_odd.any() else numbers


def _logical(kind: str, logical: str | None) -> Read | None:
    steps: dict[tuple[str, str], tuple[int, int, int, pa.DataType]] = {
        ("int", "date"): (1, *_DAYS, pa.date32()),
        ("int", "time-millis"): (1000, 0, _DAY_US - 1, pa.time64("us")),
        ("long", "time-micros"): (1, 0, _DAY_US - 1, pa.time64("us")),
        ("long", "timestamp-millis"): (1000, *_MICROS, pa.timestamp("us")),
        ("long", "timestamp-micros"): (1, *_MICROS, pa.timestamp("us")),
        ("long", "local-timestamp-millis"): (1000, *_MICROS, pa.timestamp("us")),
        ("long", "local-timestamp-micros"): (1, *_MICROS, pa.timestamp("us")),
    }
    if logical is None or (kind, logical) not in steps:
        return None
    factor, low, high, arrow = steps[(kind, logical)]

    def read(messages: _Messages, rows: Rows) -> pa.Array:
        numbers = _within(messages, rows, messages.longs(rows), -(-low // factor), high // factor)
        column = pa.array(numbers * factor)
        return column.cast(pa.int32()).cast(arrow) if arrow == pa.date32() else column.cast(arrow)

    return read


def _int(messages: _Messages, rows: Rows) -> pa.Array:
    numbers = _within(messages, rows, messages.longs(rows), -(2**31), 2**31 - 1)
    return pa.array(numbers.astype(np.int32))


def _long(messages: _Messages, rows: Rows) -> pa.Array:
    return pa.array(messages.longs(rows))


def _boolean(messages: _Messages, rows: Rows) -> pa.Array:
    letters = messages.data[messages.starts(rows, 1)]
    messages.mark(rows, letters > 1)
    return pa.array(letters == 1)


def _float(messages: _Messages, rows: Rows) -> pa.Array:
    return pa.array(messages.fixed(rows, 4).view("<f4").reshape(-1))


def _double(messages: _Messages, rows: Rows) -> pa.Array:
    return pa.array(messages.fixed(rows, 8).view("<f8").reshape(-1))


def _bytes(messages: _Messages, rows: Rows) -> pa.Array:
    sizes = messages.longs(rows)
    sizes = _within(messages, rows, sizes, 0, len(messages.data))
    begins = messages.starts(rows, sizes)
    sizes = np.where(messages.doubt[rows], 0, sizes)
    bounds = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    # Addresses each byte by its position in its string and the position of that string.
    at = np.repeat(begins - bounds[:-1], sizes) + np.arange(bounds[-1])
    data, offsets = pa.py_buffer(messages.data[at]), pa.py_buffer(bounds.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, offsets, data])


def _string(messages: _Messages, rows: Rows) -> pa.Array:
    return _bytes(messages, rows).cast(pa.string())


_SINGLES: dict[str, Read] = {
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}
