"""What a manifest says of state: which operators there are, which states each keeps, and in which files. Pure.

A manifest keeps state in four places below `states[uid]`: tables of segments in the accounts of subtasks (keyed
state, timers, windows, joins), tables that subtask 0 writes for all (broadcast state), lists and maps of subtasks
(operator state), and records on their way round a loop. Here all are one list of `StoredState`. Nothing is opened:
sizes are those that the manifest tells.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from millstream.checkpoint.manifest import Manifest
from millstream.errors import StoreError
from millstream.state.schemas.schema_history import History
from millstream.state.schemas.state_schemas import last_schemas
from millstream.state.segments.version import Refs, merge_versions, refs_from_json
from millstream.state.stored.operator_lists import Entry, KeptState
from millstream.state.tables.state_table import last_versions

__all__ = ["OperatorInfo", "StoredState", "found_operator", "found_state", "operators_of", "states_of"]

Scope = Literal["keyed", "broadcast", "list", "loop"]

EVENT_TIMERS = "event timers"
PROCESSING_TIMERS = "processing timers"
_OWN_KINDS = {
    EVENT_TIMERS: "timers",
    PROCESSING_TIMERS: "timers",
    "window event timers": "timers",
    "window processing timers": "timers",
    "panes": "panes",
    "window values": "window values",
    "merging windows": "merging windows",
}


@dataclass(frozen=True)
class OperatorInfo:
    """An operator of the program that committed the epoch. `states` are the names of what it keeps."""

    uid: str
    name: str
    parallelism: int
    watermark: int | None
    states: tuple[str, ...]


@dataclass(frozen=True)
class StoredState:
    """A state of an operator and where it lies: `refs` of a table, or `entries` of a list, one per subtask.

    `kind` is what the operator told of it, "" where it told nothing. `history` is what its rows were saved as. `now_ms`
    is the time by which rows have expired or not: that of the epoch, and for panes the time of their windows.
    `windows_ms` says which windows the numbers of "window values" stand for: size, slide, offset and step.
    `type_name` is that of the records in a loop.
    """

    uid: str
    operator: str
    name: str
    scope: Scope
    kind: str
    now_ms: int
    refs: Refs = ()
    entries: tuple[Entry | None, ...] = ()
    history: History = ()
    windows_ms: tuple[int, int, int, int | None] | None = None
    type_name: str = ""

    @property
    def what(self) -> str:
        """For errors."""
        return f"state '{self.name}' of '{self.operator}'"

    @property
    def files(self) -> tuple[str, ...]:
        """The files it lies in, each once."""
        files = [ref.file for ref in self.refs]
        files += [entry["file"] for entry in self.entries if entry is not None and "file" in entry]
        return tuple(dict.fromkeys(files))

    @property
    def stored_bytes(self) -> int:
        """How many bytes it takes, about: of a file that is live for some key groups only, their share."""
        in_lists: int = sum(entry["bytes"] for entry in self.entries if entry is not None)
        return sum(ref.live_bytes() for ref in self.refs) + in_lists

    @property
    def stored_rows(self) -> int:
        """How many changes are stored, about; overwritten and expired rows are among them until compaction."""
        shares = (
            ref.rows * len(ref.groups) // (ref.file_group_stop - ref.file_group_start) if ref.rows > 1 else ref.rows
            for ref in self.refs
        )
        in_lists: int = sum(entry["items"] for entry in self.entries if entry is not None)
        return sum(shares) + in_lists


def operators_of(manifest: Manifest) -> list[OperatorInfo]:
    """All operators of the program, and those that only left state behind, in the program's order."""
    program: Mapping[str, Any] = manifest.program
    states: Mapping[str, Any] = manifest.states
    names: dict[str, list[str]] = {}
    for state in states_of(manifest):
        names.setdefault(state.uid, []).append(state.name)
    return [
        OperatorInfo(
            uid=uid,
            name=program.get(uid, {}).get("name", uid),
            parallelism=program.get(uid, {}).get("parallelism") or 1,
            watermark=states.get(uid, {}).get("watermark"),
            states=tuple(names.get(uid, ())),
        )
        for uid in dict.fromkeys([*program, *states])
    ]


def states_of(manifest: Manifest) -> list[StoredState]:
    """Every state that the manifest names, by operator and name."""
    states: Mapping[str, Any] = manifest.states
    program: Mapping[str, Any] = manifest.program
    found: list[StoredState] = []
    for uid in sorted(states):
        name = program.get(uid, {}).get("name", uid)
        found += _of_operator(uid, name, states[uid], manifest.created_ms)
    return found


def _of_operator(uid: str, operator: str, told: Mapping[str, Any], created_ms: int) -> Iterator[StoredState]:
    accounts = {n: account for n, account in told.get("subtasks", {}).items() if isinstance(account, dict)}
    histories = last_schemas(accounts, operator)
    facts = {key: value for account in accounts.values() for key, value in account.items()}
    windows_ms, sides = facts.get("windows_ms"), facts.get("rows_numbered", {})
    for name, refs in sorted(last_versions(accounts, operator).items()):
        history = histories.get(name, ())
        kind = "join rows" if name in sides else _OWN_KINDS.get(name) or (history[-1].shape if history else "")
        now_ms = created_ms
        if kind in ("panes", "join rows"):
            fired_ms = [account["fired_ms"] for account in accounts.values() if "fired_ms" in account]
            now_ms = max(fired_ms or [told.get("watermark", created_ms)])
        yield StoredState(
            uid,
            operator,
            name,
            "keyed",
            kind,
            now_ms,
            refs=refs,
            history=history,
            windows_ms=None if windows_ms is None else (windows_ms[0], windows_ms[1], windows_ms[2], windows_ms[3]),
        )
    told_to_all = {n: {"schemas": account.get("broadcast_schemas", {})} for n, account in accounts.items()}
    histories = last_schemas(told_to_all, operator)
    for name, refs in sorted(_broadcast_versions(accounts, operator).items()):
        history = histories.get(name, ())
        yield StoredState(uid, operator, name, "broadcast", "broadcast", created_ms, refs=refs, history=history)
    kept = KeptState.of(told.get("functions", {}))
    for name in kept.names():
        entries = tuple(kept.entries(name))
        mode = next(entry["mode"] for entry in entries if entry is not None)
        kind = "broadcast map" if mode == "broadcast" else f"{mode} list"
        yield StoredState(uid, operator, name, "list", kind, created_ms, entries=entries)
    blocks = tuple(accounts[subtask].get("blocks") for subtask in sorted(accounts, key=int))
    if any(blocks):
        yield StoredState(uid, operator, "loop", "loop", "loop", created_ms, entries=blocks, type_name=facts["type"])


def _broadcast_versions(accounts: Mapping[str, Any], operator: str) -> dict[str, Refs]:
    return {
        name: merge_versions([refs_from_json(refs, f"broadcast state '{name}' of '{operator}'")])
        for account in accounts.values()
        for name, refs in account.get("broadcast", {}).items()
    }


# --- finding by name ------------------------------------------------------------------------------------------


def found_operator(operators: Sequence[OperatorInfo], asked: str, where: str) -> OperatorInfo:
    """The operator of this uid, or the only one of this name; StoreError with the nearest and all there are.

    >>> found_operator([OperatorInfo("c1", "count", 1, None, ("total",))], "cuont", "epoch 7 of jobs/a")
    Traceback (most recent call last):
    millstream.errors.StoreError: epoch 7 of jobs/a has no operator 'cuont'. Did you mean 'count'? With state it has: \
'count' (uid c1).
    """
    by_uid = [operator for operator in operators if operator.uid == asked]
    named = by_uid or [operator for operator in operators if operator.name == asked]
    if len(named) == 1:
        return named[0]
    if named:
        # Several of one name, of which one keeps state: that one is meant.
        keeping = [operator for operator in named if operator.states]
        if len(keeping) == 1:
            return keeping[0]
        uids = ", ".join(operator.uid for operator in named)
        raise StoreError(f"{where} has {len(named)} operators named '{asked}'. Give one of their uids: {uids}.")
    known = [name for operator in operators for name in (operator.name, operator.uid)]
    have = ", ".join(f"'{operator.name}' (uid {operator.uid})" for operator in operators if operator.states) or "none"
    raise StoreError(f"{where} has no operator '{asked}'.{_nearest(asked, known)} With state it has: {have}.")


def found_state(states: Iterable[StoredState], operator: OperatorInfo, asked: str, where: str) -> StoredState:
    """The state of this name; StoreError with the nearest and all there are."""
    own = [state for state in states if state.uid == operator.uid]
    # A name may be that of a keyed, a broadcast and a list state at once: `name (broadcast)` tells them apart.
    for state in own:
        if asked in (state.name, f"{state.name} ({state.scope})"):
            return state
    have = ", ".join(f"'{state.name}'" for state in own) or "none"
    near = _nearest(asked, [state.name for state in own])
    raise StoreError(f"{where}: operator '{operator.name}' has no state '{asked}'.{near} It has: {have}.")


def _nearest(asked: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(asked, known, n=1, cutoff=0.5)
    return f" Did you mean '{near[0]}'?" if near else ""
