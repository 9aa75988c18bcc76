"""States of a key, or of a place (a key and a window), for an operator that cannot say beforehand where it will go.

A window operator meets new places while it works: windows merge, triggers ask for state of the result. So these states
are dictionaries that live as long as the epoch. Reads that were announced (`prefetch`, `load`) are done for many
places at once; writes go to the dictionary and to the table once, when the epoch ends.

The observable behaviour is that of one record at a time. What was never stored leaves no tombstone.
Lists and maps are those of all keyed operators (`runtime.keyed.collection_states`), at places.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.errors import ProgramError
from millstream.runtime.keyed.collection_states import ListHandle, MapHandle
from millstream.runtime.keyed.states import Aggregating, Reducing, StateHandle
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.state_table import StateTable

__all__ = ["AggregatingState", "ListState", "MapState", "PlaceState", "ReducingState", "Scope", "ValueState"]


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

    # Other places that are at hand; which ones is not known here, so what is needed of many is asked for by `load`.
    keys: tuple[Any, ...] = ()

    def __init__(self) -> None:
        self.at: Any = _OUTSIDE

    @property
    def key(self) -> Any:
        """Where it is, under the name that keyed states use."""
        return self.at

    def following(self) -> tuple[Any, ...]:
        """Which places come next is not known."""
        return self.keys

    def leave(self) -> None:
        """Nowhere: no user code runs."""
        self.at = _OUTSIDE


class PlaceState(StateHandle):
    """What all states of places share: they are read ahead, and some kinds can be merged."""

    @property
    def _has_rows(self) -> bool:
        return bool(self.table.view.refs)

    def prefetch(self, places: Iterable[Any]) -> None:
        """Read what the operator is about to need of these places."""

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


class ReducingState(Reducing, ValueState):
    """The values added, reduced to one."""

    def _merged(self, a: Any, b: Any) -> Any:
        return self._reduce(a, b)


class AggregatingState(Aggregating, ValueState):
    """An accumulator that values are added to."""

    def _merged(self, a: Any, b: Any) -> Any:
        return self._function.merge(a, b)


class ListState(ListHandle, PlaceState):
    """A list per place."""

    def merge(self, target: Any, sources: list[Any]) -> None:
        self.load(sources)
        for place in sources:
            self._scope.at = place
            moved = self.get()
            self.clear()
            self._scope.at = target
            for value in moved:
                self.append(value)
        self._scope.at = target


class MapState(MapHandle, PlaceState):
    """A map per place."""
