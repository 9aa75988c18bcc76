"""Retry strategies of asynchronous calls: the number of attempts and the delays. Pure settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from millstream.datastream.functions.asynchronous import AsyncRetryPredicate, AsyncRetryStrategy
from millstream.datastream.streams.argument_checks import checked_count, refuse
from millstream.pyflink_names import add_pyflink_names

__all__ = [
    "NO_RETRY_STRATEGY",
    "ExponentialBackoffDelayRetryStrategy",
    "FixedDelayRetryStrategy",
    "NoRetryStrategy",
    "RetryPredicate",
]

OUT = TypeVar("OUT")
ResultPredicate = Callable[[list[Any]], bool]
ExceptionPredicate = Callable[[Exception], bool]


class RetryPredicate(AsyncRetryPredicate[OUT], Generic[OUT]):
    """Holds the two predicates."""

    def __init__(
        self, result_predicate: ResultPredicate | None, exception_predicate: ExceptionPredicate | None
    ) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> ResultPredicate | None:
        return self._result_predicate

    def exception_predicate(self) -> ExceptionPredicate | None:
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """No retries."""

    def can_retry(self, current_attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return RetryPredicate(None, None)


NO_RETRY_STRATEGY: NoRetryStrategy[Any] = NoRetryStrategy()


class FixedDelayRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """At most `max_attempts` retries, each after the same delay."""

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None = None,
        exception_predicate: ExceptionPredicate | None = None,
    ) -> None:
        self._max_attempts = checked_count("FixedDelayRetryStrategy, max_attempts", max_attempts)
        self._backoff_time_millis = checked_count("FixedDelayRetryStrategy, backoff_time_millis", backoff_time_millis)
        self._predicate: RetryPredicate[OUT] = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return self._backoff_time_millis

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return self._predicate


class ExponentialBackoffDelayRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """At most `max_attempts` retries; each delay is `multiplier` times the previous one, up to a limit.

    The delay depends only on the attempt's number, so calls can share a strategy.

    >>> strategy = ExponentialBackoffDelayRetryStrategy(5, 100, 500, 2.0)
    >>> [strategy.get_backoff_time_millis(attempt) for attempt in (1, 2, 3, 4)]
    [100, 200, 400, 500]
    """

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None = None,
        exception_predicate: ExceptionPredicate | None = None,
    ) -> None:
        name = type(self).__name__
        self._max_attempts = checked_count(f"{name}, max_attempts", max_attempts)
        self._initial_delay_ms = checked_count(f"{name}, initial_delay", initial_delay)
        self._max_delay_ms = checked_count(f"{name}, max_retry_delay", max_retry_delay, least=initial_delay)
        if not isinstance(multiplier, (int, float)) or multiplier < 1:
            raise refuse(f"{name}, multiplier: found {multiplier!r}, expected a number of at least 1")
        self._multiplier = multiplier
        self._predicate: RetryPredicate[OUT] = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        delay_ms = float(self._initial_delay_ms)
        for _ in range(1, current_attempts):
            delay_ms *= self._multiplier
            if delay_ms >= self._max_delay_ms:
                return self._max_delay_ms
        return int(delay_ms)

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return self._predicate


add_pyflink_names(globals())
