"""The vocabulary of the epoch protocol: what can happen (events), and what the driver is told to do (actions).

Every action but the last ones is answered by an event:

    Publish           → Published, PublishFailed, PublishFenced    runs beside everything else
    PlanInput         → InputPlanned, EpochFailed, CommitsAwaited
    WaitForInput      → Woken, EpochFailed
    RunEpoch          → EpochDone, EpochFailed
    Commit            → Committed, CommitLost, CommitUnknown; EpochFailed when there is no manifest to write
                      → Committed, CommitLost, CommitFailed    beside the next epochs, where they run ahead
    AbandonCommit     → what its Commit is answered with, soon
    InspectCommit     → CommitFound, CommitAbsent, CommitUnknown
    Restart           → Started, EpochFailed               wait, read the newest manifest, forget everything else
    Finish, Suspend, Cancel, Fail, StopFenced              the last: nothing follows
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from millstream.checkpoint.manifest import Manifest, Status

__all__ = [
    "AbandonCommit",
    "Action",
    "Cancel",
    "CancelRequested",
    "Commit",
    "CommitAbsent",
    "CommitFailed",
    "CommitFound",
    "CommitLost",
    "CommitUnknown",
    "CommitsAwaited",
    "Committed",
    "EpochDone",
    "EpochFailed",
    "Event",
    "Excuse",
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
    "StoreAway",
    "StoreBack",
    "Suspend",
    "WaitForInput",
    "Woken",
]


Excuse: TypeAlias = Literal["away", "lost", "full"] | None
"""Why a failure of a job that runs ahead is not the job's: the store is away, or files of acknowledged epochs are lost,
with the machine that was to bring them to the store."""


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
class CommitsAwaited:
    """What is to be planned next (another parallelism) needs every acknowledged epoch to be committed first."""


@dataclass(frozen=True)
class EpochDone:
    """Every task of the running epoch has acknowledged; its output is staged and durable.

    Where epochs run ahead it may lie on the machines' own disks, on its way to the store: `bytes` of it, acknowledged
    at `at_ms`. `joins`: it may be committed as one with the epoch before, if that is not being committed yet."""

    bytes: int = 0
    at_ms: int = 0
    joins: bool = False


@dataclass(frozen=True)
class EpochFailed:
    """Planning, waiting, running, making the manifest or starting failed at `at_ms`; `draw` is a random number in
    [0, 1). `tolerable`: it may pass as a failed checkpoint; a failure of the user's code may not. `excuse`: what it is
    to be put down to, if not to the job."""

    reason: str
    retryable: bool
    at_ms: int
    draw: float = 0.5
    tolerable: bool = True
    excuse: Excuse = None


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
    excuse: Excuse = "away"


@dataclass(frozen=True)
class CommitFailed:
    """A commit beside running epochs is given up, and not tried again. Whether its manifest stands is not known, if it
    was being written; the next start finds out."""

    reason: str
    at_ms: int
    draw: float = 0.5
    retryable: bool = True
    excuse: Excuse = None


@dataclass(frozen=True)
class StoreAway:
    """The store does not answer. The commit at hand goes on trying."""


@dataclass(frozen=True)
class StoreBack:
    """The store answers again."""


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
    excuse: Excuse = None


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
    | CommitsAwaited
    | EpochDone
    | EpochFailed
    | Committed
    | CommitLost
    | CommitUnknown
    | CommitFound
    | CommitAbsent
    | CommitFailed
    | StoreAway
    | StoreBack
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
    positions and carries no output. `steps`: so many acknowledged epochs become this one, the oldest; every file that
    they name must be in the store first."""

    epoch: int
    published_through: int
    status: Status
    steps: int = 1


@dataclass(frozen=True)
class AbandonCommit:
    """Wait no longer for what the commit at hand waits for: the job fails."""


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
    | AbandonCommit
    | InspectCommit
    | Restart
    | Finish
    | Suspend
    | Cancel
    | Fail
    | StopFenced
)
