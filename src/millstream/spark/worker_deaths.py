"""When a Python worker dies under a task: say whose function was at work, in the user's terms.

A function can end its process in ways nobody can catch (`os._exit`, a signal, a crash in C code), and the system ends
one that takes too much memory. Spark then says "Python worker exited unexpectedly", with hundreds of JVM frames and a
stage of its own numbering. Spark numbers the stages of a job in their order, so the stage is ours by its place, and the
operators of that stage that call user code are those that can have done it.

A lost executor is no such death: there a machine failed, and the epoch is run again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from millstream.graph.nodes import Node, Read, Write
from millstream.plan.stages import Plan
from millstream.runtime.operators.user_code import FailureReport, UserFailureError

__all__ = ["worker_death"]

_DEATH = "Python worker exited unexpectedly"
_LOST = "ExecutorLostFailure"
_TASK = re.compile(r"Lost task (\d+)\.\d+ in stage (\d+)\.\d+")
_FAULT = re.compile(r"Fatal Python error: ([^\n]+)")


def worker_death(error: BaseException, plan: Plan, stage_ids: Sequence[int], epoch: int) -> UserFailureError | None:
    """The failure that `error` of Spark's tells of, if a worker died; `stage_ids`: those of Spark's job, in order."""
    text = str(error)
    if _DEATH not in text or _LOST in text:
        return None
    match = _TASK.search(text)
    subtask, stage_id = (int(match.group(1)), int(match.group(2))) if match else (-1, -1)
    is_known = stage_id in stage_ids and len(stage_ids) == len(plan.stages)
    stages = [plan.stages[stage_ids.index(stage_id)]] if is_known else plan.stages
    suspects = _suspects([node for stage in stages for node in stage.operators])
    names = ", ".join(f"'{node.name}' ({node.site})" for node in suspects)
    fault = _FAULT.search(text)
    reason = f" ({fault.group(1)})" if fault else ""
    several = len(suspects) > 1
    message = (
        f"the worker of {names} died{reason}: {'one of the functions' if several else 'the function'} ended it, or "
        "memory ran out. Look for os._exit, signals and C libraries in it, or give a task less at a time "
        "(millstream.epoch.max-records)"
    )
    first = suspects[0]
    return UserFailureError(
        FailureReport(
            operator=first.name,
            uid=first.uid or "",
            site=str(first.site),
            role="one of several" if several else "function",
            error="WorkerDied",
            message=message,
            trace="",
            subtask=subtask,
            epoch=epoch,
        )
    )


def _suspects(nodes: Sequence[Node]) -> Sequence[Node]:
    """The operators that call a function of the user's; where none does, those that run sources and sinks."""
    calling = [node for node in nodes if not isinstance(node.operation, (Read, Write))]
    return calling or nodes
