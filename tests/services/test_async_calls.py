"""Asynchronous calls against a real HTTP service: slow, failing, hanging, answering out of order.

The service runs in this process, on an event loop and a thread of its own, and records its requests; the client speaks
HTTP over asyncio's streams. A request specifies the service's behaviour, so every test scripts its own.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Time, Types, WatermarkStrategy
from millstream.compiler.explain import explain
from millstream.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    DataStream,
    MapFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.async_retry_predicates import empty_result_predicate, has_exception_predicate
from millstream.errors import JobFailedError, ProgramError
from millstream.runtime.operators.loop_thread import LoopThread
from millstream.testing import CRASH, EPOCH, Collect, Result, Script, Watermark, run

HERE = Path(__file__).name
NUMBERS = list(range(40))


# --- the service --------------------------------------------------------------------------------------------


class Service:
    """Answers `GET /{n}/{delay_ms}/{behaviour}` with `n`, after the delay.

    `ok`        200
    `fail-K`    503 to the first K requests for n
    `empty-K`   200 without a body to the first K
    `after-K`   200 once K different numbers have been requested
    `hang`      never answers
    """

    def __init__(self) -> None:
        self.asked: Counter[int] = Counter()
        self.at_once = self.most_at_once = 0
        self._thread = LoopThread("service")
        self._server: asyncio.Server = self._thread.run(lambda: asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._thread.run(self._server.close)
        self._thread.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            request = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
            number, delay_ms, behaviour = request.strip("/").split("/")
            status, body = await self._answer(int(number), int(delay_ms), behaviour)
            head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write((head + body).encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has disconnected after its time-out, or the test is over
        finally:
            self.at_once -= 1
            writer.close()

    async def _answer(self, number: int, delay_ms: int, behaviour: str) -> tuple[str, str]:
        self.asked[number] += 1
        await asyncio.sleep(delay_ms / 1000)
        kind, _, times = behaviour.partition("-")
        if kind == "hang":
            await asyncio.sleep(60)
        while kind == "after" and len(self.asked) < int(times):
            await asyncio.sleep(0.001)
        if kind == "fail" and self.asked[number] <= int(times):
            return "503 Unavailable", ""
        if kind == "empty" and self.asked[number] <= int(times):
            return "200 OK", ""
        return "200 OK", str(number)


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


class Unavailable(Exception):
    """The service said 503."""


class Ask(AsyncFunction[int, int]):
    """Calls the service; `delay_ms` and `behaviour` specify its behaviour per number."""

    def __init__(
        self,
        service: Service,
        delay_ms: Callable[[int], int] = lambda number: 1,
        behaviour: Callable[[int], str] = lambda number: "ok",
    ) -> None:
        self.port, self.delay_ms, self.behaviour = service.port, delay_ms, behaviour

    async def async_invoke(self, value: int) -> list[int]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"GET /{value}/{self.delay_ms(value)}/{self.behaviour(value)} HTTP/1.1\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        if b" 503 " in head:
            raise Unavailable(f"the service is not there for {value}")
        return [int(body)] if body else []


def scattered(number: int) -> int:
    """Delays that reverse neighbours."""
    return (number * 7919) % 13


def through(
    function: AsyncFunction[Any, Any],
    script: Script,
    *,
    wait: Callable[..., DataStream] = AsyncDataStream.ordered_wait,
    timeout: Time = Time.seconds(20),  # noqa: B008
    capacity: int = 20,
    retry: AsyncRetryStrategy[Any] | None = None,
    **of_the_run: Any,
) -> Result:
    def build(env: StreamExecutionEnvironment) -> None:
        options: dict[str, Any] = {"capacity": capacity, "output_type": Types.LONG()}
        if retry is not None:
            options["async_retry_strategy"] = retry
        wait(env.add_source(script), function, timeout, **options).name("ask").sink_to(Collect("out"))  # the call

    return run(build, **of_the_run)


def fails(function: AsyncFunction[Any, Any], script: Script, **options: Any) -> JobFailedError:
    with pytest.raises(JobFailedError) as caught:
        through(function, script, **options)
    return caught.value


def line_of_the_call() -> str:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    [number] = [n for n, line in enumerate(lines, start=1) if line.endswith("# the call")]
    return f"{HERE}:{number}"


# --- order, and each record once ----------------------------------------------------------------------------


def test_ordered_results_are_in_the_order_of_their_records_though_answers_are_not(service: Service) -> None:
    result = through(Ask(service, scattered), Script(NUMBERS, type_info=Types.LONG()))
    assert result["out"] == NUMBERS
    assert service.asked == Counter(NUMBERS)


def test_unordered_results_are_emitted_in_the_order_of_answers_each_once(service: Service) -> None:
    first_comes_late = Ask(service, behaviour=lambda number: "after-40" if number == 0 else "ok")
    result = through(first_comes_late, Script(NUMBERS), wait=AsyncDataStream.unordered_wait, capacity=10)
    assert result["out"].index(0) >= 30, "when the last call began, all but ten were done"
    assert sorted(result["out"]) == NUMBERS


@pytest.mark.parametrize("wait", [AsyncDataStream.ordered_wait, AsyncDataStream.unordered_wait])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("epoch_records", [None, 3])
def test_the_answer_is_the_same_at_any_parallelism_and_epoch_size(
    service: Service, wait: Callable[..., DataStream], parallelism: int, epoch_records: int | None
) -> None:
    script = Script(NUMBERS[:20], NUMBERS[20:], type_info=Types.LONG())
    result = through(
        Ask(service, scattered), script, wait=wait, parallelism=parallelism, epoch_records=epoch_records, capacity=7
    )
    assert sorted(result["out"]) == NUMBERS


def test_concurrent_calls_use_the_capacity_and_never_exceed_it(service: Service) -> None:
    through(Ask(service, scattered, lambda number: "after-8"), Script(NUMBERS), capacity=8)
    assert service.most_at_once == 8


def test_calls_of_several_batches_run_concurrently(service: Service) -> None:
    """Three splits of one epoch are three batches: none waits for the previous one."""
    through(Ask(service, behaviour=lambda number: "after-3"), Script([1], [2], [3]))
    assert service.most_at_once == 3


def test_no_result_crosses_a_watermark_or_leaves_its_epoch(service: Service) -> None:
    slow_first = Ask(service, lambda number: 50 if number < 3 else 0)
    result = through(slow_first, Script([1, 2, Watermark(5), 3, EPOCH, 4]), wait=AsyncDataStream.unordered_wait)
    assert (sorted(result["out"][:2]), result["out"][2:]) == ([1, 2], [3, 4])
    assert [record.epoch for record in result.of("out")] == [1, 1, 2, 3]


def test_a_crash_repeats_the_calls_of_its_epoch_and_no_others(service: Service) -> None:
    script = Script([1, 2, EPOCH, 3, 4, CRASH, 5])
    result = through(Ask(service, scattered), script)
    assert (result["out"], result.restarts) == ([1, 2, 3, 4, 5], 1)
    assert (service.asked[1], service.asked[2]) == (1, 1), "their epoch was committed"
    assert service.asked[5] == 1


AT_ONCE_MIN = 6


class FirstWaits(AsyncFunction[int, int]):
    """The first record is answered when the others have progressed as far as they can, with that progress."""

    def open(self, runtime_context: Any) -> None:
        self.begun = 0

    async def async_invoke(self, value: int) -> list[int]:
        self.begun += 1
        if value:
            return [value]
        before, deadline_s = 0, time.monotonic() + 30
        while before < self.begun or (self.begun < AT_ONCE_MIN and time.monotonic() < deadline_s):
            before = self.begun
            await asyncio.sleep(0.1)
        return [self.begun]


def test_results_waiting_for_an_earlier_one_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.runtime.operators.epoch_calls._OUT_OF_ORDER_MAX", 5)
    monkeypatch.setattr("millstream.runtime.operators.epoch_calls._FINISHED_MAX", 2)
    begun, *rest = through(FirstWaits(), Script(NUMBERS), capacity=4)["out"]
    assert AT_ONCE_MIN <= begun <= 1 + 5 + 4
    assert rest == NUMBERS[1:]


class Spread(AsyncFunction[int, int]):
    """As many results as the number's value."""

    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(0)
        return [value] * value


class Stamped(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        return [(value, ctx.timestamp())]


def test_results_have_the_timestamp_of_their_record() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value * 7)

    def build(env: StreamExecutionEnvironment) -> None:
        stamped = env.add_source(Script([0, 1, 2])).assign_timestamps_and_watermarks(strategy)
        AsyncDataStream.ordered_wait(stamped, Spread(), Time.seconds(9)).process(Stamped()).sink_to(Collect("out"))

    assert run(build)["out"] == [(1, 7), (2, 14), (2, 14)]


def test_a_keyed_stream_keeps_its_keys_together_and_chains_with_what_follows(service: Service) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        keyed = env.add_source(Script(NUMBERS[:20], NUMBERS[20:])).key_by(lambda number: number % 5)
        answers = AsyncDataStream.ordered_wait(keyed, Ask(service, scattered), Time.seconds(9))
        answers.map(lambda number: number + 1).sink_to(Collect("out"))

    result = run(build, parallelism=2)
    places = {(record.value - 1) % 5: record.subtask for record in result.of("out")}
    assert sorted(result["out"]) == [number + 1 for number in NUMBERS]
    assert all(places[(record.value - 1) % 5] == record.subtask for record in result.of("out"))


class Replies(AsyncFunction[tuple[int, int, int], int]):
    """A record specifies the delay of its answer, and its results."""

    async def async_invoke(self, value: tuple[int, int, int]) -> list[int]:
        delay_ms, count, number = value
        for _ in range(delay_ms):
            await asyncio.sleep(0.001)
        return [number] * count


@settings(max_examples=40, deadline=None)
@given(
    records=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30),
    capacity=st.integers(1, 9),
    epoch_records=st.integers(1, 30),
    crash_at=st.integers(0, 30),
    ordered=st.booleans(),
)
def test_any_calls_emit_the_same_results_as_a_flat_map(
    records: list[tuple[int, int]], capacity: int, epoch_records: int, crash_at: int, ordered: bool
) -> None:
    script: list[Any] = [(*record, number) for number, record in enumerate(records)]
    expected = [number for _, count, number in script for _ in range(count)]
    script.insert(crash_at, CRASH)
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
    result = through(Replies(), Script(script), wait=wait, capacity=capacity, epoch_records=epoch_records)
    assert (result["out"] if ordered else sorted(result["out"])) == expected


# --- failures, retries, time-outs ---------------------------------------------------------------------------


def test_a_failing_service_fails_the_job_with_the_record_and_the_users_traceback(service: Service) -> None:
    error = fails(Ask(service, behaviour=lambda number: "fail-9" if number == 3 else "ok"), Script([1, 2, 3, 4]))
    report = error.report.splitlines()
    assert "Unavailable: the service is not there for 3" in report
    assert "  record    3" in report
    assert "raise Unavailable(" in error.report
    assert f"  program   {line_of_the_call()}" in report
    assert "asyncio/" not in error.report and "millstream/runtime" not in error.report, "only the user's own frames"


def test_a_service_that_fails_at_first_is_retried_and_nothing_is_lost(service: Service) -> None:
    result = through(
        Ask(service, scattered, lambda number: f"fail-{number % 3}"),
        Script(NUMBERS),
        wait=AsyncDataStream.ordered_wait_with_retry,
        retry=AsyncRetryStrategy.fixed_delay(2, 5, None, has_exception_predicate),
    )
    assert result["out"] == NUMBERS
    assert all(service.asked[number] == 1 + number % 3 for number in NUMBERS)


def test_retries_are_limited(service: Service) -> None:
    retry = AsyncRetryStrategy.exponential_backoff(3, 1, 10, 2.0, None, has_exception_predicate)
    wait = AsyncDataStream.unordered_wait_with_retry
    error = fails(Ask(service, behaviour=lambda number: "fail-99"), Script([7]), wait=wait, retry=retry)
    assert "Unavailable" in error.report
    assert service.asked[7] == 4, "once, and three times more"


def test_an_error_outside_the_strategy_is_not_retried(service: Service) -> None:
    retry = AsyncRetryStrategy.fixed_delay(3, 1, None, lambda error: isinstance(error, KeyError))
    wait = AsyncDataStream.ordered_wait_with_retry
    fails(Ask(service, behaviour=lambda number: "fail-1"), Script([7]), wait=wait, retry=retry)
    assert service.asked[7] == 1


def test_a_result_can_trigger_a_retry_and_the_last_one_counts(service: Service) -> None:
    result = through(
        Ask(service, behaviour=lambda number: f"empty-{number}"),
        Script([1, 2, 3]),
        wait=AsyncDataStream.ordered_wait_with_retry,
        retry=AsyncRetryStrategy.fixed_delay(2, 1, empty_result_predicate),
    )
    assert result["out"] == [1, 2], "3 was still empty after two further tries"
    assert service.asked == Counter({1: 2, 2: 3, 3: 3})


def test_a_hanging_call_fails_the_job_after_its_time_out(service: Service) -> None:
    hangs = Ask(service, behaviour=lambda number: "hang" if number == 2 else "ok")
    error = fails(hangs, Script([1, 2, 3]), timeout=Time.milliseconds(2000))
    assert "TimeoutError: the asynchronous call for 2 took too long" in error.report
    assert "override timeout()" in error.report


class AskOrGuess(Ask):
    def timeout(self, value: int) -> list[int]:
        return [-value]


def test_timeout_replaces_late_results(service: Service) -> None:
    hangs = AskOrGuess(service, behaviour=lambda number: "hang" if number % 2 else "ok")
    result = through(hangs, Script([1, 2, 3, 4]), timeout=Time.milliseconds(3000))
    assert result["out"] == [-1, 2, -3, 4]


def test_the_time_out_covers_all_retries_together(service: Service) -> None:
    result = through(
        AskOrGuess(service, behaviour=lambda number: "fail-9999"),
        Script([5]),
        wait=AsyncDataStream.ordered_wait_with_retry,
        retry=AsyncRetryStrategy.fixed_delay(9999, 20, None, has_exception_predicate),
        timeout=Time.milliseconds(300),
    )
    assert result["out"] == [-5]


class GivesUp(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        raise asyncio.CancelledError


class CancelsAll(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        return [value]


class OwnTimeout(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        raise TimeoutError("of the client")

    def timeout(self, value: int) -> list[int]:
        return [value]


@pytest.mark.parametrize("function", [GivesUp(), CancelsAll()])
def test_a_function_that_cancels_calls_loses_no_record(function: AsyncFunction[int, int]) -> None:
    assert "CancelledError" in fails(function, Script([1, 2, 3])).report


def test_a_time_out_of_the_users_own_client_is_an_error_like_others() -> None:
    assert "TimeoutError: of the client" in fails(OwnTimeout(), Script([1])).report


def test_a_failed_epoch_leaves_earlier_commits_unchanged(service: Service) -> None:
    function = Ask(service, behaviour=lambda number: "fail-1" if number == 3 else "ok")
    fails(function, Script([1, 2, EPOCH, 3]), store="async-failed")
    assert service.asked[1] == 1
    result = through(function, Script([1, 2, EPOCH, 3]), store="async-failed")
    assert result["out"][-1] == 3
    assert service.asked == Counter({1: 1, 2: 1, 3: 2})


# --- open and close -----------------------------------------------------------------------------------------

TOLD: list[str] = []


class SharesAClient(AsyncFunction[int, int]):
    """An object created in open() belongs to the loop of the calls."""

    async def open(self, runtime_context: Any) -> None:  # type: ignore[override]
        self.loop, self.lock = asyncio.get_running_loop(), asyncio.Lock()
        TOLD.append("open")

    async def async_invoke(self, value: int) -> list[int]:
        assert asyncio.get_running_loop() is self.loop
        async with self.lock:
            await asyncio.sleep(0)
        return [value]

    async def close(self) -> None:  # type: ignore[override]
        assert asyncio.get_running_loop() is self.loop
        TOLD.append("close")


def test_open_and_close_run_on_the_loop_of_the_calls_once() -> None:
    TOLD.clear()
    result = through(SharesAClient(), Script([1, 2, EPOCH, 3]))
    assert (result["out"], TOLD) == ([1, 2, 3], ["open", "close"])


class FailsToOpen(SharesAClient):
    async def open(self, runtime_context: Any) -> None:  # type: ignore[override]
        raise OSError("nobody answers")


def test_an_exception_in_open_fails_the_job_and_leaves_no_thread_behind() -> None:
    assert "nobody answers" in fails(FailsToOpen(), Script([1])).report
    assert not _threads()


@pytest.mark.parametrize("epochs", [None, 2])
def test_no_thread_is_left_when_the_job_has_ended_or_was_stopped(service: Service, epochs: int | None) -> None:
    result = through(Ask(service), Script([1, EPOCH, 2, EPOCH, 3]), epochs=epochs)
    assert result.status == ("FINISHED" if epochs is None else "SUSPENDED")
    del result
    gc.collect()
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s and _threads():
        time.sleep(0.01)  # a stopped loop stops at its next step
    assert not _threads()


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "async calls of ask"]


class Hangs(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        TOLD.append("begun")
        try:
            await asyncio.sleep(60)
        finally:
            TOLD.append("cancelled")
        return [value]


def fails_when_calls_are_under_way(number: int) -> int:
    while TOLD != ["begun", "begun"]:
        time.sleep(0.01)
    return 1 // 0


def test_calls_of_an_attempt_that_failed_in_another_task_are_cancelled() -> None:
    TOLD.clear()

    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Script([1, 2]))
        AsyncDataStream.ordered_wait(numbers, Hangs(), Time.seconds(50)).name("ask").sink_to(Collect())
        numbers.map(fails_when_calls_are_under_way).sink_to(Collect())

    with pytest.raises(JobFailedError, match="ZeroDivisionError"):
        run(build)
    assert TOLD == ["begun", "begun", "cancelled", "cancelled"]
    assert not _threads()


# --- bad functions and settings -----------------------------------------------------------------------------


class NoList(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        return value  # type: ignore[return-value]


def test_a_result_that_is_no_list_is_rejected_with_its_record() -> None:
    report = fails(NoList(), Script([5])).report
    assert "async_invoke() returned 5 (int), expected a list of results. Return [value] for one" in report
    assert "  record    5" in report
    assert line_of_the_call() in report


class WrongType(AsyncFunction[int, Any]):
    async def async_invoke(self, value: int) -> list[Any]:
        return ["five"]


def test_a_result_of_another_type_than_declared_is_rejected() -> None:
    assert "  record    'five'" in fails(WrongType(), Script([5])).report


class EndsTheLoop(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        asyncio.get_running_loop().call_soon(sys.exit)
        await asyncio.sleep(60)
        return [value]


def test_a_function_that_ends_the_loop_fails_the_job() -> None:
    assert "code on the event loop stopped it" in fails(EndsTheLoop(), Script([1])).report


class Exits(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        raise SystemExit(3)


def test_a_function_that_exits_fails_the_job_and_not_the_process() -> None:
    assert "the function called sys.exit(3)" in fails(Exits(), Script([1])).report


class Blocks(AsyncFunction[int, int]):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def async_invoke(self, value: int) -> list[int]:
        time.sleep(self.seconds)
        return [value]


def test_a_function_that_blocks_the_loop_is_reported_in_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        result = through(Blocks(1.2), Script([1]))
    assert result["out"] == [1]
    assert f"Blocks.async_invoke() of 'ask' ({line_of_the_call()}) blocks its event loop" in caplog.text


def test_a_function_that_blocks_beyond_its_time_out_fails_the_job() -> None:
    report = fails(Blocks(2.5), Script([1]), timeout=Time.milliseconds(100)).report
    assert "async_invoke() blocks the event loop" in report and "asyncio.to_thread" in report
    assert "  record    1" in report


class NotAsync(AsyncFunction[int, int]):
    def async_invoke(self, value: int) -> list[int]:  # type: ignore[override]
        return [value]


class Plain(MapFunction):
    def map(self, value: int) -> int:
        return value


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"async_function": NotAsync()}, "async_invoke.. of NotAsync is not asynchronous. Write it with async def"),
        ({"async_function": Plain()}, "found a MapFunction .Plain., expected AsyncFunction"),
        ({"async_function": NoList}, "found the class NoList, expected AsyncFunction. Pass an instance"),
        ({"capacity": 0}, "ordered_wait_with_retry, capacity: found 0, expected a whole number of at least 1"),
        ({"timeout": Time.seconds(0)}, "timeout: found Time.milliseconds.0., expected at least 1 ms"),
        ({"timeout": timedelta(seconds=-1)}, "timeout: found .*, expected at least 1 ms"),
        ({"timeout": 5}, "expected a length of time, found 5"),
        ({"async_retry_strategy": 3}, "found 3 .int., expected an AsyncRetryStrategy"),
        ({"data_stream": [1]}, "found .1. .list., expected a DataStream"),
        ({"output_type": Types.LONG}, "Call it: Types.NAME"),
    ],
)
def test_a_wrong_argument_is_rejected_at_the_users_line(wrong: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {
        "data_stream": StreamExecutionEnvironment().from_collection([1]),
        "async_function": NoList(),
        "timeout": Time.seconds(1),
        "async_retry_strategy": AsyncRetryStrategy.no_restart(),
    }
    with pytest.raises(ProgramError, match=words) as caught:
        AsyncDataStream.ordered_wait_with_retry(**(given | wrong))
    assert str(caught.value).endswith(")") and HERE in str(caught.value)


def test_an_unpicklable_retry_strategy_is_reported() -> None:
    lock = threading.Lock()
    retry = AsyncRetryStrategy.fixed_delay(1, 1, None, lambda error: lock.locked())
    with pytest.raises(ProgramError, match="cannot be pickled"):
        through(NoList(), Script([1]), wait=AsyncDataStream.ordered_wait_with_retry, retry=retry)


def test_the_example_of_the_page_runs() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "datastream" / "async.md"
    [example] = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, str(page), "exec"), names)
    out = Collect()
    result = run(lambda env: names["prices"](env.add_source(Script(["tea", "bread"]))).sink_to(out))
    assert result[out] == [("tea", 3), ("bread", 5)]


def test_the_plan_shows_the_settings_of_calls() -> None:
    env = StreamExecutionEnvironment()
    retry = AsyncRetryStrategy.fixed_delay(1, 1)
    numbers = env.from_collection([1])
    AsyncDataStream.unordered_wait_with_retry(numbers, NoList(), Time.seconds(5), retry, 50).sink_to(Collect())
    expected = "calls up to 50 at once, 5000 ms each, unordered, FixedDelayRetryStrategy  → pickled values"
    assert expected in explain(env._graph("plan"))
