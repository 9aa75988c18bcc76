"""An event loop with a thread of its own, so that what waits goes on waiting while the task works on other records.

It runs from the moment it is made until `stop`, also between two epochs: clients that a user's function keeps open can
answer their servers' heartbeats. It is a daemon and holds nothing of its owner, so an owner that is forgotten without
being closed, as those of a stopped job are, takes it along. What is raised on it is raised in the thread that asked.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["LoopThread"]

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
