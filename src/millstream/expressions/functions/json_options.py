"""Options of the JSON functions: RETURNING, ON EMPTY, ON ERROR, as the call's `options`.

A type may be a `DataType` or a type name of the SQL syntax, and a default a constant or a literal of the syntax, so the
planner needs no special case for these functions.
"""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from typing import Any

from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import SignatureError
from millstream.expressions.nested_types import ArrayType
from millstream.expressions.types import LENGTH_MAX, BooleanType, DoubleType, IntType, VarCharType

__all__ = ["default_of", "queried_type", "returned_type"]

_RETURNED: dict[str, DataType] = {
    "STRING": VarCharType(LENGTH_MAX),
    "BOOLEAN": BooleanType(),
    "INT": IntType(),
    "INTEGER": IntType(),
    "DOUBLE": DoubleType(),
}


def returned_type(options: Mapping[str, Any]) -> DataType:
    """The type that JSON_VALUE returns: STRING unless RETURNING specifies another.

    >>> str(returned_type({"returning": IntType()}))
    'INT'
    """
    requested = options.get("returning")
    if requested is None:
        return _RETURNED["STRING"]
    if isinstance(requested, VarCharType | BooleanType | IntType | DoubleType):
        return requested.nullable()
    name = getattr(requested, "name", None)
    if name == "VARCHAR" and not isinstance(requested, DataType):
        return VarCharType(*(requested.arguments or (LENGTH_MAX,)))
    if isinstance(name, str) and name in _RETURNED and not isinstance(requested, DataType):
        return _RETURNED[name]
    shown = name or requested
    raise SignatureError(f"JSON_VALUE returns STRING, BOOLEAN, INT or DOUBLE, not {shown}. CAST its text to others.")


def queried_type(options: Mapping[str, Any]) -> DataType:
    """The type that JSON_QUERY returns: STRING unless RETURNING specifies another.

    >>> str(queried_type({"returning": ArrayType(_RETURNED["STRING"])}))
    'ARRAY<STRING>'
    """
    requested = options.get("returning")
    elements: tuple[Any, ...] = getattr(requested, "elements", ())
    is_array = isinstance(requested, ArrayType) or (getattr(requested, "name", None) == "ARRAY" and len(elements) == 1)
    if not is_array:
        text_type = returned_type(options)
        if isinstance(text_type, VarCharType):
            return text_type
        raise SignatureError(
            f"JSON_QUERY returns STRING or ARRAY<STRING>, not {text_type.nullable()}. CAST its text to others."
        )
    element = requested.element_type if isinstance(requested, ArrayType) else elements[0]
    is_nullable = element.is_nullable if isinstance(element, DataType) else element.nullable
    try:
        type_ = returned_type({"returning": element})
    except SignatureError:
        type_ = BooleanType()
    if not isinstance(type_, VarCharType):
        shown = element if isinstance(element, DataType) else element.name
        raise SignatureError(f"JSON_QUERY returns ARRAY<STRING>, not an array of {shown}. CAST the array to others.")
    if any(options.get(name) in ("EMPTY OBJECT", "EMPTY_OBJECT") for name in ("on_empty", "on_error")):
        raise SignatureError("JSON_QUERY RETURNING ARRAY cannot return an object: write EMPTY ARRAY, NULL or ERROR")
    return ArrayType(type_.with_nullability(is_nullable))


def default_of(options: Mapping[str, Any], name: str, type_: DataType) -> tuple[str, Any]:
    """The behaviour of `on_empty` or `on_error` (NULL, ERROR, DEFAULT), and the default as a value of the type.

    >>> default_of({"on_empty": ("DEFAULT", 7)}, "on_empty", _RETURNED["STRING"])
    ('DEFAULT', '7')
    """
    behaviour = options.get(name) or "NULL"
    word, literal = behaviour if isinstance(behaviour, tuple) else (behaviour, options.get(f"default_{name}"))
    return (word, _of_type(_constant(literal), type_)) if word == "DEFAULT" else (word, None)


def _constant(literal: Any) -> Any:
    """The value of a literal of the SQL parser or the Table API."""
    kind, value = getattr(literal, "kind", None), getattr(literal, "value", literal)
    if kind == "NUMBER":
        return decimal.Decimal(value)
    if kind in (None, "TEXT", "BOOLEAN", "NULL", "VALUE") and not hasattr(value, "arguments"):
        return {"TRUE": True, "FALSE": False}.get(value, value) if kind == "BOOLEAN" else value
    raise SignatureError("the DEFAULT of JSON_VALUE must be a constant: a string, a number, TRUE, FALSE or NULL")


def _of_type(value: Any, type_: DataType) -> Any:
    if value is None:
        return None
    is_number = isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool)
    if isinstance(type_, VarCharType):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(type_, BooleanType) and isinstance(value, bool):
        return value
    if isinstance(type_, IntType) and is_number and value == int(value):
        return int(value)
    if isinstance(type_, DoubleType) and is_number:
        return float(value)
    raise SignatureError(f"the DEFAULT of JSON_VALUE is {value!r}, but it returns {type_.nullable()}")
