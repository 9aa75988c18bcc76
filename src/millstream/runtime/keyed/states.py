"""States of a keyed function with a single value per *subject*: a key or a place (a key and a window).

A handle is made once, when the function requests it in `open()`. Its scope has the function's current subject:

    Scope          one of a visit's keys, by its number (`keyed_backend`)
    SubjectScope   any key or place. A window operator does not know its subjects in advance: windows merge, and
                   triggers request state of the result

Handles behave alike for both; only their storage of values differs. Those of a visit are in a list, by number: the
first use of the state reads it for all keys of the visit, each record then costs one list read and one write, and
changes are written to the table when the visit ends. (A dictionary would cost a hash per use.) Values of subjects are
in a dictionary for the epoch. The operator prefetches many at once (`prefetch`); others are read on first use.

The observable behaviour is that of processing one record at a time, in arrival order per key. A subject known to have
no row gets no tombstone. States with many values per subject are in `collection_states`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from millstream.errors import ProgramError
from millstream.state.keys.key_columns import Bools, KeyColumn
from millstream.state.segments.version import SegmentRef
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.state_table import StateTable, TableSetting

__all__ = ["AggregatingHandle", "PairHandle", "ReducingHandle", "Scope", "StateHandle", "SubjectScope", "ValueHandle"]


class _Outside:
    """The subject of a scope outside a call. It has no index and no hash, so no list or dictionary is ever read or
    changed with it: states need no check per record."""

    def __init__(self, message: str) -> None:
        self._message = message

    def _reject(self) -> NoReturn:
        raise ProgramError(self._message)

    __index__ = __hash__ = _reject


_OUTSIDE_VISIT = _Outside(
    "keyed state was used outside a keyed call: use it in process_element, on_timer, map or a similar method, "
    "not in open() or close()"
)
_OUTSIDE_WINDOW = _Outside(
    "state of a window was used outside a call for a key: use it in process, clear or a similar method, "
    "not in open() or close()"
)


class Scope:
    """The current key of a visit: `at` is its number, or a placeholder outside a keyed call. The keys are converted to
    Python values on demand."""

    __slots__ = ("_decode", "_keys", "at", "column")

    def __init__(self) -> None:
        self.at: Any = _OUTSIDE_VISIT
        self.column: KeyColumn | None = None
        self._keys: list[Any] | None = None
        self._decode: Callable[[pa.Array], list[Any]] | None = None

    def visit(self, column: KeyColumn, keys: list[Any] | None, decode: Callable[[pa.Array], list[Any]]) -> None:
        """Start a visit to these keys, outside any of them."""
        self.at, self.column, self._keys, self._decode = _OUTSIDE_VISIT, column, keys, decode

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
        """The keys of the visit, from the current one on, usually in the order of use."""
        at = index(self.at)
        return self.keys[at:] + self.keys[:at] if at else self.keys

    def enter(self, number: int) -> None:
        """Set the current key by its number."""
        self.at = number

    def leave(self) -> None:
        """Unset the current key: no function runs."""
        self.at = _OUTSIDE_VISIT


class SubjectScope:
    """The current key or place of the operator: `at` is the key or place itself."""

    __slots__ = ("at",)

    # The next subjects are unknown here: operators prefetch them (`prefetch`, `load`).
    keys: tuple[Any, ...] = ()

    def __init__(self) -> None:
        self.at: Any = _OUTSIDE_WINDOW

    @property
    def key(self) -> Any:
        """The current subject."""
        return self.at

    def following(self) -> tuple[Any, ...]:
        """The known next subjects: always empty."""
        return self.keys

    def leave(self) -> None:
        """Unset the current subject: no user code runs."""
        self.at = _OUTSIDE_WINDOW


class StateHandle:
    """Base of all states: a table, and a scope with the current subject (None if no function uses the handle).

    `shape` is the kind of state for functions and queries; "" for internal ones. `next_number`: the next number of its
    rows (`state_store`); None: its rows are not numbered. `numbers_rows`: the numbers are those of a join's rows, not
    of a list's elements.
    """

    shape = ""
    next_number: int | None = None
    numbers_rows = False

    def __init__(self, table: StateTable, scope: Any, renews_on_read: bool = False) -> None:
        self.table = table
        self._scope = scope
        self._renews_on_read = renews_on_read

    def open(self, setting: TableSetting, version: tuple[SegmentRef, ...]) -> None:
        """Start an epoch at this version of the table."""
        self.table.begin(setting, version)
        self.begin()
        setting.segments.keep_only(self.table.view.refs, self.table.layout)

    def begin(self) -> None:
        """Start an epoch: nothing is loaded or changed."""

    def visit(self, keys: KeyColumn) -> None:
        """Start a visit to these keys."""

    def prefetch(self, subjects: Iterable[Any]) -> None:
        """Read the single values of these keys or places in one lookup."""

    def leave(self) -> None:
        """End the visit, or the epoch: write changes to the table."""

    def merge(self, target: Any, sources: list[Any]) -> None:
        """Merge the state of the sources into the target, which becomes the current subject. Some states do not support
        merging."""
        raise self._merge_error()

    def _merge_error(self) -> ProgramError:
        return ProgramError(
            f"state '{self.table.name}' of merging windows is a {self.shape.capitalize()}State, which cannot be "
            "merged. Use a ReducingState, AggregatingState or ListState"
        )


_NONE_TYPE = type(None)


class _Unread:
    """Placeholder for the values of a visit; the first use reads them all."""

    __slots__ = ("_handle",)

    def __init__(self, handle: ValueHandle) -> None:
        self._handle = handle

    def __getitem__(self, at: Any) -> Any:
        return self._handle.read()[index(at)]

    def __setitem__(self, at: Any, value: Any) -> None:
        self._handle.read()[index(at)] = value


class _SubjectValues(dict[Any, Any]):
    """The values of subjects, None for subjects without a value; each is read on first use."""

    __slots__ = ("_table", "rowless")

    def __init__(self, table: StateTable) -> None:
        self._table = table
        self.rowless: set[Any] = set()  # subjects known to have no row

    def __missing__(self, subject: Any) -> Any:
        self.read((subject,))
        return self.setdefault(subject, None)

    def read(self, subjects: Iterable[Any]) -> None:
        """Read those not yet read, in one lookup."""
        new = [subject for subject in dict.fromkeys(subjects) if subject not in self]
        if new and self._table.holds_rows:
            values = self._table.read(new)
            self.update(zip(new, values, strict=True))
            self.rowless.update(subject for subject, value in zip(new, values, strict=True) if value is None)

    def have_rows(self, subjects: list[Any]) -> Bools:
        """Mask of the subjects that may have a row in the table."""
        if not self._table.holds_rows:
            return np.zeros(len(subjects), dtype=np.bool_)
        return np.array([subject not in self.rowless for subject in subjects], dtype=np.bool_)


class ValueHandle(StateHandle):
    """`ValueState`: one value per subject. None is not a value."""

    shape = "value"

    def __init__(self, table: StateTable, scope: Scope | SubjectScope, renews_on_read: bool, codec: StateCodec) -> None:
        super().__init__(table, scope, renews_on_read)
        self._settle = codec.settle
        self._exact = codec.exact
        self._is_visited = isinstance(scope, Scope)
        self._keys: KeyColumn | None = None
        self._reset()
        if renews_on_read:
            self.value = self._renewed_value  # type: ignore[method-assign]

    def _reset(self) -> None:
        self._values: Any = _Unread(self) if self._is_visited else _SubjectValues(self.table)
        self._set: Any = bytearray() if self._is_visited else {}  # flags of set values, indexed like `_values`
        self._stored: Any = None  # mask of the visit's keys that have a row in the table

    def begin(self) -> None:
        self._keys = None
        self._reset()

    def visit(self, keys: KeyColumn) -> None:
        self._keys = keys
        self._reset()

    def read(self) -> list[Any]:
        """Read the values of the visit's keys."""
        if self._keys is None:
            index(self._scope.at)  # raises: there is no visit
        assert self._keys is not None
        self._stored, self._values = self.table.read_values(self._keys)
        self._set = bytearray(len(self._keys))
        values: list[Any] = self._values
        return values

    def prefetch(self, subjects: Iterable[Any]) -> None:
        self._values.read(subjects)

    def value(self) -> Any:
        """The value of the current subject, or None."""
        return self._values[self._scope.at]

    def _renewed_value(self) -> Any:
        at = self._scope.at
        value = self._values[at]
        if value is not None:
            self._set[at] = 1
        return value

    def update(self, value: Any) -> None:
        """Set the value of the current subject; None removes it."""
        at = self._scope.at
        self._values[at] = value if type(value) is self._exact else self._settle(value)
        self._set[at] = 1

    def clear(self) -> None:
        """Remove the value of the current subject."""
        self.update(None)

    def leave(self) -> None:
        if self._set:
            keys, values, stored = self._changes_of_visit() if self._is_visited else self._changes_of_subjects()
            if _NONE_TYPE in set(map(type, values)):
                has_value = np.fromiter((value is not None for value in values), dtype=np.bool_, count=len(values))
                self.table.delete_keys(keys.take(np.flatnonzero(~has_value & stored)))
                keys, values = keys.take(np.flatnonzero(has_value)), [value for value in values if value is not None]
            self.table.put_settled(keys, values)
        self._reset()

    def _changes_of_visit(self) -> tuple[KeyColumn, list[Any], Bools]:
        """The changes: keys, values, and a mask of the keys that have a row."""
        assert self._keys is not None
        changed = np.flatnonzero(np.frombuffer(self._set, dtype=np.uint8))
        if len(changed) == len(self._values):
            return self._keys, self._values, self._stored
        return self._keys.take(changed), [self._values[i] for i in changed.tolist()], self._stored[changed]

    def _changes_of_subjects(self) -> tuple[KeyColumn, list[Any], Bools]:
        subjects = list(self._set)
        values = [self._values[subject] for subject in subjects]
        return self.table.column(subjects), values, self._values.have_rows(subjects)

    def merge(self, target: Any, sources: list[Any], combine: Callable[[Any, Any], Any] | None = None) -> None:
        """Merge several values into one; `combine` merges two and defaults to the state's own merge."""
        self.prefetch((target, *sources))
        scope, merged = self._scope, None
        for scope.at in (target, *sources):
            value = self.value()
            if value is not None:
                merged = value if merged is None else (combine or self._combined)(merged, value)
                self.update(None)
        scope.at = target
        if merged is not None:
            self.update(merged)

    def _combined(self, first: Any, second: Any) -> Any:
        """The merged value of two windows."""
        raise self._merge_error()


class PairHandle(ValueHandle):
    """`ValueState` of pairs of plain values, the most frequent kind (a sum and a count): most need no settling."""

    def __init__(self, table: StateTable, scope: Scope, renews_on_read: bool, codec: StateCodec) -> None:
        super().__init__(table, scope, renews_on_read, codec)
        assert codec.exact_pair is not None
        self._first, self._second = codec.exact_pair

    def update(self, value: Any) -> None:
        """Set the value of the current key; None removes it."""
        at = self._scope.at
        if type(value) is tuple:
            try:
                first, second = value  # cheaper than checking the length and reading two fields
            except ValueError:
                pass  # not a pair
            else:
                if type(first) is self._first and type(second) is self._second:
                    self._values[at] = value
                    self._set[at] = 1
                    return
        self._values[at] = self._settle(value)
        self._set[at] = 1


class ReducingHandle(ValueHandle):
    """`ReducingState`: the values added, reduced to one."""

    shape = "reducing"

    def __init__(self, *settings: Any, reduce: Callable[[Any, Any], Any]) -> None:
        super().__init__(*settings)
        self._reduce = reduce

    def get(self) -> Any:
        """The reduced value."""
        return self.value()

    def add(self, value: Any) -> None:
        """Reduce one more value into it."""
        before = self.value()
        self.update(value if before is None else self._reduce(before, value))

    def _combined(self, first: Any, second: Any) -> Any:
        return self._reduce(first, second)


class AggregatingHandle(ValueHandle):
    """`AggregatingState`: an accumulator; `get` is the function's result."""

    shape = "aggregating"

    def __init__(self, *settings: Any, function: Any) -> None:
        super().__init__(*settings)
        self._function = function

    def get(self) -> Any:
        """The result of the added values, None if no value was added."""
        accumulator = self.value()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        """Add a value."""
        accumulator = self.value()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        self.update(self._function.add(value, accumulator))

    def _combined(self, first: Any, second: Any) -> Any:
        return self._function.merge(first, second)
