"""The baselines: what a competent PySpark user writes by hand for the same work.

Every frame is built once, outside the measured time, and returns only counts, as our own jobs do. The caller chooses
the session: Spark's default settings (batch sizes, code generation, adaptive execution) where typed rows cross the JVM,
for which they are better; our settings, which start jobs faster, everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from gated import Batches
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as f
from records import KEYED_DDL

__all__ = [
    "collect",
    "column_loop",
    "doubled",
    "exchange",
    "keyed_exchange",
    "one_pass",
    "passed_on",
    "reworked",
    "row_loop",
    "smallest",
    "tuple_loop",
]

Rows = Iterator[pa.RecordBatch]
Pass = Callable[[pa.RecordBatch], pa.RecordBatch]

_TASKS = 2


def collect(frame: DataFrame) -> float:
    """Execute `frame` again: a `select` of it is a plan of its own, so no shuffle is reused."""
    return float(sum(row[0] for row in frame.select("*").collect()))


def one_pass(session: SparkSession, batches: Batches, per_batch: Pass) -> DataFrame:
    """Read and run `per_batch` in one `mapInArrow`; rows are counts."""

    def run(rows: Rows) -> Rows:
        for task in rows:
            for split in task.column(0).to_pylist():
                count = sum(per_batch(batch).num_rows for batch in batches(split, _TASKS))
                yield pa.RecordBatch.from_arrays([pa.array([count], pa.int64())], names=["records"])

    return session.range(0, _TASKS, 1, _TASKS).mapInArrow(run, "records long")


def passed_on(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A columnar function that changes nothing."""
    return batch


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A columnar function that computes one column anew."""
    return batch.set_column(1, "value", pc.multiply(batch.column(1), 2.0))


def reworked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A columnar function that computes every column anew, as a real one would."""
    key, value, time = batch.columns
    later = pc.add(time, pa.scalar(1_000, pa.duration("us")))
    return pa.RecordBatch.from_arrays([pc.utf8_upper(key), pc.multiply(value, 2.0), later], schema=batch.schema)


def column_loop(function: Callable[[Any], Any]) -> Pass:
    """The per-record loop over one column: to Python values, call, back to Arrow."""

    def run(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = [function(value) for value in batch.column(0).to_pylist()]
        return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], names=["value"])

    return run


def tuple_loop(function: Callable[[Any], Any]) -> Pass:
    """The per-record loop over three columns, with plain tuples."""

    def run(batch: pa.RecordBatch) -> pa.RecordBatch:
        records = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        return _columns([function(record) for record in records], batch.schema)

    return run


def row_loop(function: Callable[[Any], Any]) -> Pass:
    """The per-record loop over three columns, with Spark's own rows, whose fields have names."""
    make = SparkRow("f0", "f1", "f2")

    def run(batch: pa.RecordBatch) -> pa.RecordBatch:
        records = map(make, *(column.to_pylist() for column in batch.columns))
        return _columns([function(record) for record in records], batch.schema)

    return run


def _columns(records: list[Any], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*records, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _typed_rows(session: SparkSession, batches: Batches) -> DataFrame:
    def read(rows: Rows) -> Rows:
        for task in rows:
            for split in task.column(0).to_pylist():
                yield from batches(split, _TASKS)

    return session.range(0, _TASKS, 1, _TASKS).mapInArrow(read, KEYED_DDL)


def _counted(frame: DataFrame) -> DataFrame:
    def count(rows: Rows) -> Rows:
        records = sum(batch.num_rows for batch in rows)
        yield pa.RecordBatch.from_arrays([pa.array([records], pa.int64())], names=["records"])

    return frame.mapInArrow(count, "records long")


def exchange(session: SparkSession, batches: Batches) -> DataFrame:
    """Typed rows through `repartition(n)` between two `mapInArrow`."""
    return _counted(_typed_rows(session, batches).repartition(_TASKS))


def keyed_exchange(session: SparkSession, batches: Batches) -> DataFrame:
    """Typed rows through `repartition(n, key)` between two `mapInArrow`."""
    return _counted(_typed_rows(session, batches).repartition(_TASKS, "key"))


def smallest(session: SparkSession, exchanges: int, tasks: int = _TASKS) -> DataFrame:
    """A job of that many exchanges over one trivial row per task."""

    def pass_on(rows: Rows) -> Rows:
        yield from rows

    frame = session.range(0, tasks, 1, tasks).mapInArrow(pass_on, "id long")
    for _ in range(exchanges):
        frame = frame.repartitionById(tasks, f.col("id").cast("int")).mapInArrow(pass_on, "id long")
    return frame
