"""The join of two streams by window: every pair of records that have one key and are in one window.

`apply` gives the pairs to a function. `project` makes rows of chosen fields of both records, which lets the engine join
them in columns where the windows allow it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.common.types import Row
from millstream.datastream.functions.joining import FlatJoinFunction, JoinFunction, PairsOfWindow
from millstream.datastream.streams.argument_checks import checked_function, checked_output_type
from millstream.datastream.streams.interval_join import projection
from millstream.datastream.streams.paired_streams import PairedStreams, PairedWindows
from millstream.datastream.streams.stream import DataStream
from millstream.graph.nodes import PairFields

__all__ = ["JoinedStreams", "JoinedWindows"]

Fields = Sequence[int | str]


class ProjectedPair(JoinFunction):
    """A row of chosen fields of both records, by position."""

    def __init__(self, fields: PairFields) -> None:
        self._fields = fields

    def join(self, first: Any, second: Any) -> Row:
        left, right = self._fields
        return Row(*(first[at] for at in left), *(second[at] for at in right))


class JoinedWindows(PairedWindows):
    """Two streams by key and window: what `join(...).where(...).equal_to(...).window(...)` returns."""

    def apply(
        self,
        function: JoinFunction | FlatJoinFunction | Callable[[Any, Any], Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Hand every pair to a `JoinFunction`, a `FlatJoinFunction` or a callable, when the window fires.

        Pairs come in the order of their left records, those of one left record in the order of the right ones. Results
        carry the last millisecond of the window as their timestamp.
        """
        if not isinstance(function, FlatJoinFunction):
            function = checked_function("join(...).apply", function, JoinFunction)
        declared = checked_output_type("join(...).apply", output_type)
        return self._windows(PairsOfWindow(function), "Join", declared)

    def project(self, left_fields: Fields, right_fields: Fields, names: Sequence[str] | None = None) -> DataStream:
        """Chosen fields of both records as one row, in columns: no Python runs per record (beyond Flink).

        Fields are given by name or by position; both streams need a type with fields. `names` are those of the result,
        where the streams' own will not do. Windows that are not fixed ones of event time, or do more than fire at their
        end, give the same rows a pair at a time, and a notice says so.
        """
        types = self._stream_types()
        fields, output_type = projection("join(...).project", types, (left_fields, right_fields), names)
        return self._windows(PairsOfWindow(ProjectedPair(fields)), "Join", output_type, fields)


class JoinedStreams(PairedStreams[JoinedWindows]):
    """What `DataStream.join` returns: go on with `where`.

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
