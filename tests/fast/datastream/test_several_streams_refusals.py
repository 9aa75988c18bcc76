"""Invalid programs of several streams are rejected at the offending line, with the remedy.

Errors detectable only at run time fail the job with the record, the operator and the line.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
from waits.refusals import Refused

from millstream.common import Time, Types, WatermarkStrategy
from millstream.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from millstream.datastream.aggregates import Aggregates, count
from millstream.datastream.functions import (
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessWindowFunction,
)
from millstream.datastream.state import MapStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import JobFailedError
from millstream.testing import Collect, Script, run

ODD = OutputTag("odd", Types.LONG())
LARGE = OutputTag("large")
LATE = OutputTag("late", Types.LONG())
TAGS = types.SimpleNamespace(by_name={"odd": ODD, "large": LARGE})
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


@pytest.fixture
def numbers() -> DataStream:
    return StreamExecutionEnvironment().from_collection([1, 2, 3], Types.LONG())


# --- side outputs that are never emitted ------------------------------------------------------------------------------


class Plain(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        yield value


class YieldsOdd(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        yield (ODD, value) if value % 2 else value


class FromATimer(KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(1)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield LARGE, timestamp


class FromTwo(CoProcessFunction):
    def process_element1(self, value: int, ctx: Any) -> Any:
        yield ODD, value

    def process_element2(self, value: int, ctx: Any) -> Any:
        yield value


class FromWindows(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield LARGE, key


def windows(stream: DataStream) -> Any:
    timed = stream.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
    )
    return timed.key_by(lambda n: n % 2, Types.LONG()).window(TumblingEventTimeWindows.of(Time.milliseconds(5)))


class ImportsPythons(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        import json
        from datetime import datetime

        yield json.dumps(value), datetime


class ImportsOthers(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        import importlib

        yield importlib.import_module("tags").ODD, value


def test_imports_of_standard_modules_do_not_disable_tag_detection(numbers: DataStream) -> None:
    with Refused("'PROCESS' never emits to side output 'odd'; it has none"):
        numbers.process(ImportsPythons()).get_side_output(ODD)
    numbers.process(ImportsOthers()).get_side_output(ODD)


def test_a_side_output_never_emitted_by_the_function_is_rejected(numbers: DataStream) -> None:
    with Refused("'PROCESS' never emits to side output 'odd'; it has none", "yield tag, value"):
        numbers.process(Plain()).get_side_output(ODD)
    with Refused("never emits to side output 'od'; it has ['odd']", "Use the OutputTag"):
        numbers.process(YieldsOdd()).get_side_output(OutputTag("od"))
    with Refused("never emits to side output 'odd'; it has ['large']"):
        numbers.key_by(lambda n: n).process(FromATimer()).get_side_output(ODD)
    with Refused("never emits to side output 'large'; it has ['odd']"):
        numbers.connect(numbers).process(FromTwo()).get_side_output(LARGE)
    with Refused("found 'odd', expected an OutputTag"):
        numbers.process(YieldsOdd()).get_side_output("odd")  # type: ignore[arg-type]


def test_windows_have_the_side_outputs_of_their_function_and_of_late_records(numbers: DataStream) -> None:
    with Refused("never emits to side output 'late'; it has ['large']", "side_output_late_data(tag) before"):
        windows(numbers).process(FromWindows()).get_side_output(LATE)
    with Refused("never emits to side output 'late'; it has none", "side_output_late_data(tag) before"):
        windows(numbers).reduce(max).get_side_output(LATE)
    with Refused("has no side outputs", "side_output_late_data(tag) before aggregate()"):
        windows(numbers).aggregate(Aggregates(n=count())).get_side_output(LATE)
    late = windows(numbers).side_output_late_data(LATE)
    late.reduce(max).get_side_output(LATE)
    late.process(FromWindows()).get_side_output(LATE)
    with Refused("'late'", "is LONG where it is emitted and STRING here", "the same OutputTag"):
        late.process(FromWindows()).get_side_output(OutputTag("late", Types.STRING()))


class Base(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        yield from self.route(value)

    def route(self, value: int) -> Any:
        raise NotImplementedError


class Inherits(Base):
    def route(self, value: int) -> Any:
        yield tagged(value)


def tagged(value: int) -> tuple[OutputTag, int]:
    return TAGS.by_name["odd"], value


class Holds(ProcessFunction):
    def __init__(self, held: Any) -> None:
        self.held = held

    def process_element(self, value: int, ctx: Any) -> Any:
        yield self.held, value


class MakesTags(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        yield OutputTag("odd"), value


class Imports(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        from somewhere import tag  # type: ignore[import-not-found]

        yield tag, value


class Lookup(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        yield getattr(TAGS, "by" + "_name")["odd"], value


class Undefined(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        yield DEFINED_LATER, value  # type: ignore[name-defined]  # noqa: F821


def closure() -> ProcessFunction:
    tag = ODD

    class Captures(ProcessFunction):
        def process_element(self, value: int, ctx: Any) -> Any:
            return [(tag, item) for item in [value]]

    return Captures()


def from_a_text() -> Any:
    """As in a notebook or an interpreter: the class claims a module that does not contain it."""
    names: dict[str, Any] = {"ProcessFunction": ProcessFunction, "ODD": ODD}
    exec("class Defined(ProcessFunction):\n    def process_element(self, value, ctx):\n        yield ODD, value", names)
    assert names["Defined"].__module__ == "builtins"
    return names["Defined"]()


@pytest.mark.parametrize(
    "function",
    [
        from_a_text(),
        Inherits(),
        Holds(ODD),
        Holds({"tags": [(ODD,)]}),
        Holds(functools.partial(tagged, 1)),
        Holds(types.SimpleNamespace(odd=ODD)),
        closure(),
        MakesTags(),
        Imports(),
        Lookup(),
        Undefined(),
    ],
    ids=lambda function: type(function).__name__,
)
def test_a_possibly_emitted_side_output_is_never_rejected(numbers: DataStream, function: ProcessFunction) -> None:
    numbers.process(function).get_side_output(ODD)


# --- tags of the wrong type -------------------------------------------------------------------------------------------


def test_a_tag_read_with_a_type_other_than_emitted_is_rejected(numbers: DataStream) -> None:
    with Refused("side output 'odd' of 'PROCESS' is LONG where it is emitted and STRING here", "same OutputTag"):
        numbers.process(YieldsOdd()).get_side_output(OutputTag("odd", Types.STRING()))
    numbers.process(YieldsOdd()).get_side_output(OutputTag("odd"))


class YieldsTexts(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        yield ODD, f"number {value}"


class YieldsAnother(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        yield OutputTag("odd", Types.STRING()), value


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (YieldsTexts(), ["'number 7'", "LONG", "side output 'odd'"]),
        (YieldsAnother(), ["emitted as STRING and read as LONG", "Use the same OutputTag", "record    7"]),
    ],
)
def test_a_value_of_another_type_than_its_tag_fails_the_job(function: ProcessFunction, words: list[str]) -> None:
    def program(env: StreamExecutionEnvironment) -> None:
        env.add_source(Script([7])).process(function).get_side_output(ODD).sink_to(Collect())

    report = failed(program)
    assert all(word in report for word in [*words, "test_several_streams_refusals.py"]), report


def failed(program: Callable[[StreamExecutionEnvironment], None]) -> str:
    with pytest.raises(JobFailedError) as failure:
        run(program)
    return failure.value.report


# --- broadcast --------------------------------------------------------------------------------------------------------


class Informed(BroadcastProcessFunction):  # type: ignore[type-arg]
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(value, 1)


class InformedByKey(KeyedBroadcastProcessFunction):  # type: ignore[type-arg]
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        return None


def test_a_broadcast_stream_without_its_descriptor_is_rejected(numbers: DataStream) -> None:
    fix = "connect(stream.broadcast(state_descriptor)).process()"
    with Refused("found a BroadcastProcessFunction (Informed)", fix):
        numbers.connect(numbers.broadcast()).process(Informed())  # type: ignore[arg-type]
    with Refused("found a KeyedBroadcastProcessFunction", f"key_by(...).{fix}"):
        numbers.connect(numbers).process(InformedByKey())  # type: ignore[arg-type]
    with Refused("found a BroadcastProcessFunction (Informed)", fix):
        numbers.process(Informed())  # type: ignore[arg-type]


def test_an_unknown_broadcast_descriptor_fails_the_job_with_the_line() -> None:
    other = MapStateDescriptor("others", Types.STRING(), Types.LONG())

    def program(env: StreamExecutionEnvironment) -> None:
        rules = env.add_source(Script(["a"])).broadcast(other)
        env.add_source(Script([1])).connect(rules).process(Informed()).sink_to(Collect())

    report = failed(program)
    assert "has no broadcast state 'rules'; it has ['others']. Pass its descriptor to broadcast(...) too" in report
    assert "test_several_streams_refusals.py" in report and "record    'a'" in report
