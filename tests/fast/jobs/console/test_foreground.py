"""A job in the foreground: the effect of Ctrl-C, how its end is reported, and where its log is written."""

from __future__ import annotations

import logging
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millstream.common import JobStatus
from millstream.jobs.console.interrupts import Interrupts, stop_on_interrupt
from millstream.jobs.epochs.progress import JobProgress, ProgressBoard
from millstream.jobs.launch.job_log import attach_log
from millstream.storage.store import open_store


class RecordingJob:
    """A job that records the requests it receives."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def stop(self) -> None:
        self.requests.append("stop")

    def cancel(self) -> None:
        self.requests.append("cancel")


def test_the_first_interrupt_stops_the_second_cancels_the_third_aborts() -> None:
    job, notices = RecordingJob(), []
    interrupts = Interrupts(job, notices.append, epoch=lambda: 12)
    interrupts.interrupt()
    assert (job.requests, interrupts.stopping, interrupts.aborting) == (["stop"], True, False)
    interrupts.interrupt()
    assert (job.requests, interrupts.aborting) == (["stop", "cancel"], True)
    with pytest.raises(KeyboardInterrupt):
        interrupts.interrupt()
    assert notices[0] == "finishing epoch 12; Ctrl-C again to abort" and notices[1].startswith("aborting")


def test_terminate_stops_once_and_never_cancels() -> None:
    job, notices = RecordingJob(), []
    interrupts = Interrupts(job, notices.append, epoch=lambda: 3)
    interrupts.terminate()
    interrupts.terminate()
    assert job.requests == ["stop"] and notices == ["finishing epoch 3; requested by TERM"]


def test_signals_reach_the_job_and_the_previous_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    job = RecordingJob()
    with stop_on_interrupt(job, lambda text: None, lambda: 1):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    assert job.requests == ["stop", "cancel"]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_wait_is_interrupted_by_the_signal_and_continues() -> None:
    ended = threading.Event()
    waiting = threading.Thread(target=ended.wait)
    waiting.start()

    class JobThatEnds(RecordingJob):
        def stop(self) -> None:
            super().stop()
            ended.set()

    job = JobThatEnds()
    threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with stop_on_interrupt(job, lambda text: None, lambda: 1):
        waiting.join(30)
    assert job.requests == ["stop"] and not waiting.is_alive()


def test_another_thread_installs_no_signal_handlers() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def elsewhere() -> None:
        with stop_on_interrupt(RecordingJob(), lambda text: None, lambda: 1):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before]


# --- the log --------------------------------------------------------------------------------------------------


@contextmanager
def bare_logging() -> Iterator[None]:
    """Logging as in a program that never configured it (pytest has handlers of its own)."""
    root = logging.getLogger()
    handlers, root.handlers[:] = root.handlers[:], []
    try:
        yield
    finally:
        root.handlers[:] = handlers


def test_the_runs_log_file_has_all_records_with_tracebacks(tmp_path: Path) -> None:
    with bare_logging():
        log = attach_log(open_store(str(tmp_path)), "ab12")
        logging.getLogger("my.job").warning("careful: %s", "hot")
        try:
            raise RuntimeError("org.apache.spark.SparkException: at org.apache.spark.Foo(Foo.scala:1)")
        except RuntimeError:
            logging.getLogger("millstream.jobs.epochs.driver").exception("epoch 3 failed")
        log.write("job 'clicks' started")
        log.close()
        log.close()
        logging.getLogger("my.job").error("too late")
    text = (tmp_path / "logs" / "ab12.log").read_text(encoding="utf-8")
    assert log.path == tmp_path / "logs" / "ab12.log"
    assert "WARNING my.job: careful: hot" in text and "INFO    millstream: job 'clicks' started" in text
    assert "epoch 3 failed" in text and "Foo.scala:1" in text
    assert "too late" not in text


def test_warnings_still_reach_the_screen_of_a_program_without_logging(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with bare_logging():
        log = attach_log(open_store(str(tmp_path)), "ab12")
        logging.getLogger("my.job").warning("careful")
        logging.getLogger("millstream.jobs.epochs.driver").warning("restarting in 5 ms: boom")
        logging.getLogger("millstream.jobs.epochs.driver").error("raised to the user anyway")
        logging.getLogger("py4j").error("a wall of frames")
        log.close()
    assert capsys.readouterr().err == "careful\nmillstream: restarting in 5 ms: boom\n"


def test_a_programs_own_logging_configuration_is_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    handlers = logging.getLogger().handlers[:]
    assert handlers, "pytest's own handlers are installed"
    log = attach_log(open_store(str(tmp_path)), "ab12")
    logging.getLogger("my.job").warning("careful")
    log.close()
    assert logging.getLogger().handlers == handlers and capsys.readouterr().err == ""


def test_the_log_has_the_job_and_its_last_epoch(tmp_path: Path) -> None:
    board = ProgressBoard(JobProgress("clicks", "j1", "jobs/a", status="RUNNING"))
    log = attach_log(open_store(str(tmp_path)), "ab12", board)
    board.change(epoch=7, records_in=1200)
    log.end(JobStatus.SUSPENDED, None, runtime_ms=192_000)
    board.change(epoch=8)
    lines = [line.partition("millstream: ")[2] for line in log.path.read_text(encoding="utf-8").splitlines()]
    assert lines == [
        f"run ab12 of job 'clicks' (j1), store {tmp_path.as_uri()}",
        "clicks RUNNING  epoch 7 (0 ms)  in 1,200 (0/s)  out 0 (0/s)",
        "the job ended as SUSPENDED after 3 min 12 s, at epoch 7, published up to 0",
    ]


def test_a_store_that_is_not_local_logs_to_a_temporary_file() -> None:
    log = attach_log(open_store("memory://test-log"), "ab12cd")
    log.write("hello")
    log.close()
    try:
        assert log.path.name.startswith("millstream-ab12cd-") and "hello" in log.path.read_text(encoding="utf-8")
    finally:
        log.path.unlink()


# --- the end --------------------------------------------------------------------------------------------------


def shown_when_raised(raise_it: Callable[[], None]) -> str:
    try:
        raise_it()
    except Exception as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("nothing was raised")


def test_an_uncaught_failure_shows_the_users_traceback_first() -> None:
    from millstream.errors import JobFailedError
    from millstream.jobs.console.foreground import FailureInTask

    def fail() -> None:
        raise JobFailedError("'Map' failed: ValueError: x", report="REPORT", at="job.py:3") from FailureInTask("REPORT")

    shown = shown_when_raised(fail)
    user_traceback_at = shown.index("Traceback (most recent call last)")
    assert shown.index("REPORT") < user_traceback_at < shown.index("JobFailedError: 'Map'")
