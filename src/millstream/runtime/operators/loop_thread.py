"""An event loop with a thread of its own, so that what waits goes on waiting while the task works on other records.

It runs from the moment it is made until `stop`, also between two epochs: clients that a user's function keeps open can
answer their servers' heartbeats. It is a daemon and holds nothing of its owner, so an owner that is forgotten without
being closed, as those of a stopped job are, takes it along. What is raised on it is raised in the thread that asked.

A function that blocks the loop makes all other calls of the task wait as long as it does. A coroutine runs in steps,
from one `await` that really waits to the next: each step of a user's coroutine is timed, and one that takes long is
told once, as a warning. A step that never ends is seen from outside (`blocked_s`).
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
        self._end = weakref.finalize(self, _ask_to_stop, self.loop)

    @property
    def running(self) -> bool:
        """Whether the loop still runs. Code on it can stop it, or raise what ends it (`SystemExit`)."""
        return self._thread.is_alive()

    def soon(self, callback: Callable[[], None]) -> None:
        """Have `callback` called on the loop, without waiting for it."""
        self.loop.call_soon_threadsafe(callback)

    def run(self, work: Callable[[], Any]) -> Any:
        """Call `work` on the loop and await what it returns, if it can be awaited; gives or raises what comes of it."""
        done = threading.Event()
        results: list[Any] = []
        errors: list[BaseException] = []
        tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps no hold on a task

        async def perform() -> None:
            try:
                result = work()
                results.append(await result if inspect.isawaitable(result) else result)
            except BaseException as error:  # also what would end the loop: it belongs to the thread that waits
                errors.append(error)
            finally:
                done.set()

        self.soon(lambda: tasks.add(self.loop.create_task(perform())))
        while not done.wait(_CHECK_S):
            if not self.running:
                raise RuntimeError("the event loop was ended by what ran on it")
        if errors:
            raise errors[0]
        return results[0]

    def stop(self, patience_s: float = 5.0) -> None:
        """End the loop and what still runs on it. One that is held up by a function that blocks is left behind."""
        self._end()
        self._thread.join(patience_s)


def _ask_to_stop(loop: asyncio.AbstractEventLoop) -> None:
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
    except BaseException:  # such as sys.exit() in a callback: who waits for the loop will see that it has ended
        _LOG.exception("an event loop was ended by what ran on it")
    finally:
        loop.close()


STEP_S_MAX = 1.0


class StepWatch:
    """Times the steps of the coroutines that run on one loop. `function` is how the user calls their maker."""

    def __init__(self, function: str, operator: str, site: str, step_s_max: float = STEP_S_MAX) -> None:
        self._function, self._operator, self._site = function, operator, site
        self._step_s_max = step_s_max
        self._began_s: float | None = None
        self._has_warned = False
        self.value: Any = None  # the record of the newest step

    def blocked_s(self) -> float:
        """How long the step that is running has been; may be asked from any thread. Tells the user if it is long."""
        began_s = self._began_s
        if began_s is None:
            return 0.0
        blocked_s = time.perf_counter() - began_s
        self._judge(blocked_s)
        return blocked_s

    def _judge(self, took_s: float) -> None:
        if took_s > self._step_s_max and not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "%s of '%s' (%s) blocks its event loop: one step took %.1f s, and all other calls of the task waited "
                "for it. Await an asynchronous client, or await asyncio.to_thread(...) for what blocks",
                self._function,
                self._operator,
                self._site,
                took_s,
            )

    @types.coroutine
    def timed(self, coroutine: Coroutine[Any, Any, Any], value: Any) -> Generator[Any, Any, Any]:
        """Awaits `coroutine`, which is about the record `value`, step by step."""
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
                self._judge(time.perf_counter() - began_s)
            try:
                answer = yield awaited
                step = coroutine.send
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:  # a cancellation, or what the awaited thing raised: it is the coroutine's
                answer, step = error, coroutine.throw
