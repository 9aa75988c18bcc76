"""The driver: performs what the epoch protocol decides, and reports back what happened.

`checkpoint.protocol` decides; this loop acts. It asks the sources, runs the epoch, writes the manifest, has the
sinks publish (on a thread of its own, while the next epoch already runs), waits, restarts, ends. It keeps nothing
that a manifest does not say, except what it is doing right now.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import traceback
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import cloudpickle

from millstream.checkpoint import events as e
from millstream.checkpoint.finished_splits import FinishedSplits
from millstream.checkpoint.manifest import Found, Manifest, ManifestLog
from millstream.checkpoint.phases import Phase
from millstream.checkpoint.protocol import begin, decide
from millstream.checkpoint.receipts import known_published
from millstream.connectors.contract_checks import removes_input
from millstream.connectors.contracts import Sink, SourceContext
from millstream.errors import FencedError, JobFailedError, MillstreamError
from millstream.jobs.epochs.autoscale import EpochLoad, LoadHistory
from millstream.jobs.epochs.autoscale import decide as decide_scale
from millstream.jobs.epochs.background_sweeper import BackgroundSweeper
from millstream.jobs.epochs.epoch_run import EpochRun
from millstream.jobs.epochs.epoch_size import EpochCost, SizeBounds, first_sizing, next_sizing, recooled
from millstream.jobs.epochs.epoch_statistics import epoch_statistics, input_lags, statistics_of, with_statistics
from millstream.jobs.epochs.epoch_watch import EpochWatch
from millstream.jobs.epochs.failures import is_retryable, judge, reason_of
from millstream.jobs.epochs.input_plan import InputPlan, PlannedSource, plan_input, without_reads
from millstream.jobs.epochs.manifests import closing_manifest, epoch_manifest, epoch_spec, sink_is_due, timer_is_due
from millstream.jobs.epochs.outcome import EpochOutcome
from millstream.jobs.epochs.progress import ProgressBoard
from millstream.jobs.epochs.progress_report import progress_of
from millstream.jobs.epochs.publisher import Publisher, PublishEvent
from millstream.jobs.epochs.rounds import has_loops, loops_are_busy
from millstream.jobs.epochs.side_effects import do_beside
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.jobs.epochs.watermarks import strategies_of, watermark_is_due
from millstream.jobs.settings.driver_settings import DriverSettings, Replan, Runner
from millstream.jobs.settings.settings import Clock
from millstream.jobs.snapshots.program_changes import changed_types
from millstream.plan.stages import Plan
from millstream.runtime.task.shipped_job import ShippedJob

__all__ = ["EpochDriver"]

_LOG = logging.getLogger(__name__)


class EpochDriver:
    """Runs one job until it ends, in the calling thread."""

    def __init__(
        self,
        plan: Plan,
        job: ShippedJob,
        runner: Runner,
        sources: tuple[PlannedSource, ...],
        sinks: Mapping[str, Sink],
        clock: Clock,
        board: ProgressBoard,
        settings: DriverSettings,
        replan: Replan,
    ) -> None:
        self._replan = replan
        self._plan, self._job, self._runner = plan, job, runner
        self._sources, self._sinks = sources, sinks
        self._strategies = strategies_of(plan)
        self._clock, self._board, self._settings = clock, board, settings
        self._log = ManifestLog(job.facts.store)
        self._finished = FinishedSplits(job.facts.store)
        sweeper = Sweeper(job.facts.store, clock.now_ms, settings.retention, release=self._release_input)
        self._sweeper = BackgroundSweeper(sweeper)
        self._outside: queue.Queue[e.Event] = queue.Queue()
        self._own: deque[e.Event] = deque()
        self._publisher = Publisher(sinks, job.facts.store, clock, self._has_published)
        self._newest: Manifest | None = None
        self._began: Manifest | None = None  # what this run went on from, until it has committed something itself
        self._attempted: Manifest | None = None
        self._input: InputPlan | None = None
        self._outcome: EpochOutcome | None = None
        self._failure: BaseException | None = None
        self._run_started_ms = clock.now_ms()
        self._canceling = False
        self._epoch_run = EpochRun(runner, settings, lambda: self._canceling)
        self._adopted: tuple[Plan, tuple[PlannedSource, ...]] | None = None
        self._watch = EpochWatch()
        self._bounds = SizeBounds(settings.records_max, settings.bytes_max, settings.checkpoints.interval_ms)
        self._sizing = first_sizing(self._bounds)
        self._load = LoadHistory(settings.parallelism, clock.now_ms())
        self._asked = threading.Event()  # to stop or cancel: pauses are over
        self._ended = threading.Event()

    def request(self, event: e.StopRequested | e.CancelRequested) -> None:
        """Ask the job to stop or cancel; from any thread."""
        self._outside.put(event)
        self._asked.set()
        if isinstance(event, e.CancelRequested):
            self._canceling = True
            threading.Thread(target=self._cancel_running, name="millstream-cancel", daemon=True).start()

    def rescale(self, parallelism: int) -> None:
        """Go on at another parallelism, from the next epoch on; from any thread. What cannot be is refused here."""
        self._adopted = self._replan(parallelism)
        self._load = LoadHistory(parallelism, self._clock.now_ms())

    def _cancel_running(self) -> None:
        """Cancel until the loop has noticed: an epoch may be starting at this very moment."""
        while not self._ended.wait(0.2):
            self._runner.cancel()

    def run(self) -> Phase:
        """Run until the job ends; returns the phase it ended in, or raises why it failed."""
        state = begin(self._settings.policy, self._settings.checkpoints.tolerance)
        try:
            self._begin()
            while not state.phase.is_last:
                state, actions = decide(state, self._next_event(state.phase))
                for action in actions:
                    self._perform(action)
        finally:
            self._ended.set()
            self._publisher.close()
            self._sweeper.close()
            if state.phase is Phase.CANCELED and self._settings.deletes_on_cancel:
                do_beside("removing the epochs of the cancelled job", self._sweeper.clear)
            for planned in self._sources:
                do_beside(f"closing {planned.source.describe()}", planned.source.close)
            for sink in self._sinks.values():
                do_beside(f"closing {sink.describe()}", sink.close)
        return state.phase

    def _next_event(self, phase: Phase) -> e.Event:
        """What others reported comes before what we did ourselves: a cancel must not wait for another epoch."""
        try:
            return self._outside.get_nowait()
        except queue.Empty:
            if self._own:
                return self._own.popleft()
        if phase is not Phase.WAITING:
            return self._outside.get()
        try:
            return self._outside.get(timeout=self._settings.poll_ms / 1000)
        except queue.Empty:
            return e.Woken()

    def _perform(self, action: e.Action) -> None:
        performers: dict[type, Callable[[Any], None]] = {
            e.Publish: self._publish,
            e.PlanInput: self._plan_input,
            e.RunEpoch: self._run_epoch,
            e.Commit: self._commit,
            e.InspectCommit: self._inspect_commit,
            e.Restart: self._restart,
            e.Fail: self._fail,
            e.StopFenced: self._stop_fenced,
        }
        performer = performers.get(type(action))
        if performer is not None:  # waiting and ending need nothing but the loop itself
            performer(action)

    # --- starting ---------------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Start, or report why not; whether the job has started."""
        try:
            self._start()
            return True
        except Exception as error:
            self._own.append(self._failed(error))
            return False

    def _start(self) -> None:
        self._runner.prepare(self._job)
        self._newest = self._began = self._log.newest()
        facts = self._job.facts
        receipted = known_published(facts.store, self._newest, facts.job_id)
        self._sweeper.sweep(self._newest)
        summary = None if self._newest is None else e.ManifestSummary.of(self._newest)
        if self._newest is not None:
            self._tell_sources(self._newest)
            self._outcome = None
            do_beside("showing progress", partial(self._show_progress, self._newest))
            self._board.change(published=receipted)
        self._own.append(e.Started(summary, receipted))

    def _restart(self, action: e.Restart) -> None:
        what = "tolerated, running again" if action.tolerated else "restarting"
        _LOG.warning("%s in %d ms: %s", what, action.delay_ms, action.reason)
        if not action.tolerated:
            self._board.change(status="RESTARTING", restarts=self._board.now.restarts + 1)
        if self._asked.wait(action.delay_ms / 1000) and not self._canceling:
            self._asked.clear()  # a stop cuts one pause short, not all that follow: the world needs its time
        self._sizing = recooled(self._sizing)
        self._job = replace(self._job, facts=replace(self._job.facts, run=self._settings.new_run()))
        if self._begin():
            self._board.change(status="RUNNING")

    # --- an epoch ---------------------------------------------------------------------------------------------

    def _plan_input(self, action: e.PlanInput) -> None:
        pause_ms = self._watch.pause_ms(self._settings.min_interval_ms, self._settings.checkpoints.min_pause_ms)
        self._asked.wait(pause_ms / 1000)
        self._watch.trigger(self._clock.now_ms())
        try:
            self._change_plan()
            context = SourceContext(self._clock.now_ms(), self._run_started_ms, 1)
            newest, strategies, batch = self._newest, self._strategies, self._job.facts.batch
            positions, states = ({}, {}) if newest is None else (newest.sources, newest.states)
            finished, cursors = self._finished.names(newest), {} if self._input is None else self._input.cursors
            budget = self._sizing.budget
            planned = plan_input(self._sources, positions, budget, context, strategies, states, finished, cursors)
            if action.drains:
                planned = without_reads(planned)
            # The epoch's processing time is fixed here: retries see the same.
            self._input = planned = replace(planned, now_ms=self._clock.now_ms())
            goes_on = (
                planned.has_input
                or loops_are_busy(self._plan, newest)
                or (not batch and watermark_is_due(self._plan, planned, strategies, newest, planned.now_ms))
            )
            wanted = goes_on or timer_is_due(newest, planned.now_ms) or sink_is_due(self._sinks, newest, planned.now_ms)
            # What is read last may go round: with loops, the last epoch is one that has nothing left to do.
            ends = planned.exhausted and not (goes_on and has_loops(self._plan))
            self._own.append(e.InputPlanned(wanted, ends, action.drains))
        except Exception as error:
            self._own.append(self._failed(error))

    def _change_plan(self) -> None:
        """Between two epochs, take over the plan that was adopted. State is read by key group: nothing is moved."""
        if self._adopted is None:
            return
        (self._plan, self._sources), self._adopted = self._adopted, None
        self._sizing = recooled(self._sizing)
        facts = replace(self._job.facts, run=self._settings.new_run())
        self._job = ShippedJob(cloudpickle.dumps(self._plan), facts)
        self._runner.prepare(self._job)

    def _run_epoch(self, action: e.RunEpoch) -> None:
        assert self._input is not None
        try:
            with self._watch.running():
                spec = epoch_spec(action, self._input, self._newest, self._strategies)
                self._outcome = self._epoch_run.run(self._plan, spec)
            self._own.append(e.EpochDone())
        except Exception as error:
            self._own.append(self._failed(error))

    def _failed(self, error: BaseException) -> e.EpochFailed:
        """The event of a failure; the error itself is kept to be raised if the job ends with it."""
        newest = 0 if self._newest is None else self._newest.epoch
        judged = judge(error, self._log, self._job.facts.store, newest)
        self._failure = judged.error
        do_beside("showing what a task printed", lambda: self._settings.show(list(judged.output)))
        self._watch.failed()
        if not self._canceling:
            self._note(f"epoch failed: {judged.reason}", error)
            self._board.change(last_error=judged.reason)
        now_ms, draw = self._clock.now_ms(), random.random()
        return e.EpochFailed(judged.reason, judged.retryable, now_ms, draw, judged.tolerable)

    def _note(self, what: str, error: BaseException) -> None:
        """For the job's log, JVM frames and all: what the user sees is the error, raised or on the console."""
        self._settings.note(what + "\n" + "".join(traceback.format_exception(error)))

    # --- the commit -------------------------------------------------------------------------------------------

    def _commit(self, action: e.Commit) -> None:
        now_ms = self._clock.now_ms()
        try:
            if action.status in ("FINISHED", "SUSPENDED"):
                assert self._newest is not None
                manifest = closing_manifest(action, self._newest, self._job.facts, now_ms)
                manifest = with_statistics(manifest, epoch_statistics(manifest, self._newest, self._watch.times()))
            else:
                manifest = self._manifest_of_epoch(action, now_ms)
        except Exception as error:  # a sink may not know what to publish, a source may have been cut short
            self._own.append(self._failed(error))
            return
        self._attempted = manifest
        try:
            with self._watch.committing():
                committed = self._log.commit(manifest)
        except Exception as error:
            self._failure = error
            self._own.append(e.CommitUnknown(str(error), now_ms, random.random()))
            return
        if committed:
            self._has_committed()
        self._own.append(e.Committed() if committed else e.CommitLost())

    def _manifest_of_epoch(self, action: e.Commit, now_ms: int) -> Manifest:
        assert self._outcome is not None and self._input is not None
        planned, outcome, newest = self._input, self._outcome, self._newest
        sources = {p.uid: p.source for p in self._sources}
        listed = {p.uid for p in self._sources if removes_input(p.source)}
        filed = {} if newest is None else self._finished.filed(newest, action.epoch, listed)
        manifest = epoch_manifest(
            action, self._plan, self._job.facts, planned, outcome, newest, now_ms, sources, self._sinks, filed
        )
        lags = input_lags(planned, outcome.sources)
        told = epoch_statistics(
            manifest, newest, self._watch.times(), outcome, now_ms=planned.now_ms, lags=lags, sinks=self._sinks
        )
        return with_statistics(manifest, told)

    def _has_committed(self) -> None:
        """The manifest stands, whatever of this fails."""
        manifest = self._newest = self._attempted
        assert manifest is not None
        self._watch.committed(manifest.epoch)
        if self._began is not None:
            for line in changed_types(self._began, manifest):
                _LOG.warning("%s", line)
            self._began = None
        do_beside("fitting the next epoch's size", lambda: self._learn(manifest))
        do_beside("telling the sources of a commit", lambda: self._tell_sources(manifest))
        do_beside("showing progress", lambda: self._show_progress(manifest))
        self._sweeper.committed(manifest)

    def _learn(self, manifest: Manifest) -> None:
        """Fit the next epoch's size, and perhaps the parallelism, to how long this one took."""
        told = statistics_of(manifest)
        if told is None or manifest.status != "RUNNING":
            return
        settings = self._settings
        cost = EpochCost(told["in"], told["in_bytes"], told["duration_ms"], told["compaction_debt_bytes"])
        self._sizing = next_sizing(self._sizing, cost, self._bounds)
        self._load = self._load.followed_by(EpochLoad(told["run_ms"], told["lags"]), self._clock.now_ms())
        wanted = None if settings.autoscale is None else decide_scale(self._load, settings.autoscale)
        if wanted is not None:
            settings.note(f"epoch {manifest.epoch}: parallelism {self._load.parallelism} is to become {wanted}")
            try:
                self.rescale(wanted)
            except MillstreamError as error:  # an operator may have bounds of its own; the job goes on as it is
                self._note("rescale: refused", error)
                self._load = replace(self._load, changed_ms=self._load.now_ms, epochs=())

    def _tell_sources(self, manifest: Manifest) -> None:
        for planned in self._sources:
            positions = manifest.sources.get(planned.uid, {})
            planned.source.committed({split: at.offset for split, at in positions.items()})

    def _release_input(self, kept: Collection[Manifest]) -> None:
        for planned in self._sources:
            if not removes_input(planned.source):
                continue  # it stores nothing; positions may be many
            positions = [manifest.sources.get(planned.uid, {}) for manifest in kept]
            planned.source.released([{split: at.offset for split, at in splits.items()} for splits in positions])

    def _inspect_commit(self, action: e.InspectCommit) -> None:
        assert self._attempted is not None
        try:
            found = self._log.find(self._attempted)
        except Exception as error:
            self._own.append(e.CommitUnknown(str(error), self._clock.now_ms(), random.random()))
            return
        if found is Found.ABSENT:
            refused = self._failure is not None and not is_retryable(self._failure)
            self._own.append(e.CommitAbsent(self._clock.now_ms(), random.random(), retryable=not refused))
            return
        if found is Found.MINE:
            self._has_committed()
        self._own.append(e.CommitFound(mine=found is Found.MINE))

    # --- publishing -------------------------------------------------------------------------------------------

    def _publish(self, action: e.Publish) -> None:
        self._publisher.publish(action, self._newest)

    def _has_published(self, event: PublishEvent, took_ms: float, error: BaseException | None) -> None:
        """On the publishing thread."""
        if isinstance(event, e.Published):
            self._watch.published(event.epoch, took_ms)
            self._board.change(published=event.epoch)
        elif error is not None:
            self._note(f"epoch {event.epoch} could not be published", error)
            self._failure = error
            self._board.change(last_error=reason_of(error))
        self._outside.put(event)

    # --- ending -----------------------------------------------------------------------------------------------

    def _fail(self, action: e.Fail) -> None:
        failure = self._failure
        if isinstance(failure, MillstreamError):
            raise failure
        raise JobFailedError(f"job '{self._job.facts.job_name}' failed: {action.reason}") from failure

    def _stop_fenced(self, action: e.StopFenced) -> None:
        raise FencedError(
            f"job '{self._job.facts.job_name}': another driver committed epoch {action.epoch} first and owns the job "
            "now. This one has stopped and published nothing of that epoch"
        )

    def _show_progress(self, manifest: Manifest) -> None:
        """Of a manifest just committed, or just found when the driver started."""
        sources = [planned.uid for planned in self._sources]
        took_s = self._watch.running_s()
        self._board.change(**progress_of(manifest, self._outcome, self._plan, sources, self._sinks, took_s))
