"""Two streams on their way into one window: the steps that a join and a coGroup share.

    a.join(b).where(selector).equal_to(selector).window(assigner) … .apply(function)

Each step is an object of its own that offers the next one; a step that is left out is named at the user's line. Both
keys have one declared type (or neither has one): else no key of one stream would equal a key of the other. Both streams
go into one operator as its two inputs, keyed; nothing else is done to them before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions.function import KeySelector
from millstream.datastream.functions.internal_window import InternalWindowFunction
from millstream.datastream.output_tag import OutputTag
from millstream.datastream.streams.argument_checks import refuse
from millstream.datastream.streams.connected_streams import second_input
from millstream.datastream.streams.stream import DataStream
from millstream.datastream.streams.window_operation import Contents, window_operation
from millstream.datastream.streams.windowing import DescribedWindows
from millstream.graph.nodes import CoGroupWindow, Edge, PairFields, Partitioning
from millstream.graph.site import here
from millstream.graph.tagged_rows import tagged_type

if TYPE_CHECKING:
    from typing import Self

    from millstream.datastream.streams.keyed_stream import KeyedStream
    from millstream.datastream.window import WindowAssigner

__all__ = ["EqualTo", "PairedStreams", "PairedWindows", "Where"]

# What comes after each step, and what to write there.
_STEPS = {
    "where": "where(selector), the key of the first stream",
    "equal_to": "equal_to(selector), the key of the second stream",
    "window": "window(assigner), such as TumblingEventTimeWindows.of(Duration.of_minutes(1))",
}
_ENDS = (
    "trigger",
    "evictor",
    "allowed_lateness",
    "side_output_left_late_data",
    "side_output_right_late_data",
    "apply",
    "project",
)

Selector = Callable[[Any], Any] | KeySelector | int | str


class _Step:
    """A call that has to be followed by `_next`."""

    _call: str
    _next: str

    def __getattr__(self, name: str) -> NoReturn:
        if name in _STEPS or name in _ENDS:
            raise refuse(f"{self._call}.{name}: a step is missing before it. Go on with {_STEPS[self._next]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class PairedWindows(DescribedWindows):
    """Two keyed streams by window: what `window` returns. Say how windows behave, then what is done with them."""

    _method: str

    def __init__(
        self, stream1: KeyedStream, stream2: KeyedStream, window_assigner: WindowAssigner[Any, Any], method: str
    ) -> None:
        super().__init__(window_assigner, f"{method}(...).window", stream1.get_execution_environment())
        self._method = method
        self._streams = (stream1, stream2)
        self._late_tags: tuple[OutputTag | None, OutputTag | None] = (None, None)

    def side_output_left_late_data(self, output_tag: OutputTag) -> Self:
        """Send records of the first stream that come too late to this side output of the result (beyond Flink)."""
        self._late_tags = (self._checked_tag("side_output_left_late_data", output_tag), self._late_tags[1])
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> Self:
        """The same for records of the second stream."""
        self._late_tags = (self._late_tags[0], self._checked_tag("side_output_right_late_data", output_tag))
        return self

    def _checked_tag(self, method: str, output_tag: Any) -> OutputTag:
        if not isinstance(output_tag, OutputTag):
            raise refuse(f"{self._method}(...).{method}: found {output_tag!r}, expected an OutputTag")
        return output_tag

    def _stream_types(self) -> tuple[TypeInformation | None, TypeInformation | None]:
        return self._streams[0]._stream_type(), self._streams[1]._stream_type()

    def _windows(
        self,
        function: InternalWindowFunction[Any, Any, Any, Any],
        name: str,
        output_type: TypeInformation | None,
        fields: PairFields | None = None,
    ) -> DataStream:
        """The results of windows that keep the records of both streams; `fields` if these are all `function` gives."""
        environment = self._streams[0].get_execution_environment()
        contents = Contents(type_info=tagged_type(*self._stream_types()))
        operation, assigner = window_operation(self._windowing, contents, function, environment)
        node = environment._builder.add(
            CoGroupWindow(**vars(operation), late_tags=self._late_tags, fields=fields),
            f"{name} {assigner}",
            inputs=self._streams[0]._edges + second_input(self._streams[1]._edges),
            output_type=output_type,
            site=here(),
        )
        return DataStream(environment=environment, edges=(Edge(node.id),))


Windows = TypeVar("Windows", bound=PairedWindows)


class EqualTo(_Step, Generic[Windows]):
    """Both keys are said: what `equal_to` returns."""

    _next = "window"

    def __init__(
        self, stream1: KeyedStream, stream2: KeyedStream, method: str, windows: Callable[..., Windows]
    ) -> None:
        self._call = f"{method}(...).where(...).equal_to(...)"
        self._streams, self._method, self._windows_of = (stream1, stream2), method, windows

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> Windows:
        """Records of one key meet in the windows of this assigner."""
        return self._windows_of(*self._streams, window_assigner, self._method)


class Where(_Step, Generic[Windows]):
    """The key of the first stream is said: what `where` returns."""

    _next = "equal_to"

    def __init__(self, stream1: KeyedStream, stream2: DataStream, method: str, windows: Callable[..., Windows]) -> None:
        self._call = f"{method}(...).where(...)"
        self._stream1, self._stream2, self._method, self._windows_of = stream1, stream2, method, windows

    def equal_to(self, key_selector: Selector, key_type: TypeInformation | None = None) -> EqualTo[Windows]:
        """The key of the second stream: a selector, or a field by name or position, as in `key_by`."""
        keyed = self._stream2._keyed(f"{self._call}.equal_to", Partitioning.HASH, key_selector, key_type)
        first, second = self._stream1._edges[0].key_type, keyed._edges[0].key_type
        if first != second:
            raise refuse(
                f"{self._call}.equal_to: the keys have different types, {first or 'undeclared'} by where() and "
                f"{second or 'undeclared'} by equal_to(), so that none would equal another. Give both the same "
                "key_type=, or key both by fields of one type"
            )
        return EqualTo(self._stream1, keyed, self._method, self._windows_of)


class PairedStreams(_Step, Generic[Windows]):
    """Two streams of one environment; they may be one and the same."""

    _next = "where"
    _method: str
    _windows_of: Callable[..., Windows]

    def __init__(self, stream1: DataStream, stream2: Any) -> None:
        self._call = f"{self._method}(...)"
        if not isinstance(stream2, DataStream):
            raise refuse(f"{self._method}: found {stream2!r} ({type(stream2).__name__}), expected a stream")
        if stream1.get_execution_environment() is not stream2.get_execution_environment():
            raise refuse(f"{self._method}: the streams belong to different environments. Make them both from one")
        self._stream1, self._stream2 = stream1, stream2

    def where(self, key_selector: Selector, key_type: TypeInformation | None = None) -> Where[Windows]:
        """The key of the first stream: a selector, or a field by name or position, as in `key_by`."""
        keyed = self._stream1._keyed(f"{self._call}.where", Partitioning.HASH, key_selector, key_type)
        return Where(keyed, self._stream2, self._method, type(self)._windows_of)
