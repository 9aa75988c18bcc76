"""One task: one subtask of every operator of a stage, for one epoch.

In order:
1. open the stage's operators, or find them open from the last epoch;
2. take the blocks of the stage before, check that nothing is missing, then read the ranges of the sources in this
   stage; every batch runs through the operators at once, and what piles up for the next stage is sent;
3. when all input is in: advance event time through the operators, which may emit;
4. stage the sinks' output and gather the acknowledgement;
5. send the rest, then a barrier to every task of the next stage, and the acknowledgement to one of them.

If user code fails, the task sends the failure in place of its barriers: nothing of the epoch can then be
committed. A task never writes anything that another attempt of it could overwrite.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.graph.nodes import Process
from millstream.plan.stages import Channel, Plan
from millstream.records.watermarks import IDLE_WATERMARK, MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.exchange.blocks import decode_block
from millstream.runtime.exchange.envelope import ACKNOWLEDGEMENT, BARRIER, DATA, Envelope, open_envelopes, seal
from millstream.runtime.exchange.mailboxes import Inbox, Outbox
from millstream.runtime.exchange.routing import router_for
from millstream.runtime.operators.broadcast_operators import BroadcastProcessOperator
from millstream.runtime.operators.endpoints import ReadOperator, TimestampOperator, WriteOperator
from millstream.runtime.operators.failure import UserFailureError
from millstream.runtime.operators.keyed_operator import KeyedOperator
from millstream.runtime.operators.loops import LoopHeadOperator, LoopTailOperator
from millstream.runtime.operators.operator import Operator, Output
from millstream.runtime.task.barrier import Acknowledgement, Barrier, ChannelEnd
from millstream.runtime.task.output_capture import Captured, capture_output
from millstream.runtime.task.residents import Residents, Subtask
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import EpochSpec

__all__ = ["Assignment", "run_task"]

# Operators that keep state between epochs, in the store.
_STATEFUL = (KeyedOperator, BroadcastProcessOperator, LoopHeadOperator, LoopTailOperator)
_ACKNOWLEDGING = (ReadOperator, TimestampOperator, WriteOperator, *_STATEFUL)
# Operators that decide themselves where event time stands when all their inputs are idle.
_TIMEKEEPING = (ReadOperator, TimestampOperator, LoopHeadOperator)


@dataclass(frozen=True)
class Assignment:
    """Which task this is. `nonce` is unique among all attempts of all tasks, for ever. `raises`: a failure of user code
    is raised where it happened, not sent: somebody stands by with a debugger."""

    stage: int
    subtask: int
    attempt: int
    nonce: str
    capture: bool = True
    raises: bool = False


def run_task(
    job: ShippedJob, spec: EpochSpec, assignment: Assignment, rows: Iterator[pa.RecordBatch], residents: Residents
) -> Iterator[pa.RecordBatch]:
    """Run a task over the envelopes it receives; yields the envelopes it sends."""
    printed: Captured = []
    with capture_output(printed) if assignment.capture else nullcontext():
        try:
            subtask = residents.subtask(job, spec, assignment.stage, assignment.subtask, assignment.attempt)
            close = partial(residents.discard, job, assignment.stage, assignment.subtask)
            yield from _Task(job, spec, assignment, subtask, printed, close).run(rows)
        except UserFailureError as failure:
            report = replace(
                failure.report,
                subtask=assignment.subtask,
                epoch=spec.epoch,
                output=tuple(tuple(line) for line in printed),
            )
            if assignment.raises:
                failure.report = report
                raise
            for _ in rows:  # Spark's writer must not find the pipe closed.
                pass
            residents.discard(job, assignment.stage, assignment.subtask)
            width = _next_width(job.plan(), assignment.stage)
            yield seal(list(Outbox(width, assignment.subtask, 0).failures(report.encode())))


def _next_width(plan: Plan, stage: int) -> int:
    return plan.stages[stage + 1].width if stage + 1 < len(plan.stages) else 1


class _Task:
    """The state of one run of a task."""

    def __init__(
        self,
        job: ShippedJob,
        spec: EpochSpec,
        assignment: Assignment,
        subtask: Subtask,
        printed: Captured,
        close: Callable[[], None],
    ) -> None:
        self._started_ns = time.perf_counter_ns()
        self.spec, self.assignment, self.plan = spec, assignment, subtask.plan
        self.stage = self.plan.stages[assignment.stage]
        self.operators = subtask.operators
        self.metrics = subtask.metrics
        self.printed = printed
        self._batch = job.facts.batch
        self.close = close
        self.channels = {channel.id: channel for channel in self.plan.channels}
        self.types = _channel_types(self.plan)
        self.inbox = Inbox(self.plan, self.stage.index, assignment.subtask, spec.epoch)
        self.outbox = Outbox(_next_width(self.plan, self.stage.index), assignment.subtask, job.facts.block_bytes_max)
        self._read_before_ns = {operator.uid: operator.state_read_ns for operator in self.operators.values()}
        for operator in self.operators.values():
            self._wire(operator)
            operator.begin(spec)
            kept = spec.operator_states.get(operator.uid, {})
            operator.operator_state.begin(kept, job.facts.store, assignment.nonce, spec.epoch, spec.now_ms)
            if isinstance(operator, WriteOperator):
                input_type = self.types[self.plan.into(operator.node.id)[0].id]
                operator.prepare(spec, job.facts, assignment.nonce, input_type)
            if isinstance(operator, (ReadOperator, *_STATEFUL)):
                operator.prepare(spec, job.facts, assignment.nonce)

    def _wire(self, operator: Operator) -> None:
        """Connect an operator's outputs for this epoch: to operators of this task, and to exchanges."""
        operator.outputs = []
        operator.side_outputs = {}
        for channel in self.plan.out_of(operator.node.id):
            output = self._output(channel, operator)
            if channel.edge.tag is None:
                operator.outputs.append(output)
            else:
                operator.side_outputs.setdefault(channel.edge.tag, []).append(output)

    def _output(self, channel: Channel, operator: Operator) -> Output:
        if channel.local:
            return self.operators[channel.target].input(channel.edge.input, (channel.id, self.assignment.subtask))
        router = router_for(channel, self.assignment.subtask, self.spec.epoch, operator.call)
        return partial(self.outbox.send, channel, router, operator.call)

    def run(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._arrivals(rows)
            if self.inbox.failed:
                yield seal(list(self._pass_on_failure()))
                return
            ends = self.inbox.check()
            yield from self._reading()
            watermarks = self._advance(ends)
            acknowledgement = self._acknowledge(watermarks)
            self.outbox.flush()
            yield from self._blocks()
            yield seal([*self._barriers(ends, watermarks), *self._acknowledgements(acknowledgement)])
        except BaseException:
            for operator in self.operators.values():
                if isinstance(operator, WriteOperator):
                    operator.abort()
            raise

    def _arrivals(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for operator in self.operators.values():
            operator.wake()
        for batch in rows:
            if self.stage.index:
                for envelope in open_envelopes(batch):
                    self._receive(envelope)
                yield from self._blocks()

    def _reading(self) -> Iterator[pa.RecordBatch]:
        for operator in self.operators.values():
            operator.receive_end()
        for operator in self.operators.values():
            if isinstance(operator, ReadOperator):
                for _ in operator.batches(self.spec):
                    yield from self._blocks()

    def _receive(self, envelope: Envelope) -> None:
        if envelope.kind == DATA:
            self.inbox.data(envelope)
            channel = self.channels[envelope.channel]
            if channel.target_stage != self.stage.index:
                self.outbox.relay(envelope)
            elif not self.inbox.failed:
                take = self.operators[channel.target].input(channel.edge.input, (channel.id, envelope.sender))
                for batch in decode_block(envelope.payload, self.types[channel.id]):
                    take(batch)
        elif envelope.kind == BARRIER:
            self.inbox.barrier(Barrier.decode(envelope.payload))
        elif envelope.kind == ACKNOWLEDGEMENT:
            self.inbox.acknowledgement(envelope.payload)
        else:
            self.inbox.failure(envelope.payload.to_pybytes())

    def _blocks(self) -> Iterator[pa.RecordBatch]:
        for envelope in self.outbox.ready():
            yield seal([envelope])

    def _advance(self, ends: dict[tuple[int, int, int], ChannelEnd]) -> dict[int, int]:
        """Move event time through the operators, in order; returns where it stands behind each."""
        reached: dict[int, int] = {}
        for id, operator in self.operators.items():
            inputs = [
                reached[channel.source]
                if channel.local
                else min(ends[channel.id, s, self.assignment.subtask].watermark for s in range(channel.senders))
                for channel in self.plan.into(id)
            ]
            heard = min(inputs, default=self.spec.watermarks.get(operator.uid, 0))
            reached[id] = self._without_steps(_advanced(operator, heard))
        return reached

    def _without_steps(self, watermark: int) -> int:
        """In BATCH event time has two moments, before the end of the input and after it, however many epochs read it:
        no record is late, and timers and windows come when all records are in."""
        return MIN_WATERMARK if self._batch and watermark != MAX_WATERMARK else watermark

    def _acknowledge(self, watermarks: dict[int, int]) -> Acknowledgement:
        ack = Acknowledgement(self.stage.index, self.assignment.subtask, self.assignment.nonce, self.inbox.heard)
        follow_splits = self._that_follow_splits()
        for id, operator in self.operators.items():
            ack.operators[operator.uid] = self._ended(operator, ack)
            ack.watermarks[operator.uid] = watermarks[id]
            if id not in follow_splits:
                idle = watermarks[id] == IDLE_WATERMARK
                ack.event_times[operator.uid] = operator.time.watermark if idle else watermarks[id]
        if self.spec.final:
            self.close()  # before the account is closed, so that what close() prints and counts is in it
        ack.times = {
            "took_ns": time.perf_counter_ns() - self._started_ns,
            "alignment_ns": self.inbox.alignment_ns,
        }
        ack.metrics = self.metrics.snapshot()
        ack.output = self.printed
        return ack

    def _that_follow_splits(self) -> set[int]:
        """The operators whose event time is that of the splits read in this task, which may move to another one."""
        follow: set[int] = set()
        for id, operator in self.operators.items():
            told = any(channel.local and channel.source in follow for channel in self.plan.into(id))
            keeps_own = operator.is_keyed or isinstance(operator, TimestampOperator)
            if isinstance(operator, ReadOperator) or (told and not keeps_own):
                follow.add(id)
        return follow

    def _ended(self, operator: Operator, ack: Acknowledgement) -> dict[str, int]:
        """Have an operator put down its part of the epoch; what it did, and where its time went."""
        worked_ns = operator.busy_ns
        started = time.perf_counter_ns()
        if isinstance(operator, _ACKNOWLEDGING):
            operator.acknowledge(ack)
        operator.keep(ack)
        kept_ns = time.perf_counter_ns() - started
        read_ns = operator.state_read_ns - self._read_before_ns[operator.uid]
        writes_out = isinstance(operator, WriteOperator)
        return {
            "in": operator.records_in,
            "out": operator.records_out,
            "busy_ns": operator.busy_ns,
            "user_ns": 0 if writes_out else max(0, worked_ns - read_ns),
            "read_ns": read_ns,
            "write_ns": 0 if writes_out else kept_ns,
            "staging_ns": worked_ns + kept_ns if writes_out else 0,
        }

    def _barriers(self, ends: dict[tuple[int, int, int], ChannelEnd], watermarks: dict[int, int]) -> Iterator[Envelope]:
        if self.stage.index + 1 == len(self.plan.stages):
            return  # behind the last stage there is only the driver, who hears the acknowledgements
        speaks_for = [
            (channel.id, self.assignment.subtask, subtask, watermarks[id])
            for id in self.operators
            for channel in self.plan.out_of(id)
            if not channel.local
            for subtask in range(channel.receivers)
        ]
        speaks_for += [
            (end.channel, end.sender, end.subtask, end.watermark)
            for end in ends.values()
            if self.channels[end.channel].target_stage > self.stage.index
        ]
        yield from self.outbox.barriers(self.spec.epoch, self.assignment.nonce, speaks_for)

    def _acknowledgements(self, own: Acknowledgement) -> Iterator[Envelope]:
        yield from self.outbox.acknowledgements([*self.inbox.acknowledgements, own.encode()])

    def _pass_on_failure(self) -> Iterator[Envelope]:
        reports = self.inbox.failures
        yield from self.outbox.failures(reports[0] if reports else b"")


def _advanced(operator: Operator, watermark: int) -> int:
    """Move one operator's event time; behind one whose inputs are all idle it is idle, and it stands still itself."""
    if watermark != IDLE_WATERMARK or isinstance(operator, _TIMEKEEPING):
        return operator.advance(watermark)
    operator.advance(operator.time.watermark)
    return IDLE_WATERMARK


def _channel_types(plan: Plan) -> dict[int, TypeInformation | None]:
    """The type of the records on each channel: that of the source node's output, or of its side output."""
    by_id = {node.id: node for node in plan.nodes()}
    types: dict[int, TypeInformation | None] = {}
    for channel in plan.channels:
        source = by_id[channel.source]
        if channel.edge.tag is not None and isinstance(source.operation, Process):
            types[channel.id] = dict(source.operation.tags)[channel.edge.tag]
        else:
            types[channel.id] = source.output_type
    return types
