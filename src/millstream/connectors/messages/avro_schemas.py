"""Avro schemas: parsing, checks, and their row types.

A record is a ROW, an enum and a uuid are STRING, `bytes` and `fixed` are bytes, or DECIMAL where declared. A union with
null maps to the other type; a union of several types to a plain Python value, without a type. Dates and times map as in
Flink: timestamps of every precision are SQL_TIMESTAMP, in UTC.

Two kinds of schemas are rejected, because a short message could make its reader run forever: a record that
contains itself, and a list of items that take no bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from millstream.common.typeinfo import RowTypeInfo, TypeInformation, Types
from millstream.connectors.messages.avro_bounds import bounded_schema, least_bytes
from millstream.errors import ProgramError

__all__ = ["AvroSource", "fastavro_module", "parsed_schema", "row_type_of", "type_of"]

_PRIMITIVES: dict[str, TypeInformation] = {
    "boolean": Types.BOOLEAN(),
    "int": Types.INT(),
    "long": Types.LONG(),
    "float": Types.FLOAT(),
    "double": Types.DOUBLE(),
    "string": Types.STRING(),
    "bytes": Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "null": Types.PICKLED_BYTE_ARRAY(),
}
_LOGICAL: dict[tuple[str, str], TypeInformation] = {
    ("int", "date"): Types.SQL_DATE(),
    ("int", "time-millis"): Types.SQL_TIME(),
    ("long", "time-micros"): Types.SQL_TIME(),
    ("long", "timestamp-millis"): Types.SQL_TIMESTAMP(),
    ("long", "timestamp-micros"): Types.SQL_TIMESTAMP(),
    ("long", "local-timestamp-millis"): Types.SQL_TIMESTAMP(),
    ("long", "local-timestamp-micros"): Types.SQL_TIMESTAMP(),
}
_DECIMAL_DIGITS_MAX = 38


def fastavro_module() -> Any:
    """The package for Avro."""
    try:
        import fastavro
    except ImportError:
        raise ProgramError("Avro needs the package fastavro: pip install 'millstream[avro]'.") from None
    return fastavro


@dataclass(frozen=True)
class AvroSource:
    """A schema as its source text, which alone is pickled; `parsed` is computed on demand.

    >>> AvroSource('{"type": "record", "name": "Ad", "fields": [{"name": "id", "type": "long"}]}').row_type
    Types.ROW_NAMED(['id'], [Types.LONG()])
    """

    text: str

    @property
    def parsed(self) -> Any:
        """The schema parsed by fastavro."""
        return parsed_schema(self.text)

    @property
    def reading(self) -> Any:
        """The schema for reading: decimals are bounded."""
        return _reading_schema(self.text)

    @property
    def row_type(self) -> RowTypeInfo:
        """The type of the rows."""
        return row_type_of(self.text)


@lru_cache(maxsize=256)
def parsed_schema(text: str) -> Any:
    """The schema parsed by fastavro, with all names resolved. Raises ProgramError."""
    fastavro = fastavro_module()
    try:
        parsed = fastavro.parse_schema(json.loads(text))
    except (
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
        ValueError,
        TypeError,
        KeyError,
    ) as error:
        raise ProgramError(f"this is not an Avro schema: {error!r}. Found {str(text)[:200]!r}.") from error
    except (RecursionError, AttributeError) as error:
        raise ProgramError(f"this Avro schema cannot be read: {error!r}. Found {str(text)[:200]!r}.") from error
    least_bytes(parsed)
    return parsed


@lru_cache(maxsize=256)
def _reading_schema(text: str) -> Any:
    parsed_schema(text)  # rejects unusable schemas
    return fastavro_module().parse_schema(bounded_schema(json.loads(text), fastavro_module()))


@lru_cache(maxsize=256)
def row_type_of(text: str) -> RowTypeInfo:
    """The row type of a record's schema."""
    parsed_schema(text)  # rejects unusable schemas
    type_info = type_of(fastavro_module().parse_schema(json.loads(text), expand=True))
    if not isinstance(type_info, RowTypeInfo):
        raise ProgramError(f"an Avro schema of rows is a record, not {str(text)[:200]!r}.")
    if not type_info.get_field_names():
        raise ProgramError(f"an Avro record of rows has no fields: {str(text)[:200]!r}.")
    return type_info


def type_of(schema: Any) -> TypeInformation:
    """The type of the values of a schema (with names resolved)."""
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null" and branch != {"type": "null"}]
        return type_of(others[0]) if len(others) == 1 else Types.PICKLED_BYTE_ARRAY()
    if isinstance(schema, str):
        return _PRIMITIVES[schema]
    kind, logical = schema["type"], schema.get("logicalType")
    if isinstance(kind, (dict, list)):
        return type_of(kind)
    if kind in ("record", "error"):
        fields = schema["fields"]
        return Types.ROW_NAMED([field["name"] for field in fields], [type_of(field["type"]) for field in fields])
    if kind == "array":
        return Types.LIST(type_of(schema["items"]))
    if kind == "map":
        return Types.MAP(Types.STRING(), type_of(schema["values"]))
    if kind == "enum":
        return Types.STRING()
    if kind in ("bytes", "fixed"):
        if logical == "decimal" and 0 < schema.get("precision", 0) <= _DECIMAL_DIGITS_MAX:
            return Types.DECIMAL(schema["precision"], schema.get("scale", 0))
        return Types.BIG_DEC() if logical == "decimal" else _PRIMITIVES["bytes"]
    return _LOGICAL.get((kind, logical), _PRIMITIVES[kind])
