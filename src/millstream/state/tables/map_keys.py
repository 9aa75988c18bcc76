"""The keys of maps: `MapState`, broadcast state, maps in operator state.

They follow the one rule of equality (`keys.key_columns`): values that are one key of a stream are one key of a map, in
memory and in the store. So keys are settled when they are passed and when they are read (`state.keys.settled_keys`).
Keys without a declared type are stored as pickles. Equal keys have equal bytes because settled keys are pickled, with
sets in a fixed order: Python's order depends on how a set was built, and on the process.

Versions before this rule pickled such keys unsettled: 1.0 and True may be stored where 1 is meant, and sets in any
order. Lookups find these rows (a set only if it was stored in the current order), newer rows override them, and
removing a key removes them too.

Decimals of any size are stored as strings, and a value has many: 1, 1.0, 1E+0. A settled value has only one. Earlier
versions stored them unsettled; lookups find such rows up to `_PLACES_MAX` decimal places.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa

from millstream.records.pickling import pickled
from millstream.state.keys.key_columns import is_hashed_as_values
from millstream.state.keys.settled_keys import (
    is_settled_by_type,
    settled_declared,
    settled_declared_map_key,
    settled_map_key,
    with_decimals,
    with_sets,
)
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.state_table import StateTable

__all__ = ["MapKeyCodec", "entries_of"]

_EXACT_FLOATS = 1 << 53
_PLACES_MAX = 8
_ABSENT = object()


class _Sorted:
    """The pickled form of a set, which unpickles as the set."""

    def __init__(self, parts: frozenset[Any]) -> None:
        self._parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return frozenset, (sorted(self._parts, key=pickled),)


class _Unsettled:
    """A key that is pickled unsettled."""

    def __init__(self, key: Any) -> None:
        self.key = key


class MapKeyCodec(StateCodec):
    """Converts the keys of one map."""

    @cached_property
    def has_forms(self) -> bool:
        """Whether the store may contain a key in forms other than the settled one."""
        return self.is_pickled or (self._type_info is not None and is_hashed_as_values(self._type_info))

    def encode(self, values: list[Any]) -> pa.Array:
        return super().encode(list(map(_to_pickle, values)) if self.has_forms else values)

    def decode(self, column: pa.Array, version: int | None = None) -> list[Any]:
        keys = super().decode(column, version)
        if self.is_pickled:
            return list(map(settled_map_key, keys))
        if self.has_forms:
            return list(map(self._settled_by_value, keys))
        return settled_declared(keys, self.arrow_type)

    def _settled_by_value(self, key: Any) -> Any:
        assert self._type_info is not None
        return settled_declared_map_key(key, self._type_info)

    def forms(self, map_key: Any) -> tuple[Any, ...]:
        """The possible stored forms of a settled key: itself, then the forms of versions before the rule."""
        if self.is_pickled and with_sets(map_key, _Sorted) is not map_key:
            return (map_key, _Unsettled(map_key))
        if not self.is_pickled and self.has_forms:
            others = (with_decimals(map_key, written) for written in _WAYS_TO_WRITE)
            return tuple({repr(form): form for form in (map_key, *others)}.values())
        if not self.is_pickled or type(map_key) is not int or abs(map_key) > _EXACT_FLOATS:
            return (map_key,)
        return (map_key, float(map_key), bool(map_key)) if map_key in (0, 1) else (map_key, float(map_key))

    def _settler(self) -> Callable[[Any], Any]:
        if self.is_pickled:
            return settled_map_key
        settle, kind = super()._settler(), self.arrow_type
        if self.has_forms:
            return lambda key: self._settled_by_value(settle(key))
        return settle if is_settled_by_type(kind) else lambda key: settled_declared([settle(key)], kind)[0]


_DIGITS_MAX = 5_000  # keys of more digits are stored unsettled
_EXACT = Context(prec=_DIGITS_MAX)


def _with_places(places: int) -> Callable[[Decimal], Decimal]:
    """A function that writes a number with at least this many decimal places."""
    unit = Decimal(1).scaleb(-places)
    return lambda number: number.quantize(unit, context=_EXACT) if _may_have(number, places) else number


def _may_have(number: Decimal, places: int) -> bool:
    exponent = number.as_tuple().exponent
    return isinstance(exponent, int) and -exponent < places and number.adjusted() < _DIGITS_MAX - _PLACES_MAX


def _without_zeros(number: Decimal) -> Decimal:
    return _EXACT.normalize(number) if len(number.as_tuple().digits) <= _DIGITS_MAX else number


_WAYS_TO_WRITE = (*map(_with_places, range(1, _PLACES_MAX + 1)), _without_zeros)


def _to_pickle(map_key: Any) -> Any:
    return map_key.key if type(map_key) is _Unsettled else with_sets(map_key, _Sorted)


def entries_of(table: StateTable, key: Any, rows: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """The entries of a map from its rows. Of duplicate rows of a key, left by older versions, the row in the settled
    form counts."""
    entries = dict(rows)
    if len(entries) == len(rows):
        return entries
    repeated = [map_key for at, (map_key, _) in enumerate(rows) if map_key in dict(rows[:at])]
    for map_key, value in zip(repeated, table.read_pairs([key] * len(repeated), repeated, _ABSENT), strict=True):
        if value is not _ABSENT:
            entries[map_key] = value
    return entries
