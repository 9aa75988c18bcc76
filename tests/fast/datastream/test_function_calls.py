"""A function that its operator cannot call, or whose result nobody takes, is refused at the line that passes it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from millstream.datastream import ConnectedStreams, DataStream, StreamExecutionEnvironment, functions
from millstream.datastream.functions import (
    AggregateFunction,
    CoMapFunction,
    Function,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
)
from millstream.datastream.streams.function_calls import check_calls
from millstream.datastream.window import CountTumblingWindowAssigner
from millstream.errors import ProgramError


def numbers() -> DataStream:
    return StreamExecutionEnvironment().from_collection([1, 2])


def connected(stream: DataStream) -> ConnectedStreams:
    return stream.connect(stream.map(lambda n: n))


def yields(value: Any) -> Any:
    yield value


class Swapped(ProcessFunction):
    def process_element(self, ctx: Any, value: Any) -> Any:
        yield value


class KeyedSwapped(KeyedProcessFunction):
    def process_element(self, context: Any, value: Any) -> Any:
        yield value


class YieldingMap(MapFunction):
    def map(self, value: Any) -> Any:
        yield value


class YieldingCoMap(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        yield value


class ForgetfulAdd(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any) -> int:  # type: ignore[override]
        return 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


async def awaits(value: Any) -> Any:
    return value


REFUSALS: dict[str, tuple[Callable[[], Any], str]] = {
    "yield in map": (lambda: numbers().map(yields), r"map: the function yields yields.*or use flat_map\(\)"),
    "yield in a map class": (lambda: numbers().map(YieldingMap()), r"YieldingMap.map\(\) yields"),
    "yield in a keyed map class": (
        lambda: numbers().key_by(lambda n: n).map(YieldingMap()),
        r"YieldingMap.map\(\) yields",
    ),
    "yield in filter": (lambda: numbers().filter(yields), "filter: .* yields"),
    "yield in key_by": (lambda: numbers().key_by(yields), "key_by: .* yields"),
    "yield in map2": (lambda: connected(numbers()).map(YieldingCoMap()), r"YieldingCoMap.map2\(\) yields"),
    "async def": (lambda: numbers().map(awaits), "awaits is an async def"),
    "two arguments": (lambda: numbers().map(lambda a, b: a), r"the lambda takes \(a, b\), expected one argument"),
    "one argument": (lambda: numbers().key_by(lambda n: n).reduce(lambda a: a), "expected 2 arguments"),
    "swapped": (lambda: numbers().process(Swapped()), r"the context parameter is misplaced, expected \(value, ctx\)"),
    "swapped, keyed": (
        lambda: numbers().key_by(lambda n: n).process(KeyedSwapped()),
        "the context parameter is misplaced",
    ),
    "an aggregate": (
        lambda: numbers().key_by(lambda n: n).window(CountTumblingWindowAssigner.of(2)).aggregate(ForgetfulAdd()),
        r"ForgetfulAdd.add\(\) takes \(value: .*expected 2 arguments: \(value, accumulator\)",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_it_is_refused_at_the_users_line(name: str) -> None:
    build, words = REFUSALS[name]
    with pytest.raises(ProgramError, match=words) as caught:
        build()
    assert (caught.value.at or "").startswith("test_function_calls.py:")


def test_what_can_be_called_is_taken_whatever_it_is() -> None:
    class Callable_:  # noqa: N801
        def __call__(self, value: int, scale: int = 2) -> int:
            return value * scale

    for function in (str, len, max, functools.partial(pow, 2), Callable_(), lambda *values: values, "x".join):
        numbers().map(function)
    numbers().flat_map(yields)
    numbers().key_by(lambda n: n).reduce(max)


class SetsTimers(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp


class NeverYields(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        self.last = timestamp


def test_a_function_of_which_one_method_gives_records_may_have_others_that_give_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keyed = numbers().key_by(lambda n: n)
    keyed.process(SetsTimers())
    numbers().flat_map(lambda n: None)
    assert caplog.messages == []
    keyed.process(NeverYields())
    assert "NeverYields.process_element() neither yields nor returns" in caplog.text


FUNCTION_CLASSES = [
    kind
    for kind in map(functions.__dict__.get, functions.__all__)
    if isinstance(kind, type) and issubclass(kind, Function) and not kind.__name__.startswith(("Function", "Internal"))
]


@pytest.mark.parametrize(
    "names", [("ctx", "c", "cc", "x"), ("context", "b", "a", "x"), ("a", "out1", "context", "ctx")]
)
@pytest.mark.parametrize("kind", FUNCTION_CLASSES, ids=lambda kind: kind.__name__)
def test_names_of_parameters_are_the_users(kind: type[Function], names: tuple[str, ...]) -> None:
    methods = {
        name: eval(f"lambda {', '.join(('self', *names)[: len(inspect.signature(method).parameters)])}: [0]")
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }
    made = type("Made", (kind,), methods)
    check_calls("it", made.__new__(made), kind)
