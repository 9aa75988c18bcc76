"""A bounded source of numbers, read in parallel."""

from __future__ import annotations

from millstream.connectors import program_sources
from millstream.datastream.connectors.base import Source
from millstream.datastream.streams.argument_checks import at_users_line
from millstream.pyflink_names import add_pyflink_names

__all__ = ["NumberSequenceSource"]


class NumberSequenceSource(Source):
    """The numbers from `start` to `end`, both included, as LONG. Several subtasks emit them out of order.

    >>> source = NumberSequenceSource(1, 10)
    """

    def __init__(self, start: int, end: int) -> None:
        with at_users_line():
            super().__init__(program_sources.NumberSequenceSource(start, end))


add_pyflink_names(globals())
