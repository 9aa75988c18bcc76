"""Windowed streams: records of a keyed stream, or of a whole stream, grouped by window.

They come with windows. Nothing makes one yet, and making one says so; the names and signatures are PyFlink's, so
that programs can be written and checked against them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions.function import AggregateFunction, ReduceFunction
from millstream.errors import NotYetError

if TYPE_CHECKING:
    from typing import Self

    from millstream.datastream.functions.window import (
        AllWindowFunction,
        ProcessAllWindowFunction,
        ProcessWindowFunction,
        WindowFunction,
    )
    from millstream.datastream.keyed_stream import KeyedStream
    from millstream.datastream.output_tag import OutputTag
    from millstream.datastream.stream import DataStream
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
    from millstream.datastream.window import Trigger, WindowAssigner

__all__ = ["AllWindowedStream", "WindowedStream"]


class _Windowed:
    """The calls the two kinds share; each refuses in the name of its own class."""

    def _not_yet(self, method: str = "") -> NotYetError:
        return NotYetError.of(f"{type(self).__name__}.{method}" if method else type(self).__name__, "windows")

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        raise self._not_yet("get_execution_environment")

    def get_input_type(self) -> TypeInformation:
        raise self._not_yet("get_input_type")

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        raise self._not_yet("trigger")

    def allowed_lateness(self, time_ms: int) -> Self:
        raise self._not_yet("allowed_lateness")

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        raise self._not_yet("side_output_late_data")

    def reduce(
        self,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction,
        window_function: Any = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        raise self._not_yet("reduce")

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: Any = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        raise self._not_yet("aggregate")


class WindowedStream(_Windowed):
    """A keyed stream by window."""

    def __init__(self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        raise self._not_yet()

    def apply(
        self, window_function: WindowFunction[Any, Any, Any, Any], output_type: TypeInformation | None = None
    ) -> DataStream:
        raise self._not_yet("apply")

    def process(
        self,
        process_window_function: ProcessWindowFunction[Any, Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        raise self._not_yet("process")


class AllWindowedStream(_Windowed):
    """A whole stream by window."""

    def __init__(self, data_stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        raise self._not_yet()

    def apply(
        self, window_function: AllWindowFunction[Any, Any, Any], output_type: TypeInformation | None = None
    ) -> DataStream:
        raise self._not_yet("apply")

    def process(
        self,
        process_window_function: ProcessAllWindowFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        raise self._not_yet("process")
