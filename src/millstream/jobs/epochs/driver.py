"""The driver: performs the actions that the epoch protocol decides on, and reports their results.

`checkpoint.protocol` decides; this loop acts. One object performs each action:

    PlanInput        InputPlanner queries the sources; EpochTuner limits the number of records
    RunEpoch         the Deployment runs the tasks (`epoch_run.py`)
    Commit           `manifests.py` makes the manifest, ManifestLog creates it
    Publish          the Publisher has the sinks publish, on a thread of its own, while the next epoch already runs
    Restart          the Deployment begins another run, from the newest manifest

Results are reported as events through the driver's inbox. The driver's memory (`DriverMemory`) holds the action in
progress; everything else is in manifests.

Where epochs run ahead, a separate thread plans inputs and runs epochs (`_work`), and the Committer commits on another,
so this loop is always ready to publish committed epochs. This loop alone changes the memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millstream.checkpoint import events as e
from millstream.checkpoint.manifest import Manifest, ManifestLog, ManifestOwner
from millstream.checkpoint.phases import Phase
from millstream.checkpoint.protocol import ProtocolState, begin, decide
from millstream.checkpoint.receipts import known_published
from millstream.connectors.contract_checks import may_end_early
from millstream.errors import FencedError, JobFailedError, MillstreamError, StoreFullError
from millstream.jobs.clock import Clock
from millstream.jobs.epochs.ahead_of_commits import AheadOfCommits, RanEpoch
from millstream.jobs.epochs.archive_sweeper import ArchiveSweeper
from millstream.jobs.epochs.backlog import left_behind
from millstream.jobs.epochs.driver_memory import DriverMemory, Inbox
from millstream.jobs.epochs.epoch_run import Deployment, EpochLimit, EpochTimedOutError, run_epoch
from millstream.jobs.epochs.epoch_size import EpochTuner
from millstream.jobs.epochs.epoch_statistics import EpochWatch, with_statistics
from millstream.jobs.epochs.failures import is_retryable, judge, run_or_log
from millstream.jobs.epochs.input_plan import InputPlan
from millstream.jobs.epochs.input_planner import InputPlanner
from millstream.jobs.epochs.manifests import closing_manifest, epoch_manifest, epoch_spec, sink_is_due, timer_is_due
from millstream.jobs.epochs.outcome import EpochOutcome
from millstream.jobs.epochs.progress_report import ProgressReporter
from millstream.jobs.epochs.publisher import Publisher, PublishEvent
from millstream.jobs.epochs.rounds import has_loops, loops_are_busy, rounds_max
from millstream.jobs.epochs.sweeper import BackgroundSweeper, Sweeper
from millstream.jobs.epochs.watermarks import watermark_is_due
from millstream.jobs.settings.driver_settings import DriverSettings
from millstream.jobs.snapshots.program_changes import log_changed_types

__all__ = ["EpochDriver"]


class EpochDriver:
    """Runs one job until it ends, in the calling thread. Many attributes: each performs some of the actions above."""

    def __init__(
        self, deployment: Deployment, clock: Clock, reporter: ProgressReporter, settings: DriverSettings
    ) -> None:
        store = deployment.facts.store
        self._deployment, self._clock, self._reporter, self._settings = deployment, clock, reporter, settings
        checkpoints = settings.checkpoints
        self._limit = EpochLimit(checkpoints.timeout_ms, checkpoints.is_timeout_firm, not checkpoints.is_timeout_set)
        self._memory, self._inbox = DriverMemory(), Inbox()
        self._log = ManifestLog(store)
        recorded = deployment.facts.records_input
        self._planner = InputPlanner(deployment.plan, deployment.sources, store, clock, is_recorded=recorded)
        ends_by_bytes = all(may_end_early(planned.source) for planned in deployment.sources)
        self._tuner = EpochTuner(settings, clock.now_ms(), ends_by_bytes=ends_by_bytes)
        self._watch = EpochWatch()
        self._publisher = Publisher(deployment.sinks, store, clock, self._has_published)
        self._ahead = AheadOfCommits(
            settings.ahead, self._memory, self._inbox, store, clock, reporter, deployment.send_unsent
        )
        archives = ArchiveSweeper(deployment.plan, store, deployment.facts.job_id, clock.now_ms)
        releases, sources = (self._planner.release, archives.release), self._planner.removing_sources
        sweeper = Sweeper(store, clock.now_ms, settings.retention, releases=releases, sources=sources)
        self._sweeper = BackgroundSweeper(sweeper)

    def request(self, event: e.StopRequested | e.CancelRequested) -> None:
        """Request the job to stop or cancel; from any thread."""
        self._inbox.request(event, cancel=self._deployment.cancel)

    def rescale(self, parallelism: int) -> None:
        """Continue at another parallelism from the next epoch on; from any thread. Raises if that is not possible."""
        self._deployment.rescale(parallelism)
        self._tuner.rescaled(parallelism, self._clock.now_ms())

    def run(self) -> Phase:
        """Run until the job ends. Returns the phase it ended in, or raises the error it failed with."""
        state = begin(self._settings.restarts, self._settings.checkpoints.tolerance, self._settings.ahead)
        try:
            self._begin()
            while not state.phase.is_last:
                state, actions = decide(state, self._received(state, self._inbox.next(self._wait_s(state))))
                self._ahead.show(state)
                for action in actions:
                    self._perform(action)
        finally:
            self._ahead.close(self._deployment.cancel)
            self._inbox.close()
            self._publisher.close()
            self._sweeper.close()
            if state.phase is Phase.CANCELED and self._settings.deletes_on_cancel:
                run_or_log("removing the epochs of the cancelled job", self._sweeper.clear)
            for planned in self._deployment.sources:
                run_or_log(f"closing {planned.source.describe()}", planned.source.close)
            for sink in self._deployment.sinks.values():
                run_or_log(f"closing {sink.describe()}", sink.close)
        return state.phase

    def _perform(self, action: e.Action) -> None:
        performers: dict[type, Callable[[Any], None]] = {
            e.Publish: self._publish,
            e.PlanInput: lambda action: self._ahead.work(lambda: self._plan_input(action)),
            e.RunEpoch: lambda action: self._ahead.work(lambda: self._run_epoch(action)),
            e.Commit: self._commit,
            e.AbandonCommit: lambda action: self._ahead.abandon(),
            e.InspectCommit: self._inspect_commit,
            e.Restart: self._restart,
            e.Fail: self._fail,
            e.StopFenced: self._stop_fenced,
        }
        if type(action) in performers:  # waiting and ending need only the loop itself
            performers[type(action)](action)

    def _wait_s(self, state: ProtocolState) -> float | None:
        """How long to wait for an event of another thread; None: without limit."""
        if state.phase is Phase.WAITING:
            return self._settings.poll_ms / 1000
        return 1.0 if state.phase is Phase.HOLDING and state.runs_ahead else None

    def _received(self, state: ProtocolState, event: e.Event) -> e.Event:
        """The event that the protocol receives. Where epochs run ahead, the memory is updated with it."""
        if not state.runs_ahead or state.phase is Phase.FAILING:
            return event
        if isinstance(event, e.EpochDone):
            return self._acknowledge(final=state.final)
        if isinstance(event, e.Committed) and self._memory.ahead.sealed:
            self._has_committed_ahead()
        if isinstance(event, e.Woken) and state.phase is Phase.HOLDING and self._ahead.is_store_unreachable():
            return e.StoreUnavailable()
        return event

    # --- starting ---------------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Start, or report why not; returns whether the job has started."""
        try:
            self._start()
            return True
        except Exception as error:
            self._inbox.report(self._failed(error))
            return False

    def _start(self) -> None:
        self._deployment.send()
        self._memory.begin_from(self._memory.newest)
        self._planner.begin_anew()
        newest = self._memory.began_from = self._log.newest()
        self._memory.begin_from(newest)
        facts = self._deployment.facts
        published = known_published(facts.store, newest, facts.job_id)
        self._sweeper.sweep(newest)
        if newest is not None:
            self._planner.notify_committed(newest)
            self._memory.outcome = None
            self._reporter.started(newest, published, self._deployment.plan)
        self._inbox.report(e.Started(None if newest is None else e.ManifestSummary.of(newest), published))

    def _restart(self, action: e.Restart) -> None:
        self._reporter.restarting(action)
        if self._inbox.pause(action.delay_ms):
            self._inbox.allow_pauses()
        self._ahead.settle()
        self._tuner.recool()
        if self._memory.needs_room:
            # After other failures the store may still receive a manifest that names files of this run.
            self._sweeper.lose(self._deployment.facts.run)
            self._memory.needs_room = False
            self._sweeper.sweep(self._memory.newest)
            self._sweeper.wait()
        self._deployment.begin_run()
        if self._begin():
            self._reporter.restarted()

    # --- an epoch ---------------------------------------------------------------------------------------------

    def _plan_input(self, action: e.PlanInput) -> None:
        settings = self._settings
        self._inbox.pause(self._watch.pause_ms(settings.min_interval_ms, settings.checkpoints.min_pause_ms))
        self._watch.trigger(self._clock.now_ms())
        try:
            self._deployment.check_owner()
            if not len(self._memory.ahead):
                self._change_plan()
            elif self._deployment.is_replaced:
                # A new plan reads state on other machines, where files that are still being uploaded cannot be read.
                self._ahead.report(e.CommitsAwaited())
                return
            budget, bytes_max = self._tuner.budget, settings.bytes_max
            planned = self._planner.plan(self._memory.tip, budget, bytes_max, drains=action.drains)
            self._memory.input = planned
            self._ahead.report(self._input_planned(planned, drains=action.drains))
        except Exception as error:
            self._ahead.report(self._failed(error))

    def _change_plan(self) -> None:
        """Between two epochs, switch to a plan at another parallelism. State is read by key group, so none is moved."""
        if self._deployment.adopt():
            self._planner.adopt(self._deployment.plan, self._deployment.sources)
            self._tuner.recool()
            self._deployment.send_plan()

    def _input_planned(self, planned: InputPlan, *, drains: bool) -> e.InputPlanned:
        """Whether an epoch is needed, and whether it is the last."""
        plan, newest, now_ms = self._deployment.plan, self._memory.tip, planned.now_ms
        goes_on = planned.has_input or loops_are_busy(plan, newest)
        if not goes_on and not self._deployment.facts.batch:
            goes_on = watermark_is_due(plan, planned, self._planner.strategies, newest, now_ms)
        is_wanted = goes_on or timer_is_due(newest, now_ms) or sink_is_due(self._deployment.sinks, newest, now_ms)
        # The last input may still circulate in loops, so with loops the last epoch is one that has nothing left to do.
        ends = planned.exhausted and not (goes_on and has_loops(plan))
        return e.InputPlanned(is_wanted, ends, drains)

    def _run_epoch(self, action: e.RunEpoch) -> None:
        assert self._memory.input is not None
        is_ahead = len(self._memory.ahead) > 0  # read before the tip: a commit in between is harmless
        try:
            spec = epoch_spec(action, self._memory.input, self._memory.tip, self._planner.strategies)
            with self._watch.running():
                self._memory.outcome = run_epoch(
                    self._deployment,
                    replace(spec, deferred_uploads=self._ahead.is_on, is_ahead=is_ahead),
                    rounds_max=rounds_max(self._deployment.plan, self._settings.rounds_max),
                    limit=self._limit,
                    is_canceling=lambda: self._inbox.is_canceling,
                    show=self._reporter.show,
                )
            self._ahead.report(e.EpochDone())
        except Exception as error:
            if isinstance(error, EpochTimedOutError):
                self._tuner.timed_out()
            self._ahead.report(self._failed(error, is_ahead=is_ahead))

    def _failed(self, error: BaseException, *, is_ahead: bool | None = None) -> e.EpochFailed:
        """The event of a failure. The error itself is stored, and raised if the job ends with it. `is_ahead`: whether
        the epoch ran ahead; None: whether an epoch would run ahead now."""
        is_ahead = len(self._memory.ahead) > 0 if is_ahead is None else is_ahead
        failure = judge(error, self._log, self._deployment.facts.store, self._memory.newest, ahead=is_ahead)
        self._memory.failures.append((failure.reason, failure.error))
        self._memory.needs_room |= failure.excuse == "full"
        self._watch.failed()
        self._reporter.failed(failure, error, canceling=self._inbox.is_canceling)
        now_ms, draw = self._clock.now_ms(), random.random()
        return e.EpochFailed(failure.reason, failure.retryable, now_ms, draw, failure.tolerable, failure.excuse)

    # --- running ahead ----------------------------------------------------------------------------------------

    def _acknowledge(self, *, final: bool) -> e.EpochDone | e.EpochFailed:
        """Makes the epoch that was run the one that the next epoch follows. `final`: there is no next one."""
        planned, outcome = self._memory.input, self._memory.outcome
        assert planned is not None and outcome is not None
        try:
            ran = RanEpoch(planned, outcome, self._watch.times(), final)
            done, step = self._ahead.acknowledge(ran, self._deployment, self._planner)
        except Exception as error:
            return self._failed(error)
        self._watch.acknowledged()
        run_or_log("fitting the next epoch's size", lambda: self._learn(step))
        return done

    def _has_committed_ahead(self) -> None:
        manifest = self._ahead.last_manifest
        assert manifest is not None
        commit = self._memory.has_committed(manifest)
        self._watch.committed_ahead(manifest.epoch, self._ahead.last_commit_ms)
        elapsed_s = commit.times.run_ms / 1000
        self._report_commit(manifest, commit.outcome, elapsed_s)

    # --- the commit -------------------------------------------------------------------------------------------

    def _commit(self, action: e.Commit) -> None:
        if self._ahead.is_on and action.status not in ("FINISHED", "SUSPENDED"):
            self._ahead.commit(action, self._watch.past(), self._deployment.sinks)
            return
        now_ms = self._clock.now_ms()
        try:
            manifest = self._manifest(action, now_ms)
        except Exception as error:  # a sink may be unable to decide what to publish, a source may have been truncated
            self._inbox.report(self._failed(error))
            return
        self._memory.attempted = manifest
        try:
            with self._watch.committing():
                is_committed = self._log.commit(manifest)
        except Exception as error:
            self._memory.failures.append((str(error), error))
            self._memory.needs_room |= isinstance(error, StoreFullError)
            self._inbox.report(e.CommitUnknown(str(error), now_ms, random.random()))
            return
        if is_committed:
            self._has_committed(manifest)
        self._inbox.report(e.Committed() if is_committed else e.CommitLost())

    def _manifest(self, action: e.Commit, now_ms: int) -> Manifest:
        newest, planned, outcome = self._memory.newest, self._memory.input, self._memory.outcome
        plan, facts, sinks = self._deployment.plan, self._deployment.facts, self._deployment.sinks
        if action.status in ("FINISHED", "SUSPENDED"):
            assert newest is not None
            manifest = closing_manifest(action, newest, facts, now_ms)
            return with_statistics(manifest, newest, self._watch.times())
        assert outcome is not None and planned is not None
        sources, filed = self._planner.by_uid(), self._planner.filed(newest, action.epoch)
        manifest = epoch_manifest(action, plan, facts, planned, outcome, newest, now_ms, sources, sinks, filed)
        planned = replace(planned, behind=left_behind(planned, outcome.sources, sources))
        return with_statistics(manifest, newest, self._watch.times(), outcome, planned, sinks)

    def _has_committed(self, manifest: Manifest) -> None:
        """The manifest is committed, even if any of this fails."""
        self._memory.begin_from(manifest)
        self._watch.committed(manifest.epoch)
        run_or_log("fitting the next epoch's size", lambda: self._learn(manifest))
        self._report_commit(manifest, self._memory.outcome, self._watch.running_s())

    def _report_commit(self, manifest: Manifest, outcome: EpochOutcome | None, elapsed_s: float) -> None:
        began_from, self._memory.began_from = self._memory.began_from, None
        if began_from is not None:
            run_or_log("reporting changed types", lambda: log_changed_types(began_from, manifest))
        plan, planner = self._deployment.plan, self._planner
        # Sources are called from one thread at a time.
        self._ahead.submit(
            lambda: run_or_log("notifying the sources of a commit", lambda: planner.notify_committed(manifest))
        )
        run_or_log("showing progress", lambda: self._reporter.committed(manifest, outcome, plan, elapsed_s))
        self._sweeper.committed(manifest)

    def _learn(self, manifest: Manifest) -> None:
        """Adjust the size of the next epoch, and perhaps the parallelism, to the duration of this one."""
        parallelism = self._tuner.load.parallelism
        wanted = self._tuner.learn(manifest, self._clock.now_ms())
        if wanted is not None:
            self._reporter.note(f"epoch {manifest.epoch}: parallelism {parallelism} will become {wanted}")
            try:
                self.rescale(wanted)
            except MillstreamError as error:  # an operator may have its own bounds; the job continues unchanged
                self._reporter.note_error("rescale: refused", error)
                self._tuner.rescaling_refused()

    def _inspect_commit(self, action: e.InspectCommit) -> None:
        manifest = self._memory.attempted
        assert manifest is not None
        try:
            owner = self._log.find(manifest)
        except Exception as error:
            self._inbox.report(e.CommitUnknown(str(error), self._clock.now_ms(), random.random()))
            return
        if owner is ManifestOwner.ABSENT:
            _, failure = self._memory.failures[-1]  # nothing else runs while a commit is inspected
            excuse: e.Excuse = "full" if isinstance(failure, StoreFullError) else "away"
            self._inbox.report(e.CommitAbsent(self._clock.now_ms(), random.random(), is_retryable(failure), excuse))
            return
        if owner is ManifestOwner.OWN:
            self._has_committed(manifest)
        self._inbox.report(e.CommitExists(is_own=owner is ManifestOwner.OWN))

    # --- publishing -------------------------------------------------------------------------------------------

    def _publish(self, action: e.Publish) -> None:
        self._publisher.publish(action, self._memory.newest)

    def _has_published(self, event: PublishEvent, elapsed_ms: float, error: BaseException | None) -> None:
        """Runs on the publishing thread. The driver waits for the event, so it is enqueued even if reporting fails."""
        try:
            if isinstance(event, e.Published):
                self._watch.published(event.epoch, elapsed_ms)
                self._reporter.published(event.epoch)
            elif isinstance(event, e.PublishFailed) and error is not None:
                self._memory.failures.append((event.reason, error))
                if event.excuse == "full":
                    self._sweeper.sweep(self._memory.newest)
                self._reporter.publish_failed(event.epoch, error)
        finally:
            self._inbox.put(event)

    # --- ending -----------------------------------------------------------------------------------------------

    def _fail(self, action: e.Fail) -> None:
        failure = self._memory.failure_of(action.reason)
        if isinstance(failure, MillstreamError):
            raise failure
        raise JobFailedError(f"job '{self._deployment.facts.job_name}' failed: {action.reason}") from failure

    def _stop_fenced(self, action: e.StopFenced) -> None:
        raise FencedError(
            f"job '{self._deployment.facts.job_name}': another driver committed epoch {action.epoch} first and owns "
            "the job now. This one has stopped and published nothing of that epoch"
        )
