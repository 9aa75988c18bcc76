"""Python values of the Table API as constants: `lit(3)`, `lit(Decimal("1.5"))`, `lit([1, 2])`."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

from millstream.expressions.coercion import common_type
from millstream.expressions.data_type import DataType
from millstream.expressions.nanosecond_range import beyond_range, has_nanoseconds, is_within_range
from millstream.expressions.nested_types import ArrayType, MapType, RowType
from millstream.expressions.row_expressions import Literal
from millstream.expressions.types import (
    EPOCH,
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
    TimestampType,
    TimeType,
)
from millstream.sql.places import problem
from millstream.sql.syntax import Node

__all__ = ["check_range", "python_literal", "type_of_value"]


def python_literal(value: Any, type_: DataType | None, node: Node) -> Literal:
    """A Python value as a constant, of `type_` or an inferred type."""
    literal_type = type_ if type_ is not None else type_of_value(value)
    if literal_type is None:
        raise problem(f"{value!r} has no SQL type. Specify one: lit(value, DataTypes.…)", node)
    if value is not None and type_ is None:
        literal_type = literal_type.not_null()
    literal = Literal(literal_type, value)
    check_range(literal, f"the value {value}", node)
    return literal


def check_range(literal: Literal, subject: str, node: Node, nanoseconds: int = 0) -> None:
    """Rejects a time, plus `nanoseconds`, outside its type's range."""
    if has_nanoseconds(literal.type) and isinstance(literal.value, datetime.datetime):
        moment = literal.value if literal.value.tzinfo is None else literal.value.astimezone(datetime.UTC)
        micros = (moment.replace(tzinfo=None) - EPOCH) // datetime.timedelta(microseconds=1)
        if not is_within_range(micros * 1_000 + nanoseconds):
            raise problem(beyond_range(subject, literal.type), node)


def type_of_value(value: Any) -> DataType | None:
    """Flink's type for a Python value; None if Flink lacks one.

    >>> str(type_of_value(3)), str(type_of_value(2**40)), str(type_of_value("abc"))
    ('INT', 'BIGINT', 'CHAR(3)')
    """
    if value is None:
        return NullType()
    if isinstance(value, bool):
        return BooleanType()
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return IntType()
        return BigIntType() if -(2**63) <= value < 2**63 else None
    if isinstance(value, float):
        return DoubleType()
    if isinstance(value, str):
        return CharType(max(1, len(value)))
    if isinstance(value, bytes | bytearray):
        return BinaryType(max(1, len(value)))
    if isinstance(value, decimal.Decimal):
        digits, exponent = len(value.as_tuple().digits), int(value.as_tuple().exponent)
        scale = max(0, -exponent)
        return DecimalType(min(38, max(digits + max(0, exponent), scale, 1)), scale)
    return _type_of_time(value) or _type_of_collection(value)


def _type_of_time(value: Any) -> DataType | None:
    if isinstance(value, datetime.datetime):
        return LocalZonedTimestampType(6) if value.tzinfo else TimestampType(6)
    if isinstance(value, datetime.date):
        return DateType()
    if isinstance(value, datetime.time):
        return TimeType(0)
    return DayTimeIntervalType() if isinstance(value, datetime.timedelta) else None


def _type_of_collection(value: Any) -> DataType | None:
    if isinstance(value, list):
        element = common_type([type_of_value(each) or NullType() for each in value])
        return ArrayType(element) if element is not None else None
    if isinstance(value, dict):
        key = common_type([type_of_value(each) or NullType() for each in value])
        item = common_type([type_of_value(each) or NullType() for each in value.values()])
        return MapType(key, item) if key is not None and item is not None else None
    if isinstance(value, tuple):
        types = [type_of_value(each) or NullType() for each in value]
        return RowType.of([f"f{i}" for i in range(len(types))], types)
    return None
