"""The asynchronous calls of one epoch: the queued, running and finished ones.

The task's thread queues records. Up to `capacity` calls run on the loop's thread; when one ends, another starts.
Results are returned in the order of their records, or as they complete. The task's thread waits either until the calls
of all queued records have begun (so that the queue stays bounded) or until all calls are done.

Invariant: every queued record is returned by `finished` once, or the epoch fails. No call is dropped silently: however
it ends, even by a cancellation in the user's own code, it has a result or a failure. Only the first failure is
recorded; after it no call begins, and running calls are cancelled.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from millstream.errors import ProgramError
from millstream.graph.nodes import AsyncCalls
from millstream.runtime.operators.loop_thread import LoopThread, StepWatch

__all__ = ["Call", "CallFailure", "EpochCalls"]

# Maximum number of results that wait for an earlier record's. At this limit no call starts until that record is done.
_OUT_OF_ORDER_MAX = 10_000
# This many results are returned at once, even if more are pending.
_FINISHED_MAX = 4_096
# Interval at which the task's thread checks that the loop still progresses.
_CHECK_S = 0.5


@dataclass(slots=True)
class Call:
    """One record, and its results when the call is done."""

    number: int
    value: Any
    timestamp: int | None
    results: list[Any] | None = None


@dataclass(frozen=True)
class CallFailure:
    """The error that ended a call, and the user's method that raised it."""

    error: BaseException
    role: str
    value: Any


class EpochCalls:
    """The calls of one subtask in one epoch. The task's thread uses `queue`, `finished` and `abandon`, the loop's
    thread the rest. Many attributes, grouped by thread: first those of the loop's thread alone, then the shared ones.
    """

    def __init__(self, settings: AsyncCalls, thread: LoopThread, watch: StepWatch) -> None:
        self._settings, self._function, self._thread, self._watch = settings, settings.function, thread, watch
        predicate = settings.retry.get_retry_predicate()
        self._retry_result: Callable[[list[Any]], bool] | None = predicate.result_predicate()
        self._retry_error: Callable[[BaseException], bool] | None = predicate.exception_predicate()
        self._queue: deque[Call] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._out_of_order: dict[int, Call] = {}  # in ordered mode: done, but an earlier one is not
        self._turn = 0
        self._call_count = 0
        # Shared by both threads, under the lock of `_changed`.
        self._changed = threading.Condition()
        self._finished: list[Call] = []
        self._unstarted = self._unfinished = 0
        self._failure: CallFailure | None = None

    # --- the task's thread ------------------------------------------------------------------------------

    def queue(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Queues records; their calls begin when capacity allows."""
        stamps: list[Any] = [None] * len(values) if timestamps is None else timestamps
        calls = [
            Call(number, value, stamp)
            for number, (value, stamp) in enumerate(zip(values, stamps, strict=True), start=self._call_count)
        ]
        self._call_count += len(calls)
        with self._changed:
            self._unstarted += len(calls)
            self._unfinished += len(calls)

        def begin() -> None:
            self._queue.extend(calls)
            self._begin()

        self._thread.soon(begin)

    def finished(self, *, all_done: bool) -> tuple[list[Call], bool]:
        """Waits until every call has begun (with `all_done`: is done), or many are done. Returns the finished calls in
        order, and whether there is nothing more to wait for."""
        with self._changed:
            while not self._is_worth_returning(all_done):
                if not self._changed.wait(_CHECK_S):
                    self._check_loop()
            done, self._finished = self._finished, []
            return done, not (self._unfinished if all_done else self._unstarted)

    @property
    def failure(self) -> CallFailure | None:
        return self._failure

    @property
    def idle(self) -> bool:
        return not self._unfinished

    @property
    def stuck(self) -> bool:
        """Whether the loop is blocked by a step that no timeout can end."""
        return self._watch.blocked_s() > self._settings.timeout_ms / 1000 + 1

    def abandon(self) -> None:
        """Cancels all calls: their attempt has ended."""
        with self._changed:
            self._failure = self._failure or CallFailure(asyncio.CancelledError(), "async_invoke", None)
        self._thread.soon(self._cancel)

    def _is_worth_returning(self, all_done: bool) -> bool:
        remaining = self._unfinished if all_done else self._unstarted
        return not remaining or self._failure is not None or len(self._finished) >= _FINISHED_MAX

    def _check_loop(self) -> None:
        """Detects conditions under which the epoch would never end: a blocked or terminated loop."""
        if self.stuck:
            error = ProgramError(
                f"async_invoke() blocks the event loop: one step has run for {self._watch.blocked_s():.0f} s, so its "
                f"time-out of {self._settings.timeout_ms} ms cannot fire. Await an asynchronous client, or await "
                "asyncio.to_thread(...) for blocking code"
            )
            self._failure = CallFailure(error, "async_invoke", self._watch.value)
        elif not self._thread.running:
            error = ProgramError("code on the event loop stopped it. No task or callback may stop the loop or exit")
            self._failure = CallFailure(error, "async_invoke", self._watch.value)

    # --- the loop's thread ------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begins as many calls as capacity allows."""
        begun = 0
        while (
            self._queue
            and len(self._running) < self._settings.capacity
            and len(self._out_of_order) < _OUT_OF_ORDER_MAX
            and self._failure is None
        ):
            call = self._queue.popleft()
            task = self._thread.loop.create_task(self._perform(call))
            self._running.add(task)
            task.add_done_callback(partial(self._ended, call))
            begun += 1
        if begun:
            with self._changed:
                self._unstarted -= begun
                if not self._unstarted:
                    self._changed.notify()

    def _ended(self, call: Call, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if task.cancelled():  # cancelled before its first step, so `_perform` could not report it
            self._fail(asyncio.CancelledError("the call was cancelled before it began"), "async_invoke", call.value)
        self._begin()

    def _cancel(self) -> None:
        self._queue.clear()
        for task in self._running:
            task.cancel()

    async def _perform(self, call: Call) -> None:
        """Runs the call of one record to its results or its failure."""
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1000) as limit:
                results = await self._results_of(call.value)
        except BaseException as error:
            if not limit.expired():
                self._fail(error, "async_invoke", call.value)
                return
            try:
                results = _checked(self._function.timeout(call.value), "timeout")
            except BaseException as raised:
                self._fail(raised, "timeout", call.value)
                return
        call.results = results
        self._done(call)

    async def _results_of(self, value: Any) -> list[Any]:
        """The function's results, after as many attempts as its retry strategy allows."""
        retry, attempt = self._settings.retry, 1
        while True:
            results, raised = await self._attempt(value)
            is_retried = self._retry_result(results) if raised is None and self._retry_result is not None else False
            if raised is not None:
                is_retried = self._retry_error(raised) if self._retry_error is not None else False
            if not is_retried or not retry.can_retry(attempt):
                if raised is not None:
                    raise raised
                return results
            await asyncio.sleep(retry.get_backoff_time_millis(attempt) / 1000)
            attempt += 1

    async def _attempt(self, value: Any) -> tuple[list[Any], Exception | None]:
        """Calls the function once; returns its results or its error."""
        try:
            results = await self._watch.timed(self._function.async_invoke(value), value)
        except Exception as error:
            return [], error
        return _checked(results, "async_invoke"), None

    def _done(self, call: Call) -> None:
        results = [call]
        if self._settings.ordered:
            self._out_of_order[call.number] = call
            results = []
            while self._turn in self._out_of_order:
                results.append(self._out_of_order.pop(self._turn))
                self._turn += 1
        if not results:
            return
        with self._changed:
            self._finished += results
            self._unfinished -= len(results)
            if not self._unfinished or len(self._finished) >= _FINISHED_MAX:
                self._changed.notify()

    def _fail(self, error: BaseException, role: str, value: Any) -> None:
        with self._changed:
            if self._failure is not None:
                return
            self._failure = CallFailure(error, role, value)
            self._changed.notify()
        self._cancel()


def _checked(results: Any, method: str) -> list[Any]:
    if isinstance(results, list):
        return results
    if asyncio.iscoroutine(results):
        results.close()
        raise ProgramError(f"{method}() returned a coroutine, expected a list. Write it with def, not with async def")
    raise ProgramError(
        f"{method}() returned {results!r} ({type(results).__name__}), expected a list of results. "
        "Return [value] for one, [] for none"
    )
