"""What becomes of a query's state when the query is changed: held against its old plan, operator by operator. Pure.

State is found by uid, and a uid is the plan's shape, without columns and expressions (`name_operators`). Whether what
is found still *means* what the new query wants is said here: each column is followed down to the tables it is from, and
compared as text. Fates:

    kept      the same uid and the same meaning
    extended  kept, and more is wanted: an aggregate or a column that was added begins empty, and fills as rows come
    new       begins without state, because nothing had that uid
    dropped   nothing of the new query has the uid of this state
    lost      the same uid with another meaning: going on would be wrong

Invariant: `goes_on` is true only where every state is kept or extended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.planner.entries import TableEntry
from millstream.planner.expression_text import Notation, expression_text
from millstream.planner.passes.rewriting import relations_of
from millstream.planner.plan_text import physical_line
from millstream.planner.relations import (
    Aggregate,
    AggregateCall,
    Filter,
    Project,
    Relation,
    Scan,
    SetOperation,
    Sink,
    Values,
    WatermarkAssign,
    WindowAssign,
)

__all__ = ["OperatorFate", "fates_of", "fates_text", "goes_on"]

_STATELESS = (Project, Filter, WatermarkAssign, Values, SetOperation, WindowAssign)


@dataclass(frozen=True)
class OperatorFate:
    """One operator: what becomes of its state, and why."""

    fate: str
    uid: str
    name: str
    note: str = ""

    @property
    def line(self) -> str:
        """For people."""
        return f"{self.fate:<9} {self.name} (uid {self.uid}){f': {self.note}' if self.note else ''}"


def goes_on(fates: Sequence[OperatorFate]) -> bool:
    """Whether nothing is lost by going on."""
    return all(each.fate in ("kept", "extended") for each in fates)


def fates_text(fates: Sequence[OperatorFate]) -> str:
    """A line for each operator."""
    return "\n".join(each.line for each in fates)


def fates_of(old: Sequence[Sink], new: Sequence[Sink]) -> tuple[OperatorFate, ...]:
    """What becomes of the state of one optimised plan under another."""
    before, after = _stateful(old), _stateful(new)
    fates = [
        _fate(before[uid], relation) if uid in before else OperatorFate("new", uid, _name(relation), "begins empty")
        for uid, relation in after.items()
    ]
    gone = [relation for uid, relation in before.items() if uid not in after]
    fates += [OperatorFate("dropped", each.uid or "", _name(each), "nothing has its uid any more") for each in gone]
    return tuple(fates)


def _stateful(plan: Sequence[Sink]) -> dict[str, Relation]:
    found = {each.uid or "": each for each in relations_of(plan) if not isinstance(each, _STATELESS)}
    return {
        uid: each for uid, each in found.items() if not isinstance(each, Sink) or isinstance(each.target, TableEntry)
    }


def _name(relation: Relation) -> str:
    return physical_line(relation).split("(", 1)[0]


def _fate(old: Relation, new: Relation) -> OperatorFate:
    uid, name = new.uid or "", _name(new)
    if isinstance(old, Scan):
        return OperatorFate("kept", uid, name, "its positions go on")
    if isinstance(old, Aggregate) and isinstance(new, Aggregate):
        return _aggregate(old, new)
    if isinstance(old, Sink) and isinstance(new, Sink):
        return _table(old, new)
    was, is_ = _meaning(old), _meaning(new)
    if was == is_:
        return OperatorFate("kept", uid, name)
    return OperatorFate("lost", uid, name, f"it kept {was}, and would keep {is_}")


def _aggregate(old: Aggregate, new: Aggregate) -> OperatorFate:
    uid, name = new.uid or "", _name(new)
    if _rows(old.input) != _rows(new.input) or _groups(old) != _groups(new):
        return OperatorFate("lost", uid, name, "its rows are chosen or grouped otherwise")
    was, is_ = ([_call(call, each.input) for call in each.calls] for each in (old, new))
    if was == is_:
        return OperatorFate("kept", uid, name)
    if is_[: len(was)] == was:
        added = ", ".join(is_[len(was) :])
        return OperatorFate("extended", uid, name, f"{added} of rows from now on")
    return OperatorFate("lost", uid, name, f"it kept {', '.join(was)}, and would keep {', '.join(is_)}")


def _table(old: Sink, new: Sink) -> OperatorFate:
    uid = new.uid or ""
    if not isinstance(new.target, TableEntry) or not isinstance(old.target, TableEntry):
        return OperatorFate("kept", uid, _name(new))
    name = f"table {new.target.path[-1]}"
    was = dict(zip(old.target.names, _columns(old.input), strict=True))
    is_ = dict(zip(new.target.names, _columns(new.input), strict=True))
    if old.target.connector != "state":
        return OperatorFate("kept", uid, name)
    if old.target.primary_key != new.target.primary_key:
        return OperatorFate("lost", uid, name, "its primary key is another")
    other = [each for each in was if each in is_ and was[each] != is_[each]]
    if other or _rows(old.input) != _rows(new.input):
        what = f"column '{other[0]}' is {is_[other[0]]}, and was {was[other[0]]}" if other else "its rows are others"
        return OperatorFate("lost", uid, name, what)
    types = {each.name: each.type for each in old.target.columns}
    retyped = [each for each in new.target.columns if each.name in types and types[each.name] != each.type]
    if retyped:
        what = f"column '{retyped[0].name}' is {retyped[0].type}, and was {types[retyped[0].name]}"
        return OperatorFate("lost", uid, name, what)
    if old.target.names == new.target.names:
        return OperatorFate("kept", uid, name)
    if not new.target.primary_key:
        return OperatorFate("lost", uid, name, "it has no primary key, by which its rows could be found again")
    added = [each for each in is_ if each not in was]
    gone = [each for each in was if each not in is_]
    notes = [f"{', '.join(added)} is NULL until a row changes"] if added else []
    notes += [f"{', '.join(gone)} is left out"] if gone else []
    return OperatorFate("extended", uid, name, "; ".join(notes))


# --- what columns and rows mean ---------------------------------------------------------------------------------------


def _columns(relation: Relation) -> list[str]:
    """What each column is, in terms of tables and of what operators keep."""
    if isinstance(relation, Scan):
        read = relation.table.read if isinstance(relation.table, TableEntry) else relation.schema.fields
        places = relation.columns if relation.columns is not None else range(len(relation.schema))
        return [read[place].name for place in places]
    if isinstance(relation, Project):
        names = _columns(relation.input)
        return [expression_text(each, names, Notation.PHYSICAL) for each in relation.expressions]
    if isinstance(relation, Filter | WatermarkAssign):
        return _columns(relation.input)
    if isinstance(relation, Aggregate):
        return [*_groups(relation), *(_call(call, relation.input) for call in relation.calls)]
    return [f"{relation.uid}.{name}" for name in relation.schema.names]


def _rows(relation: Relation) -> tuple[str, ...]:
    """Which rows there are: the conditions they met, and what they are from."""
    if isinstance(relation, Filter):
        text = expression_text(relation.condition, _columns(relation.input), Notation.PHYSICAL)
        return (*_rows(relation.input), text)
    if isinstance(relation, Project | WatermarkAssign):
        return _rows(relation.input)
    if isinstance(relation, Scan):
        names = [column.name for column in relation.table.read] if isinstance(relation.table, TableEntry) else []
        return tuple(sorted(expression_text(each, names, Notation.PHYSICAL) for each in relation.filters))
    return (relation.uid or "",)


def _groups(relation: Aggregate) -> list[str]:
    names = _columns(relation.input)
    return [names[group] for group in relation.groups]


def _call(call: AggregateCall, below: Relation) -> str:
    names = _columns(below)
    arguments = ", ".join(names[argument] for argument in call.arguments)
    name = call.function or getattr(call.user, "name", "function")
    filtered = f" FILTER {names[call.filter]}" if call.filter is not None else ""
    return f"{name}({'DISTINCT ' if call.distinct else ''}{arguments}){filtered}"


def _meaning(relation: Relation) -> str:
    """An operator as text, its columns named by what they are."""
    below = " and ".join(f"({', '.join(_columns(each))}) where {_rows(each)}" for each in relation.inputs)
    return f"{physical_line(relation)} of {below}"
