"""Type coercion: the common type of several types, and casts of expressions to a type.

`common_type` is Flink's rule for CASE, IN, UNION, comparisons and functions whose arguments must have one type.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from functools import partial, reduce
from numbers import Number, Real
from typing import Any

import pyarrow as pa

from millstream.expressions.casts import can_cast
from millstream.expressions.data_type import DataType
from millstream.expressions.decimals import DIGITS_MAX, as_decimal
from millstream.expressions.nested_types import ArrayType, MapType, MultisetType, RowField, RowType, StructuredType
from millstream.expressions.row_expressions import Call, Literal, RowExpression
from millstream.expressions.types import (
    BinaryType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LocalZonedTimestampType,
    NullType,
    NumericType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)

__all__ = ["arrow_value", "as_type", "can_cast", "common_type", "leading_type", "stored_value"]


def common_type(types: Sequence[DataType]) -> DataType | None:
    """The type to which values of all these types can be cast without loss, or None.

    >>> from millstream.expressions.types import BigIntType, IntType
    >>> str(common_type([IntType(False), BigIntType()])), str(common_type([DecimalType(4, 3), IntType()]))
    ('BIGINT', 'DECIMAL(13, 3)')
    >>> common_type([IntType(), DateType()]) is None
    True
    """
    if not types:
        return None
    nullable = any(type_.is_nullable or isinstance(type_, NullType) for type_ in types)
    known = [type_ for type_ in types if not isinstance(type_, NullType)]
    if not known:
        return NullType()
    first: DataType | None = known[0]
    merged = reduce(_merge, known[1:], first)
    return None if merged is None else merged.with_nullability(nullable)


def leading_type(types: Sequence[DataType]) -> DataType | None:
    """The common type for operators and CASE: of FLOAT and DOUBLE, the one listed first.

    >>> str(leading_type([FloatType(), DoubleType()])), str(common_type([FloatType(), DoubleType()]))
    ('FLOAT', 'DOUBLE')
    """
    common = common_type(types)
    floats = [type_ for type_ in types if isinstance(type_, FloatType | DoubleType)]
    if isinstance(common, DoubleType) and floats and not any(isinstance(type_, DecimalType) for type_ in types):
        return floats[0].with_nullability(common.is_nullable)
    return common


def _merge(left: DataType | None, right: DataType) -> DataType | None:
    """The common type of two types, regardless of nullability."""
    if left is None or left.is_like(right):
        return left
    if isinstance(left, NumericType) and isinstance(right, NumericType):
        return _merge_numbers(left, right)
    if isinstance(left, CharType | VarCharType) and isinstance(right, CharType | VarCharType):
        return VarCharType(max(left.length, right.length))
    if isinstance(left, BinaryType | VarBinaryType) and isinstance(right, BinaryType | VarBinaryType):
        return VarBinaryType(max(left.length, right.length))
    return _merge_times(left, right) or _merge_nested(left, right)


def _merge_numbers(left: NumericType, right: NumericType) -> DataType:
    if isinstance(left, IntegralType) and isinstance(right, IntegralType):
        return left if left.bits > right.bits else right
    if isinstance(left, DoubleType) or isinstance(right, DoubleType):
        return DoubleType()
    if isinstance(left, FloatType) or isinstance(right, FloatType):
        return DoubleType() if isinstance(left, DecimalType) or isinstance(right, DecimalType) else FloatType()
    first, second = as_decimal(left), as_decimal(right)
    scale = max(first.scale, second.scale)
    whole_digits = max(first.precision - first.scale, second.precision - second.scale)
    # Digits before the point take precedence over fractional digits.
    scale = max(0, min(scale, DIGITS_MAX - whole_digits))
    return DecimalType(min(DIGITS_MAX, whole_digits + scale), scale)


def _merge_times(left: DataType, right: DataType) -> DataType | None:
    times = (DateType, TimestampType, LocalZonedTimestampType)
    if isinstance(left, times) and isinstance(right, times):
        precision = max(getattr(left, "precision", 0), getattr(right, "precision", 0))
        if isinstance(left, LocalZonedTimestampType) or isinstance(right, LocalZonedTimestampType):
            return LocalZonedTimestampType(precision)
        return TimestampType(precision)
    if isinstance(left, TimeType) and isinstance(right, TimeType):
        return TimeType(max(left.precision, right.precision))
    if isinstance(left, YearMonthIntervalType) and isinstance(right, YearMonthIntervalType):
        resolution = YearMonthIntervalType.YearMonthResolution.YEAR_TO_MONTH
        return YearMonthIntervalType(resolution, max(left.precision, right.precision))
    if isinstance(left, DayTimeIntervalType) and isinstance(right, DayTimeIntervalType):
        return DayTimeIntervalType(
            DayTimeIntervalType.DayTimeResolution.DAY_TO_SECOND,
            max(left.day_precision, right.day_precision),
            max(left.fractional_precision, right.fractional_precision),
        )
    return None


def _merge_nested(left: DataType, right: DataType) -> DataType | None:
    if isinstance(left, ArrayType | MultisetType) and isinstance(right, ArrayType | MultisetType):
        element = common_type([left.element_type, right.element_type])
        if element is not None and type(left) is type(right):
            return type(left)(element)
    if isinstance(left, MapType) and isinstance(right, MapType):
        key, value = common_type([left.key_type, right.key_type]), common_type([left.value_type, right.value_type])
        if key is not None and value is not None:
            return MapType(key, value)
    if isinstance(left, StructuredType) or isinstance(right, StructuredType):
        return None  # one class with different fields, or two classes
    if isinstance(left, RowType) and isinstance(right, RowType) and len(left.fields) == len(right.fields):
        types = [common_type(pair) for pair in zip(left.types, right.types, strict=True)]
        if all(type_ is not None for type_ in types):
            return RowType([RowField(name, type_) for name, type_ in zip(left.names, types, strict=True) if type_])
    return None


def as_type(expression: RowExpression, type_: DataType) -> RowExpression:
    """Coerces an expression to a type: unchanged if it already fits, otherwise with a CAST. Nullability is preserved.

    >>> from millstream.expressions.types import BigIntType, IntType
    >>> str(as_type(Literal(IntType(False), 3), BigIntType()).type)
    'BIGINT NOT NULL'
    """
    nullable = expression.type.is_nullable or isinstance(expression.type, NullType)
    target = type_.with_nullability(nullable)
    if expression.type.is_like(type_) or _is_wider_text(expression.type, type_):
        return expression
    if isinstance(expression, Literal):
        if expression.value is None:
            return Literal(target, None)
        if isinstance(expression.type, IntegralType):
            if isinstance(type_, IntegralType) and type_.bits >= expression.type.bits:
                return Literal(target, expression.value)
            if isinstance(type_, DecimalType) and len(str(abs(expression.value))) <= type_.precision - type_.scale:
                return Literal(target, decimal.Decimal(expression.value))
            if isinstance(type_, DoubleType):
                return Literal(target, float(expression.value))
    return Call(target, "CAST", (expression,))


def _is_wider_text(from_: DataType, to: DataType) -> bool:
    """Whether a string or byte type is only widened, which leaves the values unchanged."""
    if isinstance(from_, CharType | VarCharType) and isinstance(to, VarCharType):
        return to.length >= from_.length
    return isinstance(from_, BinaryType | VarBinaryType) and isinstance(to, VarBinaryType) and to.length >= from_.length


def arrow_value(literal: Literal) -> pa.Scalar:
    """A literal's value as an Arrow scalar."""
    return pa.scalar(stored_value(literal.value, literal.type), literal.type.arrow)


def stored_value(value: Any, type_: DataType, converts_numbers: bool = False) -> Any:
    """A value for Arrow's constructors: rows become dicts, maps lists of pairs. `converts_numbers` converts numbers of
    other Python types, truncating fractions for integer types."""
    if value is None:
        return None
    convert = partial(stored_value, converts_numbers=converts_numbers)
    if isinstance(type_, ArrayType):
        return [convert(each, type_.element_type) for each in value]
    if isinstance(type_, MapType):
        pairs = value.items() if isinstance(value, dict) else value
        return [(convert(k, type_.key_type), convert(v, type_.value_type)) for k, v in pairs]
    if isinstance(type_, MultisetType):
        pairs = value.items() if isinstance(value, dict) else value
        return [(convert(k, type_.element_type), count) for k, count in pairs]
    if isinstance(type_, RowType):
        values = [value[name] for name in type_.names] if isinstance(value, dict) else list(value)
        return {f.name: convert(v, f.data_type) for f, v in zip(type_.fields, values, strict=True)}
    if isinstance(type_, DecimalType):
        return decimal.Decimal(value).quantize(decimal.Decimal((0, (1,), -type_.scale)), context=_EXACT)
    if converts_numbers and isinstance(value, Number):
        return _convert_number(value, type_)
    if isinstance(type_, IntegralType) and not hasattr(value, "__index__"):
        raise TypeError(f"{value!r} is not an integer")  # Arrow would truncate the fraction
    return value


def _convert_number(value: Any, type_: DataType) -> Any:
    """Converts a number to the type, towards zero; values that are not numbers pass unchanged."""
    if isinstance(type_, IntegralType):
        return int(value)
    return (
        float(value)
        if isinstance(type_, FloatType | DoubleType) and isinstance(value, Real | decimal.Decimal)
        else value
    )


_EXACT = decimal.Context(prec=76, rounding=decimal.ROUND_HALF_UP)
