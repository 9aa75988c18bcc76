"""Explains the death of a Python worker under a task: names the user's functions that may have caused it.

A function can end its process uncatchably (`os._exit`, a signal, a crash in C code), and the system kills a process
that takes too much memory. Spark then reports "Python worker exited unexpectedly", with hundreds of JVM frames and its
own stage id. Spark numbers the stages of a job in order, so the position identifies our stage, and the operators of
that stage that call user code are the suspects.

A lost executor is different: a machine failed, and the epoch is rerun.
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
    """The failure that Spark's error describes, if a worker died; `stage_ids`: the stages of Spark's job, in order."""
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
        "memory ran out. Check it for os._exit, signals and C libraries, or give a task fewer records at a time "
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
    """The operators that call a user function; without one, the sources and sinks."""
    calling = [node for node in nodes if not isinstance(node.operation, (Read, Write))]
    return calling or nodes
