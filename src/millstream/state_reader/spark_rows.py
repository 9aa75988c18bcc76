"""The rows of a state as a Spark DataFrame: one partition per range of key groups.

Nothing passes through the driver. A partition is a number; the task that gets it opens the store, reads the ranges of
the segments that hold its key groups, and hands Arrow batches to Spark. The store must be one that tasks can open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from millstream.errors import ProgramError
from millstream.state.keys.key_columns import key_group_range
from millstream.state_reader.table_source import TableSource

__all__ = ["spark_frame"]


def spark_frame(session: Any, source: Any, partitions: int | None) -> Any:
    """The DataFrame."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if source.store.url.startswith("memory://"):
        raise ProgramError(
            f"store {source.store.url} is in this process's memory, which Spark's tasks cannot read. Use to_arrow(), "
            "or keep the job's store in a folder."
        )
    if not isinstance(source, TableSource):  # what belongs to subtasks is small
        return session.createDataFrame(pa.Table.from_batches(source.blocks()))
    groups = source.layout.max_parallelism
    count = min(partitions or _cores(session), groups)
    schema = from_arrow_schema(source.schema, prefer_timestamp_ntz=True)
    return session.range(0, count, 1, count).mapInArrow(_reader(source, count, groups), schema)


def _cores(session: Any) -> int:
    context = getattr(session, "sparkContext", None)
    return int(context.defaultParallelism) if context is not None else 8


def _reader(
    source: TableSource, partitions: int, groups: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from source.blocks(key_group_range(number, partitions, groups))

    return read
