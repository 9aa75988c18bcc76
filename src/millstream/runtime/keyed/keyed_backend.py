"""The states and timers of one operator's keys in one subtask, and the visits to these keys.

What is visited is in step: a handle is told the keys of a visit, and hands over what changed, with all others of the
same scope. Handles of places (`runtime.windows.window_store`) are in the same store, but no visit concerns them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError
from millstream.runtime.keyed.state_store import StateGetters, StateStore
from millstream.runtime.keyed.states import Scope, StateHandle
from millstream.runtime.keyed.task_codec import task_codec
from millstream.runtime.keyed.timers import KeyedTimerService
from millstream.runtime.keyed.visits import VISIT_RECORDS_MAX
from millstream.state.keys.key_columns import KeyColumn
from millstream.state.keys.key_groups import key_group_range
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import EVENT_TIMERS, PROCESSING_TIMERS
from millstream.state.tables.state_table import StateTable, TableSetting

__all__ = ["KeyedBackend"]

# So much of a state's single values, as they are stored, is read for one visit.
_VISIT_BYTES_MAX = 64 << 20


class KeyedBackend(StateGetters):
    """The states and timers of one operator. `operator` is its name, for errors."""

    def __init__(
        self, operator: str, key_type: TypeInformation | None, parallelism: int, max_parallelism: int, subtask: int
    ) -> None:
        self._operator = operator
        self.groups = key_group_range(subtask, parallelism, max_parallelism)
        self.store = StateStore(operator, key_type, max_parallelism, self.groups)
        self.scope = Scope()
        self._visited: dict[str, StateHandle] = {}
        self.event_timers = self.store.timers(EVENT_TIMERS)
        self.processing_timers = self.store.timers(PROCESSING_TIMERS)
        self.timers = KeyedTimerService(self.scope, self.event_timers, self.processing_timers)

    def state(self, descriptor: Any, kind: type[StateHandle]) -> Any:
        name = descriptor.get_name()
        handle = self.store.state(name, kind, descriptor, self.scope)
        if name not in self._visited:
            self._visited[name] = handle
            if self.scope.column is not None:  # asked for while an epoch runs, not in open()
                handle.visit(self.scope.column)
        return handle

    # --- what columnar operators keep ---------------------------------------------------------------------------

    def table(self, name: str, type_info: TypeInformation | None) -> StateTable:
        """A table with one value per key, for a handle of the operator's own."""
        return self.store.table(name, task_codec(type_info, f"state '{name}' of '{self._operator}'"))

    def keep(self, name: str, handle: StateHandle) -> None:
        """Open, visit and write this handle's table with the others, under `name`."""
        self.store.keep(name, handle)
        self._visited[name] = handle

    @property
    def names(self) -> set[str]:
        """The names that are taken: those of its states and of its timers."""
        return self.store.names

    # --- an epoch ---------------------------------------------------------------------------------------------

    def begin(self, setting: TableSetting, accounts: Mapping[int, SubtaskAccount]) -> None:
        """Open everything at the last version. `accounts`: what subtasks acknowledged of these key groups."""
        self.store.begin(setting, accounts)

    def column(self, keys: list[Any]) -> KeyColumn:
        """Keys as the store knows them."""
        return self.event_timers.table.column(keys)

    @property
    def visit_keys_max(self) -> int:
        """How many keys may be visited together, so that what a visit reads of single values stays within bounds.
        (Lists and maps see to it themselves.)"""
        tables = (handle.table for handle in self._visited.values())
        largest = max((table.row_bytes for table in tables if table.layout.sub_type is None), default=0)
        return max(1, min(VISIT_RECORDS_MAX, _VISIT_BYTES_MAX // largest)) if largest else VISIT_RECORDS_MAX

    def settle(self) -> None:
        """From here on states are read with all that was changed so far in this epoch."""
        for handle in self._visited.values():
            handle.table.settle()

    def visit(self, keys: KeyColumn, values: list[Any] | None = None) -> None:
        """The function is about to see records (or timers) of these keys; `values` are the keys as Python values."""
        self.scope.visit(keys, values, self.event_timers.table.keys_of)
        for handle in self._visited.values():
            handle.visit(keys)

    def leave(self) -> None:
        """The visit has ended: what it changed is handed to the tables."""
        self.scope.leave()
        for handle in self._visited.values():
            handle.leave()

    def keys_with(self, descriptor: Any) -> Iterator[tuple[Any, StateHandle]]:
        """Every key of this subtask that has the state, one after another, with the state as that key sees it."""
        handle = self.store.declared(descriptor)
        if handle is None:
            raise ProgramError(
                f"'{self._operator}' holds no state as {descriptor!r} describes; it holds {sorted(self._visited)}. "
                "Ask for it in open() with the same descriptor"
            )
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
        account = self.store.end()
        return replace(account, wake_ms=self.processing_timers.earliest(after=now_ms))
