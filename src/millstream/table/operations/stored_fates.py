"""What becomes of the state in a store when a plan is started there, as the start itself judges it."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.meanings import fates, fates_text, meanings_of
from millstream.errors import StoreError
from millstream.graph.builder import GraphBuilder
from millstream.jobs.snapshots.state_fates import keeping_operators, stateful_nodes
from millstream.planner.lowering import lower
from millstream.planner.relations import Sink
from millstream.planner.session import PlannerSession
from millstream.storage.store import open_store

__all__ = ["stored_fates"]


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
