"""Moments of a running job at which a test does something, once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from millstream.jobs.epochs.progress import JobProgress
from millstream.jobs.launch.job import Job

__all__ = ["when"]


def when(job: Job, is_time: Callable[[JobProgress], bool], act: Callable[[], object]) -> None:
    """Call `act` once, when it is time."""
    done = threading.Event()

    def look(progress: JobProgress) -> None:
        if not done.is_set() and is_time(progress):
            done.set()
            act()

    job.board.listen(look)
