"""Bitmap kernels. Bitmaps are built from a whole column of arrays at once, and combined container by container."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.records.bitmaps import bitmaps_of, cardinality, combined, numbers_of
from millstream.runtime.expressions.bitmap_texts import bitmap_text
from millstream.runtime.expressions.kernel import CallContext, Value, kernel
from millstream.runtime.expressions.kernels.reference_kernels import column_of, register_by_value
from millstream.runtime.expressions.references import bitmaps  # noqa: F401

__all__: list[str] = []

register_by_value("BITMAP_FROM_BYTES")


@kernel("BITMAP_BUILD")
def build(context: CallContext, arrays: Value) -> Value:
    lists = column_of(context, arrays)
    # Flattening drops elements under NULL, so lengths are computed from the lists.
    lengths = np.asarray(lists.value_lengths().fill_null(0)).astype(np.int64)
    rows = np.repeat(np.arange(len(lists)), lengths)
    numbers = lists.flatten()
    if numbers.null_count or pa.types.is_null(numbers.type):
        rows, numbers = rows[np.asarray(numbers.is_valid())], numbers.drop_null()
    values = np.asarray(numbers.cast(pa.int32())).view(np.uint32)
    bitmaps_ = bitmaps_of(rows, values, len(lists))
    return _with_nulls(bitmaps_, lists)


def _with_nulls(values: pa.Array, like: pa.Array) -> pa.Array:
    if not like.null_count:
        return values
    return pc.if_else(like.is_valid(), values, pa.scalar(None, values.type))


def _pairs(operation: str) -> Callable[..., Value]:
    def of_pairs(context: CallContext, left: Value, right: Value) -> Value:
        rows = zip(column_of(context, left).to_pylist(), column_of(context, right).to_pylist(), strict=True)
        results = [None if a is None or b is None else combined(operation, a, b) for a, b in rows]
        return pa.array(results, pa.binary())

    return of_pairs


for _operation in ("and", "or", "xor", "andnot"):
    kernel(f"BITMAP_{_operation.upper()}")(_pairs(_operation))


def _each(context: CallContext, sets: Value, function: Callable[[bytes], Any]) -> pa.Array:
    values = column_of(context, sets).to_pylist()
    return pa.array([None if value is None else function(value) for value in values], context.type.arrow)


@kernel("BITMAP_CARDINALITY")
def count(context: CallContext, sets: Value) -> Value:
    return _each(context, sets, cardinality)


@kernel("BITMAP_TO_ARRAY")
def to_array(context: CallContext, sets: Value) -> Value:
    return _each(context, sets, lambda data: numbers_of(data).view(np.int32))


@kernel("BITMAP_TO_STRING")
def to_string(context: CallContext, sets: Value) -> Value:
    return _each(context, sets, bitmap_text)


@kernel("BITMAP_TO_BYTES")
def to_bytes(context: CallContext, sets: Value) -> Value:
    return sets
