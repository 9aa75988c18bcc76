"""A stream taken as keyed already: no exchange, the answers of `key_by`, and an error where the claim does not hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from waits.refusals import Refused

from millstream.common import Row, Time, Types, WatermarkStrategy
from millstream.datastream import DataStream, DataStreamUtils, StreamExecutionEnvironment
from millstream.datastream.aggregates import Aggregates, count
from millstream.datastream.functions import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessWindowFunction,
)
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import JobFailedError, ProgramError
from millstream.testing import EPOCH, Collect, Script, run

PAIR = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])
WORDS = ["a", "b", "c", "d", "e", "f", "g"]
PAIRS = [Row(WORDS[n * n % 7], n) for n in range(40)]

Rekeyed = Callable[[DataStream], Any]
BY_FIELD: Rekeyed = lambda stream: stream.reinterpret_as_keyed_stream("word")  # noqa: E731
BY_FUNCTION: Rekeyed = lambda stream: DataStreamUtils.reinterpret_as_keyed_stream(  # noqa: E731
    stream, lambda row: row[0], Types.STRING()
)


class Numbered(KeyedProcessFunction):
    """Every record with how many its key had before."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.update((self.seen.value() or 0) + 1)
        yield ctx.get_current_key(), self.seen.value()


def kept(env: StreamExecutionEnvironment, pairs: list[Any] | None = None) -> DataStream:
    """Pairs that a keyed operator has given out unchanged."""
    script = Script(PAIRS[:20], [*PAIRS[20:30], EPOCH, *PAIRS[30:]], type_info=PAIR)
    stamped = env.add_source(script).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row[1])
    )
    return stamped.key_by("word").max_by("n")


@pytest.mark.parametrize("rekeyed", [BY_FIELD, BY_FUNCTION], ids=["a column", "a function"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_stream_behaves_as_after_key_by(rekeyed: Rekeyed, parallelism: int) -> None:
    out = Collect()
    result = run(lambda env: rekeyed(kept(env)).process(Numbered()).sink_to(out), parallelism=parallelism)
    counts = {word: sum(row[0] == word for row in PAIRS) for word in WORDS}
    assert sorted(result[out]) == [(word, n + 1) for word in WORDS for n in range(counts[word])]


def test_there_is_no_second_exchange() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    kept(env).reinterpret_as_keyed_stream("word").process(Numbered()).print()
    plan = env.explain()
    assert plan.count("⇐") == 1, plan


class Sizes(ProcessWindowFunction):
    def process(self, key: str, context: Any, elements: Any) -> Any:
        yield key, len(list(elements))


@pytest.mark.parametrize("columns", [True, False], ids=["in columns", "by a function"])
def test_windows_need_no_exchange_either(columns: bool) -> None:
    out = Collect()

    def program(env: StreamExecutionEnvironment) -> None:
        windows = BY_FIELD(kept(env)).window(TumblingEventTimeWindows.of(Time.milliseconds(1_000)))
        if columns:
            windows.aggregate(Aggregates(n=count())).map(lambda row: (row[0], row[-1])).sink_to(out)
            assert "Partial" in env.explain()
        else:
            windows.process(Sizes()).sink_to(out)
        assert env.explain().count("hash from") == 1

    words = [row[0] for row in PAIRS]
    assert sorted(run(program, parallelism=3)[out]) == [(word, words.count(word)) for word in sorted(set(words))]


class Both(KeyedCoProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.first = runtime_context.get_state(ValueStateDescriptor("first", Types.LONG()))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.first.update(max(value[1], self.first.value() or 0))

    def process_element2(self, value: Any, ctx: Any) -> Any:
        yield value, self.first.value()


def test_it_can_be_connected_with_a_stream_that_was_exchanged() -> None:
    out = Collect()

    def program(env: StreamExecutionEnvironment) -> None:
        asked = env.from_collection(["a", "b"], Types.STRING()).key_by(lambda word: word, Types.STRING())
        BY_FIELD(kept(env)).connect(asked).process(Both()).sink_to(out)

    newest = {row[0]: row[1] for row in PAIRS[:30]}
    assert sorted(run(program, parallelism=3)[out]) == [("a", newest["a"]), ("b", newest["b"])]


# --- where the claim does not hold --------------------------------------------------------------------------


def strayed(then: Callable[[Any], DataStream], rekeyed: Rekeyed = BY_FIELD) -> JobFailedError:
    """What is raised when keys are changed behind key_by."""
    out = Collect()

    def program(env: StreamExecutionEnvironment) -> None:
        then(rekeyed(kept(env).map(lambda row: Row(row[0] + "!", row[1]), PAIR))).sink_to(out)

    with pytest.raises(JobFailedError) as failure:
        run(program, parallelism=3)
    assert not out.values
    return failure.value


@pytest.mark.parametrize(
    "then",
    [
        lambda keyed: keyed.process(Numbered()),
        lambda keyed: keyed.sum("n"),
        lambda keyed: keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(10))).process(Sizes()),
        lambda keyed: keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(10))).aggregate(Aggregates(n=count())),
        lambda keyed: keyed.connect(keyed).process(Both()),
    ],
    ids=["process", "sum", "window", "aggregate", "connect"],
)
@pytest.mark.parametrize("rekeyed", [BY_FIELD, BY_FUNCTION], ids=["a column", "a function"])
def test_a_record_of_another_subtask_fails_the_job_with_its_key(then: Any, rekeyed: Rekeyed) -> None:
    report = strayed(then, rekeyed).report
    assert "!' of this record does not belong to its subtask" in report
    assert "Use key_by() there" in report
    assert "record    " in report and "!'" in report.split("record    ")[1]
    assert "test_reinterpreted_keys.py" in report


def test_nothing_strays_where_there_is_one_subtask() -> None:
    out = Collect()
    result = run(lambda env: BY_FIELD(kept(env).map(lambda row: Row("x", row[1]), PAIR)).sum("n").sink_to(out))
    assert result[out][-1] == Row(word="x", n=sum(row[1] for row in PAIRS))


# --- refused where it is written ----------------------------------------------------------------------------


def test_a_stream_that_is_dealt_out_is_refused() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    pairs = env.from_collection([Row("a", 1)], PAIR)
    with Refused("reinterpret_as_keyed_stream", "partitioned by rebalance", "use key_by()"):
        pairs.rebalance().reinterpret_as_keyed_stream("word")
    with Refused("partitioned by hash"):
        pairs.key_by("word").reinterpret_as_keyed_stream("word")
    with Refused("reinterpret_as_keyed_stream('wort')", "has no such field"):
        pairs.reinterpret_as_keyed_stream("wort")
    with Refused("expected a stream"):
        DataStreamUtils.reinterpret_as_keyed_stream([1], lambda n: n)  # type: ignore[arg-type]


def test_another_parallelism_is_refused_at_the_operator() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    BY_FIELD(kept(env)).process(Numbered()).set_parallelism(3).print()
    with pytest.raises(ProgramError, match=r"parallelism 2.*parallelism 3.*set_parallelism\(2\).*test_reinterpreted"):
        env.explain()


class Watermarks(KeyedProcessFunction):
    """Every record with the event time it met."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value[0], value[1], ctx.timer_service().current_watermark()


class Sums(ProcessWindowFunction):  # type: ignore[type-arg]
    def process(self, key: str, context: Any, elements: Any) -> Any:
        yield key, context.window().start, sum(row[1] for row in elements)


FAST, SLOW = "e", "c"  # keys of different subtasks, of two and of three
TIMES = [Row(FAST, 1_000), Row(SLOW, 10), EPOCH, Row(FAST, 500), Row(SLOW, 20), EPOCH, Row(FAST, 600), Row(SLOW, 400)]
_STORES = itertools.count()


def timed_by_subtask(env: StreamExecutionEnvironment, items: list[Any] = TIMES) -> DataStream:
    """Pairs that are with their key already, whose event time every subtask tells by what it has seen itself."""
    pairs = env.add_source(Script(items, type_info=PAIR)).key_by("word").map(lambda row: row, PAIR)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row[1])
    return pairs.assign_timestamps_and_watermarks(strategy)


def test_the_event_time_of_a_subtask_that_is_ahead_does_not_go_back_between_epochs() -> None:
    out = Collect()
    run(lambda env: BY_FIELD(timed_by_subtask(env)).process(Watermarks()).sink_to(out), parallelism=2)
    met = [(word, watermark) for word, _, watermark in out.values]
    start = -(2**63)
    assert [watermark for word, watermark in met if word == FAST] == [start, 999, 999]
    assert [watermark for word, watermark in met if word == SLOW] == [start, 9, 19]


def test_what_stands_behind_the_keyed_operator_in_the_same_task_does_not_go_back_either() -> None:
    out = Collect()

    class Behind(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value[0], ctx.timer_service().current_watermark()

    def build(env: StreamExecutionEnvironment) -> None:
        BY_FIELD(timed_by_subtask(env)).process(Watermarks()).process(Behind()).sink_to(out)

    run(build, parallelism=2)
    assert [watermark for word, watermark in out.values if word == FAST] == [-(2**63), 999, 999]


def window_sums(stream: DataStream) -> DataStream:
    return BY_FIELD(stream).window(TumblingEventTimeWindows.of(Time.milliseconds(1_000))).process(Sums())


def test_a_window_of_a_subtask_that_is_ahead_does_not_fire_again_for_late_records() -> None:
    out = Collect()
    run(lambda env: window_sums(timed_by_subtask(env, [Row(FAST, 1), *TIMES])).sink_to(out), parallelism=2)
    assert sorted(out.values) == [(SLOW, 0, 430), (FAST, 0, 1), (FAST, 1_000, 1_000)]


@pytest.mark.parametrize("after", [1, 2, 3])
def test_restored_a_subtask_stands_where_the_slowest_of_those_stood_whose_keys_it_takes(after: int) -> None:
    """With as many subtasks as before each goes on by itself. With others, a key that was ahead may meet an earlier
    time than it did: one number cannot say both, and the smaller one calls nothing late that nobody waited for."""
    store, first, second = f"event-times-{next(_STORES)}", Collect(), Collect()

    def build(env: StreamExecutionEnvironment, out: Collect) -> None:
        BY_FIELD(timed_by_subtask(env)).process(Watermarks()).sink_to(out)

    assert run(lambda env: build(env, first), parallelism=2, epochs=2, store=store).status == "SUSPENDED"
    run(lambda env: build(env, second), parallelism=after, store=store)
    met = {word: watermark for word, n, watermark in second.values if n in (600, 400)}
    # Of three, the middle subtask takes keys of both; neither of these two keys is there.
    assert met == ({FAST: 19, SLOW: 19} if after == 1 else {FAST: 999, SLOW: 19})
