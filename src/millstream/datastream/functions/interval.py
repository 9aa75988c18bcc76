"""The function of an interval join: it sees every pair of records that meet, with their times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from millstream.datastream.functions.function import Function

__all__ = ["ProcessJoinFunction"]


class ProcessJoinFunction(Function):
    """Each pair of a left and a right record; any number of values out, to the stream or to a side output.

    Results have the larger of the two timestamps. The function may hold state of the pair's key: ask for it in `open`.
    Records are not to be changed: the next pair may hold the same one.

    >>> class Delay(ProcessJoinFunction):
    ...     def process_element(self, left, right, ctx):
    ...         yield left, right, ctx.get_right_timestamp() - ctx.get_left_timestamp()
    """

    class Context(ABC):
        """What is known about the pair at hand."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """The timestamp of the left record, in ms."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """The timestamp of the right record, in ms."""

        @abstractmethod
        def get_timestamp(self) -> int:
            """The larger of both, which results have too."""

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: Context) -> Iterable[Any] | None:
        """Yield values for the stream, or pairs `(OutputTag, value)` for a side output."""
