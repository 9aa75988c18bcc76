"""The operators at the ends of a job: reading a source's ranges, stamping time, staging for a sink."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from millstream.connectors.contracts import SinkWriter, WriterContext
from millstream.errors import ProgramError
from millstream.graph.nodes import AssignTimestamps, Read, Write
from millstream.records.batch import Batch
from millstream.records.columns import checked_batch
from millstream.runtime.barrier import MAX_WATERMARK, MIN_WATERMARK, Acknowledgement
from millstream.runtime.event_time import Timekeeper
from millstream.runtime.operators import Operator, OperatorSetting
from millstream.runtime.spec import EpochSpec, JobFacts, ReadRange

__all__ = ["ReadOperator", "TimestampOperator", "WriteOperator"]


class ReadOperator(Operator):
    """Reads the ranges of this subtask, split by split, and keeps each split's event time."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        assert isinstance(self.node.operation, Read)
        self._source = self.node.operation.source
        self._strategy = self.node.operation.watermarks
        self._positions: dict[str, Any] = {}
        self._watermark = MIN_WATERMARK

    def user_function(self) -> Any:
        return None

    def batches(self, spec: EpochSpec) -> Iterator[None]:
        """Read everything; yields after each batch so that the task can send what has piled up."""
        self._positions = {}
        self._watermark = spec.floors.get(self.uid, MIN_WATERMARK)
        for range_ in spec.reads.get(self.uid, ()):
            if range_.subtask == self.setting.context.subtask:
                yield from self._read(range_)
        if spec.final:
            self._watermark = MAX_WATERMARK

    def _read(self, range_: ReadRange) -> Iterator[None]:
        keeper = Timekeeper(self._strategy, range_.watermark, self.call)
        source, split, records = self._source, range_.split, 0
        with self.call.running("read"):
            reading = iter(source.read(split, range_.start, range_.stop))
        reached: Any = None
        while True:
            started = time.perf_counter_ns()
            try:
                item = next(reading)
            except StopIteration as end:
                reached = end.value
                break
            except Exception as error:
                raise self.call.failed(error, "read") from error
            batches = list(self._cut(item))
            self.busy_ns += time.perf_counter_ns() - started
            for batch in batches:
                records += len(batch)
                self.records_in += len(batch)
                self.emit(keeper.stamp(batch))
                yield
        offset = range_.stop if reached is None else reached
        own = source.watermark(split, offset)
        watermark = keeper.watermark if own is None else max(own, range_.watermark)
        self._positions[split.name] = {"offset": offset, "watermark": watermark, "records": records}
        self._watermark = min(self._watermark, watermark)

    def _cut(self, item: Any) -> Iterator[Batch]:
        """What a source yielded, as batches of bounded size."""
        limit = self.setting.batch_records_max
        if isinstance(item, pa.RecordBatch):
            if self.node.output_type is None:
                raise self.call.failed(
                    ProgramError("the source yields Arrow batches but declares no type: set its type_info"), "read"
                )
            with self.call.running("read"):
                columns = checked_batch(item, self.node.output_type)
            for start in range(0, columns.num_rows, limit):
                yield Batch.of_columns(columns.slice(start, limit), self.node.output_type)
        elif isinstance(item, list):
            for start in range(0, len(item), limit):
                yield self.typed(item[start : start + limit], None, self.node.output_type)
        else:
            raise self.call.failed(
                ProgramError(f"read() must yield lists of records or Arrow batches, got {type(item).__name__}"), "read"
            )

    def advance(self, watermark: int) -> int:
        return super().advance(self._watermark)

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Tell how far each split was read."""
        acknowledgement.sources[self.uid] = self._positions


class TimestampOperator(Operator):
    """`assign_timestamps_and_watermarks` in mid-stream: its event time replaces that of its inputs."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        assert isinstance(self.node.operation, AssignTimestamps)
        self._keeper = Timekeeper(self.node.operation.watermarks, MIN_WATERMARK, self.call)

    def begin(self, spec: EpochSpec) -> None:
        super().begin(spec)
        kept = spec.states.get(self.uid, {}).get(str(self.setting.context.subtask))
        self._keeper.watermark = MIN_WATERMARK if kept is None else kept

    def apply(self, batch: Batch) -> Batch:
        # A batch may go to several outputs: stamp a copy of its head, not the batch others hold.
        return self._keeper.stamp(batch.slice(0, len(batch)))

    def advance(self, watermark: int) -> int:
        ended = watermark == MAX_WATERMARK
        return super().advance(MAX_WATERMARK if ended else self._keeper.watermark)

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Keep this subtask's event time."""
        acknowledgement.states[self.uid] = self._keeper.watermark


class WriteOperator(Operator):
    """Hands batches to the sink's writer; a writer lives for one epoch of one task attempt."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        assert isinstance(self.node.operation, Write)
        self._sink = self.node.operation.sink
        self._writer: SinkWriter | None = None
        self._context: WriterContext | None = None

    def user_function(self) -> Any:
        return None

    def prepare(self, spec: EpochSpec, facts: JobFacts, nonce: str, input_type: Any) -> None:
        """A new epoch or attempt: forget the last writer."""
        context = self.setting.context
        self._writer = None
        self._context = WriterContext(
            uid=self.uid,
            epoch=spec.epoch,
            subtask=context.subtask,
            parallelism=context.parallelism,
            nonce=nonce,
            store=facts.store,
            now_ms=spec.now_ms,
            input_type=input_type,
        )

    def apply(self, batch: Batch) -> None:
        with self.call.running("sink writer"):
            if self._writer is None:
                assert self._context is not None
                self._writer = self._sink.writer(self._context)
            self._writer.write(batch)

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Make the epoch's output durable and tell where it is."""
        if self._writer is not None:
            started = time.perf_counter_ns()
            with self.call.running("sink writer"):
                acknowledgement.staged[self.uid] = list(self._writer.stage())
            self.busy_ns += time.perf_counter_ns() - started

    def abort(self) -> None:
        """The task failed: let the writer clean up."""
        if self._writer is not None:
            self._writer.abort()
