"""What becomes of a query's state when the query is changed: held against its old plan, operator by operator. Pure.

State is found by uid, and a uid is the plan's shape, without columns and expressions (`name_operators`). Whether what
is found still *means* what the new query wants is said by the meanings of operators (`planner/meanings.py`), which are
judged here as they are at every start from a store (`checkpoint/meanings.py`, where the fates are explained).

Invariant: `goes_on` is true only where every state is kept or extended.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.checkpoint.meanings import OperatorFate, StatefulOperator, fates
from millstream.planner.entries import TableEntry
from millstream.planner.meanings import PlanMeanings
from millstream.planner.passes.rewriting import relations_of
from millstream.planner.plan_text import physical_line
from millstream.planner.relations import Relation, Scan, Sink
from millstream.planner.session import PlannerSession

__all__ = ["fates_of", "goes_on", "stateful_operators"]


def goes_on(fates: Sequence[OperatorFate]) -> bool:
    """Whether nothing is lost by going on."""
    return all(each.fate in ("kept", "extended") for each in fates)


def fates_of(old: Sequence[Sink], new: Sequence[Sink], session: PlannerSession) -> tuple[OperatorFate, ...]:
    """What becomes of the state of one optimised plan under another."""
    before = stateful_operators(old, session)
    meanings = {each.uid: each.meaning for each in before if each.meaning is not None}
    return fates(meanings, {each.uid: each.name for each in before}, stateful_operators(new, session))


def stateful_operators(plan: Sequence[Sink], session: PlannerSession) -> tuple[StatefulOperator, ...]:
    """The operators of an optimised plan that keep state or positions, each behind those that it reads from."""
    meanings = PlanMeanings(session)
    found: list[StatefulOperator] = []
    nearest: dict[int, tuple[str, ...]] = {}  # of each relation, the operators whose rows it is made of
    for relation in relations_of(plan):
        inputs = tuple(dict.fromkeys(uid for each in relation.inputs for uid in nearest[id(each)]))
        meaning = meanings.of(relation)
        nearest[id(relation)] = inputs
        if meaning is not None or isinstance(relation, Scan):
            found.append(StatefulOperator(relation.uid or "", _name(relation), meaning, inputs))
            nearest[id(relation)] = (relation.uid or "",)
    return tuple(found)


def _name(relation: Relation) -> str:
    if isinstance(relation, Sink) and isinstance(relation.target, TableEntry):
        return f"table {relation.target.path[-1]}"
    return physical_line(relation).split("(", 1)[0]
