"""One task: one subtask of every operator of a stage, for one epoch.

In order:
1. open the stage's operators, or reuse those open since the last epoch, and connect their outputs;
2. receive the blocks of the previous stage and check that nothing is missing, then read the ranges of the sources in
   this stage; every batch passes through the operators at once, and full blocks for the next stage are sent;
3. when all input is read: advance event time through the operators, which may emit;
4. stage the sinks' output, wait until the store has all files, and complete the acknowledgement;
5. send the rest, then a barrier to every task of the next stage, and the acknowledgement to one of them.

`run_epoch` defines the steps of the operators and their order; this module is the `Traffic` around them.

If user code fails, the task sends the failure instead of its barriers, so nothing of the epoch can be committed. It
does the same with an error of the engine outside an operator (the store rejects a write). If that error were raised,
Spark would retry the task at once, and its type, which determines the driver's next step, would be buried in Spark's
own message. A task never writes a file that another attempt of it could overwrite.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pyarrow as pa

from millstream.errors import MillstreamError
from millstream.plan.stages import Channel, Plan
from millstream.records.watermarks import IDLE_WATERMARK
from millstream.runtime.exchange.blocks import Inbox, Outbox, decode_block
from millstream.runtime.exchange.messages import (
    ACKNOWLEDGEMENT,
    BARRIER,
    DATA,
    Acknowledgement,
    Barrier,
    ChannelEnd,
    Envelope,
    open_envelopes,
    seal,
)
from millstream.runtime.exchange.routing import router_for
from millstream.runtime.exchange.shared_blocks import SharedBlocks, resolve_block
from millstream.runtime.operators.exits import exits_as_failures
from millstream.runtime.operators.operator import Operator, Output, run_epoch
from millstream.runtime.operators.user_code import UserCall, UserFailureError
from millstream.runtime.task.output_capture import OutputLines, capture_output
from millstream.runtime.task.residents import Residents, Subtask
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import Assignment, EpochSpec, JobFacts
from millstream.runtime.task.stalled_tasks import watched
from millstream.runtime.task.store_use import StoreUse

__all__ = ["failed_start", "run_task"]


def run_task(
    job: ShippedJob, spec: EpochSpec, assignment: Assignment, rows: Iterator[pa.RecordBatch], residents: Residents
) -> Iterator[pa.RecordBatch]:
    """Runs a task over the envelopes it receives; yields the envelopes it sends."""
    printed: OutputLines = []
    with capture_output(printed) if assignment.capture else nullcontext():
        try:
            with exits_as_failures():
                job = job.in_task()
                with watched(job.facts.store, spec, assignment):
                    subtask = residents.subtask(job, spec, assignment)
                    close = partial(residents.discard, job, assignment)
                    task = _Task(subtask, spec, assignment, rows, job.facts, close)
                    task.acknowledgement.output = printed  # the list itself: it grows while the task runs
                    yield from run_epoch(subtask.operators, spec, task.acknowledgement, task)
        except (UserFailureError, MillstreamError) as error:
            failure = error if isinstance(error, UserFailureError) else _failure_of(error, job.plan(), assignment.stage)
            failure.report = replace(
                failure.report,
                subtask=assignment.subtask,
                epoch=spec.epoch,
                output=tuple(tuple(line) for line in printed),
                place=assignment.place,
            )
            if assignment.raises:
                raise
            residents.discard(job, assignment)
            yield from _sent_failure(failure, job.plan(), assignment.stage, rows)


def failed_start(
    job: ShippedJob, stage: int, subtask: int, place: str, rows: Iterator[pa.RecordBatch], error: MillstreamError
) -> Iterator[pa.RecordBatch]:
    """The envelopes of a task that failed before it could decode its specification."""
    failure = _failure_of(error, job.plan(), stage)
    failure.report = replace(failure.report, subtask=subtask, place=place)
    return _sent_failure(failure, job.plan(), stage, rows)


def _failure_of(error: MillstreamError, plan: Plan, stage: int) -> UserFailureError:
    """A failure outside any operator, attributed to the stage's first one."""
    first = plan.stages[stage].operators[0]
    return UserCall(first.name, first.uid or "", str(first.site)).failed(error, "task")


def _sent_failure(
    failure: UserFailureError, plan: Plan, stage: int, rows: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for _ in rows:  # drained, so that Spark's writer does not fail on a closed pipe
        pass
    outbox = Outbox(_next_width(plan, stage), failure.report.subtask, 0)
    yield seal(list(outbox.failures(failure.report.encode())))


def _next_width(plan: Plan, stage: int) -> int:
    return plan.stages[stage + 1].width if stage + 1 < len(plan.stages) else 1


class _Task:
    """The traffic around the operators of one task: receives, sends, checks and counts."""

    def __init__(
        self,
        subtask: Subtask,
        spec: EpochSpec,
        assignment: Assignment,
        rows: Iterator[pa.RecordBatch],
        facts: JobFacts,
        close: Callable[[], None],
    ) -> None:
        self._started_ns = time.perf_counter_ns()
        self._store_use = StoreUse(facts.store, deferred_uploads=spec.deferred_uploads, is_ahead=spec.is_ahead)
        self._subtask, self._spec, self._assignment, self._rows = subtask, spec, assignment, rows
        self._close = close
        plan, stage = subtask.plan, assignment.stage
        self._channels = {channel.id: channel for channel in plan.channels}
        self._inbox = Inbox(plan, stage, assignment.subtask, spec.epoch)
        shared = SharedBlocks(assignment.block_folder, assignment.nonce)
        self._outbox = Outbox(_next_width(plan, stage), assignment.subtask, facts.block_bytes_max, shared)
        self._ends: dict[tuple[int, int, int], ChannelEnd] = {}
        self.acknowledgement = Acknowledgement(stage, assignment.subtask, assignment.nonce, place=assignment.place)
        for operator in subtask.operators.values():
            self._wire(operator)

    def _wire(self, operator: Operator) -> None:
        """Connects an operator's outputs for this epoch: to operators of this task, and to exchanges."""
        operator.outputs = []
        operator.side_outputs = {}
        for channel in self._subtask.plan.out_of(operator.node.id):
            output = self._output(channel, operator)
            if channel.edge.tag is None:
                operator.outputs.append(output)
            else:
                operator.side_outputs.setdefault(channel.edge.tag, []).append(output)

    def _output(self, channel: Channel, operator: Operator) -> Output:
        sender = self._assignment.subtask
        if channel.local:
            return self._subtask.operators[channel.target].input(channel.edge.input, (channel.id, sender))
        router = router_for(channel, sender, self._spec.epoch, self._call_of_edge(channel, operator))
        return partial(self._outbox.send, channel, router, operator.call)

    def _call_of_edge(self, channel: Channel, operator: Operator) -> UserCall:
        """The call to which errors of an edge are attributed. Keys and partitions are computed by the sender, but
        belong to the target operator and to the line that defined the key."""
        if channel.edge.site is None:
            return operator.call
        target = next(node for node in self._subtask.plan.nodes() if node.id == channel.target)
        return UserCall(target.name, target.uid or "", str(channel.edge.site))

    # --- input --------------------------------------------------------------------------------------------------

    def arrivals(self) -> Generator[pa.RecordBatch, None, bool]:
        """Receives the blocks of the previous stage. If one of its tasks failed, forwards that instead of a barrier."""
        for batch in self._rows:
            if self._assignment.stage:
                for envelope in open_envelopes(batch):
                    self._receive(envelope)
                yield from self.departures()
        if self._inbox.failed:
            reports = self._inbox.failures
            yield seal(list(self._outbox.failures(reports[0] if reports else b"")))
            return False
        self._ends = self._inbox.check()
        self.acknowledgement.upstream_attempts = self._inbox.attempts
        return True

    def _receive(self, envelope: Envelope) -> None:
        if envelope.kind == DATA:
            self._inbox.data(envelope)
            channel = self._channels[envelope.channel]
            if channel.target_stage != self._assignment.stage:
                self._outbox.relay(envelope)
            elif not self._inbox.failed:
                operator = self._subtask.operators[channel.target]
                take = operator.input(channel.edge.input, (channel.id, envelope.sender))
                for batch in decode_block(resolve_block(envelope.payload), self._subtask.channel_types[channel.id]):
                    take(batch)
        elif envelope.kind == BARRIER:
            self._inbox.barrier(Barrier.decode(envelope.payload))
        elif envelope.kind == ACKNOWLEDGEMENT:
            self._inbox.acknowledgement(envelope.payload)
        else:
            self._inbox.failure(envelope.payload.to_pybytes())

    def watermark(self, node: int, watermarks: Mapping[int, int]) -> int:
        """The minimum over an operator's inputs: operators of this task, and senders of the other channels."""
        subtask = self._assignment.subtask
        inputs = [
            watermarks[channel.source]
            if channel.local
            else min(self._ends[channel.id, sender, subtask].watermark for sender in range(channel.senders))
            for channel in self._subtask.plan.into(node)
        ]
        return min(inputs, default=self._spec.watermarks.get(self._subtask.operators[node].uid, 0))

    # --- output -------------------------------------------------------------------------------------------------

    def departures(self) -> Iterator[pa.RecordBatch]:
        """The full blocks, one per row."""
        for envelope in self._outbox.ready():
            yield seal([envelope])

    def end(self, watermarks: Mapping[int, int]) -> Iterator[pa.RecordBatch]:
        """Sends the remaining blocks, the barriers, and the acknowledgements (its own and the relayed ones)."""
        self._complete(self.acknowledgement, watermarks)
        self._outbox.flush()
        yield from self.departures()
        acknowledgements = [*self._inbox.acknowledgements, self.acknowledgement.encode()]
        yield seal([*self._barriers(watermarks), *self._outbox.acknowledgements(acknowledgements)])

    def _complete(self, acknowledgement: Acknowledgement, watermarks: Mapping[int, int]) -> None:
        """Adds the data of the task as a whole."""
        split_followers = self._split_followers()
        for node, operator in self._subtask.operators.items():
            watermark = watermarks[node]
            acknowledgement.watermarks[operator.uid] = watermark
            if node not in split_followers:
                event_time = operator.time.watermark if watermark == IDLE_WATERMARK else watermark
                acknowledgement.event_times[operator.uid] = event_time
        if self._spec.final:
            self._close()  # before metrics and output are collected, so that they include those of close()
        acknowledgement.times = {
            **self._store_use.end(),
            "took_ns": time.perf_counter_ns() - self._started_ns,
            "alignment_ns": self._inbox.alignment_ns,
        }
        acknowledgement.metrics = self._subtask.metrics.snapshot()

    def _split_followers(self) -> set[int]:
        """The operators whose event time follows the splits of this task, which may move to another task."""
        followers: set[int] = set()
        for node, operator in self._subtask.operators.items():
            channels = self._subtask.plan.into(node)
            if operator.follows_splits(any(channel.local and channel.source in followers for channel in channels)):
                followers.add(node)
        return followers

    def _barriers(self, watermarks: Mapping[int, int]) -> Iterator[Envelope]:
        stage, sender, plan = self._assignment.stage, self._assignment.subtask, self._subtask.plan
        if stage + 1 == len(plan.stages):
            return  # after the last stage there is only the driver, which receives the acknowledgements
        ends = [
            (channel.id, sender, receiver, watermarks[node])
            for node in self._subtask.operators
            for channel in plan.out_of(node)
            if not channel.local
            for receiver in range(channel.receivers)
        ]
        ends += [
            (end.channel, end.sender, end.subtask, end.watermark)
            for end in self._ends.values()
            if self._channels[end.channel].target_stage > stage
        ]
        yield from self._outbox.barriers(self._spec.epoch, self._assignment.nonce, ends)
