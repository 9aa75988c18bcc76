"""Asynchronous functions and when to try them again: interfaces, and the settings of an asynchronous operator.

`AsyncDataStream` runs them; docs/datastream/async.md says what is promised.
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
    """Which results, and which errors, call for another try."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        """Says of a result whether to try again; None: never."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """Says of an error whether to try again; None: never."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """How often and after what time to try again.

    >>> strategy = AsyncRetryStrategy.fixed_delay(3, 100)
    >>> strategy.can_retry(3), strategy.can_retry(4), strategy.get_backoff_time_millis(1)
    (True, False, 100)
    """

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Whether attempt number `current_attempts` may be made."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """How long to wait before that attempt."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """What calls for another try."""

    @staticmethod
    def no_restart() -> NoRetryStrategy[Any]:
        """Never try again."""
        from millstream.datastream.async_retry_strategies import NoRetryStrategy

        return NoRetryStrategy()

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[Any]], bool] | None = None,
        exception_predicate: Callable[[Exception], bool] | None = None,
    ) -> FixedDelayRetryStrategy[Any]:
        """Wait the same time before every attempt."""
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
        """Wait longer before every attempt, up to a limit."""
        from millstream.datastream.async_retry_strategies import ExponentialBackoffDelayRetryStrategy

        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


class AsyncFunction(Function, Generic[IN, OUT]):
    """One value in, any number out, after waiting for something outside.

    `open` and `close` are called on the event loop of the calls, so that a client made in `open` is shared by them;
    both may be `async def` (beyond PyFlink).

    >>> class Price(AsyncFunction):
    ...     async def async_invoke(self, value: str) -> list[tuple[str, int]]:
    ...         return [(value, len(value))]  # of what a service answers
    >>> import asyncio
    >>> asyncio.run(Price().async_invoke("tea"))
    [('tea', 3)]
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """The values that take the place of `value`."""

    def timeout(self, value: IN) -> list[OUT]:
        """What to emit when it took too long, retries included. By default that is an error."""
        raise TimeoutError(
            f"the asynchronous call for {value!r} took too long. Allow it more time, or override timeout() to say what "
            "to emit in place of its results"
        )


class AsyncFunctionDescriptor:
    """An asynchronous operator's settings."""

    class OutputMode(Enum):
        """Whether results keep the order of their inputs."""

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
