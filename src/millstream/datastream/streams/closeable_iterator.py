"""A job's output as an iterator in the program that started it.

Records come in the order of committed epochs. The iterator ends when the job ends, raises the job's failure where
the next record would have been, and stops the job when it is closed before the end.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any

from millstream.common.job_status import JobStatus
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.collect import CollectQueue, drop_queue
from millstream.datastream.streams.stream_edges import no_java_object

if TYPE_CHECKING:
    from typing import Self

    from millstream.common.job_client import JobControl

__all__ = ["CloseableIterator"]

# How often the iterator looks whether the job has ended while no record comes.
_LOOK_INTERVAL_S = 0.05


class CloseableIterator:
    """The records of `execute_and_collect`.

    Use it as `with stream.execute_and_collect() as records: ...`, or call `close()` yourself.
    """

    def __init__(
        self,
        j_closeable_iterator: Any = None,
        type_info: TypeInformation | None = None,
        *,
        job: JobControl | None = None,
        queue: CollectQueue | None = None,
        queue_id: str = "",
    ) -> None:
        no_java_object(self, j_closeable_iterator)
        assert job is not None and queue is not None, "execute_and_collect makes this iterator"
        self._job = job
        self._queue = queue
        self._queue_id = queue_id
        self._type_info = type_info
        self._ready: deque[Any] = deque()
        self._closed = False

    def next(self) -> Any:
        """The next record. StopIteration when the job has ended or the iterator is closed."""
        while not self._ready:
            if self._closed:
                raise StopIteration
            # Ask for the status first: records committed before the end are then surely in the queue.
            ended = self._job.status().is_terminal_state()
            self._ready.extend(self._queue.take(0 if ended else _LOOK_INTERVAL_S))
            if ended and not self._ready:
                self._end()
                raise StopIteration
        return self._ready.popleft()

    def _end(self) -> None:
        self._closed = True
        drop_queue(self._queue_id)
        if self._job.status() is JobStatus.FAILED:
            self._job.result()  # raises what the job failed with

    def close(self) -> None:
        """Stop the job, if it still runs, and drop what was not read. May be called again."""
        if self._closed:
            return
        self._closed = True
        self._ready.clear()
        # The queue first: a job that waits for its reader must be freed before it can be cancelled.
        drop_queue(self._queue_id)
        if not self._job.status().is_terminal_state():
            self._job.cancel()

    def __next__(self) -> Any:
        return self.next()

    def __iter__(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
