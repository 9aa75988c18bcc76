"""One function alone, record by record: the operator that would run it in a task, without the task.

The harness calls the function exactly as a task does (same operator, same type checks, same context), except that
what the function raises reaches the test as it is, and that the function is not copied: a test may look inside it.
Records are pushed one at a time; event time stands still between two calls of `watermark`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.argument_checks import checked_output_type, refuse
from millstream.datastream.functions.function import FilterFunction, FlatMapFunction, Function, MapFunction
from millstream.datastream.functions.process import ProcessFunction
from millstream.errors import NotYetError
from millstream.graph.nodes import Filter, FlatMap, Map, MapBatches, Node, Operation, Process
from millstream.graph.site import here
from millstream.graph.tags import SideTag
from millstream.metrics.registry import MetricRegistry, merge
from millstream.records.batch import Batch
from millstream.runtime.context import TaskContext
from millstream.runtime.failure import UserFailureError
from millstream.runtime.operators import OPERATORS, Operator, OperatorSetting
from millstream.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from typing import Self

    from millstream.datastream.output_tag import OutputTag

__all__ = ["OperatorHarness"]

Kind = Literal["map", "flat_map", "filter", "map_batches", "process"]

_KINDS: Mapping[type, Kind] = {
    MapFunction: "map",
    FlatMapFunction: "flat_map",
    FilterFunction: "filter",
    ProcessFunction: "process",
}
_OPERATIONS: Mapping[Kind, Callable[[Any], Operation]] = {
    "map": Map,
    "flat_map": FlatMap,
    "filter": Filter,
    "map_batches": MapBatches,
    "process": Process,
}
_UID = "harness"


class OperatorHarness:
    """Runs one function. A function class says itself what it is; for a plain callable say it with `kind`.

    >>> harness = OperatorHarness(str.split, kind="flat_map")
    >>> harness.push("to be")
    >>> harness.output()
    ['to', 'be']

    Used as a context manager, or with `open()` and `close()`, it opens and closes the function as a task does.
    """

    def __init__(
        self,
        function: Any,
        output_type: TypeInformation | None = None,
        *,
        input_type: TypeInformation | None = None,
        kind: Kind | None = None,
        name: str = "function",
        subtask: int = 0,
        parallelism: int = 1,
        max_parallelism: int = 128,
        attempt: int = 0,
        job_parameters: Mapping[str, str] | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self._input_type = checked_output_type("OperatorHarness", input_type)
        self._clock = clock or ManualClock()
        self._registry = MetricRegistry()
        self._metrics: dict[str, Any] = {}
        self._results: list[tuple[Any, int | None]] = []
        self._side: dict[str, list[Any]] = {}
        self._opened = False
        kind = kind or _kind_of(function)
        if kind == "process":
            function = _WatchTags(function, self._new_tag)
        node = Node(
            1,
            _OPERATIONS[kind](function),
            name,
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
        self._operator: Operator = OPERATORS[type(node.operation)](OperatorSetting(node, context, 1))
        self._operator.outputs = [self._keep]

    def open(self) -> Self:
        """Open the function, once; `push` does it when nobody has."""
        if not self._opened:
            self._opened = True
            self._calling(self._operator.open)
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
        self.open()
        stamps = None if timestamp is None else np.array([timestamp], dtype=np.int64)
        self._operator.time.now_ms = self._clock.now_ms()
        self._calling(lambda: self._operator.take(Batch.of_values([value], self._input_type, stamps)))

    def push_all(self, values: Iterable[Any]) -> None:
        """Hand the function records without timestamps, one after another."""
        for value in values:
            self.push(value)

    def watermark(self, timestamp_ms: int) -> None:
        """Let event time come to `timestamp_ms`. It never goes back."""
        self._operator.advance(timestamp_ms)

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

    def _calling(self, call: Callable[[], None]) -> None:
        try:
            call()
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
    """A process function that tells which side outputs it uses."""

    def __init__(self, function: Any, new_tag: Callable[[SideTag], None]) -> None:
        self._function, self._new_tag = function, new_tag

    def open(self, runtime_context: Any) -> None:
        self._function.open(runtime_context)

    def close(self) -> None:
        self._function.close()

    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        results = list(self._function.process_element(value, ctx) or ())
        for item in results:
            if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], SideTag):
                self._new_tag(item[0])
        return results


def _kind_of(function: Any) -> Kind:
    for function_class, kind in _KINDS.items():
        if isinstance(function, function_class):
            return kind
    if isinstance(function, Function):
        raise NotYetError.of(
            f"OperatorHarness for a {type(function).__name__}", "keyed state", "test it in a job, by run()"
        )
    if callable(function):
        raise refuse("OperatorHarness: a plain callable does not say what it is; pass kind='map', 'filter', …")
    raise refuse(
        f"OperatorHarness: found {function!r}, expected a MapFunction, FlatMapFunction, FilterFunction, "
        "ProcessFunction, or a callable with kind="
    )
