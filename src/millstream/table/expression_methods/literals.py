"""Python values as literals, with Flink's types.

Only None becomes NULL; the type of every other literal is NOT NULL. A string is CHAR of its length, an integer INT or,
if needed, BIGINT; a Decimal has the precision of its digits. Lists, dicts and tuples become calls of ARRAY, MAP and
ROW, whose elements are literals.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millstream.common.types import Row
from millstream.expressions.coercion import stored_value
from millstream.expressions.data_type import DataType
from millstream.expressions.types import (
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntType,
    LocalZonedTimestampType,
    NullType,
    NumericType,
    TimestampType,
    TimeType,
    VarCharType,
)
from millstream.graph.site import refuse, refuse_type
from millstream.sql.syntax import Call, Expression, Literal, RowValue

__all__ = ["literal", "type_of_value"]

_INT_BITS, _LONG_BITS = 31, 63
_DIGITS_MAX = 38


def literal(value: Any, data_type: DataType | None = None) -> Expression:
    """The literal of a Python value, with its inferred or the requested type."""
    if data_type is not None:
        _check_fits(value, data_type)
        return Literal("VALUE", value, data_type if value is None else data_type.not_null())
    if isinstance(value, list):
        return Call("ARRAY", tuple(map(literal, value)))
    if isinstance(value, Mapping):
        return Call("MAP", tuple(literal(part) for item in value.items() for part in item))
    if isinstance(value, tuple | Row):
        return RowValue(tuple(map(literal, value)))
    return Literal("VALUE", *_plain(value))


def _check_fits(value: Any, data_type: DataType) -> None:
    """Rejects a value of another type or beyond the type's range, at the user's line."""
    if value is None or not isinstance(data_type, NumericType | BooleanType | CharType | VarCharType):
        return
    try:
        pa.array([stored_value(value, data_type)], data_type.arrow)
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError):
        raise refuse_type(
            f"lit: found {value!r} ({type(value).__name__}), expected a value of {data_type.nullable()}. Pass one, or "
            "leave the type out and call cast(...)"
        ) from None


def _plain(value: Any) -> tuple[Any, DataType]:
    """A Python value in its type's representation, and the type."""
    type_ = type_of_value(value)
    if type_ is None:
        raise refuse(
            f"found {value!r} ({type(value).__name__}) in an expression, expected a SQL value: a bool, a number, "
            "a string, bytes, a date or time, a list, a dict or a tuple. lit(value, data_type) sets another type"
        )
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC), type_
    return getattr(value, "item", lambda: value)(), type_


def type_of_value(value: Any) -> DataType | None:
    """The type of a scalar value; None if SQL lacks one.

    >>> str(type_of_value("ab")), str(type_of_value(3)), str(type_of_value(1 << 40))
    ('CHAR(2) NOT NULL', 'INT NOT NULL', 'BIGINT NOT NULL')
    """
    value = getattr(value, "item", lambda: value)()  # numpy scalars
    if value is None:
        return NullType()
    if isinstance(value, bool):
        return BooleanType(False)
    if isinstance(value, int):
        return _integer_type(value)
    if isinstance(value, float):
        return DoubleType(False)
    if isinstance(value, str):
        return CharType(len(value), False) if value else VarCharType(1, False)
    if isinstance(value, bytes | bytearray):
        return BinaryType(max(1, len(value)), False)
    if isinstance(value, Decimal):
        return _decimal_type(value)
    return _time_type(value)


def _integer_type(value: int) -> DataType:
    bits = (value if value >= 0 else ~value).bit_length()
    if bits <= _INT_BITS:
        return IntType(False)
    return BigIntType(False) if bits <= _LONG_BITS else _decimal_type(Decimal(value))


def _decimal_type(value: Decimal) -> DataType:
    if not value.is_finite():
        raise refuse(f"found {value} in an expression, expected a number: DECIMAL has no NaN and no infinity")
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision > _DIGITS_MAX:
        raise refuse(f"found {value} in an expression: DECIMAL has at most {_DIGITS_MAX} digits, this has {precision}")
    return DecimalType(precision, scale, False)


def _time_type(value: Any) -> DataType | None:
    if isinstance(value, datetime.datetime):
        digits = len(f"{value.microsecond:06d}".rstrip("0"))
        kind = TimestampType if value.tzinfo is None else LocalZonedTimestampType
        return kind(digits, False)
    if isinstance(value, datetime.date):
        return DateType(False)
    if isinstance(value, datetime.time):
        return TimeType(0 if value.microsecond == 0 else 3, False)
    if isinstance(value, datetime.timedelta):
        return DayTimeIntervalType(
            DayTimeIntervalType.DayTimeResolution.DAY_TO_SECOND, _days_digits(value), 3, nullable=False
        )
    return None


def _days_digits(value: datetime.timedelta) -> int:
    return max(1, len(str(abs(value.days))))
