"""Runs a job in the foreground: the work of `env.execute()` between starting a job and returning its result.

It attaches the console, lets Ctrl-C stop the job, waits, and reports an end that the program does not handle: a stopped
job with the command that resumes it, a failed one with the user's traceback first.

Called from any thread other than the main one, it only waits: signals and the screen belong to the main thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO, TypeAlias

from millstream.common import options
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_status import JobStatus
from millstream.errors import JobFailedError
from millstream.graph.error_report import aborted
from millstream.jobs.console.console import attach_console, console_mode, starting_line
from millstream.jobs.console.interrupts import stop_on_interrupt
from millstream.jobs.launch.job import Job
from millstream.storage.store import shown_address

__all__ = ["FailureInTask", "Launcher", "run_in_foreground", "start_in_sight"]

_STARTING = "starting Spark …"

Launcher: TypeAlias = Callable[[Callable[[], None]], Job]
"""Starts a job; its argument is called before a JVM is started, if that is necessary."""


class FailureInTask(Exception):
    """The user's traceback from a task, as the cause of a `JobFailedError`: Python prints a cause first."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}\n"


def run_in_foreground(
    launch: Launcher, configuration: Mapping[str, str], stream: TextIO | None = None
) -> JobExecutionResult:
    """Start a job, show it on `stream` (standard error), and wait for its end. Returns its result, or raises its
    error."""
    if threading.current_thread() is not threading.main_thread():
        return _result(launch(_show_nothing))
    stream = stream or sys.stderr
    mode = console_mode(options.read(options.CONSOLE, configuration), stream.isatty())
    job = start_in_sight(launch, configuration, stream)
    console = attach_console(job.board, mode, stream)
    try:
        with stop_on_interrupt(job, console.notice, lambda: job.board.now.epoch + 1) as interrupts:
            job.wait()
    finally:
        console.close()
    if interrupts.aborting:
        raise aborted("aborted")
    if job.status() is JobStatus.SUSPENDED:
        _print_how_to_resume(job, stream)
    elif mode != "off" and options.read(options.STORE, configuration) is None:
        _print_store(job, stream)
    return _result(job)


def start_in_sight(launch: Launcher, configuration: Mapping[str, str], stream: TextIO | None = None) -> Job:
    """Start a job. Spark's JVM takes many seconds to start, and an empty screen would look like a hang. So a terminal
    shows a line until Spark has started or Ctrl-C ends the wait."""
    try:
        return _started(launch, configuration, stream or sys.stderr)
    except KeyboardInterrupt:
        raise aborted("aborted before the job began") from None


def _started(launch: Launcher, configuration: Mapping[str, str], stream: TextIO) -> Job:
    mode = console_mode(options.read(options.CONSOLE, configuration), stream.isatty())
    if mode == "off" or threading.current_thread() is not threading.main_thread():
        return launch(_show_nothing)
    if mode == "plain":
        return launch(lambda: print(_STARTING, file=stream, flush=True))
    with ExitStack() as line:
        return launch(lambda: line.enter_context(starting_line(_STARTING, stream)))


def _show_nothing() -> None:
    """Nothing is displayed."""


def _result(job: Job) -> JobExecutionResult:
    try:
        return job.result()
    except JobFailedError as error:
        # The driver thread's frames are ours; the user's line is the one that called execute().
        error.__traceback__ = None
        if error.report:
            raise error from FailureInTask(error.report)
        raise


def _print_how_to_resume(job: Job, stream: TextIO) -> None:
    now = job.board.now
    print(
        f"stopped at epoch {now.epoch}; everything up to it is published. "
        f"Resume it with: millstream run --from {shown_address(now.store)} …",
        file=stream,
        flush=True,
    )


def _print_store(job: Job, stream: TextIO) -> None:
    """Prints the store created for a job without a configured one; it is not removed automatically."""
    now = job.board.now
    folder = shown_address(now.store).removeprefix(f"{Path.cwd()}/")
    print(f"millstream: the store of this run stays in {folder} (millstream remove)", file=stream, flush=True)
