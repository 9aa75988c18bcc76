"""The Avro schema of a table's rows: Flink's mapping of SQL types.

A nullable column is a union with null. TIMESTAMP is timestamp-millis or timestamp-micros, as in Flink's legacy mapping,
which is its default; with 'avro.timestamp_mapping.legacy' = 'false' it is a local-timestamp. TIMESTAMP_LTZ is a
timestamp in both: Flink's default rejects it, because other readers cannot distinguish it from TIMESTAMP.
"""

from __future__ import annotations

from typing import Any

from millstream.connectors.tables.formats.format import conversion_advice
from millstream.errors import ProgramError
from millstream.expressions import types
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, MapType, MultisetType, RowType
from millstream.expressions.types import is_text

__all__ = ["avro_schema"]

_PLAIN: dict[type[DataType], Any] = {
    types.BooleanType: "boolean",
    types.TinyIntType: "int",
    types.SmallIntType: "int",
    types.IntType: "int",
    types.BigIntType: "long",
    types.FloatType: "float",
    types.DoubleType: "double",
    types.CharType: "string",
    types.VarCharType: "string",
    types.BinaryType: "bytes",
    types.VarBinaryType: "bytes",
    types.DateType: {"type": "int", "logicalType": "date"},
    types.TimeType: {"type": "int", "logicalType": "time-millis"},
}


def avro_schema(row_type: RowType, is_legacy: bool = True, name: str = "record") -> dict[str, Any]:
    """The Avro schema of rows, as JSON.

    >>> avro_schema(RowType.of(["id"], [types.BigIntType()]))["fields"]
    [{'name': 'id', 'type': ['null', 'long'], 'default': None}]
    """
    fields = []
    for field in row_type.fields:
        schema = _nullable(field.data_type, is_legacy, f"{name}_{field.name}")
        entry = {"name": field.name, "type": schema}
        fields.append({**entry, "default": None} if field.data_type.is_nullable else entry)
    return {"type": "record", "name": name, "namespace": "org.apache.flink.avro.generated", "fields": fields}


def _nullable(data_type: DataType, is_legacy: bool, name: str) -> Any:
    schema = _schema(data_type, is_legacy, name)
    return ["null", schema] if data_type.is_nullable else schema


def _schema(data_type: DataType, is_legacy: bool, name: str) -> Any:
    if isinstance(data_type, RowType):
        return avro_schema(data_type, is_legacy, name)
    if isinstance(data_type, ArrayType):
        return {"type": "array", "items": _nullable(data_type.element_type, is_legacy, name)}
    if isinstance(data_type, (MapType, MultisetType)):
        key_type = data_type.key_type if isinstance(data_type, MapType) else data_type.element_type
        value_type = data_type.value_type if isinstance(data_type, MapType) else types.IntType(False)
        if not is_text(key_type):
            raise _unsupported(data_type, "map keys are text")
        return {"type": "map", "values": _nullable(value_type, is_legacy, name)}
    if isinstance(data_type, types.DecimalType):
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": data_type.precision,
            "scale": data_type.scale,
        }
    if isinstance(data_type, (types.TimestampType, types.LocalZonedTimestampType)):
        if data_type.precision > 6:
            raise _unsupported(data_type, "its times have at most microseconds")
        unit = "millis" if data_type.precision <= 3 else "micros"
        is_local = isinstance(data_type, types.TimestampType) and not is_legacy
        return {"type": "long", "logicalType": f"{'local-' if is_local else ''}timestamp-{unit}"}
    if type(data_type) not in _PLAIN:
        raise _unsupported(data_type, conversion_advice(data_type))
    return _PLAIN[type(data_type)]


def _unsupported(data_type: DataType, reason: str) -> ProgramError:
    return ProgramError(f"Avro has no type for {data_type.nullable()}: {reason}. Use another type, or another format")
