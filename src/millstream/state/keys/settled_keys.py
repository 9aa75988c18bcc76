"""Keys as Python values in one form: of all values that are one key, the one that functions see.

Operators hold keys in dictionaries, and a key that comes back from the store must be the one that went in. So every key
is settled before it is used, and every key that is read is settled again, by the same functions. Invariant: settled
keys that are one key by the rule of `equality` are one key of a dictionary, and settling twice is settling once.

Which form: without a declared type the simplest (`canonical_decoding`): an int where a number is whole, else a float,
else a Decimal; a tuple for rows and named tuples. With a declared type the type's own, with 0.0 for -0.0 and tuples for
lists. It depends on the key alone, never on which of its forms came first, so a function sees the same in every
repetition, after a restore and at another parallelism. All NaNs are the one object `math.nan`: dictionaries, tuples and
rows compare by identity before they ask whether values are equal.

Keys of the program's classes are made again by `decode_key`, which a task has (`runtime.exchange.key_classes`) and a
reader has not (`canonical_decoding.decode`); there is no default, because a function must never be given the reader's.
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
from millstream.state.keys.equality import holds_floats
from millstream.state.keys.key_columns import is_hashed_as_values

__all__ = [
    "is_settled_by_type",
    "keys_of_canonical",
    "settled_declared",
    "settled_keys",
    "settled_map_key",
    "with_sets",
]

_PLAIN = frozenset((int, str, bytes, type(None)))
"""Values of exactly these types are settled: no other value of them is the same key."""
_SIMPLE = _PLAIN | {bool, float}
_NUMBERS = (int, float, Decimal, np.number, np.bool_)
_BY_VALUE = frozenset((bool, Decimal, UUID, dt.date, dt.timedelta, np.int32, np.int64, np.float64, np.bool_))
"""Of these, what Python calls equal is one key."""

DecodeKey: TypeAlias = Callable[[bytes], Any]
"""What makes a key of its canonical bytes."""


def settled_keys(keys: list[Any], key_type: TypeInformation | None, decode_key: DecodeKey) -> list[Any]:
    """The keys, each in the form that stands for all equal ones and in which the store gives it back.

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
    """The settled keys that canonical bytes stand for.

    >>> keys_of_canonical([canonical_bytes((1.0, "a"))], None, decode)
    [(1, 'a')]
    """
    keys = list(map(decode_key, stored))
    return keys if key_type is None or arrow_type(key_type) is None else _redeclared(keys, key_type)


def is_settled_by_type(kind: pa.DataType) -> bool:
    """Whether values as a column of this type gives them are settled as they are."""
    return not holds_floats(kind) and not _holds_lists(kind)


def settled_declared(values: list[Any], kind: pa.DataType) -> list[Any]:
    """Values as a column of this type gives them, with one NaN and one zero, and tuples for lists.

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
    """The value with tuples for the lists in it, which no dictionary takes."""
    if isinstance(value, list | tuple):
        return tuple(map(_without_lists, value))
    if isinstance(value, Row):
        changed = copy.copy(value)
        changed._values = list(map(_without_lists, value._values))
        return changed
    return value


def _settled_each(keys: list[Any], decode_key: DecodeKey) -> list[Any]:
    """Keys without a type."""
    known: dict[Any, Any] = {}
    tuples: dict[tuple[Any, ...], Any] = {}  # of plain values and numbers, for which nothing else can be taken
    settled = []
    for key in keys:
        kind = type(key)
        if kind in _PLAIN:
            settled.append(key)
            continue
        if kind is float:
            settled.append((int(key) if key.is_integer() else key) if key == key else math.nan)
            continue
        try:
            form = tuples.get(key) if isinstance(key, tuple) else None
        except TypeError:
            form = None  # it holds a list or the like, which is refused below
        if form is None:
            form = _settled(key, known, decode_key)
            if isinstance(key, tuple) and _SIMPLE.issuperset(map(type, key)):
                tuples[key] = form
        settled.append(form)
    return settled


def _settled(key: Any, known: dict[Any, Any], decode_key: DecodeKey) -> Any:
    """One key without a type. `known` are those settled before whose forms take long to make."""
    kind = type(key)
    if kind in _PLAIN:
        return key
    if kind is float:
        return (int(key) if key.is_integer() else key) if key == key else math.nan
    if isinstance(key, tuple | Row):
        if _PLAIN.issuperset(map(type, key)):
            return key if kind is tuple else tuple(key)
        return tuple([_settled(part, known, decode_key) for part in key])
    try:
        # Not by the key itself: Python calls both half past two of an autumn night in one time zone equal.
        if kind in _BY_VALUE:
            place = kind, key
        elif is_dataclass(kind):
            place = kind, tuple([_settled(getattr(key, name), known, decode_key) for name in _compared(kind)])
        else:
            return decode_key(canonical_bytes(key))
        form = known.get(place, known)
        if form is known:
            form = known[place] = decode_key(canonical_bytes(key))
        return form
    except TypeError:  # no key of a dictionary, hence none of a stream: say so, and what to use instead
        return decode_key(canonical_bytes(key))


@lru_cache(maxsize=256)
def _compared(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.compare)


def _settled_float(value: Any) -> Any:
    if type(value) is not float:
        return value
    return value + 0.0 if value == value else math.nan


def _settled_inside(value: Any, settle: Callable[[Any], Any]) -> Any:
    """The same value with what is inside of it settled; what needs no change stays the object it is."""
    return _of_parts(value, lambda part: _settled_inside(part, settle), settle)


def _of_parts(value: Any, change: Callable[[Any], Any], settle: Callable[[Any], Any]) -> Any:
    """The value with its parts changed, or, if it has none, settled; a set is settled besides."""
    kind = type(value)
    if kind is Row:
        parts = [change(part) for part in value._values]
        if all(map(_is, parts, value._values)):
            return value
        changed = copy.copy(value)
        changed._values = parts
        return changed
    if isinstance(value, tuple | list):
        parts = [change(part) for part in value]
        if all(map(_is, parts, value)):
            return value
        return value._make(parts) if hasattr(value, "_make") else kind(parts)
    if is_dataclass(value) and not isinstance(value, type):
        return _dataclass_of_parts(value, change)
    return settle(frozenset(map(change, value)) if kind is frozenset else value)


def _dataclass_of_parts(value: Any, change: Callable[[Any], Any]) -> Any:
    held = {field.name: getattr(value, field.name) for field in fields(value)}
    parts = {name: change(part) for name, part in held.items()}
    if all(part is held[name] for name, part in parts.items()):
        return value
    changed = copy.copy(value)
    for name, part in parts.items():
        object.__setattr__(changed, name, part)  # it is frozen
    return changed


def _without_kind(row: Any) -> Any:
    """The row as one that is inserted: what happened to it is no part of a key, but a dictionary tells it apart."""
    if row is None or row.get_row_kind() is RowKind.INSERT:
        return row
    inserted = copy.copy(row)
    inserted.set_row_kind(RowKind.INSERT)
    return inserted


def _is(left: Any, right: Any) -> bool:
    return left is right


def _redeclared(keys: list[Any], key_type: TypeInformation) -> list[Any]:
    """Keys in their simplest form as their type declares them: 1 as Decimal(1), a tuple as a row."""
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
    """A key of a map without a declared type, which may be anything that can be pickled: numbers, times and texts in
    it, and in tuples, rows, dataclasses and frozen sets, are settled as those of keys are; all else, members of
    enumerations too, stays.

    >>> settled_map_key((True, "a", 0.5))
    (1, 'a', 0.5)
    """
    if type(key) in _PLAIN:
        return key
    if type(key) is tuple and _SIMPLE.issuperset(map(type, key)):
        return _with_shared_parts(tuple(map(_settled_part, key)), {})
    return _with_shared_parts(_settled_inside(key, _settled_part), {})


def with_sets(key: Any, changed: Callable[[frozenset[Any]], Any]) -> Any:
    """A settled key of a map with something else for every frozen set in it; itself if there is none."""
    kind = type(key)
    if kind in _PLAIN or (kind is tuple and _SIMPLE.issuperset(map(type, key))):
        return key
    return _settled_inside(key, lambda part: changed(part) if type(part) is frozenset else part)


def _settled_part(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN or isinstance(value, Enum):
        return value
    if kind is np.str_ or kind is np.bytes_:
        return value.item()
    if kind is not dt.datetime and not isinstance(value, _NUMBERS):
        return value
    try:
        return _settled(value, {}, decode)  # it is of no class that would have to be made again
    except (ProgramError, OverflowError):  # of more digits, or further off, than a key of a stream may be
        return value


def _with_shared_parts(value: Any, equals: dict[Any, Any]) -> Any:
    """The value with all that is equal in it as one object: a pickle tells an object that stands twice from two that
    are equal, and equal keys must have equal pickles."""
    kind = type(value)
    if kind is str:
        return sys.intern(value)  # as the names of a class and its fields are, which stand in pickles too
    value = _of_parts(value, lambda part: _with_shared_parts(part, equals), _itself)
    if kind is Row and value._fields:
        value = copy.copy(value)
        value._fields = tuple(map(sys.intern, value._fields))
    try:
        return equals.setdefault((kind, value), value)
    except TypeError:  # no key of a dictionary, and so of no map
        return value


def _itself(value: Any) -> Any:
    return value
