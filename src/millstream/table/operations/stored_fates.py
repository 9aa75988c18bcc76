"""What becomes of the state in a store when a plan is started there: by uid, before anything is started.

A store tells uids and not what a query meant by them: where a plan was altered in place, `planner/state_changes.py`
says more, for it has the old plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.program import program_of
from millstream.errors import StoreError
from millstream.planner.passes.rewriting import relations_of
from millstream.planner.plan_text import physical_line
from millstream.planner.relations import Sink
from millstream.state.stored.accounts import accounts_of
from millstream.storage.store import open_store

__all__ = ["stored_fates"]


def stored_fates(store: str, plan: Sequence[Sink]) -> str:
    """A line for each operator whose state goes on, and for what is left behind; "" where the store has no epoch."""
    try:
        newest = ManifestLog(open_store(store)).newest()
    except StoreError:  # said by the job itself, with what to do
        return ""
    if newest is None:
        return ""
    names = {each.uid or "": physical_line(each).split("(", 1)[0] for each in relations_of(plan)}
    before = program_of(newest)
    keeping = [uid for uid, account in accounts_of(newest).items() if account.keeps_state]
    saved = [*newest.sources, *(uid for uid in keeping if uid not in newest.sources)]
    lines = [f"starting from epoch {newest.epoch} of {store}"]
    lines += [f"kept      {names[uid]} (uid {uid})" for uid in saved if uid in names]
    new = [uid for uid in names if uid not in before and uid.split("-", 1)[0] not in ("project", "filter", "values")]
    lines += [f"new       {names[uid]} (uid {uid}): begins empty" for uid in new]
    lines += [
        f"dropped   {newest.operator_name(uid)} (uid {uid}): nothing of the plan has its uid"
        for uid in saved
        if uid not in names
    ]
    return "\n".join(lines)
