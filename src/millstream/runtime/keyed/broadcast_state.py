"""Broadcast state: maps that are the same in every subtask of an operator, and stored once.

Every subtask gets every broadcast record, in the same order, and applies it to its own copy in memory. Because all do
the same, one of them speaks for all: subtask 0 writes what an epoch changed, as one segment, and names the new version
in its account. At the next epoch every subtask reads that version, whatever its number and however many there are, so
a restore or a rescale is nothing special.

Invariant: when an epoch begins, every copy is what the last manifest's version says. A copy that was changed, in an
epoch that was committed or not, is read again; one that was not is kept as long as the version stays.
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
"""The subtask that stores what all have."""


class _Entries(dict[Any, Any]):
    """The entries of a state, found at the speed of a dictionary. A key that is not there is looked up with more care:
    in the form it would be stored in, and after the entries are read."""

    __slots__ = ("_look_up",)

    def __init__(self, look_up: Callable[[Any], Any]) -> None:
        self._look_up = look_up

    def __missing__(self, key: Any) -> Any:
        return self._look_up(key)


class BroadcastMap(SettledMap):
    """One state as broadcast records see it: a `BroadcastState`."""

    def __init__(self, descriptor: Any, operator: str, max_parallelism: int) -> None:
        self.name = descriptor.get_name()
        what = f"broadcast state '{self.name}' of '{operator}'"
        key = task_map_keys(descriptor.type_info.key_type, f"the map keys of {what}")
        evolution = evolution_of(descriptor)
        value = task_codec(descriptor.type_info.value_type, what, None if evolution is None else evolution.serializer)
        super().__init__(key, value)
        self._forms = key.forms
        self._table = StateTable(self.name, None, max_parallelism, value, key, evolution=evolution)
        self._version: tuple[SegmentRef, ...] = ()
        self._copy = _Entries(self._look_up)
        self._is_loaded = False  # whether `_copy` has what the table has
        # Plain keys are found without a look at them.
        self.find: Callable[[Any], Any] = self.get if key.exact is None else self._copy.__getitem__
        self._forget_changes()

    def _forget_changes(self) -> None:
        self._changed: dict[Any, None] = {}
        self._cleared = False

    def begin(self, setting: TableSetting, version: tuple[SegmentRef, ...]) -> None:
        """An epoch begins at this version."""
        self._table.begin(setting, version)
        setting.segments.keep_only(self._table.view.refs, self._table.layout)
        if self._changed or self._cleared or version != self._version:
            self._copy.clear()
            self._is_loaded = False
        self._version = version
        self._forget_changes()

    @property
    def schema(self) -> TableSchema | None:
        """What the values were saved as, and are."""
        return self._table.schema

    @property
    def _entries(self) -> dict[Any, Any]:
        if not self._is_loaded:
            self._copy.update(entries_of(self._table, BROADCAST_KEY, self._table.read_rows([BROADCAST_KEY])[0]))
            self._is_loaded = True
        return self._copy

    def _look_up(self, key: Any) -> Any:
        return self._entries.get(self._settle_key(key))

    def end(self) -> tuple[SegmentRef, ...]:
        """Write what changed; the new version."""
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

    def _note(self, key: Any) -> None:
        self._changed[key] = None

    def clear(self) -> None:
        """Forget all."""
        self._copy.clear()
        self._is_loaded = True
        self._changed, self._cleared = {}, True


class BroadcastView:
    """The same as the other side's records see it: a `ReadOnlyBroadcastState`."""

    def __init__(self, state: BroadcastMap) -> None:
        self._state = state
        self.get, self.contains = state.find, state.contains
        self.is_empty = state.is_empty

    # Copies: a function that keeps one, or goes on after a change, must not see what it has not asked for.
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

    def _refuse(self, *args: Any) -> NoReturn:
        raise ProgramError(
            f"broadcast state '{self._state.name}' was to be written for a record that is not broadcast, which only "
            "one subtask sees: the copies would differ. Write it in process_broadcast_element"
        )

    put = put_all = remove = clear = __setitem__ = __delitem__ = _refuse


class BroadcastStates:
    """All broadcast states of one operator in one subtask."""

    def __init__(self, operator: str, descriptors: tuple[Any, ...], max_parallelism: int) -> None:
        self._operator = operator
        self._descriptors = {descriptor.get_name(): descriptor for descriptor in descriptors}
        self._last_descriptors = dict(
            self._descriptors
        )  # the last descriptor asked with, by name: most ask with one object
        self._maps = {
            name: BroadcastMap(descriptor, operator, max_parallelism) for name, descriptor in self._descriptors.items()
        }
        self._views = {name: BroadcastView(state) for name, state in self._maps.items()}
        self._stored = StoredTables({})
        self._is_writer = False
        self.is_only_subtask = False  # whether no other subtask is there to write, as in a test of one

    def begin(self, setting: TableSetting, accounts: Mapping[int, SubtaskAccount]) -> None:
        """Open every state at the last version. `setting` is of all key groups, as every subtask reads everything;
        `accounts` is what each subtask acknowledged."""
        self._is_writer = self.is_only_subtask or setting.subtask == WRITER
        self._stored = accounts.get(WRITER, SubtaskAccount()).broadcast or StoredTables({})
        # A letter of its own after the nonce: keyed state of the same name has files beside these.
        setting = replace(setting, nonce=f"{setting.nonce}b", schemas=self._stored.schemas)
        for name, state in self._maps.items():
            state.begin(setting, self._stored.versions.get(name, ()))

    def end(self) -> StoredTables | None:
        """What this subtask adds to its account: the new versions, if it is the one that writes."""
        if not self._is_writer:
            return None
        # A state the program does not declare (yet) is handed on as it is.
        versions = {**self._stored.versions, **{name: state.end() for name, state in self._maps.items()}}
        return stored_tables(versions, self._stored.schemas, {name: s.schema for name, s in self._maps.items()})

    def writable(self, descriptor: Any) -> BroadcastMap:
        """The state for those who may write it."""
        return self._maps[self._name(descriptor)]

    def readable(self, descriptor: Any) -> BroadcastView:
        """The state for those who may not."""
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
                    f"and is now asked for as {descriptor!r}. Use one descriptor for both"
                )
            self._last_descriptors[name] = descriptor
        return str(name)
