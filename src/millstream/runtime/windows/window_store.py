"""States of one window operator in one subtask: of its keys and of its places, and timers of its places.

States are requested by descriptor at any time: a trigger requests them while an epoch runs. There are two scopes. A
*key* has states of functions independent of windows, counts of assigners, and the key's merged windows. A *place* (a
key and a window) has contents, states of triggers, and per-window state of functions. A prefix identifies the
requester, so that a trigger's `count` differs from a function's.

All tables are in the store of the operator's backend, which opens and writes them. They are not part of visits: a
record's key alone does not determine what it reads, so places are prefetched as they are announced, and written when
the epoch ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.errors import ProgramError
from millstream.runtime.keyed.collection_states import ListHandle, MapHandle
from millstream.runtime.keyed.state_store import StateGetters, StateStore
from millstream.runtime.keyed.states import AggregatingHandle, ReducingHandle, StateHandle, SubjectScope, ValueHandle
from millstream.state.stored.table_names import WINDOW_EVENT_TIMERS, WINDOW_PROCESSING_TIMERS
from millstream.state.tables.state_table import StateTable
from millstream.state.windows.places import PlaceTable

__all__ = ["PartyStates", "WindowStore"]


class WindowStore:
    """The states and timers; `store` has their tables."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self.keys = SubjectScope()
        self.places = SubjectScope()
        self._of_keys: dict[str, StateHandle] = {}
        self._of_places: dict[str, StateHandle] = {}
        self.event_timers = store.timers(WINDOW_EVENT_TIMERS, PlaceTable)
        self.processing_timers = store.timers(WINDOW_PROCESSING_TIMERS, PlaceTable)

    def state_of_key(self, name: str, kind: type[StateHandle], descriptor: Any) -> Any:
        """The state of this descriptor at keys, stored under `name`."""
        handle = self._of_keys[name] = self._store.state(name, kind, descriptor, self.keys, StateTable)
        return handle

    def state_of_place(self, name: str, kind: type[StateHandle], descriptor: Any) -> Any:
        """The state of this descriptor at places, stored under `name`."""
        if getattr(descriptor, "_queryable_name", None) is not None:
            raise ProgramError(
                f"state '{descriptor.get_name()}' of '{self._store.operator}' belongs to a window and a key, and only "
                "state of keys can be queryable. Make the windows queryable instead: window(...).queryable(name)"
            )
        handle = self._of_places[name] = self._store.state(name, kind, descriptor, self.places, PlaceTable)
        return handle

    def prefetch(self, keys: Iterable[Any], places: Iterable[Any]) -> None:
        """Read single values of all these keys and places in one lookup."""
        keys, places = list(keys), list(places)
        for handle in self._of_keys.values():
            handle.prefetch(keys)
        for handle in self._of_places.values():
            handle.prefetch(places)

    def leave(self) -> None:
        """Unset the current key and place: no user code runs."""
        self.keys.leave()
        self.places.leave()

    def wake_ms(self, now_ms: int) -> int | None:
        """When the next processing-time timer fires, if any: after its millisecond has passed. Timers of the current
        millisecond remain."""
        earliest_ms = self.processing_timers.earliest(after=now_ms - 1)
        return None if earliest_ms is None else earliest_ms + 1


_KINDS: dict[str, type[StateHandle]] = {
    "ValueStateDescriptor": ValueHandle,
    "ListStateDescriptor": ListHandle,
    "MapStateDescriptor": MapHandle,
    "ReducingStateDescriptor": ReducingHandle,
    "AggregatingStateDescriptor": AggregatingHandle,
}


class PartyStates(StateGetters):
    """States of keys, or of places, of one requester. `party` prefixes their names."""

    def __init__(self, store: WindowStore, party: str, of_places: bool) -> None:
        self._party = party
        self._state = store.state_of_place if of_places else store.state_of_key
        # Keyed by identity: comparing descriptors would dominate a trigger's cost per record.
        self._states: dict[int, tuple[Any, Any]] = {}

    def state(self, descriptor: Any, kind: type[StateHandle] | None = None) -> Any:
        entry = self._states.get(id(descriptor))
        if entry is None:
            state = self._state(f"{self._party}{descriptor.get_name()}", kind or _kind_of(descriptor), descriptor)
            entry = self._states[id(descriptor)] = (descriptor, state)
        return entry[1]


def _kind_of(descriptor: Any) -> type[StateHandle]:
    for ancestor in type(descriptor).__mro__:
        if ancestor.__name__ in _KINDS:
            return _KINDS[ancestor.__name__]
    raise ProgramError(f"get_partitioned_state: found {descriptor!r}, expected a state descriptor")
