"""The state of the epoch protocol, as one frozen value; and the error of an illegal move."""

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
    """The entire state of the protocol between two events.

    Many fields: the protocol is a pure function, so all its state is here, and a model can visit every state.
    """

    policy: RestartPolicy
    phase: Phase = Phase.NEW
    committed: int = 0
    """The newest epoch whose manifest is stored; 0 before the first."""
    status: Status = "RUNNING"
    """The job's status in that manifest."""
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
    """Epochs that ran ahead: acknowledged and not committed, oldest first. Those of `commit` are the first of them."""
    unavailable: bool = False
    """The store does not answer."""
    catching_up: bool = False
    """No epoch is planned until all acknowledged epochs are committed."""
    cautious: bool = False
    """Epochs that ran ahead were lost: until the next commit, nothing runs ahead."""
    verdict: e.Restart | e.Fail | None = None
    """In FAILING: the decision to execute once the commit or publish in flight and the running epoch have ended."""
    working: bool = False
    """In FAILING: an epoch is still being planned or run; its result is discarded."""
    stopping: bool = False
    draining: bool = False
    """A stop was requested that ends event time first."""
    failures: tuple[int, ...] = ()
    tolerance: Tolerance = NO_TOLERANCE
    tolerated: int = 0
    """Consecutive tolerated failures since the last commit."""
    excused: int = 0
    """Consecutive excused losses since the last commit."""
    cut_off: int = 0
    """Failures of tasks, since the last commit, to reach a store that the driver had read."""
    history: tuple[tuple[Phase, Event], ...] = ()

    @property
    def running(self) -> int:
        """The epoch being planned or run: the number after all acknowledged epochs, as they would be committed now."""
        return self.committed + bool(self.sealed) + _groups(self.acknowledged[self.sealed :]) + 1

    @property
    def sealed(self) -> int:
        """The number of acknowledged epochs in the commit in flight."""
        return self.commit.steps if self.commit is not None and self.acknowledged else 0

    @property
    def runs_ahead(self) -> bool:
        """Whether epochs may run ahead."""
        return self.bounds.epochs_max > 0

    @property
    def has_ended(self) -> bool:
        """Whether the last input is committed or acknowledged."""
        return self.status == "DRAINED" or any(epoch.final for epoch in self.acknowledged)


def _groups(acknowledged: tuple[Acknowledged, ...]) -> int:
    """The number of commits that these epochs will be combined into."""
    return sum(1 for number, epoch in enumerate(acknowledged) if not (number and epoch.joins))


Decision = tuple[ProtocolState, tuple[Action, ...]]
"""The state after an event, and the actions."""


class IllegalMoveError(MillstreamError):
    """The driver reported an event that is illegal in this phase; a fault in Millstream, with its history."""

    def __init__(self, state: ProtocolState, event: Event, problem: str = "cannot happen") -> None:
        history = (*state.history, (state.phase, event))
        steps = "\n".join(f"  {phase.name:<10} {step}" for phase, step in history)
        super().__init__(
            f"Epoch protocol: {type(event).__name__} {problem} in phase {state.phase.name} "
            f"(committed {state.committed}, published {state.published}). "
            f"This is a fault in Millstream; nothing was committed by it. Report it with these steps:\n{steps}"
        )
