"""A function that ends its worker fails its job like any other: one sentence, the operator, no JVM frames."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import pytest

from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import JobFailedError
from millstream.testing import Collect


def by_exit() -> None:
    os._exit(7)


def by_signal() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def report_of(env: StreamExecutionEnvironment, end: Callable[[], None]) -> str:
    def work(n: int) -> int:
        if n == 3:
            end()
        return n

    env.set_parallelism(2)
    env.from_collection([1, 2, 3, 4]).key_by(lambda n: n).map(work).name("ends its worker").sink_to(Collect())
    with pytest.raises(JobFailedError) as caught:
        env.execute("dying")
    return f"{caught.value.report}\n\n{caught.value}"


@pytest.mark.parametrize("end", [by_exit, by_signal])
def test_a_worker_that_dies_is_the_failure_of_the_operator_in_it(
    end: Callable[[], None], env: StreamExecutionEnvironment
) -> None:
    report = report_of(env, end)
    assert "the worker of 'ends its worker' (test_worker_deaths_on_spark.py:" in report
    assert "died: the function ended it, or memory ran out" in report
    assert "org.apache" not in report and len(report.splitlines()) < 10


def test_sys_exit_in_a_function_is_told_with_its_record(env: StreamExecutionEnvironment) -> None:
    report = report_of(env, lambda: sys.exit(4))
    assert "the function called sys.exit(4)" in report and "record    3" in report
    assert "org.apache" not in report


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_keyboard_interrupt_of_the_function_is_told_with_its_record(env: StreamExecutionEnvironment) -> None:
    report = report_of(env, interrupt)
    assert "KeyboardInterrupt: the function raised it" in report and "record    3" in report
    assert "org.apache" not in report
