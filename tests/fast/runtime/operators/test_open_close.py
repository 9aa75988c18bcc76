"""When functions are opened and closed: each statement of docs/datastream/keyed-state.md."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.common import RestartStrategies
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import AggregateFunction, KeyedProcessFunction, MapFunction, ProcessWindowFunction
from millstream.errors import JobFailedError
from millstream.testing import CRASH, EPOCH, Collect, Result, Script, run

CALLS: list[tuple[str, Any]] = []


@pytest.fixture(autouse=True)
def _fresh_calls() -> Iterator[None]:
    CALLS.clear()
    yield


class RecordsCalls(KeyedProcessFunction):
    """Records its calls; fails at the value -1."""

    def __init__(self) -> None:
        self.made_by_init = ["from the program"]

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        CALLS.append(("open", self.subtask))

    def close(self) -> None:
        CALLS.append(("close", self.subtask))

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        if value == -1:
            raise ValueError("a bad record")
        self.made_by_init.append("seen")
        yield value, len(self.made_by_init)


def run_through(function: KeyedProcessFunction, script: Script, **options: Any) -> Result:
    def build(env: StreamExecutionEnvironment) -> None:
        keyed = env.add_source(script).key_by(lambda value: abs(value))
        keyed.process(function).uid("told").sink_to(Collect("out")).uid("out")

    return run(build, **options)


def test_a_function_is_opened_once_per_subtask_and_closed_when_the_input_ends() -> None:
    result = run_through(RecordsCalls(), Script([*range(10), EPOCH, *range(10), EPOCH, *range(10)]), parallelism=2)
    assert result.epochs == 3
    assert sorted(CALLS) == [("close", 0), ("close", 1), ("open", 0), ("open", 1)]
    assert {name for name, _ in CALLS[:2]} == {"open"}


def test_every_subtask_has_a_copy_of_its_own() -> None:
    function = RecordsCalls()
    result = run_through(function, Script(list(range(10))), parallelism=2)
    sizes = [size for _, size in result["out"]]
    assert sizes.count(2) == 2, "the first record of each subtask reads the state of __init__ and none of the other's"
    assert function.made_by_init == ["from the program"]


def test_after_a_failure_the_failed_subtask_is_closed_at_once_and_the_others_at_the_next_open() -> None:
    once = RestartStrategies.fixed_delay_restart(1, 0)
    with pytest.raises(JobFailedError, match="a bad record"):
        run_through(RecordsCalls(), Script([*range(10), EPOCH, -1]), parallelism=2, restart=once)
    opened = [call for call in CALLS if call[0] == "open"]
    failed = CALLS[2][1]
    assert CALLS[:3] == [("open", 0), ("open", 1), ("close", failed)]
    # The second run opens both again, after closing the one that the first run left open.
    assert CALLS[3] == ("close", 1 - failed)
    assert sorted(opened) == [("open", 0), ("open", 0), ("open", 1), ("open", 1)]


def test_a_crash_elsewhere_reopens_the_function() -> None:
    run_through(RecordsCalls(), Script([1, EPOCH, 2, CRASH, 3]))
    assert CALLS == [("open", 0), ("close", 0), ("open", 0), ("close", 0)]


def test_a_job_that_is_stopped_does_not_close() -> None:
    result = run_through(RecordsCalls(), Script([1, EPOCH, 2, EPOCH, 3]), epochs=2)
    assert result.status == "SUSPENDED"
    assert CALLS == [("open", 0)]


class FailsToClose(RecordsCalls):
    def close(self) -> None:
        super().close()
        raise OSError("nobody answers")


def test_an_error_in_close_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        result = run_through(FailsToClose(), Script([1, 2]))
    assert (result.status, len(result["out"])) == ("FINISHED", 2)
    assert "close() of 'KEYED PROCESS' failed" in caplog.text


class FailsToOpen(RecordsCalls):
    def open(self, runtime_context: Any) -> None:
        raise OSError("nobody answers")


def test_an_error_in_open_fails_the_job_with_the_users_traceback() -> None:
    with pytest.raises(JobFailedError) as failed:
        run_through(FailsToOpen(), Script([1]))
    assert "nobody answers" in failed.value.report


class Named(MapFunction):
    """Records its calls under a name; fails in the method named by `fails_in`."""

    def __init__(self, name: str, fails_in: str = "") -> None:
        self.name, self.fails_in = name, fails_in

    def _called(self, method: str) -> None:
        CALLS.append((method, self.name))
        if method == self.fails_in:
            raise OSError(f"{self.name} cannot {method}")

    def open(self, runtime_context: Any) -> None:
        self._called("open")

    def close(self) -> None:
        self._called("close")

    def map(self, value: Any) -> Any:
        return value


def test_functions_before_one_that_cannot_be_opened_are_closed() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Script([1]))
        numbers.map(Named("a", "close")).map(Named("b")).map(Named("c", "open")).name("the third").sink_to(Collect())

    with pytest.raises(JobFailedError, match="'the third' failed: OSError: c cannot open"):
        run(build)
    assert CALLS == [("open", "a"), ("open", "b"), ("open", "c"), ("close", "a"), ("close", "b")]


class NamedSum(Named, AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class NamedWindow(Named, ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield from elements


def through_windows(of_windows: NamedWindow, of_records: NamedSum) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        windows = env.add_source(Script([1, 2])).key_by(abs).count_window(1)
        windows.aggregate(of_records, of_windows).sink_to(Collect())

    run(build)


def test_of_two_functions_of_an_operator_the_first_is_closed_when_the_second_cannot_be_opened() -> None:
    with pytest.raises(JobFailedError, match="sum cannot open"):
        through_windows(NamedWindow("window", "close"), NamedSum("sum", "open"))
    assert CALLS == [("open", "window"), ("open", "sum"), ("close", "window")]


def test_of_two_functions_of_an_operator_the_second_is_closed_when_the_first_cannot_be() -> None:
    through_windows(NamedWindow("window", "close"), NamedSum("sum"))
    assert CALLS == [("open", "window"), ("open", "sum"), ("close", "window"), ("close", "sum")]
