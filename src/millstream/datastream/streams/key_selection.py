"""Interprets the argument of `key_by`: a function of the record, or a field by position or name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from millstream.datastream.functions.function import KeySelector
from millstream.datastream.streams.argument_checks import checked_function, checked_output_type, refuse
from millstream.graph.field_key import FieldKey
from millstream.records.shapes import plain_type

__all__ = ["field_position", "key_selection"]


def key_selection(
    key_selector: Any, key_type: Any, stream_type: TypeInformation | None, method: str = "key_by"
) -> tuple[Callable[[Any], Any], TypeInformation | None]:
    """The key selector, and the type of its keys."""
    declared = checked_output_type(method, key_type)
    if not isinstance(key_selector, (int, str)) or isinstance(key_selector, bool):
        return checked_function(method, key_selector, KeySelector), declared
    if stream_type is None:
        return FieldKey(key_selector), declared
    position, field_type = field_position(method, key_selector, stream_type)
    if declared is not None and declared != field_type:
        return FieldKey(position), declared
    return FieldKey(position, position), checked_output_type(method, field_type)


def field_position(method: str, field: int | str, type_info: TypeInformation) -> tuple[int, TypeInformation]:
    """The position and type of a field of a row or tuple; raises an error at the user's line if it does not exist."""
    plain = plain_type(type_info)
    if not isinstance(plain, RowTypeInfo | TupleTypeInfo):
        raise refuse(f"{method}({field!r}): the stream is {type_info}; only rows and tuples have fields")
    types = plain.get_field_types()
    if isinstance(field, str):
        names = plain.get_field_names() if isinstance(plain, RowTypeInfo) else [f"f{i}" for i in range(len(types))]
        if field not in names:
            raise refuse(f"{method}({field!r}): {type_info} has no such field. Name one of {names}")
        return names.index(field), types[names.index(field)]
    if not 0 <= field < len(types):
        raise refuse(f"{method}({field!r}): {type_info} has no such field. Use a position from 0 to {len(types) - 1}")
    return field, types[field]
