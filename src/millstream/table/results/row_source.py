"""Sources of a result's rows, batch by batch: the catalog, or a running job.

A batch has the result's columns, followed by the column of row kinds if rows may change. A source is read once.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from millstream.common.job_status import JobStatus
from millstream.connectors.collect import CollectQueue, CollectSink, open_queue
from millstream.connectors.contracts import CommitId, Json
from millstream.connectors.staging import decode_columns, read_staged
from millstream.datastream.streams.job_output import JobOutput
from millstream.errors import JobFailedError, StoreError
from millstream.jobs.console.foreground import FailureInTask
from millstream.jobs.launch.job import Job
from millstream.records.columns import to_record_batch
from millstream.records.table_type import TableRowType
from millstream.storage.store import Store, shown_address

__all__ = ["ColumnCollectSink", "InsertedRows", "JobRows", "RowSource", "StoredRows"]

_BATCHES_MAX = 256
"""Committed batches buffered for a slow reader; at this limit the job waits."""


class ColumnCollectSink(CollectSink):
    """Delivers the rows of a query to the program as record batches."""

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        batches = [batch for payload in publish for batch in decode_columns(read_staged(payload, store))]
        open_queue(self.id).deliver(commit, batches)

    def open(self) -> CollectQueue:
        """The queue that receives the batches."""
        return open_queue(self.id, _BATCHES_MAX)


class RowSource(ABC):
    """Batches of rows, readable once."""

    @abstractmethod
    def next_batch(self) -> pa.RecordBatch | None:
        """Waits for the next batch; None at the end."""

    @abstractmethod
    def close(self) -> None:
        """Stops reading. Idempotent."""

    def take(self, timeout_s: float | None) -> list[pa.RecordBatch] | None:
        """The available batches; a job's batches in whole epochs. Empty after the timeout, None at the end."""
        batch = self.next_batch()
        return None if batch is None else [batch]

    @property
    def job(self) -> Job | None:
        """The job that computes the rows."""
        return None

    def wait(self, timeout_s: float | None) -> bool:
        """Waits until rows are available or the end is reached; False after the timeout."""
        return True


class StoredRows(RowSource):
    """Rows in memory."""

    def __init__(self, rows: Sequence[Sequence[Any]], type_info: TableRowType) -> None:
        self._batch: pa.RecordBatch | None = to_record_batch([tuple(row) for row in rows], type_info) if rows else None

    def next_batch(self) -> pa.RecordBatch | None:
        batch, self._batch = self._batch, None
        return batch

    def close(self) -> None:
        self._batch = None


class JobRows(RowSource):
    """The rows of a running job, by committed epoch. Closing it ends the job.

    Closing also removes the query's store; the store of a failed job remains for inspection."""

    def __init__(self, job: Job, queue: CollectQueue, queue_id: str) -> None:
        self._job = job
        self._output = JobOutput(job, queue, queue_id, self._end)

    @property
    def job(self) -> Job:
        return self._job

    def next_batch(self) -> pa.RecordBatch | None:
        try:
            return self._output.next()
        except StopIteration:
            return None

    def take(self, timeout_s: float | None) -> list[pa.RecordBatch] | None:
        return self._output.take(timeout_s)

    def wait(self, timeout_s: float | None) -> bool:
        return self._output.wait(timeout_s)

    def _end(self) -> None:
        if self._job.status() is JobStatus.FAILED:
            raise_failure(self._job)
        self._remove_store()

    def _remove_store(self) -> None:
        """Removes the store of an ended job, which is never restored."""
        self._job.wait()
        store = self._job.store
        folder = shown_address(store.url)
        if os.path.isdir(folder):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            with suppress(StoreError):
                store.delete_many(store.list(""))

    def close(self) -> None:
        if not self._output.close():
            return
        self._job.wait()
        if self._job.status() is not JobStatus.FAILED:
            self._remove_store()


class InsertedRows(RowSource):
    """The single row of finished INSERTs: -1 for each, as in Flink. Closing it does not end the job."""

    def __init__(self, job: Job, type_info: TableRowType) -> None:
        self._job = job
        self._row = StoredRows([[-1] * len(type_info.row_type.fields)], type_info)

    @property
    def job(self) -> Job:
        return self._job

    def next_batch(self) -> pa.RecordBatch | None:
        self.wait(None)
        return self._row.next_batch()

    def wait(self, timeout_s: float | None) -> bool:
        if not self._job.wait(timeout_s):
            return False
        raise_failure(self._job)
        return True

    def close(self) -> None:
        self._row.close()


def raise_failure(job: Job) -> None:
    """Raises the job's failure, with the user's traceback first."""
    try:
        job.result()
    except JobFailedError as error:
        error.__traceback__ = None
        if error.report:
            in_task = FailureInTask(error.report)
            in_task.__cause__ = error.__cause__
            raise error from in_task
        raise
