"""The phases of a driver, and every move between them.

    NEW ──Started──► RECOVERING ─┐                     (no backlog: straight on)
                                 ▼
            WAITING ◄────────► PLANNING ──► RUNNING ──► HOLDING ──► COMMITTING ⇄ INSPECTING
                                 ▲              (N done, N-1 not yet published)   │
                                 └────────── Committed, publishing begins ────────┤
                                                                                  ▼
         FINISHED, SUSPENDED ◄── CLOSING ⇄ INSPECTING ◄── SETTLING  (drained or stopping: last publish)

    any failure ──► FAILING (a publish is still in flight) ──► RESTARTING ──Started──► as from NEW
                                                          └──► FAILED
    another driver's manifest ──► FENCED                any phase ──CancelRequested──► CANCELED

`MOVES` is the same picture as data: phase → event → the phases it may lead to. The protocol refuses every other move.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from millstream.checkpoint import events as e

__all__ = ["MOVES", "Phase"]


class Phase(Enum):
    """Where the driver is."""

    NEW = "nothing is known yet"
    RECOVERING = "publishing again what may not have been published"
    PLANNING = "asking the sources"
    WAITING = "no input and no timer due"
    RUNNING = "the epoch's tasks are at work"
    HOLDING = "the epoch is done, the one before it is not published yet"
    COMMITTING = "writing the epoch's manifest"
    INSPECTING = "the store failed while writing: looking whether the manifest stands"
    SETTLING = "nothing more to run, waiting for the last epoch to be published"
    CLOSING = "writing the closing manifest"
    FAILING = "failed, waiting for the publish in flight to end"
    RESTARTING = "pausing before reading the newest manifest again"
    FINISHED = "all input processed, all output published"
    SUSPENDED = "stopped on request, can be resumed"
    CANCELED = "aborted on request"
    FAILED = "failed, and the restart strategy gave up"
    FENCED = "another driver owns the job"

    @property
    def is_last(self) -> bool:
        """Whether the driver ends here.

        >>> Phase.FENCED.is_last, Phase.RUNNING.is_last
        (True, False)
        """
        return self in _LAST


_LAST = frozenset({Phase.FINISHED, Phase.SUSPENDED, Phase.CANCELED, Phase.FAILED, Phase.FENCED})

_STARTED = {Phase.RECOVERING, Phase.PLANNING, Phase.CLOSING, Phase.SUSPENDED, Phase.FINISHED}
_ENDED = {Phase.RESTARTING, Phase.FAILED}
_FAILED = {Phase.FAILING, *_ENDED}

_Moves = Mapping[type[Any], set[Phase]]


def _beside(phase: Phase, published: set[Phase] | None = None) -> _Moves:
    """The moves of a phase beside which a publish may be in flight."""
    return {
        e.Published: published or {phase},
        e.PublishFailed: {phase, Phase.FAILED},
        e.PublishFenced: {Phase.FENCED},
    }


def _anywhere(phase: Phase) -> _Moves:
    return {e.StopRequested: {phase}, e.CancelRequested: {Phase.CANCELED}, e.Woken: {phase}}


_OWN: Mapping[Phase, _Moves] = {
    Phase.NEW: {e.Started: _STARTED, e.EpochFailed: _ENDED},
    Phase.RECOVERING: _beside(Phase.RECOVERING, _STARTED),
    Phase.PLANNING: {
        e.InputPlanned: {
            Phase.RUNNING,
            Phase.WAITING,
            Phase.PLANNING,
            Phase.SETTLING,
            Phase.CLOSING,
            Phase.SUSPENDED,
        },
        e.EpochFailed: _FAILED,
        **_beside(Phase.PLANNING),
    },
    Phase.WAITING: {
        e.Woken: {Phase.PLANNING},
        e.StopRequested: {Phase.PLANNING, Phase.SETTLING, Phase.CLOSING, Phase.SUSPENDED},
        e.EpochFailed: _FAILED,
        **_beside(Phase.WAITING),
    },
    Phase.RUNNING: {
        e.EpochDone: {Phase.HOLDING, Phase.COMMITTING},
        e.EpochFailed: _FAILED,
        **_beside(Phase.RUNNING),
    },
    Phase.HOLDING: _beside(Phase.HOLDING, {Phase.COMMITTING}),
    Phase.COMMITTING: {
        e.EpochFailed: _ENDED,
        e.Committed: {Phase.PLANNING, Phase.SETTLING},
        e.CommitLost: {Phase.FENCED},
        e.CommitUnknown: {Phase.INSPECTING},
    },
    Phase.INSPECTING: {
        e.CommitFound: {Phase.PLANNING, Phase.SETTLING, Phase.FINISHED, Phase.SUSPENDED, Phase.FENCED},
        e.CommitAbsent: _ENDED,
        e.CommitUnknown: _ENDED,
    },
    Phase.SETTLING: _beside(Phase.SETTLING, {Phase.CLOSING}),
    Phase.CLOSING: {
        e.Committed: {Phase.FINISHED, Phase.SUSPENDED},
        e.CommitLost: {Phase.FENCED},
        e.CommitUnknown: {Phase.INSPECTING},
    },
    Phase.FAILING: {e.Published: _ENDED, e.PublishFailed: _ENDED, e.PublishFenced: {Phase.FENCED}},
    Phase.RESTARTING: {e.Started: _STARTED, e.EpochFailed: _ENDED},
}

MOVES: Mapping[Phase, _Moves] = {phase: {} if phase.is_last else {**_anywhere(phase), **_OWN[phase]} for phase in Phase}
