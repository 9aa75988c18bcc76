"""What the rows of a table were saved as, epoch by epoch: the history of its schema.

A change of a state's type rewrites nothing, so a version may have segments of several types. The manifest therefore
keeps, beside the segments of a state, the list of what it was saved as: since which epoch, as which type, and how that
followed from what was before (fields renamed, defaults, a function of the user's). A segment was written as the last
entry says that is not younger than it.

Each value is thus led through the changes one by one, in the order the program made them, as if all state had been
rewritten when the change came. Invariant: what is read never depends on whether compaction has done so already.
Entries that no segment needs any more are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

from millstream.common.typeinfo import TypeInformation
from millstream.errors import StateSchemaError, StoreDamagedError
from millstream.state.schemas.evolution import Evolution, IncompatibleChange, plan_projection, used_defaults
from millstream.state.schemas.ready_upgrades import shown_upgrade, stored_name
from millstream.state.schemas.saved_types import shown_types, type_from, written_type
from millstream.state.schemas.stored_defaults import Defaults, PickledDefaults, defaults_from_json, defaults_to_json
from millstream.storage.json_records import is_whole_number

__all__ = [
    "History",
    "SavedAs",
    "entry_at",
    "extended",
    "history_from_json",
    "history_to_json",
    "is_explained",
    "is_same_form",
    "joined",
    "still_needed",
    "upgrade_from",
    "with_data_defaults",
]


@dataclass(frozen=True)
class SavedAs:
    """How a state is saved from the epoch `since` on.

    `type` is that of the values; `version` that of the serialiser that wrote them in its place. `shape` is "value",
    "list" or "map"; `key` and `map_key` describe what rows are found by. The rest tells how values of the entry before
    become values of this one. `upgrade` names the function that does it. Defaults are typed data, except those that
    older Millstreams wrote (`stored_defaults`). Readers know Python's own functions by it (`ready_upgrades`).
    """

    since: int
    since_ms: int
    type: TypeInformation
    shape: str
    key: str
    map_key: Any = None
    version: int | None = None
    ttl_ms: int | None = None
    renames: Mapping[str, str] = field(default_factory=dict)
    defaults: Defaults = field(default_factory=dict)
    upgrade: str | None = None

    @property
    def evolution(self) -> Evolution:
        """What the program declared of this change."""
        assert not isinstance(self.defaults, PickledDefaults)  # a task has made data of them, a reader has refused
        return Evolution(self.renames, self.defaults)

    @cached_property
    def written(self) -> dict[str, Any]:
        """As a history has it; made once, as the accounts of all subtasks tell the same."""
        return _entry_to_json(self)


History: TypeAlias = tuple[SavedAs, ...]


def entry_at(history: History, epoch: int) -> int:
    """The number of the entry as which a segment of this epoch was written."""
    return max((at for at, entry in enumerate(history) if entry.since <= epoch), default=0)


def still_needed(history: History, epochs: Iterable[int]) -> History:
    """The history without what no segment of these epochs was saved as."""
    return history[entry_at(history, min(epochs, default=history[-1].since)) :]


def joined(left: History, right: History) -> History:
    """The history of a whole table from those of two subtasks.

    Each subtask has a part of the same list: it drops entries that its own segments do not need, and adds an entry when
    its first record asks for the state. Entries that follow each other and say the same are the same change, seen by
    several subtasks: since the first of them, for no subtask wrote anything between the start of the program and then.
    """
    if left is right or left == right:
        return left
    entries: list[SavedAs] = []
    for entry in sorted((*left, *right), key=lambda entry: entry.since):
        if entries and is_same_form(entries[-1], entry):
            entries[-1] = _joined_entry(entries[-1], entry)
        else:
            entries.append(entry)
    return tuple(entries)


def is_same_form(left: SavedAs, right: SavedAs) -> bool:
    """Whether rows are saved alike. A program that keeps rows for another time makes no entry of that."""
    return (
        left.version == right.version
        and (left.ttl_ms is None) == (right.ttl_ms is None)
        and (left.shape, left.key, left.map_key) == (right.shape, right.key, right.map_key)
        and (left.type is right.type or written_type(left.type) == written_type(right.type))
    )


def _joined_entry(earlier: SavedAs, later: SavedAs) -> SavedAs:
    """One entry of two for the same change. A subtask that had no older rows does not say how they are converted."""
    explained = max(earlier, later, key=_explanation)  # of equal ones the earlier
    return _copied(earlier, renames=explained.renames, defaults=explained.defaults, upgrade=explained.upgrade)


def is_explained(entry: SavedAs) -> bool:
    """Whether the entry says more of its conversion than the types do."""
    return any(_explanation(entry))


def _explanation(entry: SavedAs) -> tuple[bool, bool, bool, bool]:
    """How much an entry says of its conversion; defaults as data are better than as a pickle."""
    has_pickle = isinstance(entry.defaults, PickledDefaults)
    return entry.upgrade is not None, bool(entry.defaults) and not has_pickle, has_pickle, bool(entry.renames)


# --- a change -----------------------------------------------------------------------------------------------------


def extended(saved: History, now: SavedAs, evolution: Evolution | None, what: str) -> History:
    """The history with what the program declares now, if that is new. `what` names the state in errors.

    `evolution` is None for a state that has no descriptor: nobody can pass a function for it.
    StateSchemaError when what was saved cannot be read as it is declared.
    """
    last = saved[-1]
    _check_rows(last, now, what)
    is_same_type = written_type(last.type) == written_type(now.type)
    is_same_ttl = (last.ttl_ms is None) == (now.ttl_ms is None)
    if is_same_type and last.version == now.version:
        return saved if is_same_ttl else (*saved, _plainly(now))
    if last.version is not None and now.version is not None:
        if last.version > now.version:
            raise StateSchemaError(
                f"{what} was saved by version {last.version} of its serializer, the program has version {now.version}. "
                "Use the newer one, which also reads what older ones wrote."
            )
        return (*saved, _plainly(now))
    declared = evolution or Evolution()
    named = upgrade_from(declared, last)
    if named is not None:
        return (*saved, _plainly(now, stored_name(named)))
    try:
        if last.version is not None or now.version is not None:
            raise IncompatibleChange(f" was saved {_form(last)}, is now saved {_form(now)}", "")
        plan_projection(last.type, now.type, declared)
    except IncompatibleChange as misfit:
        if not callable(declared.upgrade):
            raise refused(what, misfit, has_descriptor=evolution is not None) from None
        _check_is_for_this(saved, declared.upgrade, what)
        return (*saved, _plainly(now, stored_name(declared.upgrade)))
    if callable(declared.upgrade):
        was, is_now = shown_types(last.type, now.type)
        raise StateSchemaError(
            f"{what} was saved as {was}, is now {is_now}: that needs no function, and "
            f"upgrade={shown_upgrade(stored_name(declared.upgrade))} is given. "
            "Say the type that it is from, this one or an earlier one: upgrade={Types.LONG(): function}."
        )
    defaults = used_defaults(last.type, now.type, declared)
    return (*saved, _copied(now, renames=dict(declared.renames), defaults=defaults))


def with_data_defaults(saved: History, open_pickle: Callable[[bytes], Any]) -> History:
    """The history with the defaults of older Millstreams as data: for a task, which alone may open them."""
    if not any(isinstance(entry.defaults, PickledDefaults) for entry in saved):
        return saved
    entries = [saved[0] if not isinstance(saved[0].defaults, PickledDefaults) else _copied(saved[0], defaults={})]
    for last, entry in pairwise(saved):
        if isinstance(entry.defaults, PickledDefaults):
            declared = Evolution(entry.renames, open_pickle(entry.defaults.written))
            entry = _copied(entry, defaults=used_defaults(last.type, entry.type, declared))
        entries.append(entry)
    return tuple(entries)


def refused(what: str, misfit: IncompatibleChange, *, has_descriptor: bool) -> StateSchemaError:
    """The error for a change that does not fit."""
    advice = misfit.advice or "Give it a new name, or pass upgrade="
    if not has_descriptor:
        advice = "Declare what it was, or give the operator another uid to begin anew"
    return StateSchemaError(f"{what}{misfit.finding}. {advice}.")


def _plainly(now: SavedAs, upgrade: str | None = None) -> SavedAs:
    return _copied(now, renames={}, defaults={}, upgrade=upgrade)


def _copied(entry: SavedAs, **changes: Any) -> SavedAs:
    return replace(entry, **changes)


def _form(entry: SavedAs) -> str:
    if entry.version is not None:
        return "by a serializer"
    return f"as {shown_types(entry.type, entry.type)[0]}"


def _check_rows(last: SavedAs, now: SavedAs, what: str) -> None:
    """Refuse what would look for rows where they are not."""
    if last.shape != now.shape:
        raise StateSchemaError(f"{what} was saved as a {last.shape}, is now a {now.shape}. Give it a new name.")
    if last.key != now.key:
        raise StateSchemaError(
            f"{what} was saved with keys of {_key(last)}, they are now {_key(now)}: they hash differently, so nothing "
            "would be found. Give the keys (of key_by, or of GROUP BY) the type they had; to begin anew, give the "
            "operator another uid, or the job another store."
        )
    if last.map_key != now.map_key:
        raise StateSchemaError(
            f"{what} was saved with map keys of {last.map_key}, they are now {now.map_key}: they hash differently, so "
            "nothing would be found. Declare them as they were, or give the state a new name and copy what you need."
        )


def _key(entry: SavedAs) -> str:
    return "no declared type" if entry.key == "canonical" else entry.key


def upgrade_from(evolution: Evolution, entry: SavedAs) -> Callable[[Any], Any] | None:
    """The function that the program gives for values of just this type."""
    if not isinstance(evolution.upgrade, Mapping):
        return None
    for old, function in evolution.upgrade.items():
        if isinstance(old, TypeInformation):
            if entry.version is None and written_type(old) == written_type(entry.type):
                return function
        elif entry.version is not None:
            return function
    return None


def _check_is_for_this(saved: History, upgrade: Callable[[Any], Any], what: str) -> None:
    """Refuse a function without a type that cannot be for the change that is made now."""
    if saved[-1].version is not None:
        raise StateSchemaError(
            f"{what} was saved by a serializer, which has to read the values for upgrade=. "
            "Say so: upgrade={OldSerializer(): function}."
        )
    used = next((entry for entry in saved if entry.upgrade == stored_name(upgrade)), None)
    if used is not None:
        was, _ = shown_types(saved[-1].type, saved[-1].type)
        raise StateSchemaError(
            f"{what} was changed before, in epoch {used.since}, by upgrade={shown_upgrade(used.upgrade)}, and is now "
            f"to be changed from {was} again: which function is for which? Say the type that each is from: "
            "upgrade={Types.LONG(): function, ...}."
        )


# --- in a manifest ------------------------------------------------------------------------------------------------


def history_to_json(history: History) -> list[Any]:
    """The history as plain JSON."""
    return [entry.written for entry in history]


def _entry_to_json(entry: SavedAs) -> dict[str, Any]:
    written: dict[str, Any] = {
        "since": entry.since,
        "since_ms": entry.since_ms,
        "type": written_type(entry.type),
        "shape": entry.shape,
        "key": entry.key,
    }
    rest = {
        "map_key": entry.map_key,
        "version": entry.version,
        "ttl_ms": entry.ttl_ms,
        "renames": dict(entry.renames) or None,
        "defaults": defaults_to_json(entry.defaults),
        "upgrade": entry.upgrade,
    }
    return written | {name: value for name, value in rest.items() if value is not None}


def history_from_json(written: Any, subject: str) -> History:
    """What `history_to_json` wrote; StoreDamagedError naming `subject` if it did not.

    >>> written = {"since": 3, "since_ms": 0, "type": "LONG", "shape": "value", "key": "string"}
    >>> history_from_json([written], "state 'total'")[0].type
    Types.LONG()
    >>> history_from_json([{}], "state 'total'")
    Traceback (most recent call last):
    millstream.errors.StoreDamagedError: state 'total' lists its types as [{}], which this Millstream cannot read. \
Was the manifest written by another one?
    """
    try:
        return tuple(_entry_from_json(entry, subject) for entry in written)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreDamagedError(
            f"{subject} lists its types as {written!r}, which this Millstream cannot read. "
            "Was the manifest written by another one?"
        ) from error


_REQUIRED = {"since", "since_ms", "type", "shape", "key"}
_OPTIONAL = {"map_key", "version", "ttl_ms", "renames", "defaults", "upgrade"}


def _entry_from_json(written: Mapping[str, Any], subject: str) -> SavedAs:
    renames = written.get("renames", {})
    numbers = [written["since"], written["since_ms"], written.get("version", 0), written.get("ttl_ms", 0)]
    texts = [written["shape"], written["key"], written.get("upgrade", ""), *renames.values()]
    is_known = written.keys() <= _REQUIRED | _OPTIONAL
    if not (is_known and all(map(is_whole_number, numbers)) and all(type(text) is str for text in texts)):
        raise TypeError("fields")
    return SavedAs(
        since=written["since"],
        since_ms=written["since_ms"],
        type=type_from(written["type"], subject),
        shape=written["shape"],
        key=written["key"],
        map_key=written.get("map_key"),
        version=written.get("version"),
        ttl_ms=written.get("ttl_ms"),
        renames=renames,
        defaults=defaults_from_json(written.get("defaults")),
        upgrade=written.get("upgrade"),
    )
