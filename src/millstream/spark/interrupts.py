"""Handles Ctrl-C during long calls to Spark: the wait ends at once, without tracebacks.

An interrupt during a call into the JVM leaves half a response on the connection, and the cleanup prints tracebacks. So
long calls run on a separate thread, and the interrupt hits only the waiting main thread. The call itself is abandoned:
the process is about to end, together with its JVM. If it continues (in a notebook), the call finishes in its thread,
and Spark is then available for the next call.

Spark's own handler, which cancels all jobs of the application, is not adopted: Spark installs it only for a context
created on the main thread, and ending one query would fail all others.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["abandon_on_interrupt"]

_Result = TypeVar("_Result")


def abandon_on_interrupt(act: Callable[[], _Result]) -> _Result:
    """Runs `act` and returns its result; on the main thread, a KeyboardInterrupt does not wait for it.

    >>> abandon_on_interrupt(lambda: threading.current_thread() is threading.main_thread())
    False
    """
    if threading.current_thread() is not threading.main_thread():
        return act()  # only the main thread receives interrupts
    outcome: Future[_Result] = Future()
    settings = contextvars.copy_context()

    def work() -> None:
        try:
            outcome.set_result(settings.run(act))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, name="millstream-start", daemon=True).start()
    return outcome.result()
