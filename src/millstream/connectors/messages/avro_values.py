"""Converts values between fastavro's form and rows, by schema.

fastavro represents records as dicts, timestamps with the zone UTC, and uuids as objects; rows have fields, UTC times
without a zone, and strings. A union of several types has no type here, so its values pass unchanged.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from millstream.connectors.messages.avro_schemas import fastavro_module

__all__ = ["Convert", "inward", "outward"]

Convert = Callable[[Any], Any]
_ZONED = ("timestamp-millis", "timestamp-micros")


@lru_cache(maxsize=256)
def inward(text: str) -> Convert:
    """The converter from a fastavro record to the fields of a row. `text` is a checked schema."""
    return _converter(_expanded(text), _inward_single, _inward_record) or _same


@lru_cache(maxsize=256)
def outward(text: str) -> Convert:
    """The converter from a row to a fastavro record."""
    return _converter(_expanded(text), _outward_single, _outward_record) or _same


def _expanded(text: str) -> Any:
    return fastavro_module().parse_schema(json.loads(text), expand=True)


def _same(value: Any) -> Any:
    return value


Single = Callable[[str, str | None], Convert | None]
Record = Callable[[list[str], list[Convert | None]], Convert]


def _converter(schema: Any, single: Single, record: Record) -> Convert | None:
    """The converter of a schema; None if values need no conversion."""
    if isinstance(schema, list):
        others = [branch for branch in schema if branch not in ("null", {"type": "null"})]
        return _nullable(_converter(others[0], single, record)) if len(others) == 1 else None
    if isinstance(schema, str):
        return None
    kind = schema["type"]
    if isinstance(kind, (dict, list)):
        return _converter(kind, single, record)
    if kind in ("record", "error"):
        names = [field["name"] for field in schema["fields"]]
        return record(names, [_converter(field["type"], single, record) for field in schema["fields"]])
    if kind == "array":
        item = _converter(schema["items"], single, record)
        return None if item is None else lambda values: [item(value) for value in values]
    if kind == "map":
        part = _converter(schema["values"], single, record)
        return None if part is None else lambda values: {key: part(value) for key, value in values.items()}
    return single(kind, schema.get("logicalType"))


def _nullable(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _inward_single(kind: str, logical: str | None) -> Convert | None:
    if kind == "long" and logical in _ZONED:
        return lambda value: value.replace(tzinfo=None)
    return str if logical == "uuid" else None


def _outward_single(kind: str, logical: str | None) -> Convert | None:
    if kind == "long" and logical in _ZONED:
        return lambda value: None if value is None else value.replace(tzinfo=dt.UTC)
    return None


def _inward_record(names: list[str], converters: list[Convert | None]) -> Convert:
    fields = list(zip(names, converters, strict=True))
    return lambda record: tuple(
        [record[name] if convert is None else convert(record[name]) for name, convert in fields]
    )


def _outward_record(names: list[str], converters: list[Convert | None]) -> Convert:
    fields = list(zip(names, converters, strict=True))

    def convert_row(row: Any) -> Any:
        if row is None:
            return None  # fastavro rejects it if the schema does
        cells = zip(fields, row, strict=True)
        return {name: cell if convert is None else convert(cell) for (name, convert), cell in cells}

    return convert_row
