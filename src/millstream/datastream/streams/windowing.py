"""The program's window settings, and the graph node created from them.

`Windowing` is plain data, set by `trigger`, `evictor`, `allowed_lateness` and `side_output_late_data`. None means the
default: the assigner's own trigger, no evictor, late records dropped. `WindowSettings` has the calls shared by windows
of one stream and of two; impossible requests are rejected at the user's line.

`window_operation` wraps the user's function in an adapter that passes a window's contents in the expected form. The
contents determine the window's state. The compiler decides how windows run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millstream.common.time import LENGTH_MAX_MS
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
from millstream.datastream.output_tag import OutputTag
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.datastream.streams.argument_checks import checked_count, refuse
from millstream.datastream.streams.missing_names import MissingNameHints
from millstream.datastream.window.assigners import MergingWindowAssigner, WindowAssigner
from millstream.datastream.window.counting import NeverTrigger
from millstream.datastream.window.evictors import Evictor
from millstream.datastream.window.triggers import Trigger
from millstream.graph.nodes import ReadyAggregates, Window
from millstream.graph.notices import warn_once
from millstream.graph.site import here, refuse_type
from millstream.graph.window_traits import fixed_windows, is_plain_trigger

if TYPE_CHECKING:
    from typing import Self

    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["Contents", "WindowSettings", "Windowing", "window_operation"]


@dataclass(frozen=True)
class Windowing:
    """The windows, when they fire, which records are evicted, and their allowed lateness."""

    assigner: WindowAssigner[Any, Any]
    trigger: Trigger[Any, Any] | None = None
    evictor: Evictor[Any, Any] | None = None
    allowed_lateness_ms: int = 0
    late_tag: OutputTag | None = None
    queryable: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether windows are fixed in time and fire at their end, without further settings."""
        if fixed_windows(self.assigner, 0) is None or self.evictor is not None or self.late_tag is not None:
            return False
        return self.trigger is None or is_plain_trigger(self.trigger, self.assigner.is_event_time())


class WindowSettings(MissingNameHints):
    """Windows of an assigner, configured by successive calls."""

    _hints = (("KeyedStream", "Add an operation on the windows first: reduce, aggregate, apply or process"),)

    def __init__(
        self, window_assigner: WindowAssigner[Any, Any], method: str, environment: StreamExecutionEnvironment
    ) -> None:
        if not isinstance(window_assigner, WindowAssigner):
            hint = ". Pass an instance, as from its of()" if isinstance(window_assigner, type) else ""
            raise refuse_type(
                f"{method}: found {window_assigner!r}, expected a window assigner such as "
                f"TumblingEventTimeWindows.of(Duration.of_seconds(10)){hint}"
            )
        self._windowing = Windowing(window_assigner)
        self._check_can_merge(method, window_assigner.get_default_trigger(environment))

    def _check_can_merge(self, method: str, trigger: Trigger[Any, Any]) -> None:
        assigner = self._windowing.assigner
        if isinstance(assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise refuse_type(
                f"{method}: windows of {type(assigner).__name__} merge, and {type(trigger).__name__} cannot: its "
                "can_merge() is False. Use another trigger, or implement can_merge() and on_merge()"
            )

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Sets when windows fire, instead of the assigner's own trigger."""
        if not isinstance(trigger, Trigger):
            raise refuse_type(f"trigger: found {trigger!r}, expected a Trigger such as CountTrigger.of(100)")
        self._check_can_merge("trigger", trigger)
        self._windowing = replace(self._windowing, trigger=trigger)
        return self

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Sets which records are removed when windows fire (beyond PyFlink). Every record of a window is then
        stored."""
        if not isinstance(evictor, Evictor):
            raise refuse_type(f"evictor: found {evictor!r}, expected an Evictor such as CountEvictor.of(100)")
        self._windowing = replace(self._windowing, evictor=evictor)
        return self

    def allowed_lateness(self, time_ms: int) -> Self:
        """Sets how long after its end a window accepts late records, in ms of event time; it fires again for them."""
        if checked_count("allowed_lateness", time_ms, least=0) > LENGTH_MAX_MS:
            raise refuse(f"allowed_lateness: found {time_ms}, expected at most {LENGTH_MAX_MS} ms")
        self._windowing = replace(self._windowing, allowed_lateness_ms=time_ms)
        return self


# For each kind of function: the adapter for a single value, and the adapter for all records.
_ADAPTERS: tuple[tuple[type[Any], type[Any], type[Any]], ...] = (
    (WindowFunction, InternalSingleValueWindowFunction, InternalIterableWindowFunction),
    (AllWindowFunction, InternalSingleValueAllWindowFunction, InternalIterableAllWindowFunction),
    (ProcessWindowFunction, InternalSingleValueProcessWindowFunction, InternalIterableProcessWindowFunction),
    (ProcessAllWindowFunction, InternalSingleValueProcessAllWindowFunction, InternalIterableProcessAllWindowFunction),
)


@dataclass(frozen=True)
class Contents:
    """The contents of a window: one value with `reduce` or `aggregate`, otherwise all records. `type_info` is the type
    of a record or of the accumulator; `ready` is the built-in equivalent of `aggregate` and its function."""

    reduce: Any = None
    aggregate: AggregateFunction | None = None
    type_info: TypeInformation | None = None
    ready: ReadyAggregates | None = None

    @property
    def is_single(self) -> bool:
        """Whether the function receives one value."""
        return self.reduce is not None or self.aggregate is not None


def window_operation(
    windowing: Windowing, contents: Contents, function: Any, environment: StreamExecutionEnvironment
) -> tuple[Window, str]:
    """The operation, and its name in plans. Without a function, the window emits its single value."""
    assigner = windowing.assigner
    trigger = windowing.trigger or assigner.get_default_trigger(environment)
    if isinstance(trigger, NeverTrigger) and windowing.queryable is None:
        warn_once(
            "windows that never fire",
            f"{type(assigner).__name__} never fire by themselves, so they emit nothing. Set a trigger, as by "
            "trigger(CountTrigger.of(100)), or use count_window()",
            here(),
        )
    operation = Window(
        _adapted(function or PassThroughWindowFunction(), contents.is_single),
        assigner=assigner,
        trigger=trigger,
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
