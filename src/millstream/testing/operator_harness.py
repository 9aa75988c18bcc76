"""Tests one function, record by record: the operator that would run it in a task, without the task.

The harness calls the function exactly as a task does (same operator, same type checks, same context), except that
exceptions of the function reach the test unchanged, and that the function is not copied: a test may inspect it.

Every call is a separate epoch: records are pushed one at a time, event time is constant between two calls of
`watermark`, and processing time is the clock's. So state and timers are written and read back between any two records,
as may happen in a job. A call that fails has no effect on keyed state.

Records and event time arrive on one input, on two, or on a stream and a broadcast stream, under the names of Flink's
test harnesses. Event time of an operator with two inputs is the lower of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions.asynchronous import AsyncRetryStrategy
from millstream.datastream.functions.function import KeySelector
from millstream.datastream.state import MapStateDescriptor
from millstream.datastream.streams.argument_checks import checked_count, checked_output_type, refuse
from millstream.graph.nodes import Node, Process
from millstream.graph.site import here
from millstream.graph.tags import SideTag
from millstream.metrics.registry import MetricRegistry, merge
from millstream.records.batch import Batch
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.exchange.routing import Keying
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.operators.user_code import TaskContext, UserFailureError
from millstream.runtime.task.registry import operator_for
from millstream.testing.harness_epochs import HarnessEpochs, HarnessSnapshot, harness_facts
from millstream.testing.harness_functions import (
    TAGGING,
    TWO_INPUTS,
    AsyncSettings,
    Kind,
    WatchedTags,
    harness_edges,
    harness_operation,
    kind_of,
)
from millstream.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from typing import Self

    from millstream.datastream.output_tag import OutputTag

__all__ = ["HarnessInputs", "OperatorHarness"]

_ORIGIN = (0, 0)


class HarnessInputs:
    """The inputs of the harness. Subclasses run the epochs."""

    _operator: Operator
    _kind: Kind
    _input_types: tuple[TypeInformation | None, TypeInformation | None]

    def __init__(self) -> None:
        self._watermarks = {1: MIN_WATERMARK, 2: MIN_WATERMARK}

    def _epoch(self, work: Callable[[], None] | None = None, watermark: int = MIN_WATERMARK) -> None:
        raise NotImplementedError

    def _call(self, call: Callable[[], Any]) -> Any:
        raise NotImplementedError

    # --- one input --------------------------------------------------------------------------------------

    def push(self, value: Any, timestamp: int | None = None) -> None:
        """Push one record to the function; its exceptions are raised here."""
        self._check_kind("push", has_two=False)
        self._push(1, [value], None if timestamp is None else [timestamp])

    def push_all(self, values: Iterable[Any]) -> None:
        """Push records without timestamps, one after another; an `AsyncFunction` gets them all at once."""
        self._check_kind("push_all", has_two=False)
        if self._kind == "async":
            self._push(1, list(values), None)
        else:
            for value in values:
                self._push(1, [value], None)

    process_element = push

    def watermark(self, timestamp_ms: int) -> None:
        """Advance event time to `timestamp_ms` on all inputs: timers due by then fire. It never goes back."""
        self._advance(timestamp_ms, 1, 2)

    # --- two inputs -------------------------------------------------------------------------------------

    def process_element1(self, value: Any, timestamp: int | None = None) -> None:
        """Push a record of the first stream."""
        self._check_kind("process_element1", has_two=True)
        self._push(1, [value], None if timestamp is None else [timestamp])

    def process_element2(self, value: Any, timestamp: int | None = None) -> None:
        """Push a record of the second stream."""
        self._check_kind("process_element2", has_two=True)
        self._push(2, [value], None if timestamp is None else [timestamp])

    def process_watermark1(self, timestamp_ms: int) -> None:
        """Advance the first stream's event time to `timestamp_ms`; the function's is the lower of both."""
        self._check_kind("process_watermark1", has_two=True)
        self._advance(timestamp_ms, 1)

    def process_watermark2(self, timestamp_ms: int) -> None:
        """Advance the second stream's event time to `timestamp_ms`; the function's is the lower of both."""
        self._check_kind("process_watermark2", has_two=True)
        self._advance(timestamp_ms, 2)

    # --- a stream and a broadcast one -------------------------------------------------------------------

    def process_broadcast_element(self, value: Any, timestamp: int | None = None) -> None:
        """Push a record of the broadcast stream to a broadcast function."""
        self._check_broadcast("process_broadcast_element")
        self._push(2, [value], None if timestamp is None else [timestamp])

    def process_watermark(self, timestamp_ms: int) -> None:
        """Advance the stream's event time to `timestamp_ms`; with a broadcast stream the lower of both counts."""
        self._check_kind("process_watermark", has_two=False)
        self._advance(timestamp_ms, *((1,) if self._kind == "broadcast" else (1, 2)))

    def process_broadcast_watermark(self, timestamp_ms: int) -> None:
        """Advance the broadcast stream's event time to `timestamp_ms`; the function's is the lower of both."""
        self._check_broadcast("process_broadcast_watermark")
        self._advance(timestamp_ms, 2)

    # --- implementation ---------------------------------------------------------------------------------

    def _push(self, number: int, values: list[Any], stamps: list[int] | None) -> None:
        timestamps = None if stamps is None else np.array(stamps, dtype=np.int64)
        batch = Batch.of_values(values, self._input_types[number - 1], timestamps)
        self._check_subtask(batch, number)
        self._epoch(lambda: self._operator.input(number, _ORIGIN)(batch))

    def _advance(self, timestamp_ms: int, *inputs: int) -> None:
        for number in inputs:
            self._watermarks[number] = max(timestamp_ms, self._watermarks[number])
        self._epoch(watermark=min(self._watermarks.values()))

    def _check_kind(self, method: str, *, has_two: bool) -> None:
        if (self._kind in TWO_INPUTS and self._kind != "broadcast") == has_two:
            return
        if has_two:
            raise refuse(f"OperatorHarness.{method}: the function has no two streams. Use push() and watermark()")
        raise refuse(
            f"OperatorHarness.{method}: the function has two inputs. Use process_element1() or process_element2(), "
            "process_watermark1() or process_watermark2()"
        )

    def _check_broadcast(self, method: str) -> None:
        if self._kind != "broadcast":
            raise refuse(f"OperatorHarness.{method}: the function is no broadcast function and has no such input")

    def _check_subtask(self, batch: Batch, number: int) -> None:
        """Reject what the exchange upstream of the operator would: an invalid key, and a record of another subtask."""
        context = self._operator.setting.context
        edges = [edge for edge in self._operator.node.inputs if edge.input == number and edge.key_selector is not None]
        for edge in edges:
            keying = Keying(edge.key_selector, edge.key_type, self._operator.call)
            keys = self._call(lambda keying=keying: keying.column(batch))  # type: ignore[misc]
            owners = keys.partitions(context.parallelism, context.max_parallelism).tolist()
            for value, owner in zip(batch.values(), owners, strict=True):
                if owner != context.subtask:
                    raise refuse(
                        f"OperatorHarness: {value!r} has a key of subtask {owner}; this harness is subtask "
                        f"{context.subtask} of {context.parallelism}. Push it to a harness with subtask={owner}"
                    )


T = TypeVar("T")
Key = Callable[[Any], Any] | KeySelector | int | str
_UID = "harness"


class OperatorHarness(HarnessInputs):
    """Runs one function. A function class determines its kind; a plain callable needs `kind`.

    >>> harness = OperatorHarness(str.split, kind="flat_map")
    >>> harness.push("to be")
    >>> harness.output()
    ['to', 'be']

    With `key_by`, as on a keyed stream, the function has state and timers for the key of the current record. `restore`
    is the result of another harness's `snapshot()`, or a list of these, one per subtask; the parallelism may differ.
    Used as a context manager, or with `open()` and `close()`, it opens and closes the function as a task does.

    A function of two streams also has a type and a key for the second (`input_type2`, `key_by2`). A broadcast function
    names its states, as `broadcast(...)` does in a program. The last four parameters configure an `AsyncFunction`.
    """

    def __init__(
        self,
        function: Any,
        output_type: TypeInformation | None = None,
        *,
        input_type: TypeInformation | None = None,
        kind: Kind | None = None,
        key_by: Key | None = None,
        key_type: TypeInformation | None = None,
        input_type2: TypeInformation | None = None,
        key_by2: Key | None = None,
        broadcast_states: Sequence[MapStateDescriptor] = (),
        name: str = "function",
        subtask: int = 0,
        parallelism: int = 1,
        max_parallelism: int = 128,
        attempt: int = 0,
        job_parameters: Mapping[str, str] | None = None,
        clock: ManualClock | None = None,
        restore: HarnessSnapshot | Sequence[HarnessSnapshot] = (),
        timeout_ms: int = 60_000,
        capacity: int = 100,
        ordered: bool = True,
        retry: AsyncRetryStrategy[Any] | None = None,
    ) -> None:
        super().__init__()
        first_type = checked_output_type("OperatorHarness", input_type)
        self._input_types = first_type, checked_output_type("OperatorHarness", input_type2)
        self._clock = clock or ManualClock()
        self._registry = MetricRegistry()
        self._metrics: dict[str, Any] = {}
        self._results: list[tuple[Any, int | None]] = []
        self._side_values: dict[str, list[Any]] = {}
        self._is_open = False
        self._kind = kind = kind_of(function, kind)
        edges = harness_edges(function, kind, (key_by, key_by2), key_type, self._input_types)
        if kind in TAGGING:
            function = WatchedTags(function, self._new_tag)
        checked_count("OperatorHarness, timeout_ms", timeout_ms)
        checked_count("OperatorHarness, capacity", capacity)
        calls = AsyncSettings(timeout_ms, capacity, ordered, retry)
        node = Node(
            1,
            harness_operation(function, kind, bool(edges), broadcast_states, calls),
            name,
            inputs=edges,
            output_type=first_type if kind == "filter" else checked_output_type("OperatorHarness", output_type),
            uid=_UID,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            site=here(),
        )
        parameters, metrics = dict(job_parameters or {}), self._registry.group(_UID)
        context = TaskContext(name, parallelism, max_parallelism, subtask, attempt, parameters, metrics)
        self._operator: Operator = operator_for(OperatorSetting(node, context, harness_facts(), self._input_types[0]))
        self._operator.outputs = [self._collect]
        self._epochs = HarnessEpochs(self._operator, (restore,) if isinstance(restore, HarnessSnapshot) else restore)

    def open(self) -> Self:
        """Open the function, once; `push` does so if needed."""
        if not self._is_open:
            self._call(self._epochs.open)
            self._is_open = True
        return self

    def close(self) -> None:
        """Close the function."""
        if self._is_open:
            self._is_open = False
            self._call(self._operator.close)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wake(self) -> None:
        """Fire the processing-time timers that are due by the clock.

        `push` and `watermark` do so first; call this after `clock.advance(...)` without them.
        """
        self._epoch()

    def snapshot(self) -> HarnessSnapshot:
        """The function's state at the end of the last epoch, for `restore=` of another harness.

        >>> from millstream.common import Types
        >>> from millstream.datastream.functions import MapFunction
        >>> from millstream.datastream.state import ValueStateDescriptor
        >>> class Count(MapFunction):
        ...     def open(self, runtime_context):
        ...         self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        ...     def map(self, value):
        ...         self.count.update((self.count.value() or 0) + 1)
        ...         return value, self.count.value()
        >>> before = OperatorHarness(Count(), key_by=lambda word: word)
        >>> before.push_all(["a", "b", "a"])
        >>> after = OperatorHarness(Count(), key_by=lambda word: word, restore=before.snapshot())
        >>> after.push("a")
        >>> after.output()
        [('a', 3)]
        """
        self._epoch()
        return self._epochs.snapshot()

    def output(self) -> list[Any]:
        """The records emitted so far."""
        return [value for value, _ in self._results]

    def output_with_timestamps(self) -> list[tuple[Any, int | None]]:
        """The records emitted so far, each with its event time."""
        return list(self._results)

    def side_output(self, tag: OutputTag) -> list[Any]:
        """The records emitted to `tag` so far."""
        return list(self._side_values.get(tag.tag_id, []))

    def metrics(self) -> dict[str, Any]:
        """The function's metrics by name, in the form a job reports them: `{"bad": {"counter": 1}}`."""
        self._metrics = merge(self._metrics, self._registry.snapshot())
        return {name.removeprefix(f"{_UID}."): entry for name, entry in self._metrics.items()}

    def _epoch(self, work: Callable[[], None] | None = None, watermark: int = MIN_WATERMARK) -> None:
        self.open()
        self._call(lambda: self._epochs.run(self._clock.now_ms(), work, watermark))

    def _call(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except UserFailureError as failure:
            # A task would report to the driver; a test needs the exception itself.
            raise (failure.__cause__ or failure) from None

    def _collect(self, batch: Batch) -> None:
        stamps = [None] * len(batch) if batch.timestamps is None else batch.timestamps.tolist()
        self._results.extend(zip(batch.values(), stamps, strict=True))

    def _new_tag(self, tag: SideTag) -> None:
        """Register a tag on first use; a job knows its tags from `get_side_output`."""
        node, values = self._operator.node, self._side_values.setdefault(tag.tag_id, [])
        assert isinstance(node.operation, Process)
        if tag.tag_id not in self._operator.side_outputs:
            type_info = checked_output_type("side output", getattr(tag, "type_info", None))
            operation = replace(node.operation, tags=(*node.operation.tags, (tag.tag_id, type_info)))
            self._operator.node = replace(node, operation=operation)
            self._operator.side_outputs[tag.tag_id] = [lambda batch: values.extend(batch.values())]
