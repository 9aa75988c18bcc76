"""The schema history of a table: the schemas its rows were saved with, epoch by epoch.

A change of a state's type rewrites nothing, so a version may have segments of several types. The manifest therefore
stores a list of schemas next to the segments: for each schema its first epoch, its type, and the conversion from the
previous one (renamed fields, defaults, a user's function). The schema of a segment is the last entry whose first epoch
is not after the segment's.

Each value is converted by one change after the other, in the order in which the program made them, as if every change
had rewritten all state. Invariant: results never depend on whether compaction has rewritten a value. Entries that no
segment needs any more are dropped.
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
    """The schema of a state from the epoch `since` on.

    `type` is the type of the values; `version` the version of the serialiser that replaces it. `shape` is "value",
    "list" or "map"; `key` and `map_key` are the types of keys. The other fields describe the conversion from the
    previous entry. `upgrade` names the function that converts; readers resolve the names of Python's own functions
    (`ready_upgrades`). Defaults are typed data, except those written by older versions (`stored_defaults`).
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
        """The program's declaration of this change."""
        assert not isinstance(self.defaults, PickledDefaults)  # a task has converted them; a reader has rejected them
        return Evolution(self.renames, self.defaults)

    @cached_property
    def written(self) -> dict[str, Any]:
        """The stored form; cached, as the accounts of all subtasks repeat it."""
        return _entry_to_json(self)


History: TypeAlias = tuple[SavedAs, ...]


def entry_at(history: History, epoch: int) -> int:
    """The index of the entry for a segment of this epoch."""
    return max((at for at, entry in enumerate(history) if entry.since <= epoch), default=0)


def still_needed(history: History, epochs: Iterable[int]) -> History:
    """The history without the entries that no segment of these epochs needs."""
    return history[entry_at(history, min(epochs, default=history[-1].since)) :]


def joined(left: History, right: History) -> History:
    """The history of a whole table from the histories of two subtasks.

    Each subtask has a part of the same list: it drops entries that its segments do not need, and adds an entry when its
    first record uses the state. Consecutive entries with the same schema are the same change, seen by several subtasks;
    the earliest epoch counts, because no subtask wrote state between the start of the program and that epoch.
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
    """Whether two entries store rows alike. A change of the TTL's length alone makes no entry."""
    return (
        left.version == right.version
        and (left.ttl_ms is None) == (right.ttl_ms is None)
        and (left.shape, left.key, left.map_key) == (right.shape, right.key, right.map_key)
        and (left.type is right.type or written_type(left.type) == written_type(right.type))
    )


def _joined_entry(earlier: SavedAs, later: SavedAs) -> SavedAs:
    """Merges two entries for the same change. A subtask without older rows does not record the conversion."""
    explained = max(earlier, later, key=_explanation)  # the earlier on ties
    return _copied(earlier, renames=explained.renames, defaults=explained.defaults, upgrade=explained.upgrade)


def is_explained(entry: SavedAs) -> bool:
    """Whether the entry records more of its conversion than the types."""
    return any(_explanation(entry))


def _explanation(entry: SavedAs) -> tuple[bool, bool, bool, bool]:
    """Rank of an entry by how completely it records its conversion; data defaults rank above pickled ones."""
    has_pickle = isinstance(entry.defaults, PickledDefaults)
    return entry.upgrade is not None, bool(entry.defaults) and not has_pickle, has_pickle, bool(entry.renames)


# --- schema changes -----------------------------------------------------------------------------------------------


def extended(saved: History, now: SavedAs, evolution: Evolution | None, what: str) -> History:
    """The history extended by the program's declaration, if that is new. `what` names the state in errors.

    `evolution` is None for a state without a descriptor, for which no function can be passed. StateSchemaError if the
    saved values cannot be read as declared.
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
    """The history with pickled defaults of older versions converted to data; only tasks may unpickle them."""
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
    """The error for an incompatible change."""
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
    """Reject changes of shape or key type: lookups would miss the rows."""
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
    """The user function for values of exactly this type."""
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
    """Reject an untyped function that cannot belong to the current change."""
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


# --- stored form --------------------------------------------------------------------------------------------------


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
    """The inverse of `history_to_json`; StoreDamagedError naming `subject` for anything else.

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
