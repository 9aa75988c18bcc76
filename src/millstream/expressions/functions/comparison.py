"""Comparisons: = <> < <= > >=, IS NULL, IS DISTINCT FROM, IN, GREATEST, LEAST.

Both sides are cast to their common type. A string compared with a date or time is parsed as such; a string compared
with a number is rejected, as in Flink. A comparison with NULL is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.expressions.coercion import common_type
from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import Arguments, Bind, Binding, SignatureError
from millstream.expressions.functions.signatures import ANY, STRING, refusal, same_as, scalar
from millstream.expressions.nanosecond_range import uncast_times
from millstream.expressions.nested_types import MapType, MultisetType, RawType
from millstream.expressions.types import (
    BitmapType,
    BooleanType,
    DateType,
    DecimalType,
    LocalZonedTimestampType,
    NullType,
    TimestampType,
    TimeType,
    VariantType,
    is_text,
)

__all__ = ["compared_type"]

FAMILY = "comparison"
_TIMES = (DateType, TimeType, TimestampType, LocalZonedTimestampType)


def compared_type(name: str, types: Sequence[DataType], syntax: str, *, in_order: bool = False) -> DataType:
    """The type in which values of these types are compared."""
    times = [type_ for type_ in types if isinstance(type_, _TIMES)]
    if times and all(isinstance(type_, (*_TIMES, NullType)) or is_text(type_) for type_ in types):
        types = [type_ for type_ in types if not is_text(type_)]
    common = common_type(types)
    if common is None:
        hint = " CAST one of them first." if any(is_text(t) for t in types) else ""
        error = refusal(name, syntax, "values of one type", types)
        raise SignatureError(error.message + hint)
    if isinstance(common, RawType | MapType | MultisetType | BitmapType | VariantType) and in_order:
        raise refusal(name, syntax, "values that have an order", types)
    return STRING if isinstance(common, NullType) else common


def _loses_digits(types: Sequence[DataType], common: DataType) -> bool:
    """Whether no decimal type holds all digits of these types before and after the point: 0.91 must not compare as
    1."""
    return isinstance(common, DecimalType) and any(
        isinstance(type_, DecimalType) and type_.scale > common.scale for type_ in types
    )


def _bind(name: str, *, is_known: bool = False, fewest: int = 2, most: int | None = 2, in_order: bool = False) -> Bind:
    """The rule of a comparison. `is_known`: the result is never NULL."""
    syntax = f"value {name} value" if most == 2 else f"value {name} (value, …)"

    def bind(arguments: Arguments) -> Binding:
        if len(arguments) < fewest or (most is not None and len(arguments) > most):
            raise refusal(name, syntax, "two values" if most == 2 else f"{fewest} or more values", arguments.types)
        common = compared_type(name, arguments.types, syntax, in_order=in_order)
        flags = [type_.is_nullable or isinstance(type_, NullType) for type_ in arguments.types]
        result = BooleanType(any(flags) and not is_known)
        if _loses_digits(arguments.types, common):
            return Binding(arguments.types, result)
        if (times := uncast_times(arguments.types, common)) is not None:
            return Binding(
                tuple(type_.with_nullability(flag) for type_, flag in zip(times, flags, strict=True)), result
            )
        return Binding(tuple(common.with_nullability(flag) for flag in flags), result)

    return bind


def _define() -> None:
    ordered = {
        "=": "Whether both are equal.",
        "<>": "Whether they differ.",
        "<": "Whether the first is less.",
        "<=": "Whether the first is not greater.",
        ">": "Whether the first is greater.",
        ">=": "Whether the first is not less.",
    }
    for name, doc in ordered.items():
        rule = _bind(name, in_order=name not in ("=", "<>"))
        scalar(f"value {name} value", (), BooleanType(), doc, FAMILY, name=name, bind=rule, may_fail=False)
    for name, doc in (
        ("IS DISTINCT FROM", "Whether they differ; NULLs are equal."),
        ("IS NOT DISTINCT FROM", "Whether they are equal; NULLs are equal."),
    ):
        rule = _bind(name, is_known=True)
        scalar(f"value {name} value", (), BooleanType(), doc, FAMILY, name=name, bind=rule, may_fail=False)
    for name, doc in (("IS NULL", "Whether it is NULL."), ("IS NOT NULL", "Whether it is not NULL.")):
        scalar(f"value {name}", [ANY], BooleanType(), doc, FAMILY, name=name, nulls="never", may_fail=False)
    within = "Whether it equals one of the values; unknown if none is equal and one is NULL."
    among = _bind("IN", most=None)
    scalar("value IN (value, …)", (), BooleanType(), within, FAMILY, name="IN", bind=among, may_fail=False)
    for name, doc in (
        ("GREATEST", "The greatest value; NULL if one is NULL."),
        ("LEAST", "The least value; NULL if one is NULL."),
    ):
        scalar(f"{name}(value, …)", (), same_as(0), doc, FAMILY, bind=_bind_extreme(name), may_fail=False)


def _bind_extreme(name: str) -> Bind:
    syntax = f"{name}(value, …)"

    def bind(arguments: Arguments) -> Binding:
        if len(arguments) < 1:
            raise refusal(name, syntax, "one or more values", arguments.types)
        common = compared_type(name, arguments.types, syntax, in_order=True)
        nullable = any(type_.is_nullable or isinstance(type_, NullType) for type_ in arguments.types)
        cast = tuple(common.with_nullability(type_.is_nullable) for type_ in arguments.types)
        return Binding(cast, common.with_nullability(nullable))

    return bind


_define()
