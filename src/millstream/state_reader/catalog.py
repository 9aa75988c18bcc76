"""The catalog of a manifest's state: its operators, the states of each, and their files. Pure.

An operator's account stores state in four places: tables of segments in the accounts of its subtasks (keyed state,
timers, windows, joins), tables that subtask 0 writes for all (broadcast state), lists and maps of subtasks (operator
state), and records in the feedback edge of a loop. Here all of them form one list of `StoredState`. No file is opened:
sizes are taken from the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.program import program_of
from millstream.errors import StoreError, did_you_mean
from millstream.records.watermarks import shown_watermark
from millstream.state.schemas.schema_history import History
from millstream.state.schemas.state_schemas import last_schemas
from millstream.state.segments.version import Refs
from millstream.state.stored.accounts import ListEntry, OperatorAccount, WindowLengths, accounts_of, tables_of
from millstream.state.stored.operator_lists import StoredLists
from millstream.state.stored.table_names import JOIN_ROWS, KINDS, LOOP, PANES
from millstream.state.tables.state_table import last_versions

__all__ = ["OperatorInfo", "StoredState", "find_operator", "find_state", "operators_of", "states_of"]

Scope = Literal["keyed", "broadcast", "list", "loop"]


@dataclass(frozen=True)
class OperatorInfo:
    """An operator of the program that committed the epoch. `states` are the names of its states."""

    uid: str
    name: str
    parallelism: int
    watermark: int | None
    states: tuple[str, ...]


@dataclass(frozen=True)
class StoredState:
    """A state of an operator and its location: `refs` of a table, or `entries` of a list, one per subtask.

    `kind` is the operator's own description, "" if it has none. `history` is the schema history of its rows. `now_ms`
    is the time at which expiry is decided: the epoch's time, and for panes the time of their windows. `windows_ms` maps
    the numbers of "window values" to windows: size, slide, offset and step. `type_name` is the type of records in a
    loop.
    """

    uid: str
    operator: str
    name: str
    scope: Scope
    kind: str
    now_ms: int
    refs: Refs = ()
    entries: tuple[ListEntry | None, ...] = ()
    history: History = ()
    windows_ms: WindowLengths | None = None
    type_name: str = ""

    @property
    def what(self) -> str:
        """The state's description in errors."""
        return f"state '{self.name}' of '{self.operator}'"

    @property
    def files(self) -> tuple[str, ...]:
        """The files it is stored in, without duplicates."""
        files = [ref.file for ref in self.refs]
        files += [entry.file for entry in self.entries if entry is not None and entry.file is not None]
        return tuple(dict.fromkeys(files))

    @property
    def stored_bytes(self) -> int:
        """Its approximate size in bytes; a file that is live for some key groups counts by their share."""
        in_lists = sum(entry.bytes for entry in self.entries if entry is not None)
        return sum(ref.live_bytes() for ref in self.refs) + in_lists

    @property
    def stored_rows(self) -> int:
        """The approximate number of stored changes, including overwritten and expired rows until compaction."""
        in_lists = sum(entry.items for entry in self.entries if entry is not None)
        return sum(ref.live_rows for ref in self.refs) + in_lists


def operators_of(manifest: Manifest) -> list[OperatorInfo]:
    """All operators of the program, in its order, and former operators with remaining state."""
    program, accounts = program_of(manifest), accounts_of(manifest)
    names: dict[str, list[str]] = {}
    for state in states_of(manifest):
        names.setdefault(state.uid, []).append(state.name)
    return [
        OperatorInfo(
            uid=uid,
            name=manifest.operator_name(uid),
            parallelism=program[uid].parallelism or 1 if uid in program else 1,
            watermark=shown_watermark(accounts[uid].watermark) if uid in accounts else None,
            states=tuple(names.get(uid, ())),
        )
        for uid in dict.fromkeys([*program, *accounts])
    ]


def states_of(manifest: Manifest) -> list[StoredState]:
    """Every state that the manifest names, by operator and name."""
    accounts = accounts_of(manifest)
    states: list[StoredState] = []
    for uid in sorted(accounts):
        operator, account, created_ms = manifest.operator_name(uid), accounts[uid], manifest.created_ms
        states += _keyed(uid, operator, account, created_ms)
        states += _broadcast(uid, operator, account, created_ms)
        states += _lists(uid, operator, account, created_ms)
        states += _loop(uid, operator, account, created_ms)
    return states


def _keyed(uid: str, operator: str, account: OperatorAccount, created_ms: int) -> Iterator[StoredState]:
    tables, subtasks = tables_of(account.subtasks), account.subtasks.values()
    histories = last_schemas(tables)
    windows_ms = next((subtask.windows_ms for subtask in subtasks if subtask.windows_ms is not None), None)
    sides = {name for subtask in subtasks for name in subtask.rows_numbered}
    fired_ms = [subtask.fired_ms for subtask in subtasks if subtask.fired_ms is not None]
    for name, refs in sorted(last_versions(tables).items()):
        history = histories.get(name, ())
        kind = KINDS.get(name) or (JOIN_ROWS if name in sides else history[-1].shape if history else "")
        now_ms = created_ms
        if kind in (PANES, JOIN_ROWS):
            now_ms = max(fired_ms or [created_ms if account.watermark is None else account.watermark])
        yield StoredState(uid, operator, name, "keyed", kind, now_ms, refs=refs, history=history, windows_ms=windows_ms)


def _broadcast(uid: str, operator: str, account: OperatorAccount, created_ms: int) -> Iterator[StoredState]:
    tables = [subtask.broadcast for subtask in account.subtasks.values()]
    histories = last_schemas(tables)
    for name, refs in sorted(last_versions(tables).items()):
        history = histories.get(name, ())
        yield StoredState(uid, operator, name, "broadcast", "broadcast", created_ms, refs=refs, history=history)


def _lists(uid: str, operator: str, account: OperatorAccount, created_ms: int) -> Iterator[StoredState]:
    lists = StoredLists(account.functions)
    for name in lists.names():
        mode = lists.mode(name)
        kind = "broadcast map" if mode == "broadcast" else f"{mode} list"
        yield StoredState(uid, operator, name, "list", kind, created_ms, entries=tuple(lists.entries(name)))


def _loop(uid: str, operator: str, account: OperatorAccount, created_ms: int) -> Iterator[StoredState]:
    tails = [account.subtasks[subtask].loop for subtask in sorted(account.subtasks)]
    blocks = tuple(None if tail is None else tail.blocks for tail in tails)
    type_name = next((tail.type for tail in tails if tail is not None), "")
    if any(blocks):
        yield StoredState(uid, operator, LOOP, "loop", "loop", created_ms, entries=blocks, type_name=type_name)


# --- lookup by name -------------------------------------------------------------------------------------------


def find_operator(operators: Sequence[OperatorInfo], name: str, where: str) -> OperatorInfo:
    """The operator with this uid, or the only one with this name; otherwise StoreError with suggestions.

    >>> find_operator([OperatorInfo("c1", "count", 1, None, ("total",))], "cuont", "epoch 7 of jobs/a")
    Traceback (most recent call last):
    millstream.errors.StoreError: epoch 7 of jobs/a has no operator 'cuont'. Did you mean 'count'? With state it has: \
'count' (uid c1).
    """
    by_uid = [operator for operator in operators if operator.uid == name]
    named = by_uid or [operator for operator in operators if operator.name == name]
    if len(named) == 1:
        return named[0]
    if named:
        # If several have this name, the only one with state is meant.
        keeping = [operator for operator in named if operator.states]
        if len(keeping) == 1:
            return keeping[0]
        uids = ", ".join(operator.uid for operator in named)
        raise StoreError(f"{where} has {len(named)} operators named '{name}'. Give one of their uids: {uids}.")
    known = [known_name for operator in operators for known_name in (operator.name, operator.uid)]
    have = ", ".join(f"'{operator.name}' (uid {operator.uid})" for operator in operators if operator.states) or "none"
    raise StoreError(f"{where} has no operator '{name}'.{did_you_mean(name, known)} With state it has: {have}.")


def find_state(states: Iterable[StoredState], operator: OperatorInfo, name: str, where: str) -> StoredState:
    """The state of this name; otherwise StoreError with suggestions."""
    own = [state for state in states if state.uid == operator.uid]
    # A keyed, a broadcast and a list state may share a name: `name (broadcast)` distinguishes them.
    for state in own:
        if name in (state.name, f"{state.name} ({state.scope})"):
            return state
    have = ", ".join(f"'{state.name}'" for state in own) or "none"
    near = did_you_mean(name, [state.name for state in own])
    raise StoreError(f"{where}: operator '{operator.name}' has no state '{name}'.{near} It has: {have}.")
