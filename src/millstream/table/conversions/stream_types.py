"""Maps a DataStream's type to table columns.

A row has one column per field, a tuple `f0`, `f1`, …, any other type one column, `f0`. Records of an untyped stream are
RAW, because only Python can interpret them.
"""

from __future__ import annotations

from millstream.common.typeinfo import (
    BasicTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from millstream.common.typeinfo.composite_types import ExternalTypeInfo, PrimitiveArrayTypeInfo, SequenceTypeInfo
from millstream.common.typeinfo.decimal_type import DecimalTypeInfo
from millstream.expressions import nested_types, types
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.records.table_type import TableRowType, TableValueType

__all__ = ["columns_of_stream", "data_type_of"]

_STRING = types.VarCharType(types.LENGTH_MAX)
_PLAIN: dict[TypeInformation, DataType] = {
    Types.STRING(): _STRING,
    Types.CHAR(): _STRING,
    Types.BOOLEAN(): types.BooleanType(),
    Types.BYTE(): types.TinyIntType(),
    Types.SHORT(): types.SmallIntType(),
    Types.INT(): types.IntType(),
    Types.LONG(): types.BigIntType(),
    Types.FLOAT(): types.FloatType(),
    Types.DOUBLE(): types.DoubleType(),
    Types.BIG_INT(): types.DecimalType(38, 0),
    Types.BIG_DEC(): types.DecimalType(38, 18),
    Types.SQL_DATE(): types.DateType(),
    Types.SQL_TIME(): types.TimeType(0),
    Types.SQL_TIMESTAMP(): types.TimestampType(3),
    Types.INSTANT(): types.LocalZonedTimestampType(6),
}


def columns_of_stream(type_info: TypeInformation | None) -> RowType:
    """The names and types of a stream's columns."""
    if isinstance(type_info, TableRowType):
        return type_info.row_type
    if isinstance(type_info, RowTypeInfo):
        return _row(type_info, type_info.get_field_names())
    if isinstance(type_info, TupleTypeInfo):
        return _row(type_info, [f"f{place}" for place in range(len(type_info.get_field_types()))])
    return RowType.of(["f0"], [data_type_of(type_info)], nullable=False)


def _row(type_info: RowTypeInfo | TupleTypeInfo, names: list[str]) -> RowType:
    return RowType.of(list(names), [data_type_of(each) for each in type_info.get_field_types()], nullable=False)


def data_type_of(type_info: TypeInformation | None) -> DataType:
    """The SQL type that corresponds to a stream's type; RAW if SQL lacks one."""
    if isinstance(type_info, TableValueType):
        return type_info.data_type
    if isinstance(type_info, ExternalTypeInfo):
        return data_type_of(type_info._type_info)
    if isinstance(type_info, DecimalTypeInfo):
        return types.DecimalType(type_info._precision, type_info._scale)
    if isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        return columns_of_stream(type_info).nullable()
    if isinstance(type_info, MapTypeInfo):
        return nested_types.MapType(data_type_of(type_info._key_type_info), data_type_of(type_info._value_type_info))
    if isinstance(type_info, PrimitiveArrayTypeInfo) and type_info._element_type == Types.BYTE():
        return types.VarBinaryType(types.LENGTH_MAX)
    if isinstance(type_info, SequenceTypeInfo):
        return nested_types.ArrayType(data_type_of(type_info._element_type))
    if isinstance(type_info, BasicTypeInfo | TypeInformation) and type_info in _PLAIN:
        return _PLAIN[type_info]
    return nested_types.RawType()
