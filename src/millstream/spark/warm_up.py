"""Warms up executors that join while a job runs, before they get subtasks.

An executor's first task fetches the program's files, starts a Python process and imports what the job needs. This takes
seconds, during which the subtasks of all other executors would wait for it at the end of their stage. So tasks without
other work run there first, one per core, concurrently with epochs on other executors. When they are done or have
failed, the executor is used like the others.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa

from millstream.runtime.task.shipped_job import ShippedJob
from millstream.spark.placed_rows import placed_rows
from millstream.spark.placement import Executor

__all__ = ["WarmUp"]

_LOG = logging.getLogger(__name__)


class WarmUp:
    """Tracks which executors of a session are ready for a job's subtasks, and warms up others one after the other."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._job: ShippedJob | None = None
        self._requests: set[str] = set()
        self._ready: set[str] = set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="millstream-warm-up")

    def begin(self, job: ShippedJob | None) -> None:
        """Sets the job for which executors are warmed up."""
        self._job = job

    def assume_ready(self, executors: Collection[Executor]) -> None:
        """Marks executors as ready, because their subtasks must not wait: no others could continue without them."""
        self._ready.update(executor.id for executor in executors)

    def is_ready(self, executor: Executor) -> bool:
        """Whether an executor is ready; if not, starts to warm it up."""
        if executor.id in self._ready:
            return True
        if executor.id not in self._requests:
            self._requests.add(executor.id)
            self._thread.submit(self._warm_up, executor, self._job)
        return False

    def _warm_up(self, executor: Executor, job: ShippedJob | None) -> None:
        try:
            rows = placed_rows(self._session, [executor] * executor.cores)
            rows.mapInArrow(partial(_wake, job), "place int").collect()
        except Exception as error:  # it was lost again, or the job ends
            _LOG.debug("executor %s could not be warmed up: %s", executor.id, error)
        finally:
            self._ready.add(executor.id)

    def close(self) -> None:
        """Stops warming up."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _wake(job: ShippedJob | None, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs on an executor: imports and unpacks everything that its first task needs."""
    import millstream.spark.worker  # noqa: F401  the code of tasks

    if job is not None:
        job.plan()
    yield from rows
