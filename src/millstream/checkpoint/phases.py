"""The phases of a driver, and every transition between them.

    NEW ──Started──► RECOVERING ─┐                     (no backlog: directly)
                                 ▼
            WAITING ◄────────► PLANNING ──► RUNNING ──► HOLDING ──► COMMITTING ⇄ INSPECTING
                                 ▲              (N done, N-1 not yet published)   │
                                 └────────── Committed, publishing begins ────────┤
                                                                                  ▼
         FINISHED, SUSPENDED ◄── CLOSING ⇄ INSPECTING ◄── SETTLING  (drained or stopping: last publish)

    any failure ──► FAILING (a publish is still in flight) ──► RESTARTING ──Started──► as from NEW
                                                          └──► FAILED

where epochs run ahead, commits and publishes alternate concurrently with the phases, and COMMITTING is never entered:

            WAITING ◄────────► PLANNING ──► RUNNING ──EpochDone──► PLANNING (acknowledged: within the bounds)
                                   ▲                     ├───────► HOLDING  (no further) ──Committed──► PLANNING
                                   └─────────────────────┘         SETTLING (last input, or stopping) ──► CLOSING
    concurrent:   ──► Commit of everything acknowledged ──Committed──► Publish ──Published──► Commit … ──►

    another driver's manifest ──► FENCED                any phase ──CancelRequested──► CANCELED

`MOVES` is the first diagram as data: phase → event → possible next phases. The protocol rejects every other move.
`AHEAD_MOVES` are those of a driver whose epochs run ahead.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from millstream.checkpoint import events as e

__all__ = ["AHEAD_MOVES", "MOVES", "Phase"]


class Phase(Enum):
    """The state of the driver."""

    NEW = "nothing is known yet"
    RECOVERING = "publishing again epochs that may be unpublished"
    PLANNING = "querying the sources for input"
    WAITING = "no input and no timer due"
    RUNNING = "the epoch's tasks are running"
    HOLDING = "the epoch is done; the previous one is not published yet, or the limit on epochs ahead is reached"
    COMMITTING = "writing the epoch's manifest"
    INSPECTING = "the store failed during a write: checking whether the manifest exists"
    SETTLING = "all epochs have run; waiting for the last ones to be committed and published"
    CLOSING = "writing the closing manifest"
    FAILING = "failed, waiting for work in flight to end"
    RESTARTING = "pausing before reading the newest manifest again"
    FINISHED = "all input processed, all output published"
    SUSPENDED = "stopped on request, can be resumed"
    CANCELED = "aborted on request"
    FAILED = "failed, and the restart strategy ended the job"
    FENCED = "another driver owns the job"

    @property
    def is_last(self) -> bool:
        """Whether the phase is terminal.

        >>> Phase.FENCED.is_last, Phase.RUNNING.is_last
        (True, False)
        """
        return self in _LAST


_LAST = frozenset({Phase.FINISHED, Phase.SUSPENDED, Phase.CANCELED, Phase.FAILED, Phase.FENCED})

_STARTED = {Phase.RECOVERING, Phase.PLANNING, Phase.CLOSING, Phase.SUSPENDED, Phase.FINISHED}
_ENDED = {Phase.RESTARTING, Phase.FAILED}
_FAILED = {Phase.FAILING, *_ENDED}

_Moves = Mapping[type[Any], set[Phase]]


def _with_publish(phase: Phase, published: set[Phase] | None = None) -> _Moves:
    """The moves of a phase during which a publish may be in flight."""
    return {
        e.Published: published or {phase},
        e.PublishFailed: {phase, Phase.FAILED},
        e.PublishFenced: {Phase.FENCED},
    }


def _anywhere(phase: Phase) -> _Moves:
    return {e.StopRequested: {phase}, e.CancelRequested: {Phase.CANCELED}, e.Woken: {phase}}


_OWN: Mapping[Phase, _Moves] = {
    Phase.NEW: {e.Started: _STARTED, e.EpochFailed: _ENDED},
    Phase.RECOVERING: _with_publish(Phase.RECOVERING, _STARTED),
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
        **_with_publish(Phase.PLANNING),
    },
    Phase.WAITING: {
        e.Woken: {Phase.PLANNING},
        e.StopRequested: {Phase.PLANNING, Phase.SETTLING, Phase.CLOSING, Phase.SUSPENDED},
        e.EpochFailed: _FAILED,
        **_with_publish(Phase.WAITING),
    },
    Phase.RUNNING: {
        e.EpochDone: {Phase.HOLDING, Phase.COMMITTING},
        e.EpochFailed: _FAILED,
        **_with_publish(Phase.RUNNING),
    },
    Phase.HOLDING: _with_publish(Phase.HOLDING, {Phase.COMMITTING}),
    Phase.COMMITTING: {
        e.EpochFailed: _ENDED,
        e.Committed: {Phase.PLANNING, Phase.SETTLING},
        e.CommitLost: {Phase.FENCED},
        e.CommitUnknown: {Phase.INSPECTING},
    },
    Phase.INSPECTING: {
        e.CommitExists: {Phase.PLANNING, Phase.SETTLING, Phase.FINISHED, Phase.SUSPENDED, Phase.FENCED},
        e.CommitAbsent: _ENDED,
        e.CommitUnknown: _ENDED,
    },
    Phase.SETTLING: _with_publish(Phase.SETTLING, {Phase.CLOSING}),
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


def _with_commit(phase: Phase, committed: set[Phase] | None = None, failed: set[Phase] | None = None) -> _Moves:
    """The moves of a phase during which a commit may be in flight."""
    return {e.Committed: committed or {phase}, e.CommitLost: {Phase.FENCED}, e.CommitFailed: failed or _ENDED}


_AHEAD: Mapping[Phase, _Moves] = {
    Phase.PLANNING: {
        e.InputPlanned: {Phase.RUNNING, Phase.WAITING, *_NEXT},
        e.CommitsAwaited: _NEXT,
        **_with_commit(Phase.PLANNING, failed={Phase.FAILING}),
    },
    Phase.WAITING: {
        e.Woken: {Phase.PLANNING, Phase.HOLDING},
        e.StopRequested: _NEXT,
        **_with_commit(Phase.WAITING),
    },
    Phase.RUNNING: {
        e.EpochDone: {Phase.HOLDING, Phase.PLANNING, Phase.SETTLING},
        **_with_commit(Phase.RUNNING, failed={Phase.FAILING}),
    },
    Phase.HOLDING: {
        e.Published: {Phase.HOLDING},
        e.StoreUnavailable: {Phase.HOLDING, Phase.PLANNING, Phase.SETTLING},
        **_with_commit(Phase.HOLDING, {Phase.PLANNING, Phase.HOLDING, Phase.SETTLING}),
    },
    Phase.SETTLING: {e.Published: {Phase.CLOSING, Phase.SETTLING}, **_with_commit(Phase.SETTLING)},
    Phase.INSPECTING: {
        e.CommitExists: {Phase.FINISHED, Phase.SUSPENDED, Phase.FENCED},
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
    else {e.StoreUnavailable: {phase}, e.StoreAvailable: {phase}, **MOVES[phase], **_AHEAD.get(phase, {})}
    for phase in Phase
    if phase is not Phase.COMMITTING
}
