"""All tables of one operator in one subtask: of its states and timers, of keys and of places.

States are declared by their descriptors, mostly in `open()`; operators keep handles of their own beside them. At the
start of an epoch every table is opened at the last manifest's version; at its end each one that changed has written one
segment, and the new versions go into the operator's account. A subtask owns a range of key groups; what other subtasks
wrote before a rescale is read, never moved.

In the manifest, names alone tell tables apart. So a name stands for one handle, whoever asks for it first.

Elements of a list, and rows of a join's buffer, are told apart and kept in order by their *numbers*. A row is named by
its key and its number, so a number that was given is never given again: not in a later visit, not in a later epoch, and
not in a later *round* of the same epoch (`jobs/epochs/rounds.py`), which knows nothing of the one before but its
accounts. Therefore each subtask tells in its account where the numbers of its tables go on, and who opens a table goes
on after the largest that any subtask has told: after a change of parallelism its keys come from several.

    elements_numbered={"history": 15032385541}        lists
    rows_numbered={"left": 712, "right": 90}          the buffers of a join, which readers know by it

Elements of lists start anew at `epoch << 31` where that is further on. Accounts of older Millstreams tell nothing of
lists: their epochs had one round, so all their numbers are smaller than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError
from millstream.runtime.keyed.collection_states import ListHandle, MapHandle
from millstream.runtime.keyed.declared_states import declared_state, name_conflict
from millstream.runtime.keyed.queryable_states import queryables_of_states
from millstream.runtime.keyed.states import AggregatingHandle, ReducingHandle, StateHandle, ValueHandle
from millstream.runtime.keyed.timers import Timers
from millstream.state.schemas.state_schemas import last_schemas, stored_tables
from millstream.state.segments.version import SegmentRef, refs_for
from millstream.state.stored.accounts import SubtaskAccount, tables_of
from millstream.state.tables.state_table import StateTable, TableSetting, last_versions

__all__ = ["OwnState", "StateGetters", "StateStore", "last_row_numbers", "with_row_numbers"]


def last_row_numbers(accounts: Iterable[SubtaskAccount]) -> dict[str, int]:
    """Where the numbers of every table go on, by name, from what each subtask acknowledged last.

    >>> last_row_numbers([SubtaskAccount(rows_numbered={"left": 4}), SubtaskAccount(rows_numbered={"left": 7})])
    {'left': 7}
    """
    numbers: dict[str, int] = {}
    for account in accounts:
        for name, number in (*account.elements_numbered.items(), *account.rows_numbered.items()):
            numbers[name] = max(number, numbers.get(name, 0))
    return numbers


def with_row_numbers(
    account: SubtaskAccount, before: Mapping[str, int], handles: Mapping[str, StateHandle]
) -> SubtaskAccount:
    """The account with where the numbers of these tables go on. Those of tables that the program does not declare (yet)
    are handed on as they were told."""
    elements, rows = dict(account.elements_numbered), dict(account.rows_numbered)
    elements |= {name: number for name, number in before.items() if name not in handles}
    for name, handle in handles.items():
        if handle.next_number is not None:
            (rows if handle.numbers_rows else elements)[name] = handle.next_number
    return replace(account, elements_numbered=elements, rows_numbered=rows)


@dataclass(frozen=True)
class OwnState:
    """The descriptor of a state that an operator itself keeps."""

    name: str
    type_info: Any = None

    def get_name(self) -> str:
        """Its name."""
        return self.name


@dataclass(frozen=True)
class _Declaration:
    """How a state was asked for: two that differ are two states. The scope is told by which object it is."""

    kind: type[StateHandle]
    descriptor: Any
    scope: Any


class StateStore:
    """The tables. `operator` is its name, for errors."""

    def __init__(self, operator: str, key_type: TypeInformation | None, max_parallelism: int, groups: range) -> None:
        self.operator = operator
        self._key_type = key_type
        self._max_parallelism = max_parallelism
        self._groups = groups
        self._handles: dict[str, StateHandle] = {}
        self._declarations: dict[str, _Declaration] = {}
        self._setting: TableSetting | None = None
        self._versions: dict[str, tuple[SegmentRef, ...]] = {}

    @property
    def names(self) -> set[str]:
        """The names that are taken."""
        return set(self._handles)

    # --- handles --------------------------------------------------------------------------------------------------

    def state(
        self, name: str, kind: type[StateHandle], descriptor: Any, scope: Any, table: type[StateTable] = StateTable
    ) -> Any:
        """The state of this descriptor, kept under `name`; `table` is the type of its table."""
        declaration, before = _Declaration(kind, descriptor, scope), self._declarations.get(name)
        if before == declaration:
            return self._handles[name]
        if before is not None and before.scope is scope and not isinstance(before.descriptor, OwnState):
            raise ProgramError(
                f"state '{descriptor.get_name()}' of '{self.operator}' was declared as {before.descriptor!r} and is "
                f"now asked for as {descriptor!r}. Give the second one another name"
            )
        what = f"state '{descriptor.get_name()}' of '{self.operator}'"
        handle = declared_state(kind, descriptor, what, scope, partial(self._table, table, name))
        self._keep(name, handle, declaration)
        return handle

    def declared(self, descriptor: Any) -> StateHandle | None:
        """The state that was asked for with just this descriptor, if there is one."""
        name: Any = getattr(descriptor, "name", None)
        declaration = self._declarations.get(name)
        return None if declaration is None or declaration.descriptor != descriptor else self._handles[name]

    def timers(self, name: str, table: type[StateTable] = StateTable) -> Timers:
        """New timers, kept under `name`."""
        timers = Timers(self._table(table, name, None, sub_type=pa.int64(), has_due=True))
        self.keep(name, timers)
        return timers

    def keep(self, name: str, handle: StateHandle) -> None:
        """Open and write the table of an operator's own handle with the others, under `name`."""
        self._keep(name, handle, _Declaration(type(handle), OwnState(name), None))

    def table(self, name: str, value: Any) -> StateTable:
        """A table with one value per key, for a handle of the operator's own; `value` is the codec."""
        return self._table(StateTable, name, value)

    def _table(self, table: type[StateTable], name: str, *codecs: Any, **options: Any) -> StateTable:
        return table(name, self._key_type, self._max_parallelism, *codecs, **options)

    def _keep(self, name: str, handle: StateHandle, declaration: _Declaration) -> None:
        if name in self._handles:
            raise name_conflict(name, self.operator)
        self._handles[name], self._declarations[name] = handle, declaration
        if self._setting is not None:  # asked for while an epoch runs, not in open()
            handle.open(self._setting, self._versions.get(name, ()))

    # --- an epoch -------------------------------------------------------------------------------------------------

    def begin(self, setting: TableSetting, accounts: Mapping[int, SubtaskAccount]) -> None:
        """Open everything at the last version. `accounts`: what subtasks acknowledged of these key groups."""
        tables = tables_of(accounts)
        self._versions = last_versions(tables, setting.groups)
        row_numbers = last_row_numbers(accounts.values())
        self._setting = replace(setting, schemas=last_schemas(tables), rows_numbered=row_numbers)
        for name, handle in self._handles.items():
            handle.open(self._setting, self._versions.get(name, ()))

    def end(self) -> SubtaskAccount:
        """Write what changed; what the next epoch needs to know of it."""
        assert self._setting is not None
        # A state the program does not declare (yet) is handed on as it is.
        versions = {name: refs_for(refs, self._groups) for name, refs in self._versions.items()}
        for name, handle in self._handles.items():
            handle.leave()
            versions[name] = handle.table.end()
        schemas = {name: handle.table.schema for name, handle in self._handles.items()}
        descriptors = {name: declaration.descriptor for name, declaration in self._declarations.items()}
        shapes = {name: handle.shape for name, handle in self._handles.items()}
        account = SubtaskAccount(
            tables=stored_tables(versions, self._setting.schemas, schemas),
            compaction_debt_bytes=sum(handle.table.debt_bytes for handle in self._handles.values()),
            queryable=queryables_of_states(descriptors, shapes, self._key_type, self.operator),
        )
        return with_row_numbers(account, self._setting.rows_numbered, self._handles)


class StateGetters:
    """What functions ask for in `open()`: PyFlink's `KeyedStateStore`."""

    def state(self, descriptor: Any, kind: type[StateHandle]) -> Any:
        """The state of this kind that a descriptor describes."""
        raise NotImplementedError

    def get_state(self, state_descriptor: Any) -> Any:
        """A `ValueState`."""
        return self.state(_checked("get_state", state_descriptor), ValueHandle)

    def get_list_state(self, state_descriptor: Any) -> Any:
        """A `ListState`."""
        return self.state(_checked("get_list_state", state_descriptor), ListHandle)

    def get_map_state(self, state_descriptor: Any) -> Any:
        """A `MapState`."""
        return self.state(_checked("get_map_state", state_descriptor), MapHandle)

    def get_reducing_state(self, state_descriptor: Any) -> Any:
        """A `ReducingState`."""
        return self.state(_checked("get_reducing_state", state_descriptor), ReducingHandle)

    def get_aggregating_state(self, state_descriptor: Any) -> Any:
        """An `AggregatingState`."""
        return self.state(_checked("get_aggregating_state", state_descriptor), AggregatingHandle)


# By name: descriptors are what programs import, and that is above this layer.
_DESCRIPTORS = {
    "get_state": "ValueStateDescriptor",
    "get_list_state": "ListStateDescriptor",
    "get_map_state": "MapStateDescriptor",
    "get_reducing_state": "ReducingStateDescriptor",
    "get_aggregating_state": "AggregatingStateDescriptor",
}


def _checked(method: str, descriptor: Any) -> Any:
    """The descriptor, if it is of the kind that this method takes."""
    kinds = {kind.__name__ for kind in type(descriptor).__mro__}
    if _DESCRIPTORS[method] in kinds:
        return descriptor
    getter = next((other for other, kind in _DESCRIPTORS.items() if kind in kinds), None)
    advice = "Make one of a name and a type" if getter is None else f"Ask for this one by {getter}()"
    raise ProgramError(f"{method}: found {descriptor!r}, expected a {_DESCRIPTORS[method]}. {advice}")
