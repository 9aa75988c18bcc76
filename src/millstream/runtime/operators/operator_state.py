"""Operator state in a task: the state of a subtask's function through `initialize_state` and `snapshot_state`.

A function stays open in a worker process across epochs, but its subtask may move to another process, and the epoch it
processed may not be committed. So the function's memory is valid only if it is exactly the state in the last manifest,
that is, if this object wrote the manifest's account of the subtask; the attempt's nonce identifies it (`is_outdated`).
Otherwise the function is closed, and a new copy is created, initialised and opened; so `initialize_state` is called
once on each object, before `open`, as in Flink.

State values are lists and maps (`operator_values`); a map is stored as a list of pairs.

A sink's writer lives for one epoch, so it is initialised in every epoch in which it receives records. Stored lists that
no function declares are retained unchanged, for a function that may declare them later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from millstream.common.typeinfo import ListTypeInfo, MapTypeInfo
from millstream.errors import ProgramError
from millstream.runtime.exchange.messages import Acknowledgement
from millstream.runtime.keyed.declared_states import evolution_of, task_codec, task_map_keys
from millstream.runtime.operators.operator_values import OperatorList, OperatorMap, OperatorValue
from millstream.runtime.operators.user_code import UserCall
from millstream.state.stored.accounts import FunctionAccount, ListEntry, ListMode, ListSchema
from millstream.state.stored.operator_lists import StoredLists, column_of, entry_of
from millstream.storage.names import segment_name
from millstream.storage.store import Store

__all__ = ["InitializationContext", "OperatorState", "SnapshotContext", "keeps_state"]

_METHODS = ("initialize_state", "snapshot_state")
_NAMES: Mapping[ListMode, str] = {
    "split": "get_list_state",
    "union": "get_union_list_state",
    "broadcast": "get_broadcast_state",
}

V = TypeVar("V", bound=OperatorValue)


def keeps_state(function: Any) -> bool:
    """Whether an object has operator state: it implements both methods of a `CheckpointedFunction`."""
    return all(callable(getattr(function, method, None)) for method in _METHODS)


class _StateStore:
    """The operator state store as a function sees it."""

    def __init__(self, state: OperatorState) -> None:
        self._state = state

    def get_list_state(self, state_descriptor: Any) -> OperatorList:
        return self._state.list_of(state_descriptor, "split")

    def get_union_list_state(self, state_descriptor: Any) -> OperatorList:
        return self._state.list_of(state_descriptor, "union")

    def get_broadcast_state(self, state_descriptor: Any) -> OperatorMap:
        return self._state.map_of(state_descriptor)


class InitializationContext:
    """The `context` of `initialize_state`."""

    def __init__(self, state: OperatorState, keyed: Any) -> None:
        self._state, self._keyed = state, keyed

    def is_restored(self) -> bool:
        return self._state.restored_epoch is not None

    def get_restored_checkpoint_id(self) -> int | None:
        return self._state.restored_epoch

    def get_operator_state_store(self) -> _StateStore:
        return _StateStore(self._state)

    def get_keyed_state_store(self) -> Any:
        if self._keyed is None:
            raise ProgramError(
                f"get_keyed_state_store: the stream before '{self._state.operator}' has no key. "
                "Call key_by(...) before it, or use get_operator_state_store()"
            )
        return self._keyed


@dataclass(frozen=True)
class SnapshotContext:
    """The `context` of `snapshot_state`."""

    epoch: int
    now_ms: int

    def get_checkpoint_id(self) -> int:
        return self.epoch

    def get_checkpoint_timestamp(self) -> int:
        return self.now_ms


class OperatorState:
    """The operator state of one operator in one subtask.

    `restore` opens it at the last manifest, `initialize` passes it to the function, `begin` starts an epoch and
    `acknowledge` ends it. Between the two the function's memory is not a valid version.
    """

    def __init__(self, uid: str, parallelism: int, subtask: int, store: Store, call: UserCall) -> None:
        self.operator = call.operator
        self._uid, self._parallelism, self._subtask, self._call = uid, parallelism, subtask, call
        self._store = store
        self._function: Any = None
        self._outlives_epoch = False
        self._held_nonce: str | None = None
        self._nonce, self._snapshot_context = "", SnapshotContext(0, 0)
        self._stream_state_names: frozenset[str] = frozenset()
        self._reset(StoredLists({}))

    def _reset(self, saved_lists: StoredLists) -> None:
        self._saved_lists = saved_lists
        self._values: dict[str, OperatorValue] = {}
        # The stored lists of this subtask. After rescaling, no stored list belongs to this subtask alone.
        is_same_parallelism = saved_lists.parallelism == self._parallelism
        self._entries: Mapping[str, ListEntry] = saved_lists.of_subtask(self._subtask) if is_same_parallelism else {}

    @property
    def restored_epoch(self) -> int | None:
        """The epoch the state was restored from, None at the first start."""
        return self._saved_lists.epoch

    # --- from epoch to epoch ----------------------------------------------------------------------------------

    def restore(self, accounts: Mapping[int, FunctionAccount]) -> None:
        """Opens the state at the last manifest, with its accounts by subtask."""
        self._function, self._outlives_epoch = None, False
        self._reset(StoredLists.for_subtask(accounts, self._subtask, self._parallelism))

    def initialize(self, function: Any, keyed: Any = None, *, outlives_epoch: bool = True) -> None:
        """Passes the state to `function`, if it has operator state. `outlives_epoch`: the object stays open."""
        methods = [method for method in _METHODS if callable(getattr(function, method, None))]
        if not methods:
            return
        with self._call.running("initialize_state"):
            if len(methods) < len(_METHODS):
                raise ProgramError(
                    f"{type(function).__name__} of '{self.operator}' has {methods[0]}(), but operator state needs "
                    f"both {_METHODS[0]}(context) and {_METHODS[1]}(context). Add the other one: derive from "
                    "CheckpointedFunction"
                )
            self._function, self._outlives_epoch = function, outlives_epoch
            function.initialize_state(InitializationContext(self, keyed))

    def is_outdated(self, accounts: Mapping[int, FunctionAccount]) -> bool:
        """Whether the open function's version differs from the last manifest's, or belongs to an incomplete epoch."""
        account = accounts.get(self._subtask)
        committed = None if account is None else account.nonce
        return self._outlives_epoch and (self._held_nonce is None or self._held_nonce != committed)

    def begin(self, accounts: Mapping[int, FunctionAccount], nonce: str, epoch: int, now_ms: int) -> None:
        """Begins an epoch: until it is acknowledged, this object has no valid version."""
        if not self._outlives_epoch:
            self.restore(accounts)
        self._held_nonce = None
        self._nonce, self._snapshot_context = nonce, SnapshotContext(epoch, now_ms)

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Ends the epoch: snapshots the function and stores the values."""
        if self._function is None and not self._saved_lists.accounts:
            return
        with self._call.running("snapshot_state"):
            if self._function is not None:
                self._function.snapshot_state(self._snapshot_context)
            self._entries = self._write_values()
        has_unions = self._saved_lists.has_unions or any(value.mode == "union" for value in self._values.values())
        acknowledgement.operator_states[self._uid] = FunctionAccount(
            self._snapshot_context.epoch, self._nonce, self._parallelism, self._entries, has_unions
        )
        self._held_nonce = self._nonce

    # --- the lists and maps -----------------------------------------------------------------------------------

    def reserve(self, names: Iterable[str]) -> None:
        """Reserves names of the operator's broadcast states, which a function may not use."""
        self._stream_state_names = frozenset(names)

    def list_of(self, descriptor: Any, mode: ListMode) -> OperatorList:
        """The list of a descriptor, with its restored content."""
        declared = getattr(descriptor, "type_info", None)
        if not isinstance(declared, ListTypeInfo):
            raise self._wrong_descriptor(descriptor, mode, "a ListStateDescriptor(name, type)")
        evolution = evolution_of(descriptor)
        serializer = None if evolution is None else evolution.serializer
        codec = task_codec(declared.element_type, self._description(descriptor.get_name()), serializer)
        return self._open_value(descriptor, OperatorList(codec, mode, evolution))

    def map_of(self, descriptor: Any) -> OperatorMap:
        """The map of a descriptor, with the copy restored in this subtask."""
        declared = getattr(descriptor, "type_info", None)
        if not isinstance(declared, MapTypeInfo):
            raise self._wrong_descriptor(descriptor, "broadcast", "a MapStateDescriptor(name, key type, value type)")
        subject = self._description(descriptor.get_name())
        if descriptor.get_name() in self._stream_state_names:
            raise ProgramError(
                f"{subject} has the name of a state of its broadcast stream, which is another one. Use that one by "
                "ctx.get_broadcast_state(descriptor) in process_element and process_broadcast_element, or rename this "
                "one"
            )
        key = task_map_keys(declared.key_type, f"the map keys of {subject}")
        evolution = evolution_of(descriptor)
        serializer = None if evolution is None else evolution.serializer
        return self._open_value(
            descriptor, OperatorMap(key, task_codec(declared.value_type, subject, serializer), evolution)
        )

    def _wrong_descriptor(self, descriptor: Any, mode: ListMode, expected: str) -> ProgramError:
        return ProgramError(f"{_NAMES[mode]} of '{self.operator}': found {descriptor!r}, expected {expected}")

    def _open_value(self, descriptor: Any, value: V) -> V:
        """The value already open under this name, or a new one with its restored content."""
        name: str = descriptor.get_name()
        subject = self._description(name)
        ttl: Any = getattr(descriptor, "_ttl_config", None)
        if ttl is not None and ttl.is_enabled():
            raise ProgramError(f"{subject} cannot expire: only keyed state has a time to live. Remove the TTL")
        if getattr(descriptor, "_queryable_name", None) is not None:
            raise ProgramError(f"{subject} cannot be queryable: only keyed state is. Remove set_queryable")
        open_value: Any = self._values.get(name)
        if open_value is not None:
            _check(subject, open_value.mode, open_value.type_name, value, "declared")
            return open_value  # type: ignore[no-any-return] # one mode is one kind of value
        for entry in self._saved_lists.entries(name):
            if entry is not None and entry.mode != value.mode:
                _check(subject, entry.mode, entry.type, value, "saved")
        parts = self._saved_lists.share(name, value.mode, self._subtask, self._parallelism)
        column = column_of(parts, self._store, subject, value.changes)
        if column is not None:
            value.fill(column)
        self._values[name] = value
        return value

    def _write_values(self) -> dict[str, ListEntry]:
        """Writes all non-empty values, open and undeclared ones; returns their entries."""
        written: dict[str, ListEntry] = {}
        for name, used in self._values.items():
            column = used.column()
            if column is not None:
                written[name] = self._store_column(name, column, used.mode, used.type_name, used.schema)
        for name in self._saved_lists.names():
            if name not in self._values:
                entry = self._retain_undeclared(name)
                if entry is not None:
                    written[name] = entry
        return written

    def _retain_undeclared(self, name: str) -> ListEntry | None:
        if name in self._entries:
            return self._entries[name]
        # A union restores everything in each subtask; an undeclared one is split, so that it does not multiply.
        mode: ListMode = "broadcast" if self._saved_lists.mode(name) == "broadcast" else "split"
        parts = self._saved_lists.share(name, mode, self._subtask, self._parallelism)
        column = column_of(parts, self._store, self._description(name)) if parts else None
        if column is None:
            return None
        first = parts[0][0]
        return self._store_column(name, column, first.mode, first.type, first.schema)

    def _store_column(self, name: str, column: Any, mode: ListMode, type_name: str, schema: ListSchema) -> ListEntry:
        # A suffix after the nonce: keyed state of the same name has files in the same folder.
        file = segment_name(self._uid, name, self._snapshot_context.epoch, self._subtask, f"{self._nonce}o")
        return entry_of(column, mode, type_name, self._store, file, self._entries.get(name), schema)

    def _description(self, name: str) -> str:
        return f"operator state '{name}' of '{self.operator}'"


def _check(subject: str, old_mode: ListMode, old_type: str, value: OperatorValue, verb: str) -> None:
    old, new = (_NAMES[old_mode], old_type), (_NAMES[value.mode], value.type_name)
    if old != new:
        raise ProgramError(
            f"{subject} was {verb} by {old[0]} as {old[1]}, and is now requested by {new[0]} as {new[1]}. "
            "Give the new one another name"
        )
