"""The catalog of an epoch's queryable states: their names, and where they are stored. Pure: derived from a manifest
alone.

Declared names are in the accounts of operators (`state.stored.queryable`). States without a declared name can be
queried by operator and state name, as a pair or as `OPERATOR::STATE`, if the reader allows it; their description is
limited to what the store records of any state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.program import program_of
from millstream.errors import did_you_mean
from millstream.query.errors import UnknownStateError
from millstream.records.columns import holds_pickles
from millstream.state.schemas.saved_types import type_from, type_of_arrow, written_type
from millstream.state.stored.accounts import OperatorAccount, accounts_of
from millstream.state.stored.queryable import PANES, Queryable
from millstream.state.stored.table_names import ARCHIVED_FILES, ARCHIVED_REMOVALS, MERGING_WINDOWS
from millstream.state_reader.catalog import StoredState, states_of

__all__ = [
    "QueryableState",
    "StateLocation",
    "StateName",
    "find_state",
    "locations_of",
    "served_name",
    "value_type_of",
]

StateName: TypeAlias = str | tuple[str, str]
"""A queryable name, or (operator uid or name, state name), which can also be written OPERATOR::STATE."""

_BETWEEN = "::"
_UNDECLARED_KINDS = ("value", "list", "map", "")


@dataclass(frozen=True)
class QueryableState:
    """A state that can be queried. `name` is None for an undeclared one: query it by (operator, state).

    Types are as the manifest writes them: "LONG", {"row": [...]}; "PICKLED" if none was declared (a key without a type
    is looked up by its value: 1, 1.0 and True are the same key). `is_pickled`: something in the values, or a map's
    keys, has no declared type and is a pickle, which is not unpickled for readers. `key_groups` is the number of key
    groups, the maximum parallelism of the operator; 0 if the assignment of keys to groups is not known, because nothing
    was declared.
    """

    name: str | None
    operator: str
    operator_name: str
    state: str
    kind: str
    key_type: Any
    value_type: Any
    is_pickled: bool
    key_groups: int = 0


@dataclass(frozen=True)
class StateLocation:
    """A state and its tables at one epoch; `stored` is None while it is empty, `homes` exists where windows merge. For
    a table with an archive, `archived` holds its files, and `removed` the keys deleted since."""

    info: QueryableState
    declared: Queryable | None
    stored: StoredState | None
    homes: StoredState | None = None
    archived: StoredState | None = None
    removed: StoredState | None = None

    @property
    def what(self) -> str:
        """The state's description for errors."""
        return f"queryable state '{self.info.name}'" if self.info.name else f"state {self.info.state!r}"


def locations_of(manifest: Manifest, allow_undeclared: bool) -> dict[StateName, StateLocation]:
    """All queryable states, by name; undeclared states by (uid, state name)."""
    stored = {(state.uid, state.name): state for state in states_of(manifest) if state.scope == "keyed"}
    program = program_of(manifest)
    locations: dict[StateName, StateLocation] = {}
    for uid, account in sorted(accounts_of(manifest).items()):
        operator, groups = manifest.operator_name(uid), program[uid].max_parallelism if uid in program else None
        for name, queryable in sorted(_declared(account).items()):
            table, homes = stored.get((uid, queryable.state)), stored.get((uid, MERGING_WINDOWS))
            value, is_pickled = _value_of(queryable, table)
            kind, key = queryable.kind, _key_of(queryable)
            info = QueryableState(name, uid, operator, queryable.state, kind, key, value, is_pickled, groups or 0)
            archived, removed = stored.get((uid, ARCHIVED_FILES)), stored.get((uid, ARCHIVED_REMOVALS))
            locations[name] = StateLocation(info, queryable, table, homes, archived, removed)
    if allow_undeclared:
        for (uid, name), state in stored.items():
            if state.kind in _UNDECLARED_KINDS:
                locations[uid, name] = StateLocation(_undeclared(state), None, state)
    return locations


def _declared(account: OperatorAccount) -> dict[str, Queryable]:
    return {name: state for subtask in account.subtasks.values() for name, state in subtask.queryable.items()}


def _key_of(queryable: Queryable) -> Any:
    """The written type of keys. Parts of a table's key are stored by number, and queried by the names of columns."""
    names = queryable.key_names
    if len(names) < 2 or not isinstance(queryable.key, dict) or "sql" not in queryable.key:
        return queryable.key
    word, is_nullable, *parts = queryable.key["sql"]
    return {"sql": [word, is_nullable, *([name, part] for name, (_, part) in zip(names, parts, strict=True))]}


def _value_of(queryable: Queryable, stored: StoredState | None) -> tuple[Any, bool]:
    """The written type of answers, and whether anything in them is a pickle."""
    if queryable.contents != "ready":
        return queryable.value, _is_pickled(queryable.value) or _has_pickles(stored)
    measures = queryable.typed_measures()
    if not all(measure.is_typed for measure in measures):
        return "PICKLED", True
    results = [[measure.name, written_type(measure.result_type)] for measure in measures]
    # Accumulators of panes are columns; accumulators stored record by record are pickles, regardless of their results.
    is_stored_pickled = queryable.form != PANES and _is_pickled(queryable.value)
    return {"row": results}, is_stored_pickled or _is_pickled({"row": results})


def _is_pickled(written: Any) -> bool:
    """Whether any part of a written type is a pickle, at any depth."""
    return holds_pickles(type_from(written, "a queryable state"))


def _has_pickles(stored: StoredState | None) -> bool:
    """Whether rows, as last saved, have pickles in their values or map keys."""
    last = None if stored is None or not stored.history else stored.history[-1]
    if last is None:
        return False
    has_pickled_keys = last.map_key is not None and _is_pickled(last.map_key)
    return has_pickled_keys or (last.version is None and holds_pickles(last.type))


def _undeclared(state: StoredState) -> QueryableState:
    last = state.history[-1] if state.history else None
    value = "PICKLED" if last is None or last.version is not None else written_type(last.type)
    key = "PICKLED" if last is None else _written_key(last.key)
    kind, is_pickled = state.kind or "value", value == "PICKLED" or _has_pickles(state)
    return QueryableState(None, state.uid, state.operator, state.name, kind, key, value, is_pickled)


def _written_key(arrow_type: str) -> Any:
    """The type of keys for which only the column type is known, if that determines it."""
    try:
        return written_type(type_of_arrow(pa.field("key", pa.type_for_alias(arrow_type))))
    except ValueError:
        return "PICKLED"


def served_name(state: QueryableState) -> str:
    """The name of a state as one string: OPERATOR::STATE if it has no declared name."""
    return state.name or f"{state.operator}{_BETWEEN}{state.state}"


def find_state(
    states: Mapping[StateName, StateLocation], name: Any, where: str, allow_undeclared: bool
) -> StateLocation:
    """The state of this name; raises UnknownStateError with the existing names, and the nearest one."""
    key = (name[0], name[1]) if isinstance(name, list | tuple) and len(name) == 2 else name
    if isinstance(key, str) and key not in states and _BETWEEN in key:
        operator, _, state_name = key.partition(_BETWEEN)
        key = (operator, state_name)
    if isinstance(key, str | tuple) and key in states:
        return states[key]
    if isinstance(key, tuple):
        for state in states.values():
            if key in ((state.info.operator, state.info.state), (state.info.operator_name, state.info.state)):
                return state
    names = sorted(known for known in states if isinstance(known, str))
    pairs = sorted(f"{known[0]}/{known[1]}" for known in states if isinstance(known, tuple))
    have = ", ".join(f"'{known}'" for known in [*names, *pairs]) or "none"
    shown = "/".join(map(str, key)) if isinstance(key, tuple) else str(key)
    hint = did_you_mean(shown, [*names, *pairs])
    if isinstance(key, tuple) and not allow_undeclared:
        hint += " States that were not declared can be queried only with allow_undeclared=True."
    if not names:
        hint += " A program makes a state queryable by set_queryable, as_queryable_state or window(...).queryable."
    raise UnknownStateError(f"{where} has no queryable state '{shown}'.{hint} It has: {have}.")


def value_type_of(location: StateLocation) -> Any:
    """The type that values were declared with, or None."""
    written = location.info.value_type
    return None if written == "PICKLED" else type_from(written, location.what)
