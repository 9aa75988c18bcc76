"""What the state of an operator means, and what becomes of it when the program is another one. Pure.

State is found by uid. The uid of an operator of SQL is the shape of its plan, without columns and expressions: `SUM(a)`
that becomes `SUM(b)` finds the sums of `a`. So whoever makes such an operator says with it what it keeps, as text in
terms of tables (`Meaning`); a manifest keeps that by uid, and every start is held against it. Fates:

    kept      the same uid and the same meaning, or nobody said what it means
    extended  kept, and more is wanted: an aggregate or a column that was added begins empty, and fills as rows come;
              an aggregate of rows that are taken away, too, is NULL in groups that are there until they have gone
    new       begins without state, because nothing had that uid
    dropped   nothing of the new program has the uid of this state
    lost      the same uid with another meaning: going on would be wrong. So is what stands behind such an operator: it
              would be told of rows as if for the first time

An operator whose input takes rows away cannot begin empty behind state that goes on: it would be told that rows go that
it never saw (`OperatorFate.is_stuck`).
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
"""How meanings are written. Texts of other forms cannot be compared: then state is taken as it is, and that is said."""


LAST_ROWS = "last rows"
"""What an operator is that makes upserts whole. A deletion tells it the key alone: it must have seen what is there."""


@dataclass(frozen=True)
class Meaning:
    """What an operator keeps: `what` it is, `of` which rows, `by` which keys, and the columns or aggregates it `keeps`.

    `names`: of rows that are stored by the names of their columns; else what is kept stands in order. `grows`: what may
    be added. `takes_back`: rows of its input are taken away, too.
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
    """An operator of a program: `inputs` are the uids of those with state or positions that it reads from."""

    uid: str
    name: str
    meaning: Meaning | None = None
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class OperatorFate:
    """One operator: what becomes of its state, and why. `is_stuck`: it cannot begin as it would have to."""

    fate: str
    uid: str
    name: str
    note: str = ""
    is_stuck: bool = False

    @property
    def line(self) -> str:
        """For people."""
        return f"{self.fate:<9} {self.name} (uid {self.uid}){f': {self.note}' if self.note else ''}"


def fates_text(fates: Iterable[OperatorFate]) -> str:
    """A line for each operator."""
    return "\n".join(each.line for each in fates)


def fates(
    meanings: Mapping[str, Meaning], keeping: Mapping[str, str], operators: Sequence[StatefulOperator]
) -> tuple[OperatorFate, ...]:
    """What becomes of state under a program. `meanings`: what it meant, as far as somebody said so; `keeping`: names by
    uid of the operators that keep something. `operators` stand behind those that they read from."""
    found: dict[str, OperatorFate] = {}
    behind: dict[str, str] = {}  # by uid: the lost operator that one stands behind, or is
    for operator in operators:
        inputs = [found[uid] for uid in operator.inputs]
        lost = next((behind[uid] for uid in operator.inputs if uid in behind), None)
        fate = _fate(operator, meanings, keeping, lost)
        goes_on = [each.name for each in inputs if each.fate in ("kept", "extended")]
        meaning = operator.meaning
        needs_past = meaning is not None and (meaning.takes_back or meaning.what == LAST_ROWS)
        if fate.fate in ("new", "lost") and needs_past and goes_on:
            fate = _stuck(fate, goes_on[0])
        found[operator.uid] = fate
        if lost is not None or fate.fate == "lost":
            behind[operator.uid] = lost or operator.name
    gone = [uid for uid in keeping if uid not in found]
    dropped = [OperatorFate("dropped", uid, keeping[uid], "nothing has its uid any more") for uid in gone]
    return (*found.values(), *dropped)


def _fate(
    operator: StatefulOperator, meanings: Mapping[str, Meaning], keeping: Collection[str], lost: str | None
) -> OperatorFate:
    """`lost`: the operator with lost state that it stands behind."""
    uid, name, now = operator.uid, operator.name, operator.meaning
    was = meanings.get(uid)
    if uid not in keeping and was is None:
        return OperatorFate("new", uid, name, "begins empty")
    if now is None or was is None:  # of a program, which knows what it does, or of an older Millstream
        return OperatorFate("kept", uid, name)
    fate, note = judged(was, now)
    if fate != "lost" and lost is not None:
        fate, note = "lost", f"it stands behind {lost}, whose state is lost"
    return OperatorFate(fate, uid, name, note)


def _stuck(fate: OperatorFate, goes_on: str) -> OperatorFate:
    why = f"it cannot begin empty behind {goes_on}, which goes on and takes rows away that it never saw"
    return replace(fate, note=why if fate.fate == "new" else f"{fate.note}; {why}", is_stuck=True)


# --- two meanings -----------------------------------------------------------------------------------------------------


def judged(was: Meaning, now: Meaning) -> tuple[str, str]:
    """The fate of what meant `was` and would mean `now`, and a sentence about it.

    >>> before, after = Meaning("groups", "orders", ("SUM(a)",)), Meaning("groups", "orders", ("SUM(b)",))
    >>> judged(before, after)
    ('lost', 'it kept SUM(a), and would keep SUM(b)')
    """
    if was.form != now.form:
        return "kept", f"what it means was written in form {was.form}, and is not compared with form {now.form}"
    for word, old, new in (
        ("is", was.what, now.what),
        ("was made of", was.of, now.of),
        ("was kept by", _listed(was.by), _listed(now.by)),
    ):
        if old != new:
            return "lost", f"it was {old}, and would be {new}" if word == "is" else f"it {word} {old}, not of {new}"
    if was.takes_back != now.takes_back:
        before, after = ("grew", "takes rows away") if now.takes_back else ("took rows away", "only grows")
        return "lost", f"its input {before}, and now {after}"
    return _columns(was, now) if was.names or now.names else _in_order(was, now)


def _in_order(was: Meaning, now: Meaning) -> tuple[str, str]:
    if was.keeps == now.keeps:
        return "kept", ""
    if now.grows == "behind" and now.keeps[: len(was.keeps)] == was.keeps:
        added = ", ".join(now.keeps[len(was.keeps) :])
        if now.takes_back:
            why = "since rows of them may go that it never saw; COUNT(*) is known"
            return "extended", f"{added}: NULL in groups that are there, until they have gone, {why}"
        return "extended", f"{added} of rows from now on"
    return "lost", f"it kept {_listed(was.keeps)}, and would keep {_listed(now.keeps)}"


def _columns(was: Meaning, now: Meaning) -> tuple[str, str]:
    """Rows are stored by the names of columns: their order is of no account."""
    old, new = (dict(zip(each.names, each.keeps, strict=True)) for each in (was, now))
    other = [name for name in old if name in new and old[name] != new[name]]
    if other:
        return "lost", f"column '{other[0]}' is {new[other[0]]}, and was {old[other[0]]}"
    added, gone = [name for name in new if name not in old], [name for name in old if name not in new]
    if not added and not gone:
        return "kept", ""
    if now.grows != "by name":
        what = [f"without {_listed(added)}"] if added else []
        what += [f"with {_listed(gone)}"] if gone else []
        return "lost", f"its rows were saved {' and '.join(what)}"
    notes = [f"{', '.join(added)} is NULL until a row changes"] if added else []
    notes += [f"{', '.join(gone)} is left out"] if gone else []
    return "extended", "; ".join(notes)


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(texts) or "nothing"


# --- in a manifest ----------------------------------------------------------------------------------------------------


def meanings_to_json(meanings: Mapping[str, Meaning]) -> dict[str, Any]:
    """Meanings by uid as a manifest keeps them."""
    return {uid: to_json(meaning) for uid, meaning in meanings.items()}


def meanings_of(manifest: Manifest) -> Mapping[str, Meaning]:
    """What the operators of a manifest keep, by uid; those of a newer form are known by that alone."""
    return manifest.derived(_read)


def _read(manifest: Manifest) -> Mapping[str, Meaning]:
    found = {}
    for uid, written in manifest.meanings.items():
        form = written.get("form") if isinstance(written, dict) else None
        if isinstance(form, int) and form > FORM:
            found[uid] = Meaning("", "", form=form)
            continue
        try:
            found[uid] = from_json(Meaning, None, written)
        except Misfit as misfit:
            raise StoreDamagedError(
                f"the manifest of epoch {manifest.epoch} tells what operator '{uid}' keeps as {written!r}, expected "
                f"{misfit.expected}. Was it written by another Millstream? Use that one, or restore it from a copy."
            ) from misfit
    return found
