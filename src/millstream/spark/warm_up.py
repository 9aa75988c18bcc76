"""An executor that comes while a job runs is made ready before subtasks are sent to it.

Its first task fetches the program's files, starts a Python process and imports what the job needs: seconds, in which
the subtasks of all other executors would wait for it at the end of their stage. So tasks that do nothing else go there
first, one for each of its cores, beside the epochs that run elsewhere. When they are done, or could not be done, the
executor is as good as others.
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
    """Which executors of a session are ready for a job's subtasks; others are made so, one after the other."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._job: ShippedJob | None = None
        self._requests: set[str] = set()
        self._ready: set[str] = set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="millstream-warm-up")

    def begin(self, job: ShippedJob | None) -> None:
        """From now on executors are made ready for this job."""
        self._job = job

    def take_as_ready(self, executors: Collection[Executor]) -> None:
        """Their subtasks are not to wait: nothing runs yet that could go on without them."""
        self._ready.update(executor.id for executor in executors)

    def is_ready(self, executor: Executor) -> bool:
        """Whether it is; if not, it will be."""
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
        except Exception as error:  # it is gone again, or the job ends
            _LOG.debug("executor %s could not be made ready: %s", executor.id, error)
        finally:
            self._ready.add(executor.id)

    def close(self) -> None:
        """None is made ready any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _wake(job: ShippedJob | None, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What runs on an executor: all that its first task would import and unpack."""
    import millstream.spark.worker  # noqa: F401  what tasks run in

    if job is not None:
        job.plan()
    yield from rows
