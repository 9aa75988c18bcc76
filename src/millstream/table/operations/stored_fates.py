"""What becomes of state when a plan is started on it, as the start itself judges it: that in a store, and that of a
query which is changed. Plans are lowered for it, since operators that only a lowered plan has keep state, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.meanings import OperatorFate, StatefulOperator, fates, fates_text, meanings_of
from millstream.errors import StoreError
from millstream.graph.builder import GraphBuilder
from millstream.jobs.snapshots.state_fates import keeping_operators, stateful_nodes
from millstream.planner.lowering import lower
from millstream.planner.relations import Sink
from millstream.planner.session import PlannerSession
from millstream.storage.store import open_store

__all__ = ["goes_on", "plan_fates", "stored_fates"]


def goes_on(fates: Sequence[OperatorFate]) -> bool:
    """Whether nothing is lost by going on."""
    return all(each.fate in ("kept", "extended") for each in fates)


def plan_fates(
    before: Sequence[Sink], after: Sequence[Sink], session: PlannerSession, beside: GraphBuilder
) -> tuple[OperatorFate, ...]:
    """What becomes of the state of one optimised plan under another. Neither is run; `beside`: the program they are
    in."""
    old, new = (_operators(plan, session, beside.separate_job()) for plan in (before, after))
    meanings = {each.uid: each.meaning for each in old if each.meaning is not None}
    return fates(meanings, {each.uid: each.name for each in old}, new)


def _operators(plan: Sequence[Sink], session: PlannerSession, builder: GraphBuilder) -> tuple[StatefulOperator, ...]:
    others = set(builder.nodes)
    lower(plan, builder, session)
    return stateful_nodes([node for number, node in builder.nodes.items() if number not in others], {})


def stored_fates(store: str, plan: Sequence[Sink], session: PlannerSession, builder: GraphBuilder) -> str:
    """A line for each operator whose state goes on or begins, and for what is left behind; "" where the store has no
    epoch. The optimised plan is lowered into `builder`, which nobody runs."""
    try:
        newest = ManifestLog(open_store(store)).newest()
    except StoreError:  # said by the job itself, with what to do
        return ""
    if newest is None:
        return ""
    lower(plan, builder, session)
    keeping = keeping_operators(newest)
    operators = stateful_nodes(list(builder.nodes.values()), keeping)
    lines = fates_text(fates(meanings_of(newest), keeping, operators))
    return f"starting from epoch {newest.epoch} of {store}\n{lines}"
