"""The vocabulary of the epoch protocol: the events it receives, and the actions it requests of the driver.

Every action but the last ones is answered by an event:

    Publish           → Published, PublishFailed, PublishFenced    runs concurrently with everything else
    PlanInput         → InputPlanned, EpochFailed, CommitsAwaited
    WaitForInput      → Woken, EpochFailed
    RunEpoch          → EpochDone, EpochFailed
    Commit            → Committed, CommitLost, CommitUnknown; EpochFailed if no manifest can be made
                      → Committed, CommitLost, CommitFailed    concurrently with the next epochs, if they run ahead
    AbandonCommit     → the answer of its Commit, soon
    InspectCommit     → CommitExists, CommitAbsent, CommitUnknown
    Restart           → Started, EpochFailed               waits, discards the state, reads the newest manifest
    Finish, Suspend, Cancel, Fail, StopFenced              terminal
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
    "CommitExists",
    "CommitFailed",
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
    "StoreAvailable",
    "StoreUnavailable",
    "Suspend",
    "WaitForInput",
    "Woken",
]


Excuse: TypeAlias = Literal["away", "lost", "full"] | None
"""Why a failure of a job that runs ahead is not caused by the job: the store is unavailable, files of acknowledged
epochs are lost with the machine that was to upload them, or the disk is full."""


@dataclass(frozen=True)
class ManifestSummary:
    """The protocol's view of a manifest."""

    epoch: int
    published_through: int
    status: Status

    @staticmethod
    def of(manifest: Manifest) -> ManifestSummary:
        return ManifestSummary(manifest.epoch, manifest.published_through, manifest.status)


# --- events -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """The driver has read the newest manifest (None in an empty store), and knows the newest epoch with a receipt of
    publishing (0: none)."""

    newest: ManifestSummary | None
    receipted: int = 0


@dataclass(frozen=True)
class InputPlanned:
    """The sources were queried. `has_input`: a range can be read or a timer is due. `exhausted`: this is the last
    input. `drains`: by request, nothing more is read."""

    has_input: bool
    exhausted: bool
    drains: bool = False


@dataclass(frozen=True)
class CommitsAwaited:
    """The next plan (another parallelism) requires that every acknowledged epoch is committed first."""


@dataclass(frozen=True)
class EpochDone:
    """Every task of the running epoch has acknowledged; its output is staged and durable.

    Where epochs run ahead, `bytes` of it may still be on the machines' own disks, to be uploaded. It was acknowledged
    at `at_ms`. `joins`: it may be committed together with the previous epoch, if that commit has not begun."""

    bytes: int = 0
    at_ms: int = 0
    joins: bool = False


@dataclass(frozen=True)
class EpochFailed:
    """Planning, waiting, running, making the manifest or starting failed at `at_ms`; `draw` is a random number in
    [0, 1). `tolerable`: it may count as a failed checkpoint; a failure of user code may not. `excuse`: the external
    cause, if any."""

    reason: str
    retryable: bool
    at_ms: int
    draw: float = 0.5
    tolerable: bool = True
    excuse: Excuse = None


@dataclass(frozen=True)
class Committed:
    """This driver's manifest is stored."""


@dataclass(frozen=True)
class CommitLost:
    """Another driver has committed that epoch."""


@dataclass(frozen=True)
class CommitUnknown:
    """The store failed: it is unknown whether the manifest exists."""

    reason: str
    at_ms: int
    draw: float = 0.5


@dataclass(frozen=True)
class CommitExists:
    """A manifest of that epoch exists. `is_own`: it is, byte for byte, the one this driver tried to write."""

    is_own: bool


@dataclass(frozen=True)
class CommitAbsent:
    """No manifest of that epoch exists. `retryable`: the store may accept it later; it did not reject it."""

    at_ms: int
    draw: float = 0.5
    retryable: bool = True
    excuse: Excuse = "away"


@dataclass(frozen=True)
class CommitFailed:
    """A concurrent commit failed and is not retried. If its manifest was being written, it may or may not exist; the
    next start determines that."""

    reason: str
    at_ms: int
    draw: float = 0.5
    retryable: bool = True
    excuse: Excuse = None


@dataclass(frozen=True)
class StoreUnavailable:
    """The store does not answer. The current commit keeps retrying."""


@dataclass(frozen=True)
class StoreAvailable:
    """The store answers again."""


@dataclass(frozen=True)
class Published:
    """Every sink has published the output listed in the manifest of `epoch`."""

    epoch: int


@dataclass(frozen=True)
class PublishFailed:
    """A sink failed; part of `epoch` may be published. `retryable`: another try may succeed; damage is permanent."""

    epoch: int
    reason: str
    at_ms: int
    draw: float = 0.5
    retryable: bool = True
    excuse: Excuse = None


@dataclass(frozen=True)
class PublishFenced:
    """`epoch` was not published completely: another driver has committed the epoch `newer`."""

    epoch: int
    newer: int


@dataclass(frozen=True)
class StopRequested:
    """Finish the running epoch, publish it, record the stop, and end; the job can be resumed. `drain`: read no more
    input, advance event time to its end so that pending results are emitted, and finish permanently."""

    drain: bool = False


@dataclass(frozen=True)
class CancelRequested:
    """End now. Committed epochs remain; the next start publishes them."""


@dataclass(frozen=True)
class Woken:
    """Input may be available, or a timer may be due."""


Event: TypeAlias = (
    Started
    | InputPlanned
    | CommitsAwaited
    | EpochDone
    | EpochFailed
    | Committed
    | CommitLost
    | CommitUnknown
    | CommitExists
    | CommitAbsent
    | CommitFailed
    | StoreUnavailable
    | StoreAvailable
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
    """Wait `delay_ms`, then publish the output listed in the manifest of `epoch`, in every sink. Must be repeatable."""

    epoch: int
    delay_ms: int = 0


@dataclass(frozen=True)
class PlanInput:
    """Query every source for how far it can be read in `epoch`. `drains`: read nothing, because the job ends."""

    epoch: int
    drains: bool = False


@dataclass(frozen=True)
class WaitForInput:
    """Wait until a source has more input or a timer is due."""


@dataclass(frozen=True)
class RunEpoch:
    """Run the planned ranges as `epoch`. `final`: end with the maximum watermark, because no epoch follows."""

    """Run the planned ranges as `epoch`. `final`: end with the maximum watermark; this is the last epoch."""
    epoch: int
    final: bool


@dataclass(frozen=True)
class Commit:
    """Create the manifest of `epoch` if it does not exist. A closing one (FINISHED, SUSPENDED) repeats its parent's
    positions and has no output. `steps`: number of acknowledged epochs to combine in it, oldest first; every file they
    name must be in the store first."""

    epoch: int
    published_through: int
    status: Status
    steps: int = 1


@dataclass(frozen=True)
class AbandonCommit:
    """Stop waiting in the current commit: the job fails."""


@dataclass(frozen=True)
class InspectCommit:
    """Determine who, if anybody, has written the manifest of `epoch` (`ManifestLog.find`)."""

    epoch: int


@dataclass(frozen=True)
class Restart:
    """Wait `delay_ms`, discard all state, begin another run, and read the newest manifest. `tolerated`: the job
    tolerates the failure, and it does not count as a restart."""

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
    """Abort running work and end."""


@dataclass(frozen=True)
class Fail:
    """Abort running work and report."""

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
