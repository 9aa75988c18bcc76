"""Keyed process functions: time-to-live, processing-time timers, and rejected programs.

The programs of `programs/stateful.py` test the states themselves, at every parallelism and epoch size.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from inputs.fresh_names import fresh_name

from millstream.common import Duration, RestartStrategies, Types
from millstream.datastream import DataStream
from millstream.datastream.functions import KeyedProcessFunction, ProcessFunction
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.errors import JobFailedError
from millstream.storage.store import open_store
from millstream.testing import CRASH, EPOCH, Collect, ManualClock, Pause, Result, Script, run

SECOND = 1_000


def run_function(function: Any, items: list[Any], clock: ManualClock | None = None, **options: Any) -> list[Any]:
    """The output of `function` for `items`, all of one key, in one subtask."""
    return result_of(function, items, clock, **options)[0]


def result_of(
    function: Any, items: list[Any], clock: ManualClock | None = None, **options: Any
) -> tuple[list[Any], Result]:
    clock = clock or ManualClock()
    out = Collect()

    def build(env: Any) -> None:
        stream: DataStream = env.add_source(Script(items, type_info=Types.LONG(), clock=clock))
        stream.key_by(lambda n: "key", Types.STRING()).process(function).sink_to(out)

    result = run(build, parallelism=1, clock=clock, **options)
    return result[out], result


class CountWithTtl(KeyedProcessFunction):
    """The count so far, in a state with a TTL."""

    def __init__(self, ttl: StateTtlConfig) -> None:
        self.ttl = ttl

    def open(self, runtime_context: Any) -> None:
        descriptor = ValueStateDescriptor("count", Types.LONG())
        descriptor.enable_time_to_live(self.ttl)
        self.count = runtime_context.get_state(descriptor)

    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        count = (self.count.value() or 0) + 1
        if value >= 0:
            self.count.update(count)
        yield count


def ttl(seconds: int) -> Any:
    return StateTtlConfig.new_builder(Duration.of_seconds(seconds))


def test_a_value_expires_when_its_ttl_has_passed() -> None:
    items = [1, Pause(4 * SECOND), 2, Pause(4 * SECOND), 3, Pause(6 * SECOND), 4]
    assert run_function(CountWithTtl(ttl(5).build()), items) == [1, 2, 3, 1]


def test_reading_renews_a_ttl_only_if_configured() -> None:
    items = [1, Pause(3 * SECOND), -2, Pause(3 * SECOND), -3]
    assert run_function(CountWithTtl(ttl(5).build()), items) == [1, 2, 1]
    assert run_function(CountWithTtl(ttl(5).update_ttl_on_read_and_write().build()), items) == [1, 2, 2]


def test_an_expired_value_may_be_read_until_cleanup_if_configured() -> None:
    items = [1, Pause(6 * SECOND), 2]
    assert run_function(CountWithTtl(ttl(5).return_expired_if_not_cleaned_up().build()), items) == [1, 2]


class ListAndMapWithTtl(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        values = ListStateDescriptor("values", Types.LONG())
        names = MapStateDescriptor("names", Types.LONG(), Types.STRING())
        for descriptor in (values, names):
            descriptor.enable_time_to_live(ttl(5).build())
        self.values = runtime_context.get_list_state(values)
        self.names = runtime_context.get_map_state(names)

    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        self.values.add(value)
        self.names.put(value, str(value))
        yield list(self.values.get()), sorted(self.names.items())


def test_elements_and_entries_expire_one_by_one() -> None:
    items = [1, Pause(3 * SECOND), 2, Pause(3 * SECOND), 3]
    outputs = run_function(ListAndMapWithTtl(), items)
    assert outputs[1] == ([1, 2], [(1, "1"), (2, "2")])
    assert outputs[2] == ([2, 3], [(2, "2"), (3, "3")])


class Reminder(KeyedProcessFunction):
    """Emits a number again two seconds of processing time after it arrived."""

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> None:
        self.last.update(value)
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 2 * SECOND)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield self.last.value(), timestamp, ctx.time_domain().name


def test_a_processing_time_timer_fires_before_the_records_of_its_epoch() -> None:
    outputs = run_function(Reminder(), [1, Pause(2 * SECOND), 2, Pause(3 * SECOND), 3])
    assert outputs == [(1, 2 * SECOND, "PROCESSING_TIME"), (2, 4 * SECOND, "PROCESSING_TIME")]


def test_processing_time_timers_that_are_not_due_do_not_fire_at_the_end() -> None:
    assert run_function(Reminder(), [1, EPOCH, 2]) == []


def test_the_manifest_has_the_time_of_the_next_timer_and_the_states() -> None:
    _, result = result_of(Reminder(), [1, EPOCH, 2])
    account = next(state["subtasks"]["0"] for state in result.manifests[0].states.values() if "subtasks" in state)
    assert account["wake_ms"] == 2 * SECOND
    assert set(account["tables"]) == {"last", "processing timers"}


class Broken(KeyedProcessFunction):
    """Makes one mistake."""

    def __init__(self, wrong: str) -> None:
        self.wrong = wrong

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.anything = runtime_context.get_state(ValueStateDescriptor("anything", Types.PICKLED_BYTE_ARRAY()))
        if self.wrong == "another type":
            runtime_context.get_state(ValueStateDescriptor("total", Types.STRING()))
        if self.wrong == "in open":
            self.total.value()

    def process_element(self, value: int, ctx: Any) -> None:
        if self.wrong == "wrong type":
            self.total.update("ten")
        if self.wrong == "unpicklable":
            self.anything.update(lambda: value)
        if self.wrong == "timer":
            ctx.timer_service().register_event_time_timer(1.5)
        if self.wrong == "raises":
            raise ValueError("no")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("another type", r"state 'total' of 'KEYED PROCESS' was declared as .*Give the second one another name"),
        ("in open", r"keyed state was used outside a keyed call"),
        ("wrong type", r"state 'total' of 'KEYED PROCESS': 'ten' \(str\) does not fit LONG"),
        ("unpicklable", r"state 'anything' of 'KEYED PROCESS': a value cannot be pickled"),
        ("timer", r"a timer was set for 1.5 \(float\)"),
        ("raises", r"ValueError: no"),
    ],
)
def test_a_misuse_of_state_is_reported_with_operator_and_line(wrong: str, words: str) -> None:
    with pytest.raises(JobFailedError, match=words) as caught:
        run_function(Broken(wrong), [7])
    assert "test_keyed_process.py" in str(caught.value)


class SetsATimer(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(1)


class RequestsState(ProcessFunction):
    def open(self, runtime_context: Any) -> None:
        runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> None:
        return None


@pytest.mark.parametrize("function", [SetsATimer(), RequestsState()])
def test_errors_for_timers_and_state_without_a_key_advise_key_by(function: ProcessFunction) -> None:
    with pytest.raises(JobFailedError, match=r"key_by"):
        run(lambda env: env.from_collection([1]).process(function).sink_to(Collect()), parallelism=1)


def test_a_key_selector_that_raises_shows_the_record() -> None:
    out = Collect()

    def build(env: Any) -> None:
        env.from_collection([1, 0]).key_by(lambda n: 1 / n).process(Reminder()).sink_to(out)

    with pytest.raises(JobFailedError, match="division by zero") as caught:
        run(build, parallelism=1)
    assert "record    0" in caught.value.report


def test_a_damaged_segment_stops_the_job_with_the_newest_intact_epoch() -> None:
    name = fresh_name("damaged")
    items = [1, EPOCH, 2, EPOCH, 3, EPOCH, 4]
    with pytest.raises(JobFailedError):
        run_function(
            CountWithTtl(ttl(500).build()), [*items[:5], CRASH], store=name, restart=RestartStrategies.no_restart()
        )
    store = open_store(f"memory://{name}")
    newest = store.list("segments")[-1]
    data = store.get(newest)
    store.put(newest, data[:64] + bytes(byte ^ 255 for byte in data[64:96]) + data[96:])
    with pytest.raises(JobFailedError, match=r"state 'count'|State 'count'") as caught:
        run_function(CountWithTtl(ttl(500).build()), items, store=name)
    message = str(caught.value)
    assert newest in message and "The newest intact epoch is" in message
    assert store.get(newest)[64:96] != data[64:96], "nothing was overwritten"
