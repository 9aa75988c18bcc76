"""A sink that delivers the job's output to the program that started the job.

Tasks stage the records; the driver, in the same process as the program, delivers each committed epoch into a queue
identified by its id. An epoch published again after a restart in this process is delivered once: the queue remembers
the newest epoch of each committer. Another process has its own, empty registry; this sink does not work across
processes.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import CommitId, Json, RestorePoint, Sink, SinkWriter, WriterContext
from millstream.connectors.staging import StagedBatches, read_staged_values
from millstream.records.batch import Batch
from millstream.storage.store import Store

__all__ = ["CollectQueue", "CollectSink", "drop_queue", "open_queue"]


class CollectQueue:
    """Records of committed epochs, in order, until they are read.

    `capacity_records` makes `deliver` wait while that many records are unread, so that a slow reader slows the job;
    None (the default) never waits, for readers that read only after the job has ended.

    >>> queue = CollectQueue()
    >>> first = CommitId("3f9a", "out", 1)
    >>> queue.deliver(first, ["a", "b"]); queue.deliver(first, ["a", "b"])
    >>> queue.take(timeout_s=0), queue.take(timeout_s=0)
    (['a', 'b'], [])
    """

    def __init__(self, capacity_records: int | None = None) -> None:
        self._capacity_records = capacity_records
        self._values: list[Any] = []
        self._epochs: dict[str, int] = {}  # the newest epoch of each committer
        self._is_closed = False
        self._condition = threading.Condition()

    def deliver(self, commit: CommitId, values: Sequence[Any]) -> None:
        """Add the records of `commit`, unless they were added before."""
        with self._condition:
            if commit.epoch <= self._epochs.get(commit.committer, 0):
                return
            if self._capacity_records is not None:
                capacity = self._capacity_records
                self._condition.wait_for(lambda: self._is_closed or len(self._values) < capacity)
            self._epochs[commit.committer] = commit.epoch
            if not self._is_closed:
                self._values.extend(values)
            self._condition.notify_all()

    def take(self, timeout_s: float | None = None) -> list[Any]:
        """All available records; waits for the first one. Empty after the timeout, or if the queue is closed."""
        with self._condition:
            self._condition.wait_for(lambda: self._is_closed or bool(self._values), timeout_s)
            values, self._values = self._values, []
            self._condition.notify_all()
            return values

    def close(self) -> None:
        """The reader has stopped: drop later records, and end every wait."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()


_QUEUES: dict[str, CollectQueue] = {}
_QUEUES_LOCK = threading.Lock()


def open_queue(id: str, capacity_records: int | None = None) -> CollectQueue:
    """The queue of this process with that id, created if necessary."""
    with _QUEUES_LOCK:
        if id not in _QUEUES:
            _QUEUES[id] = CollectQueue(capacity_records)
        return _QUEUES[id]


def drop_queue(id: str) -> None:
    """Close and remove the queue."""
    with _QUEUES_LOCK:
        queue = _QUEUES.pop(id, None)
    if queue is not None:
        queue.close()


class CollectSink(Sink):
    """Delivers every record to `open_queue(sink.id)` in the driver's process.

    `type_info` is the type of the stream, None when it is untyped.
    """

    def __init__(self, type_info: TypeInformation | None = None, id: str | None = None) -> None:
        self.type_info = type_info
        self.id = id if id is not None else secrets.token_hex(8)

    def writer(self, context: WriterContext) -> SinkWriter:
        return _CollectWriter(context)

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        values = [value for payload in publish for value in read_staged_values(payload, store, self.type_info)]
        open_queue(self.id).deliver(commit, values)

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        return (
            pending,
            "this program collects the output after that epoch; output collected before by others stays with them",
        )

    def staged_records(self, staged: Json, store: Store) -> Sequence[Any]:
        return read_staged_values(staged, store, self.type_info)

    def describe(self) -> str:
        return "collect into the program"


class _CollectWriter(SinkWriter):
    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._staged = StagedBatches()

    def write(self, batch: Batch) -> None:
        self._staged.add(batch)

    def stage(self) -> Sequence[Json]:
        return (self._staged.stage(self._context),) if self._staged.records else ()
