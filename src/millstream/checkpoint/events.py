"""The vocabulary of the epoch protocol: what can happen (events), and what the driver is told to do (actions).

Every action but the last ones is answered by an event:

    Publish           → Published, PublishFailed, PublishFenced    runs beside everything else
    PlanInput         → InputPlanned, EpochFailed
    WaitForInput      → Woken, EpochFailed
    RunEpoch          → EpochDone, EpochFailed
    Commit            → Committed, CommitLost, CommitUnknown; EpochFailed when there is no manifest to write
    InspectCommit     → CommitFound, CommitAbsent, CommitUnknown
    Restart           → Started, EpochFailed               wait, read the newest manifest, forget everything else
    Finish, Suspend, Cancel, Fail, StopFenced              the last: nothing follows
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from millstream.checkpoint.manifest import Manifest, Status

__all__ = [
    "Action",
    "Cancel",
    "CancelRequested",
    "Commit",
    "CommitAbsent",
    "CommitFound",
    "CommitLost",
    "CommitUnknown",
    "Committed",
    "EpochDone",
    "EpochFailed",
    "Event",
    "Fail",
    "Finish",
    "InputPlanned",
    "InspectCommit",
    "ManifestSummary",
    "PlanInput",
    "Publish",
    "PublishFailed",
    "PublishFenced",
    "Published",
    "Restart",
    "RunEpoch",
    "Started",
    "StopFenced",
    "StopRequested",
    "Suspend",
    "WaitForInput",
    "Woken",
]


@dataclass(frozen=True)
class ManifestSummary:
    """What the protocol needs to know of a manifest."""

    epoch: int
    published_through: int
    status: Status

    @staticmethod
    def of(manifest: Manifest) -> ManifestSummary:
        return ManifestSummary(manifest.epoch, manifest.published_through, manifest.status)


# --- events -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """The driver has read the newest manifest (None in an empty store) and knows nothing else, but for the newest epoch
    that has a receipt of publishing (0: none has)."""

    newest: ManifestSummary | None
    receipted: int = 0


@dataclass(frozen=True)
class InputPlanned:
    """The sources were asked. `has_input`: there is a range to read or a timer due. `exhausted`: after this
    range, nothing will ever come. `drains`: nothing is to be read any more, on request."""

    has_input: bool
    exhausted: bool
    drains: bool = False


@dataclass(frozen=True)
class EpochDone:
    """Every task of the running epoch has acknowledged; its output is staged and durable."""


@dataclass(frozen=True)
class EpochFailed:
    """Planning, waiting, running, making the manifest or starting failed at `at_ms`; `draw` is a random number in
    [0, 1). `tolerable`: it may pass as a failed checkpoint; a failure of the user's code may not."""

    reason: str
    retryable: bool
    at_ms: int
    draw: float = 0.5
    tolerable: bool = True


@dataclass(frozen=True)
class Committed:
    """This driver's manifest stands."""


@dataclass(frozen=True)
class CommitLost:
    """Another driver has committed that epoch."""


@dataclass(frozen=True)
class CommitUnknown:
    """The store failed: the manifest may be there or not."""

    reason: str
    at_ms: int
    draw: float = 0.5


@dataclass(frozen=True)
class CommitFound:
    """A manifest stands under that epoch. `mine`: it is, byte for byte, the one this driver tried to write."""

    mine: bool


@dataclass(frozen=True)
class CommitAbsent:
    """No manifest stands under that epoch. `retryable`: the store may take it another time; it did not refuse it."""

    at_ms: int
    draw: float = 0.5
    retryable: bool = True


@dataclass(frozen=True)
class Published:
    """Every sink has published what the manifest of `epoch` lists."""

    epoch: int


@dataclass(frozen=True)
class PublishFailed:
    """A sink failed; part of `epoch` may be published. `retryable`: it may succeed another time, as damage does not."""

    epoch: int
    reason: str
    at_ms: int
    draw: float = 0.5
    retryable: bool = True


@dataclass(frozen=True)
class PublishFenced:
    """`epoch` was not published, or not all of it: another driver has committed the epoch `newer` since."""

    epoch: int
    newer: int


@dataclass(frozen=True)
class StopRequested:
    """Finish the running epoch, publish it, record the stop, and end; the job can be resumed. `drain`: read nothing
    more, end event time so that what is pending comes out, and finish for good."""

    drain: bool = False


@dataclass(frozen=True)
class CancelRequested:
    """End now. What is committed stays committed; the next start publishes it."""


@dataclass(frozen=True)
class Woken:
    """There may be input, or a timer may be due."""


Event: TypeAlias = (
    Started
    | InputPlanned
    | EpochDone
    | EpochFailed
    | Committed
    | CommitLost
    | CommitUnknown
    | CommitFound
    | CommitAbsent
    | Published
    | PublishFailed
    | PublishFenced
    | StopRequested
    | CancelRequested
    | Woken
)


# --- actions ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Publish:
    """Wait `delay_ms`, then have every sink publish what the manifest of `epoch` lists. Must be repeatable."""

    epoch: int
    delay_ms: int = 0


@dataclass(frozen=True)
class PlanInput:
    """Ask every source how far it can be read in `epoch`. `drains`: not at all, the job is to end."""

    epoch: int
    drains: bool = False


@dataclass(frozen=True)
class WaitForInput:
    """Nothing to do until a source has more or a timer is due."""


@dataclass(frozen=True)
class RunEpoch:
    """Run the planned ranges as `epoch`. `final`: end with the maximum watermark, nothing will follow."""

    epoch: int
    final: bool


@dataclass(frozen=True)
class Commit:
    """Create the manifest of `epoch` if nobody has. A closing one (FINISHED, SUSPENDED) repeats its parent's
    positions and carries no output."""

    epoch: int
    published_through: int
    status: Status


@dataclass(frozen=True)
class InspectCommit:
    """Find out who, if anybody, has written the manifest of `epoch` (`ManifestLog.find`)."""

    epoch: int


@dataclass(frozen=True)
class Restart:
    """Wait `delay_ms`, forget everything, begin another run, and read the newest manifest. `tolerated`: the failure is
    one that the job tolerates, and does not count as a restart."""

    delay_ms: int
    reason: str
    tolerated: bool = False


@dataclass(frozen=True)
class Finish:
    """All input is processed and all output published."""


@dataclass(frozen=True)
class Suspend:
    """Stopped on request, everything published."""


@dataclass(frozen=True)
class Cancel:
    """Abort what is running and end."""


@dataclass(frozen=True)
class Fail:
    """Abort what is running and report."""

    reason: str


@dataclass(frozen=True)
class StopFenced:
    """Another driver owns the job. Publish nothing, write nothing, end."""

    epoch: int


Action: TypeAlias = (
    Publish
    | PlanInput
    | WaitForInput
    | RunEpoch
    | Commit
    | InspectCommit
    | Restart
    | Finish
    | Suspend
    | Cancel
    | Fail
    | StopFenced
)
