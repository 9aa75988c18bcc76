"""Bitmaps: sets of 32-bit integers, built from arrays, combined, counted and serialised. Their aggregates are in
`aggregates`."""

from __future__ import annotations

from millstream.expressions.data_type import DataType
from millstream.expressions.functions.signatures import BYTES, STRING, Parameter, Result, scalar
from millstream.expressions.nested_types import ArrayType
from millstream.expressions.types import (
    LENGTH_MAX,
    BigIntType,
    BitmapType,
    IntegralType,
    IntType,
    NullType,
    VarBinaryType,
)

__all__ = ["BITMAP"]

FAMILY = "bitmaps"


def _accept(type_: DataType) -> DataType | None:
    return BitmapType() if isinstance(type_, NullType | BitmapType) else None


def _numbers(type_: DataType) -> DataType | None:
    if isinstance(type_, NullType):
        return ArrayType(IntType())
    if isinstance(type_, ArrayType) and isinstance(type_.element_type, IntegralType | NullType):
        element = type_.element_type
        is_int = isinstance(element, NullType) or element.bits <= 32
        return ArrayType(IntType(element.is_nullable)) if is_int else None
    return None


BITMAP = Parameter("a bitmap", _accept)
_NUMBERS = Parameter("an array of INT", _numbers)


def _define(syntax: str, parameters: list[Parameter], result: Result, doc: str, may_fail: bool = False) -> None:
    method = syntax.split("(", 1)[0].lower()
    scalar(syntax, parameters, result, doc, FAMILY, may_fail=may_fail, is_expensive=True, method=method)


_define("BITMAP_BUILD(array)", [_NUMBERS], BitmapType(), "The set of an array's numbers; NULLs are ignored.")
_define("BITMAP_AND(bitmap, other)", [BITMAP, BITMAP], BitmapType(), "The intersection.")
_define("BITMAP_OR(bitmap, other)", [BITMAP, BITMAP], BitmapType(), "The union.")
_define("BITMAP_XOR(bitmap, other)", [BITMAP, BITMAP], BitmapType(), "The numbers in exactly one of the two.")
_define("BITMAP_ANDNOT(bitmap, other)", [BITMAP, BITMAP], BitmapType(), "The numbers not in the other.")
_define("BITMAP_CARDINALITY(bitmap)", [BITMAP], BigIntType(), "The number of elements.")
_define("BITMAP_TO_ARRAY(bitmap)", [BITMAP], ArrayType(IntType()), "Its numbers, in unsigned order.")
_define("BITMAP_TO_STRING(bitmap)", [BITMAP], STRING, "Its numbers as text, unsigned: {1,2,3}.")
_define(
    "BITMAP_TO_BYTES(bitmap)",
    [BITMAP],
    VarBinaryType(LENGTH_MAX),
    "Its bytes, in the Roaring bitmap format.",
)
_define(
    "BITMAP_FROM_BYTES(bytes)", [BYTES], BitmapType(), "The bitmap from bytes in the Roaring format.", may_fail=True
)
