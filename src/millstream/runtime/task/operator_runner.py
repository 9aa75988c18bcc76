"""The steps of an epoch: what takes the operators of a subtask through it, in tasks and in the test harness.

The steps are those that `runtime.operators.operator` draws. All operators take one step, in topological order, before
any of them takes the next. What surrounds them (exchanges and the driver, or a test) is a `Traffic`: it brings what
others sent, takes away what is to be sent, and knows how far event time has come on the inputs.

Invariant: once all operators have begun an epoch, they acknowledge it, or each is told to abort it, whatever the others
make of that: after a failure here, and after one of another task that this one hears of.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from millstream.records.watermarks import IDLE_WATERMARK, MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.operators.operator import Operator
from millstream.runtime.task.barrier import Acknowledgement
from millstream.runtime.task.spec import EpochSpec

__all__ = ["Traffic", "run_epoch"]

_LOG = logging.getLogger(__name__)

Rows = Iterator[pa.RecordBatch]


class Traffic(Protocol):
    """What comes to the operators of a subtask in an epoch, and what leaves them. Operators are named by node."""

    def arrivals(self) -> Generator[pa.RecordBatch, None, bool]:
        """Hand the operators what others sent; yields rows to send. Returns False if another task has failed."""

    def departures(self) -> Rows:
        """Rows to send now: what has piled up."""

    def watermark(self, node: int, watermarks: Mapping[int, int]) -> int:
        """How far event time has come on all inputs of an operator; `watermarks`: behind those before it."""

    def end(self, watermarks: Mapping[int, int]) -> Rows:
        """All operators have acknowledged; `watermarks`: where event time stands behind each. Yields the last rows."""


def run_epoch(
    operators: Mapping[int, Operator], spec: EpochSpec, acknowledgement: Acknowledgement, traffic: Traffic
) -> Rows:
    """Take open operators through one epoch; they fill in the acknowledgement. Yields the rows that are to be sent."""
    members = list(operators.values())
    read_before_ns = [operator.state_read_ns for operator in members]
    for operator in members:
        operator.begin(spec, acknowledgement.nonce)
    try:
        for operator in members:
            operator.wake()
        if not (yield from traffic.arrivals()):
            _abort(members)
            return
        for operator in members:
            operator.receive_end()
        for operator in members:
            for _ in operator.read():
                yield from traffic.departures()
        watermarks: dict[int, int] = {}
        for node, operator in operators.items():
            watermarks[node] = _advance(operator, traffic.watermark(node, watermarks))
        for operator, read_ns in zip(members, read_before_ns, strict=True):
            acknowledgement.operators[operator.uid] = _acknowledge(operator, acknowledgement, read_ns)
        yield from traffic.end(watermarks)
    except BaseException:
        _abort(members)
        raise


def _abort(operators: Iterable[Operator]) -> None:
    """Have operators abort the epoch. What that raises is logged: it must not hide why the epoch failed."""
    for operator in operators:
        try:
            operator.abort()
        except Exception:
            _LOG.exception("abort() of '%s' failed", operator.node.name)


def _advance(operator: Operator, watermark: int) -> int:
    """Move one operator's event time; returns where it stands behind it.

    Behind an operator whose inputs are all idle it is idle too, and the operator itself stands still. In BATCH event
    time has two moments, before the end of the input and after it, however many epochs read it: no record is late, and
    timers and windows come when all records are in.
    """
    if watermark != IDLE_WATERMARK or operator.tells_time:
        reached = operator.advance(watermark)
    else:
        operator.advance(operator.time.watermark)
        reached = IDLE_WATERMARK
    return MIN_WATERMARK if operator.setting.facts.batch and reached != MAX_WATERMARK else reached


def _acknowledge(operator: Operator, acknowledgement: Acknowledgement, read_before_ns: int) -> dict[str, int]:
    """Have an operator acknowledge the epoch; returns what it did in it, and where its time went."""
    worked_ns = operator.busy_ns
    started = time.perf_counter_ns()
    operator.acknowledge(acknowledgement)
    written_ns = time.perf_counter_ns() - started
    read_ns = operator.state_read_ns - read_before_ns
    return {
        "in": operator.records_in,
        "out": operator.records_out,
        "busy_ns": operator.busy_ns,
        "user_ns": 0 if operator.writes_out else max(0, worked_ns - read_ns),
        "read_ns": read_ns,
        "write_ns": 0 if operator.writes_out else written_ns,
        "staging_ns": worked_ns + written_ns if operator.writes_out else 0,
    }
