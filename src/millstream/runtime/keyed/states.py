"""The states a keyed function holds: what they hold of the current key, and what it changed in them.

A handle is made once, when the function asks for it in `open()`. The operator goes through its records in visits
(`visits`): at the start of each the handle is told the visit's keys, and the first use of the state reads it for all
of them at once; at the end what was changed is handed to the table in one piece. So a function that looks at its state
one record at a time never causes one look-up per record.

The observable behaviour is that of one record at a time, in arrival order per key.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import ProgramError
from millstream.state.keys.key_columns import KeyColumn
from millstream.state.segments.version import SegmentRef
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.state_table import EpochPlace, StateTable

__all__ = [
    "Aggregating",
    "AggregatingHandle",
    "PairHandle",
    "Reducing",
    "ReducingHandle",
    "Scope",
    "StateHandle",
    "ValueHandle",
]


class _Outside:
    """The place of a scope that is at no key. It is no index, so no list of values is ever read or changed with it:
    states need not ask, for every record, whether they may be used."""

    def __index__(self) -> int:
        raise ProgramError(
            "keyed state was used outside a keyed call: use it in process_element, on_timer, map and the like, "
            "not in open() or close()"
        )


_OUTSIDE = _Outside()


class Scope:
    """Which key the function is at: `at` is its number among the keys of the visit. Outside a keyed call it is no
    number. The keys as Python values are made when somebody asks for them."""

    __slots__ = ("_decode", "_keys", "at", "column")

    def __init__(self) -> None:
        self.at: Any = _OUTSIDE
        self.column: KeyColumn | None = None
        self._keys: list[Any] | None = None
        self._decode: Callable[[pa.Array], list[Any]] | None = None

    def visit(self, column: KeyColumn, keys: list[Any] | None, decode: Callable[[pa.Array], list[Any]]) -> None:
        """These are the keys now; the function is at none of them yet."""
        self.at, self.column, self._keys, self._decode = _OUTSIDE, column, keys, decode

    @property
    def keys(self) -> list[Any]:
        """The keys of the visit."""
        if self._keys is None:
            if self.column is None or self._decode is None:
                return []
            self._keys = self._decode(self.column.array)
        return self._keys

    @property
    def key(self) -> Any:
        """The current key."""
        at = index(self.at)
        return self.keys[at]

    def following(self) -> list[Any]:
        """The keys of the visit, from the current one on: in the order in which they mostly are asked for."""
        at = index(self.at)
        return self.keys[at:] + self.keys[:at] if at else self.keys

    def enter(self, number: int) -> None:
        """The function is about to be called for the key of this number."""
        self.at = number

    def leave(self) -> None:
        """The function is not being called."""
        self.at = _OUTSIDE


_NONE_TYPE = type(None)


class StateHandle:
    """What all states share: a table, and a scope that says which key is the current one.

    `next_number`: where the numbers of its rows go on (`row_numbers`); None: its rows have none. `numbers_rows`: they
    are those of a join's rows, not of a list's elements.
    """

    next_number: int | None = None
    numbers_rows = False

    def __init__(self, table: StateTable, scope: Any, renews_on_read: bool) -> None:
        self.table = table
        self._scope = scope
        self._renews_on_read = renews_on_read

    def open(self, place: EpochPlace, version: tuple[SegmentRef, ...]) -> None:
        """An epoch begins at this version of the table."""
        self.table.begin(place, version)
        self.begin()
        place.segments.keep_only(self.table.view.refs, self.table.layout)

    def begin(self) -> None:
        """An epoch begins: nothing is known, nothing is changed."""

    def visit(self, keys: KeyColumn) -> None:
        """The function is about to see these keys."""

    def leave(self) -> None:
        """The visit ends: hand what it changed to the table."""

    def flush(self) -> None:
        """The epoch ends: hand all that is left to the table."""


class _Unread:
    """Stands for the values of a visit until one of them is used; then they are all read."""

    __slots__ = ("_handle",)

    def __init__(self, handle: ValueHandle) -> None:
        self._handle = handle

    def __getitem__(self, at: Any) -> Any:
        return self._handle.read()[index(at)]

    def __setitem__(self, at: Any, value: Any) -> None:
        self._handle.read()[index(at)] = value


class ValueHandle(StateHandle):
    """`ValueState`: one value per key. None is no value.

    The values of a visit stand in a list, by the number of their key. A record costs one index to read and one to
    set, however many keys there are.
    """

    def __init__(self, table: StateTable, scope: Scope, renews_on_read: bool, codec: StateCodec) -> None:
        super().__init__(table, scope, renews_on_read)
        self._settle = codec.settle
        self._exact = codec.exact
        self._keys: KeyColumn | None = None
        self._forget()
        if renews_on_read:
            self.value = self._renewed_value  # type: ignore[method-assign]

    def _forget(self) -> None:
        self._values: Any = _Unread(self)
        self._stored: Any = None  # which keys have a row in the table
        self._set = bytearray()

    def begin(self) -> None:
        self._keys = None
        self._forget()

    def visit(self, keys: KeyColumn) -> None:
        self._keys = keys
        self._forget()

    def read(self) -> list[Any]:
        """Read the values of the visit's keys."""
        if self._keys is None:
            index(self._scope.at)  # there is no visit, so this refuses
        assert self._keys is not None
        self._stored, self._values = self.table.read_values(self._keys)
        self._set = bytearray(len(self._keys))
        values: list[Any] = self._values
        return values

    def value(self) -> Any:
        """The value of the current key, None when there is none."""
        return self._values[self._scope.at]

    def _renewed_value(self) -> Any:
        at = self._scope.at
        value = self._values[at]
        if value is not None:
            self._set[at] = 1
        return value

    def update(self, value: Any) -> None:
        """Set the value of the current key; None removes it."""
        at = self._scope.at
        self._values[at] = value if type(value) is self._exact else self._settle(value)
        self._set[at] = 1

    def clear(self) -> None:
        """Remove the value of the current key."""
        self.update(None)

    def leave(self) -> None:
        changed = np.flatnonzero(np.frombuffer(self._set, dtype=np.uint8))
        if len(changed):
            self._hand_over(changed)
        self._forget()

    def _hand_over(self, changed: Any) -> None:
        assert self._keys is not None
        keys, values = self._keys, self._values
        if len(changed) < len(values):
            keys, values = keys.take(changed), [values[i] for i in changed.tolist()]
        if _NONE_TYPE in set(map(type, values)):
            there = np.fromiter((value is not None for value in values), dtype=np.bool_, count=len(values))
            # A key that has no row needs no tombstone.
            self.table.delete_keys(keys.take(np.flatnonzero(~there & self._stored[changed])))
            keys, values = keys.take(np.flatnonzero(there)), [value for value in values if value is not None]
        self.table.put_settled(keys, values)


class PairHandle(ValueHandle):
    """The same for pairs of plain values, the most frequent of all states (a sum and a count): most need no call to
    settle them."""

    def __init__(self, table: StateTable, scope: Scope, renews_on_read: bool, codec: StateCodec) -> None:
        super().__init__(table, scope, renews_on_read, codec)
        assert codec.exact_pair is not None
        self._first, self._second = codec.exact_pair

    def update(self, value: Any) -> None:
        """Set the value of the current key; None removes it."""
        at = self._scope.at
        if type(value) is tuple:
            try:
                first, second = value  # which costs less than a look at the length and two at the fields
            except ValueError:
                pass  # not a pair
            else:
                if type(first) is self._first and type(second) is self._second:
                    self._values[at] = value
                    self._set[at] = 1
                    return
        self._values[at] = self._settle(value)
        self._set[at] = 1


class Reducing:
    """What makes a single value a `ReducingState`: the values added, reduced to one."""

    value: Callable[[], Any]
    update: Callable[[Any], None]

    def __init__(self, *args: Any, reduce: Callable[[Any, Any], Any]) -> None:
        super().__init__(*args)
        self._reduce = reduce

    def get(self) -> Any:
        """The reduced value."""
        return self.value()

    def add(self, value: Any) -> None:
        """Reduce one more value into it."""
        before = self.value()
        self.update(value if before is None else self._reduce(before, value))


class Aggregating:
    """What makes a single value an `AggregatingState`: an accumulator that values are added to; `get` is the function's
    result."""

    value: Callable[[], Any]
    update: Callable[[Any], None]

    def __init__(self, *args: Any, function: Any) -> None:
        super().__init__(*args)
        self._function = function

    def get(self) -> Any:
        """The result of what was added, None when nothing was."""
        accumulator = self.value()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        """Add a value."""
        accumulator = self.value()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        self.update(self._function.add(value, accumulator))


class ReducingHandle(Reducing, ValueHandle):
    """`ReducingState`."""


class AggregatingHandle(Aggregating, ValueHandle):
    """`AggregatingState`."""
