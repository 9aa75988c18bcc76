"""Metadata of change messages: origin and time of a change. Flink's keys and types.

A key is read from the parsed message. A missing field is NULL; an invalid one (a time that
is not a number) makes the message a bad one, like an invalid cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millstream.connectors.tables.formats.json_cells import JsonReading
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, MapType
from millstream.expressions.types import BigIntType, IntType, LocalZonedTimestampType, VarCharType

__all__ = ["CANAL_METADATA", "DEBEZIUM_METADATA", "ReadMetadata", "canal_metadata", "debezium_metadata"]

_TEXT, _MOMENT = VarCharType(0x7FFFFFFF), LocalZonedTimestampType(3)
_TEXTS = MapType(_TEXT, _TEXT)

DEBEZIUM_METADATA: Mapping[str, DataType] = {
    "schema": _TEXT,
    "ingestion-timestamp": _MOMENT,
    "source.timestamp": _MOMENT,
    "source.database": _TEXT,
    "source.schema": _TEXT,
    "source.table": _TEXT,
    "source.properties": _TEXTS,
}
CANAL_METADATA: Mapping[str, DataType] = {
    "database": _TEXT,
    "table": _TEXT,
    "sql-type": MapType(_TEXT, IntType()),
    "pk-names": ArrayType(_TEXT),
    "ingestion-timestamp": _MOMENT,
}
_IN_SOURCE = {"source.timestamp": "ts_ms", "source.database": "db", "source.schema": "schema", "source.table": "table"}
_IN_CANAL = {"sql-type": "sqlType", "pk-names": "pkNames", "ingestion-timestamp": "ts"}

ReadMetadata = Callable[[dict[str, Any], str, JsonReading], Any]
"""Reads the metadata of a key from a message, in the form `pa.array` accepts. Raises ValueError."""


def debezium_metadata(document: dict[str, Any], key: str, reading: JsonReading) -> Any:
    """The metadata of an envelope; in a message with a schema, the envelope is the payload.

    >>> message = {"op": "c", "source": {"ts_ms": 5, "db": "shop"}}
    >>> [debezium_metadata(message, key, JsonReading()) for key in ("source.database", "source.timestamp", "schema")]
    ['shop', 5, None]
    """
    has_schema = "payload" in document
    if key == "schema":
        return reading.value(document.get("schema"), _TEXT) if has_schema else None
    envelope = document["payload"] if has_schema else document
    if key == "ingestion-timestamp":
        return _read(envelope.get("ts_ms"), BigIntType(), "ts_ms", reading)
    source = _read(envelope.get("source"), _TEXTS, "source", reading)
    if source is None or key == "source.properties":
        return source
    name = _IN_SOURCE[key]
    return _read(dict(source).get(name), BigIntType() if name == "ts_ms" else _TEXT, f"source.{name}", reading)


def canal_metadata(document: dict[str, Any], key: str, reading: JsonReading) -> Any:
    """The metadata of a message, shared by all of its rows.

    >>> canal_metadata({"pkNames": ["id"], "ts": "7"}, "pk-names", JsonReading())
    ['id']
    """
    name, data_type = _IN_CANAL.get(key, key), CANAL_METADATA[key]
    return _read(document.get(name), BigIntType() if data_type is _MOMENT else data_type, name, reading)


def _read(node: Any, data_type: DataType, name: str, reading: JsonReading) -> Any:
    try:
        return reading.value(node, data_type)
    except ValueError as error:
        raise ValueError(f"field {name!r}: {error}") from None
