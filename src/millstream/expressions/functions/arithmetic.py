"""Arithmetic: + - * / %, rounding, logarithms, trigonometry, random numbers.

Integer results are as narrow as the widest operand and wrap around, as in Java. Operations on a decimal and an integer
use decimals. The integer is not cast first; its digits only affect the result type. The kernels in `temporal` add times
and intervals; their result types are determined here, with the operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.expressions import decimals
from millstream.expressions.coercion import common_type, leading_type
from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import NOT_CONSTANT, Arguments, Binding
from millstream.expressions.functions.signatures import (
    BIGINT,
    DOUBLE,
    INT,
    NUMBER,
    STRING,
    TEXT,
    either,
    optional,
    refusal,
    same_as,
    scalar,
    signature,
)
from millstream.expressions.types import (
    LENGTH_MAX,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegralType,
    IntType,
    LocalZonedTimestampType,
    NullType,
    NumericType,
    TimestampType,
    TimeType,
    VarBinaryType,
    YearMonthIntervalType,
)

__all__: list[str] = []

FAMILY = "arithmetic"
_TIMES = (DateType, TimeType, TimestampType, LocalZonedTimestampType)
_INTERVALS = (YearMonthIntervalType, DayTimeIntervalType)
DigitsRule = Callable[[DecimalType, DecimalType], DecimalType]


def _operator(name: str, digits: DigitsRule) -> Callable[[Arguments], Binding]:
    """The type rule of a binary operator."""
    syntax = f"number {name} number"

    def bind(arguments: Arguments) -> Binding:
        if len(arguments) == 1 and name in ("+", "-"):
            return _bind_sign(name, arguments.types[0])
        if len(arguments) != 2:
            raise refusal(name, syntax, "two numbers", arguments.types)
        left, right = (
            _resolve_null(type_, other) for type_, other in zip(arguments.types, arguments.types[::-1], strict=True)
        )
        nullable = left.is_nullable or right.is_nullable
        temporal = _temporal_type(name, left, right)
        if temporal is not None:
            return Binding((left, right), temporal.with_nullability(nullable))
        if not isinstance(left, NumericType) or not isinstance(right, NumericType):
            expected = "two numbers, or a time and an interval" if name in ("+", "-") else "two numbers"
            raise refusal(name, syntax, expected, arguments.types)
        exact = isinstance(left, IntegralType | DecimalType) and isinstance(right, IntegralType | DecimalType)
        if name == "%" and not exact:
            raise refusal(name, syntax, "two integers or decimals", arguments.types)
        if exact and (isinstance(left, DecimalType) or isinstance(right, DecimalType)):
            first, second = decimals.as_decimal(left), decimals.as_decimal(right)
            # Without fractional digits, the remainder is as narrow as the divisor.
            is_whole = name == "%" and first.scale == second.scale == 0
            result = right if is_whole else digits(first, second)
            return Binding((left, right), result.with_nullability(nullable))
        common = leading_type([left, right])
        assert common is not None
        cast = (common.with_nullability(left.is_nullable), common.with_nullability(right.is_nullable))
        # The remainder is as narrow as the divisor.
        return Binding(cast, right.with_nullability(nullable) if name == "%" else common.with_nullability(nullable))

    return bind


def _resolve_null(type_: DataType, other: DataType) -> DataType:
    """NULL takes the type of the other operand."""
    if not isinstance(type_, NullType):
        return type_
    return IntType() if isinstance(other, NullType) else other.nullable()


def _temporal_type(name: str, left: DataType, right: DataType) -> DataType | None:
    """The result type if times or intervals are involved; otherwise None."""
    if name in ("+", "-"):
        if isinstance(left, _TIMES) and isinstance(right, _INTERVALS):
            return left
        if isinstance(left, _INTERVALS) and isinstance(right, _TIMES) and name == "+":
            return right
        if isinstance(left, _INTERVALS) and type(left) is type(right):
            return common_type([left, right])
    if name == "*" and isinstance(left, _INTERVALS) and isinstance(right, IntegralType):
        return left
    if name == "*" and isinstance(right, _INTERVALS) and isinstance(left, IntegralType):
        return right
    return None


def _bind_sign(name: str, type_: DataType) -> Binding:
    if isinstance(type_, NullType):
        type_ = IntType()
    if not isinstance(type_, NumericType | YearMonthIntervalType | DayTimeIntervalType):
        raise refusal(name, f"{name} number", "a number", [type_])
    return Binding((type_,), type_)


def _define_operators() -> None:
    rules: dict[str, tuple[DigitsRule, str, bool]] = {
        "+": (decimals.sum_type, "The sum; for a time and an interval, the time moved.", False),
        "-": (decimals.sum_type, "The difference, or the negated value.", False),
        "*": (decimals.product_type, "The product.", False),
        "/": (decimals.quotient_type, "The quotient; truncated for integers.", True),
        "%": (decimals.remainder_type, "The remainder of a division, with the sign of the dividend.", True),
    }
    for name, (digits, doc, may_fail) in rules.items():
        scalar(
            f"number {name} number",
            (),
            DoubleType(),
            doc,
            FAMILY,
            name=name,
            bind=_operator(name, digits),
            may_fail=may_fail,
        )
    mod = _operator("%", decimals.remainder_type)
    scalar("MOD(dividend, divisor)", (), DoubleType(), rules["%"][1], FAMILY, bind=mod)


def _without_scale(arguments: Arguments) -> DataType:
    """A decimal type without its fractional digits; other types are unchanged."""
    type_ = arguments.types[0]
    return DecimalType(type_.precision, 0) if isinstance(type_, DecimalType) else type_


def _rounded_type(arguments: Arguments) -> DataType:
    """The type of ROUND. The scale of a decimal result is known if the number of digits is constant."""
    type_ = arguments.types[0]
    if not isinstance(type_, DecimalType):
        return type_
    digits = arguments.constant(1) if len(arguments) > 1 else 0
    if digits is NOT_CONSTANT or digits is None:
        return type_
    return decimals.rounded_type(type_, digits)


def _bind_floor(name: str) -> Callable[[Arguments], Binding]:
    """The rule of CEIL and FLOOR, for numbers or for times with a unit."""
    numbers = signature(name, f"{name}(number)", [NUMBER], _without_scale)

    def bind(arguments: Arguments) -> Binding:
        if arguments.types and isinstance(arguments.types[0], _TIMES) and (arguments.options or len(arguments) > 1):
            return Binding(arguments.types, arguments.types[0])
        return numbers(arguments)

    return bind


def _define_rounding() -> None:
    scalar("ABS(number)", [NUMBER], same_as(0), "The absolute value.", FAMILY, may_fail=False)
    for name, doc in (
        ("CEIL", "The number rounded up to an integer."),
        ("FLOOR", "The number rounded down to an integer."),
    ):
        scalar(f"{name}(number)", (), DoubleType(), doc, FAMILY, bind=_bind_floor(name), may_fail=False)
    scalar(
        "CEILING(number)",
        (),
        DoubleType(),
        "The number rounded up to an integer.",
        FAMILY,
        bind=_bind_floor("CEILING"),
        may_fail=False,
    )
    with_digits = [NUMBER, optional(INT)]
    scalar(
        "ROUND(number, digits)",
        with_digits,
        _rounded_type,
        "Rounded to a number of digits, half away from zero.",
        FAMILY,
        may_fail=False,
    )
    scalar(
        "TRUNCATE(number, digits)",
        with_digits,
        _rounded_type,
        "Truncated to a number of digits.",
        FAMILY,
        may_fail=False,
    )
    scalar("SIGN(number)", [NUMBER], same_as(0), "-1, 0 or 1.", FAMILY, may_fail=False)


def _define_functions() -> None:
    one = {
        "SQRT": "The square root.",
        "LN": "The natural logarithm.",
        "LOG2": "The logarithm to base 2.",
        "LOG10": "The logarithm to base 10.",
        "EXP": "e to the power of the number.",
        "SIN": "The sine.",
        "COS": "The cosine.",
        "TAN": "The tangent.",
        "COT": "The cotangent.",
        "ASIN": "The arc sine.",
        "ACOS": "The arc cosine.",
        "ATAN": "The arc tangent.",
        "SINH": "The hyperbolic sine.",
        "COSH": "The hyperbolic cosine.",
        "TANH": "The hyperbolic tangent.",
        "DEGREES": "Radians as degrees.",
        "RADIANS": "Degrees as radians.",
    }
    double = DoubleType()
    for name, doc in one.items():
        scalar(f"{name}(number)", [DOUBLE], double, doc, FAMILY, may_fail=False)
    scalar("POWER(base, exponent)", [DOUBLE, DOUBLE], double, "The base to a power.", FAMILY, may_fail=False)
    scalar("ATAN2(y, x)", [DOUBLE, DOUBLE], double, "The angle of the point (x, y).", FAMILY, may_fail=False)
    logarithm = "The natural logarithm, or the logarithm to a base: LOG(base, number)."
    scalar("LOG(base, number)", [DOUBLE, optional(DOUBLE)], double, logarithm, FAMILY, may_fail=False)
    scalar("PI()", [], double, "π.", FAMILY, nulls="never", may_fail=False)
    scalar("E()", [], double, "e.", FAMILY, nulls="never", may_fail=False)
    random: dict[str, Any] = {"deterministic": False, "may_fail": False}
    seeding = (
        "With a constant seed each subtask follows Java's sequence; with a column, each row gets its seed's first."
    )
    scalar(
        "RAND(seed)", [optional(INT)], double, f"A random number from 0 up to 1, exclusive. {seeding}", FAMILY, **random
    )
    below = (
        f"A random integer from 0 up to a bound, exclusive: RAND_INTEGER(bound), RAND_INTEGER(seed, bound). {seeding}"
    )
    scalar("RAND_INTEGER(seed, bound)", [INT, optional(INT)], IntType(), below, FAMILY, deterministic=False)


def _define_digits() -> None:
    number_or_text = either("an integer or text", BIGINT, TEXT)
    scalar("BIN(number)", [BIGINT], STRING, "The binary digits.", FAMILY, may_fail=False, is_expensive=True)
    hexadecimal = "The hexadecimal digits of a number, or of the bytes of text."
    scalar("HEX(value)", [number_or_text], STRING, hexadecimal, FAMILY, may_fail=False, is_expensive=True)
    of_digits = "The bytes of hexadecimal digits; NULL for other characters."
    bytes_ = VarBinaryType(LENGTH_MAX)
    scalar("UNHEX(text)", [TEXT], bytes_, of_digits, FAMILY, nulls="always", may_fail=False, is_expensive=True)


_define_operators()
_define_rounding()
_define_functions()
_define_digits()
