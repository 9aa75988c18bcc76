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

where epochs run ahead, commits and publishes take turns beside the phases, and COMMITTING is never entered:

            WAITING ◄────────► PLANNING ──► RUNNING ──EpochDone──► PLANNING (acknowledged: as far as the bounds allow)
                                   ▲                     ├───────► HOLDING  (no further) ──Committed──► PLANNING
                                   └─────────────────────┘         SETTLING (last input, or stopping) ──► CLOSING
      beside:   ──► Commit of all that is acknowledged ──Committed──► Publish ──Published──► Commit … ──►

    another driver's manifest ──► FENCED                any phase ──CancelRequested──► CANCELED

`MOVES` is the first picture as data: phase → event → the phases it may lead to. The protocol refuses every other move.
`AHEAD_MOVES` are those of a driver whose epochs run ahead.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from millstream.checkpoint import events as e

__all__ = ["AHEAD_MOVES", "MOVES", "Phase"]


class Phase(Enum):
    """Where the driver is."""

    NEW = "nothing is known yet"
    RECOVERING = "publishing again what may not have been published"
    PLANNING = "asking the sources"
    WAITING = "no input and no timer due"
    RUNNING = "the epoch's tasks are at work"
    HOLDING = "the epoch is done, the one before it is not published yet, or too much is ahead"
    COMMITTING = "writing the epoch's manifest"
    INSPECTING = "the store failed while writing: looking whether the manifest stands"
    SETTLING = "nothing more to run, waiting for the last epochs to be committed and published"
    CLOSING = "writing the closing manifest"
    FAILING = "failed, waiting for what is in flight to end"
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


# --- where epochs run ahead ---------------------------------------------------------------------------------

_NEXT = {Phase.PLANNING, Phase.HOLDING, Phase.SETTLING, Phase.CLOSING, Phase.SUSPENDED}


def _ahead(phase: Phase, committed: set[Phase] | None = None, failed: set[Phase] | None = None) -> _Moves:
    """The moves of a phase beside which a commit may be in flight."""
    return {e.Committed: committed or {phase}, e.CommitLost: {Phase.FENCED}, e.CommitFailed: failed or _ENDED}


_AHEAD: Mapping[Phase, _Moves] = {
    Phase.PLANNING: {
        e.InputPlanned: {Phase.RUNNING, Phase.WAITING, *_NEXT},
        e.CommitsAwaited: _NEXT,
        **_ahead(Phase.PLANNING, failed={Phase.FAILING}),
    },
    Phase.WAITING: {
        e.Woken: {Phase.PLANNING, Phase.HOLDING},
        e.StopRequested: _NEXT,
        **_ahead(Phase.WAITING),
    },
    Phase.RUNNING: {
        e.EpochDone: {Phase.HOLDING, Phase.PLANNING, Phase.SETTLING},
        **_ahead(Phase.RUNNING, failed={Phase.FAILING}),
    },
    Phase.HOLDING: {
        e.Published: {Phase.HOLDING},
        e.StoreAway: {Phase.HOLDING, Phase.PLANNING, Phase.SETTLING},
        **_ahead(Phase.HOLDING, {Phase.PLANNING, Phase.HOLDING, Phase.SETTLING}),
    },
    Phase.SETTLING: {e.Published: {Phase.CLOSING, Phase.SETTLING}, **_ahead(Phase.SETTLING)},
    Phase.INSPECTING: {
        e.CommitFound: {Phase.FINISHED, Phase.SUSPENDED, Phase.FENCED},
        e.CommitUnknown: {Phase.RESTARTING},
    },
    Phase.FAILING: {
        **dict.fromkeys((e.Committed, e.CommitFailed), _ENDED),
        **dict.fromkeys((e.InputPlanned, e.CommitsAwaited, e.EpochDone, e.EpochFailed), _ENDED),
        e.CommitLost: {Phase.FENCED},
    },
}

AHEAD_MOVES: Mapping[Phase, _Moves] = {
    phase: {}
    if phase.is_last
    else {e.StoreAway: {phase}, e.StoreBack: {phase}, **MOVES[phase], **_AHEAD.get(phase, {})}
    for phase in Phase
    if phase is not Phase.COMMITTING
}
