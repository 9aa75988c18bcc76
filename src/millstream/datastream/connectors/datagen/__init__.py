"""Records made by a function of their number (beyond PyFlink; Flink's Java API has it under this name)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.connectors import program_sources
from millstream.datastream.connectors.base import Source
from millstream.datastream.streams.argument_checks import at_users_line, checked_output_type
from millstream.datastream.streams.function_calls import check_takes

__all__ = ["DataGeneratorSource"]


class DataGeneratorSource(Source):
    """The records `generator_function(0)`, `generator_function(1)`, …, `count` of them or without end.

    `rate_per_second` is the rate of the whole source, whatever its parallelism. The function must be pure: a record
    is made again from its number when an epoch is repeated.

    >>> source = DataGeneratorSource(lambda n: f"user-{n % 10}", count=1000, rate_per_second=100)
    """

    def __init__(
        self,
        generator_function: Callable[[int], Any],
        count: int | None = None,
        rate_per_second: float | None = None,
        type_info: TypeInformation | None = None,
    ) -> None:
        record_type = checked_output_type("DataGeneratorSource", type_info)
        if callable(generator_function):
            check_takes("DataGeneratorSource", generator_function, "index")
        with at_users_line():
            super().__init__(
                program_sources.DataGeneratorSource(generator_function, count, rate_per_second, record_type)
            )
