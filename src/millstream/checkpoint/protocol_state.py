"""All that the epoch protocol remembers, as one frozen value; and the error of a move that cannot be."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.checkpoint import events as e
from millstream.checkpoint.ahead import NOT_AHEAD, Acknowledged, AheadBounds
from millstream.checkpoint.events import Action, Event
from millstream.checkpoint.manifest import Status
from millstream.checkpoint.phases import Phase
from millstream.checkpoint.restart import NO_TOLERANCE, RestartPolicy, Tolerance
from millstream.errors import MillstreamError

__all__ = ["Decision", "IllegalMoveError", "ProtocolState"]


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
    bounds: AheadBounds = NOT_AHEAD
    acknowledged: tuple[Acknowledged, ...] = ()
    """What ran ahead: acknowledged and not committed, oldest first. Those of `commit` are the first of them."""
    away: bool = False
    """The store does not answer."""
    catching_up: bool = False
    """Nothing is planned until all that was acknowledged is committed."""
    cautious: bool = False
    """What ran ahead was lost once: until something is committed, nothing runs ahead."""
    verdict: e.Restart | e.Fail | None = None
    """In FAILING: what happens once the commit or publish in flight and the running epoch have ended."""
    working: bool = False
    """In FAILING: an epoch is still being planned or run; what comes of it counts no more."""
    stopping: bool = False
    draining: bool = False
    """A stop was asked for that ends event time first."""
    failures: tuple[int, ...] = ()
    tolerance: Tolerance = NO_TOLERANCE
    tolerated: int = 0
    """How many failures in a row have been put up with since the last commit."""
    excused: int = 0
    """How many losses in a row have been excused since the last commit."""
    cut_off: int = 0
    """How often since the last commit tasks have missed a store that the driver had read."""
    history: tuple[tuple[Phase, Event], ...] = ()

    @property
    def running(self) -> int:
        """The epoch being planned or run: the one behind all that was acknowledged, as it would be committed now."""
        return self.committed + bool(self.sealed) + _groups(self.acknowledged[self.sealed :]) + 1

    @property
    def sealed(self) -> int:
        """How many of the acknowledged epochs are in the commit in flight."""
        return self.commit.steps if self.commit is not None and self.acknowledged else 0

    @property
    def runs_ahead(self) -> bool:
        """Whether epochs may run ahead at all."""
        return self.bounds.epochs_max > 0

    @property
    def has_ended(self) -> bool:
        """Whether the last input is in, committed or only acknowledged."""
        return self.status == "DRAINED" or any(epoch.final for epoch in self.acknowledged)


def _groups(acknowledged: tuple[Acknowledged, ...]) -> int:
    """How many commits these epochs become."""
    return sum(1 for number, epoch in enumerate(acknowledged) if not (number and epoch.joins))


Decision = tuple[ProtocolState, tuple[Action, ...]]
"""The state after an event, and what to do."""


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
