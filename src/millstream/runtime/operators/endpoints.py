"""The operators at the ends of a job: read a source's ranges, assign timestamps, stage output for a sink."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cloudpickle
import pyarrow as pa

from millstream.connectors.contract_checks import (
    item_error,
    new_writer,
    offset_at_end,
    read_items,
    source_watermark,
    staged_items,
)
from millstream.connectors.contracts import Sink, SinkWriter, WriterContext
from millstream.connectors.messages.dead_letters import DeadLetters
from millstream.errors import ProgramError
from millstream.graph.nodes import AssignTimestamps, Read, Write
from millstream.graph.table_nodes import ColumnWatermarks
from millstream.records.batch import Batch
from millstream.records.columns import checked_batch, stream_schema
from millstream.records.watermarks import IDLE_WATERMARK, MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.exchange.messages import Acknowledgement, SplitRead
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.operators.operator_state import keeps_state
from millstream.runtime.tables.row_clock import RowClock
from millstream.runtime.task.event_time import Timekeeper, restored_time
from millstream.runtime.task.recorded_input import InputRecorder
from millstream.runtime.task.spec import EpochSpec, ReadRange
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.times import EventTimeState

__all__ = ["ReadOperator", "TimestampOperator", "WriteOperator", "writer_context"]


_LOG = logging.getLogger(__name__)


class ReadOperator(Operator):
    """Reads the ranges of this subtask, split by split, and tracks each split's event time.

    Its watermark is the minimum over the splits it reads and the splits not read in this epoch (the floor). When all
    splits have ended, it is the maximum watermark: windows close in the epoch that reads their last records, which are
    never written to state.
    """

    generates_watermarks = True

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        assert isinstance(self.node.operation, Read)
        self._source = self.node.operation.source
        self._strategy = self.node.operation.watermarks
        self._rows = RowClock(self._strategy, self.call) if isinstance(self._strategy, ColumnWatermarks) else None
        self._schema = None if self.node.output_type is None else stream_schema(self.node.output_type)
        self._positions: dict[str, SplitRead] = {}
        self._watermark = MIN_WATERMARK
        self._recorder: InputRecorder | None = None
        self._ranges: tuple[ReadRange, ...] = ()
        self._is_final = False
        self._has_warned = False

    def user_function(self) -> Any:
        return None

    def stateful(self) -> Any:
        return self._source

    def follows_splits(self, inputs_do: bool) -> bool:
        return True

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        """Begins an epoch. If the job records its input, the recorder's file names are unique to this attempt."""
        super().begin(spec, nonce)
        facts, subtask = self.setting.facts, self.setting.context.subtask
        recorder = InputRecorder(facts.store, self.uid, spec.epoch, subtask, nonce) if facts.records_input else None
        self._recorder, self._positions = recorder, {}
        self._ranges, self._is_final = spec.reads.get(self.uid, ()), spec.final
        self._watermark = spec.floors.get(self.uid, MIN_WATERMARK)

    def read(self) -> Iterator[None]:
        for range_ in self._ranges:
            time_, now_ms = EventTimeState.of(range_.time, range_.watermark), self.time.now_ms
            yield from self._read(range_, Timekeeper(self._strategy, time_, self.call, now_ms, self._rows), now_ms)
        if self._is_final:
            self._watermark = MAX_WATERMARK

    def _read(self, range_: ReadRange, keeper: Timekeeper, now_ms: int) -> Iterator[None]:
        source, split, records, size = self._source, range_.split, 0, 0
        with self.call.running("read"):
            items = read_items(source, split, range_.start, range_.stop, range_.bytes_max)
        end_offset: Any = None
        while True:
            started = time.perf_counter_ns()
            try:
                item = next(items)
            except StopIteration as end:
                end_offset = end.value
                break
            except Exception as error:
                raise self.call.failed(error, "read") from error
            if isinstance(item, DeadLetters):
                records += len(item.batch)
                size += item.batch.nbytes
                self._emit_dead_letters(item)
                yield
                continue
            batches = list(self._cut(item))
            self.busy_ns += time.perf_counter_ns() - started
            for batch in batches:
                records += len(batch)
                size += batch.nbytes
                self.records_in += len(batch)
                if self._recorder is not None:
                    self._recorder.add(batch)
                self.emit(keeper.stamp(batch))
                yield
        with self.call.running("read"):
            offset = offset_at_end(source, split, range_.start, range_.stop, end_offset)
            watermark = source_watermark(source, split, offset)
        time_ = keeper.end(now_ms)
        if watermark is not None:
            time_ = replace(time_, watermark=max(watermark, range_.watermark))
        recorded = None if self._recorder is None else self._recorder.end_split(watermark)
        self._positions[split.name] = SplitRead(offset, time_, records, size, recorded)
        if not (range_.is_last and offset == range_.stop):  # a split that has ended does not hold event time back
            self._watermark = min(self._watermark, time_.effective_watermark(keeper.timeout_ms, now_ms))

    def _emit_dead_letters(self, letters: DeadLetters) -> None:
        """Counts messages that could not be decoded and emits them to their side output. They have no event time and do
        not hold back the watermark."""
        batch = letters.batch
        self.records_in += len(batch)
        self.setting.context.metrics.counter("numRecordsInErrors").inc(len(batch))
        if self._recorder is not None:
            self._recorder.add_dead_letters(batch)
        if not self.side_outputs and not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "'%s' reads messages that it cannot decode, and no operator reads their side output: they are dropped, "
                "and counted as numRecordsInErrors. The first: %s",
                self.node.name,
                batch.slice(0, 1).values()[0],
            )
        limit = self.setting.facts.batch_records_max
        for start in range(0, len(batch), limit):
            part = batch.slice(start, min(limit, len(batch) - start))
            for output in (output for outputs in self.side_outputs.values() for output in outputs):
                output(part)

    def _cut(self, item: Any) -> Iterator[Batch]:
        """Converts an item of a source to batches of bounded size."""
        limit = self.setting.facts.batch_records_max
        if isinstance(item, pa.RecordBatch):
            if self.node.output_type is None:
                raise self.call.failed(
                    ProgramError("the source yields Arrow batches but declares no type: set its type_info"), "read"
                )
            columns = item
            if not columns.schema.equals(self._schema):
                with self.call.running("read"):
                    columns = checked_batch(item, self.node.output_type)
            for start in range(0, columns.num_rows, limit):
                yield Batch.of_columns(columns.slice(start, limit), self.node.output_type)
        elif isinstance(item, Batch):
            for start in range(0, len(item), limit):
                yield item.slice(start, min(limit, len(item) - start))
        elif isinstance(item, list):
            for start in range(0, len(item), limit):
                yield self.typed(item[start : start + limit], None, self.node.output_type)
        else:
            raise self.call.failed(item_error(self._source, item), "read")

    def advance(self, watermark: int) -> int:
        return IDLE_WATERMARK if self._watermark == IDLE_WATERMARK else super().advance(self._watermark)

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Reports how far each split was read."""
        acknowledgement.sources[self.uid] = self._positions
        super().acknowledge(acknowledgement)


class TimestampOperator(Operator):
    """`assign_timestamps_and_watermarks` in mid-stream: its event time replaces the event time of its inputs.

    It uses only the end of its inputs' event time and ignores their idleness: it observes itself whether records
    arrive.
    """

    generates_watermarks = True

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        assert isinstance(self.node.operation, AssignTimestamps)
        self._strategy = self.node.operation.watermarks
        self._rows = RowClock(self._strategy, self.call) if isinstance(self._strategy, ColumnWatermarks) else None
        self._keeper = Timekeeper(self._strategy, EventTimeState(), self.call)
        self._time_at_end = EventTimeState()

    def follows_splits(self, inputs_do: bool) -> bool:
        return False

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        super().begin(spec, nonce)
        context = self.setting.context
        accounts = spec.states.get(self.uid, {})
        time_ = restored_time(accounts, context.subtask, context.parallelism)
        self._keeper = Timekeeper(self._strategy, time_, self.call, self.time.now_ms, self._rows)

    def apply(self, batch: Batch) -> Batch:
        # A batch may have several consumers: stamp a shallow copy, not the shared batch.
        return self._keeper.stamp(batch.slice(0, len(batch)))

    def advance(self, watermark: int) -> int:
        self._time_at_end = self._keeper.end(self.time.now_ms)
        reached = self._time_at_end.effective_watermark(self._keeper.timeout_ms, self.time.now_ms)
        if watermark == MAX_WATERMARK:
            return super().advance(MAX_WATERMARK)
        return IDLE_WATERMARK if reached == IDLE_WATERMARK else super().advance(reached)

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Stores this subtask's event time."""
        acknowledgement.states[self.uid] = SubtaskAccount(time=self._time_at_end)
        super().acknowledge(acknowledgement)


def writer_context(operator: Operator, spec: EpochSpec, nonce: str) -> WriterContext:
    """The context of a writer that an operator creates in an epoch."""
    context, facts = operator.setting.context, operator.setting.facts
    return WriterContext(
        uid=operator.uid,
        epoch=spec.epoch,
        subtask=context.subtask,
        parallelism=context.parallelism,
        nonce=nonce,
        store=facts.store,
        now_ms=spec.now_ms,
        input_type=operator.setting.input_type,
        job=facts.job_id,
    )


class WriteOperator(Operator):
    """Passes batches to the sink's writer; a writer lives for one epoch of one task attempt."""

    writes_out = True

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        assert isinstance(self.node.operation, Write)
        self._sink = self.node.operation.sink
        # If the sink's writers have state, every writer starts from an unmodified copy.
        self._pristine = cloudpickle.dumps(self._sink) if keeps_state(self._sink) else None
        self._writer: SinkWriter | None = None
        self._context: WriterContext | None = None

    def user_function(self) -> Any:
        return None

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        """Drops the previous epoch's writer."""
        super().begin(spec, nonce)
        self._writer = None
        self._context = writer_context(self, spec, nonce)

    def apply(self, batch: Batch) -> None:
        with self.call.running("sink writer"):
            writer = self._writer or self._new_writer()
            writer.write(batch)

    def _new_writer(self) -> SinkWriter:
        assert self._context is not None
        sink: Sink = self._sink if self._pristine is None else pickle.loads(self._pristine)
        writer = self._writer = new_writer(sink, self._context)  # assigned first, so that abort() finds it
        if self._pristine is not None and not keeps_state(writer.stateful()):
            raise ProgramError(
                f"{type(sink).__name__} has initialize_state() and snapshot_state(), but its writer is the object that "
                f"works in tasks: move the methods to {type(writer).__name__}, or derive the sink from TwoPhaseSink"
            )
        self.operator_state.initialize(writer.stateful(), outlives_epoch=False)
        return writer

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Makes the epoch's output durable and reports the staged items."""
        if self._writer is not None:
            started = time.perf_counter_ns()
            with self.call.running("sink writer"):
                acknowledgement.staged[self.uid] = staged_items(self._writer)
            self.busy_ns += time.perf_counter_ns() - started
        super().acknowledge(acknowledgement)

    def abort(self) -> None:
        """Aborts the writer."""
        if self._writer is not None:
            self._writer.abort()
