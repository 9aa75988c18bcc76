"""Acknowledged epochs that are not committed yet, in the driver's memory, and the manifests they are merged into.

The next epoch starts from the newest of them (`tip`). Epochs that are acknowledged while another is committed and
published are merged into one manifest: its positions, states and times are those of the last epoch, its counts cover
all of them, and each sink decides once how to publish everything they staged, in their order, as it does for the rounds
of a loop.

All of this is in memory only; a restart discards it.
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
    """Epochs committed as one: `steps` epochs after `parent`. `manifest` is complete except for the statistics.
    `outcome` covers all steps; positions and states are the last one's."""

    parent: Manifest | None
    manifest: Manifest
    planned: InputPlan
    outcome: EpochOutcome
    times: EpochTimes
    in_bytes: int
    bytes: int
    steps: int = 1

    def with_statistics(self, before: PastEpoch | None, sinks: Mapping[str, Sink]) -> Manifest:
        """The manifest to commit. `before` holds the times of the previous commit."""
        times = replace(self.times, before=before)
        manifest = with_statistics(self.manifest, self.parent, times, self.outcome, self.planned, sinks)
        if self.steps == 1:
            return manifest
        counters: Any = manifest.counters
        statistics = {**counters["epoch"], "in_bytes": self.in_bytes, "steps": self.steps}
        return manifest.with_counters({**counters, "epoch": statistics})

    def followed_by(self, step: PendingCommit) -> PendingCommit:
        """Merges one more epoch into this commit; `step.manifest` already covers both."""
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
    """A snapshot of the job: the newest manifest and the pending commits, oldest first. `sealed`: the first of them is
    being committed, and no further epoch may join it.

    Immutable: while the driver's loop records a commit, another thread reads which epoch the next one follows. If the
    two parts changed separately, that thread could see neither the epoch nor its manifest, and read input twice.
    """

    newest: Manifest | None = None
    pending: tuple[PendingCommit, ...] = ()
    sealed: bool = False

    def __len__(self) -> int:
        """The number of acknowledged epochs that are not committed."""
        return sum(commit.steps for commit in self.pending)

    @property
    def bytes(self) -> int:
        """The approximate number of bytes that they have written and read."""
        return sum(commit.bytes for commit in self.pending)

    @property
    def tip(self) -> Manifest | None:
        """The manifest that the next epoch follows: the newest acknowledged one, else the newest committed one."""
        return self.pending[-1].manifest if self.pending else self.newest

    @property
    def joinable(self) -> PendingCommit | None:
        """The commit that another epoch may join; None: the epoch begins a new commit."""
        return self.pending[-1] if len(self.pending) > self.sealed else None

    def followed_by(self, step: PendingCommit, *, joins: bool) -> AcknowledgedEpochs:
        """Appends an epoch: it `joins` the newest pending commit, or begins a new one."""
        if not joins:
            return replace(self, pending=(*self.pending, step))
        return replace(self, pending=(*self.pending[:-1], self.pending[-1].followed_by(step)))

    def seal(self) -> AcknowledgedEpochs:
        """Marks the oldest commit as in progress."""
        return replace(self, sealed=True)

    def committed(self, manifest: Manifest) -> AcknowledgedEpochs:
        """Replaces the sealed commit by its `manifest`."""
        return AcknowledgedEpochs(manifest, self.pending[1:])


def joined_outcome(first: EpochOutcome, then: EpochOutcome) -> EpochOutcome:
    """Merges the outcomes of consecutive epochs: positions of the last one, output and counts of all. Tasks are summed,
    so only the staged output grows with the number of epochs."""
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
        elapsed_ns=first.elapsed_ns + then.elapsed_ns,
        alignment_ns=first.alignment_ns + then.alignment_ns,
        operators={uid: added(first.operators.get(uid, {}), counts) for uid, counts in then.operators.items()},
        requests=first.requests + then.requests,
    )
