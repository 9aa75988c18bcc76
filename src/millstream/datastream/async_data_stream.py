"""Asynchronous calls per record: many concurrent requests to a slow service, without a thread per request.

Arguments are checked here, at the user's line; `runtime/operators/async_calls.py` makes the calls.
docs/datastream/async.md describes the guarantees about order, failures and time-outs.
"""

from __future__ import annotations

import inspect
from typing import Any

from millstream.common.time import DurationLike, Time, duration_ms
from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions.asynchronous import AsyncFunction, AsyncRetryStrategy
from millstream.datastream.streams.argument_checks import (
    at_users_line,
    checked_count,
    checked_function,
    checked_output_type,
    refuse,
)
from millstream.datastream.streams.stream import DataStream
from millstream.graph.nodes import AsyncCalls
from millstream.pyflink_names import add_pyflink_names

__all__ = ["AsyncDataStream"]


class AsyncDataStream:
    """Entry points for asynchronous operators. `timeout` applies to one record with all its retries; `capacity` is the
    maximum number of concurrent calls of a subtask.

    >>> from millstream.common import Types
    >>> from millstream.datastream import StreamExecutionEnvironment
    >>> class Price(AsyncFunction):
    ...     async def async_invoke(self, value: str) -> list[int]:
    ...         return [len(value)]  # the answer of a service
    >>> names = StreamExecutionEnvironment().from_collection(["tea", "bread"], Types.STRING())
    >>> prices = AsyncDataStream.ordered_wait(names, Price(), Time.seconds(5), 100, Types.INT())
    >>> print(prices.get_name(), prices.get_type())
    Async Wait Integer
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Emits results in order of completion, but never across a watermark."""
        retry = AsyncRetryStrategy.no_restart()
        return _calls("unordered_wait", False, data_stream, async_function, timeout, retry, capacity, output_type)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """The same, with retries by the strategy."""
        name, retry = "unordered_wait_with_retry", async_retry_strategy
        return _calls(name, False, data_stream, async_function, timeout, retry, capacity, output_type)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Emits results in the order of their records."""
        retry = AsyncRetryStrategy.no_restart()
        return _calls("ordered_wait", True, data_stream, async_function, timeout, retry, capacity, output_type)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """The same, with retries by the strategy."""
        name, retry = "ordered_wait_with_retry", async_retry_strategy
        return _calls(name, True, data_stream, async_function, timeout, retry, capacity, output_type)


def _calls(
    method: str,
    ordered: bool,
    stream: DataStream,
    function: AsyncFunction[Any, Any],
    timeout: DurationLike,
    retry: AsyncRetryStrategy[Any],
    capacity: int,
    output_type: TypeInformation | None,
) -> DataStream:
    if not isinstance(stream, DataStream):
        raise refuse(f"{method}: found {stream!r} ({type(stream).__name__}), expected a DataStream")
    function = checked_function(method, function, AsyncFunction, callables=False)
    if not inspect.iscoroutinefunction(function.async_invoke):
        raise refuse(
            f"{method}: async_invoke() of {type(function).__name__} is not asynchronous. Write it with async def, and "
            "await its asynchronous calls"
        )
    if not isinstance(retry, AsyncRetryStrategy):
        raise refuse(
            f"{method}: found {retry!r} ({type(retry).__name__}), expected an AsyncRetryStrategy, such as "
            "AsyncRetryStrategy.fixed_delay(3, 100)"
        )
    operation = AsyncCalls(
        function, _timeout_ms(method, timeout), checked_count(f"{method}, capacity", capacity), ordered, retry
    )
    return stream._then(operation, "Async Wait", checked_output_type(method, output_type))


def _timeout_ms(method: str, timeout: DurationLike) -> int:
    with at_users_line():
        timeout_ms = duration_ms(timeout)
    if timeout_ms <= 0:
        raise refuse(f"{method}, timeout: found {timeout!r}, expected at least 1 ms, such as Time.seconds(10)")
    return timeout_ms


add_pyflink_names(globals())
