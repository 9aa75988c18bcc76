"""Kernels of arrays, maps and rows: constructors, element access and counts work directly on Arrow's buffers.

Functions that build new arrays from existing ones (unions, sorts) run by value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.nested_types import ArrayType, MapType, MultisetType, RowType
from millstream.expressions.types import VariantType
from millstream.runtime.expressions.kernel import REFERENCES, CallContext, EvaluationError, Value, kernel
from millstream.runtime.expressions.kernels.reference_kernels import column_of, register_by_value, run_by_value
from millstream.runtime.expressions.references import collections, group_values  # noqa: F401

__all__ = ["lengths_of"]

register_by_value("$PERCENTILE", "ARRAY_POSITION", "ARRAY_REMOVE", "ARRAY_APPEND", "ARRAY_PREPEND", "ARRAY_DISTINCT")
register_by_value("ARRAY_REVERSE", "ARRAY_SLICE", "ARRAY_SORT", "ARRAY_UNION", "ARRAY_CONCAT", "ARRAY_EXCEPT")
register_by_value("ARRAY_INTERSECT", "ARRAY_MAX", "ARRAY_MIN", "ARRAY_JOIN", "MAP_UNION", "MAP_FROM_ARRAYS")
_SIMPLE = (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_binary, pa.types.is_date)


def by_reference(context: CallContext, *arguments: Value) -> Value:
    """Runs the reference row by row."""
    return run_by_value(context, REFERENCES[context.call.function], *arguments)


def _without_offset(column: pa.Array) -> pa.Array:
    """The same values without an offset into their buffers."""
    return pa.concat_arrays([column]) if column.offset else column


def _null_mask(column: pa.Array) -> Any:
    """The mask of NULLs for Arrow; None without NULLs."""
    return column.is_null() if column.null_count else None


def lengths_of(column: pa.Array) -> Any:
    """The number of elements of each list or map; arbitrary under NULL."""
    return np.diff(column.offsets.to_numpy())


@kernel("ELEMENT")
def element(context: CallContext, values: Value) -> Value:
    if isinstance(values, pa.Scalar) or not pa.types.is_list(values.type):
        return by_reference(context, values)
    values = _without_offset(values)
    lengths = np.where(np.asarray(values.is_valid()), lengths_of(values), 0)
    if lengths.max(initial=0) > 1:
        return by_reference(context, values)
    return values.values.take(pa.array(values.offsets.to_numpy()[:-1], mask=lengths == 0))


@kernel("CARDINALITY")
def cardinality(context: CallContext, collection: Value) -> Value:
    if isinstance(collection, pa.Scalar) or isinstance(context.argument_types[0], MultisetType):
        return by_reference(context, collection)
    return pa.array(lengths_of(collection).astype(np.int32), mask=_numpy_mask(collection))


def _numpy_mask(column: pa.Array) -> Any:
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


@kernel("ARRAY")
def array(context: CallContext, *values: Value) -> Value:
    """Concatenates the columns, then takes the elements row by row."""
    type_ = context.type
    assert isinstance(type_, ArrayType)
    rows, width = context.rows, len(values)
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * width)
    return pa.ListArray.from_arrays(offsets, _interleave(context, values), type=type_.arrow)


def _interleave(context: CallContext, values: tuple[Value, ...]) -> pa.Array:
    rows = context.rows
    columns = pa.concat_arrays([_without_offset(column_of(context, value)) for value in values])
    places = np.arange(rows)[:, None] + rows * np.arange(len(values))[None, :]
    return columns.take(pa.array(places.ravel()))


@kernel("MAP")
def map_(context: CallContext, *parts: Value) -> Value:
    keys = parts[::2]
    type_ = context.type
    assert isinstance(type_, MapType)
    if pa.types.is_nested(type_.key_type.arrow):  # equality of maps ignores the order of their entries
        return by_reference(context, *parts)
    constants = [key.as_py() for key in keys if isinstance(key, pa.Scalar) and key.is_valid]
    if len(constants) < len(keys) or any(constants.count(key) > 1 for key in constants):
        return by_reference(context, *parts)
    offsets = pa.array(np.arange(context.rows + 1, dtype=np.int32) * len(keys))
    inside = _interleave(context, keys), _interleave(context, parts[1::2])
    return pa.MapArray.from_arrays(offsets, *inside).cast(type_.arrow)


@kernel("ROW")
def row(context: CallContext, *values: Value) -> Value:
    type_ = context.type
    assert isinstance(type_, RowType)
    columns = [_without_offset(column_of(context, value)) for value in values]
    return pa.StructArray.from_arrays(columns, fields=list(type_.arrow))


@kernel("FIELD")
def field(context: CallContext, whole: Value) -> Value:
    type_ = context.argument_types[0]
    assert isinstance(type_, RowType)
    return pc.struct_field(whole, [type_.names.index(context.option("name"))])


@kernel("ITEM")
def item(context: CallContext, collection: Value, place: Value) -> Value:
    if isinstance(collection, pa.Scalar) or isinstance(context.argument_types[0], VariantType):
        return by_reference(context, collection, place)
    if isinstance(context.argument_types[0], ArrayType):
        return _element(context, collection, place)
    key = place.as_py() if isinstance(place, pa.Scalar) else None
    if key is None or isinstance(key, list | dict | tuple):
        return by_reference(context, collection, place)
    return pc.map_lookup(collection, place, "last")


def _element(context: CallContext, arrays: pa.Array, place: Value) -> pa.Array:
    """The elements at indexes counted from 1."""
    indexes = column_of(context, place)
    known = indexes.is_valid().to_numpy(zero_copy_only=False) & arrays.is_valid().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(indexes, 1).to_numpy().astype(np.int64)
    if (numbers[known] < 1).any():
        first = int(np.flatnonzero(known & (numbers < 1))[0])
        raise EvaluationError(f"array indexes start at 1, so there is no element {numbers[first]}", first)
    offsets = arrays.offsets.to_numpy()
    places = offsets[:-1] + numbers - 1
    return arrays.values.take(pa.array(places, mask=~known | (places >= offsets[1:])))


@kernel("ARRAY_CONTAINS")
def array_contains(context: CallContext, arrays: Value, needle: Value) -> Value:
    """Compares all elements at once and counts the matches within each array."""
    simple = isinstance(arrays, pa.Array) and any(test(arrays.type.value_type) for test in _SIMPLE)
    if not simple or not isinstance(needle, pa.Scalar):
        return by_reference(context, arrays, needle)
    inside = arrays.values
    equal = pc.fill_null(pc.equal(inside, needle), False) if needle.is_valid else inside.is_null()
    counts = np.concatenate([[0], np.cumsum(equal.to_numpy(zero_copy_only=False))])
    offsets = arrays.offsets.to_numpy()
    return pa.array(counts[offsets[1:]] > counts[offsets[:-1]], mask=_numpy_mask(arrays))


@kernel("MAP_KEYS")
def map_keys(context: CallContext, maps: Value) -> Value:
    if isinstance(maps, pa.Scalar):
        return by_reference(context, maps)
    whole = _without_offset(maps)
    return pa.ListArray.from_arrays(whole.offsets, whole.keys, mask=_null_mask(whole)).cast(context.type.arrow)


@kernel("MAP_VALUES")
def map_values(context: CallContext, maps: Value) -> Value:
    if isinstance(maps, pa.Scalar):
        return by_reference(context, maps)
    whole = _without_offset(maps)
    return pa.ListArray.from_arrays(whole.offsets, whole.items, mask=_null_mask(whole)).cast(context.type.arrow)


@kernel("MAP_ENTRIES")
def map_entries(context: CallContext, maps: Value) -> Value:
    if isinstance(maps, pa.Scalar):
        return by_reference(context, maps)
    whole = _without_offset(maps)
    type_ = context.type
    assert isinstance(type_, ArrayType)
    pairs = pa.StructArray.from_arrays([whole.keys, whole.items], fields=list(type_.element_type.arrow))
    return pa.ListArray.from_arrays(whole.offsets, pairs, mask=_null_mask(whole)).cast(type_.arrow)
