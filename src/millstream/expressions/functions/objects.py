"""Structured types: rows with a class name. OBJECT_OF constructs one, OBJECT_UPDATE replaces fields.

The class need not exist: as in Flink, its name only distinguishes types.
"""

from __future__ import annotations

import re

from millstream.expressions.functions.registry import Arguments, Binding, SignatureError
from millstream.expressions.functions.signatures import STRING, refusal, scalar
from millstream.expressions.nested_types import RowField, StructuredType

__all__: list[str] = []

FAMILY = "objects"
_OF = "OBJECT_OF('class', 'field', value, …)"
_UPDATE = "OBJECT_UPDATE(object, 'field', value, …)"
_CLASS = re.compile(r"[^\W\d][\w$]*(\.[^\W\d][\w$]*)*")


def _bind_of(arguments: Arguments) -> Binding:
    if len(arguments) % 2 == 0:
        raise refusal("OBJECT_OF", _OF, "a class, then names of fields, each with a value", arguments.types)
    class_name = arguments.constant(0)
    if not isinstance(class_name, str) or not _CLASS.fullmatch(class_name):
        raise SignatureError(
            f"OBJECT_OF takes the name of a class as a constant, as 'com.example.User'. Call it as {_OF}."
        )
    names = _names("OBJECT_OF", arguments, _OF)
    fields = [RowField(name, type_) for name, type_ in zip(names, arguments.types[2::2], strict=True)]
    return Binding(arguments.types, StructuredType(class_name, fields))


def _bind_update(arguments: Arguments) -> Binding:
    if len(arguments) % 2 == 0:
        raise refusal("OBJECT_UPDATE", _UPDATE, "an object, then names of fields, each with a value", arguments.types)
    type_ = arguments.types[0]
    if not isinstance(type_, StructuredType):
        raise refusal("OBJECT_UPDATE", _UPDATE, "an object of OBJECT_OF", [type_])
    changed = dict(zip(_names("OBJECT_UPDATE", arguments, _UPDATE), arguments.types[2::2], strict=True))
    for name in changed:
        if name not in type_.names:
            raise SignatureError(f"the object has no field {name!r}; its fields are {', '.join(type_.names)}")
    fields = [RowField(field.name, changed.get(field.name, field.data_type)) for field in type_.fields]
    return Binding(arguments.types, StructuredType(type_.class_name, fields))


def _names(function: str, arguments: Arguments, syntax: str) -> list[str]:
    """The field names, which must be distinct constants."""
    names = [arguments.constant(place) for place in range(1, len(arguments), 2)]
    for place, name in enumerate(names):
        if not isinstance(name, str):
            raise SignatureError(f"{function} takes names of fields as constants. Call it as {syntax}.")
        if name in names[:place]:
            raise SignatureError(f"{function}: the field {name!r} occurs twice. Name each field once.")
    return names


scalar(_OF, (), STRING, "A row with a class name.", FAMILY, bind=_bind_of, may_fail=False)
scalar(_UPDATE, (), STRING, "The object with some fields replaced.", FAMILY, bind=_bind_update, may_fail=False)
