"""Contents of a window until it fires: a single folded value, or all its records.

    Folded    reduced or aggregated as records arrive: one row per window
    Listed    all records: a row each, appended and never rewritten
    Evicted   all records with their times; the evictor removes some whenever the window fires

`fire` passes the contents to the window function; an empty window does not fire. Emitted values never change
afterwards, even if a user's function changes its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

from millstream.aggregation.rolling_records import mutable_copy
from millstream.common.typeinfo import TypeInformation, Types
from millstream.errors import ProgramError
from millstream.graph.nodes import Window
from millstream.records.batch import is_typed
from millstream.records.timestamped_value import TimestampedValue
from millstream.runtime.keyed.collection_states import ListHandle
from millstream.runtime.keyed.state_store import OwnState
from millstream.runtime.keyed.states import StateHandle, ValueHandle
from millstream.runtime.windows.window_store import WindowStore
from millstream.state.stored.table_names import WINDOW_CONTENTS
from millstream.state.windows.places import Place

__all__ = ["Contents", "Fold", "contents_of"]

Fire = Callable[[Any], None]


class Contents:
    """The contents of the current window, which the store's place selects."""

    def add(self, value: Any, timestamp: int | None) -> None:
        """Add a record to the window."""
        raise NotImplementedError

    def fire(self, window: Any, call: Fire, retained: bool) -> None:
        """Call the window function with the contents unless empty; `retained`: the window keeps them."""
        raise NotImplementedError

    def clear(self) -> None:
        """Delete the contents."""
        raise NotImplementedError

    def merge(self, target: Place, sources: list[Place]) -> None:
        """Merge the contents of several windows into one; the store's place is then `target`."""
        raise NotImplementedError

    def prepare(self, places: list[Place]) -> None:
        """Read the contents of these windows, which are about to fire, in one lookup."""


class Fold:
    """Folds records into one value by a reduce or an aggregate function."""

    def __init__(self, operation: Window) -> None:
        self._aggregate = operation.aggregate
        # Built-in aggregates order first and last records by event time.
        self._add_at: Callable[[Any, int | None, Any], Any] | None = getattr(operation.aggregate, "add_at", None)
        function = operation.reduce
        # A callable with `reduce` is a reduce function only if it also has `open`: numpy's ufuncs have `reduce`.
        self._reduce: Callable[[Any, Any], Any] = function.reduce if hasattr(function, "open") else function

    def add(self, before: Any, value: Any, timestamp: int | None) -> Any:
        """The value after one more record; `before` is None for the first."""
        if self._aggregate is not None:
            before = self._aggregate.create_accumulator() if before is None else before
            if self._add_at is not None:
                return self._add_at(value, timestamp, before)
            return self._checked(self._aggregate.add(value, before), "add() of the aggregate function")
        if value is None:
            raise ProgramError("the record is None, which cannot be reduced. Filter such records out first")
        if before is None:
            return mutable_copy(value)  # a record may be in several windows, and the function may change its argument
        return self._checked(self._reduce(before, value), "the reduce function")

    def add_all(self, before: Any, values: Iterator[Any], timestamps: list[int] | None) -> Any:
        """The value after all these records; equals adding them one by one."""
        if self._aggregate is None or self._add_at is not None:
            for value, timestamp in zip(values, timestamps or repeat(None), strict=False):
                before = self.add(before, value, timestamp)
            return before
        add = self._aggregate.add
        folded = self._aggregate.create_accumulator() if before is None else before
        for value in values:
            folded = add(value, folded)
            if folded is None:
                self._checked(folded, "add() of the aggregate function")
        return folded

    def merge(self, a: Any, b: Any) -> Any:
        """Merge two values."""
        if self._aggregate is None:
            return self._checked(self._reduce(a, b), "the reduce function")
        return self._checked(self._aggregate.merge(a, b), "merge() of the aggregate function")

    def result(self, value: Any) -> Any:
        """The argument of the window function."""
        return value if self._aggregate is None else self._aggregate.get_result(value)

    def of(self, elements: list[TimestampedValue]) -> tuple[Any, ...]:
        """The result of all these records as a 1-tuple; empty if a reduction has no records."""
        folded = None
        for element in elements:
            folded = self.add(folded, element.value, element.timestamp)
        if folded is None:
            if self._aggregate is None:
                return ()
            folded = self._aggregate.create_accumulator()
        return (self.result(folded),)

    @staticmethod
    def _checked(value: Any, source: str) -> Any:
        if value is None:
            raise ProgramError(f"{source} returned None, expected a value")
        return value


class Folded(Contents):
    """One value per window."""

    def __init__(self, store: WindowStore, operation: Window) -> None:
        self._fold = Fold(operation)
        type_info = operation.contents_type or Types.PICKLED_BYTE_ARRAY()
        self._state: ValueHandle = _state(store, ValueHandle, type_info)

    def add(self, value: Any, timestamp: int | None) -> None:
        self._state.update(self._fold.add(self._state.value(), value, timestamp))

    def fire(self, window: Any, call: Fire, retained: bool) -> None:
        value = self._state.value()
        if value is not None:
            result = self._fold.result(value)
            call(mutable_copy(result) if retained else result)

    def clear(self) -> None:
        self._state.clear()

    def merge(self, target: Place, sources: list[Place]) -> None:
        self._state.merge(target, sources, self._fold.merge)


class Listed(Contents):
    """All records of a window."""

    def __init__(self, store: WindowStore, operation: Window) -> None:
        element = operation.contents_type or Types.PICKLED_BYTE_ARRAY()
        self._state: ListHandle = _state(store, ListHandle, Types.LIST(element))

    def add(self, value: Any, timestamp: int | None) -> None:
        self._state.append(value)

    def fire(self, window: Any, call: Fire, retained: bool) -> None:
        values = self._state.get()
        if values:
            call(values)

    def clear(self) -> None:
        self._state.clear()

    def merge(self, target: Place, sources: list[Place]) -> None:
        self._state.merge(target, sources)

    def prepare(self, places: list[Place]) -> None:
        self._state.load_ahead(places)


class Evicted(Listed):
    """All records of a window with their times, passed to an evictor before and after the function."""

    def __init__(self, store: WindowStore, operation: Window, context: Any) -> None:
        element = Types.LIST(_pair(operation.contents_type))
        self._state = _state(store, ListHandle, element)
        self._evictor = operation.evictor
        self._context = context
        self._fold = Fold(operation) if (operation.reduce or operation.aggregate) is not None else None

    def add(self, value: Any, timestamp: int | None) -> None:
        self._state.append((value, timestamp))

    def fire(self, window: Any, call: Fire, retained: bool) -> None:
        elements = [TimestampedValue(value, timestamp) for value, timestamp in self._state.get()]
        count = len(elements)
        if not count:
            return
        self._evictor.evict_before(elements, count, window, self._context)
        if self._fold is None:
            call([element.value for element in elements])
        else:
            for result in self._fold.of(elements):
                call(result)
        self._evictor.evict_after(elements, len(elements), window, self._context)
        if len(elements) < count:
            self._state.update([(element.value, element.timestamp) for element in elements])


def _pair(type_info: TypeInformation | None) -> TypeInformation:
    """The type of a (record, time) pair."""
    if type_info is None or not is_typed(type_info):
        return Types.PICKLED_BYTE_ARRAY()
    return Types.TUPLE([type_info, Types.LONG()])


def _state(store: WindowStore, kind: type[StateHandle], type_info: Any) -> Any:
    return store.state_of_place(WINDOW_CONTENTS, kind, OwnState(WINDOW_CONTENTS, type_info))


def contents_of(store: WindowStore, operation: Window, context: Any) -> Contents:
    """Create the contents that an operation requires. `context` is passed to the evictor."""
    if operation.evictor is not None:
        return Evicted(store, operation, context)
    if operation.reduce is not None or operation.aggregate is not None:
        return Folded(store, operation)
    return Listed(store, operation)
