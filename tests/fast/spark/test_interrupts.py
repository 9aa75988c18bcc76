"""Ctrl-C while Spark is waited for: the wait ends at once, and nothing is said but one line."""

from __future__ import annotations

import signal
import threading
from contextvars import ContextVar

import pytest
from screens.interrupts import heeded_interrupts

from millstream.spark.interrupts import abandon_on_interrupt

_SETTING: ContextVar[str] = ContextVar("setting", default="")


def test_what_is_done_or_raised_apart_is_returned_or_raised() -> None:
    _SETTING.set("in force")
    assert abandon_on_interrupt(_SETTING.get) == "in force"
    with pytest.raises(ZeroDivisionError):
        abandon_on_interrupt(lambda: 1 // 0)


def test_an_interrupt_does_not_wait_for_what_is_done_apart() -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def act() -> None:
        begun.set()
        goes_on.wait(60)

    def interrupt() -> None:
        assert begun.wait(60)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with heeded_interrupts(), pytest.raises(KeyboardInterrupt):
        abandon_on_interrupt(act)
    assert not goes_on.is_set()
    goes_on.set()


def test_elsewhere_than_on_the_main_thread_nothing_is_done_apart() -> None:
    threads: list[threading.Thread] = []
    here = threading.Thread(target=lambda: threads.append(abandon_on_interrupt(threading.current_thread)))
    here.start()
    here.join()
    assert threads == [here]
