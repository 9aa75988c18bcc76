"""The epoch protocol, as a pure function from events to actions.

`decide(state, event)` says what the driver does next; the driver does it and reports back with an event. No clock, no
store, no thread is touched here, so that a model can walk every crash point of it in seconds
(`tests/model/test_protocol_model.py`).

What it promises, whatever fails, as long as creating a manifest is atomic and publishing can be repeated:

1. An epoch is published only after its manifest stands (*commit, then publish*).
2. Epoch N+1 is committed only after N is published, and says so (`published_through = N`). So at most the newest epoch
   is unpublished, and a new driver that repeats everything after `published_through`, in order, leaves no hole. An
   epoch that has a receipt of publishing is not repeated: who reads the output may have taken it away.
3. A driver that finds another's manifest in its place stops at once and publishes nothing more. It looks before it
   publishes, too: an epoch must not come again behind the next one's output.
4. After a failure nothing in memory is believed: the newest manifest is read again.

Epochs may **run ahead** (`ahead.py`): the next one starts from what the tasks of the last one *acknowledged*, while its
files travel to the store and its manifest is written. The four sentences hold all the same, and three more:

5. What is acknowledged is committed in order, one commit at a time, when the commit before it is published, and only
   when every file that it names is in the store. Several acknowledged epochs may become one.
6. A commit takes the number behind the newest manifest, also when several epochs become one. Whoever else commits takes
   the same number, and only one can have it: that is what sentence 3 rests on.
7. Nothing is stopped, finished, rescaled or started again before the commit in flight has ended.

The phases and the legal moves between them are drawn and listed in `phases.py`. Publishing runs beside the phases
from PLANNING to SETTLING; `publishing` says which epoch is in flight. So does `commit`, where epochs run ahead. At any
time, one of the two is in flight, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from millstream.checkpoint import events as e
from millstream.checkpoint.ahead import NOT_AHEAD, Acknowledged, AheadBounds, may_run_ahead
from millstream.checkpoint.events import Event
from millstream.checkpoint.failing import AWAY_PAUSE_MS, EXCUSED_MAX, conclude, end_failing, fail
from millstream.checkpoint.manifest import Status
from millstream.checkpoint.phases import AHEAD_MOVES, MOVES, Phase
from millstream.checkpoint.protocol_state import Decision, IllegalMoveError, ProtocolState
from millstream.checkpoint.restart import NO_TOLERANCE, GiveUp, RestartPolicy, Tolerance

__all__ = ["MOVES", "IllegalMoveError", "Phase", "ProtocolState", "begin", "decide"]

HISTORY_KEPT = 20


def begin(policy: RestartPolicy, tolerance: Tolerance = NO_TOLERANCE, bounds: AheadBounds = NOT_AHEAD) -> ProtocolState:
    """The state of a driver that has just been started; feed it `Started`.

    >>> from millstream.checkpoint.restart import NoRestart
    >>> state, actions = decide(begin(NoRestart()), e.Started(newest=None))
    >>> state.phase.name, actions
    ('PLANNING', (PlanInput(epoch=1, drains=False),))
    """
    return ProtocolState(policy, tolerance=tolerance, bounds=bounds)


def decide(state: ProtocolState, event: Event) -> Decision:
    """What to do now that `event` has happened. An event that `MOVES` does not list raises IllegalMoveError."""
    if state.phase.is_last and not isinstance(event, e.Started):
        # What was in flight when the driver ended may still report back; it changes nothing any more.
        return state, ()
    legal = (AHEAD_MOVES if state.runs_ahead else MOVES)[state.phase].get(type(event))
    if legal is None or (isinstance(event, _OF_COMMITS) and state.commit is None):
        raise IllegalMoveError(state, event)
    history = (*state.history, (state.phase, event))[-HISTORY_KEPT:]
    after, actions = _HANDLERS[type(event)](replace(state, history=history), event)
    if after.phase not in legal:
        raise IllegalMoveError(state, event, f"led to {after.phase.name}, which is not allowed")
    return after, actions


# --- starting -----------------------------------------------------------------------------------------------


def _started(state: ProtocolState, event: e.Started) -> Decision:
    newest = event.newest or e.ManifestSummary(0, 0, "RUNNING")
    fresh = ProtocolState(
        state.policy,
        committed=newest.epoch,
        status=newest.status,
        published=max(newest.published_through, min(event.receipted, newest.epoch)),
        stopping=state.stopping,
        draining=state.draining,
        failures=state.failures,
        tolerance=state.tolerance,
        tolerated=state.tolerated,
        bounds=state.bounds,
        excused=state.excused,
        cut_off=state.cut_off,
        # Else a failure that comes again before the upload ends could take every epoch along, for ever.
        cautious=state.phase is Phase.RESTARTING and state.runs_ahead,
        history=state.history,
    )
    return _recover(fresh)


def _recover(state: ProtocolState) -> Decision:
    """Publish the oldest epoch not known to be published, or go on when there is none."""
    if state.published < state.committed:
        return _publish(replace(state, phase=Phase.RECOVERING), state.published + 1)
    if state.status == "FINISHED":
        return replace(state, phase=Phase.FINISHED), (e.Finish(),)
    return _go_on(state)


def _go_on(state: ProtocolState) -> Decision:
    """Plan the next epoch, unless the input has ended, a stop was asked for, or too much is ahead already."""
    if state.has_ended or state.stopping:
        return _settle(state)
    waits = state.acknowledged and (state.catching_up or state.cautious)
    if waits or not may_run_ahead(state.acknowledged, state.bounds, is_away=state.away):
        return replace(state, phase=Phase.HOLDING), ()
    after = replace(state, phase=Phase.PLANNING, catching_up=False)
    return after, (e.PlanInput(state.running, drains=state.draining),)


# --- running ------------------------------------------------------------------------------------------------


def _input_planned(state: ProtocolState, event: e.InputPlanned) -> Decision:
    if state.phase is Phase.FAILING:
        return _work_ended(state, event)
    if state.stopping:
        return _settle(state)
    if state.draining and not event.drains:
        return _go_on(state)  # the request came while the sources were asked: this epoch is to read nothing
    if event.drains:
        return replace(state, phase=Phase.RUNNING, final=True), (e.RunEpoch(state.running, final=True),)
    if event.has_input or event.exhausted:
        # Exhausted without input still runs once: the maximum watermark makes what is pending come out.
        after = replace(state, phase=Phase.RUNNING, final=event.exhausted)
        return after, (e.RunEpoch(state.running, final=event.exhausted),)
    return replace(state, phase=Phase.WAITING), (e.WaitForInput(),)


def _woken(state: ProtocolState, event: e.Woken) -> Decision:
    return _go_on(state) if state.phase is Phase.WAITING else (state, ())


def _commits_awaited(state: ProtocolState, event: e.CommitsAwaited) -> Decision:
    if state.phase is Phase.FAILING:
        return _work_ended(state, event)
    return _go_on(replace(state, catching_up=True))


def _epoch_done(state: ProtocolState, event: e.EpochDone) -> Decision:
    if state.phase is Phase.FAILING:
        return _work_ended(state, event)
    if state.runs_ahead:
        joins = event.joins and len(state.acknowledged) > state.sealed
        epoch = Acknowledged(event.bytes, event.at_ms, state.final, joins)
        after = replace(state, acknowledged=(*state.acknowledged, epoch), final=False)
        after, commit = _commit_oldest(after)
        after, then = _go_on(after)
        return after, (*commit, *then)
    if state.published < state.committed:
        return replace(state, phase=Phase.HOLDING), ()
    return _commit_running(state)


def _work_ended(state: ProtocolState, event: Event) -> Decision:
    """What came of an epoch that was planned or run while the job failed: nothing."""
    if not state.working:
        raise IllegalMoveError(state, event)
    return end_failing(replace(state, working=False))


def _commit_running(state: ProtocolState) -> Decision:
    status: Status = "DRAINED" if state.final else "RUNNING"
    commit = e.Commit(state.running, published_through=state.published, status=status)
    return replace(state, phase=Phase.COMMITTING, commit=commit), (commit,)


def _commit_oldest(state: ProtocolState) -> Decision:
    """Commit the oldest of what ran ahead, beside the next epoch, if the one before it is published.

    It takes the number behind the newest manifest, however many epochs become one: whoever else commits takes the
    same, and only one can have it."""
    if not state.acknowledged or state.commit is not None or state.published < state.committed:
        return state, ()
    joining = (number for number, epoch in enumerate(state.acknowledged) if number and not epoch.joins)
    steps = next(joining, len(state.acknowledged))
    status: Status = "DRAINED" if state.acknowledged[steps - 1].final else "RUNNING"
    commit = e.Commit(state.committed + 1, published_through=state.published, status=status, steps=steps)
    return replace(state, commit=commit), (commit,)


# --- committing ---------------------------------------------------------------------------------------------


def _committed(state: ProtocolState, event: Event) -> Decision:
    commit = _awaited(state)
    after = replace(state, committed=commit.epoch, status=commit.status, commit=None)
    after = replace(after, tolerated=0, excused=0, cut_off=0, cautious=False)
    if state.acknowledged:
        return _committed_beside(replace(after, acknowledged=state.acknowledged[commit.steps :]))
    after = replace(after, final=False)
    if commit.status == "FINISHED":
        return replace(after, phase=Phase.FINISHED, published=commit.epoch), (e.Finish(),)
    if commit.status == "SUSPENDED":
        return replace(after, phase=Phase.SUSPENDED, published=commit.epoch), (e.Suspend(),)
    after, publish = _publish(after, commit.epoch)
    after, then = _go_on(after)
    return after, (*publish, *then)


def _committed_beside(state: ProtocolState) -> Decision:
    if state.phase is Phase.FAILING:
        return end_failing(state)  # the next start publishes it
    after, publish = _publish(state, state.committed)
    after, then = _go_on(after) if state.phase is Phase.HOLDING else (after, ())
    return after, (*publish, *then)


def _commit_failed(state: ProtocolState, event: e.CommitFailed) -> Decision:
    after = replace(state, commit=None)
    if state.phase is Phase.FAILING:
        return end_failing(after)
    after = replace(after, working=state.phase in (Phase.PLANNING, Phase.RUNNING))
    if not event.retryable:
        return conclude(after, e.Fail(event.reason))
    return fail(after, event.reason, event.at_ms, event.draw, excuse=event.excuse)


def _store_away(state: ProtocolState, event: e.StoreAway) -> Decision:
    after = replace(state, away=True)
    return _go_on(after) if state.phase is Phase.HOLDING and state.runs_ahead else (after, ())


def _store_back(state: ProtocolState, event: e.StoreBack) -> Decision:
    return replace(state, away=False), ()


def _commit_lost(state: ProtocolState, event: Event) -> Decision:
    return replace(state, phase=Phase.FENCED), (e.StopFenced(_awaited(state).epoch),)


def _commit_unknown(state: ProtocolState, event: e.CommitUnknown) -> Decision:
    if state.phase is Phase.INSPECTING:
        # The store cannot even be read. Starting again from whatever it then holds is always right.
        unread = f"the store could not be read: {event.reason}"
        return fail(replace(state, commit=None), unread, event.at_ms, event.draw, excuse="away")
    return replace(state, phase=Phase.INSPECTING), (e.InspectCommit(_awaited(state).epoch),)


def _commit_found(state: ProtocolState, event: e.CommitFound) -> Decision:
    return _committed(state, event) if event.mine else _commit_lost(state, event)


def _commit_absent(state: ProtocolState, event: e.CommitAbsent) -> Decision:
    reason = f"the store did not take the manifest of epoch {_awaited(state).epoch}"
    after = replace(state, commit=None)
    if not event.retryable:
        return conclude(after, e.Fail(reason))
    return fail(after, reason, event.at_ms, event.draw, excuse=event.excuse)


def _awaited(state: ProtocolState) -> e.Commit:
    assert state.commit is not None, "whoever reports of a commit was asked for it"
    return state.commit


# --- publishing ---------------------------------------------------------------------------------------------


def _publish(state: ProtocolState, epoch: int, delay_ms: int = 0) -> Decision:
    return replace(state, publishing=epoch), (e.Publish(epoch, delay_ms),)


def _published(state: ProtocolState, event: e.Published) -> Decision:
    if event.epoch != state.publishing:
        raise IllegalMoveError(state, event, f"was not asked for (in flight: {state.publishing})")
    after = replace(state, published=event.epoch, publishing=None)
    if state.acknowledged and state.phase is not Phase.FAILING:
        return _commit_oldest(after)
    then = _AFTER_PUBLISH.get(state.phase)
    return then(after) if then else (after, ())


def _publish_failed(state: ProtocolState, event: e.PublishFailed) -> Decision:
    if event.epoch != state.publishing:
        raise IllegalMoveError(state, event, f"was not asked for (in flight: {state.publishing})")
    reason = f"epoch {event.epoch} could not be published: {event.reason}"
    if state.phase is Phase.FAILING and isinstance(state.verdict, e.Fail):
        return end_failing(replace(state, publishing=None))
    if not event.retryable:
        return replace(state, phase=Phase.FAILED, publishing=None, verdict=None), (e.Fail(reason),)
    if state.phase is Phase.FAILING:
        return fail(replace(state, publishing=None), reason, event.at_ms, event.draw, excuse=event.excuse)
    if event.excuse == "away" and state.runs_ahead:
        return _publish(state, event.epoch, AWAY_PAUSE_MS)
    if event.excuse == "full" and state.excused < EXCUSED_MAX:
        return _publish(replace(state, excused=state.excused + 1), event.epoch, AWAY_PAUSE_MS)
    answer = state.policy.on_failure(state.failures, event.at_ms, event.draw)
    after = replace(state, failures=(*state.failures, event.at_ms))
    if isinstance(answer, GiveUp):
        # Never skipped: the job ends here, and the next start publishes this epoch first.
        failed = replace(after, phase=Phase.FAILED, publishing=None)
        return failed, (e.Fail(f"{reason} ({answer.reason})"),)
    return _publish(after, event.epoch, answer.delay_ms)


def _publish_fenced(state: ProtocolState, event: e.PublishFenced) -> Decision:
    if event.epoch != state.publishing:
        raise IllegalMoveError(state, event, f"was not asked for (in flight: {state.publishing})")
    return replace(state, phase=Phase.FENCED, publishing=None, verdict=None), (e.StopFenced(event.newer),)


# --- ending -------------------------------------------------------------------------------------------------


def _settle(state: ProtocolState) -> Decision:
    """Close once everything is committed and published. A manifest that already says so is not written twice."""
    if state.published < state.committed or state.acknowledged:
        return replace(state, phase=Phase.SETTLING), ()
    if state.status != "DRAINED" and (state.status == "SUSPENDED" or state.committed == 0):
        return replace(state, phase=Phase.SUSPENDED), (e.Suspend(),)
    closing: Status = "FINISHED" if state.status == "DRAINED" else "SUSPENDED"
    # A closing manifest has no output, so it counts as published with all before it.
    commit = e.Commit(state.running, published_through=state.running, status=closing)
    return replace(state, phase=Phase.CLOSING, commit=commit), (commit,)


def _epoch_failed(state: ProtocolState, event: e.EpochFailed) -> Decision:
    if state.phase is Phase.FAILING:
        return _work_ended(state, event)
    if state.phase is Phase.COMMITTING:
        state = replace(state, commit=None)  # there was no manifest to write
    if not event.retryable:
        return conclude(state, e.Fail(event.reason))
    in_tasks, excuse = state.phase is Phase.RUNNING, event.excuse
    return fail(
        state, event.reason, event.at_ms, event.draw, tolerable=event.tolerable, excuse=excuse, in_tasks=in_tasks
    )


def _stop_requested(state: ProtocolState, event: e.StopRequested) -> Decision:
    if event.drain and not state.stopping:
        draining = replace(state, draining=True)
        return _go_on(draining) if state.phase is Phase.WAITING else (draining, ())
    stopping = replace(state, stopping=True)
    return _settle(stopping) if state.phase is Phase.WAITING else (stopping, ())


def _cancel_requested(state: ProtocolState, event: e.CancelRequested) -> Decision:
    return replace(state, phase=Phase.CANCELED), (e.Cancel(),)


# --- the table ----------------------------------------------------------------------------------------------

_AFTER_PUBLISH: Mapping[Phase, Callable[[ProtocolState], Decision]] = {
    Phase.RECOVERING: _recover,
    Phase.HOLDING: _commit_running,
    Phase.SETTLING: _settle,
    Phase.FAILING: end_failing,
}

_OF_COMMITS = (e.Committed, e.CommitLost, e.CommitUnknown, e.CommitFound, e.CommitAbsent, e.CommitFailed)

_HANDLERS: Mapping[type[Any], Callable[[ProtocolState, Any], Decision]] = {
    e.Started: _started,
    e.InputPlanned: _input_planned,
    e.Woken: _woken,
    e.CommitsAwaited: _commits_awaited,
    e.EpochDone: _epoch_done,
    e.EpochFailed: _epoch_failed,
    e.Committed: _committed,
    e.CommitLost: _commit_lost,
    e.CommitUnknown: _commit_unknown,
    e.CommitFound: _commit_found,
    e.CommitAbsent: _commit_absent,
    e.CommitFailed: _commit_failed,
    e.StoreAway: _store_away,
    e.StoreBack: _store_back,
    e.Published: _published,
    e.PublishFailed: _publish_failed,
    e.PublishFenced: _publish_fenced,
    e.StopRequested: _stop_requested,
    e.CancelRequested: _cancel_requested,
}
