"""Defines how a declared type converts a Python value, or the error. Works value by value: the slow reference.

The columns of `columns.py` must agree with this definition: for every value,
`from_record_batch(to_record_batch([value])) == [conform(value)]`. The fast path falls back to it for anything but the
exact Python types it expects, and to determine *which* value did not fit.

It accepts lossless conversions (a tuple or a dict for a ROW, an int for a DOUBLE, numpy numbers, subclasses) and
Flink's own rounding (DOUBLE to FLOAT). It never guesses: it accepts no strings for numbers, no bool for an int, no
truncated fractions, and no number that exceeds its width. None fits every type.
"""

from __future__ import annotations

import array
import datetime as dt
import decimal
import reprlib
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from millstream.common.time import Instant
from millstream.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DecimalTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from millstream.common.types import QuietNames, Row, RowKind, rows_from_columns
from millstream.errors import TypeMismatchError
from millstream.records.pickling import pickled
from millstream.records.shapes import is_byte_array, is_sequence, plain_type
from millstream.records.table_type import TableRowType, TableValueType, plain_equivalent
from millstream.records.table_values import UnfitValue, conformed

__all__ = ["INT_BITS", "conform"]

INT_BITS = {BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32, BasicType.LONG: 64}


class _MisfitError(Exception):
    """Raised for a nested value; callers prepend their step to `path`."""

    def __init__(self, value: Any, expected: str, path: str = "") -> None:
        super().__init__(expected)
        self.value = value
        self.expected = expected
        self.path = path

    def under(self, step: str) -> _MisfitError:
        separator = "." if self.path and not self.path.startswith("[") else ""
        return _MisfitError(self.value, self.expected, f"{step}{separator}{self.path}")


def conform(value: Any, type_info: TypeInformation) -> Any:
    """The value as seen by every reader of the stream.

    >>> conform(("a", 1), Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()]))
    Row(word='a', count=1)
    >>> conform(1.5, Types.INT())
    Traceback (most recent call last):
    millstream.errors.TypeMismatchError: 1.5 (float) does not fit INT: expected a whole number from -2147483648 \
to 2147483647. Produce a fitting value, or declare another type.
    """
    try:
        return _conform(value, type_info, top=True)
    except _MisfitError as misfit:
        shown = _short(value)
        problem = f"{shown} ({type(value).__name__}) does not fit {type_info}:"
        if misfit.path:
            problem = f"{shown} does not fit {type_info}: field {misfit.path} is {_short(misfit.value)} "
            problem += f"({type(misfit.value).__name__}),"
        raise TypeMismatchError(
            f"{problem} expected {misfit.expected}. Produce a fitting value, or declare another type.",
            value=value,
            path=misfit.path,
        ) from None


def _short(value: Any) -> str:
    """The value's repr, truncated to a line; a failing repr must not hide the real error."""
    try:
        text = repr(value)
    except Exception:
        return f"<{type(value).__name__} without a repr>"
    return text if len(text) <= 160 else f"{text[:120]} ... {text[-30:]}"


def _conform(value: Any, declared: TypeInformation, top: bool = False) -> Any:
    type_info = plain_type(declared)
    if value is None:
        if top and isinstance(type_info, TableRowType):
            raise _MisfitError(value, "a row, as a table has no record that is None")
        if isinstance(type_info, TableValueType) and not type_info.data_type.is_nullable:
            raise _MisfitError(value, "a value, as it is NOT NULL")
        return None
    if isinstance(type_info, TableValueType):
        return _table_value(value, type_info)
    if isinstance(type_info, BasicTypeInfo):
        return _BASIC[type_info.basic_type](value)
    if isinstance(type_info, RowTypeInfo):
        return _row(value, type_info, top)
    if isinstance(type_info, TupleTypeInfo):
        if not isinstance(value, (tuple, list)):
            raise _MisfitError(value, f"a tuple of {len(type_info.get_field_types())}")
        names = [f"f{i}" for i in range(len(type_info.get_field_types()))]
        return tuple(_fields(value, list(value), names, type_info.get_field_types()))
    if is_byte_array(type_info):
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise _MisfitError(value, "bytes")
        return bytes(value)
    if is_sequence(type_info):
        return _list(value, type_info.element_type)
    if isinstance(type_info, MapTypeInfo):
        return _map(value, type_info)
    if isinstance(type_info, DecimalTypeInfo):
        return _decimal(value, type_info)
    if type_info in _TEMPORAL:
        return _TEMPORAL[type_info](value)
    return _picklable(value)


def _table_value(value: Any, type_info: TableValueType) -> Any:
    equivalent = plain_equivalent(type_info.data_type)
    if equivalent is not None:
        return _conform(value, equivalent)
    try:
        return conformed(value, type_info.data_type)
    except UnfitValue as misfit:
        raise _MisfitError(value, str(misfit)) from None


def _row(value: Any, type_info: RowTypeInfo, top: bool) -> Row:
    names, types = type_info.get_field_names(), type_info.get_field_types()
    kind = RowKind.INSERT
    if isinstance(value, Row):
        kind = value.get_row_kind()
        if kind is not RowKind.INSERT and not top:
            raise _MisfitError(value, "a row of kind INSERT, as only whole records carry another")
        cells = _by_name(value, value._fields, dict(zip(value._fields or (), value, strict=False)), type_info)
    elif isinstance(value, dict):
        unknown = [name for name in value if name not in names]
        missing = [name for name in names if name not in value]
        if unknown or missing:
            raise _MisfitError(value, f"exactly the fields {names}")
        cells = [value[name] for name in names]
    elif isinstance(value, (tuple, list)):
        cells = list(value)
    else:
        raise _MisfitError(value, f"a Row, tuple or dict of {len(names)} fields")
    columns = [[cell] for cell in _fields(value, cells, names, types)]
    row = rows_from_columns(columns, names, count=1)[0]
    row.set_row_kind(kind)
    return row


def _by_name(value: Row, row_names: tuple[str, ...] | None, cells: dict[str, Any], type_info: RowTypeInfo) -> list[Any]:
    """A row's values in declared order: by name if both sides have explicit names, else by position."""
    names = type_info.get_field_names()
    is_quiet = type(row_names) is QuietNames
    plain = row_names is None or is_quiet or row_names == tuple(f"f{i}" for i in range(len(row_names)))
    if plain or not type_info.has_own_names:
        return list(value)
    if set(cells) != set(names) or len(cells) != len(value):
        raise _MisfitError(value, f"exactly the fields {names}")
    return [cells[name] for name in names]


def _fields(value: Any, cells: list[Any], names: list[str], types: list[TypeInformation]) -> list[Any]:
    if len(cells) != len(types):
        raise _MisfitError(value, f"{len(types)} fields, not {len(cells)}")
    return [_at(name, cell, field_type) for name, cell, field_type in zip(names, cells, types, strict=True)]


def _at(step: str, value: Any, type_info: TypeInformation) -> Any:
    try:
        return _conform(value, type_info)
    except _MisfitError as misfit:
        raise misfit.under(step) from None


def _list(value: Any, element_type: TypeInformation) -> list[Any]:
    if not isinstance(value, (list, tuple, array.array, np.ndarray)):
        raise _MisfitError(value, f"a list of {element_type}")
    return [_at(f"[{i}]", item, element_type) for i, item in enumerate(value)]


def _map(value: Any, type_info: MapTypeInfo) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise _MisfitError(value, f"a dict from {type_info.key_type} to {type_info.value_type}")
    if None in value:
        raise _MisfitError(value, "a dict without None among its keys")
    return {
        _at(f"[key {_short(key)}]", key, type_info.key_type): _at(f"[{_short(key)}]", item, type_info.value_type)
        for key, item in value.items()
    }


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _MisfitError(value, "a str")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _MisfitError(value, "text that UTF-8 can write (no lone surrogates)") from None
    return str.__str__(value)


def _char(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 1:
        raise _MisfitError(value, "a str of one character")
    return _text(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise _MisfitError(value, "True or False")
    return bool(value)


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _integer(bits: int) -> Callable[[Any], int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def convert(value: Any) -> int:
        if not _is_int(value) or not low <= value <= high:
            raise _MisfitError(value, f"a whole number from {low} to {high}")
        return int(value)

    return convert


def _big_int(value: Any) -> int:
    if not _is_int(value):
        raise _MisfitError(value, "a whole number")
    return int(value)


def _double(value: Any) -> float:
    if not _is_int(value) and not isinstance(value, (float, np.floating)):
        raise _MisfitError(value, "a float")
    try:
        return float(value)
    except OverflowError:
        raise _MisfitError(value, "a number that fits 64 bits of floating point") from None


def _float(value: Any) -> float:
    try:
        single: float = struct.unpack("<f", struct.pack("<f", _double(value)))[0]
    except OverflowError:
        raise _MisfitError(value, "a number that fits 32 bits of floating point (up to 3.4e38)") from None
    return single


def _big_dec(value: Any) -> decimal.Decimal:
    if _is_int(value):
        return decimal.Decimal(int(value))
    if not isinstance(value, decimal.Decimal):
        raise _MisfitError(value, "a decimal.Decimal")
    return decimal.Decimal(value)


def _decimal(value: Any, type_info: DecimalTypeInfo) -> decimal.Decimal:
    """The value with exactly the type's digits after the decimal point, without rounding."""
    precision, scale = type_info.precision, type_info.scale
    exact = decimal.Context(prec=precision, traps=[decimal.Inexact, decimal.InvalidOperation])
    try:
        fixed = _big_dec(value).quantize(decimal.Decimal(1).scaleb(-scale), context=exact)
    except (decimal.Inexact, decimal.InvalidOperation):
        fixed = decimal.Decimal("NaN")
    if not fixed.is_finite():
        raise _MisfitError(value, f"a number of at most {precision} digits, {scale} of them after the point")
    return fixed if fixed else abs(fixed)


def _instant(value: Any) -> Instant:
    if not isinstance(value, Instant) or not -(1 << 63) <= value.seconds < 1 << 63:
        raise _MisfitError(value, "an Instant")
    return Instant(int(value.seconds), int(value.nanos))


def _date(value: Any) -> dt.date:
    # A datetime is a date by inheritance, but its time of day would be lost.
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        raise _MisfitError(value, "a datetime.date")
    return dt.date(value.year, value.month, value.day)


def _time(value: Any) -> dt.time:
    if not isinstance(value, dt.time) or value.tzinfo is not None:
        raise _MisfitError(value, "a datetime.time without a zone")
    return dt.time(value.hour, value.minute, value.second, value.microsecond)


def _timestamp(value: Any) -> dt.datetime:
    if not isinstance(value, dt.datetime):
        raise _MisfitError(value, "a datetime.datetime")
    try:
        wall = value if value.tzinfo is None else value.astimezone(dt.UTC)
    except OverflowError:
        raise _MisfitError(value, "a datetime whose UTC time is within the years 1 to 9999") from None
    return dt.datetime(*wall.timetuple()[:6], wall.microsecond)


def _picklable(value: Any) -> Any:
    try:
        pickled(value)
    except Exception as refusal:
        raise _MisfitError(value, f"a value that can be pickled ({reprlib.repr(str(refusal))})") from None
    return value


_BASIC: dict[BasicType, Callable[[Any], Any]] = {
    BasicType.STRING: _text,
    BasicType.CHAR: _char,
    BasicType.BOOLEAN: _boolean,
    BasicType.FLOAT: _float,
    BasicType.DOUBLE: _double,
    BasicType.BIG_INT: _big_int,
    BasicType.BIG_DEC: _big_dec,
    BasicType.INSTANT: _instant,
    **{basic: _integer(bits) for basic, bits in INT_BITS.items()},
}

_TEMPORAL: dict[TypeInformation, Callable[[Any], Any]] = {
    Types.SQL_DATE(): _date,
    Types.SQL_TIME(): _time,
    Types.SQL_TIMESTAMP(): _timestamp,
}
