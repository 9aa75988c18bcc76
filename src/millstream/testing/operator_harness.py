"""One function alone, record by record: the operator that would run it in a task, without the task.

The harness calls the function exactly as a task does (same operator, same type checks, same context), except that
what the function raises reaches the test as it is, and that the function is not copied: a test may look inside it.

Every call is an epoch of its own: records are pushed one at a time, event time stands still between two calls of
`watermark`, and processing time is what the clock shows. So state and timers are written and read back between any two
records, as they may be in a job. A call that fails has not happened, as far as keyed state is concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.argument_checks import checked_output_type, refuse
from millstream.datastream.functions.function import (
    FilterFunction,
    FlatMapFunction,
    Function,
    KeySelector,
    MapFunction,
)
from millstream.datastream.functions.process import KeyedProcessFunction, ProcessFunction
from millstream.datastream.key_selection import key_selection
from millstream.datastream.time_domain import TimeDomain
from millstream.errors import NotYetError
from millstream.graph.nodes import (
    Edge,
    Filter,
    FlatMap,
    KeyedFilter,
    KeyedFlatMap,
    KeyedMap,
    KeyedProcess,
    Map,
    MapBatches,
    Node,
    Operation,
    Partitioning,
    Process,
)
from millstream.graph.site import here
from millstream.graph.tags import SideTag
from millstream.metrics.registry import MetricRegistry, merge
from millstream.records.batch import Batch
from millstream.runtime.barrier import MIN_WATERMARK
from millstream.runtime.context import TaskContext
from millstream.runtime.failure import UserFailureError
from millstream.runtime.keyed_operators import (
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
    KeyedProcessOperator,
)
from millstream.runtime.keying import Keying
from millstream.runtime.operators import OPERATORS, Operator, OperatorSetting
from millstream.testing.harness_epochs import HarnessEpochs, Snapshot
from millstream.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from typing import Self

    from millstream.datastream.output_tag import OutputTag

__all__ = ["OperatorHarness"]

T = TypeVar("T")
Kind = Literal["map", "flat_map", "filter", "map_batches", "process"]

_KINDS: Mapping[type, Kind] = {
    MapFunction: "map",
    FlatMapFunction: "flat_map",
    FilterFunction: "filter",
    ProcessFunction: "process",
    KeyedProcessFunction: "process",
}
_OPERATIONS: Mapping[Kind, Callable[[Any], Operation]] = {
    "map": Map,
    "flat_map": FlatMap,
    "filter": Filter,
    "map_batches": MapBatches,
    "process": Process,
}
_TIME_DOMAINS = (TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME)
_KEYED_OPERATIONS: Mapping[Kind, Callable[[Any], Operation]] = {
    "map": KeyedMap,
    "flat_map": KeyedFlatMap,
    "filter": KeyedFilter,
    "process": lambda function: KeyedProcess(function, time_domains=_TIME_DOMAINS),
}
_KEYED_OPERATORS: Mapping[type, type[Operator]] = {
    KeyedMap: KeyedMapOperator,
    KeyedFlatMap: KeyedFlatMapOperator,
    KeyedFilter: KeyedFilterOperator,
    KeyedProcess: KeyedProcessOperator,
}
_UID = "harness"


class OperatorHarness:
    """Runs one function. A function class says itself what it is; for a plain callable say it with `kind`.

    >>> harness = OperatorHarness(str.split, kind="flat_map")
    >>> harness.push("to be")
    >>> harness.output()
    ['to', 'be']

    With `key_by`, as on a keyed stream, the function has state and timers of the key of the record at hand. `restore`
    is what `snapshot()` of another harness returned, or a list of these, one of each subtask; the parallelism may be
    another. Used as a context manager, or with `open()` and `close()`, it opens and closes the function as a task does.
    """

    def __init__(
        self,
        function: Any,
        output_type: TypeInformation | None = None,
        *,
        input_type: TypeInformation | None = None,
        kind: Kind | None = None,
        key_by: Callable[[Any], Any] | KeySelector | int | str | None = None,
        key_type: TypeInformation | None = None,
        name: str = "function",
        subtask: int = 0,
        parallelism: int = 1,
        max_parallelism: int = 128,
        attempt: int = 0,
        job_parameters: Mapping[str, str] | None = None,
        clock: ManualClock | None = None,
        restore: Snapshot | Sequence[Snapshot] = (),
    ) -> None:
        self._input_type = checked_output_type("OperatorHarness", input_type)
        self._clock = clock or ManualClock()
        self._registry = MetricRegistry()
        self._metrics: dict[str, Any] = {}
        self._results: list[tuple[Any, int | None]] = []
        self._side: dict[str, list[Any]] = {}
        self._opened = False
        kind = kind or _kind_of(function)
        _check_key(function, kind, key_by)
        if kind == "process":
            function = _WatchTags(function, self._new_tag)
        edges: tuple[Edge, ...] = ()
        if key_by is not None:
            selector, declared = key_selection(key_by, key_type, self._input_type)
            edges = (Edge(0, Partitioning.HASH, key_selector=selector, key_type=declared),)
        node = Node(
            1,
            (_KEYED_OPERATIONS if edges else _OPERATIONS)[kind](function),
            name,
            inputs=edges,
            output_type=self._input_type if kind == "filter" else checked_output_type("OperatorHarness", output_type),
            uid=_UID,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            site=here(),
        )
        context = TaskContext(
            task_name=name,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            subtask=subtask,
            attempt=attempt,
            parameters=dict(job_parameters or {}),
            metrics=self._registry.group(_UID),
        )
        kinds = _KEYED_OPERATORS if edges else OPERATORS
        self._operator: Operator = kinds[type(node.operation)](OperatorSetting(node, context, 1))
        self._operator.outputs = [self._keep]
        self._epochs = HarnessEpochs(self._operator, (restore,) if isinstance(restore, Snapshot) else restore)

    def open(self) -> Self:
        """Open the function, once; `push` does it when nobody has."""
        if not self._opened:
            self._opened = True
            self._calling(self._epochs.open)
        return self

    def close(self) -> None:
        """Close the function."""
        if self._opened:
            self._opened = False
            self._calling(self._operator.close)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def push(self, value: Any, timestamp: int | None = None) -> None:
        """Hand the function one record; what it raises is raised here."""
        stamps = None if timestamp is None else np.array([timestamp], dtype=np.int64)
        batch = Batch.of_values([value], self._input_type, stamps)
        self._check_subtask(batch)
        self._epoch(lambda: self._operator.take(batch))

    def push_all(self, values: Iterable[Any]) -> None:
        """Hand the function records without timestamps, one after another."""
        for value in values:
            self.push(value)

    def watermark(self, timestamp_ms: int) -> None:
        """Let event time come to `timestamp_ms`: timers that are due by then fire. It never goes back."""
        self._epoch(watermark=timestamp_ms)

    def wake(self) -> None:
        """Let the function notice what time the clock shows: timers of processing time that have come fire.

        `push` and `watermark` do so too, before anything else; it is needed after `clock.advance(...)` without them.
        """
        self._epoch()

    def snapshot(self) -> Snapshot:
        """What an epoch that ends now keeps of the function, for `restore=` of another harness.

        >>> from millstream.common import Types
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
        return list(self._side.get(tag.tag_id, []))

    def metrics(self) -> dict[str, Any]:
        """The function's metrics by name, in the form a job reports them: `{"bad": {"counter": 1}}`."""
        self._metrics = merge(self._metrics, self._registry.snapshot())
        return {name.removeprefix(f"{_UID}."): entry for name, entry in self._metrics.items()}

    def _epoch(self, work: Callable[[], None] | None = None, watermark: int = MIN_WATERMARK) -> None:
        self.open()
        self._calling(lambda: self._epochs.run(self._clock.now_ms(), work, watermark))

    def _check_subtask(self, batch: Batch) -> None:
        """Refuse what the exchange before the operator would: a key that is none, and a record of another subtask."""
        context, edges = self._operator.setting.context, self._operator.node.inputs
        if not edges:
            return
        keying = Keying(edges[0].key_selector, edges[0].key_type, self._operator.call)
        keys = self._calling(lambda: keying.column(batch))
        [owner] = keys.partitions(context.parallelism, context.max_parallelism).tolist()
        if owner != context.subtask:
            raise refuse(
                f"OperatorHarness.push: {batch.values()[0]!r} has a key of subtask {owner}; this harness is subtask "
                f"{context.subtask} of {context.parallelism}. Push it to a harness with subtask={owner}"
            )

    def _calling(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except UserFailureError as failure:
            # A task would send a report to the driver; a test wants the exception itself.
            raise (failure.__cause__ or failure) from None

    def _keep(self, batch: Batch) -> None:
        stamps = [None] * len(batch) if batch.timestamps is None else batch.timestamps.tolist()
        self._results.extend(zip(batch.values(), stamps, strict=True))

    def _new_tag(self, tag: SideTag) -> None:
        """A job knows its tags from `get_side_output`; the harness learns them when they are first used."""
        node, kept = self._operator.node, self._side.setdefault(tag.tag_id, [])
        assert isinstance(node.operation, Process)
        if tag.tag_id not in self._operator.side_outputs:
            type_info = checked_output_type("side output", getattr(tag, "type_info", None))
            operation = replace(node.operation, tags=(*node.operation.tags, (tag.tag_id, type_info)))
            self._operator.node = replace(node, operation=operation)
            self._operator.side_outputs[tag.tag_id] = [lambda batch: kept.extend(batch.values())]


class _WatchTags:
    """A process function that tells which side outputs it uses; in all else it is the function itself."""

    def __init__(self, function: Any, new_tag: Callable[[SideTag], None]) -> None:
        self._function, self._new_tag = function, new_tag

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        return self._watched(self._function.process_element(value, ctx))

    def on_timer(self, timestamp: int, ctx: Any) -> list[Any]:
        # A ProcessFunction on a keyed stream may set timers, and has nothing to be called when they fire.
        fire = getattr(self._function, "on_timer", None)
        return [] if fire is None else self._watched(fire(timestamp, ctx))

    def _watched(self, results: Iterable[Any] | None) -> list[Any]:
        given = list(results or ())
        for item in given:
            if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], SideTag):
                self._new_tag(item[0])
        return given


def _kind_of(function: Any) -> Kind:
    for function_class, kind in _KINDS.items():
        if isinstance(function, function_class):
            return kind
    if isinstance(function, Function):
        raise NotYetError.of(
            f"OperatorHarness for a {type(function).__name__}", "a later version", "test it in a job, by run()"
        )
    if callable(function):
        raise refuse("OperatorHarness: a plain callable does not say what it is; pass kind='map', 'filter', …")
    raise refuse(
        f"OperatorHarness: found {function!r}, expected a MapFunction, FlatMapFunction, FilterFunction, "
        "ProcessFunction, KeyedProcessFunction, or a callable with kind="
    )


def _check_key(function: Any, kind: Kind, key_by: Any) -> None:
    if key_by is None and isinstance(function, KeyedProcessFunction):
        raise refuse(
            f"OperatorHarness: {type(function).__name__} is a KeyedProcessFunction and needs a key; pass key_by="
        )
    if key_by is not None and (kind == "map_batches" or not isinstance(function, Function)):
        raise refuse(
            f"OperatorHarness: key_by= with {function!r}, which has no open() to ask for state in, and so no use for "
            "a key. Leave it out, or pass a function object"
        )
