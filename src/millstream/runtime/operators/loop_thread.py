"""An event loop on its own thread, so that calls progress while the task processes other records.

It runs from its creation until `stop`, also between epochs, so that clients opened by a user's function can answer
heartbeats of their servers. The thread is a daemon and holds no reference to its owner: when an owner is garbage
collected without being closed, as after a stopped job, the loop ends too. Errors raised on the loop are raised again in
the calling thread.

A function that blocks the loop delays all other calls of the task. A coroutine runs in steps, from one `await` that
suspends to the next. Each step of a user's coroutine is timed, and a slow one is logged once, as a warning. A step that
never ends is detected from another thread (`blocked_s`).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
import types
import weakref
from collections.abc import Callable, Coroutine, Generator
from typing import Any

__all__ = ["STEP_S_MAX", "LoopThread", "StepWatch"]

_LOG = logging.getLogger(__name__)
_CHECK_S = 0.5


class LoopThread:
    """A running event loop.

    >>> thread = LoopThread("example")
    >>> thread.run(lambda: asyncio.sleep(0, "woken"))
    'woken'
    >>> thread.stop()
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(self.loop,), name=name, daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, _request_stop, self.loop)

    @property
    def running(self) -> bool:
        """Whether the loop still runs. Code running on it can stop it, or raise an error that ends it
        (`SystemExit`)."""
        return self._thread.is_alive()

    def soon(self, callback: Callable[[], None]) -> None:
        """Schedules `callback` on the loop, without waiting for it."""
        self.loop.call_soon_threadsafe(callback)

    def run(self, work: Callable[[], Any]) -> Any:
        """Calls `work` on the loop and awaits the result if it is awaitable; returns the result or raises its error."""
        done = threading.Event()
        results: list[Any] = []
        errors: list[BaseException] = []
        tasks: set[asyncio.Task[None]] = set()  # the loop itself holds only weak references

        async def perform() -> None:
            try:
                result = work()
                results.append(await result if inspect.isawaitable(result) else result)
            except BaseException as error:  # even an error that would end the loop is raised in the waiting thread
                errors.append(error)
            finally:
                done.set()

        self.soon(lambda: tasks.add(self.loop.create_task(perform())))
        while not done.wait(_CHECK_S):
            if not self.running:
                raise RuntimeError("code on the event loop ended it")
        if errors:
            raise errors[0]
        return results[0]

    def stop(self, patience_s: float = 5.0) -> None:
        """Ends the loop and cancels its tasks. A loop blocked by a function is abandoned."""
        self._end()
        self._thread.join(patience_s)


def _request_stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        leftovers = asyncio.all_tasks(loop)
        for task in leftovers:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*leftovers, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    except BaseException:  # such as sys.exit() in a callback: waiting threads detect that the loop has ended
        _LOG.exception("code on the event loop ended it")
    finally:
        loop.close()


STEP_S_MAX = 1.0


class StepWatch:
    """Times the steps of coroutines on one loop. `function` is the name of the user's method, for messages."""

    def __init__(self, function: str, operator: str, site: str, step_s_max: float = STEP_S_MAX) -> None:
        self._function, self._operator, self._site = function, operator, site
        self._step_s_max = step_s_max
        self._began_s: float | None = None
        self._has_warned = False
        self.value: Any = None  # the record of the newest step

    def blocked_s(self) -> float:
        """The duration of the running step so far, callable from any thread. Logs a warning if it is long."""
        began_s = self._began_s
        if began_s is None:
            return 0.0
        blocked_s = time.perf_counter() - began_s
        self._warn_if_slow(blocked_s)
        return blocked_s

    def _warn_if_slow(self, step_s: float) -> None:
        if step_s > self._step_s_max and not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "%s of '%s' (%s) blocks its event loop: one step took %.1f s, and all other calls of the task waited "
                "for it. Await an asynchronous client, or await asyncio.to_thread(...) for blocking code",
                self._function,
                self._operator,
                self._site,
                step_s,
            )

    @types.coroutine
    def timed(self, coroutine: Coroutine[Any, Any, Any], value: Any) -> Generator[Any, Any, Any]:
        """Awaits `coroutine`, the call for the record `value`, step by step."""
        step, answer = coroutine.send, None
        while True:
            self.value = value
            self._began_s = began_s = time.perf_counter()
            try:
                awaited = step(answer)
            except StopIteration as end:
                return end.value
            finally:
                self._began_s = None
                self._warn_if_slow(time.perf_counter() - began_s)
            try:
                answer = yield awaited
                step = coroutine.send
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:  # a cancellation, or an error of the awaited object: passed to the coroutine
                answer, step = error, coroutine.throw
