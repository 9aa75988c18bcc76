"""A job client delegates to the job and returns PyFlink's futures."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from millstream.common import CompletableFuture, JobClient, JobExecutionResult, JobID, JobStatus
from millstream.errors import JobFailedError, NotAvailableError, ProgramError

ID = JobID("0" * 31 + "f")


class ScriptedJob:
    """A job that ends on request."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.job_id = ID
        self.ended = threading.Event()
        self._failure = failure

    def status(self) -> JobStatus:
        return JobStatus.FINISHED if self.ended.is_set() else JobStatus.RUNNING

    def cancel(self) -> None:
        self.ended.set()

    def stop(self, drain: bool) -> None:
        self.ended.set()

    def savepoint(self, directory: str | None) -> str:
        return f"{directory}/savepoint"

    def rescale(self, parallelism: int) -> None:
        pass

    def result(self) -> JobExecutionResult:
        self.ended.wait()
        if self._failure:
            raise self._failure
        return JobExecutionResult(job_id=self.job_id, net_runtime_ms=5, accumulators={"n": 3})

    def accumulators(self) -> Mapping[str, Any]:
        return {"n": 2}


def test_a_client_follows_a_job_to_its_end() -> None:
    job = ScriptedJob()
    client = JobClient(job)
    assert client.get_job_id() == ID
    assert client.get_job_status().result() is JobStatus.RUNNING
    assert client.get_accumulators().result() == {"n": 2}
    end = client.get_job_execution_result()
    assert not end.done()
    assert not end.cancel(), "cancelling the future must not look as if the job were cancelled"
    client.cancel().result()
    result = end.result()
    assert (result.get_job_id(), result.get_net_runtime()) == (ID, 5)
    assert result.get_accumulator_result("n") == 3
    assert result.get_all_accumulator_results() == {"n": 3}
    assert client.get_job_status().result() is JobStatus.FINISHED


def test_the_failure_of_a_job_is_raised_by_its_future() -> None:
    job = ScriptedJob(JobFailedError("boom"))
    job.ended.set()
    end = JobClient(job).get_job_execution_result()
    with pytest.raises(JobFailedError, match="boom"):
        end.result()
    assert isinstance(end.exception(), JobFailedError)


def test_stopping_with_a_savepoint_takes_it_after_the_end() -> None:
    job = ScriptedJob()
    assert JobClient(job).stop_with_savepoint(False, "saved").result() == "saved/savepoint"
    assert job.ended.is_set()


def test_a_client_requires_a_running_job() -> None:
    with pytest.raises(NotAvailableError, match="execute_async"):
        JobClient(object())  # type: ignore[arg-type]


def test_futures_convert_their_value_and_accept_only_futures() -> None:
    future: Future[int] = Future()
    shown = CompletableFuture(future, str)
    assert not shown.done() and "pending" in str(shown)
    future.set_result(3)
    assert shown.result() == "3"
    cancelled = CompletableFuture(Future())
    assert cancelled.cancel() and cancelled.cancelled()
    with pytest.raises(ProgramError, match=r"concurrent\.futures"):
        CompletableFuture(3)  # type: ignore[arg-type]


def test_a_missing_accumulator_is_reported_with_the_existing_ones() -> None:
    with pytest.raises(ProgramError, match="The job has: n"):
        JobExecutionResult(job_id=ID, accumulators={"n": 1}).get_accumulator_result("m")
    with pytest.raises(ProgramError, match="without a job"):
        JobExecutionResult().get_job_id()


def test_an_id_is_32_hexadecimal_digits() -> None:
    assert JobID("A" * 32) == JobID("a" * 32)
    with pytest.raises(ProgramError, match="32 hexadecimal"):
        JobID("job-1")


def test_a_suspended_job_is_terminal_locally_but_not_globally() -> None:
    over = {status for status in JobStatus if status.is_terminal_state()}
    for_good = {status for status in JobStatus if status.is_globally_terminal_state()}
    assert over - for_good == {JobStatus.SUSPENDED}
    assert for_good == {JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED}
