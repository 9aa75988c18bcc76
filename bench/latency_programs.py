"""The two sides of `bench_latency`: a job that counts events by key, and the bare Spark job of the same shape.

Event number `i` occurs `i / rate` seconds after the start of a phase, so its time need not be recorded: the published
numbers determine the latency of each. Only the driver's process reads the clock. Tasks generate their events from the
numbers, at next to no cost, on both sides.

A separate module, so that workers import it and functions are pickled by name.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from millstream.common.typeinfo import Types
from millstream.connectors.contracts import (
    CommitId,
    Offset,
    Read,
    Sink,
    SinkWriter,
    Source,
    SourceContext,
    Split,
    WriterContext,
)
from millstream.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from millstream.datastream.state import ValueStateDescriptor
from millstream.records.batch import Batch

__all__ = ["BareJob", "EventSource", "PublishedSink", "counted_by_key"]

TASKS = 2
KEYS = 10_000
EVENT_TYPE = Types.TUPLE([Types.LONG(), Types.LONG()])
COUNT_TYPE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
BATCH_EVENTS = 65_536

Latencies = npt.NDArray[np.float64]


def events(first: int, stop: int, split: int) -> Iterator[pa.RecordBatch]:
    """The events `[first, stop)` of a split: their key and their number."""
    for begin in range(first, stop, BATCH_EVENTS):
        numbers = np.arange(begin, min(begin + BATCH_EVENTS, stop), dtype=np.int64) * TASKS + split
        keys = numbers * 2_654_435_761 % KEYS
        yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array(numbers)], names=["f0", "f1"])


@dataclass(frozen=True)
class Phase:
    """Events occur at a rate from `begun_s` on; the first of a split has the place `first`."""

    rate: int
    begun_s: float
    first: int = 0

    def due(self, now_s: float) -> int:
        """How many events of each split have occurred."""
        return self.first + int((now_s - self.begun_s) * self.rate / TASKS)

    def latencies_s(self, first: int, last: int, now_s: float) -> Latencies:
        """The ages of the events numbered from `first` to `last`."""
        places = np.arange(first, last + 1) - self.first * TASKS
        return now_s - (self.begun_s + places / self.rate)


# --- ours -----------------------------------------------------------------------------------------------------------


class EventSource(Source):
    """Offers the events so far, while a phase lasts."""

    type_info = EVENT_TYPE

    def __init__(self) -> None:
        self.phase: Phase | None = None
        self._reached = 0

    def __getstate__(self) -> dict[str, Any]:
        return {}  # a task only reads

    def begin(self, rate: int) -> Phase:
        """Events occur from now on."""
        self.phase = Phase(rate, time.monotonic(), self._reached)
        return self.phase

    def end(self) -> None:
        """No more events."""
        self.phase = None

    def splits(self, context: SourceContext) -> Sequence[Split]:
        return [Split(f"{split}", 0, split) for split in range(TASKS)]

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        phase = self.phase
        # All splits of one epoch are read equally far: the numbers of its events have no gap.
        self._reached = max(self._reached, min(phase.due(time.monotonic()), offset + budget) if phase else 0)
        return max(offset, self._reached)

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        yield from events(start, stop, split.info)
        return stop


class _RangeWriter(SinkWriter):
    """Stages the smallest and the largest number."""

    def __init__(self) -> None:
        self._ends: list[int] = []

    def write(self, batch: Batch) -> None:
        numbers = batch.columns().column(2).to_numpy()
        self._ends += [int(numbers.min()), int(numbers.max())]

    def stage(self) -> Sequence[Any]:
        return ([min(self._ends), max(self._ends)],) if self._ends else ()


class PublishedSink(Sink):
    """Reads the clock when it publishes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._published: list[tuple[int, int, float]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def writer(self, context: WriterContext) -> SinkWriter:
        return _RangeWriter()

    def commit(self, commit: CommitId, publish: Sequence[Any], store: Any) -> None:
        if publish:
            ends = (min(first for first, _ in publish), max(last for _, last in publish), time.monotonic())
            with self._changed:
                self._published.append(ends)
                self._changed.notify_all()

    def taken(self) -> list[tuple[int, int, float]]:
        """The publications since the last call: the first and the last number, and the time."""
        with self._changed:
            taken, self._published = self._published, []
        return taken

    def wait(self, timeout_s: float) -> None:
        """Wait until something is published."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._published, timeout_s):
                raise RuntimeError(f"the job has published nothing within {timeout_s} s")


class _Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value[0], count, value[1]


def _key(event: Any) -> int:
    return int(event[0])


def counted_by_key(stream: DataStream) -> DataStream:
    """The program."""
    return stream.key_by(_key, Types.LONG()).process(_Count(), COUNT_TYPE)


# --- the bare job ---------------------------------------------------------------------------------------------------

_RANGE = "bench.events"
_COUNTS: dict[int, dict[int, int]] = {}

Rows = Iterator[pa.RecordBatch]


def _task() -> Any:
    return TaskContext.get()


def _read(rows: Rows) -> Rows:
    first, stop = map(int, _task().getLocalProperty(_RANGE).split())
    for task in rows:
        for split in task.column(0).to_pylist():
            yield from events(first, stop, split)


def _count(rows: Rows) -> Rows:
    counts = _COUNTS.setdefault(_task().partitionId(), {})
    records = 0
    for batch in rows:
        out = []
        for key, number in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            counts[key] = count = counts.get(key, 0) + 1
            out.append((key, count, number))
        records += len(out)
    yield pa.RecordBatch.from_arrays([pa.array([records], pa.int64())], names=["records"])


class BareJob:
    """One Spark job after another over the events so far: read, repartition by key, count in a dictionary."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        read: DataFrame = session.range(0, TASKS, 1, TASKS).mapInArrow(_read, "f0 long, f1 long")
        self._frame = read.repartition(TASKS, "f0").mapInArrow(_count, "records long")

    def run(self, rate: int, lasts_s: float, note: Callable[[Phase, int, int, float], None]) -> None:
        """Run a phase; `note` receives each job's events: phase, first and last number, and the time of counting."""
        phase, done = Phase(rate, time.monotonic()), 0
        while time.monotonic() - phase.begun_s < lasts_s:
            stop = phase.due(time.monotonic())
            if stop == done:
                time.sleep(0.001)
                continue
            self._session.sparkContext.setLocalProperty(_RANGE, f"{done} {stop}")
            # A `select` of the frame is a plan of its own, so no shuffle is reused.
            self._frame.select("*").collect()
            note(phase, done * TASKS, stop * TASKS - 1, time.monotonic())
            done = stop
