"""The passes that make a bound plan a good one, in their order: pure functions over the roots of a plan, one file each.

A root is a Sink; equal relations below several roots are one after `share_subplans`. Schemas of roots never change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.planner.relations import Sink
from millstream.planner.session import PlannerSession

__all__ = ["PASSES", "Pass", "optimised"]

Pass = Callable[[tuple[Sink, ...], PlannerSession], tuple[Sink, ...]]
PASSES: tuple[Pass, ...] = ()


def optimised(sinks: Sequence[Sink], session: PlannerSession) -> tuple[Sink, ...]:
    """The plan after all passes."""
    plan = tuple(sinks)
    for each in PASSES:
        plan = each(plan, session)
    return plan
