"""Functions of `expressions` that write JSON."""

from __future__ import annotations

from typing import Any

from millstream.sql.syntax import Aggregated
from millstream.table.expression import Expression, JsonOnNull
from millstream.table.expression_functions.calls import made_call
from millstream.table.expression_methods.syntax_holder import call_node

__all__ = [
    "json",
    "json_array",
    "json_array_agg",
    "json_object",
    "json_object_agg",
    "json_string",
]


def json(value: Any) -> Expression[Any]:
    """A JSON string as a value inside `json_object` or `json_array`."""
    return made_call("JSON", value)


def json_string(value: Any) -> Expression[Any]:
    """A value as a JSON string."""
    return made_call("JSON_STRING", value)


def json_object(on_null: JsonOnNull = JsonOnNull.NULL, *args: Any) -> Expression[Any]:
    """A JSON object: key, value, key, value, …"""
    return made_call("JSON_OBJECT", *args, on_null=on_null.name)


def json_object_agg(on_null: JsonOnNull, key_expr: Any, value_expr: Any) -> Expression[Any]:
    """A JSON object of the group's keys and values."""
    return Expression(Aggregated(call_node("JSON_OBJECTAGG", (key_expr, value_expr), on_null=on_null.name)))


def json_array(on_null: JsonOnNull = JsonOnNull.ABSENT, *args: Any) -> Expression[Any]:
    """A JSON array."""
    return made_call("JSON_ARRAY", *args, on_null=on_null.name)


def json_array_agg(on_null: JsonOnNull, item_expr: Any) -> Expression[Any]:
    """A JSON array of the group's values."""
    return Expression(Aggregated(call_node("JSON_ARRAYAGG", (item_expr,), on_null=on_null.name)))
