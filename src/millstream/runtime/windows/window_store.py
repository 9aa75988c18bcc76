"""All state of one window operator in one subtask: of its keys, of its windows, and the timers of its windows.

States are asked for by descriptor, whenever it is convenient: a trigger asks while an epoch runs. The store has two
scopes. At a *key* are what functions keep whatever the window, counts of assigners, and which windows of the key have
merged. At a *place* (a key and a window) are contents, what triggers remember, and per-window state of functions.
Those that different parties ask for have names of their own, so that a trigger's `count` is not a function's.

At the start of an epoch everything is opened at the last manifest's version; at its end each table that changed has
written one segment, and the new versions go into the operator's account beside those of its backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError
from millstream.runtime.keyed.declared_states import declared_state, own_name_taken
from millstream.runtime.keyed.keyed_backend import KeyedBackend
from millstream.runtime.keyed.queryable_states import queryables_told
from millstream.runtime.keyed.row_numbers import last_row_numbers, with_row_numbers
from millstream.runtime.keyed.timers import Timers
from millstream.runtime.windows.place_states import (
    AggregatingState,
    ListState,
    MapState,
    PlaceState,
    ReducingState,
    Scope,
    ValueState,
)
from millstream.state.schemas.state_schemas import last_schemas, stored_tables
from millstream.state.segments.version import SegmentRef
from millstream.state.stored.accounts import SubtaskAccount, tables_of
from millstream.state.stored.state_codec import StateCodec
from millstream.state.stored.table_names import WINDOW_EVENT_TIMERS, WINDOW_PROCESSING_TIMERS
from millstream.state.tables.state_table import EpochPlace, StateTable, last_versions
from millstream.state.windows.places import PlaceTable

__all__ = ["OwnState", "StatesBy", "WindowStore"]


@dataclass(frozen=True)
class OwnState:
    """The descriptor of a state that the operator itself keeps."""

    name: str
    type_info: Any

    def get_name(self) -> str:
        """Its name."""
        return self.name


class WindowStore:
    """The states and timers. `operator` is its name, for errors; `backend` holds the operator's other tables."""

    def __init__(
        self, operator: str, key_type: TypeInformation | None, max_parallelism: int, backend: KeyedBackend
    ) -> None:
        self._operator = operator
        self._backend = backend
        self._key_type = key_type
        self._max_parallelism = max_parallelism
        self.keys = Scope()
        self.places = Scope()
        self._of_keys: dict[str, PlaceState] = {}
        self._of_places: dict[str, PlaceState] = {}
        self._descriptors: dict[str, Any] = {}
        self.event_timers = Timers(self._timer_table(WINDOW_EVENT_TIMERS))
        self.processing_timers = Timers(self._timer_table(WINDOW_PROCESSING_TIMERS))
        self._place: EpochPlace | None = None
        self._versions: dict[str, tuple[SegmentRef, ...]] = {}

    def _timer_table(self, name: str) -> StateTable:
        return PlaceTable(
            StateTable(name, self._key_type, self._max_parallelism, None, sub_type=pa.int64(), has_due=True)
        )

    # --- states ---------------------------------------------------------------------------------------------------

    def state(self, name: str, kind: type[PlaceState], descriptor: Any, of_places: bool) -> Any:
        """The state of this descriptor, kept under `name`."""
        found = (self._of_places if of_places else self._of_keys).get(name)
        if found is None:
            return self._made(name, kind, descriptor, of_places)
        if type(found) is not kind or self._descriptors[name] != descriptor:
            raise ProgramError(
                f"state '{descriptor.get_name()}' of '{self._operator}' was declared as {self._descriptors[name]!r} "
                f"and is now asked for as {descriptor!r}. Give the second one another name"
            )
        return found

    def _is_taken(self, name: str) -> bool:
        """Whether another table of the operator has this name: in the manifest, names alone tell them apart."""
        return name in self._states() or name in self._timers() or name in self._backend.names

    def _made(self, name: str, kind: type[PlaceState], descriptor: Any, of_places: bool) -> PlaceState:
        if self._is_taken(name):
            raise own_name_taken(name, self._operator)

        def table(value: StateCodec, sub: StateCodec | None = None, **more: Any) -> StateTable:
            plain = StateTable(name, self._key_type, self._max_parallelism, value, sub, **more)
            return PlaceTable(plain) if of_places else plain

        what = f"state '{descriptor.get_name()}' of '{self._operator}'"
        if of_places and getattr(descriptor, "_queryable_name", None) is not None:
            raise ProgramError(
                f"{what} belongs to a window and a key, and only state of keys can be queryable. Make the windows "
                "queryable instead: window(...).queryable(name)"
            )
        state: Any = declared_state(kind, descriptor, what, self.places if of_places else self.keys, table)
        (self._of_places if of_places else self._of_keys)[name] = state
        self._descriptors[name] = descriptor
        if self._place is not None:  # asked for while an epoch runs
            state.open(self._place, self._versions.get(name, ()))
        return state  # type: ignore[no-any-return]

    # --- an epoch -------------------------------------------------------------------------------------------------

    def begin(self, place: EpochPlace, accounts: Mapping[int, SubtaskAccount]) -> None:
        """Open everything at the last version. `accounts`: what subtasks acknowledged of these key groups."""
        tables = tables_of(accounts)
        versions = last_versions(tables, place.groups)
        place = replace(place, schemas=last_schemas(tables), rows_numbered=last_row_numbers(accounts.values()))
        self._place, self._versions = place, versions
        for name, state in self._states().items():
            state.open(place, versions.get(name, ()))
        for name, timers in self._timers().items():
            timers.begin(place, versions.get(name, ()))

    def _states(self) -> dict[str, PlaceState]:
        return {**self._of_keys, **self._of_places}

    def prefetch(self, keys: Iterable[Any], places: Iterable[Any]) -> None:
        """The operator is about to go to these keys and places: read single values of all of them at once."""
        keys, places = list(keys), list(places)
        for state in self._of_keys.values():
            state.prefetch(keys)
        for state in self._of_places.values():
            state.prefetch(places)

    def leave(self) -> None:
        """No user code runs."""
        self.keys.leave()
        self.places.leave()

    def end(self, now_ms: int, account: SubtaskAccount) -> SubtaskAccount:
        """Write what changed; the account with it, which may have held old versions of these tables."""
        self.leave()
        assert account.tables is not None
        versions = dict(account.tables.versions)
        for name, state in self._states().items():
            state.leave()
            state.flush()
            versions[name] = state.table.end()
        for name, timers in self._timers().items():
            versions[name] = timers.end()
        stored = stored_tables(versions, {}, {name: state.table.schema for name, state in self._states().items()})
        own = (state.table for state in self._states().values())
        debt_bytes = sum(table.debt_bytes for table in (*own, *(timers.table for timers in self._timers().values())))
        of_keys = {name: self._descriptors[name] for name in self._of_keys}
        kinds = {name: type(state) for name, state in self._of_keys.items()}
        queryable = queryables_told(of_keys, kinds, self._key_type, self._operator)
        # A timer comes when its millisecond has passed; those of this one are left.
        earliest_ms = self.processing_timers.earliest(after=now_ms - 1)
        account = replace(
            account,
            tables=replace(stored, schemas={**account.tables.schemas, **stored.schemas}),
            compaction_debt_bytes=account.compaction_debt_bytes + debt_bytes,
            queryable={**account.queryable, **queryable},
            wake_ms=account.wake_ms if earliest_ms is None else earliest_ms + 1,
        )
        return with_row_numbers(account, {}, self._states())

    def _timers(self) -> dict[str, Timers]:
        return {WINDOW_EVENT_TIMERS: self.event_timers, WINDOW_PROCESSING_TIMERS: self.processing_timers}


_KINDS: dict[str, type[PlaceState]] = {
    "ValueStateDescriptor": ValueState,
    "ListStateDescriptor": ListState,
    "MapStateDescriptor": MapState,
    "ReducingStateDescriptor": ReducingState,
    "AggregatingStateDescriptor": AggregatingState,
}


class StatesBy:
    """States as one party sees them: PyFlink's `KeyedStateStore`. `owner` goes before the names it uses."""

    def __init__(self, store: WindowStore, owner: str, of_places: bool) -> None:
        self._store = store
        self._owner = owner
        self._of_places = of_places
        # By identity: comparing descriptors takes longer than all else a trigger does for a record.
        self._found: dict[int, tuple[Any, Any]] = {}

    def get(self, descriptor: Any, kind: type[PlaceState] | None = None) -> Any:
        """The state of a descriptor of any kind."""
        known = self._found.get(id(descriptor))
        if known is None:
            kind = kind or _kind_of(descriptor)
            state = self._store.state(f"{self._owner}{descriptor.get_name()}", kind, descriptor, self._of_places)
            known = self._found[id(descriptor)] = (descriptor, state)
        return known[1]

    def get_state(self, state_descriptor: Any) -> Any:
        """A `ValueState`."""
        return self.get(state_descriptor, ValueState)

    def get_list_state(self, state_descriptor: Any) -> Any:
        """A `ListState`."""
        return self.get(state_descriptor, ListState)

    def get_map_state(self, state_descriptor: Any) -> Any:
        """A `MapState`."""
        return self.get(state_descriptor, MapState)

    def get_reducing_state(self, state_descriptor: Any) -> Any:
        """A `ReducingState`."""
        return self.get(state_descriptor, ReducingState)

    def get_aggregating_state(self, state_descriptor: Any) -> Any:
        """An `AggregatingState`."""
        return self.get(state_descriptor, AggregatingState)


def _kind_of(descriptor: Any) -> type[PlaceState]:
    for ancestor in type(descriptor).__mro__:
        if ancestor.__name__ in _KINDS:
            return _KINDS[ancestor.__name__]
    raise ProgramError(f"get_partitioned_state: found {descriptor!r}, expected a state descriptor")
