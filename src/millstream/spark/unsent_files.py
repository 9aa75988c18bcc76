"""Lets executors send files that processes of their machine left unsent.

A Python worker continues to send the files of its tasks after they have ended (`storage/tier`). But Spark ends workers
that were idle for a minute, and others are killed; while a job waits for its store, no task arrives that could take
over their files. So the driver runs a Spark job with one task per core, which searches these files and starts to send
them. A worker that ran one of these tasks stays alive for another minute.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from millstream.runtime.task.spec import JobFacts
from millstream.storage.tier.tiered_store import TieredStore

__all__ = ["UnsentFiles"]

_LOG = logging.getLogger(__name__)


class UnsentFiles:
    """Runs the sending job on a separate thread, one at a time."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._sender: threading.Thread | None = None

    def send(self, facts: JobFacts) -> None:
        """Starts the job unless the previous one is still running; returns at once."""
        if facts.tier is not None and (self._sender is None or not self._sender.is_alive()):
            self._sender = threading.Thread(target=self._run, args=(facts,), name="millstream-unsent", daemon=True)
            self._sender.start()

    def _run(self, facts: JobFacts) -> None:
        try:
            slots = max(int(self._session.sparkContext.defaultParallelism), 1)
            self._session.range(0, slots, 1, slots).mapInArrow(partial(_begin_to_send, facts), "slot long").collect()
        except Exception as error:  # the job ends, or the cluster is busy: the caller retries
            _LOG.debug("executors could not send unsent files: %s", error)


def _begin_to_send(facts: JobFacts, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs on an executor."""
    store = facts.in_task().store
    if isinstance(store, TieredStore):
        store.adopt()
    for batch in rows:
        yield pa.record_batch({"slot": batch.column(0)})
