"""Resolves type syntax to types: `DECIMAL(10, 2) NOT NULL`, `ROW<a INT>`, `TIMESTAMP_LTZ(3)`."""

from __future__ import annotations

from collections.abc import Callable

from millstream.errors import ProgramError, did_you_mean
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import (
    ArrayType,
    MapType,
    MultisetType,
    RawType,
    RowField,
    RowType,
    StructuredType,
)
from millstream.expressions.types import (
    LENGTH_MAX,
    BigIntType,
    BinaryType,
    BitmapType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    NullType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    VariantType,
    YearMonthIntervalType,
    ZonedTimestampType,
)
from millstream.sql.places import problem
from millstream.sql.syntax import TypeName

__all__ = ["data_type"]


def _varchar(length: int = LENGTH_MAX) -> DataType:
    """VARCHAR without a length is unbounded in SQL."""
    return VarCharType(length)


def _varbinary(length: int = LENGTH_MAX) -> DataType:
    return VarBinaryType(length)


_PLAIN: dict[str, Callable[[], DataType]] = {
    "BOOLEAN": BooleanType,
    "TINYINT": TinyIntType,
    "SMALLINT": SmallIntType,
    "INT": IntType,
    "INTEGER": IntType,
    "BIGINT": BigIntType,
    "FLOAT": FloatType,
    "DOUBLE": DoubleType,
    "DOUBLE PRECISION": DoubleType,
    "DATE": DateType,
    "STRING": lambda: VarCharType(LENGTH_MAX),
    "BYTES": lambda: VarBinaryType(LENGTH_MAX),
    "NULL": NullType,
    "BITMAP": BitmapType,
    "VARIANT": VariantType,
}
_SIZED: dict[str, tuple[Callable[..., DataType], int]] = {  # with the maximum number of parameters
    "CHAR": (CharType, 1),
    "CHARACTER": (CharType, 1),
    "VARCHAR": (_varchar, 1),
    "CHAR VARYING": (_varchar, 1),
    "CHARACTER VARYING": (_varchar, 1),
    "BINARY": (BinaryType, 1),
    "VARBINARY": (_varbinary, 1),
    "BINARY VARYING": (_varbinary, 1),
    "DECIMAL": (DecimalType, 2),
    "DEC": (DecimalType, 2),
    "NUMERIC": (DecimalType, 2),
    "TIME": (TimeType, 1),
    "TIME WITHOUT TIME ZONE": (TimeType, 1),
    "TIMESTAMP": (TimestampType, 1),
    "TIMESTAMP WITHOUT TIME ZONE": (TimestampType, 1),
    "TIMESTAMP_LTZ": (LocalZonedTimestampType, 1),
    "TIMESTAMP WITH LOCAL TIME ZONE": (LocalZonedTimestampType, 1),
    "TIMESTAMP WITH TIME ZONE": (ZonedTimestampType, 1),
    "TIMESTAMP_TZ": (ZonedTimestampType, 1),
}
_NESTED = ("ARRAY", "MAP", "MULTISET", "ROW", "RAW", "STRUCTURED")


def data_type(name: TypeName | DataType) -> DataType:
    """The type of a type's syntax; types from the Table API are returned unchanged.

    >>> str(data_type(TypeName("DECIMAL", (10, 2), nullable=False)))
    'DECIMAL(10, 2) NOT NULL'
    """
    if isinstance(name, DataType):
        return name
    try:
        return _plain_type(name).with_nullability(name.nullable)
    except ProgramError as error:
        if getattr(error, "line", None) is not None:
            raise
        raise problem(error.message, name) from None


def _plain_type(written: TypeName) -> DataType:
    """The type without NOT NULL."""
    name = written.name.upper()
    if name in _PLAIN:
        if written.arguments:
            raise problem(f"the type {name} has no parameters: write {name} alone", written)
        return _PLAIN[name]()
    if name in _SIZED:
        made, parameters_max = _SIZED[name]
        if len(written.arguments) > parameters_max:
            raise problem(f"the type {name} has at most {parameters_max} parameters", written)
        return made(*written.arguments)
    if name.startswith("INTERVAL"):
        return _interval(name, written)
    if name in _NESTED:
        return _nested(name, written)
    known = [*_PLAIN, *_SIZED, *_NESTED, "INTERVAL"]
    raise problem(f"unknown type '{written.name}'.{did_you_mean(name, known)}", written)


def _nested(name: str, written: TypeName) -> DataType:
    inside = [data_type(each) for each in written.elements]
    if name == "ROW":
        comments = written.comments or (None,) * len(inside)
        names = written.fields or tuple(f"f{i}" for i in range(len(inside)))
        return RowType([RowField(*field) for field in zip(names, inside, comments, strict=True)])
    if name == "STRUCTURED":
        fields = [RowField(*field) for field in zip(written.fields, inside, strict=True)]
        return StructuredType(str(written.comments[0]), fields)
    if name == "RAW":
        return RawType()
    wanted = 2 if name == "MAP" else 1
    if len(inside) != wanted:
        raise problem(f"the type {name} has {wanted} type{'s' if wanted > 1 else ''} inside", written)
    if name == "MAP":
        return MapType(inside[0], inside[1])
    return ArrayType(inside[0]) if name == "ARRAY" else MultisetType(inside[0])


def _interval(name: str, written: TypeName) -> DataType:
    units = name.removeprefix("INTERVAL").strip() or "DAY TO SECOND"
    if units.startswith(("YEAR", "MONTH")):
        resolution = YearMonthIntervalType.YearMonthResolution(units)
        return YearMonthIntervalType(resolution, written.arguments[0] if written.arguments else 2)
    first, second = (*written.arguments, *(2, 6)[len(written.arguments) :])[:2]
    return DayTimeIntervalType(DayTimeIntervalType.DayTimeResolution(units), first, second)
