"""What ran ahead, as the driver has it in memory: acknowledged epochs, and what they become when they are committed.

The next epoch starts from the newest of them (`tip`). Epochs that are acknowledged while another is committed and
published become one manifest: its positions, states and times are those of the last one, its counts are of all of them,
and each sink is asked once what to publish of all that they staged, in their order, as it is for the rounds of a loop.

Nothing of this is stored, and after a failure nothing of it is believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from millstream.checkpoint.manifest import Manifest
from millstream.connectors.contracts import Sink
from millstream.jobs.epochs.epoch_statistics import EpochTimes, PastEpoch, with_statistics
from millstream.jobs.epochs.input_plan import InputPlan
from millstream.jobs.epochs.outcome import EpochOutcome, TaskAccount, added
from millstream.metrics.registry import merge

__all__ = ["AcknowledgedEpochs", "PendingCommit", "joined_outcome"]


@dataclass(frozen=True)
class PendingCommit:
    """What is committed as one: `steps` epochs behind `parent`. `manifest` is all of it but for the statistics.
    `outcome` is of all steps, but for where sources and states stand: there it is the last one's."""

    parent: Manifest | None
    manifest: Manifest
    planned: InputPlan
    outcome: EpochOutcome
    times: EpochTimes
    in_bytes: int
    bytes: int
    steps: int = 1

    def with_statistics(self, before: PastEpoch | None, sinks: Mapping[str, Sink]) -> Manifest:
        """The manifest as it is committed. `before`: what became of the commit before it."""
        times = replace(self.times, before=before)
        manifest = with_statistics(self.manifest, self.parent, times, self.outcome, self.planned, sinks)
        if self.steps == 1:
            return manifest
        counters: Any = manifest.counters
        statistics = {**counters["epoch"], "in_bytes": self.in_bytes, "steps": self.steps}
        return manifest.with_counters({**counters, "epoch": statistics})

    def followed_by(self, step: PendingCommit) -> PendingCommit:
        """This and one more epoch; `step.manifest` is of both already."""
        first, then = self.times, step.times
        times = replace(
            then,
            trigger_ms=first.trigger_ms,
            duration_ms=first.duration_ms + then.duration_ms,
            run_ms=first.run_ms + then.run_ms,
            failures=first.failures + then.failures,
            requests=first.requests + then.requests,
        )
        return replace(
            step,
            parent=self.parent,
            outcome=joined_outcome(self.outcome, step.outcome),
            times=times,
            in_bytes=self.in_bytes + step.in_bytes,
            bytes=self.bytes + step.bytes,
            steps=self.steps + 1,
        )


@dataclass(frozen=True)
class AcknowledgedEpochs:
    """Where the job stands at one moment: the newest manifest, and what is acknowledged and not committed, oldest
    first. `sealed`: the first of that is being committed, and nothing joins it any more.

    Frozen: while the driver's loop takes note of a commit, another thread asks what the next epoch follows. Were the
    two parts changed one after the other, it could find neither the epoch nor its manifest, and read input twice.
    """

    newest: Manifest | None = None
    pending: tuple[PendingCommit, ...] = ()
    sealed: bool = False

    def __len__(self) -> int:
        """How many epochs are ahead."""
        return sum(commit.steps for commit in self.pending)

    @property
    def bytes(self) -> int:
        """About how many bytes they have written and read."""
        return sum(commit.bytes for commit in self.pending)

    @property
    def tip(self) -> Manifest | None:
        """The manifest that the next epoch follows: that of the newest acknowledged one, else the newest there is."""
        return self.pending[-1].manifest if self.pending else self.newest

    @property
    def joinable(self) -> PendingCommit | None:
        """What another epoch may become one with; None: it begins a commit of its own."""
        return self.pending[-1] if len(self.pending) > self.sealed else None

    def followed_by(self, step: PendingCommit, *, joins: bool) -> AcknowledgedEpochs:
        """This and one more epoch, which `joins` the one before it or begins a commit of its own."""
        if not joins:
            return replace(self, pending=(*self.pending, step))
        return replace(self, pending=(*self.pending[:-1], self.pending[-1].followed_by(step)))

    def seal(self) -> AcknowledgedEpochs:
        """The oldest is to be committed."""
        return replace(self, sealed=True)

    def committed(self, manifest: Manifest) -> AcknowledgedEpochs:
        """The sealed one stands, as `manifest`."""
        return AcknowledgedEpochs(manifest, self.pending[1:])


def joined_outcome(first: EpochOutcome, then: EpochOutcome) -> EpochOutcome:
    """The outcome of epochs and one more: where the last one stands, output and counts of all. Tasks are added up, so
    that it stays as large as one epoch's, but for what is staged."""
    staged = {uid: list(items) for uid, items in first.staged.items()}
    for uid, items in then.staged.items():
        staged.setdefault(uid, []).extend(items)
    tasks = {(task.stage, task.subtask): task for task in first.tasks}
    for task in then.tasks:
        place = task.stage, task.subtask
        tasks[place] = _added_tasks(tasks[place], task) if place in tasks else task
    return replace(
        then,
        staged=staged,
        operators={uid: added(first.operators.get(uid, {}), counts) for uid, counts in then.operators.items()},
        metrics=merge(first.metrics, then.metrics),
        output=[],
        tasks=list(tasks.values()),
    )


def _added_tasks(first: TaskAccount, then: TaskAccount) -> TaskAccount:
    return replace(
        then,
        took_ns=first.took_ns + then.took_ns,
        alignment_ns=first.alignment_ns + then.alignment_ns,
        operators={uid: added(first.operators.get(uid, {}), counts) for uid, counts in then.operators.items()},
        requests=first.requests + then.requests,
    )
