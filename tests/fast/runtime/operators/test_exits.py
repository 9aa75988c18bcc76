"""A function that calls sys.exit or raises KeyboardInterrupt fails its job and nothing else."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from screens.interrupts import heeded_interrupts

from millstream.datastream.functions import MapFunction, ProcessFunction
from millstream.errors import JobFailedError
from millstream.runtime.operators import explanations
from millstream.runtime.operators.exits import exits_as_failures
from millstream.runtime.operators.user_code import UserCall, UserFailureError
from millstream.testing import Collect, run


def leave(n: int) -> int:
    if n == 2:
        sys.exit(3)
    return n


def failure_of(function: Any, method: str = "map") -> JobFailedError:
    with pytest.raises(JobFailedError) as caught:
        run(lambda env: getattr(env.from_collection([1, 2, 3]), method)(function).sink_to(Collect()))
    return caught.value


def test_sys_exit_in_a_function_is_reported_with_its_record_and_line() -> None:
    error = failure_of(leave)
    assert error.message.startswith("'Map' failed: SystemExit: the function called sys.exit(3)")
    assert "record    2" in error.report and "sys.exit(3)" in error.report


def test_sys_exit_in_open_is_reported_as_a_failure_of_open() -> None:
    class Leaves(MapFunction):
        def open(self, runtime_context: Any) -> None:
            sys.exit()

        def map(self, value: int) -> int:
            return value

    assert "(open)" in failure_of(Leaves()).report


def test_a_keyboard_interrupt_raised_by_a_function_is_reported_as_its_failure() -> None:
    class Interrupts(ProcessFunction):
        def process_element(self, value: int, ctx: Any) -> Any:
            raise KeyboardInterrupt

    error = failure_of(Interrupts(), "process")
    assert error.message.startswith("'PROCESS' failed: KeyboardInterrupt: the function raised it")
    assert "record    1" in error.report


class _Worker:
    """An operator in the main thread, as in a worker of Spark."""

    def __init__(self) -> None:
        self.call = UserCall("Map", "map-1", "job.py:3")

    def work(self, function: Callable[[int], int]) -> None:
        values = [1, 2]
        remaining = iter(values)
        for value in remaining:
            function(value)


def _work(function: Callable[[int], int]) -> None:
    with exits_as_failures():
        _Worker().work(function)


def test_a_keyboard_interrupt_in_the_main_thread_of_a_worker_is_reported_as_the_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explanations, "PACKAGE_FOLDER", __file__)  # this test's worker is the engine itself

    def interrupt(value: int) -> int:
        exec("raise KeyboardInterrupt")  # a line of another file: the function's
        return value

    with pytest.raises(UserFailureError) as caught:
        _work(interrupt)
    assert caught.value.report.error == "KeyboardInterrupt" and caught.value.report.record == "1"


def test_a_real_interrupt_is_not_converted() -> None:
    def interrupted(value: int) -> int:
        signal.raise_signal(signal.SIGINT)
        return value

    with heeded_interrupts(), pytest.raises(KeyboardInterrupt):
        _work(interrupted)


def test_an_exit_outside_of_any_operator_is_not_converted() -> None:
    with pytest.raises(SystemExit), exits_as_failures():
        sys.exit(1)
