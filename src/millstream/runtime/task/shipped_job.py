"""A job as sent to its tasks. Our own driver pickled it; Spark delivers it with the function of a stage.

The plan stays pickled until it is used: every subtask unpickles its own copy, with its own functions.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

from millstream.plan.stages import Plan
from millstream.runtime.exchange.key_classes import clear_class_cache
from millstream.runtime.task.spec import JobFacts

__all__ = ["ShippedJob"]


@dataclass(frozen=True)
class ShippedJob:
    """The pickled plan and the job's facts. Neither changes while a driver runs."""

    plan_pickle: bytes
    facts: JobFacts

    def in_task(self) -> ShippedJob:
        """The same job with the store of this machine's tasks."""
        facts = self.facts.in_task()
        return self if facts is self.facts else replace(self, facts=facts)

    def plan(self) -> Plan:
        """A new copy of the plan, with its own functions."""
        plan: Plan = pickle.loads(self.plan_pickle)
        clear_class_cache()
        return plan
