"""Row types from JSON schemas, following Flink's converter.

Whole numbers and fractions are BIG_DEC, a string with a format is a date or a time, one with `contentEncoding` base64
is bytes, an object is a row, a list of one type an array, a list of specified types a tuple. `null` in addition to
another type has no effect, because every field may be null.
"""

from __future__ import annotations

import json
from typing import Any

from millstream.common.typeinfo import RowTypeInfo, TypeInformation, Types
from millstream.errors import ProgramError

__all__ = ["row_type_of_json_schema"]

_DEPTH_MAX = 50
_SIMPLE = {"boolean": Types.BOOLEAN, "integer": Types.BIG_DEC, "number": Types.BIG_DEC}
_FORMATS = {"date": Types.SQL_DATE, "time": Types.SQL_TIME, "date-time": Types.SQL_TIMESTAMP}


def row_type_of_json_schema(text: str) -> RowTypeInfo:
    """The row type of a JSON schema of objects.

    >>> row_type_of_json_schema('{"type": "object", "properties": {"name": {"type": "string"}}}')
    Types.ROW_NAMED(['name'], [Types.STRING()])
    """
    try:
        schema = json.loads(text)
    except (ValueError, TypeError) as error:
        raise ProgramError(f"this is not a JSON schema: {error}. Found {str(text)[:200]!r}.") from error
    type_info = _type(schema, schema, "the schema", 0)
    if not isinstance(type_info, RowTypeInfo):
        raise ProgramError(f"a JSON schema of rows has the type object, not {type_info}.")
    return type_info


def _type(schema: Any, root: Any, place: str, depth: int) -> TypeInformation:
    if depth > _DEPTH_MAX:
        raise ProgramError(f"JSON schema, {place}: it is nested deeper than {_DEPTH_MAX}, or contains itself.")
    if not isinstance(schema, dict):
        raise ProgramError(f"JSON schema, {place}: found {schema!r}, expected an object.")
    if "$ref" in schema:
        return _type(_resolve_reference(schema["$ref"], root, place), root, place, depth + 1)
    if "oneOf" in schema or "anyOf" in schema:
        return _one_of(schema.get("oneOf", schema.get("anyOf")), root, place, depth)
    kind = _kind(schema, place)
    if kind in _SIMPLE:
        return _SIMPLE[kind]()
    if kind == "string":
        if schema.get("contentEncoding") == "base64":
            return Types.PRIMITIVE_ARRAY(Types.BYTE())
        return _FORMATS.get(str(schema.get("format")), Types.STRING)()
    if kind == "object":
        return _object(schema, root, place, depth)
    if kind == "array":
        return _array(schema, root, place, depth)
    raise ProgramError(f"JSON schema, {place}: found the type {kind!r}, which is not supported in a row.")


def _kind(schema: dict[str, Any], place: str) -> str:
    kinds = schema.get("type")
    if isinstance(kinds, list):
        others = [kind for kind in kinds if kind != "null"]
        kinds = others[0] if len(others) == 1 else None
    if not isinstance(kinds, str):
        kinds = schema.get("type")
        raise ProgramError(f"JSON schema, {place}: found the type {kinds!r}, expected one, or one and null.")
    return kinds


def _resolve_reference(reference: Any, root: Any, place: str) -> Any:
    if not isinstance(reference, str) or not reference.startswith("#/"):
        raise ProgramError(
            f"JSON schema, {place}: found the reference {reference!r}, expected one within it, such as #/…."
        )
    target = root
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, dict) or name not in target:
            raise ProgramError(f"JSON schema, {place}: {reference!r} refers to no schema.")
        target = target[name]
    return target


def _one_of(schemas: Any, root: Any, place: str, depth: int) -> TypeInformation:
    branches = schemas if isinstance(schemas, list) else []
    others = [branch for branch in branches if not (isinstance(branch, dict) and branch.get("type") == "null")]
    if len(others) != 1:
        raise ProgramError(f"JSON schema, {place}: found a choice of {len(others)} types, expected one besides null.")
    return _type(others[0], root, place, depth + 1)


def _object(schema: dict[str, Any], root: Any, place: str, depth: int) -> TypeInformation:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        raise ProgramError(
            f"JSON schema, {place}: an object has no properties. Declare them, or use type_info(row_type)."
        )
    types = [_type(part, root, f"{place}.{name}", depth + 1) for name, part in properties.items()]
    return Types.ROW_NAMED(list(properties), types)


def _array(schema: dict[str, Any], root: Any, place: str, depth: int) -> TypeInformation:
    items = schema.get("items")
    if isinstance(items, list):
        return Types.TUPLE([_type(item, root, f"{place}[{at}]", depth + 1) for at, item in enumerate(items)])
    if items is None:
        raise ProgramError(f"JSON schema, {place}: an array does not declare its items. Add items.")
    return Types.OBJECT_ARRAY(_type(items, root, f"{place}[]", depth + 1))
