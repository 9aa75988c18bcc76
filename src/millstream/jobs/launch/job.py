"""A launched job: a driver on its own thread, and the handle to it.

    CREATED ──► RUNNING ──► FINISHED
                 │  ▲ │ ├──► CANCELED
                 ▼  │ │ └──► SUSPENDED   (stopped; resumes from its store)
               RESTARTING └──► FAILED

`commands_of` lists the commands that other processes may send to it (`jobs/control/requests.py`). A command returns
when it is done: after a stop request, once the job has stopped. An exception is a negative answer, and the job
continues.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from millstream.checkpoint import events as e
from millstream.checkpoint.phases import Phase
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_id import JobID
from millstream.common.job_status import JobStatus
from millstream.common.time import waiting_s
from millstream.errors import JobFailedError
from millstream.jobs.clock import Clock
from millstream.jobs.control.command import Command, Parameter
from millstream.jobs.epochs.driver import EpochDriver
from millstream.jobs.epochs.failures import message_of, run_or_log
from millstream.jobs.epochs.progress import JobProgress, ProgressBoard
from millstream.jobs.snapshots.saving import Savepoints
from millstream.storage.store import Store

__all__ = ["Job", "commands_of"]

_PUBLISH_TRIES_MAX = 3
"""After this many tries, callers that wait for output get an error."""
_WAITS = "waits. Retry when that is repaired"
_ENDS = {
    Phase.FINISHED: JobStatus.FINISHED,
    Phase.SUSPENDED: JobStatus.SUSPENDED,
    Phase.CANCELED: JobStatus.CANCELED,
}


class Job:
    """A running or ended job. Satisfies `common.job_client.JobControl`.

    `on_end` is called last, with the job's final status, its error, and its duration in ms. Many attributes:
    the arguments, and the results.
    """

    def __init__(
        self,
        job_id: str,
        board: ProgressBoard,
        store: Store,
        clock: Clock,
        make_driver: Callable[[], EpochDriver],
        savepoint_folder: str | None,
        on_end: Callable[[JobStatus, BaseException | None, int], None],
    ) -> None:
        self.job_id = JobID(job_id)
        self.board = board
        self.store = store
        self._savepoints = Savepoints(store, clock.now_ms, savepoint_folder)
        self._make_driver = make_driver
        self._driver: Future[EpochDriver] = Future()
        self._at_start: list[Callable[[], object]] = []
        self._at_end: list[Callable[[], None]] = []
        self._on_end = on_end
        self._status = JobStatus.CREATED
        self._error: BaseException | None = None
        self._runtime_ms = 0
        self._thread = threading.Thread(
            target=self._run, args=(time.monotonic(),), name=f"millstream-{job_id}", daemon=True
        )

    def at_start(self, call: Callable[[], object]) -> None:
        """Call this before the job begins to run."""
        self._at_start.append(call)

    def at_end(self, call: Callable[[], None]) -> None:
        """Call this when the job has ended, with any status; registered before it starts. Calls run in reverse
        order."""
        self._at_end.append(call)

    def start(self) -> Job:
        """Begin to run. If the job cannot begin, it has ended, and its lease and log are released."""
        try:
            for call in self._at_start:
                call()
            self._thread.start()
        except BaseException as error:
            if self._thread.ident is None:
                self._fail(error, time.monotonic())
            raise
        return self

    def _run(self, launched_s: float) -> None:
        try:
            driver = self._make_driver()
            self._driver.set_result(driver)  # requests that were made before the driver existed are passed on now
            self._change(JobStatus.RUNNING)
            self._end(_ENDS[driver.run()], launched_s)
        except BaseException as error:
            self._fail(error, launched_s)

    def _fail(self, error: BaseException, launched_s: float) -> None:
        if not self._driver.done():
            self._driver.set_exception(error)
        self._error = error
        self.board.change(last_error=message_of(error))
        self._end(JobStatus.FAILED, launched_s)

    def _change(self, status: JobStatus) -> None:
        self._status = status
        self.board.change(status=status.name)

    def _end(self, status: JobStatus, launched_s: float) -> None:
        self._runtime_ms = int((time.monotonic() - launched_s) * 1000)
        for call in reversed(self._at_end):
            run_or_log("ending the job", call)
        run_or_log("noting how the job ended", lambda: self._on_end(status, self._error, self._runtime_ms))
        self._change(status)

    def status(self) -> JobStatus:
        """The job's status."""
        status = self.board.now.status
        return JobStatus.RESTARTING if status == "RESTARTING" else self._status

    def cancel(self) -> None:
        """End now; committed epochs stay."""
        self._request(e.CancelRequested())

    def stop(self, drain: bool = False) -> None:
        """Finish the running epoch, publish it, and end; the job resumes from its store. `drain`: end event time first,
        so that windows and timers emit their results; the job is then finished."""
        self._request(e.StopRequested(drain))

    def savepoint(self, directory: str | None = None, name: str | None = None) -> str:
        """Save the newest epoch, including everything acknowledged by now, once it is published; returns the path to
        start from. Runs concurrently with the job."""
        return self._savepoints.save(self.published, directory, name)

    def published(self) -> int:
        """The newest epoch, once it is published. Waits for epochs that run ahead of commits: it includes what their
        tasks have acknowledged by now, unless the job fails or ends first, which discards them."""
        acknowledged = self.board.now.acknowledged
        while self.board.now.ahead and self.board.now.epoch < acknowledged and not self.wait(0.01):
            self.check_publishing(_WAITS)
        self._wait_until(lambda now: now.epoch > 0, "has committed nothing, so there is nothing to save")
        epoch = self.board.now.epoch
        self._wait_until(lambda now: now.published >= epoch, f"ended before epoch {epoch} was published")
        return epoch

    def _wait_until(self, has_come: Callable[[JobProgress], bool], problem: str) -> None:
        """Wait until `has_come` holds; raises JobFailedError if the job ends before, or cannot continue."""
        while not has_come(self.board.now):
            self.check_publishing(_WAITS)
            if self.wait(0.01) and not has_come(self.board.now):
                raise JobFailedError(f"job '{self.board.now.job_name}' {problem}")

    def check_publishing(self, then: str) -> None:
        """Raises JobFailedError if output cannot be published, for callers that wait for it. `then`: the job's
        reaction."""
        now = self.board.now
        if now.publish_tries >= _PUBLISH_TRIES_MAX:
            raise JobFailedError(
                f"'{now.job_name}' could not publish epoch {now.published + 1} in {now.publish_tries} tries "
                f"({now.unpublished.rstrip('.')}), and {then}"
            )

    def rescale(self, parallelism: int) -> None:
        """Continue at another parallelism from the next epoch on, without a restart; state is not moved."""
        if not self._thread.is_alive() or self._driver.exception() is not None:
            raise JobFailedError(f"job '{self.board.now.job_name}' has ended. Start it again with -p {parallelism}")
        self._driver.result().rescale(parallelism)

    def _request(self, request: e.StopRequested | e.CancelRequested) -> None:
        """Pass the request to the driver, as soon as there is one."""

        def hand_over(driver: Future[EpochDriver]) -> None:
            if driver.exception() is None:
                driver.result().request(request)

        self._driver.add_done_callback(hand_over)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; returns whether it was reached."""
        if self._thread.ident is not None or self._error is None:  # otherwise the job never began
            self._thread.join(None if timeout_s is None else waiting_s(timeout_s))
        return not self._thread.is_alive()

    def result(self) -> JobExecutionResult:
        """Wait for the end and return the result, or raise the error of the job."""
        self.wait()
        if self._error is not None:
            # The frames of the driver thread do not help the user; they are in the job's log.
            raise self._error.with_traceback(None)
        if self._status is JobStatus.CANCELED:
            raise JobFailedError(f"job '{self.board.now.job_name}' was cancelled")
        return JobExecutionResult(job_id=self.job_id, net_runtime_ms=self._runtime_ms, accumulators=self.accumulators())

    def accumulators(self) -> dict[str, Any]:
        """The job's counts: records in and out by operator uid, and the user's own metrics by scope name."""
        progress = self.board.now
        records = {uid: {"in": o.records_in, "out": o.records_out} for uid, o in progress.operators.items()}
        return {**records, **progress.metrics}


def commands_of(job: Job) -> Mapping[str, Command]:
    """The commands of a job, by name, for a `RequestServer`."""

    def stop(drain: bool = False) -> str:
        job.stop(drain)
        while not job.wait(0.1):
            job.check_publishing(
                "stops as soon as it can. Repair that; or `millstream cancel` it: committed epochs stay, and the next "
                "start publishes it first"
            )
        return _end_text(job)

    def cancel() -> str:
        job.cancel()
        job.wait()
        return _end_text(job)

    def rescale(parallelism: int) -> str:
        job.rescale(parallelism)
        return f"'{job.board.now.job_name}' continues at parallelism {parallelism} with its next epoch"

    def savepoint(to: str | None = None, name: str | None = None) -> str:
        return job.savepoint(to, name)

    def published() -> str:
        return str(job.published())

    return {
        "stop": Command(stop, {"drain": Parameter(bool)}),
        "cancel": Command(cancel),
        "rescale": Command(rescale, {"parallelism": Parameter(int, required=True)}),
        "savepoint": Command(savepoint, {"to": Parameter(str), "name": Parameter(str)}),
        "published": Command(published, is_question=True),
    }


def _end_text(job: Job) -> str:
    """Describes the end of a job that was requested to end."""
    now, status = job.board.now, job.status()
    if status is JobStatus.FAILED:
        raise JobFailedError(f"'{now.job_name}' failed instead: {now.last_error}")
    if status is JobStatus.CANCELED:
        return f"'{now.job_name}' is cancelled; epochs committed until then, up to {now.epoch}, stay"
    how = "is finished" if status is JobStatus.FINISHED else "has stopped"
    return f"'{now.job_name}' {how} at epoch {now.epoch}; everything up to it is published"
