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
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

from millstream.checkpoint import events as e
from millstream.checkpoint.manifest import Found, Manifest, ManifestLog
from millstream.checkpoint.phases import Phase
from millstream.checkpoint.protocol import begin, decide
from millstream.checkpoint.restart import RestartPolicy
from millstream.compiler.stages import Plan
from millstream.connectors.contracts import Sink, SourceContext
from millstream.errors import FencedError, JobFailedError, MillstreamError
from millstream.jobs.damage import whole_epoch_advice
from millstream.jobs.input_plan import InputPlan, PlannedSource, plan_input
from millstream.jobs.manifests import closing_manifest, epoch_manifest, epoch_spec, sink_is_due, timer_is_due
from millstream.jobs.outcome import EpochOutcome, MixedEpochError, gather
from millstream.jobs.progress import ProgressBoard
from millstream.jobs.progress_report import epoch_progress, total_progress
from millstream.jobs.rounds import followed_by, has_loops, loops_are_busy, next_round, wants_a_round
from millstream.jobs.settings import Clock
from millstream.jobs.sweeper import Sweeper
from millstream.jobs.watermarks import strategies_of, watermark_is_due
from millstream.runtime.failure import UserFailureError
from millstream.runtime.residents import Job
from millstream.runtime.spec import EpochSpec

__all__ = ["DriverSettings", "EpochDriver", "Runner"]

_LOG = logging.getLogger(__name__)
_TRIES_OF_A_MIXED_EPOCH = 3


class Runner(Protocol):
    """What runs the tasks of an epoch: Spark, or this process."""

    def prepare(self, job: Job) -> None: ...

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]: ...

    def cancel(self) -> None: ...


@dataclass(frozen=True)
class DriverSettings:
    """The driver's own knobs. `records_max` bounds an epoch's input; a bounded batch job has no bound. `rounds_max`
    bounds how often it goes round the program's loops."""

    records_max: int
    rounds_max: int
    poll_ms: int
    min_interval_ms: int
    policy: RestartPolicy
    new_run: Callable[[], str]
    show: Callable[[list[list[str]]], None]
    note: Callable[[str], None]


class EpochDriver:
    """Runs one job until it ends, in the calling thread."""

    def __init__(
        self,
        plan: Plan,
        job: Job,
        runner: Runner,
        sources: tuple[PlannedSource, ...],
        sinks: Mapping[str, Sink],
        clock: Clock,
        board: ProgressBoard,
        settings: DriverSettings,
    ) -> None:
        self._plan, self._job, self._runner = plan, job, runner
        self._sources, self._sinks = sources, sinks
        self._strategies = strategies_of(plan)
        self._clock, self._board, self._settings = clock, board, settings
        self._log = ManifestLog(job.facts.store)
        self._sweeper = Sweeper(job.facts.store, self._log)
        self._outside: queue.Queue[e.Event] = queue.Queue()
        self._own: deque[e.Event] = deque()
        self._publisher = ThreadPoolExecutor(1, thread_name_prefix="millstream-publish")
        self._newest: Manifest | None = None
        self._attempted: Manifest | None = None
        self._input: InputPlan | None = None
        self._outcome: EpochOutcome | None = None
        self._failure: BaseException | None = None
        self._run_started_ms = clock.now_ms()
        self._epoch_started = 0.0
        self._tries = 0
        self._canceling = False
        self._ended = threading.Event()

    def request(self, event: e.StopRequested | e.CancelRequested) -> None:
        """Ask the job to stop or cancel; from any thread."""
        self._outside.put(event)
        if isinstance(event, e.CancelRequested):
            self._canceling = True
            threading.Thread(target=self._cancel_running, name="millstream-cancel", daemon=True).start()

    def _cancel_running(self) -> None:
        """Cancel until the loop has noticed: an epoch may be starting at this very moment."""
        while not self._ended.wait(0.2):
            self._runner.cancel()

    def run(self) -> Phase:
        """Run until the job ends; returns the phase it ended in, or raises why it failed."""
        state = begin(self._settings.policy)
        try:
            self._start()
            while not state.phase.is_last:
                state, actions = decide(state, self._next_event(state.phase))
                for action in actions:
                    self._perform(action)
        finally:
            self._ended.set()
            self._publisher.shutdown(wait=True)
            for planned in self._sources:
                planned.source.close()
            for sink in self._sinks.values():
                sink.close()
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

    def _start(self) -> None:
        self._runner.prepare(self._job)
        self._newest = self._log.newest()
        self._sweeper.sweep(self._newest)
        summary = None if self._newest is None else e.ManifestSummary.of(self._newest)
        if self._newest is not None:
            self._tell_sources(self._newest)
            self._outcome = None
            self._show_progress(self._newest)
            self._board.change(published=self._newest.published_through)
        self._own.append(e.Started(summary))

    def _restart(self, action: e.Restart) -> None:
        _LOG.warning("restarting in %d ms: %s", action.delay_ms, action.reason)
        self._board.change(status="RESTARTING", restarts=self._board.now.restarts + 1)
        self._wait(action.delay_ms)
        self._job = replace(self._job, facts=replace(self._job.facts, run=self._settings.new_run()))
        try:
            self._start()
            self._board.change(status="RUNNING")
        except Exception as error:
            self._own.append(self._failed(error))

    def _wait(self, delay_ms: int) -> None:
        """Wait, but not beyond a request from outside: a cancel or stop comes first."""
        deadline = time.monotonic() + delay_ms / 1000
        while time.monotonic() < deadline and self._outside.empty():
            time.sleep(min(0.02, max(0.0, deadline - time.monotonic())))

    # --- an epoch ---------------------------------------------------------------------------------------------

    def _plan_input(self, action: e.PlanInput) -> None:
        pause_ms = self._settings.min_interval_ms - (time.monotonic() - self._epoch_started) * 1000
        if pause_ms > 0:
            time.sleep(pause_ms / 1000)
        try:
            context = SourceContext(self._clock.now_ms(), self._run_started_ms, 1)
            newest, strategies = self._newest, self._strategies
            positions, states = ({}, {}) if newest is None else (newest.sources, newest.states)
            planned = plan_input(self._sources, positions, self._settings.records_max, context, strategies, states)
            # The epoch's processing time is fixed here: retries see the same.
            self._input = planned = replace(planned, now_ms=self._clock.now_ms())
            goes_on = (
                planned.has_input
                or loops_are_busy(self._plan, newest)
                or watermark_is_due(self._plan, planned, strategies, newest, planned.now_ms)
            )
            wanted = goes_on or timer_is_due(newest, planned.now_ms) or sink_is_due(self._sinks, newest, planned.now_ms)
            # What is read last may go round: with loops, the last epoch is one that has nothing left to do.
            ends = planned.exhausted and not (goes_on and has_loops(self._plan))
            self._own.append(e.InputPlanned(wanted, ends))
        except Exception as error:
            self._own.append(self._failed(error))

    def _run_epoch(self, action: e.RunEpoch) -> None:
        assert self._input is not None
        self._epoch_started = time.monotonic()
        try:
            spec = epoch_spec(action, self._input, self._newest, self._strategies)
            outcome = self._run_round(spec)
            rounds = 1
            while wants_a_round(self._plan, outcome) and (rounds < self._settings.rounds_max or action.final):
                if self._canceling:
                    break
                spec = next_round(spec, outcome)
                outcome = followed_by(outcome, self._run_round(spec))
                rounds += 1
            self._outcome = outcome
            self._own.append(e.EpochDone())
        except Exception as error:
            self._own.append(self._failed(error))

    def _run_round(self, spec: EpochSpec) -> EpochOutcome:
        """One run of the plan; if Spark mixed two attempts in it, it is run again."""
        for left in reversed(range(_TRIES_OF_A_MIXED_EPOCH)):
            self._tries += 1
            try:
                outcome = gather(self._plan, self._runner.run(replace(spec, try_=self._tries)))
            except MixedEpochError as error:
                _LOG.warning("epoch %d: %s", spec.epoch, error)
                if not left:
                    raise
            else:
                self._settings.show(outcome.output)
                return outcome
        raise AssertionError("the last try returns or raises")

    def _failed(self, error: BaseException) -> e.EpochFailed:
        """The event of a failure; the error itself is kept to be raised if the job ends with it."""
        if isinstance(error, UserFailureError):
            report = error.report
            if report.error == "StoreDamagedError":
                advice = whole_epoch_advice(report.message, self._log, self._job.facts.store)
                report = replace(report, message=report.message + advice)
            self._settings.show([list(line) for line in report.output])
            self._failure = JobFailedError(
                f"'{report.operator}' failed: {report.error}: {report.message}", report=report.text(), at=report.site
            )
            ours = report.error in _OWN_KINDS
            event = self._event(f"{report.error}: {report.message}", retryable=not ours)
        else:
            self._failure = error
            event = self._event(str(error) or type(error).__name__, not isinstance(error, MillstreamError))
        if not self._canceling:
            self._note(f"epoch failed: {event.reason}", error)
            self._board.change(last_error=event.reason)
        return event

    def _note(self, what: str, error: BaseException) -> None:
        """For the job's log, JVM frames and all: what the user sees is the error, raised or on the console."""
        self._settings.note(what + "\n" + "".join(traceback.format_exception(error)))

    def _event(self, reason: str, retryable: bool) -> e.EpochFailed:
        return e.EpochFailed(reason, retryable, self._clock.now_ms(), random.random())

    # --- the commit -------------------------------------------------------------------------------------------

    def _commit(self, action: e.Commit) -> None:
        now_ms = self._clock.now_ms()
        try:
            if action.status in ("FINISHED", "SUSPENDED"):
                assert self._newest is not None
                manifest = closing_manifest(action, self._newest, self._job.facts, now_ms)
            else:
                assert self._outcome is not None and self._input is not None
                manifest = epoch_manifest(
                    action,
                    self._plan,
                    self._job.facts,
                    self._input,
                    self._outcome,
                    self._newest,
                    now_ms,
                    {p.uid: p.source for p in self._sources},
                    self._sinks,
                )
        except MillstreamError as error:
            self._failure = error
            self._own.append(e.CommitAbsent(now_ms))
            return
        self._attempted = manifest
        try:
            committed = self._log.commit(manifest)
        except Exception as error:
            self._failure = error
            self._own.append(e.CommitUnknown(str(error), now_ms, random.random()))
            return
        if committed:
            self._has_committed()
        self._own.append(e.Committed() if committed else e.CommitLost())

    def _has_committed(self) -> None:
        manifest = self._newest = self._attempted
        assert manifest is not None
        self._tell_sources(manifest)
        self._show_progress(manifest)
        self._sweeper.committed(manifest)

    def _tell_sources(self, manifest: Manifest) -> None:
        for planned in self._sources:
            positions = manifest.sources.get(planned.uid, {})
            planned.source.committed({split: at.offset for split, at in positions.items()})

    def _inspect_commit(self, action: e.InspectCommit) -> None:
        assert self._attempted is not None
        try:
            found = self._log.find(self._attempted)
        except Exception as error:
            self._own.append(e.CommitUnknown(str(error), self._clock.now_ms(), random.random()))
            return
        if found is Found.ABSENT:
            self._own.append(e.CommitAbsent(self._clock.now_ms(), random.random()))
            return
        if found is Found.MINE:
            self._has_committed()
        self._own.append(e.CommitFound(mine=found is Found.MINE))

    # --- publishing -------------------------------------------------------------------------------------------

    def _publish(self, action: e.Publish) -> None:
        newest = self._newest
        self._publisher.submit(self._publish_epoch, action, newest)

    def _publish_epoch(self, action: e.Publish, newest: Manifest | None) -> None:
        """On the publishing thread."""
        try:
            time.sleep(action.delay_ms / 1000)
            manifest = newest if newest is not None and newest.epoch == action.epoch else self._log.read(action.epoch)
            for uid, staged in manifest.staged.items():
                self._sinks[uid].commit(action.epoch, [item.payload for item in staged], self._job.facts.store)
            self._board.change(published=action.epoch)
            self._outside.put(e.Published(action.epoch))
        except Exception as error:
            self._note(f"epoch {action.epoch} could not be published", error)
            self._failure = error
            self._board.change(last_error=str(error))
            self._outside.put(e.PublishFailed(action.epoch, str(error), self._clock.now_ms(), random.random()))

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
        if self._outcome is None or manifest.status in ("FINISHED", "SUSPENDED"):
            self._board.change(**total_progress(manifest, self._plan, sources, self._sinks))
            return
        took_s = time.monotonic() - self._epoch_started
        self._board.change(**epoch_progress(manifest, self._outcome, self._plan, sources, self._sinks, took_s))


# Failures that another try cannot mend: the program is wrong, not the world.
_OWN_KINDS = frozenset({"ProgramError", "TypeMismatchError", "NotYetError", "NotAvailableError", "ConfigurationError"})
