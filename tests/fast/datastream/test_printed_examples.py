"""Programs of the kinds that PyFlink ships as examples print line by line what PyFlink prints.

The expected lines follow Flink's text rules (docs/datastream/text.md): a typed value is printed as in Java, an
untyped one as in Python. Three more programs are in `test_printed_programs`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from millstream.common import Row, Time, TypeInformation, Types, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import OutputTag, StreamExecutionEnvironment
from millstream.datastream.functions import (
    AggregateFunction,
    BroadcastProcessFunction,
    CoMapFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    WindowFunction,
)
from millstream.datastream.state import MapStateDescriptor, ValueStateDescriptor
from millstream.datastream.window import (
    CountWindow,
    EventTimeSessionWindows,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeWindow,
)
from millstream.testing import run

INT, LONG, STRING, DOUBLE = Types.INT(), Types.LONG(), Types.STRING(), Types.DOUBLE()
Program = Callable[[StreamExecutionEnvironment], None]
PROGRAMS: list[tuple[Program, str]] = []


def prints(text: str) -> Callable[[Program], Program]:
    """The lines that the program prints."""

    def register(program: Program) -> Program:
        PROGRAMS.append((program, "".join(f"{line.strip()}\n" for line in text.strip().splitlines())))
        return program

    return register


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def in_time(env: StreamExecutionEnvironment, values: list[Any], type_info: TypeInformation) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    return env.from_collection(values, type_info).assign_timestamps_and_watermarks(strategy)


# --- basic operations ---------------------------------------------------------------------------------------------

PEOPLE = [(1, '{"name": "Ann", "town": {"zip": 20}}'), (2, '{"name": "Bo", "town": {"zip": 10}}')]


@prints("""
    (1, 'Ann')
    (2, 'Bo')
""")
def map_without_a_type(env: StreamExecutionEnvironment) -> None:
    people = env.from_collection(PEOPLE, Types.ROW_NAMED(["id", "about"], [INT, STRING]))
    people.map(lambda person: (person.id, json.loads(person.about)["name"])).print()


@prints("""
    (1,Ann,20.0)
    (2,Bo,10.0)
""")
def map_to_a_tuple(env: StreamExecutionEnvironment) -> None:
    people = env.from_collection(PEOPLE, Types.TUPLE([INT, STRING]))

    def spread(person: tuple[int, str]) -> tuple[int, str, float]:
        about = json.loads(person[1])
        return person[0], about["name"], about["town"]["zip"]

    people.map(spread, Types.TUPLE([INT, STRING, DOUBLE])).print()


@prints("""
    +I[2,bo]
""")
def filter_rows(env: StreamExecutionEnvironment) -> None:
    rows = env.from_collection([Row(1, "ann"), Row(2, "bo")], Types.ROW_NAMED(["id", "name"], [INT, STRING]))
    rows.filter(lambda row: row.id % 2 == 0).print()


@prints("""
    (ads,1)
    (ads,3)
    (sea,5)
    (ads,7)
""")
def running_sums(env: StreamExecutionEnvironment) -> None:
    pairs = env.from_collection([("ads", 1), ("ads", 2), ("sea", 5), ("ads", 4)], Types.TUPLE([STRING, INT]))
    pairs.key_by(lambda pair: pair[0], STRING).sum(1).print()


@prints("""
    all> [1, 2]
    all> [3]
    each> 1
    each> 2
    each> 3
""")
def separate_lists(env: StreamExecutionEnvironment) -> None:
    lists = env.from_collection([[1, 2], [3]], Types.LIST(INT))
    lists.print("all")
    lists.flat_map(lambda values: iter(values), INT).print("each")


# --- text as JSON -------------------------------------------------------------------------------------------------


@prints("""
    {"id": 1, "words": 2}
    {"id": 2, "words": 1}
""")
def process_json_data(env: StreamExecutionEnvironment) -> None:
    lines = env.from_collection(['{"id": 1, "said": "to be"}', '{"id": 2, "said": "not"}'], STRING)

    def counted(line: str) -> str:
        document = json.loads(line)
        return json.dumps({"id": document["id"], "words": len(document["said"].split())})

    lines.map(counted, STRING).print()


# --- state --------------------------------------------------------------------------------------------------------


class Average(KeyedProcessFunction):
    """Emits the mean of every two values of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.TUPLE([LONG, LONG])))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        count, total = self.sum.value() or (0, 0)
        count, total = count + 1, total + value[1]
        if count < 2:
            self.sum.update((count, total))
        else:
            self.sum.clear()
            yield value[0], total / count


@prints("""
    (a,4.0)
    (b,1.5)
    (a,10.0)
""")
def state_access(env: StreamExecutionEnvironment) -> None:
    values = [("a", 3), ("b", 1), ("a", 5), ("b", 2), ("a", 9), ("a", 11), ("b", 7)]
    pairs = env.from_collection(values, Types.TUPLE([STRING, LONG]))
    pairs.key_by(lambda pair: pair[0], STRING).process(Average(), Types.TUPLE([STRING, DOUBLE])).print()


class Visits(KeyedProcessFunction):
    """Counts the visits of a user to each page."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.pages = runtime_context.get_map_state(MapStateDescriptor("pages", STRING, INT))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        user, page = value
        self.pages.put(page, (self.pages.get(page) or 0) + 1)
        yield user, dict(sorted(self.pages.items()))


@prints("""
    (ann,{home=1})
    (ann,{ads=1, home=1})
    (bo,{home=1})
    (ann,{ads=1, home=2})
""")
def map_state_access(env: StreamExecutionEnvironment) -> None:
    visits = [("ann", "home"), ("ann", "ads"), ("bo", "home"), ("ann", "home")]
    stream = env.from_collection(visits, Types.TUPLE([STRING, STRING])).key_by(lambda visit: visit[0], STRING)
    stream.process(Visits(), Types.TUPLE([STRING, Types.MAP(STRING, INT)])).print()


# --- timers -------------------------------------------------------------------------------------------------------


class Alarm(KeyedProcessFunction):
    """Emits an alarm two seconds after a record."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 2_000)
        yield f"key {ctx.get_current_key()} at {ctx.timestamp()}"

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[str]:
        yield f"on timer {timestamp} of key {ctx.get_current_key()}"


@prints("""
    key ann at 1000
    key bo at 2000
    key ann at 3000
    on timer 3000 of key ann
    on timer 4000 of key bo
    on timer 5000 of key ann
""")
def event_time_timer(env: StreamExecutionEnvironment) -> None:
    records = [("ann", 1_000), ("bo", 2_000), ("ann", 3_000)]
    stream = in_time(env, records, Types.TUPLE([STRING, LONG])).key_by(lambda record: record[0], STRING)
    stream.process(Alarm(), STRING).print()


# --- windows ------------------------------------------------------------------------------------------------------

WORDS, PAIR = [("hi", 1), ("hi", 2), ("hi", 3), ("hi", 4), ("hi", 5), ("hi", 8), ("hi", 9), ("hi", 15)], [STRING, INT]
BOUNDS = Types.TUPLE([STRING, INT, INT, INT])


class CountIn(ProcessWindowFunction[Any, Any, Any, TimeWindow]):
    """The key, the bounds of the window and the number of its records."""

    def process(self, key: str, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        yield key, context.window().start, context.window().end, len(list(elements))


@prints("""
    (hi,1,10,7)
    (hi,15,20,1)
""")
def session_with_gap(env: StreamExecutionEnvironment) -> None:
    keyed = in_time(env, [*WORDS[:5], ("hi", 5), ("hi", 5), ("hi", 15)], Types.TUPLE(PAIR))
    windowed = keyed.key_by(lambda word: word[0], STRING).window(EventTimeSessionWindows.with_gap(Time.milliseconds(5)))
    windowed.process(CountIn(), BOUNDS).print()


class GapByTime(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return int(element[1])


@prints("""
    (hi,1,8,4)
    (hi,20,40,1)
""")
def session_with_dynamic_gap(env: StreamExecutionEnvironment) -> None:
    keyed = in_time(env, [*WORDS[:4], ("hi", 20)], Types.TUPLE(PAIR)).key_by(lambda word: word[0], STRING)
    windowed = keyed.window(EventTimeSessionWindows.with_dynamic_gap(GapByTime()))
    windowed.process(CountIn(), BOUNDS).print()


@prints("""
    (hi,-2,3,2)
    (hi,0,5,4)
    (hi,2,7,4)
    (hi,4,9,3)
    (hi,6,11,2)
    (hi,8,13,2)
    (hi,12,17,1)
    (hi,14,19,1)
""")
def sliding_time_window(env: StreamExecutionEnvironment) -> None:
    keyed = in_time(env, WORDS, Types.TUPLE(PAIR)).key_by(lambda word: word[0], STRING)
    windowed = keyed.window(SlidingEventTimeWindows.of(Time.milliseconds(5), Time.milliseconds(2)))
    windowed.process(CountIn(), BOUNDS).print()


class SumOf(WindowFunction[Any, Any, str, CountWindow]):
    def apply(self, key: str, window: CountWindow, inputs: Iterable[Any]) -> Iterator[Any]:
        yield key, sum(value for _, value in inputs)


@prints("""
    (hi,6)
    (hi,17)
""")
def tumbling_count_window(env: StreamExecutionEnvironment) -> None:
    words = env.from_collection(WORDS, Types.TUPLE(PAIR)).key_by(lambda word: word[0], STRING)
    words.count_window(3).apply(SumOf(), Types.TUPLE([STRING, INT])).print()


class Longest(AggregateFunction):
    def create_accumulator(self) -> str:
        return ""

    def add(self, value: str, accumulator: str) -> str:
        return max(accumulator, value, key=len)

    def get_result(self, accumulator: str) -> str:
        return accumulator

    def merge(self, a: str, b: str) -> str:
        return max(a, b, key=len)


@prints("""
    not
    question
""")
def longest_word_of_every_three(env: StreamExecutionEnvironment) -> None:
    words = env.from_collection(["to", "be", "not", "that", "is", "question"], STRING).key_by(lambda word: 0, INT)
    words.count_window(3).aggregate(Longest(), accumulator_type=STRING, output_type=STRING).print()


# --- several streams ----------------------------------------------------------------------------------------------


class Both(CoMapFunction):
    def map1(self, value: int) -> str:
        return f"number {value}"

    def map2(self, value: str) -> str:
        return f"text {value}"


@prints("""
    number 1
    number 2
    text a
""")
def connected_streams(env: StreamExecutionEnvironment) -> None:
    numbers, texts = env.from_collection([1, 2], INT), env.from_collection(["a"], STRING)
    numbers.connect(texts).map(Both(), STRING).print()


RULES = MapStateDescriptor("rules", STRING, INT)


class Above(BroadcastProcessFunction):
    """Emits values above the newest limit of their kind."""

    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterator[Any]:
        limit = ctx.get_broadcast_state(RULES).get(value[0])
        if limit is not None and value[1] > limit:
            yield value

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Iterable[Any]:
        ctx.get_broadcast_state(RULES).put(value[0], value[1])
        return ()


@prints("""
    (a,7)
    (b,2)
""")
def broadcast_rules(env: StreamExecutionEnvironment) -> None:
    kind = Types.TUPLE([STRING, INT])
    records = env.from_collection([("a", 3), ("a", 7), ("b", 2), ("c", 9)], kind)
    rules = env.from_collection([("a", 5), ("b", 1)], kind).broadcast(RULES)
    records.connect(rules).process(Above(), kind).print()


ODD = OutputTag("odd", Types.ROW([INT, STRING]))


class Split(ProcessFunction):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if value % 2:
            yield ODD, Row(value, "odd")
        else:
            yield value


@prints("""
    even> 2
    even> 4
    odd> +I[1,odd]
    odd> +I[3,odd]
""")
def side_outputs(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1, 2, 3, 4], INT).process(Split(), INT)
    numbers.print("even")
    numbers.get_side_output(ODD).print("odd")


@pytest.mark.parametrize(("program", "expected"), PROGRAMS, ids=[program.__name__ for program, _ in PROGRAMS])
def test_the_program_prints_what_pyflink_prints(
    program: Program, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(program)
    printed = capsys.readouterr().out
    # Two print sinks of one program are not ordered relative to each other.
    in_order = (lambda lines: lines) if "> " not in expected else sorted
    assert in_order(printed.splitlines()) == in_order(expected.splitlines())
