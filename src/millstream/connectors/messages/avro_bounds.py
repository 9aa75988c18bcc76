"""Limits the cost of Avro from untrusted sources: a few bytes could otherwise cost unbounded memory or time.

Avro writes the count of values before the values. A message can claim a billion values that take no bytes, a chain of
thirty types that each use the next one twice has a billion fields, and decoding a decimal of a megabyte takes Python
minutes. A schema is checked once (`least_bytes`). Decimals are read by our own logical type (`bounded_schema`):
fastavro's is global to the process, and the program may use it for its own data.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from millstream.errors import ProgramError

__all__ = ["bounded_schema", "least_bytes"]

_FIELDS_MAX = 100_000
_DIGITS_MAX = 4_300
_LOGICAL_TYPE = "millstream-decimal"
_BYTES = {"null": 0, "float": 4, "double": 8, "boolean": 1, "int": 1, "long": 1, "string": 1, "bytes": 1}

Cost = tuple[int, int]
"""The fewest bytes of a value, and the number of values read for it."""


def least_bytes(schema: Any) -> int:
    """The minimum size of a value of a parsed schema. Raises ProgramError if few bytes could encode an unbounded value.

    >>> least_bytes({"type": "record", "name": "R", "fields": [{"name": "a", "type": "double"}]})
    8
    """
    return _cost(schema, {})[0]


def _cost(schema: Any, named: dict[str, Cost | None]) -> Cost:
    """`named`: costs of named types; None inside the type itself, while it is unknown."""
    if isinstance(schema, list):
        costs = [_cost(branch, named) for branch in schema]
        return 1 + min((size for size, _ in costs), default=0), max((fields for _, fields in costs), default=0)
    if isinstance(schema, str):
        if schema in _BYTES:
            return _BYTES[schema], 1
        known = named.get(schema)
        if known is None:
            raise ProgramError(f"Avro record {schema!r} contains itself, which rows cannot. Read it as bytes instead.")
        return known
    kind = schema["type"]
    if kind in ("record", "error", "enum", "fixed"):
        name = str(schema["name"])
        named[name] = None
        named[name] = cost = _named_cost(schema, kind, named)
        return cost
    if kind == "array":
        size, fields = _cost(schema["items"], named)
        if size == 0:
            raise ProgramError(
                "an Avro array whose items take no bytes can hold any number of them in a few bytes, so it is not "
                "supported. Add a field to the items."
            )
        return 1, fields
    if kind == "map":
        return 1, _cost(schema["values"], named)[1]
    return _cost(kind, named)


def _named_cost(schema: Any, kind: str, named: dict[str, Cost | None]) -> Cost:
    if kind == "fixed":
        return int(schema["size"]), 1
    if kind == "enum":
        return 1, 1
    costs = [_cost(field["type"], named) for field in schema["fields"]]
    size, fields = sum(size for size, _ in costs), sum(fields for _, fields in costs)
    if fields > _FIELDS_MAX:
        raise ProgramError(
            f"Avro record {schema['name']!r} has {fields:,} fields, including nested ones, expected at most "
            f"{_FIELDS_MAX:,}. Read it as bytes instead."
        )
    return size, fields


def bounded_schema(schema: Any, fastavro: Any) -> Any:
    """The schema with which fastavro reads decimals only within limits. For reading only."""
    _enter_decimals(fastavro)
    return _renamed(schema)


def _renamed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_renamed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: _renamed(schema[key]) for key in ("type", "items", "values") if key in schema}
    if "fields" in schema:
        changed["fields"] = [{**field, "type": _renamed(field["type"])} for field in schema["fields"]]
    if schema.get("logicalType") == "decimal":
        changed["logicalType"] = _LOGICAL_TYPE
    return {**schema, **changed}


@lru_cache(maxsize=1)
def _enter_decimals(fastavro: Any) -> None:
    readers = fastavro.read.LOGICAL_READERS
    for kind in ("bytes", "fixed"):
        readers[f"{kind}-{_LOGICAL_TYPE}"] = partial(_bounded_decimal, readers[f"{kind}-decimal"])


def _bounded_decimal(read: Any, data: bytes, writer_schema: Any = None, reader_schema: Any = None) -> Any:
    digits = min(int((writer_schema or {}).get("precision", _DIGITS_MAX)), _DIGITS_MAX)
    bits = int.from_bytes(data, "big", signed=True).bit_length()
    if bits > 4 * digits + 8:
        raise ValueError(f"a decimal of {bits // 8 + 1:,} bytes, expected one of at most {digits} digits")
    return read(data, writer_schema, reader_schema)
