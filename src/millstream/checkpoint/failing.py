"""How a job fails: what happens next, and what must end before. A part of the epoch protocol (`protocol.py`).

A failure is tolerated, or the restart policy is asked. Two failures of a job that runs ahead are not the job's, and ask
nobody: the store is away, which says nothing about the job, and files of acknowledged epochs are lost with a machine,
which costs what ran ahead and nothing else. The first is excused for ever, the second some times in a row.

Where tasks do not reach the store, and the driver, which reads it at every start, does, a machine is cut off from it,
and may stay so. That is excused some times in a row, too.

So is a full disk, of any job: it is swept before the next try, and may then have room.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.checkpoint import events as e
from millstream.checkpoint.phases import Phase
from millstream.checkpoint.protocol_state import Decision, ProtocolState
from millstream.checkpoint.restart import GiveUp

__all__ = ["AWAY_IN_TASKS_MAX", "AWAY_PAUSE_MS", "EXCUSED_MAX", "conclude", "end_failing", "fail"]

AWAY_PAUSE_MS = 1_000
"""Before the store, which was away, is asked again."""
EXCUSED_MAX = 3
"""So many losses of what ran ahead, or full disks, one after another, are excused; then the restart policy is asked."""
AWAY_IN_TASKS_MAX = 10
"""So often in a row tasks may miss a store that the driver has just read."""


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
    """Put up with it, as often in a row as is tolerated; then ask the restart policy. What is excused asks nobody.
    `in_tasks`: they met it, and not the driver itself."""
    if excuse == "away" and state.runs_ahead and not (in_tasks and state.cut_off >= AWAY_IN_TASKS_MAX):
        after = replace(state, away=True, cut_off=state.cut_off + in_tasks)
        return conclude(after, e.Restart(AWAY_PAUSE_MS, reason, tolerated=True))
    is_excused = excuse == "full" or (excuse == "lost" and state.runs_ahead)
    if is_excused and state.excused < EXCUSED_MAX:
        return conclude(replace(state, excused=state.excused + 1), e.Restart(0, reason, tolerated=True))
    if tolerable and state.tolerated < state.tolerance.failures_max:
        after = replace(state, tolerated=state.tolerated + 1)
        return conclude(after, e.Restart(state.tolerance.delay_ms, reason, tolerated=True))
    answer = state.policy.on_failure(state.failures, at_ms, draw)
    after = replace(state, failures=(*state.failures, at_ms), tolerated=0)
    if isinstance(answer, GiveUp):
        return conclude(after, e.Fail(f"{reason} ({answer.reason})"))
    return conclude(after, e.Restart(answer.delay_ms, reason))


def conclude(state: ProtocolState, verdict: e.Restart | e.Fail) -> Decision:
    """Restart or fail, but not while anything is in flight: two publishes of one epoch must not run beside each other,
    and what is being committed must not appear behind the back of a driver that has read the newest manifest."""
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
