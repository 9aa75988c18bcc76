"""Converts SQL values to the Python values that user-defined functions see, and results back.

Numbers, strings, dates and similar values are Arrow's Python values. Rows are `Row` objects with names, maps are dicts,
arrays are lists. A result must fit the declared type; the error names the first that does not. Numbers are converted as
by PyFlink's coders: for an integer type the fraction is truncated, which is logged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from numbers import Number
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.types import Row
from millstream.expressions.coercion import stored_value
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, MapType, MultisetType, RowType
from millstream.expressions.types import (
    BigIntType,
    DecimalType,
    DoubleType,
    FloatType,
    FractionalType,
    IntegralType,
    LocalZonedTimestampType,
    is_text,
)
from millstream.expressions.user_functions import CallMode, UserFunction
from millstream.expressions.user_types import UserDefinedType
from millstream.graph.notices import warn_once
from millstream.runtime.expressions.kernel import Value

__all__ = ["ResultMismatch", "column_of", "python_values", "rows_with_whole_numbers"]


class ResultMismatch(Exception):
    """A value is not of the declared type; `row` is its row."""

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


def python_values(value: Value, type_: DataType, rows: int) -> list[Any]:
    """Converts a column, or a repeated scalar, to Python values."""
    convert = _conversion(type_)
    if isinstance(value, pa.Scalar):
        single = value.as_py()
        return [single if convert is None else convert(single)] * rows
    values: list[Any] = _plain_numbers(value) if _is_plain(value) else value.to_pylist()
    return values if convert is None else [convert(each) for each in values]


def _is_plain(column: pa.Array) -> bool:
    """Whether the column holds only numbers, which numpy converts in half the time."""
    return not column.null_count and bool(pa.types.is_integer(column.type) or pa.types.is_float64(column.type))


def _plain_numbers(column: pa.Array) -> list[Any]:
    numbers: list[Any] = column.to_numpy().tolist()
    return numbers


def _conversion(type_: DataType) -> Callable[[Any], Any] | None:
    """The conversion from Arrow's Python value to the function's; None if they are the same."""
    if isinstance(type_, RowType):
        return _row_conversion(type_)
    if isinstance(type_, ArrayType):
        inner = _conversion(type_.element_type)
        return None if inner is None else lambda value: None if value is None else [inner(each) for each in value]
    if isinstance(type_, MapType | MultisetType):
        key_type = type_.key_type if isinstance(type_, MapType) else type_.element_type
        key = _conversion(key_type) or _same
        item = (_conversion(type_.value_type) if isinstance(type_, MapType) else None) or _same
        return lambda value: None if value is None else {key(k): item(v) for k, v in value}
    if isinstance(type_, UserDefinedType):
        return lambda value: None if value is None else type_.deserialize(value)
    return None


def _row_conversion(type_: RowType) -> Callable[[Any], Any]:
    names = list(type_.names)
    parts = [_conversion(each) or _same for each in type_.types]

    def convert(value: Any) -> Any:
        if value is None:
            return None
        row = Row(*(part(value[name]) for part, name in zip(parts, names, strict=True)))
        row.set_field_names(names)
        return row

    return convert


def _same(value: Any) -> Any:
    return value


def column_of(values: Sequence[Any], type_: DataType, function: UserFunction | None = None) -> pa.Array:
    """Converts values returned by `function` to a column; raises `ResultMismatch` for the first that does not fit."""
    stored, converts = values, function is None or function.mode not in (CallMode.PANDAS, CallMode.ARROW)
    is_nested = isinstance(type_, RowType | ArrayType | MapType | MultisetType | UserDefinedType)
    kinds = set(map(type, values)) if isinstance(type_, IntegralType) else set()
    try:
        if kinds == {int} and isinstance(type_, BigIntType):
            return pa.array(np.fromiter(values, np.int64, len(values)))  # twice as fast, and as strict
        if isinstance(type_, DecimalType) or is_nested or not _are_whole(kinds):
            stored = [_storage_value(value, type_, converts) for value in values]
            if function is not None and isinstance(type_, IntegralType):
                _warn_of_fractions(values, stored, type_, function)
        return _typed_array(stored, type_, converts)
    except (pa.ArrowException, TypeError, ValueError, KeyError, AttributeError, OverflowError, ArithmeticError):
        for row, value in enumerate(values):
            try:
                _typed_array([_storage_value(value, type_, converts)], type_, converts)
            except (pa.ArrowException, TypeError, ValueError, KeyError, AttributeError, ArithmeticError):
                raise ResultMismatch(_mismatch(value, type_), row) from None
        raise


def rows_with_whole_numbers(rows: list[Any], types: Sequence[DataType], function: UserFunction) -> list[Any]:
    """Converts numbers in a table function's rows to integers where integer types are declared."""
    for place, type_ in enumerate(types):
        if not isinstance(type_, IntegralType) or all(len(row) <= place or type(row[place]) is int for row in rows):
            continue
        for at, row in enumerate(rows):
            if len(row) == len(types) and isinstance(row[place], Number) and type(row[place]) is not int:
                try:
                    whole = stored_value(row[place], type_, converts_numbers=True)
                except (TypeError, ValueError, ArithmeticError):  # rejected later, when the row becomes a column
                    continue
                _warn_of_fractions([row[place]], [whole], type_, function)
                rows[at] = (*tuple(row)[:place], whole, *tuple(row)[place + 1 :])
    return rows


def _typed_array(values: Sequence[Any], type_: DataType, converts: bool) -> pa.Array:
    """Converts values to an array; floats that Arrow rejects because of their Python type are converted first."""
    try:
        return pa.array(values, type_.arrow)
    except (pa.ArrowException, TypeError):
        if not converts or not isinstance(type_, FloatType | DoubleType):
            raise
        return pa.array([stored_value(value, type_, converts_numbers=True) for value in values], type_.arrow)


def _are_whole(kinds: Collection[type]) -> bool:
    """Whether Arrow converts values of these types to integers without loss: Arrow silently truncates fractions and
    rejects booleans."""
    return all(kind is type(None) or (hasattr(kind, "__index__") and kind is not bool) for kind in kinds)


def _warn_of_fractions(values: Sequence[Any], stored: Sequence[Any], type_: DataType, function: UserFunction) -> None:
    """Logs once that a function's results lost their fractions."""
    for value, whole in zip(values, stored, strict=True):
        if value is not None and value != whole:
            warn_once(
                f"fractions of {function.name}",
                f"the function {function.name} returned {value!r} and declares {type_.nullable()}: it is {whole}, the "
                "fraction is cut off as PyFlink does. Declare DOUBLE, or round in the function",
                function.place,
            )
            return


def _storage_value(value: Any, type_: DataType, converts: bool) -> Any:
    if isinstance(type_, UserDefinedType) and value is not None:
        return stored_value(type_.serialize(value), type_.sql_type(), converts)
    return stored_value(list(value) if isinstance(value, Row) else value, type_, converts)


def _mismatch(value: Any, type_: DataType) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:59] + "…"
    expected = {True: "a str"}.get(is_text(type_))
    if isinstance(type_, IntegralType):
        expected = f"an int of {type_.bits} bits"
    elif isinstance(type_, FractionalType):
        expected = "a decimal.Decimal" if isinstance(type_, DecimalType) else "a float"
    elif isinstance(type_, LocalZonedTimestampType):
        expected = "a datetime.datetime"
    expectation = f"; expected {expected} or None" if expected else ""
    return f"it returned {shown} ({type(value).__name__}), but declares {type_.nullable()}{expectation}"
