"""A hanging function is reported with its location; its epoch is cancelled where a timeout is set."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator

import pytest

from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import JobFailedError
from millstream.jobs.epochs import epoch_run
from millstream.jobs.epochs.epoch_run import EpochTimedOutError
from millstream.jobs.epochs.epoch_size import EpochTuner
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.jobs.settings.driver_settings import driver_settings
from millstream.jobs.settings.job_settings import JobSettings
from millstream.runtime.task.local import LocalRunner
from millstream.runtime.task.stalled_tasks import StalledTask, TaskWatch, stalled_tasks, text_of_stalled
from millstream.state_reader.verifying import verify
from millstream.storage.memory import MemoryStore
from millstream.storage.names import SPECS
from millstream.testing import Collect, ManualClock, Script

RELEASED = threading.Event()


def hangs(n: int) -> int:
    if n == 3:
        assert RELEASED.wait(60), "nobody came"
    return n


class Releasing(LocalRunner):
    """A runner whose cancel reaches the function."""

    def cancel(self) -> None:
        super().cancel()
        RELEASED.set()


class ReleasingHandler(logging.Handler):
    """Releases the function when the epoch is reported."""

    def emit(self, record: logging.LogRecord) -> None:
        if "and continues" in record.getMessage():
            RELEASED.set()


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    """The imports of a process's first job take seconds on a busy machine."""
    RELEASED.set()
    start_job("overdue-0", Collect()).result()


@pytest.fixture(autouse=True)
def _held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(epoch_run, "_STALLED_SHARE", 1 / 4)
    RELEASED.clear()
    handler = ReleasingHandler()
    logging.getLogger("millstream").addHandler(handler)
    yield
    logging.getLogger("millstream").removeHandler(handler)
    RELEASED.set()


def start_job(name: str, out: Collect, configuration: dict[str, str] | None = None) -> Job:
    env = StreamExecutionEnvironment()
    env.set_parallelism(1)
    env.configure(Configuration.from_dict(configuration or {}))
    env.add_source(Script([1, 2, 3, 4], type_info=Types.LONG())).map(hangs, Types.LONG()).name("slow").sink_to(out)
    return Launch(ManualClock(), Releasing(), MemoryStore(name)).start(env._graph("job"), env._job_settings())


def test_an_epoch_with_a_hanging_function_is_cancelled_and_the_error_has_its_location(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = start_job("overdue-1", Collect(), {"execution.checkpointing.timeout": "2 s"})
    with pytest.raises(JobFailedError) as failure:
        job.result()
    assert isinstance(failure.value.__cause__, EpochTimedOutError)
    for part in (
        r"epoch 1 took longer than 2000 ms (execution.checkpointing.timeout) and was cancelled",
        "'slow' (test_overdue_epochs.py:",
        "subtask 0, has not acknowledged; it is at test_overdue_epochs.py:",
        ", in hangs. If it needs the time",
    ):
        assert part in str(failure.value)
    assert "\n" not in str(failure.value)
    [report] = [r.getMessage() for r in caplog.records if "and is cancelled" in r.getMessage()]
    assert 'assert RELEASED.wait(60), "nobody came"' in report
    assert not MemoryStore("overdue-1").list(SPECS)


def test_a_batch_epoch_is_reported_and_continues(caplog: pytest.LogCaptureFixture) -> None:
    out = Collect()
    start_job("overdue-2", out, {"execution.checkpointing.timeout": "2 s", "execution.runtime-mode": "BATCH"}).result()
    assert sorted(out.values) == [1, 2, 3, 4]
    [report] = [r.getMessage() for r in caplog.records if "and continues" in r.getMessage()]
    assert "'slow'" in report and "RELEASED.wait(60)" in report


def test_a_task_is_reported_once_and_only_if_it_is_late() -> None:
    watch, late = TaskWatch(), threading.Event()
    lines: list[str] = []

    def report(frame: object) -> None:
        lines.append(type(frame).__name__)
        late.set()

    with watch.over(60_000, report):
        pass
    with watch.over(60_000, report), watch.over(1, report):
        assert late.wait(60)
    assert lines == ["frame"]


def test_a_failing_report_does_not_stop_the_watch() -> None:
    watch, late = TaskWatch(), threading.Event()

    def fails(frame: object) -> None:
        raise OSError("the store is away")

    with watch.over(1, fails), watch.over(2, lambda frame: late.set()):
        assert late.wait(60)
    assert sys._current_frames()


def test_task_reports_are_bounded_and_unreadable_ones_are_skipped() -> None:
    store = MemoryStore("overdue-3")
    store.put("specs/000000000007-stalled0x0xa1.json", b"{}")
    store.put("specs/000000000007-ab.json", b"{}")
    assert stalled_tasks(store, 7) == [] and stalled_tasks(store, 8) == []
    text = text_of_stalled([StalledTask(0, subtask, "'slow'", "job.py:3", "", "lines") for subtask in range(128)])
    assert text.endswith("124 more tasks have not either") and text.count("has not acknowledged") == 4


def test_javas_longest_duration_means_no_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    RELEASED.set()
    out = Collect()
    job = start_job("endless", out, {"execution.checkpointing.timeout": "9223372036854775807 ms"})
    assert job.wait((2**63 - 1) / 1000) and out.values == [1, 2, 3, 4] and not raised


def test_after_a_timeout_epochs_read_less() -> None:
    configuration = {"execution.checkpointing.timeout": "10 min"}
    settings = driver_settings(
        JobSettings(configuration=configuration), batch=False, parallelism=1, max_parallelism=128
    )
    tuner = EpochTuner(settings, 0, ends_by_bytes=True)
    first = tuner.budget
    tuner.timed_out()
    tuner.recool()
    assert tuner.budget == first // 4
    for _ in range(20):
        tuner.timed_out()
    assert tuner.budget == 1


def test_verify_checks_task_reports() -> None:
    out = Collect()
    RELEASED.set()
    start_job("overdue-4", out).result()
    MemoryStore("overdue-4").put("specs/000000000001-stalled0x0xa1.json", b"{}")
    assert "stalled0x0xa1" in verify("memory://overdue-4").text()
