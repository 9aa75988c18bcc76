"""`Types`: declares the types of a program's streams.

A declared type brings speed and safety: values travel as Arrow columns, state can be queried and evolved, and a value
of another type is rejected where it arises. Without one, values travel as pickles (`Types.PICKLED_BYTE_ARRAY()`), and
plans show that. The type classes are in `scalar_types` and `composite_types` and are all exported here, under PyFlink's
names.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.common.typeinfo.composite_types import (
    BasicArrayTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)
from millstream.common.typeinfo.decimal_type import DecimalTypeInfo
from millstream.common.typeinfo.scalar_types import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    InstantTypeInfo,
    LocalTimeTypeInfo,
    PickledBytesTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from millstream.pyflink_names import add_pyflink_names

__all__ = [
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "DateTypeInfo",
    "DecimalTypeInfo",
    "ExternalTypeInfo",
    "InstantTypeInfo",
    "ListTypeInfo",
    "LocalTimeTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
]


class Types:
    """Creates all types.

    >>> Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()]).get_field_names()
    ['word', 'count']
    >>> print(Types.MAP(Types.STRING(), Types.LIST(Types.DOUBLE())))
    MapTypeInfo<String, ListTypeInfo<Double>>
    """

    @staticmethod
    def STRING() -> TypeInformation:
        """Text: `str`."""
        return BasicTypeInfo.STRING_TYPE_INFO()

    @staticmethod
    def BYTE() -> TypeInformation:
        """A whole number of 8 bits: `int`."""
        return BasicTypeInfo.BYTE_TYPE_INFO()

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """`bool`."""
        return BasicTypeInfo.BOOLEAN_TYPE_INFO()

    @staticmethod
    def SHORT() -> TypeInformation:
        """A whole number of 16 bits: `int`."""
        return BasicTypeInfo.SHORT_TYPE_INFO()

    @staticmethod
    def INT() -> TypeInformation:
        """A whole number of 32 bits: `int`."""
        return BasicTypeInfo.INT_TYPE_INFO()

    @staticmethod
    def LONG() -> TypeInformation:
        """A whole number of 64 bits: `int`."""
        return BasicTypeInfo.LONG_TYPE_INFO()

    @staticmethod
    def FLOAT() -> TypeInformation:
        """A floating-point number of 32 bits: `float`, rounded to 32 bits."""
        return BasicTypeInfo.FLOAT_TYPE_INFO()

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """A floating-point number of 64 bits: `float`."""
        return BasicTypeInfo.DOUBLE_TYPE_INFO()

    @staticmethod
    def CHAR() -> TypeInformation:
        """A single character: `str` of length 1."""
        return BasicTypeInfo.CHAR_TYPE_INFO()

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """A whole number of any size: `int`."""
        return BasicTypeInfo.BIG_INT_TYPE_INFO()

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """A decimal number of any size: `decimal.Decimal`."""
        return BasicTypeInfo.BIG_DEC_TYPE_INFO()

    @staticmethod
    def DECIMAL(precision: int = 10, scale: int = 0) -> DecimalTypeInfo:
        """A decimal number of up to 38 digits, `scale` of them after the point: `decimal.Decimal` (beyond PyFlink)."""
        return DecimalTypeInfo(precision, scale)

    @staticmethod
    def INSTANT() -> TypeInformation:
        """A point on the UTC time line: `millstream.common.Instant`."""
        return BasicTypeInfo.INSTANT_TYPE_INFO()

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """`datetime.date`."""
        return SqlTimeTypeInfo.DATE()

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """`datetime.time` without a zone."""
        return SqlTimeTypeInfo.TIME()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """`datetime.datetime` without a zone; one with a zone is converted to UTC."""
        return SqlTimeTypeInfo.TIMESTAMP()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Any Python value; it travels as a pickle."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """A row whose fields are called f0, f1, and so on."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(field_names: Sequence[str], field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """A row with named fields."""
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:
        """A tuple of fixed length."""
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> PrimitiveArrayTypeInfo:
        """An array of numbers: `bytes` for BYTE, else a list."""
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> BasicArrayTypeInfo:
        """An array of single values: a list."""
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> ObjectArrayTypeInfo:
        """An array with elements of any type: a list."""
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> MapTypeInfo:
        """A dict."""
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> ListTypeInfo:
        """A list."""
        return ListTypeInfo(element_type_info)


add_pyflink_names(globals())
