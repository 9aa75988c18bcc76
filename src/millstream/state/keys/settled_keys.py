"""Settled keys: the single form in which functions see all Python values that are one key.

Operators store keys in dictionaries, and a key read from the store must equal the key that was written. So every key is
converted to its settled form before use and after reading, by the same functions. Invariant: settled keys that are one
key by the rule of `key_columns` are one dictionary key, and settling is idempotent.

Without a declared type the settled form is the simplest one (`canonical_decoding`): an int for integral numbers, else a
float, else a Decimal; a tuple for rows, lists and named tuples. With a declared type it is the type's form, with 0.0
for -0.0 and tuples for lists. It depends on the key alone, never on earlier values, so a function sees the same key in
every retry, after a restore and at another parallelism. All NaNs are the same object `math.nan`: dictionaries, tuples
and rows compare by identity before they compare values.

`decode_key` restores keys of the program's classes. In a task it is `runtime.exchange.key_classes`, in a reader
`canonical_decoding.decode`; there is no default, because functions must never get the reader's form.
"""

from __future__ import annotations

import copy
import datetime as dt
import math
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import BasicType, BasicTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from millstream.common.types import Row, RowKind
from millstream.errors import ProgramError
from millstream.records.columns import arrow_type, as_declared
from millstream.records.shapes import is_sequence, plain_type
from millstream.state.keys.canonical import canonical_bytes, decode
from millstream.state.keys.key_columns import holds_floats, is_hashed_as_values

__all__ = [
    "is_settled_by_type",
    "keys_of_canonical",
    "settled_declared",
    "settled_declared_map_key",
    "settled_keys",
    "settled_map_key",
    "with_decimals",
    "with_sets",
]

_PLAIN = frozenset((int, str, bytes, type(None)))
"""Values of exactly these types are settled: no other value of these types is the same key."""
_SIMPLE = _PLAIN | {bool, float}
_NUMBERS = (int, float, Decimal, np.number, np.bool_)
_BY_VALUE = frozenset((bool, Decimal, UUID, dt.date, dt.timedelta, np.int32, np.int64, np.float64, np.bool_))
"""For these types, values that Python considers equal are one key."""
_UNEQUAL: dict[tuple[Any, ...], Any] = {}
"""Dataclasses that contain NaN and differ from others with the same parts, by class and parts."""

DecodeKey: TypeAlias = Callable[[bytes], Any]
"""Decodes a key from its canonical bytes."""


def settled_keys(keys: list[Any], key_type: TypeInformation | None, decode_key: DecodeKey) -> list[Any]:
    """The keys in their settled form, which is also the form in which the store returns them.

    >>> settled_keys([True, 1.0, "a", (1.0, -0.0)], None, decode)
    [1, 1, 'a', (1, 0)]
    """
    arrow = None if key_type is None else arrow_type(key_type)
    if key_type is None or arrow is None:
        return keys if _PLAIN.issuperset(map(type, keys)) else _settled_each(keys, decode_key)
    if is_hashed_as_values(key_type):
        return _redeclared(_settled_each(as_declared(keys, key_type), decode_key), key_type)
    declared = settled_declared(as_declared(keys, key_type), arrow)
    return list(map(_without_kind, declared)) if isinstance(plain_type(key_type), RowTypeInfo) else declared


def keys_of_canonical(stored: list[bytes], key_type: TypeInformation | None, decode_key: DecodeKey) -> list[Any]:
    """The settled keys of canonical bytes.

    >>> keys_of_canonical([canonical_bytes((1.0, "a"))], None, decode)
    [(1, 'a')]
    """
    keys = list(map(decode_key, stored))
    return keys if key_type is None or arrow_type(key_type) is None else _redeclared(keys, key_type)


def is_settled_by_type(kind: pa.DataType) -> bool:
    """Whether the values of a column of this type are always settled."""
    return not holds_floats(kind) and not _holds_lists(kind)


def settled_declared(values: list[Any], kind: pa.DataType) -> list[Any]:
    """The values of a column of this type, with one NaN and one zero, and tuples for lists.

    >>> settled_declared([[-0.0, 1.5]], pa.list_(pa.float64()))
    [(0.0, 1.5)]
    """
    if _holds_lists(kind):
        values = list(map(_without_lists, values))
    if not holds_floats(kind):
        return values
    if pa.types.is_floating(kind):
        return [value if value is None else value + 0.0 if value == value else math.nan for value in values]
    return [_settled_inside(value, _settled_float) for value in values]


def _holds_lists(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or (pa.types.is_struct(kind) and any(_holds_lists(field.type) for field in kind))


def _without_lists(value: Any) -> Any:
    """The value with its lists replaced by tuples, which are hashable."""
    if isinstance(value, list | tuple):
        return tuple(map(_without_lists, value))
    if isinstance(value, Row):
        new = copy.copy(value)
        new._values = list(map(_without_lists, value._values))
        return new
    return value


def _settled_each(keys: list[Any], decode_key: DecodeKey) -> list[Any]:
    """Settle keys without a type."""
    forms: dict[Any, Any] = {}
    tuples: dict[tuple[Any, ...], Any] = {}  # tuples of plain values and numbers, which never equal keys of other kinds
    result = []
    for key in keys:
        kind = type(key)
        if kind in _PLAIN:
            result.append(key)
            continue
        if kind is float:
            result.append((int(key) if key.is_integer() else key) if key == key else math.nan)
            continue
        try:
            form = tuples.get(key) if isinstance(key, tuple) else None
        except TypeError:
            form = None  # the tuple contains a list, or a value that is rejected below
        if form is None:
            form = _settled(key, forms, decode_key)
            if isinstance(key, tuple) and _SIMPLE.issuperset(map(type, key)):
                tuples[key] = form
        result.append(form)
    return result


def _settled(key: Any, forms: dict[Any, Any], decode_key: DecodeKey) -> Any:
    """Settle one key without a type. `forms` caches results that are expensive to compute."""
    kind = type(key)
    if kind in _PLAIN:
        return key
    if kind is float:
        return (int(key) if key.is_integer() else key) if key == key else math.nan
    if isinstance(key, tuple | Row | list):
        if _PLAIN.issuperset(map(type, key)):
            return key if kind is tuple else tuple(key)
        return tuple([_settled(part, forms, decode_key) for part in key])
    try:
        # Not keyed by the value itself: Python considers both 2:30s of the night on which summer time ends equal.
        if kind in _BY_VALUE:
            form_key = kind, key
        elif is_dataclass(kind):
            form_key = (
                kind,
                tuple([_settled(getattr(key, name), forms, decode_key) for name in _compared_fields(kind)]),
            )
        else:
            return decode_key(canonical_bytes(key))
        form = forms.get(form_key, forms)
        if form is forms:
            form = forms[form_key] = decode_key(canonical_bytes(key))
        return form
    except TypeError:  # unhashable, so not a valid key: raise the error with an alternative
        return decode_key(canonical_bytes(key))


@lru_cache(maxsize=256)
def _compared_fields(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.compare)


def _settled_float(value: Any) -> Any:
    if type(value) is not float:
        return value
    return value + 0.0 if value == value else math.nan


def _settled_inside(value: Any, settle: Callable[[Any], Any]) -> Any:
    """The value with its parts settled; an unchanged part stays the same object."""
    return _of_parts(value, lambda part: _settled_inside(part, settle), settle)


def _of_parts(value: Any, change: Callable[[Any], Any], settle: Callable[[Any], Any]) -> Any:
    """The value with its parts changed; settled as a whole if it is a set or has no parts."""
    kind = type(value)
    if kind is Row:
        parts = [change(part) for part in value._values]
        if all(map(_is, parts, value._values)):
            return value
        new = copy.copy(value)
        new._values = parts
        return new
    if isinstance(value, tuple | list):
        parts = [change(part) for part in value]
        if all(map(_is, parts, value)):
            return value
        return value._make(parts) if hasattr(value, "_make") else kind(parts)
    if is_dataclass(value) and not isinstance(value, type):
        return _dataclass_of_parts(value, change)
    return settle(frozenset(map(change, value)) if kind is frozenset else value)


def _dataclass_of_parts(value: Any, change: Callable[[Any], Any]) -> Any:
    values = {field.name: getattr(value, field.name) for field in fields(value)}
    parts = {name: change(part) for name, part in values.items()}
    if all(part is values[name] for name, part in parts.items()):
        return value
    new = copy.copy(value)
    for name, part in parts.items():
        object.__setattr__(new, name, part)  # the class is frozen
    return new


def _without_kind(row: Any) -> Any:
    """The row with the kind INSERT: the kind is not part of a key, but would distinguish keys in a dictionary."""
    if row is None or row.get_row_kind() is RowKind.INSERT:
        return row
    inserted = copy.copy(row)
    inserted.set_row_kind(RowKind.INSERT)
    return inserted


def _is(left: Any, right: Any) -> bool:
    return left is right


def _redeclared(keys: list[Any], key_type: TypeInformation) -> list[Any]:
    """Converts keys in their simplest form to their declared type: 1 to Decimal(1), a tuple to a row."""
    declared = as_declared([_with_decimals(key, key_type) for key in keys], key_type)
    return [_settled_inside(key, _settled_float) for key in declared]


def _with_decimals(key: Any, key_type: TypeInformation) -> Any:
    plain = plain_type(key_type)
    if key is None:
        return None
    if isinstance(plain, BasicTypeInfo):
        return Decimal(key) if plain.basic_type is BasicType.BIG_DEC else key
    if isinstance(plain, RowTypeInfo | TupleTypeInfo):
        return tuple(map(_with_decimals, key, plain.get_field_types()))
    if is_sequence(plain):
        return [_with_decimals(part, plain.element_type) for part in key]
    return key


def settled_map_key(key: Any) -> Any:
    """The settled form of a map's key without a declared type, which may be any picklable value: numbers, times and
    strings in it, also inside tuples, rows, dataclasses and frozen sets, are settled as in other keys; other values are
    unchanged, including members of enumerations.

    >>> settled_map_key((True, "a", 0.5))
    (1, 'a', 0.5)
    """
    if type(key) in _PLAIN:
        return key
    if type(key) is tuple and _SIMPLE.issuperset(map(type, key)):
        return _with_shared_parts(tuple(map(_settled_part, key)), {})
    return _with_shared_parts(_settled_inside(key, _settled_part), {})


def settled_declared_map_key(key: Any, key_type: TypeInformation) -> Any:
    """The settled form of a map's key whose declared type has decimals of any size, or pickled values.

    >>> from millstream.common.typeinfo import Types
    >>> settled_declared_map_key(Decimal("1.50"), Types.BIG_DEC())
    Decimal('1.5')
    """
    return None if key is None else _redeclared([settled_map_key(key)], key_type)[0]


def with_decimals(key: Any, change: Callable[[Decimal], Decimal]) -> Any:
    """A settled key with every decimal in it converted; the key itself if it has no decimals."""
    return _settled_inside(key, lambda part: change(part) if type(part) is Decimal else part)


def with_sets(key: Any, replace_set: Callable[[frozenset[Any]], Any]) -> Any:
    """A settled map key with every frozen set in it replaced; the key itself if it has no frozen sets."""
    kind = type(key)
    if kind in _PLAIN or (kind is tuple and _SIMPLE.issuperset(map(type, key))):
        return key
    return _settled_inside(key, lambda part: replace_set(part) if type(part) is frozenset else part)


def _settled_part(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN or isinstance(value, Enum):
        return value
    if kind is np.str_ or kind is np.bytes_:
        return value.item()
    if kind is not dt.datetime and not isinstance(value, _NUMBERS):
        return value
    try:
        return _settled(value, {}, decode)  # contains no class that would need importing
    except (ProgramError, OverflowError):  # more digits, or a larger exponent, than a key of a stream may have
        return value


def _with_shared_parts(value: Any, equals: dict[Any, Any]) -> Any:
    """The value with equal parts as one object. A pickle distinguishes one object that occurs twice from two equal
    objects, and equal keys must have equal pickles."""
    kind = type(value)
    if kind is str:
        return sys.intern(value)  # names of classes and fields, which occur in pickles, are interned too
    value = _of_parts(value, lambda part: _with_shared_parts(part, equals), _itself)
    if kind is Row and value._fields:
        value = copy.copy(value)
        value._fields = tuple(map(sys.intern, value._fields))
    try:
        if is_dataclass(kind):
            value = _equal_to_its_twin(value)
        return equals.setdefault((kind, value), value)
    except TypeError:  # unhashable, so not a valid map key
        return value


def _equal_to_its_twin(value: Any) -> Any:
    """The settled dataclass, or the object that represents all dataclasses with equal parts. Newer Python versions
    compare dataclasses field by field, and a NaN is not equal to itself: without it, two that contain NaN would be two
    keys."""
    if value == copy.copy(value):
        return value
    kind: Any = type(value)
    return _UNEQUAL.setdefault((kind, *(getattr(value, name) for name in _compared_fields(kind))), value)


def _itself(value: Any) -> Any:
    return value
