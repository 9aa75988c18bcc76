"""Handles Ctrl-C: the first finishes the running epoch and stops the job, the second aborts it.

A terminal sends its interrupt to the whole foreground process group. The JVM is in that group but ignores the signal
(PySpark starts it that way), and Spark's Python workers are in a separate group, so no process ends before the epoch is
finished. A TERM from a supervisor has the effect of the first Ctrl-C.

Signals can be caught on the main thread only; a job that runs in the foreground of another thread is left alone.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

__all__ = ["Interrupts", "Stoppable", "stop_on_interrupt"]


class Stoppable(Protocol):
    """A job that a signal can end."""

    def stop(self) -> None: ...

    def cancel(self) -> None: ...


class Interrupts:
    """Counts the user's interrupts of a job. Pure, except for the two calls to the job.

    >>> class Printed:
    ...     def stop(self): print("stop")
    ...     def cancel(self): print("cancel")
    >>> interrupts = Interrupts(Printed(), notify=print, epoch=lambda: 12)
    >>> interrupts.interrupt()
    stop
    finishing epoch 12; Ctrl-C again to abort
    >>> interrupts.interrupt()
    cancel
    aborting: the running epoch is dropped, what is committed stays
    """

    def __init__(self, job: Stoppable, notify: Callable[[str], None], epoch: Callable[[], int]) -> None:
        self._job, self._notify, self._epoch = job, notify, epoch
        self.stopping = False
        self.aborting = False

    def interrupt(self) -> None:
        """A Ctrl-C."""
        if self.aborting:
            raise KeyboardInterrupt  # the third time: the job does not even cancel
        if self.stopping:
            self.aborting = True
            self._job.cancel()
            self._notify("aborting: the running epoch is dropped, what is committed stays")
            return
        self._stop("Ctrl-C again to abort")

    def terminate(self) -> None:
        """A TERM."""
        if not self.stopping:
            self._stop("requested by TERM")

    def _stop(self, why: str) -> None:
        self.stopping = True
        self._job.stop()
        self._notify(f"finishing epoch {self._epoch()}; {why}")


@contextmanager
def stop_on_interrupt(job: Stoppable, notify: Callable[[str], None], epoch: Callable[[], int]) -> Iterator[Interrupts]:
    """Context manager: INT and TERM stop the job; restores the previous handlers on exit. `epoch` returns the running
    one."""
    interrupts = Interrupts(job, notify, epoch)
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.interrupt()

    def on_terminate(number: int, frame: FrameType | None) -> None:
        interrupts.terminate()

    before = signal.signal(signal.SIGINT, on_interrupt), signal.signal(signal.SIGTERM, on_terminate)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
