"""Failure handling of the epoch protocol (`protocol.py`): the decision, and the work that must end before it.

A failure is tolerated, or the restart policy decides. Some failures of a job that runs ahead are not caused by the job
and bypass the policy: the store is unavailable, or files of acknowledged epochs are lost with a machine, which costs
only the epochs that ran ahead. The first is excused without limit, the second a limited number of times in a row.

If tasks cannot reach the store but the driver, which reads it at every start, can, a machine is cut off from the store
and may remain so. That is also excused a limited number of times in a row.

So is a full disk, for any job: the store is swept before the next try, which may free space.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.checkpoint import events as e
from millstream.checkpoint.phases import Phase
from millstream.checkpoint.protocol_state import Decision, ProtocolState
from millstream.checkpoint.restart import FailJob

__all__ = ["EXCUSED_MAX", "UNAVAILABLE_IN_TASKS_MAX", "UNAVAILABLE_PAUSE_MS", "conclude", "end_failing", "fail"]

UNAVAILABLE_PAUSE_MS = 1_000
"""Pause before an unavailable store is accessed again."""
EXCUSED_MAX = 3
"""Maximum consecutive excused losses of epochs that ran ahead, or full disks; then the restart policy decides."""
UNAVAILABLE_IN_TASKS_MAX = 10
"""Maximum consecutive failures of tasks to reach a store that the driver has just read."""


def fail(
    state: ProtocolState,
    reason: str,
    at_ms: int,
    draw: float,
    *,
    tolerable: bool = True,
    excuse: e.Excuse = None,
    in_tasks: bool = False,
) -> Decision:
    """Tolerates the failure, up to the limit in a row; then applies the restart policy. An excused failure bypasses it.
    `in_tasks`: the failure occurred in tasks, not in the driver itself."""
    if excuse == "away" and state.runs_ahead and not (in_tasks and state.cut_off >= UNAVAILABLE_IN_TASKS_MAX):
        after = replace(state, unavailable=True, cut_off=state.cut_off + in_tasks)
        return conclude(after, e.Restart(UNAVAILABLE_PAUSE_MS, reason, tolerated=True))
    is_excused = excuse == "full" or (excuse == "lost" and state.runs_ahead)
    if is_excused and state.excused < EXCUSED_MAX:
        return conclude(replace(state, excused=state.excused + 1), e.Restart(0, reason, tolerated=True))
    if tolerable and state.tolerated < state.tolerance.failures_max:
        after = replace(state, tolerated=state.tolerated + 1)
        return conclude(after, e.Restart(state.tolerance.delay_ms, reason, tolerated=True))
    answer = state.policy.on_failure(state.failures, at_ms, draw)
    after = replace(state, failures=(*state.failures, at_ms), tolerated=0)
    if isinstance(answer, FailJob):
        return conclude(after, e.Fail(f"{reason} ({answer.reason})"))
    return conclude(after, e.Restart(answer.delay_ms, reason))


def conclude(state: ProtocolState, verdict: e.Restart | e.Fail) -> Decision:
    """Restarts or fails, but not while anything is in flight: two publishes of one epoch must not overlap, and a commit
    must not complete after a restarted driver has read the newest manifest."""
    abandon = () if state.commit is None else (e.AbandonCommit(),)
    after, actions = end_failing(replace(state, phase=Phase.FAILING, verdict=verdict))
    return after, (*abandon, *actions)


def end_failing(state: ProtocolState) -> Decision:
    is_busy = state.publishing is not None or state.commit is not None or state.working
    return (state, ()) if is_busy else _execute_verdict(state)


def _execute_verdict(state: ProtocolState) -> Decision:
    assert state.verdict is not None, "FAILING always has a verdict"
    phase = Phase.RESTARTING if isinstance(state.verdict, e.Restart) else Phase.FAILED
    return replace(state, phase=phase, verdict=None), (state.verdict,)
