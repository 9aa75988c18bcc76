"""Views numeric columns as numpy arrays without copying, and builds columns from arrays.

The number under a NULL is undefined, so checks must consider only valid rows. Decimals appear as unscaled integers if
these fit 8 bytes, which they nearly always do; otherwise `unscaled` returns None.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from millstream.runtime.expressions.kernel import Value

__all__ = [
    "allocate",
    "boolean_column",
    "booleans",
    "decimal_column",
    "first_row",
    "is_valid_row",
    "magnitude",
    "number_column",
    "numbers",
    "unscaled",
    "validity",
]

Numbers = npt.NDArray[Any]
_TYPES = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
}


def numbers(value: Value) -> Any:
    """The numbers of a column or scalar (0 for NULL)."""
    if isinstance(value, pa.Scalar):
        number = value.as_py()
        return _TYPES[value.type](0 if number is None else number)
    data = value.buffers()[1]
    dtype = _TYPES[value.type]
    if data is None or len(value) == 0:
        return np.zeros(len(value), dtype)
    return np.frombuffer(data, dtype, count=value.offset + len(value))[value.offset :]


def validity(rows: int, *values: Value) -> pa.Array | None:
    """Marks rows in which all values are valid; None: all rows."""
    valid: pa.Array | None = None
    for value in values:
        if isinstance(value, pa.Scalar):
            if not value.is_valid:
                return pa.repeat(pa.scalar(False), rows)
        elif value.null_count:
            mask = value.is_valid()
            valid = mask if valid is None else pc.and_(valid, mask)
    return valid


def is_valid_row(valid: pa.Array | None, rows: int) -> npt.NDArray[np.bool_]:
    """The validity as a numpy array."""
    return np.ones(rows, np.bool_) if valid is None else booleans(valid)


def booleans(column: pa.Array) -> npt.NDArray[np.bool_]:
    """The values of a boolean column without NULL; unpacks whole bytes, which is faster than Arrow's bit by bit."""
    bits = column.buffers()[1]
    if bits is None or not len(column):
        return np.zeros(len(column), np.bool_)
    first, before = divmod(column.offset, 8)
    unpacked = np.unpackbits(np.frombuffer(bits, np.uint8)[first:], count=before + len(column), bitorder="little")
    return unpacked[before:].view(np.bool_)


def boolean_column(values: npt.NDArray[np.bool_]) -> pa.Array:
    """A boolean column from a numpy array."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def _bitmap(valid: pa.Array | None) -> pa.Buffer | None:
    """The bitmap of a boolean array, starting at bit 0."""
    if valid is None:
        return None
    return valid.buffers()[1] if valid.offset == 0 else pa.concat_arrays([valid]).buffers()[1]


def allocate(count: int, dtype: Any) -> Any:
    """Allocates an array from Arrow's pool, which reuses memory; new pages would be zeroed by the system."""
    return np.frombuffer(pa.allocate_buffer(count * np.dtype(dtype).itemsize), dtype, count=count)


def number_column(values: Numbers, type_: pa.DataType, valid: pa.Array | None) -> pa.Array:
    """A column of numbers, NULL where not valid."""
    values = np.ascontiguousarray(values, dtype=_TYPES[type_])
    return pa.Array.from_buffers(type_, len(values), [_bitmap(valid), pa.py_buffer(values)])


def first_row(rows: npt.NDArray[np.bool_]) -> int:
    """The first marked row."""
    return int(np.argmax(rows))


def unscaled(value: Value) -> Any | None:
    """The unscaled 8-byte integers of a decimal or integer column; None if one is wider."""
    if isinstance(value, pa.Scalar):
        number = value.as_py()
        if number is None:
            return np.int64(0)
        whole = int(number.scaleb(value.type.scale)) if kinds.is_decimal(value.type) else int(number)
        return np.int64(whole) if -(2**63) <= whole < 2**63 else None
    if not kinds.is_decimal(value.type):
        return numbers(value).astype(np.int64, copy=False)
    data = value.buffers()[1]
    if data is None or len(value) == 0:
        return np.zeros(len(value), np.int64)
    words = np.frombuffer(data, np.int64, count=2 * (value.offset + len(value)))[2 * value.offset :]
    low, high = words[0::2], words[1::2]
    fits = high == (low >> 63)
    if value.null_count:
        is_set = is_valid_row(value.is_valid(), len(value))
        if not (fits | ~is_set).all():
            return None
        return np.where(is_set, low, 0)
    return low if fits.all() else None


def magnitude(values: Any) -> int:
    """The largest absolute value."""
    if np.ndim(values) == 0:
        return abs(int(values))
    return max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0


def decimal_column(values: Any, type_: pa.DataType, valid: pa.Array | None) -> pa.Array:
    """A decimal column from unscaled 8-byte integers, which must fit the precision of the type."""
    words = allocate(2 * len(values), np.int64)
    words[0::2] = values
    np.right_shift(values, 63, out=words[1::2])
    return pa.Array.from_buffers(type_, len(values), [_bitmap(valid), pa.py_buffer(words)])
