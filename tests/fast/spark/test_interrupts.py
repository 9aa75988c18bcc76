"""Ctrl-C while waiting for Spark: the wait ends at once, with a single line of output."""

from __future__ import annotations

import signal
import threading
from contextvars import ContextVar

import pytest
from screens.interrupts import heeded_interrupts

from millstream.spark.interrupts import abandon_on_interrupt

_SETTING: ContextVar[str] = ContextVar("setting", default="")


def test_results_and_errors_of_the_helper_thread_are_returned_or_raised() -> None:
    _SETTING.set("in force")
    assert abandon_on_interrupt(_SETTING.get) == "in force"
    with pytest.raises(ZeroDivisionError):
        abandon_on_interrupt(lambda: 1 // 0)


def test_an_interrupt_does_not_wait_for_the_helper_thread() -> None:
    begun, released = threading.Event(), threading.Event()

    def act() -> None:
        begun.set()
        released.wait(60)

    def interrupt() -> None:
        assert begun.wait(60)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with heeded_interrupts(), pytest.raises(KeyboardInterrupt):
        abandon_on_interrupt(act)
    assert not released.is_set()
    released.set()


def test_outside_the_main_thread_no_helper_thread_is_used() -> None:
    threads: list[threading.Thread] = []
    here = threading.Thread(target=lambda: threads.append(abandon_on_interrupt(threading.current_thread)))
    here.start()
    here.join()
    assert threads == [here]
