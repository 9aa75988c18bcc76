"""The coGroup of two streams: all records of a key and window, of both sides, in one call.

It is the general one of the two: a join is a coGroup that looks at pairs only, and outer joins are coGroups that also
look at a side that is alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions.joining import CoGroupFunction, CoGroupsOfWindow
from millstream.datastream.streams.argument_checks import checked_function, checked_output_type
from millstream.datastream.streams.paired_streams import PairedStreams, PairedWindows
from millstream.datastream.streams.stream import DataStream

__all__ = ["CoGroupedStreams", "CoGroupedWindows"]


class CoGroupedWindows(PairedWindows):
    """Two streams by key and window: what `co_group(...).where(...).equal_to(...).window(...)` returns."""

    def apply(
        self,
        function: CoGroupFunction | Callable[[list[Any], list[Any]], Iterable[Any]],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Hand the records of both sides to a `CoGroupFunction`, or a callable of two lists, when the window fires.

        A window fires when it holds a record of either side; the other list may be empty. Results carry the last
        millisecond of the window as their timestamp.
        """
        co_group = checked_function("co_group(...).apply", function, CoGroupFunction)
        declared = checked_output_type("co_group(...).apply", output_type)
        return self._windows(CoGroupsOfWindow(co_group), "Co-Group", declared)


class CoGroupedStreams(PairedStreams[CoGroupedWindows]):
    """What `DataStream.co_group` returns: go on with `where`.

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
