"""Runs the driver's epochs and commits concurrently where epochs run ahead: one thread runs epochs, another commits.

When all tasks have acknowledged an epoch, the driver makes its manifest in memory, and the next epoch follows that. An
acknowledged epoch joins the previous commit if that commit has not begun, if every sink can publish the staged output
of both in one commit, and if the job does not record its input: replays work epoch by epoch.

Where epochs do not run ahead, `work` acts immediately, `report` is the driver's own method, and nothing else is called.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

from millstream.checkpoint import events as e
from millstream.checkpoint.ahead import AheadBounds
from millstream.checkpoint.manifest import Manifest, SplitFile
from millstream.checkpoint.phases import Phase
from millstream.checkpoint.protocol_state import ProtocolState
from millstream.connectors.contracts import Sink
from millstream.errors import StoreAwayError
from millstream.jobs.clock import Clock
from millstream.jobs.epochs.acknowledged import PendingCommit
from millstream.jobs.epochs.backlog import left_behind
from millstream.jobs.epochs.committer import CommitEvent, Committer
from millstream.jobs.epochs.driver_memory import DriverMemory, Inbox
from millstream.jobs.epochs.epoch_run import Deployment
from millstream.jobs.epochs.epoch_statistics import EpochTimes, PastEpoch, with_statistics
from millstream.jobs.epochs.failures import reason_of
from millstream.jobs.epochs.input_plan import InputPlan
from millstream.jobs.epochs.input_planner import InputPlanner
from millstream.jobs.epochs.manifests import Joined, epoch_manifest, staged_values
from millstream.jobs.epochs.outcome import EpochOutcome
from millstream.jobs.epochs.progress_report import ProgressReporter
from millstream.storage.store import Store

__all__ = ["AheadOfCommits", "RanEpoch"]

_LOG = logging.getLogger(__name__)
_CANCEL_AGAIN_S = 0.2
_PHASES_WITHOUT_WORK = (Phase.HOLDING, Phase.RESTARTING, Phase.RECOVERING, Phase.SETTLING)
_STAGED_MAX = 10_000
"""A commit holds at most this many staged items. Each epoch that joins recomputes what to publish."""


@dataclass(frozen=True)
class RanEpoch:
    """An epoch that all its tasks have acknowledged. `final`: it is the last one."""

    planned: InputPlan
    outcome: EpochOutcome
    times: EpochTimes
    final: bool


class AheadOfCommits:
    """Runs epochs and commits outside the driver's loop, where epochs run ahead (`is_on`)."""

    def __init__(
        self,
        bounds: AheadBounds,
        memory: DriverMemory,
        inbox: Inbox,
        store: Store,
        clock: Clock,
        reporter: ProgressReporter,
        send_unsent: Callable[[], None] = lambda: None,
    ) -> None:
        self.is_on = bounds.epochs_max > 0
        self.report: Callable[[e.Event], None] = inbox.put if self.is_on else inbox.report
        self.last_manifest: Manifest | None = None
        self.last_commit_ms = 0.0
        self._memory, self._inbox, self._clock, self._reporter = memory, inbox, clock, reporter
        self._committer = Committer(store, clock, self._has_happened, send_unsent=send_unsent) if self.is_on else None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="millstream-epoch") if self.is_on else None
        self._at_work: Future[None] | None = None
        self._commit_began_s = 0.0

    # --- the running epoch ---------------------------------------------------------------------------------------

    def work(self, act: Callable[[], None]) -> None:
        """Runs an action immediately or, where epochs run ahead, on the epoch thread, in call order."""
        if self._worker is None:
            act()
        else:
            self._at_work = self._worker.submit(self._work, act)

    def _work(self, act: Callable[[], None]) -> None:
        """Runs on the epoch thread."""
        try:
            act()
        except BaseException as error:  # SystemExit, too: it would end this thread only, and the job would wait forever
            self._memory.failures.append((reason_of(error), error))
            self.report(e.EpochFailed(reason_of(error), retryable=False, at_ms=self._clock.now_ms()))

    def submit(self, act: Callable[[], None]) -> None:
        """Like `work`, for actions that nothing waits for before `settle` or the end."""
        if self._worker is None:
            act()
        else:
            self._worker.submit(act)

    def settle(self) -> None:
        """Waits until all submitted actions are done. No epoch runs after that, so a start may call the sources
        itself."""
        if self._worker is not None:
            self._worker.submit(lambda: None).result()

    def acknowledge(self, ran: RanEpoch, deployment: Deployment, planner: InputPlanner) -> tuple[e.EpochDone, Manifest]:
        """Appends an epoch that was run to the pending commits. Returns its event, and a manifest with its own
        statistics."""
        planned, outcome, times = ran.planned, ran.outcome, ran.times
        ahead, now_ms = self._memory.ahead, self._clock.now_ms()
        tip, sinks, sources = ahead.tip, deployment.sinks, planner.by_uid()
        first = ahead.joinable
        if first is not None and not self._merges(first, outcome, deployment):
            first = None
        parent = tip if first is None else first.parent
        parent_epoch = 0 if parent is None else parent.epoch
        action = e.Commit(parent_epoch + 1, parent_epoch, "DRAINED" if ran.final else "RUNNING")
        filed = self._filed(planner, tip, action.epoch)
        joined = None if first is None else Joined(parent, first.outcome.staged)
        manifest = epoch_manifest(
            action, deployment.plan, deployment.facts, planned, outcome, tip, now_ms, sources, sinks, filed, joined
        )
        planned = replace(planned, behind=left_behind(planned, outcome.sources, sources))
        step_manifest = with_statistics(manifest, tip, times, outcome, planned, sinks)
        statistics: Any = step_manifest.counters["epoch"]
        bytes_ahead = statistics["new_bytes"] + statistics["in_bytes"]
        step = PendingCommit(parent, manifest, planned, outcome, times, statistics["in_bytes"], bytes_ahead)
        self._memory.ahead = ahead.followed_by(step, joins=first is not None)
        return e.EpochDone(bytes_ahead, now_ms, joins=first is not None), step_manifest

    def _merges(self, first: PendingCommit, outcome: EpochOutcome, deployment: Deployment) -> bool:
        if deployment.facts.records_input:
            return False
        joined = Joined(first.parent, first.outcome.staged)
        values = {uid: staged_values(uid, outcome, joined) for uid in deployment.sinks}
        if sum(map(len, values.values())) > _STAGED_MAX:
            return False
        return all(sink.merges(values[uid]) for uid, sink in deployment.sinks.items())

    def _filed(self, planner: InputPlanner, tip: Manifest | None, epoch: int) -> Mapping[str, SplitFile]:
        """Files of finished splits only make manifests smaller, so writing them can wait while the store is
        unreachable."""
        try:
            return planner.filed(tip, epoch)
        except StoreAwayError as error:
            _LOG.warning("finished splits stay in the manifest for now: %s", error)
            return {}

    # --- the commit in progress ---------------------------------------------------------------------------------

    def commit(self, action: e.Commit, before: PastEpoch | None, sinks: Mapping[str, Sink]) -> None:
        """Commit the oldest pending commit, concurrently with everything else."""
        assert self._committer is not None
        self._memory.ahead = self._memory.ahead.seal()
        commit = self._memory.ahead.pending[0]
        manifest = self.last_manifest = commit.with_statistics(before, sinks)
        acknowledged_as = (manifest.epoch, manifest.published_through, manifest.status, commit.steps)
        requested = (action.epoch, action.published_through, action.status, action.steps)
        assert acknowledged_as == requested, (
            f"the commit requested is {requested}, the commit acknowledged is {acknowledged_as}"
        )
        self._commit_began_s = time.monotonic()
        self._committer.commit(manifest, commit.parent, commit.bytes)

    def abandon(self) -> None:
        """The job fails: pending epochs are discarded, unless their commit is too far advanced to be stopped."""
        if self._committer is not None:
            self._committer.abandon()

    def is_store_unreachable(self) -> bool:
        """Whether the store has been silent for too long."""
        return self._committer is not None and self._committer.check_store(self._memory.newest)

    def _has_happened(self, event: CommitEvent, error: BaseException | None) -> None:
        """Runs on the commit thread. The driver waits for the event, so it is enqueued even if reporting fails."""
        self.last_commit_ms = (time.monotonic() - self._commit_began_s) * 1000
        try:
            if isinstance(event, e.CommitFailed) and error is not None:
                self._memory.failures.append((event.reason, error))
                self._reporter.note_error(f"an epoch could not be committed: {event.reason}", error)
        finally:
            self._inbox.put(event)

    # --- progress and the end -----------------------------------------------------------------------------------

    def show(self, state: ProtocolState) -> None:
        """Report how far the job runs ahead, and whether it waits for the store or for its last output to be
        published."""
        ahead, tip = self._memory.ahead, self._memory.tip
        acknowledged = 0 if tip is None or not self.is_on else tip.epoch
        self._reporter.ahead(
            len(ahead),
            ahead.bytes,
            acknowledged,
            is_unreachable=state.unavailable,
            pauses=state.phase in _PHASES_WITHOUT_WORK,
        )

    def close(self, cancel: Callable[[], None]) -> None:
        """End both threads. `cancel` stops the running epoch; it is called until the epoch ends, because the epoch may
        just be starting. Sources are still notified of the last commits, and are closed after that."""
        if self._committer is not None and self._worker is not None:
            while self._at_work is not None and not (self._at_work.cancel() or self._at_work.done()):
                cancel()
                wait([self._at_work], _CANCEL_AGAIN_S)
            self._worker.shutdown(wait=True)
            self._committer.close()
