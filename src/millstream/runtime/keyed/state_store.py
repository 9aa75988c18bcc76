"""All tables of one operator in one subtask: of its states and timers, of keys and of places.

States are declared by descriptors, mostly in `open()`; operators add their own handles. An epoch opens every table at
the last manifest's version; at its end each changed table has written one segment, and the new versions go into the
operator's account. A subtask owns a range of key groups; segments that other subtasks wrote before a rescale are read,
not rewritten.

In the manifest, tables are identified by name alone. So a name belongs to one handle: the first to request it.

Elements of a list, and rows of a join's buffer, are identified and ordered by their *numbers*. A row is identified by
its key and its number, so a number is never reused: not in a later visit or epoch, and not in a later *round* of the
same epoch (`jobs/epochs/rounds.py`), which knows only the accounts of the previous round. Therefore each subtask's
account has the next numbers of its tables, and a table continues after the largest of any subtask: before a change of
parallelism its keys may have belonged to several.

    elements_numbered={"history": 15032385541}        lists
    rows_numbered={"left": 712, "right": 90}          the buffers of a join, which readers recognise by it

Numbers of list elements start at `epoch << 31` if that is larger. Accounts of older versions have no numbers for lists:
their epochs had one round, so all their numbers are smaller than this bound.
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
    """The next numbers of every table, by name, from each subtask's last account.

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
    """The account with the next numbers of these tables. Those of tables that the program does not declare (yet) stay
    unchanged."""
    elements, rows = dict(account.elements_numbered), dict(account.rows_numbered)
    elements |= {name: number for name, number in before.items() if name not in handles}
    for name, handle in handles.items():
        if handle.next_number is not None:
            (rows if handle.numbers_rows else elements)[name] = handle.next_number
    return replace(account, elements_numbered=elements, rows_numbered=rows)


@dataclass(frozen=True)
class OwnState:
    """The descriptor of an operator's own state."""

    name: str
    type_info: Any = None

    def get_name(self) -> str:
        """The name."""
        return self.name


@dataclass(frozen=True)
class _Declaration:
    """The declaration of a requested state: two different declarations are two states. Scopes are compared by
    identity."""

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
        """The names in use."""
        return set(self._handles)

    # --- handles --------------------------------------------------------------------------------------------------

    def state(
        self, name: str, kind: type[StateHandle], descriptor: Any, scope: Any, table: type[StateTable] = StateTable
    ) -> Any:
        """The state of this descriptor, stored under `name`; `table` is the type of its table."""
        declaration, before = _Declaration(kind, descriptor, scope), self._declarations.get(name)
        if before == declaration:
            return self._handles[name]
        if before is not None and before.scope is scope and not isinstance(before.descriptor, OwnState):
            raise ProgramError(
                f"state '{descriptor.get_name()}' of '{self.operator}' was declared as {before.descriptor!r} and is "
                f"now requested as {descriptor!r}. Give the second one another name"
            )
        what = f"state '{descriptor.get_name()}' of '{self.operator}'"
        handle = declared_state(kind, descriptor, what, scope, partial(self._table, table, name))
        self._keep(name, handle, declaration)
        return handle

    def declared(self, descriptor: Any) -> StateHandle | None:
        """The state requested with exactly this descriptor, if any."""
        name: Any = getattr(descriptor, "name", None)
        declaration = self._declarations.get(name)
        return None if declaration is None or declaration.descriptor != descriptor else self._handles[name]

    def timers(self, name: str, table: type[StateTable] = StateTable) -> Timers:
        """New timers, stored under `name`."""
        timers = Timers(self._table(table, name, None, sub_type=pa.int64(), has_due=True))
        self.keep(name, timers)
        return timers

    def keep(self, name: str, handle: StateHandle) -> None:
        """Register an operator's own handle: its table is opened and written with the others, under `name`."""
        self._keep(name, handle, _Declaration(type(handle), OwnState(name), None))

    def table(self, name: str, value: Any) -> StateTable:
        """A table with one value per key, for a handle of the operator; `value` is the codec."""
        return self._table(StateTable, name, value)

    def _table(self, table: type[StateTable], name: str, *codecs: Any, **options: Any) -> StateTable:
        return table(name, self._key_type, self._max_parallelism, *codecs, **options)

    def _keep(self, name: str, handle: StateHandle, declaration: _Declaration) -> None:
        if name in self._handles:
            raise name_conflict(name, self.operator)
        self._handles[name], self._declarations[name] = handle, declaration
        if self._setting is not None:  # requested while an epoch runs, not in open()
            handle.open(self._setting, self._versions.get(name, ()))

    # --- an epoch -------------------------------------------------------------------------------------------------

    def begin(self, setting: TableSetting, accounts: Mapping[int, SubtaskAccount]) -> None:
        """Open all tables at the last version. `accounts`: the acknowledged accounts of these key groups."""
        tables = tables_of(accounts)
        self._versions = last_versions(tables, setting.groups)
        row_numbers = last_row_numbers(accounts.values())
        self._setting = replace(setting, schemas=last_schemas(tables), rows_numbered=row_numbers)
        for name, handle in self._handles.items():
            handle.open(self._setting, self._versions.get(name, ()))

    def end(self) -> SubtaskAccount:
        """Write the changes; return the account for the next epoch."""
        assert self._setting is not None
        # The version of a state that the program does not declare (yet) stays unchanged.
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
    """The getters that functions use in `open()`: PyFlink's `KeyedStateStore`."""

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


# Checked by name: programs import descriptors from a higher layer.
_DESCRIPTORS = {
    "get_state": "ValueStateDescriptor",
    "get_list_state": "ListStateDescriptor",
    "get_map_state": "MapStateDescriptor",
    "get_reducing_state": "ReducingStateDescriptor",
    "get_aggregating_state": "AggregatingStateDescriptor",
}


def _checked(method: str, descriptor: Any) -> Any:
    """The descriptor, checked to be of the method's kind."""
    kinds = {kind.__name__ for kind in type(descriptor).__mro__}
    if _DESCRIPTORS[method] in kinds:
        return descriptor
    getter = next((other for other, kind in _DESCRIPTORS.items() if kind in kinds), None)
    advice = "Make one of a name and a type" if getter is None else f"Request this one by {getter}()"
    raise ProgramError(f"{method}: found {descriptor!r}, expected a {_DESCRIPTORS[method]}. {advice}")
