"""Broadcast state: maps that are identical in every subtask of an operator, and stored once.

Every subtask receives every broadcast record, in the same order, and applies it to its own copy in memory. As all
copies are equal, only subtask 0 writes an epoch's changes, as one segment, and names the new version in its account. At
the next epoch every subtask reads that version, whatever its index and the parallelism, so restoring and rescaling need
no special handling.

Invariant: when an epoch begins, every copy equals the last manifest's version. A copy that was changed, in a committed
epoch or not, is read again; an unchanged copy stays cached until the version changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from millstream.errors import ProgramError
from millstream.runtime.keyed.declared_states import evolution_of, task_codec, task_map_keys
from millstream.runtime.keyed.map_methods import SettledMap
from millstream.state.schemas.state_schemas import TableSchema, stored_tables
from millstream.state.segments.version import SegmentRef
from millstream.state.stored.accounts import StoredTables, SubtaskAccount
from millstream.state.stored.table_names import BROADCAST_KEY
from millstream.state.tables.map_keys import entries_of
from millstream.state.tables.state_table import StateTable, TableSetting

__all__ = ["WRITER", "BroadcastMap", "BroadcastStates", "BroadcastView"]

WRITER = 0
"""The subtask that stores the common state."""


class _Entries(dict[Any, Any]):
    """The entries of a state, read at the speed of a dictionary. A missing key is looked up again in its stored form,
    after the entries are loaded."""

    __slots__ = ("_find_missing",)

    def __init__(self, find_missing: Callable[[Any], Any]) -> None:
        self._find_missing = find_missing

    def __missing__(self, key: Any) -> Any:
        return self._find_missing(key)


class BroadcastMap(SettledMap):
    """One state in its writable form, for broadcast records: a `BroadcastState`."""

    def __init__(self, descriptor: Any, operator: str, max_parallelism: int) -> None:
        self.name = descriptor.get_name()
        state_name = f"broadcast state '{self.name}' of '{operator}'"
        key = task_map_keys(descriptor.type_info.key_type, f"the map keys of {state_name}")
        evolution = evolution_of(descriptor)
        value = task_codec(
            descriptor.type_info.value_type, state_name, None if evolution is None else evolution.serializer
        )
        super().__init__(key, value)
        self._forms = key.forms
        self._table = StateTable(self.name, None, max_parallelism, value, key, evolution=evolution)
        self._version: tuple[SegmentRef, ...] = ()
        self._copy = _Entries(self._find_missing)
        self._is_loaded = False  # whether `_copy` has the entries of the table
        # Plain keys need no conversion.
        self.find: Callable[[Any], Any] = self.get if key.exact is None else self._copy.__getitem__
        self._reset_changes()

    def _reset_changes(self) -> None:
        self._changed: dict[Any, None] = {}
        self._cleared = False

    def begin(self, setting: TableSetting, version: tuple[SegmentRef, ...]) -> None:
        """Start an epoch at this version."""
        self._table.begin(setting, version)
        setting.segments.keep_only(self._table.view.refs, self._table.layout)
        if self._changed or self._cleared or version != self._version:
            self._copy.clear()
            self._is_loaded = False
        self._version = version
        self._reset_changes()

    @property
    def schema(self) -> TableSchema | None:
        """The saved and current schemas of the values."""
        return self._table.schema

    @property
    def _entries(self) -> dict[Any, Any]:
        if not self._is_loaded:
            self._copy.update(entries_of(self._table, BROADCAST_KEY, self._table.read_rows([BROADCAST_KEY])[0]))
            self._is_loaded = True
        return self._copy

    def _find_missing(self, key: Any) -> Any:
        return self._entries.get(self._settle_key(key))

    def end(self) -> tuple[SegmentRef, ...]:
        """Write the changes; return the new version."""
        stored = self._table.holds_rows
        if self._cleared and stored:
            self._table.clear([BROADCAST_KEY])
        puts = [key for key in self._changed if key in self._entries]
        removed = [key for key in self._changed if key not in self._entries]
        if puts:
            values = [self._entries[key] for key in puts]
            self._table.put([BROADCAST_KEY] * len(puts), values, self._table.encode_subs(puts))
        if removed and stored:
            removed = [form for key in removed for form in self._forms(key)]
            self._table.delete([BROADCAST_KEY] * len(removed), self._table.encode_subs(removed))
        return self._table.end()

    # --- changes --------------------------------------------------------------------------------------------------

    def _record_change(self, key: Any) -> None:
        self._changed[key] = None

    def clear(self) -> None:
        """Remove all entries."""
        self._copy.clear()
        self._is_loaded = True
        self._changed, self._cleared = {}, True


class BroadcastView:
    """The same state in its read-only form, for the other side's records: a `ReadOnlyBroadcastState`."""

    def __init__(self, state: BroadcastMap) -> None:
        self._state = state
        self.get, self.contains = state.find, state.contains
        self.is_empty = state.is_empty

    # Copies, since a function that retains one must not see later changes in it.
    def items(self) -> Iterable[tuple[Any, Any]]:
        return list(self._state.items())

    def keys(self) -> Iterable[Any]:
        return list(self._state.keys())

    def values(self) -> Iterable[Any]:
        return list(self._state.values())

    def __contains__(self, key: Any) -> bool:
        return self.contains(key)

    def __getitem__(self, key: Any) -> Any:
        return self.get(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def _reject(self, *args: Any) -> NoReturn:
        raise ProgramError(
            f"broadcast state '{self._state.name}' cannot be written for a record that is not broadcast, which only "
            "one subtask sees: the copies would differ. Write it in process_broadcast_element"
        )

    put = put_all = remove = clear = __setitem__ = __delitem__ = _reject


class BroadcastStates:
    """All broadcast states of one operator in one subtask."""

    def __init__(self, operator: str, descriptors: tuple[Any, ...], max_parallelism: int) -> None:
        self._operator = operator
        self._descriptors = {descriptor.get_name(): descriptor for descriptor in descriptors}
        self._last_descriptors = dict(self._descriptors)  # the last descriptor used for each name
        self._maps = {
            name: BroadcastMap(descriptor, operator, max_parallelism) for name, descriptor in self._descriptors.items()
        }
        self._views = {name: BroadcastView(state) for name, state in self._maps.items()}
        self._stored = StoredTables({})
        self._is_writer = False
        self.is_only_subtask = False  # whether this subtask writes alone, as in a test of a single subtask

    def begin(self, setting: TableSetting, accounts: Mapping[int, SubtaskAccount]) -> None:
        """Open every state at the last version. `setting` covers all key groups, as every subtask reads everything;
        `accounts` are the acknowledged accounts of the subtasks."""
        self._is_writer = self.is_only_subtask or setting.subtask == WRITER
        self._stored = accounts.get(WRITER, SubtaskAccount()).broadcast or StoredTables({})
        # A suffix after the nonce: keyed state of the same name has files in the same folder.
        setting = replace(setting, nonce=f"{setting.nonce}b", schemas=self._stored.schemas)
        for name, state in self._maps.items():
            state.begin(setting, self._stored.versions.get(name, ()))

    def end(self) -> StoredTables | None:
        """The new versions for the account, if this subtask is the writer."""
        if not self._is_writer:
            return None
        # The version of a state that the program does not declare (yet) stays unchanged.
        versions = {**self._stored.versions, **{name: state.end() for name, state in self._maps.items()}}
        return stored_tables(versions, self._stored.schemas, {name: s.schema for name, s in self._maps.items()})

    def writable(self, descriptor: Any) -> BroadcastMap:
        """The state with write access."""
        return self._maps[self._name(descriptor)]

    def readable(self, descriptor: Any) -> BroadcastView:
        """The state with read access."""
        return self._views[self._name(descriptor)]

    def _name(self, descriptor: Any) -> str:
        name: Any = getattr(descriptor, "name", None)
        if name not in self._maps:
            raise ProgramError(
                f"get_broadcast_state: '{self._operator}' has no broadcast state {name or descriptor!r}; "
                f"it has {sorted(self._maps)}. Pass its descriptor to broadcast(...) too"
            )
        if self._last_descriptors[name] is not descriptor:
            declared = self._descriptors[name]
            if declared != descriptor:
                raise ProgramError(
                    f"get_broadcast_state: '{name}' of '{self._operator}' was passed to broadcast(...) as {declared!r} "
                    f"and is now requested as {descriptor!r}. Use one descriptor for both"
                )
            self._last_descriptors[name] = descriptor
        return str(name)
