"""A job's output as an iterator in the program that started it.

Records arrive in the order of committed epochs. The iterator ends when the job ends, raises the job's failure instead
of returning the next record, and stops the job when closed early.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from millstream.common.job_status import JobStatus
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.collect import CollectQueue
from millstream.datastream.streams.job_output import JobOutput
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.records.collected import collected_form

if TYPE_CHECKING:
    from typing import Self

    from millstream.common.job_client import JobControl

__all__ = ["CloseableIterator"]


class CloseableIterator:
    """The records of `execute_and_collect`.

    Use it as `with stream.execute_and_collect() as records: ...`, or call `close()` explicitly.
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
        self._type_info = type_info
        self._form = collected_form(type_info)
        self._output = JobOutput(job, queue, queue_id, self._raise_failure)

    def next(self) -> Any:
        """The next record; raises StopIteration when the job has ended or the iterator is closed."""
        value = self._output.next()
        return value if self._form is None else self._form(value)

    def _raise_failure(self) -> None:
        if self._job.status() is JobStatus.FAILED:
            self._job.result()  # raises the job's failure

    def close(self) -> None:
        """Stops the job if it is running, and drops unread records. Idempotent."""
        self._output.close()

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
