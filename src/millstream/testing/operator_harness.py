"""One function alone, record by record: the operator that would run it in a task, without the task.

The harness calls the function exactly as a task does (same operator, same type checks, same context), except that
what the function raises reaches the test as it is, and that the function is not copied: a test may look inside it.

Every call is an epoch of its own: records are pushed one at a time, event time stands still between two calls of
`watermark`, and processing time is what the clock shows. So state and timers are written and read back between any two
records, as they may be in a job. A call that fails has not happened, as far as keyed state is concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions.asynchronous import AsyncRetryStrategy
from millstream.datastream.functions.function import KeySelector
from millstream.datastream.state import MapStateDescriptor
from millstream.datastream.streams.argument_checks import checked_count, checked_output_type
from millstream.graph.nodes import Node, Process
from millstream.graph.site import here
from millstream.graph.tags import SideTag
from millstream.metrics.registry import MetricRegistry, merge
from millstream.records.batch import Batch
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.operators.user_code import TaskContext, UserFailureError
from millstream.runtime.task.registry import operator_for
from millstream.testing.harness_epochs import HarnessEpochs, HarnessSnapshot, harness_facts
from millstream.testing.harness_functions import (
    TAGGING,
    AsyncSettings,
    Kind,
    WatchedTags,
    harness_edges,
    harness_operation,
    kind_of,
)
from millstream.testing.harness_inputs import HarnessInputs
from millstream.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from typing import Self

    from millstream.datastream.output_tag import OutputTag

__all__ = ["OperatorHarness"]

T = TypeVar("T")
Key = Callable[[Any], Any] | KeySelector | int | str
_UID = "harness"


class OperatorHarness(HarnessInputs):
    """Runs one function. A function class says itself what it is; for a plain callable say it with `kind`.

    >>> harness = OperatorHarness(str.split, kind="flat_map")
    >>> harness.push("to be")
    >>> harness.output()
    ['to', 'be']

    With `key_by`, as on a keyed stream, the function has state and timers of the key of the record at hand. `restore`
    is what `snapshot()` of another harness returned, or a list of these, one of each subtask; the parallelism may be
    another. Used as a context manager, or with `open()` and `close()`, it opens and closes the function as a task does.

    A function of two streams has a type and a key for the second, too (`input_type2`, `key_by2`). A broadcast function
    names its states, as `broadcast(...)` does in a program. An `AsyncFunction` is called as the last four say.
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
        """Open the function, once; `push` does it when nobody has."""
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
        """Let the function notice what time the clock shows: timers of processing time that have come fire.

        `push` and `watermark` do so too, before anything else; it is needed after `clock.advance(...)` without them.
        """
        self._epoch()

    def snapshot(self) -> HarnessSnapshot:
        """What an epoch that ends now keeps of the function, for `restore=` of another harness.

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
        """What the function gave out so far."""
        return [value for value, _ in self._results]

    def output_with_timestamps(self) -> list[tuple[Any, int | None]]:
        """The same, each with its event time."""
        return list(self._results)

    def side_output(self, tag: OutputTag) -> list[Any]:
        """What the function gave out under `tag` so far."""
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
            # A task would send a report to the driver; a test wants the exception itself.
            raise (failure.__cause__ or failure) from None

    def _collect(self, batch: Batch) -> None:
        stamps = [None] * len(batch) if batch.timestamps is None else batch.timestamps.tolist()
        self._results.extend(zip(batch.values(), stamps, strict=True))

    def _new_tag(self, tag: SideTag) -> None:
        """A job knows its tags from `get_side_output`; the harness learns them when they are first used."""
        node, values = self._operator.node, self._side_values.setdefault(tag.tag_id, [])
        assert isinstance(node.operation, Process)
        if tag.tag_id not in self._operator.side_outputs:
            type_info = checked_output_type("side output", getattr(tag, "type_info", None))
            operation = replace(node.operation, tags=(*node.operation.tags, (tag.tag_id, type_info)))
            self._operator.node = replace(node, operation=operation)
            self._operator.side_outputs[tag.tag_id] = [lambda batch: values.extend(batch.values())]
