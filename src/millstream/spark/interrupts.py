"""Ctrl-C while Spark is asked for something that takes long: the wait ends, at once and without a word of Spark's.

An interrupt that comes upon a call into the JVM leaves the connection with half an answer on it, and whoever tidies up
over it prints tracebacks. So what takes long runs on a thread of its own, and the interrupt meets one who only waits.
What was being done is left to itself: the process is about to end, and its JVM ends with it. Should it go on (in a
notebook), the thread comes to its end, and Spark is there for the next one who asks.

Spark's own way, to cancel every job of the application, is not taken on: it is set only by a context that is made on
the main thread. Who ends one query would fail all others.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["left_on_interrupt"]

_Answer = TypeVar("_Answer")


def left_on_interrupt(act: Callable[[], _Answer]) -> _Answer:
    """What `act` returns or raises; on the main thread, a KeyboardInterrupt does not wait for it.

    >>> left_on_interrupt(lambda: threading.current_thread() is threading.main_thread())
    False
    """
    if threading.current_thread() is not threading.main_thread():
        return act()  # no interrupt comes here
    outcome: Future[_Answer] = Future()
    settings = contextvars.copy_context()

    def work() -> None:
        try:
            outcome.set_result(settings.run(act))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, name="millstream-start", daemon=True).start()
    return outcome.result()
