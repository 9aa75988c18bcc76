"""The epoch protocol, as a pure function from events to actions.

`decide(state, event)` returns the next actions; the driver performs them and reports back with an event. The function
uses no clock, store or thread, so that a model can visit every crash point in seconds
(`tests/model/test_protocol_model.py`).

It guarantees the following under any failure, provided that creating a manifest is atomic and publishing can be
repeated:

1. An epoch is published only after its manifest is stored (*commit, then publish*).
2. Epoch N+1 is committed only after N is published, and records that (`published_through = N`). So at most the newest
   epoch is unpublished, and a new driver that republishes everything after `published_through`, in order, leaves no
   gap. An epoch with a receipt of publishing is not repeated: a consumer may have removed its output since.
3. A driver that encounters another driver's manifest for its epoch stops at once and publishes nothing more. It also
   checks before it publishes: an epoch must not be published after the output of the next one.
4. After a failure all state in memory is discarded, and the newest manifest is read again.

Epochs may **run ahead** (`ahead.py`): the next one starts from the *acknowledged* results of the last one, while its
files are uploaded and its manifest is written. The four rules still hold, and three more:

5. Acknowledged epochs are committed in order, one commit at a time, after the previous commit is published, and only
   when every named file is in the store. Several acknowledged epochs may be combined in one commit.
6. A commit takes the number after the newest manifest, also when it combines several epochs. Any other committer takes
   the same number, and only one can get it: rule 3 depends on that.
7. Nothing is stopped, finished, rescaled or restarted before the commit in flight has ended.

`phases.py` has the diagram and table of phases and legal moves. Publishing runs concurrently with the
phases from PLANNING to SETTLING; `publishing` is the epoch in flight. So does `commit`, where epochs run ahead. At most
one of the two is in flight at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from millstream.checkpoint import events as e
from millstream.checkpoint.ahead import NOT_AHEAD, Acknowledged, AheadBounds, may_run_ahead
from millstream.checkpoint.events import Event
from millstream.checkpoint.failing import EXCUSED_MAX, UNAVAILABLE_PAUSE_MS, conclude, end_failing, fail
from millstream.checkpoint.manifest import Status
from millstream.checkpoint.phases import AHEAD_MOVES, MOVES, Phase
from millstream.checkpoint.protocol_state import Decision, IllegalMoveError, ProtocolState
from millstream.checkpoint.restart import NO_TOLERANCE, FailJob, RestartPolicy, Tolerance

__all__ = ["MOVES", "IllegalMoveError", "Phase", "ProtocolState", "begin", "decide"]

HISTORY_MAX = 20


def begin(policy: RestartPolicy, tolerance: Tolerance = NO_TOLERANCE, bounds: AheadBounds = NOT_AHEAD) -> ProtocolState:
    """The state of a driver that has just been started; its first event is `Started`.

    >>> from millstream.checkpoint.restart import NoRestart
    >>> state, actions = decide(begin(NoRestart()), e.Started(newest=None))
    >>> state.phase.name, actions
    ('PLANNING', (PlanInput(epoch=1, drains=False),))
    """
    return ProtocolState(policy, tolerance=tolerance, bounds=bounds)


def decide(state: ProtocolState, event: Event) -> Decision:
    """The next state and actions after `event`. An event that `MOVES` does not list raises IllegalMoveError."""
    if state.phase.is_last and not isinstance(event, e.Started):
        # Work that was in flight when the driver ended may still report back; it has no effect.
        return state, ()
    legal = (AHEAD_MOVES if state.runs_ahead else MOVES)[state.phase].get(type(event))
    if legal is None or (isinstance(event, _OF_COMMITS) and state.commit is None):
        raise IllegalMoveError(state, event)
    history = (*state.history, (state.phase, event))[-HISTORY_MAX:]
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
        # Otherwise a failure that recurs before each upload ends could discard every epoch forever.
        cautious=state.phase is Phase.RESTARTING and state.runs_ahead,
        history=state.history,
    )
    return _recover(fresh)


def _recover(state: ProtocolState) -> Decision:
    """Publishes the oldest epoch not known to be published, or proceeds if all are."""
    if state.published < state.committed:
        return _publish(replace(state, phase=Phase.RECOVERING), state.published + 1)
    if state.status == "FINISHED":
        return replace(state, phase=Phase.FINISHED), (e.Finish(),)
    return _proceed(state)


def _proceed(state: ProtocolState) -> Decision:
    """Plans the next epoch, unless the input has ended, a stop was requested, or the limit on epochs ahead is
    reached."""
    if state.has_ended or state.stopping:
        return _settle(state)
    waits = state.acknowledged and (state.catching_up or state.cautious)
    if waits or not may_run_ahead(state.acknowledged, state.bounds, store_unavailable=state.unavailable):
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
        return _proceed(state)  # requested while the sources were queried: this epoch must read nothing
    if event.drains:
        return replace(state, phase=Phase.RUNNING, final=True), (e.RunEpoch(state.running, final=True),)
    if event.has_input or event.exhausted:
        # An exhausted source without input still runs once: the maximum watermark releases pending results.
        after = replace(state, phase=Phase.RUNNING, final=event.exhausted)
        return after, (e.RunEpoch(state.running, final=event.exhausted),)
    return replace(state, phase=Phase.WAITING), (e.WaitForInput(),)


def _woken(state: ProtocolState, event: e.Woken) -> Decision:
    return _proceed(state) if state.phase is Phase.WAITING else (state, ())


def _commits_awaited(state: ProtocolState, event: e.CommitsAwaited) -> Decision:
    if state.phase is Phase.FAILING:
        return _work_ended(state, event)
    return _proceed(replace(state, catching_up=True))


def _epoch_done(state: ProtocolState, event: e.EpochDone) -> Decision:
    if state.phase is Phase.FAILING:
        return _work_ended(state, event)
    if state.runs_ahead:
        joins = event.joins and len(state.acknowledged) > state.sealed
        epoch = Acknowledged(event.bytes, event.at_ms, state.final, joins)
        after = replace(state, acknowledged=(*state.acknowledged, epoch), final=False)
        after, commit = _commit_oldest(after)
        after, then = _proceed(after)
        return after, (*commit, *then)
    if state.published < state.committed:
        return replace(state, phase=Phase.HOLDING), ()
    return _commit_running(state)


def _work_ended(state: ProtocolState, event: Event) -> Decision:
    """Discards an epoch that was planned or run while the job failed."""
    if not state.working:
        raise IllegalMoveError(state, event)
    return end_failing(replace(state, working=False))


def _commit_running(state: ProtocolState) -> Decision:
    status: Status = "DRAINED" if state.final else "RUNNING"
    commit = e.Commit(state.running, published_through=state.published, status=status)
    return replace(state, phase=Phase.COMMITTING, commit=commit), (commit,)


def _commit_oldest(state: ProtocolState) -> Decision:
    """Commits the oldest acknowledged epochs, concurrently with the next epoch, if the previous commit is published.

    The commit takes the number after the newest manifest, no matter how many epochs it combines: any other committer
    takes the same number, and only one can get it."""
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
        return _committed_ahead(replace(after, acknowledged=state.acknowledged[commit.steps :]))
    after = replace(after, final=False)
    if commit.status == "FINISHED":
        return replace(after, phase=Phase.FINISHED, published=commit.epoch), (e.Finish(),)
    if commit.status == "SUSPENDED":
        return replace(after, phase=Phase.SUSPENDED, published=commit.epoch), (e.Suspend(),)
    after, publish = _publish(after, commit.epoch)
    after, then = _proceed(after)
    return after, (*publish, *then)


def _committed_ahead(state: ProtocolState) -> Decision:
    if state.phase is Phase.FAILING:
        return end_failing(state)  # the next start publishes it
    after, publish = _publish(state, state.committed)
    after, then = _proceed(after) if state.phase is Phase.HOLDING else (after, ())
    return after, (*publish, *then)


def _commit_failed(state: ProtocolState, event: e.CommitFailed) -> Decision:
    after = replace(state, commit=None)
    if state.phase is Phase.FAILING:
        return end_failing(after)
    after = replace(after, working=state.phase in (Phase.PLANNING, Phase.RUNNING))
    if not event.retryable:
        return conclude(after, e.Fail(event.reason))
    return fail(after, event.reason, event.at_ms, event.draw, excuse=event.excuse)


def _store_unavailable(state: ProtocolState, event: e.StoreUnavailable) -> Decision:
    after = replace(state, unavailable=True)
    return _proceed(after) if state.phase is Phase.HOLDING and state.runs_ahead else (after, ())


def _store_available(state: ProtocolState, event: e.StoreAvailable) -> Decision:
    return replace(state, unavailable=False), ()


def _commit_lost(state: ProtocolState, event: Event) -> Decision:
    return replace(state, phase=Phase.FENCED), (e.StopFenced(_awaited(state).epoch),)


def _commit_unknown(state: ProtocolState, event: e.CommitUnknown) -> Decision:
    if state.phase is Phase.INSPECTING:
        # The store cannot even be read. A restart from its actual content is always correct.
        unread = f"the store could not be read: {event.reason}"
        return fail(replace(state, commit=None), unread, event.at_ms, event.draw, excuse="away")
    return replace(state, phase=Phase.INSPECTING), (e.InspectCommit(_awaited(state).epoch),)


def _commit_exists(state: ProtocolState, event: e.CommitExists) -> Decision:
    return _committed(state, event) if event.is_own else _commit_lost(state, event)


def _commit_absent(state: ProtocolState, event: e.CommitAbsent) -> Decision:
    reason = f"the store did not accept the manifest of epoch {_awaited(state).epoch}"
    after = replace(state, commit=None)
    if not event.retryable:
        return conclude(after, e.Fail(reason))
    return fail(after, reason, event.at_ms, event.draw, excuse=event.excuse)


def _awaited(state: ProtocolState) -> e.Commit:
    assert state.commit is not None, "an event about a commit answers an action"
    return state.commit


# --- publishing ---------------------------------------------------------------------------------------------


def _publish(state: ProtocolState, epoch: int, delay_ms: int = 0) -> Decision:
    return replace(state, publishing=epoch), (e.Publish(epoch, delay_ms),)


def _published(state: ProtocolState, event: e.Published) -> Decision:
    if event.epoch != state.publishing:
        raise IllegalMoveError(state, event, f"was not requested (in flight: {state.publishing})")
    after = replace(state, published=event.epoch, publishing=None)
    if state.acknowledged and state.phase is not Phase.FAILING:
        return _commit_oldest(after)
    then = _AFTER_PUBLISH.get(state.phase)
    return then(after) if then else (after, ())


def _publish_failed(state: ProtocolState, event: e.PublishFailed) -> Decision:
    if event.epoch != state.publishing:
        raise IllegalMoveError(state, event, f"was not requested (in flight: {state.publishing})")
    reason = f"epoch {event.epoch} could not be published: {event.reason}"
    if state.phase is Phase.FAILING and isinstance(state.verdict, e.Fail):
        return end_failing(replace(state, publishing=None))
    if not event.retryable:
        return replace(state, phase=Phase.FAILED, publishing=None, verdict=None), (e.Fail(reason),)
    if state.phase is Phase.FAILING:
        return fail(replace(state, publishing=None), reason, event.at_ms, event.draw, excuse=event.excuse)
    if event.excuse == "away" and state.runs_ahead:
        return _publish(state, event.epoch, UNAVAILABLE_PAUSE_MS)
    if event.excuse == "full" and state.excused < EXCUSED_MAX:
        return _publish(replace(state, excused=state.excused + 1), event.epoch, UNAVAILABLE_PAUSE_MS)
    answer = state.policy.on_failure(state.failures, event.at_ms, event.draw)
    after = replace(state, failures=(*state.failures, event.at_ms))
    if isinstance(answer, FailJob):
        # Never skipped: the job ends here, and the next start publishes this epoch first.
        failed = replace(after, phase=Phase.FAILED, publishing=None)
        return failed, (e.Fail(f"{reason} ({answer.reason})"),)
    return _publish(after, event.epoch, answer.delay_ms)


def _publish_fenced(state: ProtocolState, event: e.PublishFenced) -> Decision:
    if event.epoch != state.publishing:
        raise IllegalMoveError(state, event, f"was not requested (in flight: {state.publishing})")
    return replace(state, phase=Phase.FENCED, publishing=None, verdict=None), (e.StopFenced(event.newer),)


# --- ending -------------------------------------------------------------------------------------------------


def _settle(state: ProtocolState) -> Decision:
    """Closes once everything is committed and published. An existing closing manifest is not written again."""
    if state.published < state.committed or state.acknowledged:
        return replace(state, phase=Phase.SETTLING), ()
    if state.status != "DRAINED" and (state.status == "SUSPENDED" or state.committed == 0):
        return replace(state, phase=Phase.SUSPENDED), (e.Suspend(),)
    closing: Status = "FINISHED" if state.status == "DRAINED" else "SUSPENDED"
    # A closing manifest has no output, so it counts as published, like all epochs before it.
    commit = e.Commit(state.running, published_through=state.running, status=closing)
    return replace(state, phase=Phase.CLOSING, commit=commit), (commit,)


def _epoch_failed(state: ProtocolState, event: e.EpochFailed) -> Decision:
    if state.phase is Phase.FAILING:
        return _work_ended(state, event)
    if state.phase is Phase.COMMITTING:
        state = replace(state, commit=None)  # no manifest could be made
    if not event.retryable:
        return conclude(state, e.Fail(event.reason))
    in_tasks, excuse = state.phase is Phase.RUNNING, event.excuse
    return fail(
        state, event.reason, event.at_ms, event.draw, tolerable=event.tolerable, excuse=excuse, in_tasks=in_tasks
    )


def _stop_requested(state: ProtocolState, event: e.StopRequested) -> Decision:
    if event.drain and not state.stopping:
        draining = replace(state, draining=True)
        return _proceed(draining) if state.phase is Phase.WAITING else (draining, ())
    stopping = replace(state, stopping=True)
    return _settle(stopping) if state.phase is Phase.WAITING else (stopping, ())


def _cancel_requested(state: ProtocolState, event: e.CancelRequested) -> Decision:
    return replace(state, phase=Phase.CANCELED), (e.Cancel(),)


# --- handlers -----------------------------------------------------------------------------------------------

_AFTER_PUBLISH: Mapping[Phase, Callable[[ProtocolState], Decision]] = {
    Phase.RECOVERING: _recover,
    Phase.HOLDING: _commit_running,
    Phase.SETTLING: _settle,
    Phase.FAILING: end_failing,
}

_OF_COMMITS = (e.Committed, e.CommitLost, e.CommitUnknown, e.CommitExists, e.CommitAbsent, e.CommitFailed)

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
    e.CommitExists: _commit_exists,
    e.CommitAbsent: _commit_absent,
    e.CommitFailed: _commit_failed,
    e.StoreUnavailable: _store_unavailable,
    e.StoreAvailable: _store_available,
    e.Published: _published,
    e.PublishFailed: _publish_failed,
    e.PublishFenced: _publish_fenced,
    e.StopRequested: _stop_requested,
    e.CancelRequested: _cancel_requested,
}
