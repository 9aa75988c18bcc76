"""From the settings of a windowed stream to the node of the graph.

The user's function is put into the adapter that hands it a window's contents in the shape it wants; what a window
keeps follows from the contents asked for. How windows are run is not said here: that is for the compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions.function import AggregateFunction
from millstream.datastream.functions.internal_window import (
    InternalIterableAllWindowFunction,
    InternalIterableProcessAllWindowFunction,
    InternalIterableProcessWindowFunction,
    InternalIterableWindowFunction,
    InternalSingleValueAllWindowFunction,
    InternalSingleValueProcessAllWindowFunction,
    InternalSingleValueProcessWindowFunction,
    InternalSingleValueWindowFunction,
    InternalWindowFunction,
)
from millstream.datastream.functions.window import (
    AllWindowFunction,
    PassThroughWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.datastream.streams.windowing import Windowing
from millstream.graph.nodes import ReadyAggregates, Window

__all__ = ["Contents", "window_operation"]

# For each kind of function: the adapter for one value, and the one for all records.
_ADAPTERS: tuple[tuple[type[Any], type[Any], type[Any]], ...] = (
    (WindowFunction, InternalSingleValueWindowFunction, InternalIterableWindowFunction),
    (AllWindowFunction, InternalSingleValueAllWindowFunction, InternalIterableAllWindowFunction),
    (ProcessWindowFunction, InternalSingleValueProcessWindowFunction, InternalIterableProcessWindowFunction),
    (ProcessAllWindowFunction, InternalSingleValueProcessAllWindowFunction, InternalIterableProcessAllWindowFunction),
)


@dataclass(frozen=True)
class Contents:
    """What a window comes to: one value by `reduce` or `aggregate`, else all records. `type_info` is that of a record
    or of the accumulator; `ready` what the engine knows of `aggregate` and the function on top of it."""

    reduce: Any = None
    aggregate: AggregateFunction | None = None
    type_info: TypeInformation | None = None
    ready: ReadyAggregates | None = None

    @property
    def is_single(self) -> bool:
        """Whether the function gets one value."""
        return self.reduce is not None or self.aggregate is not None


def window_operation(
    windowing: Windowing, contents: Contents, function: Any, environment: StreamExecutionEnvironment
) -> tuple[Window, str]:
    """The operation, and its name in plans. Without a function the one value is what leaves the window."""
    assigner = windowing.assigner
    operation = Window(
        _adapted(function or PassThroughWindowFunction(), contents.is_single),
        assigner=assigner,
        trigger=windowing.trigger or assigner.get_default_trigger(environment),
        has_own_trigger=windowing.trigger is not None,
        evictor=windowing.evictor,
        reduce=contents.reduce,
        aggregate=contents.aggregate,
        contents_type=contents.type_info,
        allowed_lateness_ms=windowing.allowed_lateness_ms,
        late_tag=windowing.late_tag,
        ready=contents.ready,
    )
    return operation, type(assigner).__name__


def _adapted(function: Any, is_single: bool) -> InternalWindowFunction[Any, Any, Any, Any]:
    if isinstance(function, InternalWindowFunction):
        return function
    for kind, single, iterable in _ADAPTERS:
        if isinstance(function, kind):
            adapter: InternalWindowFunction[Any, Any, Any, Any] = (single if is_single else iterable)(function)
            return adapter
    raise AssertionError(f"{function!r} was checked to be a window function")
