"""A job as it is sent to its tasks. Spark delivers it with the function of a stage; our own driver pickled it.

The plan stays bytes until somebody needs it: every subtask makes its own copy, with functions of its own.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

from millstream.plan.stages import Plan
from millstream.runtime.exchange.key_classes import forget_classes
from millstream.runtime.task.spec import JobFacts

__all__ = ["ShippedJob"]


@dataclass(frozen=True)
class ShippedJob:
    """The pickled plan and the facts. Neither changes while a driver runs."""

    plan_pickle: bytes
    facts: JobFacts

    def in_task(self) -> ShippedJob:
        """The same job with the store that tasks of this machine use."""
        facts = self.facts.in_task()
        return self if facts is self.facts else replace(self, facts=facts)

    def plan(self) -> Plan:
        """A copy of the plan, with functions of its own."""
        plan: Plan = pickle.loads(self.plan_pickle)
        forget_classes()
        return plan
