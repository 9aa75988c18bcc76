"""Moments of a running job at which a test does something, once."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from random import Random

from millstream.common.job_status import JobStatus
from millstream.jobs.epochs.progress import JobProgress
from millstream.jobs.launch.job import Job

__all__ = ["killed_until_finished", "when"]


def when(job: Job, is_time: Callable[[JobProgress], bool], act: Callable[[], object]) -> None:
    """Call `act` once, as soon as `is_time` is true."""
    done = threading.Event()

    def look(progress: JobProgress) -> None:
        if not done.is_set() and is_time(progress):
            done.set()
            act()

    job.board.listen(look)


def killed_until_finished(start: Callable[[], Job], lose: Callable[[], object], draw: Random, runs_max: int) -> None:
    """Run a job that runs ahead of its commits repeatedly, and each time kill it at a random moment, losing its
    unsent files (`lose`); until it has finished.
    """
    for _ in range(runs_max):
        job = start()
        counted, moment = itertools.count(), draw.randrange(10, 60)
        when(job, lambda now, c=counted, m=moment: next(c) >= m, job.cancel)  # type: ignore[misc]
        job.start().wait()
        lose()
        if job.status() is JobStatus.FINISHED:
            return
    raise AssertionError(f"the job did not come to its end in {runs_max} runs")
