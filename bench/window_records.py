"""Timed records and the windowed programs that `bench_windows` runs over them.

A separate module, so that workers import it and functions are pickled by name. An epoch of records is a stretch of
event time; its records are in order, half in each split, so that every epoch closes the windows of the previous one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from keyed_programs import TOTAL_TYPE, Totals
from records import BATCH_RECORDS

from millstream.common import Duration, WatermarkStrategy
from millstream.common.typeinfo import Types
from millstream.datastream import DataStream
from millstream.datastream import aggregates as agg
from millstream.datastream.functions import AggregateFunction
from millstream.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows

__all__ = [
    "DISORDER_MS",
    "SESSIONS_UID",
    "TIMED_TYPE",
    "SessionRecords",
    "StoredEpoch",
    "TimedRecords",
    "custom",
    "running",
    "sessions",
    "sliding",
    "tumbling",
    "write_epoch",
]

TIMED_TYPE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
DISORDER_MS = 1_000
SESSION_SPAN_MS = 10_000
SESSIONS_UID = "sessions"
_PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
_FIRST_MS = 1_700_000_000_000


@dataclass(frozen=True)
class TimedRecords:
    """One epoch: `total` records of (key, time in ms, amount); a share of `hot` of them have the key 0."""

    epoch: int
    total: int
    keys: int
    span_ms: int
    hot: float = 0.0

    def __call__(self, split: int, splits: int) -> Iterator[pa.RecordBatch]:
        random = np.random.default_rng((self.epoch, split))
        share = self.total * (split + 1) // splits - self.total * split // splits
        begin_ms = _FIRST_MS + self.epoch * self.span_ms
        for first in range(0, share, BATCH_RECORDS):
            count = min(BATCH_RECORDS, share - first)
            keys = random.integers(0, self.keys, count)
            if self.hot:
                keys[random.random(count) < self.hot] = 0
            times = begin_ms + np.arange(first, first + count) * self.span_ms // share
            columns = [pa.array(keys), pa.array(times), pa.array(random.integers(0, 1000, count))]
            yield pa.RecordBatch.from_arrays(columns, names=["f0", "f1", "f2"])


@dataclass(frozen=True)
class SessionRecords:
    """Sessions that begin in the stretches of time from `first` up to `stop`: `begun` in each, each of another key.

    A session is two records half a stretch apart, (key, time in ms, amount). With n stretches between its end and the
    moment it is closed (`sessions`), n times `begun` are open after every stretch, and `begun` are closed in it.
    """

    first: int
    stop: int
    begun: int

    def __call__(self, split: int, splits: int) -> Iterator[pa.RecordBatch]:
        own = np.arange(split, self.begun, splits)
        for stretch in range(self.first, self.stop):
            keys, half_ms = stretch * self.begun + own, SESSION_SPAN_MS // 2
            begins = _FIRST_MS + stretch * SESSION_SPAN_MS + own * half_ms // self.begun
            for times in (begins, begins + half_ms):
                for start in range(0, len(own), BATCH_RECORDS):
                    piece = slice(start, start + BATCH_RECORDS)
                    columns = [pa.array(column) for column in (keys[piece], times[piece], keys[piece] % 1000)]
                    yield pa.RecordBatch.from_arrays(columns, names=["f0", "f1", "f2"])


def write_epoch(records: TimedRecords, folder: Path, splits: int) -> None:
    """The records as one Parquet file for each split, as Spark's own file source reads them."""
    folder.mkdir(parents=True)
    for split in range(splits):
        table = pa.Table.from_batches(list(records(split, splits))).rename_columns(["key", "time", "amount"])
        times = table.column("time").cast(pa.timestamp("ms")).cast(pa.timestamp("us", tz="UTC"))
        pq.write_table(table.set_column(1, "time", times), folder / f"{split:02d}.parquet", row_group_size=1 << 20)


@dataclass(frozen=True)
class StoredEpoch:
    """The same files, read by our tasks."""

    folder: str

    def __call__(self, split: int, splits: int) -> Iterator[pa.RecordBatch]:
        file = pq.ParquetFile(Path(self.folder) / f"{split:02d}.parquet")
        for batch in file.iter_batches(BATCH_RECORDS):
            times = batch.column(1).cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
            yield pa.RecordBatch.from_arrays([batch.column(0), times, batch.column(2)], names=["f0", "f1", "f2"])


def _timed(stream: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DISORDER_MS))
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(1))


def _totals() -> agg.Aggregates:
    return agg.Aggregates(count=agg.count(), total=agg.sum(2))


def tumbling(stream: DataStream, size_ms: int) -> DataStream:
    """Count and sum by key in tumbling windows, in columns."""
    return _timed(stream).key_by(0).window(TumblingEventTimeWindows(size_ms, 0)).aggregate(_totals())


def sliding(stream: DataStream, size_ms: int, slide_ms: int) -> DataStream:
    """Count and sum by key in overlapping windows, in columns."""
    return _timed(stream).key_by(0).window(SlidingEventTimeWindows(size_ms, slide_ms, 0)).aggregate(_totals())


class CustomTotals(AggregateFunction):
    """Sum and count, as a user writes them."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value[2], accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class RunningTotals(Totals):
    """Sum and count per key in one `ValueState`, emitted for every record (key, time, amount)."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        known = self.total.value()
        total = (value[2], 1) if known is None else (known[0] + value[2], known[1] + 1)
        self.total.update(total)
        yield value[0], total[0], total[1]


def custom(stream: DataStream, size_ms: int) -> DataStream:
    """Count and sum by key in tumbling windows, by a function per record."""
    windows = _timed(stream).key_by(0).window(TumblingEventTimeWindows(size_ms, 0))
    return windows.aggregate(CustomTotals(), accumulator_type=_PAIR, output_type=_PAIR)


def running(stream: DataStream) -> DataStream:
    """Count and sum by key without windows, by a function per record."""
    return _timed(stream).key_by(0).process(RunningTotals(), TOTAL_TYPE)


def sessions(stream: DataStream, open_stretches: int) -> DataStream:
    """Count and sum by session. A session is closed `open_stretches` stretches of time after its own."""
    gap_ms = open_stretches * SESSION_SPAN_MS - 2 * DISORDER_MS
    windows = _timed(stream).key_by(0).window(EventTimeSessionWindows(gap_ms))
    return windows.aggregate(_totals()).uid(SESSIONS_UID)
