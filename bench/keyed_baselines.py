"""The baselines of `bench_state`: keyed sum and count as a competent PySpark user writes it by hand.

A frame is what the body of `foreachBatch` runs for one micro-batch: typed rows, repartitioned by their key, then one
`mapInArrow` with the state. It is executed without a streaming query, whose logs would only slow it down. State is
where hand-written programs store it: in a dictionary of the worker process, or in one Parquet file per task and epoch.
(The first loses its state with its process, which is accepted here.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from gated import Batches
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

__all__ = ["column_totals", "dict_totals"]

Rows = Iterator[pa.RecordBatch]

_TASKS = 2
_DDL = "f0 long, f1 long"
_TOTALS: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}


def _repartitioned(session: SparkSession, batches: Batches) -> DataFrame:
    def read(rows: Rows) -> Rows:
        for task in rows:
            for split in task.column(0).to_pylist():
                yield from batches(split, _TASKS)

    return session.range(0, _TASKS, 1, _TASKS).mapInArrow(read, _DDL).repartition(_TASKS, "f0")


def _partition() -> int:
    context: Any = TaskContext.get()
    return int(context.partitionId())


def _counted(records: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([records], pa.int64())], names=["records"])


def _count_in_dict(name: str, rows: Rows) -> Rows:
    totals = _TOTALS.setdefault((name, _partition()), {})
    for batch in rows:
        out = []
        for key, amount in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            known = totals.get(key)
            total = (amount, 1) if known is None else (known[0] + amount, known[1] + 1)
            totals[key] = total
            out.append((key, total[0], total[1]))
        columns = [pa.array(column, pa.int64()) for column in zip(*out, strict=True)]
        yield _counted(len(columns[0]) if columns else 0)


def dict_totals(session: SparkSession, batches: Batches, name: str) -> DataFrame:
    """Per-record sum and count in a dictionary of the worker, a result per record."""
    return _repartitioned(session, batches).mapInArrow(partial(_count_in_dict, name), "records long")


def _count_in_columns(folder: str, rows: Rows) -> Rows:
    path = Path(folder) / f"{_partition()}.parquet"
    parts = [batch for batch in rows if batch.num_rows]
    keys = np.concatenate([part.column(0).to_numpy() for part in parts])
    amounts = np.concatenate([part.column(1).to_numpy() for part in parts])
    distinct, codes = np.unique(keys, return_inverse=True)
    sums = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(sums, codes, amounts)
    counts = np.bincount(codes, minlength=len(distinct))
    if path.exists():
        known = pq.read_table(path)
        before, first = known.column(0).to_numpy(), len(distinct)
        distinct, codes = np.unique(np.concatenate([distinct, before]), return_inverse=True)
        all_sums, all_counts = np.zeros(len(distinct), np.int64), np.zeros(len(distinct), np.int64)
        all_sums[codes[:first]] = sums
        all_counts[codes[:first]] = counts
        all_sums[codes[first:]] += known.column(1).to_numpy()
        all_counts[codes[first:]] += known.column(2).to_numpy()
        sums, counts = all_sums, all_counts
    table = pa.table({"key": distinct, "sum": sums, "count": counts})
    written = path.with_suffix(".new")
    with written.open("wb") as file:
        pq.write_table(table, file)
        file.flush()
        os.fsync(file.fileno())  # as durable as ours
    written.replace(path)
    yield _counted(len(keys))


def column_totals(session: SparkSession, batches: Batches, folder: str) -> DataFrame:
    """Sum and count with numpy, the state read from and written to one Parquet file per task."""
    return _repartitioned(session, batches).mapInArrow(partial(_count_in_columns, folder), "records long")
