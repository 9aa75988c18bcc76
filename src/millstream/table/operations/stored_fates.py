"""The fate of state under another plan, as the job's start will determine it, for state in a store or of an altered
query. Both lower the plans, because operators that exist only in lowered plans also have state.
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

__all__ = ["is_lossless", "plan_fates", "stored_fates"]


def is_lossless(fates: Sequence[OperatorFate]) -> bool:
    """Whether the plan can continue without loss of state."""
    return all(each.fate in ("kept", "extended") for each in fates)


def plan_fates(
    before: Sequence[Sink], after: Sequence[Sink], session: PlannerSession, program: GraphBuilder
) -> tuple[OperatorFate, ...]:
    """The fate of one optimised plan's state under another. Neither plan is run; `program`: the graph of their
    program."""
    old, new = (_operators(plan, session, program.separate_job()) for plan in (before, after))
    meanings = {each.uid: each.meaning for each in old if each.meaning is not None}
    return fates(meanings, {each.uid: each.name for each in old}, new)


def _operators(plan: Sequence[Sink], session: PlannerSession, builder: GraphBuilder) -> tuple[StatefulOperator, ...]:
    others = set(builder.nodes)
    lower(plan, builder, session)
    return stateful_nodes([node for number, node in builder.nodes.items() if number not in others], {})


def stored_fates(store: str, plan: Sequence[Sink], session: PlannerSession, builder: GraphBuilder) -> str:
    """One line per operator with continued or new state, and per abandoned state; "" if the store has no epoch. The
    optimised plan is lowered into `builder`, which is not run."""
    try:
        newest = ManifestLog(open_store(store)).newest()
    except StoreError:  # the job itself reports it, with advice
        return ""
    if newest is None:
        return ""
    lower(plan, builder, session)
    keeping = keeping_operators(newest)
    operators = stateful_nodes(list(builder.nodes.values()), keeping)
    lines = fates_text(fates(meanings_of(newest), keeping, operators))
    return f"starting from epoch {newest.epoch} of {store}\n{lines}"
