"""A job in the foreground: what Ctrl-C asks of it, how its end is told, and where its log goes."""

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


class Recorded:
    """A job that writes down what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def stop(self) -> None:
        self.asked.append("stop")

    def cancel(self) -> None:
        self.asked.append("cancel")


def test_the_first_interrupt_stops_the_second_cancels_the_third_gives_up() -> None:
    job, said = Recorded(), []
    interrupts = Interrupts(job, said.append, epoch=lambda: 12)
    interrupts.interrupt()
    assert (job.asked, interrupts.stopping, interrupts.aborting) == (["stop"], True, False)
    interrupts.interrupt()
    assert (job.asked, interrupts.aborting) == (["stop", "cancel"], True)
    with pytest.raises(KeyboardInterrupt):
        interrupts.interrupt()
    assert said[0] == "finishing epoch 12; Ctrl-C again to abort" and said[1].startswith("aborting")


def test_terminate_stops_once_and_never_cancels() -> None:
    job, said = Recorded(), []
    interrupts = Interrupts(job, said.append, epoch=lambda: 3)
    interrupts.terminate()
    interrupts.terminate()
    assert job.asked == ["stop"] and said == ["finishing epoch 3; requested by TERM"]


def test_real_signals_reach_the_job_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    job = Recorded()
    with stop_on_interrupt(job, lambda text: None, lambda: 1):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    assert job.asked == ["stop", "cancel"]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_wait_is_interrupted_by_the_signal_and_goes_on() -> None:
    ended = threading.Event()
    waiting = threading.Thread(target=ended.wait)
    waiting.start()

    class Ending(Recorded):
        def stop(self) -> None:
            super().stop()
            ended.set()

    job = Ending()
    threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with stop_on_interrupt(job, lambda text: None, lambda: 1):
        waiting.join(30)
    assert job.asked == ["stop"] and not waiting.is_alive()


def test_another_thread_leaves_signals_alone() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def elsewhere() -> None:
        with stop_on_interrupt(Recorded(), lambda text: None, lambda: 1):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before]


# --- the log --------------------------------------------------------------------------------------------------


@contextmanager
def bare_logging() -> Iterator[None]:
    """Logging as a program finds it that never set it up (pytest has handlers of its own)."""
    root = logging.getLogger()
    kept, root.handlers[:] = root.handlers[:], []
    try:
        yield
    finally:
        root.handlers[:] = kept


def test_everything_logged_is_in_the_runs_file_with_tracebacks(tmp_path: Path) -> None:
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


def test_a_program_with_its_own_logging_keeps_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = logging.getLogger().handlers[:]
    assert kept, "pytest's own handlers are there"
    log = attach_log(open_store(str(tmp_path)), "ab12")
    logging.getLogger("my.job").warning("careful")
    log.close()
    assert logging.getLogger().handlers == kept and capsys.readouterr().err == ""


def test_the_log_says_which_job_it_was_and_how_far_it_came(tmp_path: Path) -> None:
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


def test_the_users_traceback_comes_first_when_nobody_catches_the_failure() -> None:
    from millstream.errors import JobFailedError
    from millstream.jobs.console.foreground import FailureInTask

    def fail() -> None:
        raise JobFailedError("'Map' failed: ValueError: x", report="REPORT", at="job.py:3") from FailureInTask("REPORT")

    shown = shown_when_raised(fail)
    ours = shown.index("Traceback (most recent call last)")
    assert shown.index("REPORT") < ours < shown.index("JobFailedError: 'Map'")
