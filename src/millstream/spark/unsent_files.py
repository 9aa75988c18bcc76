"""Lets executors send files that processes of their machine have left unsent.

A Python worker sends what its tasks wrote also after they have ended (`storage/tier`). But Spark ends workers that had
nothing to do for a minute, and others are killed; while a job waits for its store, no task comes that could take over
what they left. So the driver asks: a Spark job with a task for every core there is, which looks for such files and
begins to send them. A worker that was asked stays for another minute.
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
    """Asks the executors of a session, on a thread of its own, one question at a time."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._asking: threading.Thread | None = None

    def send(self, facts: JobFacts) -> None:
        """Ask, unless the last question is not answered yet; returns at once."""
        if facts.tier is not None and (self._asking is None or not self._asking.is_alive()):
            self._asking = threading.Thread(target=self._ask, args=(facts,), name="millstream-unsent", daemon=True)
            self._asking.start()

    def _ask(self, facts: JobFacts) -> None:
        try:
            slots = max(int(self._session.sparkContext.defaultParallelism), 1)
            self._session.range(0, slots, 1, slots).mapInArrow(partial(_begin_to_send, facts), "slot long").collect()
        except Exception as error:  # the job ends, or the cluster is busy: whoever waits asks again
            _LOG.debug("executors could not be asked for unsent files: %s", error)


def _begin_to_send(facts: JobFacts, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What runs on an executor."""
    store = facts.in_task().store
    if isinstance(store, TieredStore):
        store.adopt()
    for batch in rows:
        yield pa.record_batch({"slot": batch.column(0)})
