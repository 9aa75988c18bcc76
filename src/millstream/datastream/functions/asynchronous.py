"""Asynchronous functions and their retry strategies: interfaces, and the settings of an asynchronous operator.

`AsyncDataStream` runs them; docs/datastream/async.md describes the guarantees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.common.time import Time
from millstream.datastream.functions.function import Function

if TYPE_CHECKING:
    from millstream.datastream.async_retry_strategies import (
        ExponentialBackoffDelayRetryStrategy,
        FixedDelayRetryStrategy,
        NoRetryStrategy,
    )

__all__ = ["AsyncFunction", "AsyncFunctionDescriptor", "AsyncRetryPredicate", "AsyncRetryStrategy"]

IN = TypeVar("IN")
OUT = TypeVar("OUT")


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """Decides which results and errors cause a retry."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        """A predicate on results to retry; None: never."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """A predicate on errors to retry; None: never."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """The number of retries and their delays.

    >>> strategy = AsyncRetryStrategy.fixed_delay(3, 100)
    >>> strategy.can_retry(3), strategy.can_retry(4), strategy.get_backoff_time_millis(1)
    (True, False, 100)
    """

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Whether attempt number `current_attempts` is permitted."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """The delay before that attempt."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """The predicate on results and errors to retry."""

    @staticmethod
    def no_restart() -> NoRetryStrategy[Any]:
        """Never retries."""
        from millstream.datastream.async_retry_strategies import NoRetryStrategy

        return NoRetryStrategy()

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[Any]], bool] | None = None,
        exception_predicate: Callable[[Exception], bool] | None = None,
    ) -> FixedDelayRetryStrategy[Any]:
        """Waits for the same time before every attempt."""
        from millstream.datastream.async_retry_strategies import FixedDelayRetryStrategy

        return FixedDelayRetryStrategy(max_attempts, backoff_time_millis, result_predicate, exception_predicate)

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: Callable[[list[Any]], bool] | None = None,
        exception_predicate: Callable[[Exception], bool] | None = None,
    ) -> ExponentialBackoffDelayRetryStrategy[Any]:
        """Waits longer before every attempt, up to a limit."""
        from millstream.datastream.async_retry_strategies import ExponentialBackoffDelayRetryStrategy

        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


class AsyncFunction(Function, Generic[IN, OUT]):
    """Maps a value to any number of values, after an asynchronous call to an external system.

    `open` and `close` run on the event loop of the calls, which can therefore share a client created in `open`. Both
    may be `async def` (beyond PyFlink).

    >>> class Price(AsyncFunction):
    ...     async def async_invoke(self, value: str) -> list[tuple[str, int]]:
    ...         return [(value, len(value))]  # the answer of a service
    >>> import asyncio
    >>> asyncio.run(Price().async_invoke("tea"))
    [('tea', 3)]
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """The values that replace `value`."""

    def timeout(self, value: IN) -> list[OUT]:
        """The values to emit after a time-out, including retries. By default a time-out is an error."""
        raise TimeoutError(
            f"the asynchronous call for {value!r} took too long. Increase the time-out, or override timeout() to "
            "return the values to emit instead"
        )


class AsyncFunctionDescriptor:
    """An asynchronous operator's settings."""

    class OutputMode(Enum):
        """Whether results retain the order of their inputs."""

        ORDERED = 0
        UNORDERED = 1

    def __init__(
        self,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        capacity: int,
        async_retry_strategy: AsyncRetryStrategy[Any],
        output_mode: OutputMode,
    ) -> None:
        self.async_function = async_function
        self.timeout = timeout
        self.capacity = capacity
        self.async_retry_strategy = async_retry_strategy
        self.output_mode = output_mode
