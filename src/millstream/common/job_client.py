"""JobClient: a program's handle to a running job.

It does not depend on how jobs run: everything uses `JobControl`, a few small methods that the job itself provides.
Methods return futures, as in PyFlink; futures that wait for the job do so on a separate thread, which never keeps the
process alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from millstream.common.completable_future import CompletableFuture
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_id import JobID
from millstream.common.job_status import JobStatus
from millstream.errors import NotAvailableError
from millstream.pyflink_names import add_pyflink_names

__all__ = ["JobClient", "JobControl"]


class JobControl(Protocol):
    """The methods of a running job."""

    @property
    def job_id(self) -> JobID:
        """Its id."""

    def status(self) -> JobStatus:
        """Its status."""

    def cancel(self) -> None:
        """Ends it without waiting for the running epoch."""

    def stop(self, drain: bool) -> None:
        """Ends it after the running epoch; with `drain`, as if the input had ended."""

    def savepoint(self, directory: str | None) -> str:
        """Saves its newest epoch; returns the name to start from it with."""

    def rescale(self, parallelism: int) -> None:
        """Continues at another parallelism."""

    def result(self) -> JobExecutionResult:
        """Waits for its end; raises if it failed."""

    def accumulators(self) -> Mapping[str, Any]:
        """Its metrics now."""


class JobClient:
    """Watches and controls one job; the result of `env.execute_async()`."""

    def __init__(self, j_job_client: JobControl) -> None:
        # PyFlink passes a Java client here; ours is the job's own control.
        if not hasattr(j_job_client, "status"):
            raise NotAvailableError(
                f"JobClient got {j_job_client!r}, expected a running job. Use the result of env.execute_async()."
            )
        self._control = j_job_client

    def get_job_id(self) -> JobID:
        """The job's id."""
        return self._control.job_id

    def get_job_status(self) -> CompletableFuture:
        """The job's status, as a future of JobStatus."""
        return CompletableFuture.of(self._control.status())

    def cancel(self) -> CompletableFuture:
        """Ends the job now; committed epochs stay."""
        return _later(self._control.cancel, "cancel")

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture:
        """Ends the job after its running epoch and saves that; a future of the name to start from it with.

        With `advance_to_end_of_event_time` event time ends first, so that windows and timers emit their results; use it
        if the job will not be continued.
        """

        def stop() -> str:
            self._control.stop(advance_to_end_of_event_time)
            self._control.result()
            return self._control.savepoint(savepoint_directory)

        return _later(stop, "stop")

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture:
        """Saves the newest epoch while the job runs; a future of the name to start from it with.

        With a folder, the savepoint is a new folder in it, which can be copied anywhere. Without a folder or a
        configured default, the savepoint stays in the job's store, which then retains that epoch.
        """
        return _later(lambda: self._control.savepoint(savepoint_directory), "savepoint")

    def rescale(self, parallelism: int) -> None:
        """Lets the job continue at another parallelism from its next epoch on, without a restart (beyond PyFlink)."""
        self._control.rescale(parallelism)

    def get_accumulators(self) -> CompletableFuture:
        """The job's accumulators and metrics now, as a future of a dict."""
        return CompletableFuture.of(dict(self._control.accumulators()))

    def get_job_execution_result(self) -> CompletableFuture:
        """A future of the job's end."""
        return _later(self._control.result, "result")


def _later(wait: Callable[[], Any], what: str) -> CompletableFuture:
    future: Future[Any] = Future()
    # Marked running, so that cancelling the future is refused: it would not cancel the job.
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(wait())
        except BaseException as failure:
            future.set_exception(failure)

    threading.Thread(target=run, name=f"millstream-job-{what}", daemon=True).start()
    return CompletableFuture(future)


add_pyflink_names(globals())
