"""Functions over matched records of two streams, and adapters that pass them a window's contents.

`JoinFunction` and `FlatJoinFunction` receive every pair of a record of the first stream and one of the second;
`CoGroupFunction` receives all records of both sides at once, even if one side is empty, which permits outer joins. They
may have keyed state: get it in `open`. The adapters are for the window operator.

`ProcessJoinFunction` is the function of an interval join: it receives every pair of matching records, with their times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from millstream.datastream.functions.function import Function
from millstream.datastream.functions.internal_window import InternalWindowFunction
from millstream.datastream.functions.runtime_context import RuntimeContext
from millstream.graph.tagged_rows import split_by_side

__all__ = [
    "CoGroupFunction",
    "CoGroupsOfWindow",
    "FlatJoinFunction",
    "JoinFunction",
    "PairsOfWindow",
    "ProcessJoinFunction",
]


class JoinFunction(Function):
    """One result for every pair.

    >>> class Paid(JoinFunction):
    ...     def join(self, first, second):
    ...         return first[0], first[1] - second[1]
    >>> Paid().join(("order 1", 700), ("order 1", 500))
    ('order 1', 200)
    """

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any:
        """The result for a record of the first stream and one of the second."""


class FlatJoinFunction(Function):
    """Any number of results for every pair: return an iterable, or `yield` them.

    >>> class Larger(FlatJoinFunction):
    ...     def join(self, first, second):
    ...         if first > second:
    ...             yield first
    >>> list(Larger().join(3, 2)), list(Larger().join(1, 2))
    ([3], [])
    """

    @abstractmethod
    def join(self, first: Any, second: Any) -> Iterable[Any]:
        """The results for a record of the first stream and one of the second; an empty result drops the pair."""


class CoGroupFunction(Function):
    """All records of a key and window, of either side. One of the sides may be empty, never both.

    >>> class LeftOuter(CoGroupFunction):
    ...     def co_group(self, first, second):
    ...         for left in first:
    ...             for right in second or [None]:
    ...                 yield left, right
    >>> list(LeftOuter().co_group(["a"], []))
    [('a', None)]
    """

    @abstractmethod
    def co_group(self, first: list[Any], second: list[Any]) -> Iterable[Any]:
        """The results for the records of both sides, each in order of arrival."""


class _TwoSidedAdapter(InternalWindowFunction[Any, Any, Any, Any]):
    """An adapter around a user's function or callable; a function is opened and closed with it."""

    def __init__(self, wrapped_function: Any) -> None:
        self._wrapped_function = wrapped_function

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self._wrapped_function, Function):
            self._wrapped_function.open(runtime_context)

    def close(self) -> None:
        if isinstance(self._wrapped_function, Function):
            self._wrapped_function.close()

    def clear(self, window: Any, context: InternalWindowFunction.InternalWindowContext) -> None:
        """Does nothing: these functions have no window state."""


class CoGroupsOfWindow(_TwoSidedAdapter):
    """Passes a window's contents to a `CoGroupFunction`, or a callable of two lists."""

    def process(self, key: Any, window: Any, context: Any, input_data: Any) -> Iterable[Any]:
        function = self._wrapped_function
        co_group = function.co_group if isinstance(function, CoGroupFunction) else function
        return co_group(*split_by_side(input_data))


class PairsOfWindow(_TwoSidedAdapter):
    """Passes all pairs of a window to a `JoinFunction`, a `FlatJoinFunction`, or a callable of two records."""

    def process(self, key: Any, window: Any, context: Any, input_data: Any) -> Iterator[Any]:
        function = self._wrapped_function
        join = function.join if isinstance(function, (JoinFunction, FlatJoinFunction)) else function
        firsts, seconds = split_by_side(input_data)
        pairs = (join(first, second) for first in firsts for second in seconds)
        if not isinstance(function, FlatJoinFunction):
            return pairs
        return (result for results in pairs if results is not None for result in results)


class ProcessJoinFunction(Function):
    """Processes each pair of a left and a right record; emits any number of values to the stream or to side outputs.

    Results have the larger of the two timestamps. The function may have state of the pair's key: get it in `open`.
    Records must not be modified: the next pair may contain the same one.

    >>> class Delay(ProcessJoinFunction):
    ...     def process_element(self, left, right, ctx):
    ...         yield left, right, ctx.get_right_timestamp() - ctx.get_left_timestamp()
    """

    class Context(ABC):
        """The context of the current pair."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """The timestamp of the left record, in ms."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """The timestamp of the right record, in ms."""

        @abstractmethod
        def get_timestamp(self) -> int:
            """The larger of both timestamps, which is also the timestamp of results."""

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: Context) -> Iterable[Any] | None:
        """Yield values for the stream, or pairs `(OutputTag, value)` for a side output."""
