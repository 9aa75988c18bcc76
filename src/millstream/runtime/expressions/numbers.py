"""Columns of numbers as numpy arrays, without copying, and back.

What stands in the place of a NULL is undefined: whoever checks values looks at valid rows only. Decimals are seen as
their unscaled numbers where these fit 8 bytes, which is nearly always; `unscaled` says None where they do not.
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
    "decimal_column",
    "first_row",
    "fresh",
    "is_valid_row",
    "magnitude",
    "number_column",
    "numbers",
    "truth_column",
    "truths",
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
    """The numbers of a column, or of a scalar (0 for NULL)."""
    if isinstance(value, pa.Scalar):
        number = value.as_py()
        return _TYPES[value.type](0 if number is None else number)
    data = value.buffers()[1]
    dtype = _TYPES[value.type]
    if data is None or len(value) == 0:
        return np.zeros(len(value), dtype)
    return np.frombuffer(data, dtype, count=value.offset + len(value))[value.offset :]


def validity(rows: int, *values: Value) -> pa.Array | None:
    """Where all values are there; None: everywhere."""
    valid: pa.Array | None = None
    for value in values:
        if isinstance(value, pa.Scalar):
            if not value.is_valid:
                return pa.repeat(pa.scalar(False), rows)
        elif value.null_count:
            there = value.is_valid()
            valid = there if valid is None else pc.and_(valid, there)
    return valid


def is_valid_row(valid: pa.Array | None, rows: int) -> npt.NDArray[np.bool_]:
    """The same as numpy has it."""
    return np.ones(rows, np.bool_) if valid is None else truths(valid)


def truths(column: pa.Array) -> npt.NDArray[np.bool_]:
    """The truths of a column without NULL: all eight of a byte at once, which Arrow looks at one by one."""
    bits = column.buffers()[1]
    if bits is None or not len(column):
        return np.zeros(len(column), np.bool_)
    first, before = divmod(column.offset, 8)
    unpacked = np.unpackbits(np.frombuffer(bits, np.uint8)[first:], count=before + len(column), bitorder="little")
    return unpacked[before:].view(np.bool_)


def truth_column(values: npt.NDArray[np.bool_]) -> pa.Array:
    """A column of these truths."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def _bitmap(valid: pa.Array | None) -> pa.Buffer | None:
    """The bitmap of an array of truths that begins at bit 0."""
    if valid is None:
        return None
    return valid.buffers()[1] if valid.offset == 0 else pa.concat_arrays([valid]).buffers()[1]


def fresh(count: int, dtype: Any) -> Any:
    """Room for numbers, of Arrow's memory: it is used again at once, where the system would clear new pages."""
    return np.frombuffer(pa.allocate_buffer(count * np.dtype(dtype).itemsize), dtype, count=count)


def number_column(values: Numbers, type_: pa.DataType, valid: pa.Array | None) -> pa.Array:
    """A column of these numbers, NULL where they are not valid."""
    values = np.ascontiguousarray(values, dtype=_TYPES[type_])
    return pa.Array.from_buffers(type_, len(values), [_bitmap(valid), pa.py_buffer(values)])


def first_row(rows: npt.NDArray[np.bool_]) -> int:
    """The first row that is marked."""
    return int(np.argmax(rows))


def unscaled(value: Value) -> Any | None:
    """The unscaled 8-byte numbers of a decimal or whole number column; None if one is wider."""
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
        there = is_valid_row(value.is_valid(), len(value))
        if not (fits | ~there).all():
            return None
        return np.where(there, low, 0)
    return low if fits.all() else None


def magnitude(values: Any) -> int:
    """The greatest absolute value."""
    if np.ndim(values) == 0:
        return abs(int(values))
    return max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0


def decimal_column(values: Any, type_: pa.DataType, valid: pa.Array | None) -> pa.Array:
    """A column of decimals of these unscaled 8-byte numbers. They must have no more digits than the type."""
    words = fresh(2 * len(values), np.int64)
    words[0::2] = values
    np.right_shift(values, 63, out=words[1::2])
    return pa.Array.from_buffers(type_, len(values), [_bitmap(valid), pa.py_buffer(words)])
