"""Rounds FLOATs to the digits of 32-bit precision, for formats that write Python's floats.

As a Python value a FLOAT has 64 bits: 1.1 becomes 1.100000023841858, and would be written this way. Here it is
converted to the float with the same shortest decimal text as the FLOAT, which Flink writes. Reading it back yields the
same FLOAT.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from millstream.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from millstream.common.types import Row
from millstream.records.shapes import is_sequence, plain_type
from millstream.records.short_float import short_float

__all__ = ["with_short_floats"]

_Convert = Callable[[Any], Any]


def with_short_floats(values: list[Any], type_info: TypeInformation | None) -> list[Any]:
    """The values of a stream of this type, with FLOATs shortened; the same list if the type has no FLOATs.

    >>> from millstream.common.typeinfo import Types
    >>> with_short_floats([1.100000023841858, None], Types.FLOAT())
    [1.1, None]
    """
    convert = None if type_info is None else _converter(type_info)
    return values if convert is None else [convert(value) for value in values]


def _converter(type_info: TypeInformation) -> _Convert | None:
    """The converter that rounds the FLOATs in a value of the type; None without FLOATs."""
    plain = plain_type(type_info)
    if isinstance(plain, BasicTypeInfo):
        return short_float if plain.basic_type is BasicType.FLOAT else None
    if isinstance(plain, RowTypeInfo | TupleTypeInfo):
        fields = {at: convert for at, kind in enumerate(plain.get_field_types()) if (convert := _converter(kind))}
        names = list(plain.get_field_names()) if isinstance(plain, RowTypeInfo) else []
        return (lambda value: _with_fields(value, fields, names)) if fields else None
    if isinstance(plain, MapTypeInfo):
        of_value = _converter(plain.value_type)
        if of_value is None:
            return None
        return lambda value: value if value is None else {key: of_value(item) for key, item in value.items()}
    of_element = _converter(plain.element_type) if is_sequence(plain) else None
    if of_element is None:
        return None
    return lambda value: value if value is None else [of_element(item) for item in value]


def _with_fields(value: Any, fields: dict[int, _Convert], names: list[str]) -> Any:
    if value is None:
        return None
    if isinstance(value, dict):
        by_name = {names[at]: convert for at, convert in fields.items()}
        return {key: by_name[key](item) if key in by_name else item for key, item in value.items()}
    parts = [fields[at](part) if at in fields else part for at, part in enumerate(value)]
    if isinstance(value, Row):
        row = copy.copy(value)
        row._values = parts
        return row
    return tuple(parts)
