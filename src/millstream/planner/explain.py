"""EXPLAIN: a plan as Flink prints it, in three sections, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.planner.relations import Sink
from millstream.planner.session import PlannerSession

__all__ = ["explained"]


def explained(sinks: Sequence[Sink], session: PlannerSession, details: Sequence[str] = ()) -> str:
    """The sections `== Abstract Syntax Tree ==`, `== Optimized Physical Plan ==` and `== Optimized Execution Plan ==` of
    bound, not yet optimised sinks; `details`: CHANGELOG_MODE, JSON_EXECUTION_PLAN, ESTIMATED_COST, PLAN_ADVICE."""
    raise NotImplementedError
