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

The phases and the legal moves between them are drawn and listed in `phases.py`. Publishing runs beside the phases
from PLANNING to SETTLING; `publishing` says which epoch is in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millstream.checkpoint import events as e
from millstream.checkpoint.events import Action, Event
from millstream.checkpoint.manifest import Status
from millstream.checkpoint.phases import MOVES, Phase
from millstream.checkpoint.restart import NO_TOLERANCE, GiveUp, RestartPolicy, Tolerance
from millstream.errors import MillstreamError

__all__ = ["MOVES", "IllegalMoveError", "Phase", "ProtocolState", "begin", "decide"]

HISTORY_KEPT = 20


@dataclass(frozen=True)
class ProtocolState:
    """All that the protocol remembers between two events.

    Many fields: the protocol is a pure function, so all it knows is here, and a model can walk through every state.
    """

    policy: RestartPolicy
    phase: Phase = Phase.NEW
    committed: int = 0
    """The newest epoch whose manifest stands; 0 before the first."""
    status: Status = "RUNNING"
    """What that manifest says about the job."""
    published: int = 0
    """Every epoch up to here is published."""
    publishing: int | None = None
    """The epoch whose publishing is in flight."""
    final: bool = False
    """Whether the running epoch is the last one with input."""
    commit: e.Commit | None = None
    """The commit whose outcome is awaited."""
    verdict: e.Restart | e.Fail | None = None
    """In FAILING: what happens once the publish in flight has ended."""
    stopping: bool = False
    draining: bool = False
    """A stop was asked for that ends event time first."""
    failures: tuple[int, ...] = ()
    tolerance: Tolerance = NO_TOLERANCE
    tolerated: int = 0
    """How many failures in a row have been put up with since the last commit."""
    history: tuple[tuple[Phase, Event], ...] = ()

    @property
    def running(self) -> int:
        """The epoch being planned, run or committed."""
        return self.committed + 1


Decision = tuple[ProtocolState, tuple[Action, ...]]


class IllegalMoveError(MillstreamError):
    """The driver reported something that cannot happen in this phase; a fault in Millstream, with its history."""

    def __init__(self, state: ProtocolState, event: Event, why: str = "cannot happen") -> None:
        history = (*state.history, (state.phase, event))
        steps = "\n".join(f"  {phase.name:<10} {step}" for phase, step in history)
        super().__init__(
            f"Epoch protocol: {type(event).__name__} {why} in phase {state.phase.name} "
            f"(committed {state.committed}, published {state.published}). "
            f"This is a fault in Millstream; nothing was committed by it. Report it with these steps:\n{steps}"
        )


def begin(policy: RestartPolicy, tolerance: Tolerance = NO_TOLERANCE) -> ProtocolState:
    """The state of a driver that has just been started; feed it `Started`.

    >>> from millstream.checkpoint.restart import NoRestart
    >>> state, actions = decide(begin(NoRestart()), e.Started(newest=None))
    >>> state.phase.name, actions
    ('PLANNING', (PlanInput(epoch=1, drains=False),))
    """
    return ProtocolState(policy, tolerance=tolerance)


def decide(state: ProtocolState, event: Event) -> Decision:
    """What to do now that `event` has happened. An event that `MOVES` does not list raises IllegalMoveError."""
    if state.phase.is_last and not isinstance(event, e.Started):
        # What was in flight when the driver ended may still report back; it changes nothing any more.
        return state, ()
    legal = MOVES[state.phase].get(type(event))
    if legal is None:
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
    """Plan the next epoch, unless the input has ended or a stop was asked for."""
    if state.status == "DRAINED" or state.stopping:
        return _settle(state)
    return replace(state, phase=Phase.PLANNING), (e.PlanInput(state.running, drains=state.draining),)


# --- running ------------------------------------------------------------------------------------------------


def _input_planned(state: ProtocolState, event: e.InputPlanned) -> Decision:
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


def _epoch_done(state: ProtocolState, event: e.EpochDone) -> Decision:
    if state.published < state.committed:
        return replace(state, phase=Phase.HOLDING), ()
    return _commit_running(state)


def _commit_running(state: ProtocolState) -> Decision:
    status: Status = "DRAINED" if state.final else "RUNNING"
    commit = e.Commit(state.running, published_through=state.published, status=status)
    return replace(state, phase=Phase.COMMITTING, commit=commit), (commit,)


# --- committing ---------------------------------------------------------------------------------------------


def _committed(state: ProtocolState, event: Event) -> Decision:
    commit = _awaited(state)
    after = replace(state, committed=commit.epoch, status=commit.status, commit=None, final=False, tolerated=0)
    if commit.status == "FINISHED":
        return replace(after, phase=Phase.FINISHED, published=commit.epoch), (e.Finish(),)
    if commit.status == "SUSPENDED":
        return replace(after, phase=Phase.SUSPENDED, published=commit.epoch), (e.Suspend(),)
    after, publish = _publish(after, commit.epoch)
    after, then = _go_on(after)
    return after, (*publish, *then)


def _commit_lost(state: ProtocolState, event: Event) -> Decision:
    return replace(state, phase=Phase.FENCED), (e.StopFenced(_awaited(state).epoch),)


def _commit_unknown(state: ProtocolState, event: e.CommitUnknown) -> Decision:
    if state.phase is Phase.INSPECTING:
        # The store cannot even be read. Starting again from whatever it then holds is always right.
        return _fail(state, f"the store could not be read: {event.reason}", event.at_ms, event.draw)
    return replace(state, phase=Phase.INSPECTING), (e.InspectCommit(_awaited(state).epoch),)


def _commit_found(state: ProtocolState, event: e.CommitFound) -> Decision:
    return _committed(state, event) if event.mine else _commit_lost(state, event)


def _commit_absent(state: ProtocolState, event: e.CommitAbsent) -> Decision:
    reason = f"the store did not take the manifest of epoch {_awaited(state).epoch}"
    if not event.retryable:
        return _conclude(replace(state, commit=None), e.Fail(reason))
    return _fail(state, reason, event.at_ms, event.draw)


def _awaited(state: ProtocolState) -> e.Commit:
    assert state.commit is not None, "COMMITTING, CLOSING and INSPECTING always await a commit"
    return state.commit


# --- publishing ---------------------------------------------------------------------------------------------


def _publish(state: ProtocolState, epoch: int, delay_ms: int = 0) -> Decision:
    return replace(state, publishing=epoch), (e.Publish(epoch, delay_ms),)


def _published(state: ProtocolState, event: e.Published) -> Decision:
    if event.epoch != state.publishing:
        raise IllegalMoveError(state, event, f"was not asked for (in flight: {state.publishing})")
    after = replace(state, published=event.epoch, publishing=None)
    then = _AFTER_PUBLISH.get(state.phase)
    return then(after) if then else (after, ())


def _publish_failed(state: ProtocolState, event: e.PublishFailed) -> Decision:
    if event.epoch != state.publishing:
        raise IllegalMoveError(state, event, f"was not asked for (in flight: {state.publishing})")
    reason = f"epoch {event.epoch} could not be published: {event.reason}"
    if state.phase is Phase.FAILING and isinstance(state.verdict, e.Fail):
        return _execute_verdict(replace(state, publishing=None))
    if not event.retryable:
        return replace(state, phase=Phase.FAILED, publishing=None, verdict=None), (e.Fail(reason),)
    if state.phase is Phase.FAILING:
        return _fail(replace(state, publishing=None), reason, event.at_ms, event.draw)
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
    """Close once everything is published. A manifest that already says so is not written twice."""
    if state.published < state.committed:
        return replace(state, phase=Phase.SETTLING), ()
    if state.status != "DRAINED" and (state.status == "SUSPENDED" or state.committed == 0):
        return replace(state, phase=Phase.SUSPENDED), (e.Suspend(),)
    closing: Status = "FINISHED" if state.status == "DRAINED" else "SUSPENDED"
    # A closing manifest has no output, so it counts as published with all before it.
    commit = e.Commit(state.running, published_through=state.running, status=closing)
    return replace(state, phase=Phase.CLOSING, commit=commit), (commit,)


def _epoch_failed(state: ProtocolState, event: e.EpochFailed) -> Decision:
    if not event.retryable:
        return _conclude(state, e.Fail(event.reason))
    return _fail(state, event.reason, event.at_ms, event.draw, tolerable=event.tolerable)


def _fail(state: ProtocolState, reason: str, at_ms: int, draw: float, *, tolerable: bool = True) -> Decision:
    """Put up with it, as often in a row as is tolerated; then ask the restart policy."""
    if tolerable and state.tolerated < state.tolerance.failures_max:
        after = replace(state, tolerated=state.tolerated + 1, commit=None)
        return _conclude(after, e.Restart(state.tolerance.delay_ms, reason, tolerated=True))
    answer = state.policy.on_failure(state.failures, at_ms, draw)
    after = replace(state, failures=(*state.failures, at_ms), tolerated=0, commit=None)
    if isinstance(answer, GiveUp):
        return _conclude(after, e.Fail(f"{reason} ({answer.reason})"))
    return _conclude(after, e.Restart(answer.delay_ms, reason))


def _conclude(state: ProtocolState, verdict: e.Restart | e.Fail) -> Decision:
    """Restart or fail, but not while a publish is in flight: two of one epoch must not run beside each other."""
    after = replace(state, verdict=verdict)
    return _execute_verdict(after) if state.publishing is None else (replace(after, phase=Phase.FAILING), ())


def _execute_verdict(state: ProtocolState) -> Decision:
    assert state.verdict is not None, "FAILING always has a verdict"
    phase = Phase.RESTARTING if isinstance(state.verdict, e.Restart) else Phase.FAILED
    return replace(state, phase=phase, verdict=None), (state.verdict,)


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
    Phase.FAILING: _execute_verdict,
}

_HANDLERS: Mapping[type[Any], Callable[[ProtocolState, Any], Decision]] = {
    e.Started: _started,
    e.InputPlanned: _input_planned,
    e.Woken: _woken,
    e.EpochDone: _epoch_done,
    e.EpochFailed: _epoch_failed,
    e.Committed: _committed,
    e.CommitLost: _commit_lost,
    e.CommitUnknown: _commit_unknown,
    e.CommitFound: _commit_found,
    e.CommitAbsent: _commit_absent,
    e.Published: _published,
    e.PublishFailed: _publish_failed,
    e.PublishFenced: _publish_fenced,
    e.StopRequested: _stop_requested,
    e.CancelRequested: _cancel_requested,
}
