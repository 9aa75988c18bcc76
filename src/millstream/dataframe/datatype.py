"""The types of data frames, with names as in Arrow and pandas; each corresponds to one SQL type."""

from __future__ import annotations

from typing import Any

from millstream.expressions import data_type as sql
from millstream.expressions import nested_types, types
from millstream.graph.site import refuse

__all__ = ["DataType"]


class DataType:
    """A type of a column.

    >>> DataType.list(DataType.int64()), DataType.struct({"a": DataType.string().not_null()})
    (DataType(ARRAY<BIGINT>), DataType(ROW<`a` STRING NOT NULL>))
    """

    def __init__(self, table_data_type: sql.DataType) -> None:
        if not isinstance(table_data_type, sql.DataType):
            raise refuse(f"DataType: found {table_data_type!r}, expected a type of the Table API, as DataTypes.INT()")
        self.table_data_type = table_data_type

    def not_null(self) -> DataType:
        """The same type, NOT NULL."""
        return DataType(self.table_data_type.not_null())

    def nullable(self) -> DataType:
        """The same type, nullable."""
        return DataType(self.table_data_type.nullable())

    @classmethod
    def int8(cls) -> DataType:
        return cls(types.TinyIntType())

    @classmethod
    def int16(cls) -> DataType:
        return cls(types.SmallIntType())

    @classmethod
    def int32(cls) -> DataType:
        return cls(types.IntType())

    @classmethod
    def int64(cls) -> DataType:
        return cls(types.BigIntType())

    @classmethod
    def float32(cls) -> DataType:
        return cls(types.FloatType())

    @classmethod
    def float64(cls) -> DataType:
        return cls(types.DoubleType())

    @classmethod
    def decimal(cls, precision: int, scale: int) -> DataType:
        return cls(types.DecimalType(precision, scale))

    @classmethod
    def string(cls) -> DataType:
        return cls(types.VarCharType(types.LENGTH_MAX))

    @classmethod
    def fixed_size_string(cls, length: int) -> DataType:
        return cls(types.CharType(length))

    @classmethod
    def binary(cls) -> DataType:
        return cls(types.VarBinaryType(types.LENGTH_MAX))

    @classmethod
    def fixed_size_binary(cls, length: int) -> DataType:
        return cls(types.BinaryType(length))

    @classmethod
    def bool(cls) -> DataType:
        return cls(types.BooleanType())

    @classmethod
    def null(cls) -> DataType:
        return cls(types.NullType())

    @classmethod
    def date(cls) -> DataType:
        return cls(types.DateType())

    @classmethod
    def time(cls, precision: int = 0) -> DataType:
        return cls(types.TimeType(precision))

    @classmethod
    def timestamp(cls, precision: int = 6) -> DataType:
        return cls(types.TimestampType(precision))

    @classmethod
    def timestamp_ltz(cls, precision: int = 6) -> DataType:
        return cls(types.LocalZonedTimestampType(precision))

    @classmethod
    def list(cls, dtype: DataType) -> DataType:
        return cls(nested_types.ArrayType(dtype.table_data_type))

    @classmethod
    def map(cls, key_type: DataType, value_type: DataType) -> DataType:
        return cls(nested_types.MapType(key_type.table_data_type, value_type.table_data_type))

    @classmethod
    def struct(cls, fields: dict[str, DataType]) -> DataType:
        """A row of named fields."""
        return cls(row_type("struct", fields))

    def __eq__(self, other: object) -> Any:
        return isinstance(other, DataType) and self.table_data_type == other.table_data_type

    def __hash__(self) -> int:
        return hash(self.table_data_type)

    def __repr__(self) -> str:
        return f"DataType({self.table_data_type})"


def row_type(method: str, fields: Any) -> nested_types.RowType:
    """The row type of a schema written as a dict of names and types."""
    if not isinstance(fields, dict) or not fields:
        raise refuse(f"{method}: found {fields!r} as the schema, expected names and types: {{'id': DataType.int64()}}")
    for name, each in fields.items():
        if not isinstance(name, str) or not isinstance(each, DataType):
            raise refuse(f"{method}: found {name!r}: {each!r} in the schema, expected a name and a DataType")
    return nested_types.RowType.of(list(fields), [each.table_data_type for each in fields.values()])
