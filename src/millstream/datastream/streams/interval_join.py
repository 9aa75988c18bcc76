"""Interval joins: pairs of records of two keyed streams with the same key and a bounded time difference.

`interval_join` names the other stream, `between` the bounds, and `process`, `apply` or `project` add the operator.
Impossible requests are rejected at the user's line: streams without a key, keys of different types, an empty interval.
Names follow Flink's Java API; `apply` and `project` are additions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from millstream.common.time import Duration, DurationLike, Time, duration_ms
from millstream.common.typeinfo import RowTypeInfo, TypeInformation, Types
from millstream.datastream.functions.function import Function
from millstream.datastream.functions.joining import ProcessJoinFunction
from millstream.datastream.output_tag import OutputTag
from millstream.datastream.streams.argument_checks import checked_function, checked_output_type, refuse
from millstream.datastream.streams.connected_streams import connected_environment, second_input
from millstream.datastream.streams.key_selection import field_position
from millstream.datastream.streams.missing_names import MissingNameHints
from millstream.datastream.streams.stream import DataStream
from millstream.graph.nodes import Edge, PairFields
from millstream.graph.nodes import IntervalJoin as IntervalJoinNode
from millstream.graph.site import here
from millstream.records.batch import is_typed
from millstream.records.shapes import plain_type

if TYPE_CHECKING:
    from millstream.datastream.streams.keyed_stream import KeyedStream

__all__ = ["IntervalJoin", "IntervalJoined", "projection"]

_Fields = Sequence[int | str]


class IntervalJoin(MissingNameHints):
    """The result of `KeyedStream.interval_join`: set the bounds with `between`."""

    _hints = (("KeyedStream", "Set the bounds first: between(lower, upper)"),)

    def __init__(self, left: KeyedStream, right: KeyedStream) -> None:
        from millstream.datastream.streams.keyed_stream import KeyedStream

        if not isinstance(right, KeyedStream):
            raise refuse(
                f"interval_join: found {_named(right)}, expected a keyed stream. Call key_by(...) on it, with a key of "
                "the type of this stream's key"
            )
        self._environment = connected_environment(left, right)
        left_key, right_key = left._edges[0].key_type, right._edges[0].key_type
        if left_key != right_key:
            raise refuse(
                f"interval_join: the keys of the two streams have different types, {left_key or 'undeclared'} and "
                f"{right_key or 'undeclared'}, so no two keys would be equal. Use the same key_type= for both"
            )
        self._left, self._right = left, right

    def in_event_time(self) -> IntervalJoin:
        """Joins by the records' timestamps, which is the default."""
        return self

    def in_processing_time(self) -> NoReturn:
        """Always rejected, as in Flink: the result would depend on when the job runs."""
        raise refuse(
            "in_processing_time: interval joins use event time only. Omit it, and assign timestamps to both streams "
            "with assign_timestamps_and_watermarks()"
        )

    def between(self, lower_bound: DurationLike | int, upper_bound: DurationLike | int) -> IntervalJoined:
        """Sets the bounds: a right record matches a left record if it is between `lower_bound` and `upper_bound` later,
        inclusive; negative bounds are earlier. Numbers are ms.

        >>> from millstream.common import Types
        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> orders = env.from_collection([("a", 7)], Types.TUPLE([Types.STRING(), Types.LONG()])).key_by(0)
        >>> orders.interval_join(orders).between(Duration.of_seconds(-1), 500)
        IntervalJoined(-1000 ms to 500 ms)
        """
        lower_ms, upper_ms = _bound_ms("lower", lower_bound), _bound_ms("upper", upper_bound)
        if lower_ms > upper_ms:
            raise refuse(
                f"between: the interval is negative, from {lower_ms} ms to {upper_ms} ms. Pass the lower bound first: "
                f"between({upper_ms}, {lower_ms})"
            )
        return IntervalJoined(self._left, self._right, lower_ms, upper_ms)


class IntervalJoined(MissingNameHints):
    """Two streams and an interval: define the results with `process`, `apply` or `project`."""

    _hints = (("KeyedStream", "Define the results first: process, apply or project"),)

    def __init__(self, left: KeyedStream, right: KeyedStream, lower_ms: int, upper_ms: int) -> None:
        self._left, self._right = left, right
        self._lower_ms, self._upper_ms = lower_ms, upper_ms
        self._exclusive = [False, False]
        self._late_tags: list[OutputTag | None] = [None, None]

    def __repr__(self) -> str:
        return f"IntervalJoined({self._lower_ms} ms to {self._upper_ms} ms)"

    # --- settings -------------------------------------------------------------------------------------------------

    def lower_bound_exclusive(self) -> IntervalJoined:
        """Excludes right records that are exactly `lower_bound` later."""
        self._exclusive[0] = True
        return self

    def upper_bound_exclusive(self) -> IntervalJoined:
        """Excludes right records that are exactly `upper_bound` later."""
        self._exclusive[1] = True
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> IntervalJoined:
        """Sends late left records to this side output of the result, instead of dropping them."""
        self._late_tags[0] = _checked_tag("side_output_left_late_data", output_tag)
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> IntervalJoined:
        """Sends late right records to this side output of the result, instead of dropping them."""
        self._late_tags[1] = _checked_tag("side_output_right_late_data", output_tag)
        return self

    # --- operations -----------------------------------------------------------------------------------------------

    def process(
        self, process_join_function: ProcessJoinFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """Calls a `ProcessJoinFunction` for every pair."""
        function = checked_function(
            "interval_join(...).process", process_join_function, ProcessJoinFunction, callables=False
        )
        return self._add(IntervalJoinNode(function), checked_output_type("process", output_type))

    def apply(self, func: Callable[[Any, Any], Any], output_type: TypeInformation | None = None) -> DataStream:
        """Emits `func(left, right)` for every pair (beyond Flink)."""
        if isinstance(func, (Function, type)) or not callable(func):
            raise refuse(
                f"interval_join(...).apply: found {_named(func)}, expected a callable of two records. A "
                "ProcessJoinFunction is passed to process()"
            )
        return self._add(IntervalJoinNode(func, is_plain=True), checked_output_type("apply", output_type))

    def project(self, left_fields: _Fields, right_fields: _Fields, names: Sequence[str] | None = None) -> DataStream:
        """Emits selected fields of both records as one row, vectorised, without Python code per record (beyond Flink).

        Fields are names or positions; both streams need a type with fields. `names` are the names in the result, by
        default those of the streams.
        """
        types = self._left._stream_type(), self._right._stream_type()
        fields, output_type = projection("interval_join(...).project", types, (left_fields, right_fields), names)
        return self._add(IntervalJoinNode(None, fields=fields), output_type)

    def _add(self, operation: IntervalJoinNode, output_type: TypeInformation | None) -> DataStream:
        lower_ms, upper_ms = self._lower_ms + self._exclusive[0], self._upper_ms - self._exclusive[1]
        if lower_ms > upper_ms:
            raise refuse(
                f"interval_join: the interval from {self._lower_ms} ms to {self._upper_ms} ms is empty when its "
                "bounds are excluded."
                " Widen it, or omit lower_bound_exclusive() and upper_bound_exclusive()"
            )
        node = replace(
            operation,
            types=(self._left._stream_type(), self._right._stream_type()),
            lower_ms=lower_ms,
            upper_ms=upper_ms,
            late_tags=(self._late_tags[0], self._late_tags[1]),
        )
        environment, edges = self._left._environment, self._left._edges + second_input(self._right._edges)
        added = environment._builder.add(node, "Interval Join", inputs=edges, output_type=output_type, site=here())
        return DataStream(environment=environment, edges=(Edge(added.id),))


def projection(
    method: str,
    types: tuple[TypeInformation | None, TypeInformation | None],
    selections: tuple[_Fields, _Fields],
    names: Sequence[str] | None,
) -> tuple[PairFields, TypeInformation]:
    """The positions of selected fields of two streams, and the row type of the result."""
    places: list[tuple[int, ...]] = []
    fields: list[tuple[str | None, TypeInformation]] = []
    for which, type_info, selection in zip(("left", "right"), types, selections, strict=True):
        if type_info is None or not is_typed(type_info):
            raise refuse(f"{method}: the {which} stream is untyped and has no columns. Declare output_type= before it")
        if isinstance(selection, str) or not isinstance(selection, Sequence):
            raise refuse(f"{method}: found {selection!r} as fields of the {which} stream, expected a list of them")
        chosen_fields = [field_position(method, field, type_info) for field in selection]
        places.append(tuple(position for position, _ in chosen_fields))
        plain = plain_type(type_info)
        side_names = plain.get_field_names() if isinstance(plain, RowTypeInfo) and plain.has_own_names else None
        fields += [(side_names[position] if side_names else None, field_type) for position, field_type in chosen_fields]
    if not fields:
        raise refuse(f"{method}: no field was named. Name at least one of either stream")
    return (places[0], places[1]), _row_type(method, fields, names)


def _row_type(
    method: str, fields: list[tuple[str | None, TypeInformation]], names: Sequence[str] | None
) -> TypeInformation:
    types = [field_type for _, field_type in fields]
    if names is None:
        if all(name is None for name, _ in fields):
            return Types.ROW(types)
        names = [f"f{at}" if name is None else name for at, (name, _) in enumerate(fields)]
        advice = "Use names=, one for each field of the result"
    else:
        advice = "Use a different name for each field"
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
        raise refuse(f"{method}: found names={names!r}, expected a list of strings")
    if len(names) != len(types):
        raise refuse(f"{method}: found {len(names)} names for {len(types)} fields. Pass one for each, left ones first")
    repeated = sorted({name for name in names if list(names).count(name) > 1})
    if repeated:
        raise refuse(f"{method}: the result would have several fields named {', '.join(repeated)}. {advice}")
    return Types.ROW_NAMED(list(names), types)


_BOUND_MAX_MS = 2**62  # twice this value still fits in 64 bits


def _bound_ms(which: str, bound: Any) -> int:
    if isinstance(bound, int) and not isinstance(bound, bool):
        if not -_BOUND_MAX_MS <= bound <= _BOUND_MAX_MS:
            raise refuse(
                f"between: found {bound} ms as the {which} bound, expected at most {_BOUND_MAX_MS} in either direction"
            )
        return bound
    if isinstance(bound, (Duration, Time, timedelta)):
        return duration_ms(bound)
    raise refuse(
        f"between: found {bound!r} ({type(bound).__name__}) as the {which} bound, expected a Duration, a Time, "
        "a timedelta or a number of ms"
    )


def _checked_tag(method: str, output_tag: Any) -> OutputTag:
    if isinstance(output_tag, OutputTag):
        return output_tag
    raise refuse(f"{method}: found {output_tag!r}, expected an OutputTag")


def _named(value: Any) -> str:
    """Formats a value with its class, for errors."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"{value!r} ({type(value).__name__})"
