"""Converts columns to Python values and back: arrays are lists, maps and multisets are dicts, rows are tuples, NULL is
None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, MapType, MultisetType, RowType
from millstream.expressions.types import IntType

__all__ = ["arrow_column", "dict_key", "python_value", "python_values"]


def python_values(column: pa.Array, type_: DataType) -> list[Any]:
    """Converts a column to Python values.

    >>> from millstream.expressions.types import VarCharType
    >>> python_values(pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())), MapType(VarCharType(), IntType()))
    [{'a': 1}]
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if isinstance(type_, RowType):
        fields = [python_values(column.field(i), field) for i, field in enumerate(type_.types)]
        rows = list(zip(*fields, strict=True)) if fields else [()] * len(column)
        return [row if valid else None for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)]
    if isinstance(type_, ArrayType):
        inside = python_values(column.values, type_.element_type)
        return _cut(column, inside)
    if isinstance(type_, MapType | MultisetType):
        key, value = _entry_types(type_)
        keys = python_values(column.keys, key)
        if isinstance(key, ArrayType | MapType | MultisetType | RowType):
            keys = [dict_key(each) for each in keys]
        pairs = list(zip(keys, python_values(column.items, value), strict=True))
        return [None if entries is None else dict(entries) for entries in _cut(column, pairs)]
    return column.to_pylist()  # type: ignore[no-any-return]


class _MapKey(dict[Any, Any]):
    """A map used as a map key: hashable, equal to the dict of its entries, immutable."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def dict_key(value: Any) -> Any:
    """Converts a value to a hashable equivalent that is equal to it.

    >>> {dict_key({"a": [1]}): 1}[dict_key({"a": [1]})]
    1
    """
    if isinstance(value, list | tuple):
        return tuple(map(dict_key, value))
    if isinstance(value, dict):
        return _MapKey((dict_key(key), dict_key(each)) for key, each in value.items())
    return value


def _entry_types(type_: MapType | MultisetType) -> tuple[DataType, DataType]:
    return (type_.key_type, type_.value_type) if isinstance(type_, MapType) else (type_.element_type, IntType())


def _cut(column: pa.Array, inside: list[Any]) -> list[Any]:
    """Slices the flat values into the lists of a column."""
    offsets = column.offsets.to_pylist()
    valid = column.is_valid().to_pylist()
    return [inside[offsets[i] : offsets[i + 1]] if valid[i] else None for i in range(len(column))]


def python_value(scalar: pa.Scalar, type_: DataType) -> Any:
    """Converts a scalar to a Python value."""
    if scalar.is_valid and isinstance(type_, ArrayType | MapType | MultisetType | RowType):
        return python_values(pa.array([scalar.as_py()], scalar.type), type_)[0]
    return scalar.as_py()


def arrow_column(values: Sequence[Any], type_: DataType) -> pa.Array:
    """Converts Python values to a column.

    >>> from millstream.expressions.types import VarCharType
    >>> arrow_column([{"a": 1}, None], MapType(VarCharType(), IntType())).type
    MapType(map<string, int32>)
    """
    if isinstance(type_, ArrayType | MapType | MultisetType | RowType):
        values = [_plain(value, type_) for value in values]
    return pa.array(values, type_.arrow)


def _plain(value: Any, type_: DataType) -> Any:
    """A value in the form that Arrow accepts: a map as pairs, a row as a tuple."""
    if value is None:
        return None
    if isinstance(type_, RowType):
        return tuple(_plain(each, field) for each, field in zip(value, type_.types, strict=True))
    if isinstance(type_, ArrayType):
        return [_plain(each, type_.element_type) for each in value]
    if isinstance(type_, MapType | MultisetType):
        key_type, value_type = _entry_types(type_)
        return [(_plain(key, key_type), _plain(each, value_type)) for key, each in value.items()]
    return value
