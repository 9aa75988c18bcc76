"""Failures in a task outside of user code reach the driver as data, with a kind that determines the reaction."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.checkpoint.manifest import ManifestLog
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import JobFailedError, StoreAwayError, StoreError
from millstream.jobs.launch.launch import Launch
from millstream.runtime.exchange.messages import FAILURE, open_envelopes
from millstream.runtime.operators.user_code import FailureReport
from millstream.runtime.task import task
from millstream.runtime.task.local import LocalRunner
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import EpochSpec
from millstream.runtime.task.store_use import StoreUse
from millstream.spark import worker
from millstream.storage.memory import MemoryStore
from millstream.testing import EPOCH, Collect, ManualClock, Script

_STORES = itertools.count()


class RecordingRunner(LocalRunner):
    """Records the job, and the results of its epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[ShippedJob] = []
        self.rows: list[tuple[int, bytes]] = []

    def prepare(self, job: ShippedJob) -> None:
        self.jobs.append(job)
        super().prepare(job)

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        rows = super().run(spec)
        self.rows += rows
        return rows


def prepare_job(runner: LocalRunner, out: Collect, ahead: int = 0) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    settings = Configuration().set_string("millstream.ahead.max-epochs", str(ahead))
    env.configure(settings.set_string("millstream.store.patience", "0 ms"))
    env.set_parallelism(1)
    env.add_source(Script([1, EPOCH, 2]), "numbers").uid("numbers").sink_to(out).uid("out")
    store = MemoryStore(f"failed-tasks-{next(_STORES)}")
    return Launch(ManualClock(), runner, store).prepare(env._graph("job"), env._job_settings())


def failing_ends(monkeypatch: pytest.MonkeyPatch, error: StoreError, times: int) -> None:
    """This number of tasks ends with this error when they check that their files are in the store."""
    left = iter(range(times))

    class Refused(StoreUse):
        def end(self) -> dict[str, int]:
            if next(left, None) is not None:
                raise error
            return super().end()

    monkeypatch.setattr(task, "StoreUse", Refused)


def reports_of(rows: list[tuple[int, bytes]]) -> list[FailureReport]:
    return [FailureReport.decode(payload) for kind, payload in rows if kind == FAILURE and payload]


def test_a_failed_upload_of_a_task_is_a_failure_with_its_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Raised, it would be a Spark error, which does not say that the store is unreachable."""
    failing_ends(monkeypatch, StoreAwayError("Store s3://a: no answer."), times=1)
    runner = RecordingRunner()
    with pytest.raises(JobFailedError, match="StoreAwayError: Store s3://a: no answer"):
        prepare_job(runner, Collect()).start().result()
    [report] = reports_of(runner.rows)
    assert (report.error, report.role, report.subtask, report.epoch) == ("StoreAwayError", "task", 0, 1)


def test_an_unreachable_store_costs_a_job_that_runs_ahead_no_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing_ends(monkeypatch, StoreAwayError("Store s3://a: no answer."), times=2)
    monkeypatch.setattr("millstream.checkpoint.failing.UNAVAILABLE_PAUSE_MS", 0)
    out = Collect()
    job = prepare_job(RecordingRunner(), out, ahead=3)
    job.start().result()
    newest = ManifestLog(job.store).newest()
    assert newest is not None and newest.status == "FINISHED"
    assert (out.values, job.board.now.restarts) == ([1, 2], 0)


def test_a_spec_that_cannot_be_read_is_a_failure_with_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = RecordingRunner()
    prepare_job(runner, Collect()).start().result()
    place = f"{worker.SPEC_FILE_MARK}specs/000000000001-none.json"
    context = SimpleNamespace(getLocalProperty={worker.SPEC_PROPERTY: place}.get, partitionId=lambda: 0)
    for error in (StoreAwayError("Store s3://a: no answer."), None):  # it does not respond, or has no such file
        monkeypatch.setattr(worker.TaskContext, "get", lambda: context)
        if error is not None:
            monkeypatch.setattr(MemoryStore, "get", lambda *_, e=error: (_ for _ in ()).throw(e))
        rows = [
            (envelope.kind, envelope.payload.to_pybytes())
            for batch in worker.stage_function(runner.jobs[0], 0)(iter([]))
            for envelope in open_envelopes(batch)
        ]
        monkeypatch.undo()
        [report] = reports_of(rows)
        assert report.error == ("StoreAwayError" if error is not None else "StoreDamagedError")
        assert "the running one; nothing of it was committed" in report.text()
