"""Runs an epoch: the deployed job, and all rounds of one epoch on it, within the time limit.

A *deployment* is a job's plan as sent to the task runner. After a failure it is sent again, as another
*run*; between two epochs it may be replaced by the plan of the same program at another parallelism.

An epoch runs in rounds (`rounds.py`; one, where the program has no loops). A round is rerun if Spark mixed two attempts
of a task in it. The result is one outcome, or the failure; nothing is committed in either case. An epoch that exceeds
its time limit has failed, even if it ended after all: by then its tasks may have received a cancel request.

Three terms for repetition, from the outside in:

- a **run** is one life of a driver, from its start or restart (or a change of its plan) to its end. `JobFacts.run` is
  its name, new and random each time, and is stored in the manifests that the run commits (in their JSON as `attempt`);
- a **round** is one execution of the whole plan. `EpochSpec.round` counts them within a deployment, over all its runs
  and epochs, so a rerun round has a new number;
- an **attempt** is one execution of one task by Spark. Its id consists of the run, the round and Spark's own attempt
  number, and is part of the name of every file that the attempt writes: no two attempts share a name.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol

import cloudpickle

from millstream.common.time import waiting_s
from millstream.connectors.contracts import Sink
from millstream.jobs.epochs.input_plan import PlannedSource
from millstream.jobs.epochs.outcome import EpochOutcome, MixedEpochError, gather
from millstream.jobs.epochs.rounds import followed_by, next_round, wants_a_round
from millstream.plan.stages import Plan
from millstream.runtime.operators.user_code import UserFailureError
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import EpochSpec, JobFacts
from millstream.runtime.task.stalled_tasks import StalledTask, stalled_tasks, text_of_stalled

__all__ = [
    "NO_LIMIT",
    "Deployment",
    "EpochDeadline",
    "EpochLimit",
    "EpochTimedOutError",
    "Replan",
    "Runner",
    "new_run",
    "run_epoch",
]

_LOG = logging.getLogger(__name__)
_ROUNDS_OF_A_MIXED_EPOCH = 3
_CANCEL_AGAIN_S = 0.2
_KEY = "execution.checkpointing.timeout"
_STALLED_SHARE = 3 / 4
"""Tasks report their position after this part of the limit, so that it is known when the epoch is overdue."""

Replan = Callable[[int], tuple[Plan, tuple[PlannedSource, ...]]]
"""The plan of the same program at another parallelism, with its sources."""


class Runner(Protocol):
    """Runs the tasks of an epoch, in Spark or in this process."""

    def prepare(self, job: ShippedJob) -> None: ...

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]: ...

    def record_places(self, places: Collection[tuple[int, str]]) -> None: ...

    def send_unsent(self) -> None: ...

    def cancel(self) -> None: ...


def new_run() -> str:
    """A random name for a new run."""
    return secrets.token_hex(8)


class Deployment:
    """A job's plan with its open sources and sinks, as sent to the runner. `replan` None: the plan is never replaced.
    `check_owner` raises if another driver owns the job."""

    def __init__(
        self,
        plan: Plan,
        sources: tuple[PlannedSource, ...],
        sinks: Mapping[str, Sink],
        facts: JobFacts,
        runner: Runner,
        replan: Replan | None = None,
        check_owner: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan, self.sources, self.sinks = plan, sources, sinks
        self._runner, self._replan, self.check_owner = runner, replan, check_owner
        self._job = ShippedJob(cloudpickle.dumps(plan), facts)
        self._replacement: tuple[Plan, tuple[PlannedSource, ...]] | None = None
        self._rounds = 0
        self._places: dict[tuple[int, int], str] = {}  # where each task last ran, by stage and subtask

    @property
    def facts(self) -> JobFacts:
        """The facts of the job, constant while it runs except for the name of the run."""
        return self._job.facts

    def send(self) -> None:
        """Send the job to the runner."""
        self._runner.prepare(self._job)

    def begin_run(self) -> None:
        """Begin another run of the same plan; `send` sends it."""
        self._job = replace(self._job, facts=replace(self.facts, run=new_run()))

    def rescale(self, parallelism: int) -> None:
        """Compile the plan at another parallelism, for `adopt` to switch to; from any thread."""
        assert self._replan is not None
        self._replacement = self._replan(parallelism)

    @property
    def is_replaced(self) -> bool:
        """Whether `adopt` has a plan to switch to."""
        return self._replacement is not None

    def adopt(self) -> bool:
        """Switch to the plan that `rescale` made; returns whether there was one. `send_plan` sends it."""
        if self._replacement is None:
            return False
        (self.plan, self.sources), self._replacement = self._replacement, None
        return True

    def send_plan(self) -> None:
        """Send the new plan to the runner, as another run."""
        self._job = ShippedJob(cloudpickle.dumps(self.plan), replace(self.facts, run=new_run()))
        self._places = {}
        self.send()

    def run_round(self, spec: EpochSpec) -> EpochOutcome:
        """Execute the plan once; raises MixedEpochError if Spark mixed two attempts of a task in it."""
        self._rounds += 1
        outcome = gather(self.plan, self._runner.run(replace(spec, round=self._rounds)))
        self._compare_places(outcome)
        return outcome

    def _compare_places(self, outcome: EpochOutcome) -> None:
        """Record for each task whether it ran on the same executor as before, and report it to the runner. No-op on one
        machine."""
        if not any(task.place for task in outcome.tasks):
            return
        before = self._places
        outcome.tasks = [
            replace(task, stayed=None if (at := before.get((task.stage, task.subtask))) is None else at == task.place)
            for task in outcome.tasks
        ]
        self._places = {(task.stage, task.subtask): task.place for task in outcome.tasks if task.place}
        self._runner.record_places([(task.subtask, task.place) for task in outcome.tasks])

    def send_unsent(self) -> None:
        """Have every machine upload the files that its tasks have written, including those of processes that have
        ended."""
        self._runner.send_unsent()

    def cancel(self) -> None:
        """Stop the running epoch; from another thread."""
        self._runner.cancel()


@dataclass(frozen=True)
class EpochLimit:
    """How long an epoch may take; None: without limit. A longer one is reported and, if `is_firm`, cancelled. With
    `spares_final`, the closing epoch of a bounded input is not cancelled, because it cannot be made smaller."""

    timeout_ms: int | None = None
    is_firm: bool = True
    spares_final: bool = False

    def cancels(self, *, final: bool) -> bool:
        """Whether an epoch is cancelled when it is overdue."""
        return self.is_firm and not (final and self.spares_final)


NO_LIMIT = EpochLimit()


def run_epoch(
    deployment: Deployment,
    spec: EpochSpec,
    *,
    rounds_max: int,
    limit: EpochLimit = NO_LIMIT,
    is_canceling: Callable[[], bool] = lambda: False,
    show: Callable[[list[list[str]]], None] = lambda lines: None,
) -> EpochOutcome:
    """Run an epoch; raises its error if it fails.

    `is_canceling`: whether the job is to end, so that no further round is started. `show` takes the output printed by
    tasks.
    """
    store, timeout_ms = deployment.facts.store, limit.timeout_ms
    spec = replace(spec, stalled_ms=None if timeout_ms is None else max(1, int(timeout_ms * _STALLED_SHARE)))
    cancels = limit.cancels(final=spec.final)
    tasks: list[StalledTask] = []

    def overdue() -> None:
        tasks.extend(stalled_tasks(store, spec.epoch))
        what = "is cancelled" if cancels else "continues"
        where = text_of_stalled(tasks, with_lines=True)
        _LOG.warning("epoch %d has taken %s ms (%s), and %s. %s", spec.epoch, timeout_ms, _KEY, what, where)

    def run_rounds() -> EpochOutcome:
        outcome = _run_round(deployment, spec, show)
        following, rounds = spec, 1
        while wants_a_round(deployment.plan, outcome) and (rounds < rounds_max or spec.final) and not is_canceling():
            following = next_round(following, outcome)
            outcome = followed_by(outcome, _run_round(deployment, following, show))
            rounds += 1
        return outcome

    if timeout_ms is None:
        return run_rounds()
    deadline = EpochDeadline(timeout_ms, deployment.cancel if cancels else None, overdue)
    try:
        with deadline:
            outcome = run_rounds()
    except UserFailureError:
        raise
    except Exception as error:
        if deadline.expired:  # a cancelled run fails with errors that hide the reason
            raise EpochTimedOutError(spec.epoch, timeout_ms, tasks) from error
        raise
    if deadline.expired:
        raise EpochTimedOutError(spec.epoch, timeout_ms, tasks)
    return outcome


def _run_round(deployment: Deployment, spec: EpochSpec, show: Callable[[list[list[str]]], None]) -> EpochOutcome:
    """Runs one round; reruns it if Spark mixed two attempts in it."""
    for repeats_left in reversed(range(_ROUNDS_OF_A_MIXED_EPOCH)):
        try:
            outcome = deployment.run_round(spec)
        except MixedEpochError as error:
            _LOG.warning("epoch %d: %s", spec.epoch, error)
            if not repeats_left:
                raise
        else:
            show(outcome.output)
            return outcome
    raise AssertionError("the last round returns or raises")


# --- the deadline ---------------------------------------------------------------------------------------------


class EpochTimedOutError(RuntimeError):
    """An epoch took longer than `execution.checkpointing.timeout`; it is run again, or the job fails. `tasks`: the
    tasks that reported their position."""

    def __init__(self, epoch: int, timeout_ms: int, tasks: Sequence[StalledTask] = ()) -> None:
        super().__init__(
            f"epoch {epoch} took longer than {timeout_ms} ms ({_KEY}) and was cancelled. "
            + (f"{text_of_stalled(tasks)}. " if tasks else "")
            + "If it needs the time, allow more; otherwise reduce the input of an epoch (millstream.epoch.max-records)"
        )


class EpochDeadline:
    """Context manager for a block that must end within `timeout_ms`; None: without limit.

    When the block exceeds the limit, another thread calls `overdue`, and then `cancel` repeatedly until the block has
    ended, because the work to cancel may just be starting. With `cancel` None the block continues, and does not count
    as expired.

    >>> with EpochDeadline(60_000, cancel=lambda: None) as deadline:
    ...     pass
    >>> deadline.expired
    False
    """

    def __init__(
        self, timeout_ms: int | None, cancel: Callable[[], None] | None, overdue: Callable[[], None] = lambda: None
    ) -> None:
        self.expired = False
        self._timeout_ms, self._cancel, self._overdue = timeout_ms, cancel, overdue
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> EpochDeadline:
        if self._timeout_ms is not None:
            self._thread = threading.Thread(
                target=self._watch, args=(self._timeout_ms / 1000,), name="millstream-deadline", daemon=True
            )
            self._thread.start()
        return self

    def _watch(self, timeout_s: float) -> None:
        if self._over.wait(waiting_s(timeout_s)):
            return
        try:
            self._overdue()
        except Exception as error:  # an overdue epoch is cancelled even if the store is unreachable
            _LOG.warning("the overdue tasks could not be determined: %s", error)
        if self._cancel is None:
            return
        self.expired = True
        while not self._over.is_set():
            self._cancel()
            self._over.wait(_CANCEL_AGAIN_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread is not None and self._timeout_ms is not None:
            self._thread.join()
            # On a busy machine the thread may not have been scheduled: the limit is checked here as well.
            is_late = time.monotonic() - self._began > self._timeout_ms / 1000
            self.expired = self.expired or (self._cancel is not None and is_late)
