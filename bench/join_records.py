"""Orders and payments, and the joins of them that `bench_streams` runs.

A separate module, so that workers import it and functions are pickled by name. An epoch is a stretch of event time;
within the allowed disorder its records are out of order, none is late. Both sides of a comparison read the same Parquet
files, and report the number of their pairs and the sum of a product over them: the sums are equal only if the pairs
are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from records import BATCH_RECORDS

from millstream.common import Duration, Time, WatermarkStrategy
from millstream.common.typeinfo import Types
from millstream.connectors.contracts import CommitId, Json, Sink, SinkWriter, WriterContext
from millstream.datastream import DataStream
from millstream.records.batch import Batch
from millstream.storage.store import Store

__all__ = [
    "DISORDER_MS",
    "LOWER_MS",
    "ORDER_TYPE",
    "PAYMENT_TYPE",
    "SIDES",
    "UPPER_MS",
    "PairSums",
    "StoredSide",
    "joined_by_function",
    "joined_in_columns",
    "write_epoch",
]

SIDES = ("orders", "payments")
SPAN_MS = 10_000  # of an epoch
DISORDER_MS = 1_000
LOWER_MS, UPPER_MS = -2_000, 5_000
_FIRST_MS = 1_700_000_000_000
_FIELDS = [Types.LONG(), Types.LONG(), Types.LONG()]
ORDER_TYPE = Types.ROW_NAMED(["key", "ordered", "amount"], _FIELDS)
PAYMENT_TYPE = Types.ROW_NAMED(["key", "paid", "cents"], _FIELDS)
PAIR_TYPE = Types.ROW_NAMED(["key", "amount", "cents"], _FIELDS)


def write_epoch(epoch: int, records: int, keys: int, folder: Path, splits: int) -> None:
    """`records` of each side as one Parquet file for each split, as Spark's own file source reads them."""
    for side, columns in enumerate((ORDER_TYPE.get_field_names(), PAYMENT_TYPE.get_field_names())):
        (folder / SIDES[side]).mkdir(parents=True)
        for split in range(splits):
            random = np.random.default_rng((epoch, side, split))
            count = records * (split + 1) // splits - records * split // splits
            times = _FIRST_MS + epoch * SPAN_MS + np.arange(count) * SPAN_MS // count
            times -= random.integers(0, DISORDER_MS, count)
            stamps = pa.array(times * 1000).cast(pa.timestamp("us", tz="UTC"))
            values = [pa.array(random.integers(0, keys, count)), stamps, pa.array(random.integers(0, 1_000_000, count))]
            table = pa.table(values, names=columns)
            pq.write_table(table, folder / SIDES[side] / f"{split:02d}.parquet", row_group_size=1 << 20)


@dataclass(frozen=True)
class StoredSide:
    """One side of an epoch's files, read by our tasks."""

    folder: str

    def __call__(self, split: int, splits: int) -> Iterator[pa.RecordBatch]:
        file = pq.ParquetFile(Path(self.folder) / f"{split:02d}.parquet")
        for batch in file.iter_batches(BATCH_RECORDS):
            times = batch.column(1).cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
            yield pa.RecordBatch.from_arrays([batch.column(0), times, batch.column(2)], names=batch.schema.names)


def _joined(orders: DataStream, payments: DataStream) -> Any:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DISORDER_MS))
    strategy = strategy.with_timestamp_assigner(1)
    left = orders.assign_timestamps_and_watermarks(strategy).key_by("key")
    right = payments.assign_timestamps_and_watermarks(strategy).key_by("key")
    return left.interval_join(right).between(Time.milliseconds(LOWER_MS), Time.milliseconds(UPPER_MS))


def joined_in_columns(orders: DataStream, payments: DataStream) -> DataStream:
    """Payments for the orders of a stretch of time, in columns."""
    joined: DataStream = _joined(orders, payments).project(["key", "amount"], ["cents"])
    return joined


def joined_by_function(orders: DataStream, payments: DataStream) -> DataStream:
    """The same by a function per pair."""
    joined: DataStream = _joined(orders, payments).apply(_pair, PAIR_TYPE)
    return joined


def _pair(order: Any, payment: Any) -> Any:
    return order[0], order[2], payment[2]


class PairSums(Sink):
    """Counts pairs and sums their products, in columns; `told` has (pairs, checksum) by epoch."""

    def __init__(self) -> None:
        self.told: dict[int, tuple[int, int]] = {}

    def writer(self, context: WriterContext) -> SinkWriter:
        return _SummingWriter()

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        self.told[commit.epoch] = (sum(pairs for pairs, _ in publish), sum(checksum for _, checksum in publish))

    def totals(self) -> tuple[int, int]:
        """Of all epochs."""
        return sum(pairs for pairs, _ in self.told.values()), sum(checksum for _, checksum in self.told.values())


class _SummingWriter(SinkWriter):
    def __init__(self) -> None:
        self._pairs = self._checksum = 0

    def write(self, batch: Batch) -> None:
        columns = batch.columns()
        self._pairs += columns.num_rows
        self._checksum += pc.sum(pc.multiply(columns.column(1), columns.column(2))).as_py()

    def stage(self) -> Sequence[Json]:
        return ([self._pairs, self._checksum],)
