"""References of the bitmap functions, on Python sets. They share only the serialisation with `records.bitmaps`, which
has its own reference in a test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from millstream.records.bitmaps import bitmaps_of, normalised, numbers_of
from millstream.runtime.expressions.kernel import CallContext, EvaluationError, reference
from millstream.runtime.expressions.references.null_rules import null_of_null

__all__: list[str] = []


def _set(data: bytes) -> set[int]:
    return set(numbers_of(data).tolist())


def _bytes(numbers: Iterable[int]) -> bytes:
    values = np.array(sorted(numbers), np.int64).astype(np.uint32)
    data: bytes = bitmaps_of(np.zeros(len(values), np.int64), values, 1)[0].as_py()
    return data


@reference("BITMAP_BUILD")
@null_of_null
def build(context: CallContext, values: Sequence[int | None]) -> bytes:
    """A negative number represents the unsigned number with the same bits."""
    return _bytes(value % 2**32 for value in values if value is not None)


@reference("BITMAP_AND")
@null_of_null
def both(context: CallContext, left: bytes, right: bytes) -> bytes:
    return _bytes(_set(left) & _set(right))


@reference("BITMAP_OR")
@null_of_null
def either(context: CallContext, left: bytes, right: bytes) -> bytes:
    return _bytes(_set(left) | _set(right))


@reference("BITMAP_XOR")
@null_of_null
def one_of_both(context: CallContext, left: bytes, right: bytes) -> bytes:
    return _bytes(_set(left) ^ _set(right))


@reference("BITMAP_ANDNOT")
@null_of_null
def without(context: CallContext, left: bytes, right: bytes) -> bytes:
    return _bytes(_set(left) - _set(right))


@reference("BITMAP_CARDINALITY")
@null_of_null
def cardinality(context: CallContext, data: bytes) -> int:
    return len(_set(data))


@reference("BITMAP_TO_ARRAY")
@null_of_null
def to_array(context: CallContext, data: bytes) -> list[int]:
    """Numbers as INT; numbers beyond its maximum become negative."""
    return [number - 2**32 if number >= 2**31 else number for number in sorted(_set(data))]


@reference("BITMAP_TO_STRING")
@null_of_null
def to_string(context: CallContext, data: bytes) -> str:
    text = ""
    numbers = sorted(_set(data))
    for place, number in enumerate(numbers):
        text += f",{number}" if place else str(number)
        if len(text) + 1 >= 0x80000 and place + 1 < len(numbers):
            return f"{{{text},...}}"
    return f"{{{text}}}"


@reference("BITMAP_TO_BYTES")
@null_of_null
def to_bytes(context: CallContext, data: bytes) -> bytes:
    return data


@reference("BITMAP_FROM_BYTES")
@null_of_null
def from_bytes(context: CallContext, data: bytes) -> bytes:
    try:
        return normalised(data)
    except ValueError as error:
        raise EvaluationError(f"{len(data)} bytes are not a bitmap: {error}") from None
