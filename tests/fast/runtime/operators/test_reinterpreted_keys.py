"""A stream reinterpreted as keyed: no exchange, the results of `key_by`, and an error where records are misplaced."""

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
    """Emits every record with the number of earlier records of its key."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.update((self.seen.value() or 0) + 1)
        yield ctx.get_current_key(), self.seen.value()


def already_keyed(env: StreamExecutionEnvironment, pairs: list[Any] | None = None) -> DataStream:
    """Pairs that a keyed operator has emitted unchanged."""
    script = Script(PAIRS[:20], [*PAIRS[20:30], EPOCH, *PAIRS[30:]], type_info=PAIR)
    stamped = env.add_source(script).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row[1])
    )
    return stamped.key_by("word").max_by("n")


@pytest.mark.parametrize("rekeyed", [BY_FIELD, BY_FUNCTION], ids=["a column", "a function"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_reinterpreted_stream_behaves_as_after_key_by(rekeyed: Rekeyed, parallelism: int) -> None:
    out = Collect()
    result = run(lambda env: rekeyed(already_keyed(env)).process(Numbered()).sink_to(out), parallelism=parallelism)
    counts = {word: sum(row[0] == word for row in PAIRS) for word in WORDS}
    assert sorted(result[out]) == [(word, n + 1) for word in WORDS for n in range(counts[word])]


def test_reinterpreting_adds_no_exchange() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    already_keyed(env).reinterpret_as_keyed_stream("word").process(Numbered()).print()
    plan = env.explain()
    assert plan.count("⇐") == 1, plan


class Sizes(ProcessWindowFunction):
    def process(self, key: str, context: Any, elements: Any) -> Any:
        yield key, len(list(elements))


@pytest.mark.parametrize("columns", [True, False], ids=["in columns", "by a function"])
def test_windows_need_no_exchange_either(columns: bool) -> None:
    out = Collect()

    def program(env: StreamExecutionEnvironment) -> None:
        windows = BY_FIELD(already_keyed(env)).window(TumblingEventTimeWindows.of(Time.milliseconds(1_000)))
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


def test_a_reinterpreted_stream_can_be_connected_with_an_exchanged_one() -> None:
    out = Collect()

    def program(env: StreamExecutionEnvironment) -> None:
        others = env.from_collection(["a", "b"], Types.STRING()).key_by(lambda word: word, Types.STRING())
        BY_FIELD(already_keyed(env)).connect(others).process(Both()).sink_to(out)

    newest = {row[0]: row[1] for row in PAIRS[:30]}
    assert sorted(run(program, parallelism=3)[out]) == [("a", newest["a"]), ("b", newest["b"])]


# --- misplaced records --------------------------------------------------------------------------------------


def misplaced_error(then: Callable[[Any], DataStream], rekeyed: Rekeyed = BY_FIELD) -> JobFailedError:
    """The error when keys are changed after key_by."""
    out = Collect()

    def program(env: StreamExecutionEnvironment) -> None:
        then(rekeyed(already_keyed(env).map(lambda row: Row(row[0] + "!", row[1]), PAIR))).sink_to(out)

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
def test_a_misplaced_record_fails_the_job_with_its_key(then: Any, rekeyed: Rekeyed) -> None:
    report = misplaced_error(then, rekeyed).report
    assert "!' of this record does not belong to its subtask" in report
    assert "Use key_by() there" in report
    assert "record    " in report and "!'" in report.split("record    ")[1]
    assert "test_reinterpreted_keys.py" in report


def test_no_record_is_misplaced_with_one_subtask() -> None:
    out = Collect()
    result = run(lambda env: BY_FIELD(already_keyed(env).map(lambda row: Row("x", row[1]), PAIR)).sum("n").sink_to(out))
    assert result[out][-1] == Row(word="x", n=sum(row[1] for row in PAIRS))


# --- rejected at the user's line ----------------------------------------------------------------------------


def test_a_repartitioned_stream_is_rejected() -> None:
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


def test_another_parallelism_is_rejected_at_the_operator() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    BY_FIELD(already_keyed(env)).process(Numbered()).set_parallelism(3).print()
    with pytest.raises(ProgramError, match=r"parallelism 2.*parallelism 3.*set_parallelism\(2\).*test_reinterpreted"):
        env.explain()


class Watermarks(KeyedProcessFunction):
    """Emits every record with the current watermark."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value[0], value[1], ctx.timer_service().current_watermark()


class Sums(ProcessWindowFunction):  # type: ignore[type-arg]
    def process(self, key: str, context: Any, elements: Any) -> Any:
        yield key, context.window().start, sum(row[1] for row in elements)


FAST, SLOW = "e", "c"  # keys of different subtasks, of two and of three
TIMES = [Row(FAST, 1_000), Row(SLOW, 10), EPOCH, Row(FAST, 500), Row(SLOW, 20), EPOCH, Row(FAST, 600), Row(SLOW, 400)]
_STORES = itertools.count()


def timed_by_subtask(env: StreamExecutionEnvironment, items: list[Any] = TIMES) -> DataStream:
    """Pairs that are already with their key, and each subtask of which derives the watermark from its own records."""
    pairs = env.add_source(Script(items, type_info=PAIR)).key_by("word").map(lambda row: row, PAIR)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row[1])
    return pairs.assign_timestamps_and_watermarks(strategy)


def test_the_watermark_of_a_subtask_that_is_ahead_does_not_move_back_between_epochs() -> None:
    out = Collect()
    run(lambda env: BY_FIELD(timed_by_subtask(env)).process(Watermarks()).sink_to(out), parallelism=2)
    met = [(word, watermark) for word, _, watermark in out.values]
    start = -(2**63)
    assert [watermark for word, watermark in met if word == FAST] == [start, 999, 999]
    assert [watermark for word, watermark in met if word == SLOW] == [start, 9, 19]


def test_the_watermark_of_chained_downstream_operators_does_not_move_back_either() -> None:
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
def test_a_restored_subtask_has_the_minimum_watermark_of_the_subtasks_whose_keys_it_takes(after: int) -> None:
    """With as many subtasks as before each continues with its own watermark. At another parallelism, a key that was
    ahead may get an earlier watermark than before: one number cannot represent both, and the minimum never makes a
    timely record late.
    """
    store, first, second = f"event-times-{next(_STORES)}", Collect(), Collect()

    def build(env: StreamExecutionEnvironment, out: Collect) -> None:
        BY_FIELD(timed_by_subtask(env)).process(Watermarks()).sink_to(out)

    assert run(lambda env: build(env, first), parallelism=2, epochs=2, store=store).status == "SUSPENDED"
    run(lambda env: build(env, second), parallelism=after, store=store)
    met = {word: watermark for word, n, watermark in second.values if n in (600, 400)}
    # Of three, the middle subtask takes keys of both; neither of these two keys is among them.
    assert met == ({FAST: 19, SLOW: 19} if after == 1 else {FAST: 999, SLOW: 19})
