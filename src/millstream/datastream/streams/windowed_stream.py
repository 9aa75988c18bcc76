"""Windowed streams: records of a keyed stream, or of a whole stream, grouped by window.

`window` and `window_all` create one; `trigger`, `evictor`, `allowed_lateness` and `side_output_late_data` configure its
windows; `reduce`, `aggregate`, `apply` and `process` add the operator. Impossible requests are rejected at the user's
line. A window over a whole stream is processed as one key, in one subtask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.common.typeinfo import TypeInformation, Types
from millstream.datastream.aggregates import Aggregates
from millstream.datastream.functions.function import AggregateFunction, NullByteKeySelector, ReduceFunction
from millstream.datastream.functions.window import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from millstream.datastream.output_tag import OutputTag
from millstream.datastream.states.queryable import checked_queryable_name
from millstream.datastream.streams.argument_checks import checked_count, checked_function, checked_output_type, refuse
from millstream.datastream.streams.ready_aggregates import bound_aggregates
from millstream.datastream.streams.windowing import Contents, WindowSettings, window_operation
from millstream.datastream.window.assigners import WindowAssigner
from millstream.datastream.window.counting import CountTrigger, PurgingTrigger
from millstream.datastream.window.evictors import CountEvictor

if TYPE_CHECKING:
    from typing import Self

    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
    from millstream.datastream.streams.keyed_stream import KeyedStream
    from millstream.datastream.streams.stream import DataStream

__all__ = ["AllWindowedStream", "WindowedStream", "counted"]


class _Windowed(WindowSettings):
    """Code shared by both kinds: the settings, and adding the operator."""

    _window_function: type[Any]
    _process_function: type[Any]

    def __init__(self, stream: KeyedStream, window_assigner: WindowAssigner[Any, Any], method: str) -> None:
        super().__init__(window_assigner, method, stream.get_execution_environment())
        self._stream = stream

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment of the stream."""
        return self._stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """The type of the input records."""
        return self._stream.get_type()

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Sends late records to this side output of the result, instead of dropping them."""
        if not isinstance(output_tag, OutputTag):
            raise refuse(f"side_output_late_data: found {output_tag!r}, expected an OutputTag")
        self._windowing = replace(self._windowing, late_tag=output_tag)
        return self

    def queryable(self, name: str) -> Self:
        """Makes open windows queryable under this name, with their current results (beyond PyFlink;
        docs/operate/queries.md). The name must be unique among the job's states and windows."""
        checked = checked_queryable_name("queryable", name, self._windowing.queryable)
        self._windowing = replace(self._windowing, queryable=checked)
        return self

    # --- operations -----------------------------------------------------------------------------------------------

    def reduce(
        self,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction,
        window_function: Any = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Combines the records of a window to one value on arrival; `window_function` receives this value when it
        fires."""
        function = checked_function("reduce", reduce_function, ReduceFunction)
        contents = Contents(reduce=function, type_info=self._stream._stream_type())
        if window_function is None:
            return self._add(contents, None, self._stream._stream_type())
        return self._add(contents, self._checked("reduce", window_function), checked_output_type("reduce", output_type))

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: Any = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Folds the records of a window into an accumulator on arrival; `window_function` receives the result.

        Built-in aggregates (`millstream.datastream.aggregates`) run vectorised where possible.
        """
        function = checked_function("aggregate", aggregate_function, AggregateFunction, callables=False)
        declared = checked_output_type("aggregate", output_type)
        accumulator = checked_output_type("aggregate", accumulator_type)
        on_top = None if window_function is None else self._checked("aggregate", window_function)
        if isinstance(function, Aggregates):
            return self._ready(function, on_top, accumulator, declared)
        return self._add(Contents(aggregate=function, type_info=accumulator), on_top, declared)

    def _ready(
        self, aggregates: Aggregates, on_top: Any, accumulator: TypeInformation | None, declared: TypeInformation | None
    ) -> DataStream:
        bound = bound_aggregates(self._stream, aggregates)
        contents = Contents(aggregate=bound.aggregates, type_info=accumulator)
        if on_top is not None:
            return self._add(contents, on_top, declared)
        row_type = bound.ready.row_type
        # Plain windows emit rows of the aggregates' own type, whatever was declared.
        output_type = row_type or declared if self._windowing.is_plain else declared or row_type
        return self._add(replace(contents, ready=bound.ready), bound.front, output_type)

    def apply(self, window_function: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Passes all records of a window to a function when it fires."""
        function = checked_function("apply", window_function, self._window_function, callables=False)
        return self._of_records(function, checked_output_type("apply", output_type))

    def process(self, process_window_function: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Passes all records of a window to a function when it fires, with the window's times and state."""
        function = checked_function("process", process_window_function, self._process_function, callables=False)
        return self._of_records(function, checked_output_type("process", output_type))

    def _of_records(self, function: Any, output_type: TypeInformation | None) -> DataStream:
        return self._add(Contents(type_info=self._stream._stream_type()), function, output_type)

    def _checked(self, method: str, function: Any) -> Any:
        """Checks a function on top of an aggregation, which may have either kind."""
        if isinstance(function, self._process_function):
            return function
        return checked_function(f"{method}, window_function", function, self._window_function, callables=False)

    def _add(self, contents: Contents, function: Any, output_type: TypeInformation | None) -> DataStream:
        if self._windowing.evictor is not None and contents.type_info is not None:
            # An evictor requires stored records, so the accumulator's type does not apply.
            contents = replace(contents, type_info=self._stream._stream_type())
        operation, name = window_operation(self._windowing, contents, function, self.get_execution_environment())
        return self._placed(self._stream._then(operation, name, output_type))

    def _placed(self, result: DataStream) -> DataStream:
        """Applies placement and the queryable name to the operator."""
        if self._windowing.queryable is not None:
            result._amend("queryable", queryable=self._windowing.queryable)
        return result


Counted = TypeVar("Counted", bound=_Windowed)


def counted(windows: Counted, method: str, size: int, slide: int) -> Counted:
    """One endless window per key, fired by count: every `size` records with all records, which are then purged; or
    every `slide` records with the last `size`."""
    checked_count(f"{method}, size", size)
    checked_count(f"{method}, slide", slide, least=0)
    if slide == 0:
        return windows.trigger(PurgingTrigger.of(CountTrigger.of(size)))
    return windows.evictor(CountEvictor.of(size)).trigger(CountTrigger.of(slide))


class WindowedStream(_Windowed):
    """The result of `KeyedStream.window`: a keyed stream grouped by window."""

    _window_function = WindowFunction
    _process_function = ProcessWindowFunction

    def __init__(self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(keyed_stream, window_assigner, "window")

    def apply(
        self, window_function: WindowFunction[Any, Any, Any, Any], output_type: TypeInformation | None = None
    ) -> DataStream:
        """Passes all records of a key's window to a `WindowFunction` when it fires."""
        return super().apply(window_function, output_type)

    def process(
        self,
        process_window_function: ProcessWindowFunction[Any, Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Passes all records of a key's window to a `ProcessWindowFunction` when it fires."""
        return super().process(process_window_function, output_type)


class AllWindowedStream(_Windowed):
    """The result of `DataStream.window_all`: a whole stream grouped by window, processed in one subtask."""

    _window_function = AllWindowFunction
    _process_function = ProcessAllWindowFunction

    def __init__(self, data_stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(data_stream.key_by(NullByteKeySelector(), Types.BYTE()), window_assigner, "window_all")

    def _placed(self, result: DataStream) -> DataStream:
        return super()._placed(result).force_non_parallel()

    def apply(
        self, window_function: AllWindowFunction[Any, Any, Any], output_type: TypeInformation | None = None
    ) -> DataStream:
        """Passes all records of a window to an `AllWindowFunction` when it fires."""
        return super().apply(window_function, output_type)

    def process(
        self,
        process_window_function: ProcessAllWindowFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Passes all records of a window to a `ProcessAllWindowFunction` when it fires."""
        return super().process(process_window_function, output_type)
