"""The meaning of an operator's state, and the fate of that state under a changed program. Pure.

State is matched by uid. The uid of a SQL operator derives from the shape of its plan, without columns and expressions:
if `SUM(a)` becomes `SUM(b)`, the new operator would match the sums of `a`. So the planner describes each operator's
state in terms of tables (`Meaning`); a manifest stores the meanings by uid, and every start compares them. Fates:

    kept      the same uid and the same meaning, or no recorded meaning
    extended  kept, and more is required: an added aggregate or column begins empty and is filled by new rows; an
              aggregate over retracting input is NULL in existing groups until these are removed
    new       begins without state: no state has that uid
    dropped   no operator of the new program has the uid of this state
    lost      the same uid with another meaning: resuming would be wrong. The same holds for operators downstream of it:
              they would receive known rows as if they were new

An operator with retracting input cannot begin empty downstream of resumed state: it would receive retractions of rows
that it never saw (`OperatorFate.is_stuck`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from millstream.errors import StoreDamagedError
from millstream.storage.json_records import ALWAYS, Misfit, from_json, to_json

if TYPE_CHECKING:
    from millstream.checkpoint.manifest import Manifest

__all__ = [
    "FORM",
    "LAST_ROWS",
    "Meaning",
    "OperatorFate",
    "StatefulOperator",
    "fates",
    "fates_text",
    "meanings_of",
    "meanings_to_json",
]

FORM = 1
"""The form of meanings. Other forms cannot be compared: then state is accepted as it is, with a note."""


LAST_ROWS = "last rows"
"""`what` of an operator that normalises upserts. A delete carries only the key, so it must have seen the row."""


@dataclass(frozen=True)
class Meaning:
    """The state of an operator: `what` it stores, `of` which rows, `by` which keys, and the columns or aggregates it
    `keeps`.

    `names`: rows are stored by column name; otherwise columns are stored in order. `grows`: the additions allowed.
    `takes_back`: its input has retractions. The field names are stored in manifests.
    """

    what: str
    of: str
    keeps: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    grows: Literal["behind", "by name"] | None = None
    takes_back: bool = False
    form: Annotated[int, ALWAYS] = FORM


@dataclass(frozen=True)
class StatefulOperator:
    """An operator of a program. `inputs`: uids of upstream operators with state or positions."""

    uid: str
    name: str
    meaning: Meaning | None = None
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class OperatorFate:
    """The fate of one operator's state, and the reason. `is_stuck`: the operator would have to begin empty, but
    cannot."""

    fate: str
    uid: str
    name: str
    note: str = ""
    is_stuck: bool = False

    @property
    def line(self) -> str:
        """The fate in one line, for display."""
        return f"{self.fate:<9} {self.name} (uid {self.uid}){f': {self.note}' if self.note else ''}"


def fates_text(fates: Iterable[OperatorFate]) -> str:
    """A line for each operator."""
    return "\n".join(each.line for each in fates)


def fates(
    meanings: Mapping[str, Meaning], stateful: Mapping[str, str], operators: Sequence[StatefulOperator]
) -> tuple[OperatorFate, ...]:
    """The fates of existing state under a program. `meanings`: the recorded meanings by uid; `stateful`: names by uid
    of the operators with existing state. `operators` are in topological order."""
    by_uid: dict[str, OperatorFate] = {}
    lost_upstream: dict[str, str] = {}  # by uid: the lost operator upstream, or the operator itself
    for operator in operators:
        inputs = [by_uid[uid] for uid in operator.inputs]
        lost = next((lost_upstream[uid] for uid in operator.inputs if uid in lost_upstream), None)
        fate = _fate(operator, meanings, stateful, lost)
        resumed = [each.name for each in inputs if each.fate in ("kept", "extended")]
        meaning = operator.meaning
        needs_past = meaning is not None and (meaning.takes_back or meaning.what == LAST_ROWS)
        if fate.fate in ("new", "lost") and needs_past and resumed:
            fate = _stuck(fate, resumed[0])
        by_uid[operator.uid] = fate
        if lost is not None or fate.fate == "lost":
            lost_upstream[operator.uid] = lost or operator.name
    unmatched = [uid for uid in stateful if uid not in by_uid]
    dropped = [OperatorFate("dropped", uid, stateful[uid], "no operator has its uid any more") for uid in unmatched]
    return (*by_uid.values(), *dropped)


def _fate(
    operator: StatefulOperator, meanings: Mapping[str, Meaning], stateful: Collection[str], lost: str | None
) -> OperatorFate:
    """`lost`: the upstream operator with lost state."""
    uid, name, new = operator.uid, operator.name, operator.meaning
    old = meanings.get(uid)
    if uid not in stateful and old is None:
        return OperatorFate("new", uid, name, "begins empty")
    if new is None or old is None:  # an operator of a DataStream program, or state from an older Millstream
        return OperatorFate("kept", uid, name)
    fate, note = compare_meanings(old, new)
    if fate != "lost" and lost is not None:
        fate, note = "lost", f"it is downstream of {lost}, whose state is lost"
    return OperatorFate(fate, uid, name, note)


def _stuck(fate: OperatorFate, resumed: str) -> OperatorFate:
    reason = f"it cannot begin empty downstream of {resumed}, which resumes and retracts rows that it never saw"
    return replace(fate, note=reason if fate.fate == "new" else f"{fate.note}; {reason}", is_stuck=True)


# --- two meanings -----------------------------------------------------------------------------------------------------


def compare_meanings(old: Meaning, new: Meaning) -> tuple[str, str]:
    """The fate of state with meaning `old` for an operator of meaning `new`, and a note.

    >>> before, after = Meaning("groups", "orders", ("SUM(a)",)), Meaning("groups", "orders", ("SUM(b)",))
    >>> compare_meanings(before, after)
    ('lost', 'it stored SUM(a), and would store SUM(b)')
    """
    if old.form != new.form:
        return "kept", f"its meaning was written in form {old.form}, and is not compared with form {new.form}"
    if old.what != new.what:
        return "lost", f"it was {old.what}, and would be {new.what}"
    for relation, before, after in (
        ("was computed from", old.of, new.of),
        ("was keyed by", _listed(old.by), _listed(new.by)),
    ):
        if before != after:
            return "lost", f"it {relation} {before}, not {after}"
    if old.takes_back != new.takes_back:
        before, after = (
            ("was append-only", "has retractions") if new.takes_back else ("had retractions", "is append-only")
        )
        return "lost", f"its input {before}, and now {after}"
    return _columns(old, new) if old.names or new.names else _in_order(old, new)


def _in_order(old: Meaning, new: Meaning) -> tuple[str, str]:
    if old.keeps == new.keeps:
        return "kept", ""
    if new.grows == "behind" and new.keeps[: len(old.keeps)] == old.keeps:
        added = ", ".join(new.keeps[len(old.keeps) :])
        if new.takes_back:
            reason = "since rows that it never saw may be retracted; COUNT(*) is known"
            return "extended", f"{added}: NULL in existing groups until they are removed, {reason}"
        return "extended", f"{added} of rows from now on"
    return "lost", f"it stored {_listed(old.keeps)}, and would store {_listed(new.keeps)}"


def _columns(old_meaning: Meaning, new_meaning: Meaning) -> tuple[str, str]:
    """Compares rows that are stored by column names: their order does not matter."""
    old, new = (dict(zip(each.names, each.keeps, strict=True)) for each in (old_meaning, new_meaning))
    changed = [name for name in old if name in new and old[name] != new[name]]
    if changed:
        return "lost", f"column '{changed[0]}' is {new[changed[0]]}, and was {old[changed[0]]}"
    added, removed = [name for name in new if name not in old], [name for name in old if name not in new]
    if not added and not removed:
        return "kept", ""
    if new_meaning.grows != "by name":
        differences = [f"without {_listed(added)}"] if added else []
        differences += [f"with {_listed(removed)}"] if removed else []
        return "lost", f"its rows were saved {' and '.join(differences)}"
    notes = [f"{', '.join(added)} is NULL until a row changes"] if added else []
    notes += [f"{', '.join(removed)} is omitted"] if removed else []
    return "extended", "; ".join(notes)


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(texts) or "nothing"


# --- stored in a manifest ---------------------------------------------------------------------------------------------


def meanings_to_json(meanings: Mapping[str, Meaning]) -> dict[str, Any]:
    """Meanings by uid as stored in a manifest."""
    return {uid: to_json(meaning) for uid, meaning in meanings.items()}


def meanings_of(manifest: Manifest) -> Mapping[str, Meaning]:
    """The meanings recorded in a manifest, by uid; one in a newer format is included without its content."""
    return manifest.derived(_read)


def _read(manifest: Manifest) -> Mapping[str, Meaning]:
    meanings = {}
    for uid, written in manifest.meanings.items():
        form = written.get("form") if isinstance(written, dict) else None
        if isinstance(form, int) and form > FORM:
            meanings[uid] = Meaning("", "", form=form)
            continue
        try:
            meanings[uid] = from_json(Meaning, None, written)
        except Misfit as misfit:
            raise StoreDamagedError(
                f"the manifest of epoch {manifest.epoch} describes the state of operator '{uid}' as {written!r}, "
                f"expected {misfit.expected}. Was it written by another Millstream? Use that one, or restore it from a "
                "copy."
            ) from misfit
    return meanings
