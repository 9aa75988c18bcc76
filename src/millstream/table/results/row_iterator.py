"""Iterates over the rows of a result, decoding a batch at a time."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from millstream.graph.site import refuse
from millstream.records.collected import collected_form
from millstream.records.columns import from_record_batch
from millstream.records.table_type import TableRowType
from millstream.records.unpickling import unpickled
from millstream.table.results.row_source import RowSource

__all__ = ["CloseableIterator", "decoded"]


def decoded(batch: pa.RecordBatch, type_info: TableRowType) -> list[Any]:
    """The rows of a batch, with their kinds, in the form of PyFlink's `collect`."""
    form = collected_form(type_info)
    rows = from_record_batch(batch, type_info, unpickled)
    return rows if form is None else [form(row) for row in rows]


class CloseableIterator:
    """The rows of `TableResult.collect`. Closing it, also by a `with` block, ends the job."""

    def __init__(
        self, j_closeable_iterator: Any, field_data_types: Any = None, *, type_info: TableRowType | None = None
    ) -> None:
        if not isinstance(j_closeable_iterator, RowSource) or type_info is None:
            raise refuse("CloseableIterator: TableResult.collect() gives one")
        self._source = j_closeable_iterator
        self._type_info = type_info
        self._rows: deque[Any] = deque()

    def next(self) -> Any:
        """The next row; StopIteration at the end."""
        while not self._rows:
            batch = self._source.next_batch()
            if batch is None:
                raise StopIteration
            self._rows.extend(decoded(batch, self._type_info))
        return self._rows.popleft()

    def close(self) -> None:
        """Ends the job, if it is running, and drops unread rows. Idempotent."""
        self._rows.clear()
        self._source.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self.next()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
