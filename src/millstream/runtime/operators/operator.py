"""An operator: one node of the plan in one subtask, from open to close.

    open ──► begin ──► wake ──► receive_end ──► read ──► advance ──► acknowledge ──► close
               ▲        └───────────── take* ──────────────┘             │
               └──────────────────── the next epoch ─────────────────────┘

    open(accounts)         once per worker process: restores the operator state of the user's function and opens it
    begin(spec, nonce)     starts an epoch: restores event time, and opens states at their last version
    wake()                 before any input: emits results due by processing time
    take(batch)            processes a batch and emits the result; `input` returns the callable for each input
    receive_end()          everything from other tasks has arrived, and is complete
    read()                 reads external input, as sources do; each step of the iterator is a batch
    advance(watermark)     all input has arrived: finishes it, then advances event time
    acknowledge(...)       writes the states, stages the output, and reports both
    close()                the job has ended, or another process runs the subtask

`run_epoch` performs the steps, in tasks and in the test harness: all operators of a subtask perform a step, in
topological order, before any operator performs the next. A `Traffic` connects them with exchanges and the driver, or
with a test: it delivers input, collects output, and provides the watermarks of the inputs. So batches arrive at an
operator only between `wake` and its own `advance`. If a step after `begin` fails, every operator is aborted and closed.

A subclass overrides the steps in which it differs, and calls `super()`. Operators measure their own time, excluding
downstream operators, so the shares add up. No operator has per-record work outside the user's own function.

Invariant: once all operators have begun an epoch, every operator either acknowledges it or is aborted, independently of
the others, after a failure in this task or the reported failure of another.
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
from millstream.runtime.operators.interruption import check_cancelled
from millstream.runtime.operators.operator_state import OperatorState
from millstream.runtime.operators.user_code import TaskContext, TaskTimerService, UserCall
from millstream.runtime.task.spec import EpochSpec, JobFacts
from millstream.state.stored.accounts import FunctionAccount

__all__ = ["Operator", "OperatorSetting", "Origin", "Output", "Traffic", "run_epoch"]

_LOG = logging.getLogger(__name__)

Output = Callable[[Batch], None]
Origin = tuple[int, int]
"""The origin of a batch: its channel and the sending subtask."""


@dataclass(frozen=True)
class OperatorSetting:
    """The context of an operator: its node, its runtime context, its job, and the record type of its first input."""

    node: Node
    context: TaskContext
    facts: JobFacts
    input_type: TypeInformation | None = None

    def with_states(self, states: Any) -> OperatorSetting:
        """A copy for an operator whose functions may use keyed state."""
        return replace(self, context=replace(self.context, states=states))


class Operator:
    """One node in one subtask; the module docstring shows its life cycle. Most subclasses only override `apply`."""

    method = ""  # the name of the user's method, for function classes
    role = "function"
    is_keyed = False
    generates_watermarks = False  # whether it determines event time itself while all its inputs are idle
    writes_out = False  # whether it stages output

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
        """The user's function, if the operator has one."""
        return getattr(self.node.operation, "function", None)

    def user_functions(self) -> Iterable[Any]:
        """All user functions that are opened and closed with the operator, if they have the methods."""
        return (self.user_function(),)

    def stateful(self) -> Any:
        """The object that has operator state while this operator is open, if it implements the methods."""
        return self.user_function()

    def follows_splits(self, inputs_do: bool) -> bool:
        """Whether its event time is derived from splits read in this task, which may move to another task. `inputs_do`:
        one of its inputs in this task follows splits."""
        return inputs_do and not self.is_keyed

    @property
    def state_read_ns(self) -> int:
        """Total time this operator has spent on lookups of keyed state."""
        return 0

    # --- life cycle, in order -----------------------------------------------------------------------------------

    def open(self, accounts: Mapping[int, FunctionAccount]) -> None:
        """Restores the operator state of the user's function from the accounts of all subtasks, and opens it."""
        self.operator_state.restore(accounts)
        self.operator_state.initialize(self.stateful(), self.setting.context.states)
        self.open_functions()

    def open_functions(self) -> None:
        """Opens the user's functions. If one fails, closes the functions already open: nothing else refers to them."""
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
        """Begins an epoch in the attempt named by `nonce`. Event time resumes from the last epoch."""
        context = self.setting.context
        key_groups = context.max_parallelism if self.is_keyed else None
        self.time.now_ms = spec.now_ms
        self.time.watermark = spec.event_time(self.uid, context.subtask, context.parallelism, key_groups)
        self.records_in = self.records_out = self.busy_ns = 0
        self.operator_state.begin(spec.operator_states.get(self.uid, {}), nonce, spec.epoch, spec.now_ms)

    def wake(self) -> None:
        """Emits due results. All operators of the task have begun; no batch has been processed."""

    def input(self, number: int, origin: Origin) -> Output:
        """The callable that takes the batches of an input. Connected streams have two inputs, numbered from 1."""
        return self.take

    def take(self, batch: Batch) -> None:
        """Processes a batch and emits the result."""
        started = time.perf_counter_ns()
        self.records_in += len(batch)
        result = self.apply(batch)
        self.busy_ns += time.perf_counter_ns() - started
        if result is not None and len(result):
            self.emit(result)

    def apply(self, batch: Batch) -> Batch | None:
        """Processes a batch; returns the result."""
        raise NotImplementedError

    def receive_end(self) -> None:
        """Everything from other tasks has arrived and is complete. Input read in this task follows."""

    def read(self) -> Iterator[None]:
        """Reads external input; pauses after each batch, so that the task can send full blocks."""
        return iter(())

    def advance(self, watermark: int) -> int:
        """Event time has reached `watermark` on all inputs; returns the operator's output watermark."""
        self.time.watermark = max(self.time.watermark, watermark)
        return self.time.watermark

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Ends the epoch after all output: stores the function's operator state."""
        started = time.perf_counter_ns()
        self.operator_state.acknowledge(acknowledgement)
        self.busy_ns += time.perf_counter_ns() - started

    def abort(self) -> None:
        """The attempt failed after `begin`, here or in another task: undoes effects outside the store."""

    def close(self) -> None:
        """Closes the user's functions; a failure of one does not prevent the others."""
        with ExitStack() as closing:
            for function in reversed(tuple(self.user_functions())):
                closing.callback(self._call_function, function, "close")

    # --- used by subclasses -------------------------------------------------------------------------------------

    def _call_function(self, function: Any, method: str, *arguments: Any) -> None:
        """Calls a method of a user's function, if it exists."""
        bound = getattr(function, method, None)
        if callable(bound):
            with self.call.running(method):
                bound(*arguments)

    def emit(self, batch: Batch) -> None:
        """Passes a batch to every output."""
        check_cancelled()
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
        """A batch of values returned by user code, checked against the declared type."""
        try:
            return Batch.of_values(values, type_info, timestamps)
        except TypeMismatchError as error:
            raise self.call.failed(error, role) from error


Rows = Iterator[pa.RecordBatch]


class Traffic(Protocol):
    """The input and output of a subtask's operators in an epoch. Operators are named by node."""

    def arrivals(self) -> Generator[pa.RecordBatch, None, bool]:
        """Delivers the input from other tasks; yields rows to send. Returns False if another task has failed."""

    def departures(self) -> Rows:
        """Rows to send now."""

    def watermark(self, node: int, watermarks: Mapping[int, int]) -> int:
        """The watermark over all inputs of an operator; `watermarks`: those of upstream operators."""

    def end(self, watermarks: Mapping[int, int]) -> Rows:
        """All operators have acknowledged; `watermarks`: their output watermarks. Yields the last rows."""


def run_epoch(
    operators: Mapping[int, Operator], spec: EpochSpec, acknowledgement: Acknowledgement, traffic: Traffic
) -> Rows:
    """Runs open operators through one epoch; they fill in the acknowledgement. Yields the rows to send."""
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
    """Aborts the epoch in all operators. Errors are logged: they must not hide the cause of the epoch's failure."""
    for operator in operators:
        try:
            operator.abort()
        except Exception:
            _LOG.exception("abort() of '%s' failed", operator.node.name)


def _advance(operator: Operator, watermark: int) -> int:
    """Advances one operator's event time; returns its output watermark.

    An operator whose inputs are all idle is idle too, and its own event time stays. In BATCH event time has two values,
    before the end of the input and after it, however many epochs read it: no record is late, and timers and windows
    fire when all records have arrived.
    """
    if watermark != IDLE_WATERMARK or operator.generates_watermarks:
        reached = operator.advance(watermark)
    else:
        operator.advance(operator.time.watermark)
        reached = IDLE_WATERMARK
    return MIN_WATERMARK if operator.setting.facts.batch and reached != MAX_WATERMARK else reached


def _acknowledge(operator: Operator, acknowledgement: Acknowledgement, read_before_ns: int) -> dict[str, int]:
    """Acknowledges the epoch for an operator; returns its record counts and times."""
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
