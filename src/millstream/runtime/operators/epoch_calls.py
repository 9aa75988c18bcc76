"""The asynchronous calls of one epoch: which are queued, under way, done, and whose turn it is.

Records are queued by the task's thread. On the loop's thread up to `capacity` calls run; when one ends, another begins.
Results are handed over in the order of their records, or as they come. The task's thread waits for one of two things:
that the call of every queued record has begun (so that no more are queued than the service can bear), or that all are
done.

Invariant: every record queued comes out of `finished` once, or the epoch has failed. Nothing is ever given up silently:
whatever ends a call, a cancellation by the user's own code included, is a result or a failure. Only the first failure
is kept; after it no call is begun, and those under way are cancelled.
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

# So many results may wait for those of an earlier record. With more, no call is begun until that record is done.
_OUT_OF_TURN_MAX = 10_000
# Results that are handed on at once, even if more are to come.
_FINISHED_MAX = 4_096
# How often the task's thread checks that the loop still moves.
_CHECK_S = 0.5


@dataclass(slots=True)
class Call:
    """One record, and its results once they are there."""

    number: int
    value: Any
    timestamp: int | None
    results: list[Any] | None = None


@dataclass(frozen=True)
class CallFailure:
    """What ended a call, in which of the user's methods."""

    error: BaseException
    role: str
    value: Any


class EpochCalls:
    """The calls of one subtask in one epoch. `queue`, `finished` and `abandon` are the task's, the rest the loop's.

    It has many attributes because two threads share it: what only the loop's thread touches, then what both do.
    """

    def __init__(self, settings: AsyncCalls, thread: LoopThread, watch: StepWatch) -> None:
        self._settings, self._function, self._thread, self._watch = settings, settings.function, thread, watch
        predicate = settings.retry.get_retry_predicate()
        self._retry_result: Callable[[list[Any]], bool] | None = predicate.result_predicate()
        self._retry_error: Callable[[BaseException], bool] | None = predicate.exception_predicate()
        self._queue: deque[Call] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._out_of_turn: dict[int, Call] = {}  # done, in ordered mode, but an earlier one is not
        self._turn = 0
        self._call_count = 0
        # What both threads see, under the lock of `_changed`.
        self._changed = threading.Condition()
        self._finished: list[Call] = []
        self._unbegun = self._unfinished = 0
        self._failure: CallFailure | None = None

    # --- the task's thread ------------------------------------------------------------------------------

    def queue(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Take records in; their calls begin as soon as there is room."""
        stamps: list[Any] = [None] * len(values) if timestamps is None else timestamps
        calls = [
            Call(number, value, stamp)
            for number, (value, stamp) in enumerate(zip(values, stamps, strict=True), start=self._call_count)
        ]
        self._call_count += len(calls)
        with self._changed:
            self._unbegun += len(calls)
            self._unfinished += len(calls)

        def begin() -> None:
            self._queue.extend(calls)
            self._begin()

        self._thread.soon(begin)

    def finished(self, *, all_done: bool) -> tuple[list[Call], bool]:
        """Wait until every record is under way (or done, with `all_done`), or many are done: those, in their order,
        and whether there is nothing more to wait for."""
        with self._changed:
            while not self._is_worth_returning(all_done):
                if not self._changed.wait(_CHECK_S):
                    self._check_loop()
            done, self._finished = self._finished, []
            return done, not (self._unfinished if all_done else self._unbegun)

    @property
    def failure(self) -> CallFailure | None:
        return self._failure

    @property
    def idle(self) -> bool:
        return not self._unfinished

    @property
    def stuck(self) -> bool:
        """Whether the loop is held up by a step that no time-out can end."""
        return self._watch.blocked_s() > self._settings.timeout_ms / 1000 + 1

    def abandon(self) -> None:
        """Nobody wants the results any more: the attempt they belong to has ended."""
        with self._changed:
            self._failure = self._failure or CallFailure(asyncio.CancelledError(), "async_invoke", None)
        self._thread.soon(self._cancel)

    def _is_worth_returning(self, all_done: bool) -> bool:
        remaining = self._unfinished if all_done else self._unbegun
        return not remaining or self._failure is not None or len(self._finished) >= _FINISHED_MAX

    def _check_loop(self) -> None:
        """What would keep the epoch from ever ending: a step that outlasts its own time-out, a loop that has ended."""
        if self.stuck:
            error = ProgramError(
                f"async_invoke() blocks the event loop: one step has taken {self._watch.blocked_s():.0f} s and is not "
                f"over, so its time-out of {self._settings.timeout_ms} ms cannot come. Await an asynchronous client, "
                "or await asyncio.to_thread(...) for what blocks"
            )
            self._failure = CallFailure(error, "async_invoke", self._watch.value)
        elif not self._thread.running:
            error = ProgramError("the event loop was ended by what ran on it. Let no task or callback stop it or exit")
            self._failure = CallFailure(error, "async_invoke", self._watch.value)

    # --- the loop's thread ------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin as many calls as there is room for."""
        begun = 0
        while (
            self._queue
            and len(self._running) < self._settings.capacity
            and len(self._out_of_turn) < _OUT_OF_TURN_MAX
            and self._failure is None
        ):
            call = self._queue.popleft()
            task = self._thread.loop.create_task(self._perform(call))
            self._running.add(task)
            task.add_done_callback(partial(self._ended, call))
            begun += 1
        if begun:
            with self._changed:
                self._unbegun -= begun
                if not self._unbegun:
                    self._changed.notify()

    def _ended(self, call: Call, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if task.cancelled():  # before its first step, so that `_perform` could not tell
            self._fail(asyncio.CancelledError("the call was cancelled before it began"), "async_invoke", call.value)
        self._begin()

    def _cancel(self) -> None:
        self._queue.clear()
        for task in self._running:
            task.cancel()

    async def _perform(self, call: Call) -> None:
        """One record, to its results or its failure."""
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
        """What the function gives, after as many attempts as its retry strategy allows."""
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
        """One call of the function: what it gave, or raised."""
        try:
            results = await self._watch.timed(self._function.async_invoke(value), value)
        except Exception as error:
            return [], error
        return _checked(results, "async_invoke"), None

    def _done(self, call: Call) -> None:
        results = [call]
        if self._settings.ordered:
            self._out_of_turn[call.number] = call
            results = []
            while self._turn in self._out_of_turn:
                results.append(self._out_of_turn.pop(self._turn))
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
