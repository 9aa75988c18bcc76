"""The stored form of SQL types: a list of the type's word, its nullability, and its parameters.

    ["BIGINT", false]   ["DECIMAL", true, 10, 2]   ["ARRAY", true, ["INT", true]]   ["ROW", true, ["n", ["INT", true]]]

Words never change their meaning; a new parameter would get a new word. Invariant: `sql_type_from` is the inverse of
`written_sql_type`.
"""

from __future__ import annotations

from typing import Any

from millstream.expressions import nested_types, types
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowField, RowType, StructuredType

__all__ = ["sql_type_from", "written_sql_type"]

_WORDS: dict[str, type[DataType]] = {
    "NULL": types.NullType,
    "CHAR": types.CharType,
    "VARCHAR": types.VarCharType,
    "BINARY": types.BinaryType,
    "VARBINARY": types.VarBinaryType,
    "BOOLEAN": types.BooleanType,
    "TINYINT": types.TinyIntType,
    "SMALLINT": types.SmallIntType,
    "INT": types.IntType,
    "BIGINT": types.BigIntType,
    "FLOAT": types.FloatType,
    "DOUBLE": types.DoubleType,
    "DECIMAL": types.DecimalType,
    "DATE": types.DateType,
    "TIME": types.TimeType,
    "TIMESTAMP": types.TimestampType,
    "TIMESTAMP_LTZ": types.LocalZonedTimestampType,
    "TIMESTAMP_TZ": types.ZonedTimestampType,
    "INTERVAL_MONTHS": types.YearMonthIntervalType,
    "INTERVAL_TIME": types.DayTimeIntervalType,
    "ARRAY": nested_types.ArrayType,
    "MAP": nested_types.MapType,
    "MULTISET": nested_types.MultisetType,
    "ROW": RowType,
    "STRUCTURED": StructuredType,
    "BITMAP": types.BitmapType,
    "VARIANT": types.VariantType,
    "RAW": nested_types.RawType,
}
_WORD_OF = {kind: word for word, kind in _WORDS.items()}
_RESOLUTIONS: dict[str, Any] = {
    "INTERVAL_MONTHS": types.YearMonthIntervalType.YearMonthResolution,
    "INTERVAL_TIME": types.DayTimeIntervalType.DayTimeResolution,
}


def written_sql_type(data_type: DataType) -> list[Any]:
    """The type as JSON.

    >>> written_sql_type(types.DecimalType(10, 2, False))
    ['DECIMAL', False, 10, 2]
    """
    word = _WORD_OF[type(data_type)]
    if isinstance(data_type, RowType):
        parts: list[Any] = [[field.name, written_sql_type(field.data_type)] for field in data_type.fields]
        if isinstance(data_type, StructuredType):
            parts.insert(0, data_type.class_name)
    else:
        parts = [written_sql_type(part) if isinstance(part, DataType) else part for part in data_type.parameters]
    if word in _RESOLUTIONS:
        parts[0] = parts[0].value
    return [word, data_type.is_nullable, *parts]


def sql_type_from(written: Any) -> DataType:
    """The type that `written_sql_type` wrote; ValueError, KeyError or TypeError if it did not."""
    word, is_nullable, *parts = written
    if word == "ROW":
        return RowType([RowField(name, sql_type_from(inner)) for name, inner in parts], is_nullable)
    if word == "STRUCTURED":
        fields = [RowField(name, sql_type_from(inner)) for name, inner in parts[1:]]
        return StructuredType(parts[0], fields, is_nullable)
    if word in _RESOLUTIONS:
        parts[0] = _RESOLUTIONS[word](parts[0])
    parameters = [sql_type_from(part) if isinstance(part, list) else part for part in parts]
    kind: Any = _WORDS[word]
    data_type: DataType = kind(*parameters, is_nullable)
    return data_type
