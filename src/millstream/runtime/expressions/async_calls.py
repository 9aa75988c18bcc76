"""Calls asynchronous user-defined functions for many rows concurrently and retries failed calls.

Flink's options set the concurrency, the number of retries, the pause between them, and the timeout per row over all
attempts. The defaults are Flink's: 10 calls, 3 retries, 100 ms, 3 minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from millstream.common.options.quantities import parse_duration_ms
from millstream.errors import ConfigurationError
from millstream.expressions.user_functions import UserFunction
from millstream.runtime.operators.loop_thread import LoopThread

__all__ = ["AsyncCalls", "FailedCall", "call_async"]

_CONCURRENCY = "table.exec.async-scalar.max-concurrent-operations"
_CAPACITY = "table.exec.async-scalar.buffer-capacity"
_ATTEMPTS = "table.exec.async-scalar.max-attempts"
_STRATEGY = "table.exec.async-scalar.retry-strategy"
_PAUSE = "table.exec.async-scalar.retry-delay"
_TIMEOUT = "table.exec.async-scalar.timeout"
_LOOPS: WeakKeyDictionary[UserFunction, LoopThread] = WeakKeyDictionary()


class FailedCall(Exception):
    """The last attempt of a row's call raised; the cause is that exception."""

    def __init__(self, row: int) -> None:
        super().__init__()
        self.row = row


@dataclass(frozen=True)
class AsyncCalls:
    """Settings for asynchronous calls."""

    concurrency_max: int = 10
    retries_max: int = 3
    pause_ms: int = 100
    timeout_ms: int = 180_000

    @classmethod
    def of(cls, options: Mapping[str, str]) -> AsyncCalls:
        """Reads the settings from the options of a session.

        >>> AsyncCalls.of({"table.exec.async-scalar.retry-strategy": "NO_RETRY"}).retries_max
        0
        """
        strategy = options.get(_STRATEGY, "FIXED_DELAY").strip().upper()
        if strategy not in ("FIXED_DELAY", "NO_RETRY"):
            raise ConfigurationError(f"'{_STRATEGY}' is {strategy!r}, expected FIXED_DELAY or NO_RETRY")
        concurrency = options.get(_CONCURRENCY) or options.get(_CAPACITY)
        retries = options.get(_ATTEMPTS, str(cls.retries_max))
        return cls(
            _number(_CONCURRENCY, concurrency or str(cls.concurrency_max), least=1),
            _number(_ATTEMPTS, retries, least=0) if strategy == "FIXED_DELAY" else 0,
            parse_duration_ms(options.get(_PAUSE, f"{cls.pause_ms} ms")),
            parse_duration_ms(options.get(_TIMEOUT, f"{cls.timeout_ms} ms")),
        )


def _number(key: str, text: str, least: int) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise ConfigurationError(f"'{key}' is {text!r}, expected a whole number of at least {least}")
    return int(text)


def call_async(function: UserFunction, columns: Sequence[list[Any]], rows: int, settings: AsyncCalls) -> list[Any]:
    """Calls the function for all rows; results are in row order. Raises FailedCall for a row without a result."""

    async def attempts(arguments: tuple[Any, ...]) -> Any:
        for attempt in range(settings.retries_max + 1):
            try:
                return await function.call(*arguments)
            except Exception:
                if attempt == settings.retries_max:
                    raise
                await asyncio.sleep(settings.pause_ms / 1000)

    async def gather() -> list[Any]:
        permits = asyncio.Semaphore(settings.concurrency_max)

        async def single(row: int) -> Any:
            async with permits:
                try:
                    return await asyncio.wait_for(
                        attempts(tuple(column[row] for column in columns)), settings.timeout_ms / 1000
                    )
                except Exception as error:
                    raise FailedCall(row) from error

        tasks = [asyncio.ensure_future(single(row)) for row in range(rows)]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    results: list[Any] = _loop_of(function).run(gather)
    return results


def _loop_of(function: UserFunction) -> LoopThread:
    """The event loop of a function. It exists as long as the function, since the function's clients may be bound to
    it."""
    loop = _LOOPS.get(function)
    if loop is None or not loop.running:
        loop = _LOOPS[function] = LoopThread(f"async-{function.name}")
    return loop
