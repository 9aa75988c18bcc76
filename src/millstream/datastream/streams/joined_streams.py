"""Joins and coGroups: two streams matched by key and window.

    a.join(b).where(selector).equal_to(selector).window(assigner) … .apply(function)

A join emits every pair of records with the same key and window: `apply` passes the pairs to a function; `project` emits
rows of selected fields of both records, a join that the engine can vectorise for suitable windows. A coGroup is more
general: one call receives all records of a key and window from both sides, which permits outer joins.

Each step is an object with the method for the next step; a missing step is an error at the user's line. Both keys must
have the same declared type (or both be untyped), otherwise no keys would be equal. Both streams are keyed inputs of one
operator, without further operators in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.common.typeinfo import TypeInformation
from millstream.common.types import Row
from millstream.datastream.functions.function import KeySelector
from millstream.datastream.functions.internal_window import InternalWindowFunction
from millstream.datastream.functions.joining import (
    CoGroupFunction,
    CoGroupsOfWindow,
    FlatJoinFunction,
    JoinFunction,
    PairsOfWindow,
)
from millstream.datastream.output_tag import OutputTag
from millstream.datastream.streams.argument_checks import checked_function, checked_output_type, refuse
from millstream.datastream.streams.connected_streams import second_input
from millstream.datastream.streams.interval_join import projection
from millstream.datastream.streams.missing_names import Hints, MissingNameHints
from millstream.datastream.streams.stream import DataStream
from millstream.datastream.streams.windowing import Contents, WindowSettings, window_operation
from millstream.graph.nodes import CoGroupWindow, Edge, PairFields, Partitioning
from millstream.graph.site import here
from millstream.graph.tagged_rows import tagged_type

if TYPE_CHECKING:
    from typing import Self

    from millstream.datastream.streams.keyed_stream import KeyedStream
    from millstream.datastream.window import WindowAssigner

__all__ = [
    "CoGroupedStreams",
    "CoGroupedWindows",
    "EqualTo",
    "JoinedStreams",
    "JoinedWindows",
    "PairedStreams",
    "PairedWindows",
    "Where",
]

_STEPS = {
    "where": "where(selector), the key of the first stream",
    "equal_to": "equal_to(selector), the key of the second stream",
    "window": "window(assigner), such as TumblingEventTimeWindows.of(Duration.of_minutes(1))",
}
_LATER = frozenset({*_STEPS, "trigger", "evictor", "allowed_lateness", "apply", "project"}) | frozenset(
    f"side_output_{side}_late_data" for side in ("left", "right")
)

Selector = Callable[[Any], Any] | KeySelector | int | str


class _Step(MissingNameHints):
    """The result of a call that requires a subsequent call."""

    _call: str


def _next(step: str) -> Hints:
    """The hints of an object that requires this next step."""
    hint = f"A step is missing before it: {_STEPS[step]}"
    return (_LATER, hint), ("KeyedStream", hint)


class PairedWindows(WindowSettings):
    """The result of `window` for two keyed streams: configure the windows, then add the operation."""

    _method: str

    def __init__(
        self, stream1: KeyedStream, stream2: KeyedStream, window_assigner: WindowAssigner[Any, Any], method: str
    ) -> None:
        super().__init__(window_assigner, f"{method}(...).window", stream1.get_execution_environment())
        self._method = method
        self._streams = (stream1, stream2)
        self._late_tags: tuple[OutputTag | None, OutputTag | None] = (None, None)

    def side_output_left_late_data(self, output_tag: OutputTag) -> Self:
        """Sends late records of the first stream to this side output of the result (beyond Flink)."""
        self._late_tags = (self._checked_tag("side_output_left_late_data", output_tag), self._late_tags[1])
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> Self:
        """Sends late records of the second stream to this side output of the result (beyond Flink)."""
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
        """Adds windows over the records of both streams. `fields`: set if `function` selects exactly these."""
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
    """The result of `equal_to`: both keys are set."""

    _hints = _next("window")

    def __init__(
        self, stream1: KeyedStream, stream2: KeyedStream, method: str, windows: Callable[..., Windows]
    ) -> None:
        self._call = f"{method}(...).where(...).equal_to(...)"
        self._streams, self._method, self._windows_of = (stream1, stream2), method, windows

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> Windows:
        """Matches records with the same key within the windows of this assigner."""
        return self._windows_of(*self._streams, window_assigner, self._method)


class Where(_Step, Generic[Windows]):
    """The result of `where`: the key of the first stream is set."""

    _hints = _next("equal_to")

    def __init__(self, stream1: KeyedStream, stream2: DataStream, method: str, windows: Callable[..., Windows]) -> None:
        self._call = f"{method}(...).where(...)"
        self._stream1, self._stream2, self._method, self._windows_of = stream1, stream2, method, windows

    def equal_to(self, key_selector: Selector, key_type: TypeInformation | None = None) -> EqualTo[Windows]:
        """Sets the key of the second stream: a selector, or a field by name or position, as in `key_by`."""
        keyed = self._stream2._keyed(f"{self._call}.equal_to", Partitioning.HASH, key_selector, key_type)
        first, second = self._stream1._edges[0].key_type, keyed._edges[0].key_type
        if first != second:
            raise refuse(
                f"{self._call}.equal_to: the keys have different types, {first or 'undeclared'} by where() and "
                f"{second or 'undeclared'} by equal_to(), so no two keys would be equal. Use the same key_type= for "
                "both, or key both by fields of one type"
            )
        return EqualTo(self._stream1, keyed, self._method, self._windows_of)


class PairedStreams(_Step, Generic[Windows]):
    """Two streams of one environment; both may be the same stream."""

    _hints = _next("where")
    _method: str
    _windows_of: Callable[..., Windows]

    def __init__(self, stream1: DataStream, stream2: Any) -> None:
        self._call = f"{self._method}(...)"
        if not isinstance(stream2, DataStream):
            raise refuse(f"{self._method}: found {stream2!r} ({type(stream2).__name__}), expected a stream")
        if stream1.get_execution_environment() is not stream2.get_execution_environment():
            raise refuse(
                f"{self._method}: the streams belong to different environments. Create both in the same environment"
            )
        self._stream1, self._stream2 = stream1, stream2

    def where(self, key_selector: Selector, key_type: TypeInformation | None = None) -> Where[Windows]:
        """Sets the key of the first stream: a selector, or a field by name or position, as in `key_by`."""
        keyed = self._stream1._keyed(f"{self._call}.where", Partitioning.HASH, key_selector, key_type)
        return Where(keyed, self._stream2, self._method, type(self)._windows_of)


Fields = Sequence[int | str]


class ProjectedPair(JoinFunction):
    """A row of selected fields of both records, by position."""

    def __init__(self, fields: PairFields) -> None:
        self._fields = fields

    def join(self, first: Any, second: Any) -> Row:
        left, right = self._fields
        return Row(*(first[at] for at in left), *(second[at] for at in right))


class JoinedWindows(PairedWindows):
    """The result of `join(...).where(...).equal_to(...).window(...)`: two streams by key and window."""

    def apply(
        self,
        function: JoinFunction | FlatJoinFunction | Callable[[Any, Any], Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Passes every pair to a `JoinFunction`, a `FlatJoinFunction` or a callable, when the window fires.

        Pairs are in the order of their left records, then of their right records. Results have the last millisecond of
        the window as their timestamp.
        """
        if not isinstance(function, FlatJoinFunction):
            function = checked_function("join(...).apply", function, JoinFunction)
        declared = checked_output_type("join(...).apply", output_type)
        return self._windows(PairsOfWindow(function), "Join", declared)

    def project(self, left_fields: Fields, right_fields: Fields, names: Sequence[str] | None = None) -> DataStream:
        """Emits selected fields of both records as one row, vectorised, without Python code per record (beyond Flink).

        Fields are names or positions; both streams need a type with fields. `names` are the names in the result, by
        default those of the streams. Windows that are not fixed event-time windows, or do more than fire at their end,
        produce the same rows pair by pair, which a notice reports.
        """
        types = self._stream_types()
        fields, output_type = projection("join(...).project", types, (left_fields, right_fields), names)
        return self._windows(PairsOfWindow(ProjectedPair(fields)), "Join", output_type, fields)


class JoinedStreams(PairedStreams[JoinedWindows]):
    """The result of `DataStream.join`: continue with `where`.

    >>> from millstream.common import Duration, Types
    >>> from millstream.datastream import StreamExecutionEnvironment
    >>> from millstream.datastream.window import TumblingEventTimeWindows
    >>> env = StreamExecutionEnvironment.get_execution_environment()
    >>> orders = env.from_collection([("a", 7)], Types.ROW_NAMED(["id", "cents"], [Types.STRING(), Types.LONG()]))
    >>> payments = env.from_collection([("a", 5)], Types.ROW_NAMED(["id", "paid"], [Types.STRING(), Types.LONG()]))
    >>> minutes = TumblingEventTimeWindows.of(Duration.of_minutes(1))
    >>> windows = orders.join(payments).where("id").equal_to("id").window(minutes)
    >>> print(windows.apply(lambda order, payment: order.cents - payment.paid, Types.LONG()).get_type())
    Long
    >>> print(windows.project(["id", "cents"], ["paid"]).get_type())
    RowTypeInfo(id: String, cents: Long, paid: Long)
    """

    _method = "join"
    _windows_of = JoinedWindows


# The methods that are valid after each step, and their hints.
class CoGroupedWindows(PairedWindows):
    """The result of `co_group(...).where(...).equal_to(...).window(...)`: two streams by key and window."""

    def apply(
        self,
        function: CoGroupFunction | Callable[[list[Any], list[Any]], Iterable[Any]],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Passes the records of both sides to a `CoGroupFunction`, or a callable of two lists, when the window fires.

        A window fires if it has a record of at least one side; the other list may be empty. Results have the last
        millisecond of the window as their timestamp.
        """
        co_group = checked_function("co_group(...).apply", function, CoGroupFunction)
        declared = checked_output_type("co_group(...).apply", output_type)
        return self._windows(CoGroupsOfWindow(co_group), "Co-Group", declared)


class CoGroupedStreams(PairedStreams[CoGroupedWindows]):
    """The result of `DataStream.co_group`: continue with `where`.

    >>> from millstream.common import Duration, Types
    >>> from millstream.datastream import StreamExecutionEnvironment
    >>> from millstream.datastream.window import TumblingEventTimeWindows
    >>> env = StreamExecutionEnvironment.get_execution_environment()
    >>> questions, answers = (env.from_collection([("a", 1)]) for _ in range(2))
    >>> minutes = TumblingEventTimeWindows.of(Duration.of_minutes(1))
    >>> windows = questions.co_group(answers).where(0).equal_to(0).window(minutes)
    >>> print(windows.apply(lambda first, second: [(len(first), len(second))]).get_name())
    Co-Group TumblingEventTimeWindows
    """

    _method = "co_group"
    _windows_of = CoGroupedWindows
