"""All keyed state of one operator in one subtask: its states, its timers, and the key it is at.

States are declared in `open()`, by their descriptors. At the start of an epoch every state is opened at the last
manifest's version; at its end each one that changed has written one segment, and the new versions go into the
acknowledgement. A subtask owns a range of key groups; what other subtasks wrote before a rescale is read, never moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError
from millstream.runtime.keyed.collection_states import ListHandle, MapHandle
from millstream.runtime.keyed.declared_states import declared_state, own_name_taken
from millstream.runtime.keyed.queryable_states import queryables_told
from millstream.runtime.keyed.row_numbers import last_row_numbers, with_row_numbers
from millstream.runtime.keyed.states import (
    AggregatingHandle,
    ReducingHandle,
    Scope,
    StateHandle,
    ValueHandle,
)
from millstream.runtime.keyed.task_codec import task_codec
from millstream.runtime.keyed.timers import KeyedTimerService, Timers
from millstream.runtime.keyed.visits import VISIT_RECORDS_MAX
from millstream.state.keys.key_columns import KeyColumn
from millstream.state.keys.key_groups import key_group_range
from millstream.state.schemas.state_schemas import last_schemas, stored_tables
from millstream.state.segments.version import SegmentRef, refs_for
from millstream.state.stored.accounts import SubtaskAccount, tables_of
from millstream.state.stored.state_codec import StateCodec
from millstream.state.stored.table_names import EVENT_TIMERS, PROCESSING_TIMERS
from millstream.state.tables.state_table import EpochPlace, StateTable, last_versions

__all__ = ["KeyedBackend"]

_OWN_TABLES = (EVENT_TIMERS, PROCESSING_TIMERS)
# So much of a state's single values, as they are stored, is read for one visit.
_VISIT_BYTES_MAX = 64 << 20


class KeyedBackend:
    """The states and timers of one operator. `operator` is its name, for errors."""

    def __init__(
        self, operator: str, key_type: TypeInformation | None, parallelism: int, max_parallelism: int, subtask: int
    ) -> None:
        self._operator = operator
        self._key_type = key_type
        self._max_parallelism = max_parallelism
        self.groups = key_group_range(subtask, parallelism, max_parallelism)
        self.scope = Scope()
        self._handles: dict[str, StateHandle] = {}
        self._descriptors: dict[str, Any] = {}
        self._kinds: dict[str, type[StateHandle]] = {}
        self._event = Timers(self._timer_table(EVENT_TIMERS))
        self._processing = Timers(self._timer_table(PROCESSING_TIMERS))
        self.timers = KeyedTimerService(self.scope, self._event, self._processing)
        self._place: EpochPlace | None = None
        self._versions: dict[str, tuple[SegmentRef, ...]] = {}

    def _timer_table(self, name: str) -> StateTable:
        return self._table(name, None, sub_type=pa.int64(), has_due=True)

    # --- what functions ask for in open() ---------------------------------------------------------------------

    def get_state(self, state_descriptor: Any) -> Any:
        """A `ValueState`."""
        return self._state(state_descriptor, ValueHandle)

    def get_list_state(self, state_descriptor: Any) -> Any:
        """A `ListState`."""
        return self._state(state_descriptor, ListHandle)

    def get_map_state(self, state_descriptor: Any) -> Any:
        """A `MapState`."""
        return self._state(state_descriptor, MapHandle)

    def get_reducing_state(self, state_descriptor: Any) -> Any:
        """A `ReducingState`."""
        return self._state(state_descriptor, ReducingHandle)

    def get_aggregating_state(self, state_descriptor: Any) -> Any:
        """An `AggregatingState`."""
        return self._state(state_descriptor, AggregatingHandle)

    def _state(self, descriptor: Any, kind: type[StateHandle]) -> StateHandle:
        name = descriptor.get_name()
        if name in _OWN_TABLES:
            raise own_name_taken(name, self._operator)
        if name in self._handles:
            if self._descriptors[name] != descriptor or self._kinds[name] is not kind:
                raise ProgramError(
                    f"state '{name}' of '{self._operator}' was declared as {self._descriptors[name]!r} and is now "
                    f"asked for as {descriptor!r}. Give the second one another name"
                )
            return self._handles[name]
        handle = declared_state(
            kind, descriptor, f"state '{name}' of '{self._operator}'", self.scope, partial(self._table, name)
        )
        self._handles[name] = handle
        self._descriptors[name], self._kinds[name] = descriptor, kind
        if self._place is not None:  # asked for while an epoch runs, not in open()
            handle.open(self._place, self._versions.get(name, ()))
            if self.scope.column is not None:
                handle.visit(self.scope.column)
        return handle

    def _table(self, name: str, value: StateCodec | None, sub: StateCodec | None = None, **more: Any) -> StateTable:
        return StateTable(name, self._key_type, self._max_parallelism, value, sub, **more)

    # --- what columnar operators keep ---------------------------------------------------------------------------

    def table(self, name: str, type_info: TypeInformation | None) -> StateTable:
        """A table with one value per key, for a handle of the operator's own."""
        codec = task_codec(type_info, f"state '{name}' of '{self._operator}'")
        return self._table(name, codec)

    def keep(self, name: str, handle: StateHandle) -> None:
        """Open and write this handle's table with the others, under `name`."""
        self._handles[name] = handle
        self._descriptors[name], self._kinds[name] = f"the operator's own state '{name}'", StateHandle

    @property
    def names(self) -> set[str]:
        """The names that are taken: those of its states and of its timers."""
        return {*self._handles, *_OWN_TABLES}

    # --- an epoch ---------------------------------------------------------------------------------------------

    def begin(self, place: EpochPlace, accounts: Mapping[int, SubtaskAccount]) -> None:
        """Open everything at the last version. `accounts`: what subtasks acknowledged of these key groups."""
        tables = tables_of(accounts)
        versions = last_versions(tables, place.groups)
        place = replace(place, schemas=last_schemas(tables), rows_numbered=last_row_numbers(accounts.values()))
        self._place, self._versions = place, versions
        for name, handle in self._handles.items():
            handle.open(place, versions.get(name, ()))
        self._event.begin(place, versions.get(EVENT_TIMERS, ()))
        self._processing.begin(place, versions.get(PROCESSING_TIMERS, ()))

    def column(self, keys: list[Any]) -> KeyColumn:
        """Keys as the store knows them."""
        return self._event.table.column(keys)

    @property
    def visit_keys_max(self) -> int:
        """How many keys may be visited together, so that what a visit reads of single values stays within bounds.
        (Lists and maps see to it themselves.)"""
        largest = max((h.table.row_bytes for h in self._handles.values() if h.table.layout.sub_type is None), default=0)
        return max(1, min(VISIT_RECORDS_MAX, _VISIT_BYTES_MAX // largest)) if largest else VISIT_RECORDS_MAX

    def settle(self) -> None:
        """From here on states are read with all that was changed so far in this epoch."""
        for handle in self._handles.values():
            handle.table.settle()

    def visit(self, keys: KeyColumn, values: list[Any] | None = None) -> None:
        """The function is about to see records (or timers) of these keys; `values` are the keys as Python values."""
        self.scope.visit(keys, values, self._event.table.keys_of)
        for handle in self._handles.values():
            handle.visit(keys)

    def leave(self) -> None:
        """The visit has ended: what it changed is handed to the tables."""
        self.scope.leave()
        for handle in self._handles.values():
            handle.leave()

    def keys_with(self, descriptor: Any) -> Iterator[tuple[Any, StateHandle]]:
        """Every key of this subtask that has the state, one after another, with the state as that key sees it."""
        name: Any = getattr(descriptor, "name", None)
        if name not in self._handles or self._descriptors[name] != descriptor:
            raise ProgramError(
                f"'{self._operator}' holds no state as {descriptor!r} describes; it holds {sorted(self._handles)}. "
                "Ask for it in open() with the same descriptor"
            )
        handle = self._handles[name]
        self.settle()
        keys = handle.table.distinct_keys()
        keys_max = self.visit_keys_max
        for start in range(0, len(keys), keys_max):
            group = keys[start : start + keys_max]
            self.visit(self.column(group), group)
            for number, key in enumerate(group):
                self.scope.enter(number)
                yield key, handle
            self.leave()

    def end(self, now_ms: int) -> SubtaskAccount:
        """Write what changed; what the next epoch needs to know of it."""
        self.scope.leave()
        # A state the program does not declare (yet) is handed on as it is.
        versions = {name: refs_for(refs, self.groups) for name, refs in self._versions.items()}
        for name, handle in self._handles.items():
            handle.leave()
            handle.flush()
            versions[name] = handle.table.end()
        for name, timers in ((EVENT_TIMERS, self._event), (PROCESSING_TIMERS, self._processing)):
            versions[name] = timers.end()
        assert self._place is not None
        schemas = {name: handle.table.schema for name, handle in self._handles.items()}
        tables = (*(handle.table for handle in self._handles.values()), self._event.table, self._processing.table)
        account = SubtaskAccount(
            tables=stored_tables(versions, self._place.schemas, schemas),
            compaction_debt_bytes=sum(table.debt_bytes for table in tables),
            queryable=queryables_told(self._descriptors, self._kinds, self._key_type, self._operator),
            wake_ms=self._processing.earliest(after=now_ms),
        )
        return with_row_numbers(account, self._place.rows_numbered, self._handles)

    @property
    def event_timers(self) -> Timers:
        return self._event

    @property
    def processing_timers(self) -> Timers:
        return self._processing
