"""Fields of generated columns: a **field** computes an array for any rows, from their numbers.

A field is frozen data with one method. Random values are a pure function of the row's number and the column's salt, so
that a row has the same values each time it is generated. Times are relative to the time at which a row is due.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.connectors.tables.random_numbers import Int64s, below, mixed, unit
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType

__all__ = [
    "BooleanField",
    "BytesField",
    "DecimalField",
    "FloatField",
    "GeneratedField",
    "IntegerField",
    "ListField",
    "MapField",
    "MomentField",
    "Rows",
    "RowsField",
    "SequenceField",
    "TextField",
]

_DAY_MS = 86_400_000
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


@dataclass(frozen=True)
class Rows:
    """Row numbers, and the time at which each row is due, in ms since 1970."""

    numbers: Int64s
    due_ms: Int64s

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True)
class GeneratedField:
    """A column. A share of `null_rate` of its values is NULL."""

    type: DataType
    salt: int
    null_rate: float = 0.0

    def column(self, rows: Rows) -> pa.Array:
        """The values of the rows, including NULLs."""
        values = self.values(rows)
        if not self.null_rate:
            return values
        is_null = unit(rows.numbers, self.salt + 1) < self.null_rate
        return pa.compute.if_else(pa.array(is_null), pa.scalar(None, values.type), values)

    def values(self, rows: Rows) -> pa.Array:
        """The values of the rows, without NULLs."""
        raise NotImplementedError


@dataclass(frozen=True)
class SequenceField(GeneratedField):
    """`start`, `start` + 1, …"""

    start: int = 0

    def values(self, rows: Rows) -> pa.Array:
        numbers = pa.array(rows.numbers + self.start)
        return numbers.cast(self.type.arrow) if not pa.types.is_string(self.type.arrow) else numbers.cast(pa.string())


@dataclass(frozen=True)
class BooleanField(GeneratedField):
    def values(self, rows: Rows) -> pa.Array:
        return pa.array(below(rows.numbers, self.salt, 2) == 1)


@dataclass(frozen=True)
class IntegerField(GeneratedField):
    """Whole numbers from `least` to `greatest`; also for months and milliseconds."""

    least: int = 0
    greatest: int = 0

    def values(self, rows: Rows) -> pa.Array:
        span = self.greatest - self.least + 1
        offsets = mixed(rows.numbers, self.salt)
        if span < 1 << 64:
            offsets = offsets % np.uint64(span)
        with np.errstate(over="ignore"):
            numbers = (offsets + np.uint64(self.least & 0xFFFFFFFFFFFFFFFF)).view(np.int64)
        return pa.array(numbers).cast(self.type.arrow)


@dataclass(frozen=True)
class FloatField(GeneratedField):
    least: float = 0.0
    greatest: float = 0.0

    def values(self, rows: Rows) -> pa.Array:
        # Halves first: the span of all DOUBLEs exceeds a DOUBLE.
        share = unit(rows.numbers, self.salt)
        numbers = self.least * (1 - share) + self.greatest * share
        return pa.array(numbers).cast(self.type.arrow)


@dataclass(frozen=True)
class DecimalField(GeneratedField):
    """Numbers with the type's digits, from `least` to `greatest` in units of its last digit."""

    least: int = 0
    greatest: int = 0

    def values(self, rows: Rows) -> pa.Array:
        # Two words of 64 bits, the lower one first, as in Arrow.
        high, low = mixed(rows.numbers, self.salt), mixed(rows.numbers, self.salt + 2)
        span = self.greatest - self.least + 1
        wide = [self.least + (int(h) << 64 | int(w)) % span for h, w in zip(high, low, strict=True)]
        words = b"".join(number.to_bytes(16, "little", signed=True) for number in wide)
        return pa.Array.from_buffers(self.type.arrow, len(rows), [None, pa.py_buffer(words)])


@dataclass(frozen=True)
class BytesField(GeneratedField):
    """`length` bytes; with `varies`, from 1 to `length`."""

    length: int = 100
    varies: bool = False

    def values(self, rows: Rows) -> pa.Array:
        offsets = self._offsets(rows)
        data = mixed(self._places(rows, offsets), self.salt).astype(np.uint8)
        return pa.Array.from_buffers(
            self.type.arrow, len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(self._letters(data))]
        )

    def _letters(self, data: Any) -> Any:
        return data

    def _offsets(self, rows: Rows) -> Any:
        lengths = np.full(len(rows), self.length)
        if self.varies:
            lengths = 1 + below(rows.numbers, self.salt + 3, self.length)
        offsets = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return offsets

    def _places(self, rows: Rows, offsets: Any) -> Int64s:
        """A number for each letter, unique within the column."""
        lengths = np.diff(offsets)
        within = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], lengths)
        places: Int64s = np.repeat(rows.numbers * (self.length + 1), lengths) + within
        return places


@dataclass(frozen=True)
class TextField(BytesField):
    """Text of hexadecimal digits, as Flink's."""

    def _letters(self, data: Any) -> Any:
        return _HEX[data & 15]


@dataclass(frozen=True)
class MomentField(GeneratedField):
    """The time at which the row is due, or up to `past_ms` earlier: a timestamp, a date or a time of day."""

    past_ms: int = 0

    def values(self, rows: Rows) -> pa.Array:
        moments = rows.due_ms
        if self.past_ms:
            moments = moments - below(rows.numbers, self.salt, self.past_ms + 1)
        arrow = self.type.arrow
        if pa.types.is_date(arrow):
            return pa.array((moments // _DAY_MS).astype(np.int32)).view(arrow)
        if pa.types.is_time(arrow):
            return pa.array((moments % _DAY_MS).astype(np.int32)).view(arrow)
        return pa.array(moments).view(pa.timestamp("ms", arrow.tz)).cast(arrow)


@dataclass(frozen=True)
class ListField(GeneratedField):
    """Arrays of `length` elements."""

    element: GeneratedField | None = None
    length: int = 3

    def values(self, rows: Rows) -> pa.Array:
        assert self.element is not None
        offsets = np.arange(len(rows) + 1, dtype=np.int32) * self.length
        return pa.ListArray.from_arrays(pa.array(offsets), self.element.column(_spread(rows, self.length)))


@dataclass(frozen=True)
class MapField(GeneratedField):
    """Maps of up to `length` entries, or multisets: duplicate keys are merged."""

    key: GeneratedField | None = None
    value: GeneratedField | None = None
    length: int = 3

    def values(self, rows: Rows) -> pa.Array:
        assert self.key is not None and self.value is not None
        spread = _spread(rows, self.length)
        keys, values = self.key.values(spread).to_pylist(), self.value.column(spread).to_pylist()
        pairs = zip(keys, values, strict=True)
        maps = [list(dict(next(pairs) for _ in range(self.length)).items()) for _ in range(len(rows))]
        return pa.array(maps, self.type.arrow)


@dataclass(frozen=True)
class RowsField(GeneratedField):
    """Rows of other fields."""

    fields: tuple[GeneratedField, ...] = ()

    def values(self, rows: Rows) -> pa.Array:
        assert isinstance(self.type, RowType)
        columns = [field.column(rows) for field in self.fields]
        return pa.StructArray.from_arrays(columns, type=self.type.arrow)


def _spread(rows: Rows, length: int) -> Rows:
    """Row numbers for elements: those of row n start at n × length."""
    numbers = np.repeat(rows.numbers * length, length) + np.tile(np.arange(length), len(rows))
    return Rows(numbers, np.repeat(rows.due_ms, length))
