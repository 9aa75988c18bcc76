"""An operator: one node of the plan in one subtask, from the moment it is opened until it is closed.

    open ──► begin ──► wake ──► receive_end ──► read ──► advance ──► acknowledge ──► close
               ▲        └───────────── take* ──────────────┘             │
               └──────────────────── the next epoch ─────────────────────┘

    open(accounts)         once, in a worker process: the user's function gets its operator state and is opened
    begin(spec, nonce)     an epoch: time stands where the last one ended, states are opened at their last version
    wake()                 nothing has come yet: emit what is due by the clock
    take(batch)            work on a batch and hand on the result; `input` says who takes the batches of which input
    receive_end()          all that other tasks sent is here, and nothing is missing
    read()                 read from outside, as sources do; a step of the iterator is a batch
    advance(watermark)     all input is here: finish it, then let event time move on
    acknowledge(...)       write the states and stage the output; say where they are
    close()                the job has ended, or the subtask is open somewhere else

`run_epoch` takes the steps, in tasks and in the test harness: each step is taken by all operators of a subtask, in
topological order, before any of them takes the next. What surrounds them (exchanges and the driver, or a test) is a
`Traffic`: it brings what others sent, takes away what is to be sent, and knows how far event time has come on the
inputs. So batches come to an operator from `wake` until its own `advance`, and none after it. If a step behind `begin`
fails, every operator is told to `abort`, and is closed.

A subclass overrides the steps in which it differs, and calls `super()`. Operators measure their own time, not that of
those they hand to, so the shares add up. No operator does anything per record outside the user's own function.

Invariant: once all operators have begun an epoch, they acknowledge it, or each is told to abort it, whatever the others
make of that: after a failure here, and after one of another task that this one hears of.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import TypeMismatchError
from millstream.graph.nodes import Node
from millstream.records.batch import Batch, Timestamps
from millstream.records.watermarks import IDLE_WATERMARK, MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.exchange.messages import Acknowledgement
from millstream.runtime.operators.interruption import check_wanted
from millstream.runtime.operators.operator_state import OperatorState
from millstream.runtime.operators.user_code import TaskContext, TaskTimerService, UserCall
from millstream.runtime.task.spec import EpochSpec, JobFacts
from millstream.state.stored.accounts import FunctionAccount

__all__ = ["Operator", "OperatorSetting", "Origin", "Output", "Traffic", "run_epoch"]

_LOG = logging.getLogger(__name__)

Output = Callable[[Batch], None]
Origin = tuple[int, int]
"""Where a batch comes from: the channel and the subtask that sent it."""


@dataclass(frozen=True)
class OperatorSetting:
    """Where an operator stands: its node, its runtime context, its job, and the type of the records it gets first."""

    node: Node
    context: TaskContext
    facts: JobFacts
    input_type: TypeInformation | None = None

    def with_states(self, states: Any) -> OperatorSetting:
        """The same, for an operator whose functions may ask for keyed state."""
        return replace(self, context=replace(self.context, states=states))


class Operator:
    """One node in one subtask; the module's text draws its life. Most subclasses only say what `apply` gives."""

    method = ""  # the name of the user's method, for function classes
    role = "function"
    is_keyed = False
    tells_time = False  # whether it says itself where event time stands while all its inputs are idle
    writes_out = False  # whether its work is to stage output

    def __init__(self, setting: OperatorSetting) -> None:
        node = setting.node
        assert node.uid is not None
        self.node = node
        self.uid = node.uid
        self.setting = setting
        self.call = UserCall(node.name, node.uid, str(node.site))
        self.outputs: list[Output] = []
        self.side_outputs: dict[str, list[Output]] = {}
        self.time = TaskTimerService()
        context, store = setting.context, setting.facts.store
        self.operator_state = OperatorState(self.uid, context.parallelism, context.subtask, store, self.call)
        self.records_in = self.records_out = self.busy_ns = 0

    def user_function(self) -> Any:
        """The user's function, where the operator has one."""
        return getattr(self.node.operation, "function", None)

    def user_functions(self) -> Iterable[Any]:
        """All functions of the user's that are opened and closed with the operator, if they have the methods."""
        return (self.user_function(),)

    def stateful(self) -> Any:
        """The object that keeps operator state as long as this operator is open, if it has the methods for it."""
        return self.user_function()

    def follows_splits(self, inputs_do: bool) -> bool:
        """Whether its event time is that of splits read in this task, which may move to another one. `inputs_do`: one
        of its inputs in this task follows splits."""
        return inputs_do and not self.is_keyed

    @property
    def state_read_ns(self) -> int:
        """The time this operator has spent looking up keyed state since it was made."""
        return 0

    # --- its life, in order -------------------------------------------------------------------------------------

    def open(self, accounts: Mapping[int, FunctionAccount]) -> None:
        """Give the user's function its operator state, of which each subtask kept an account, and open it."""
        self.operator_state.restore(accounts)
        self.operator_state.initialize(self.stateful(), self.setting.context.states)
        self.open_functions()

    def open_functions(self) -> None:
        """Open the user's functions. If one fails, those before it are closed again: nobody else knows of them."""
        opened: list[Any] = []
        try:
            for function in self.user_functions():
                self._call_function(function, "open", self.setting.context)
                opened.append(function)
        except BaseException:
            for function in opened:
                try:
                    self._call_function(function, "close")
                except Exception:
                    _LOG.exception("close() of '%s' failed", self.node.name)
            raise

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        """An epoch begins, in the attempt that `nonce` names. Time stands where the last epoch ended."""
        context = self.setting.context
        key_groups = context.max_parallelism if self.is_keyed else None
        self.time.now_ms = spec.now_ms
        self.time.watermark = spec.event_time(self.uid, context.subtask, context.parallelism, key_groups)
        self.records_in = self.records_out = self.busy_ns = 0
        self.operator_state.begin(spec.operator_states.get(self.uid, {}), nonce, spec.epoch, spec.now_ms)

    def wake(self) -> None:
        """All operators of the task have begun; none has taken a batch. Emit what is due, if anything is."""

    def input(self, number: int, origin: Origin) -> Output:
        """What takes the batches of an input. Operators of connected streams have two, numbered from 1."""
        return self.take

    def take(self, batch: Batch) -> None:
        """Work on a batch and hand on the result."""
        started = time.perf_counter_ns()
        self.records_in += len(batch)
        result = self.apply(batch)
        self.busy_ns += time.perf_counter_ns() - started
        if result is not None and len(result):
            self.emit(result)

    def apply(self, batch: Batch) -> Batch | None:
        """What this operator makes of a batch."""
        raise NotImplementedError

    def receive_end(self) -> None:
        """All that other tasks sent is here, and nothing is missing. What is read in this task comes after."""

    def read(self) -> Iterator[None]:
        """Read from outside; pauses after each batch, so that the task can send what has piled up."""
        return iter(())

    def advance(self, watermark: int) -> int:
        """Event time has come to `watermark` on all inputs; returns where it stands behind this operator."""
        self.time.watermark = max(self.time.watermark, watermark)
        return self.time.watermark

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """The epoch ends, and all its output is made: keep the function's operator state."""
        started = time.perf_counter_ns()
        self.operator_state.acknowledge(acknowledgement)
        self.busy_ns += time.perf_counter_ns() - started

    def abort(self) -> None:
        """The attempt failed after `begin`, here or in another task: undo what is outside the store, if anything is."""

    def close(self) -> None:
        """Close the user's functions, each of them whatever becomes of the others."""
        with ExitStack() as closing:
            for function in reversed(tuple(self.user_functions())):
                closing.callback(self._call_function, function, "close")

    # --- what operators use -------------------------------------------------------------------------------------

    def _call_function(self, function: Any, method: str, *arguments: Any) -> None:
        """Call a method of a function of the user's, if it has one of this name."""
        bound = getattr(function, method, None)
        if callable(bound):
            with self.call.running(method):
                bound(*arguments)

    def emit(self, batch: Batch) -> None:
        """Hand a batch to every output."""
        check_wanted()
        self.records_out += len(batch)
        for output in self.outputs:
            output(batch)

    def typed(
        self,
        values: list[Any],
        timestamps: Timestamps | None,
        type_info: TypeInformation | None,
        role: str = "output type",
    ) -> Batch:
        """A batch of what user code returned, checked against the type it was declared to have."""
        try:
            return Batch.of_values(values, type_info, timestamps)
        except TypeMismatchError as error:
            raise self.call.failed(error, role) from error


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
