"""EXPLAIN: a plan as Flink prints it, in three sections, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.planner.relations import Sink
from millstream.planner.session import PlannerSession

__all__ = ["explained"]


def explained(sinks: Sequence[Sink], session: PlannerSession, details: Sequence[str] = ()) -> str:
    """Flink's sections of bound, not yet optimised sinks: the plan as written, optimised, and as it is run.
    `details`: CHANGELOG_MODE, JSON_EXECUTION_PLAN, ESTIMATED_COST, PLAN_ADVICE."""
    raise NotImplementedError
