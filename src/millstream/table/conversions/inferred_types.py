"""Infers the types of Python values as PyFlink does.

Integers are BIGINT, floats DOUBLE, strings STRING; a list and an array of Python's `array` are ARRAY, a dict is MAP; a
tuple, a Row, a named tuple and an object with attributes are ROW. A column that is NULL or empty in every row has no
type and is rejected. A column's type fits all of its values: a mix of integers and floats is DOUBLE.
"""

from __future__ import annotations

import array
import datetime
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from millstream.common.types import Row
from millstream.expressions import types
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, MapType, RowType, types_within
from millstream.graph.site import refuse, refuse_type

__all__ = ["attributes_of", "inferred_column_type"]

_TEXT = types.VarCharType(types.LENGTH_MAX)
_SCALARS: tuple[tuple[type | tuple[type, ...], DataType], ...] = (
    (bool, types.BooleanType()),
    (int, types.BigIntType()),
    (float, types.DoubleType()),
    (str, _TEXT),
    ((bytes, bytearray), types.VarBinaryType(types.LENGTH_MAX)),
    (Decimal, types.DecimalType(38, 18)),
    (datetime.date, types.DateType()),
    (datetime.time, types.TimeType(0)),
    (datetime.timedelta, types.DayTimeIntervalType()),
)
# An unsigned number needs one bit more than a signed type of the same size.
_WHOLE_NUMBERS: dict[int, type[DataType]] = {1: types.TinyIntType, 2: types.SmallIntType, 4: types.IntType}
_REAL_NUMBERS: dict[str, type[DataType]] = {"f": types.FloatType, "d": types.DoubleType}


def inferred_column_type(name: str, values: Iterable[Any]) -> DataType:
    """The type that fits all values of a column."""
    column_type = _merged_type(name, values)
    if any(isinstance(inner, types.NullType) for inner in types_within(column_type)):
        raise refuse(
            f"from_elements: column {name!r} is NULL or empty in every row, so its type is {column_type}. Declare it: "
            "schema=DataTypes.ROW([...])"
        )
    return column_type


def attributes_of(value: Any) -> dict[str, Any] | None:
    """The attributes of a user's object by name, in alphabetical order; None for any other value."""
    if isinstance(value, (Row, Mapping, type)) or _scalar_type(value) is not None or callable(value):
        return None
    attributes = getattr(value, "__dict__", None)
    return dict(sorted(attributes.items())) if isinstance(attributes, dict) and attributes else None


def _merged_type(name: str, values: Iterable[Any]) -> DataType:
    """The common type of all values; NULL without values."""
    merged: DataType = types.NullType()
    for value in values:
        merged = _wider(name, merged, _inferred(name, value))
    return merged


def _inferred(name: str, value: Any) -> DataType:
    """The type that PyFlink infers for a value."""
    if value is None:
        return types.NullType()
    user_type = getattr(value, "__UDT__", None)
    if isinstance(user_type, DataType):
        return user_type
    plain = _scalar_type(value)
    if plain is not None:
        return plain
    if isinstance(value, array.array):
        return ArrayType(_item_type(value))
    if isinstance(value, list):
        return ArrayType(_merged_type(name, value))
    if hasattr(value, "tolist") and hasattr(value, "dtype"):  # numpy arrays
        return ArrayType(_merged_type(name, value.tolist()))
    if isinstance(value, Mapping):
        return MapType(_merged_type(name, value).not_null(), _merged_type(name, value.values()))
    if isinstance(value, Row | tuple):
        names = getattr(value, "_fields", None) or [f"_{place + 1}" for place in range(len(value))]
        return RowType.of(list(names), [_inferred(name, field) for field in value])
    attributes = attributes_of(value)
    if attributes is not None:
        return RowType.of(list(attributes), [_inferred(name, field) for field in attributes.values()])
    raise refuse_type(
        f"from_elements: found {value!r} ({type(value).__name__}) in column {name!r}, whose type cannot be inferred. "
        "Declare it: schema=DataTypes.ROW([...])"
    )


def _item_type(values: array.array[Any]) -> DataType:
    """The element type of a Python array: the smallest type that holds all numbers of its type code."""
    code = values.typecode
    if code in _REAL_NUMBERS:
        return _REAL_NUMBERS[code](False)
    if code in ("u", "w"):
        return types.CharType(values.itemsize, False)
    size = values.itemsize * (2 if code.isupper() else 1)
    if size > 8:
        raise refuse_type(f"from_elements: found an array of type {code!r}, whose numbers are larger than BIGINT")
    return _WHOLE_NUMBERS.get(size, types.BigIntType)(False)


def _scalar_type(value: Any) -> DataType | None:
    if getattr(value, "shape", None) == ():
        value = value.item()  # numpy scalars
    if isinstance(value, datetime.datetime):
        return types.TimestampType(6) if value.tzinfo is None else types.LocalZonedTimestampType(6)
    return next((data_type for kind, data_type in _SCALARS if isinstance(value, kind)), None)


def _wider(name: str, narrow: DataType, other: DataType) -> DataType:
    """The common type of two types."""
    if isinstance(narrow, types.NullType) or narrow == other:
        return other
    if isinstance(other, types.NullType):
        return narrow
    numbers = (types.BigIntType, types.DoubleType)
    if isinstance(narrow, numbers) and isinstance(other, numbers):
        return types.DoubleType()
    if isinstance(narrow, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_wider(name, narrow.element_type, other.element_type))
    if isinstance(narrow, MapType) and isinstance(other, MapType):
        key = _wider(name, narrow.key_type, other.key_type)
        return MapType(key.not_null(), _wider(name, narrow.value_type, other.value_type))
    if isinstance(narrow, RowType) and isinstance(other, RowType) and narrow.names == other.names:
        pairs = zip(narrow.types, other.types, strict=True)
        return RowType.of(list(narrow.names), [_wider(name, first, second) for first, second in pairs])
    raise refuse_type(
        f"from_elements: column {name!r} has values of {narrow} and of {other}. Declare it: schema=DataTypes.ROW([...])"
    )
