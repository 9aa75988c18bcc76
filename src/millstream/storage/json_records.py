"""Frozen dataclasses ↔ JSON objects, by the types of their fields: the type alone determines the stored form.

An attribute is a field of the object under its own name (`Named`: under another); an attribute that equals its default
is omitted (unless marked `ALWAYS`). The fields of a `Flat` dataclass are inlined in the object of its owner. Tuples are
lists, mappings are objects; numeric keys are written as strings. `Any` is JSON in a caller-defined format, passed
through unchanged.

Reading rejects anything that writing cannot produce: missing fields, unknown fields, and other types (`Misfit`, with
the path to the field). `context` is passed to custom forms (`Form`), with the name of the value they read.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = ["ALWAYS", "Flat", "Form", "Misfit", "Named", "from_json", "is_whole_number", "to_json"]

ALWAYS = object()
"""Marks a field that is written even if it equals its default."""

_NUMBER = re.compile("0|[1-9][0-9]{0,17}")
T = TypeVar("T")


class Misfit(Exception):
    """A value is not of the expected type. `path` is the path of fields to it."""

    def __init__(self, value: Any, expected: str) -> None:
        super().__init__(expected)
        self.path: tuple[str, ...] = ()
        self.value, self.expected = value, expected


@dataclass(frozen=True)
class Form:
    """Writer and reader of one type: `read(context, name, written)`."""

    write: Callable[[Any], Any]
    read: Callable[[Any, str, Any], Any]


@dataclass(frozen=True)
class Named:
    """The field's name differs from the attribute's."""

    name: str


@dataclass(frozen=True)
class Flat:
    """Inlines the fields of a dataclass in the object of its owner, under these names (empty: their own)."""

    names: Mapping[str, str] = dataclasses.field(default_factory=dict)


def to_json(record: Any) -> dict[str, Any]:
    """A dataclass as a JSON object."""
    written: dict[str, Any] = {}
    kind: Any = type(record)
    for slot in _slots(kind):
        value = getattr(record, slot.attribute)
        if slot.flat is not None:
            if value is not None:
                inner = to_json(value)
                written |= {slot.flat.names.get(name, name): item for name, item in inner.items()}
        elif slot.is_always or value != slot.default:
            written[slot.name] = slot.form.write(value)
    return written


def from_json(kind: Callable[..., T], context: Any, written: Any) -> T:
    """The inverse of `to_json` for a dataclass of this kind; Misfit for anything else."""
    if not isinstance(written, dict):
        raise Misfit(written, "a JSON object")
    known, flats = _readers(kind)
    values: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for name, item in written.items():
        try:
            if name not in known:
                raise Misfit(item, f"one of the fields {', '.join(known)}")
            owner, attribute, form = known[name]
            target = values if owner is None else parts.setdefault(owner, {})
            target[attribute] = form.read(context, name, item)
        except Misfit as misfit:
            misfit.path = (name, *misfit.path)
            raise
    try:
        values |= {attribute: flats[attribute](**part) for attribute, part in parts.items()}
        return kind(**values)
    except TypeError as error:
        raise Misfit(written, f"all fields of it ({error})") from error


# --- the fields of a dataclass ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Slot:
    attribute: str
    name: str
    form: Form
    default: Any
    is_always: bool
    flat: Flat | None
    kind: Any


@cache
def _slots(kind: Any) -> tuple[_Slot, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(_slot(field, hints[field.name]) for field in dataclasses.fields(kind))


def _slot(field: dataclasses.Field[Any], hint: Any) -> _Slot:
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    plain = get_args(hint)[0] if extras else hint
    flat = next((extra for extra in extras if isinstance(extra, Flat)), None)
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    else:
        default = ALWAYS if field.default is dataclasses.MISSING else field.default
    name = next((extra.name for extra in extras if isinstance(extra, Named)), field.name)
    return _Slot(field.name, name, _form(hint), default, ALWAYS in extras, flat, _without_none(plain))


@cache
def _readers(kind: Any) -> tuple[dict[str, tuple[str | None, str, Form]], dict[str, type[Any]]]:
    """For each field name: its flat attribute if any, its attribute, and its form; and the flat dataclasses."""
    known: dict[str, tuple[str | None, str, Form]] = {}
    flats: dict[str, type[Any]] = {}
    for slot in _slots(kind):
        if slot.flat is None:
            known[slot.name] = None, slot.attribute, slot.form
        else:
            flats[slot.attribute] = slot.kind
            for inner in _slots(slot.kind):
                name = slot.flat.names.get(inner.name, inner.name)
                known[name] = slot.attribute, inner.attribute, inner.form
    return known, flats


def _without_none(hint: Any) -> Any:
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    return kinds[0] if get_origin(hint) in (Union, types.UnionType) else hint


# --- the forms of types -------------------------------------------------------------------------------------------


def _same(value: T) -> T:
    return value


def _form(hint: Any) -> Form:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return next((extra for extra in arguments[1:] if isinstance(extra, Form)), None) or _form(arguments[0])
    if hint is Any:
        return Form(_same, lambda _, __, written: written)
    if origin in (Union, types.UnionType):
        return _optional(_form(_without_none(hint)))
    if origin is Literal:
        return _plain(lambda value: value in arguments, f"one of {', '.join(arguments)}")
    if origin is tuple:
        return _list(arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(arguments[0], _form(arguments[1]))
    if dataclasses.is_dataclass(hint):
        return Form(to_json, lambda context, _, written: from_json(hint, context, written))  # type: ignore[arg-type]
    return _plain(is_whole_number if hint is int else lambda value: type(value) is hint, _EXPECTED[hint])


def is_whole_number(value: Any) -> bool:
    """Whether a JSON value is a 64-bit integer, the only numbers that are written.

    >>> is_whole_number(7), is_whole_number(True), is_whole_number(7.0), is_whole_number(2**63)
    (True, False, False, False)
    """
    return type(value) is int and -(2**63) <= value < 2**63


_EXPECTED = {int: "a whole number", str: "a string", bool: "true or false"}


def _plain(fits: Callable[[Any], bool], expected: str) -> Form:
    def read(context: Any, name: str, written: Any) -> Any:
        if not fits(written):
            raise Misfit(written, expected)
        return written

    return Form(_same, read)


def _optional(form: Form) -> Form:
    return Form(
        lambda value: None if value is None else form.write(value),
        lambda context, name, written: None if written is None else form.read(context, name, written),
    )


def _list(kinds: tuple[Any, ...]) -> Form:
    """A list of one type (`tuple[int, ...]`), or of a fixed number of items with a type each."""
    length = None if kinds[-1] is ... else len(kinds)
    forms = [_form(kind) for kind in kinds if kind is not ...]

    def read(context: Any, name: str, written: Any) -> tuple[Any, ...]:
        if not isinstance(written, list) or length not in (None, len(written)):
            raise Misfit(written, "a list" if length is None else f"a list of {length}")
        own = forms if length else forms * len(written)
        return tuple(form.read(context, name, item) for form, item in zip(own, written, strict=True))

    return Form(lambda items: [forms[at if length else 0].write(item) for at, item in enumerate(items)], read)


def _mapping(key: type[Any], form: Form) -> Form:
    is_numbered = key is int

    def read(context: Any, name: str, written: Any) -> dict[Any, Any]:
        if not isinstance(written, dict):
            raise Misfit(written, "a JSON object")
        values: dict[Any, Any] = {}
        for item_name, item in written.items():
            try:
                if is_numbered and not _NUMBER.fullmatch(item_name):
                    raise Misfit(item_name, "a number")
                values[int(item_name) if is_numbered else item_name] = form.read(context, item_name, item)
            except Misfit as misfit:
                misfit.path = (item_name, *misfit.path)
                raise
        return values

    return Form(lambda items: {str(name): form.write(item) for name, item in items.items()}, read)
