"""States of a key, or of a place (a key and a window), for an operator that cannot say beforehand where it will go.

A window operator meets new places while it works: windows merge, triggers ask for state of the result. So these states
are dictionaries that live as long as the epoch. Reads that were announced (`prefetch`, `load`) are done for many
places at once; writes go to the dictionary and to the table once, when the epoch ends.

The observable behaviour is that of one record at a time. What was never stored leaves no tombstone.
Lists and maps are in `place_collections`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millstream.errors import ProgramError
from millstream.runtime.state_codec import StateCodec
from millstream.runtime.state_table import StateTable

__all__ = ["AggregatingState", "PlaceState", "ReducingState", "Scope", "ValueState"]


class _Outside:
    """The place of a scope that is at none. It has no hash, so no dictionary is ever read or changed with it."""

    def __hash__(self) -> int:
        raise ProgramError(
            "state of a window was used outside a call for a key: use it in process, clear and the like, "
            "not in open() or close()"
        )


_OUTSIDE = _Outside()
_UNKNOWN = object()


class Scope:
    """Where the operator is: at a key, or at a place."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at: Any = _OUTSIDE

    def leave(self) -> None:
        """Nowhere: no user code runs."""
        self.at = _OUTSIDE


class PlaceState:
    """What all states share. `stored` places were looked up and found, others looked up and not found are known too."""

    def __init__(self, table: StateTable, scope: Scope, renews_on_read: bool) -> None:
        self.table = table
        self._scope = scope
        self._renews_on_read = renews_on_read

    @property
    def _has_rows(self) -> bool:
        return bool(self.table.view.refs)

    def begin(self) -> None:
        """An epoch begins: nothing is known, nothing is changed."""
        raise NotImplementedError

    def prefetch(self, places: Iterable[Any]) -> None:
        """Read what the operator is about to need of these places."""

    def flush(self) -> None:
        """The epoch ends: hand all changes to the table."""
        raise NotImplementedError

    def merge(self, target: Any, sources: list[Any]) -> None:
        """Make one state of several; only some kinds can."""
        raise ProgramError(
            f"state '{self.table.name}' of windows that merge is a {type(self).__name__}, which cannot be merged. "
            "Use a ReducingState, AggregatingState or ListState"
        )


class ValueState(PlaceState):
    """One value per place. None is no value."""

    def __init__(self, table: StateTable, scope: Scope, renews_on_read: bool, codec: StateCodec) -> None:
        super().__init__(table, scope, renews_on_read)
        self._settle = codec.settle
        self._exact = codec.exact

    def begin(self) -> None:
        self._known: dict[Any, Any] = {}
        self._changed: dict[Any, None] = {}
        self._unstored: set[Any] = set()

    def prefetch(self, places: Iterable[Any]) -> None:
        new = [place for place in dict.fromkeys(places) if place not in self._known]
        if new and self._has_rows:
            values = self.table.read(new)
            self._known.update(zip(new, values, strict=True))
            self._unstored.update(place for place, value in zip(new, values, strict=True) if value is None)

    def value(self) -> Any:
        """The value, None when there is none."""
        place = self._scope.at
        value = self._known.get(place, _UNKNOWN)
        if value is _UNKNOWN:
            self.prefetch((place,))
            value = self._known.setdefault(place, None)
        if self._renews_on_read and value is not None:
            self._changed[place] = None
        return value

    def update(self, value: Any) -> None:
        """Set the value; None removes it."""
        place = self._scope.at
        self._known[place] = value if type(value) is self._exact else self._settle(value)
        self._changed[place] = None

    def clear(self) -> None:
        """Remove the value."""
        self.update(None)

    def flush(self) -> None:
        known = self._known
        kept = [place for place in self._changed if known[place] is not None]
        self.table.put(kept, [known[place] for place in kept])
        if self._has_rows:
            gone = (place for place in self._changed if known[place] is None)
            self.table.delete([place for place in gone if place not in self._unstored])

    def merge(self, target: Any, sources: list[Any]) -> None:
        self.prefetch((target, *sources))
        merged = None
        for place in (target, *sources):
            self._scope.at = place
            value = self.value()
            if value is not None:
                merged = value if merged is None else self._merged(merged, value)
                self.update(None)
        self._scope.at = target
        if merged is not None:
            self.update(merged)

    def _merged(self, a: Any, b: Any) -> Any:
        return super().merge(a, [b])


class ReducingState(ValueState):
    """The values added, reduced to one."""

    def __init__(self, *args: Any, reduce: Callable[[Any, Any], Any]) -> None:
        super().__init__(*args)
        self._reduce = reduce

    get = ValueState.value

    def add(self, value: Any) -> None:
        """Reduce one more value into it."""
        before = self.value()
        self.update(value if before is None else self._reduce(before, value))

    def _merged(self, a: Any, b: Any) -> Any:
        return self._reduce(a, b)


class AggregatingState(ValueState):
    """An accumulator that values are added to; `get` is the function's result."""

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

    def _merged(self, a: Any, b: Any) -> Any:
        return self._function.merge(a, b)
