"""`millstream.testing`: scripts, the clock, results and the operator harness."""

from __future__ import annotations

import traceback
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millstream.common import Row, Types, WatermarkStrategy
from millstream.connectors.program_sources import DataGeneratorSource
from millstream.datastream import OutputTag, StreamExecutionEnvironment
from millstream.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
)
from millstream.errors import JobFailedError, NotYetError, ProgramError, TypeMismatchError
from millstream.testing import CRASH, EPOCH, Collect, ManualClock, OperatorHarness, Pause, Script, Watermark, run

LATE = OutputTag("late", Types.LONG())


class Clocked(ProcessFunction):
    """Emits the times observed by a process function."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        service = ctx.timer_service()
        yield value, service.current_watermark(), service.current_processing_time()


# --- scripts ------------------------------------------------------------------------------------------------


def test_only_records_after_a_watermark_observe_it() -> None:
    out = Collect()
    script = Script([1, Watermark(10), 2, 3, Watermark(20), 4])
    result = run(lambda env: env.add_source(script).process(Clocked()).sink_to(out))
    low = -(2**63)
    assert [(value, watermark) for value, watermark, _ in result[out]] == [(1, low), (2, 10), (3, 10), (4, 20)]


def test_a_watermark_crosses_exchanges_and_is_the_minimum_of_all_inputs() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        fast = env.add_source(Script([1, Watermark(100), 2, EPOCH, 3]))
        slow = env.add_source(Script([10, Watermark(7), 20, EPOCH, 30]))
        fast.union(slow).rebalance().process(Clocked()).sink_to(out)

    seen = {value: watermark for value, watermark, _ in run(build, parallelism=2)[out]}
    assert seen == {1: -(2**63), 10: -(2**63), 2: 7, 20: 7, 3: 7, 30: 7}


def test_bounded_input_ends_with_the_maximum_watermark() -> None:
    result = run(lambda env: env.add_source(Script([1, Watermark(5)])).rebalance().sink_to(Collect()))
    assert result.manifests[-1].watermark == 2**63 - 1


def test_a_watermark_does_not_go_back_after_a_crash() -> None:
    out = Collect()
    script = Script([1, Watermark(10), 2, CRASH, 3])
    result = run(lambda env: env.add_source(script).process(Clocked()).sink_to(out))
    assert [(value, watermark) for value, watermark, _ in result[out]] == [(1, -(2**63)), (2, 10), (3, 10)]


def test_strategy_watermarks_follow_the_records() -> None:
    out = Collect()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value * 10)

    def build(env: StreamExecutionEnvironment) -> None:
        env.from_source(Script([1, 2, EPOCH, 5, EPOCH, 4]), strategy, "script").process(Clocked()).sink_to(out)

    assert {value: watermark for value, watermark, _ in run(build)[out]} == {1: -(2**63), 2: -(2**63), 5: 19, 4: 49}


def test_a_watermark_assigned_downstream_replaces_that_of_the_source() -> None:
    out = Collect()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)

    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.add_source(Script([1, Watermark(1000), 2, CRASH, EPOCH, 3]))
        # At parallelism 1: one of two subtasks would get no records, and hold back event time for both.
        timed = stream.assign_timestamps_and_watermarks(strategy).set_parallelism(1)
        timed.rebalance().process(Clocked()).sink_to(out)

    assert {value: watermark for value, watermark, _ in run(build, parallelism=2)[out]} == {1: -(2**63), 2: 0, 3: 1}


def test_a_subtask_without_records_retains_its_watermark_across_epochs() -> None:
    out = Collect()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda pair, _: pair[1])

    def build(env: StreamExecutionEnvironment) -> None:
        pairs = env.add_source(Script([(0, 100), (1, 5), EPOCH, (1, 50), EPOCH, (0, 60)]))
        dealt = pairs.partition_custom(lambda key, n: key, lambda pair: pair[0])
        dealt.map(lambda pair: pair).assign_timestamps_and_watermarks(strategy).process(Clocked()).sink_to(out)

    seen = {pair: watermark for pair, watermark, _ in run(build, parallelism=2)[out]}
    # Subtask 0 is still at 99, although it received nothing and subtask 1 is only at 49: time does not go back.
    assert seen[0, 60] == 99


def test_time_is_constant_within_an_epoch_and_advances_in_a_pause() -> None:
    out, clock = Collect(), ManualClock(now_ms=5_000)
    script = Script([1, 2, Pause(60_000), 3, EPOCH, 4, CRASH], clock=clock)
    result = run(lambda env: env.add_source(script).process(Clocked()).sink_to(out), clock=clock)
    assert [(value, now_ms) for value, _, now_ms in result[out]] == [(1, 5_000), (2, 5_000), (3, 65_000), (4, 65_000)]
    assert clock.now_ms() == 65_000


def test_a_pause_without_a_clock_is_rejected() -> None:
    with pytest.raises(ProgramError, match="needs a clock"):
        Script([Pause(1)])


def test_a_crash_happens_once_per_run() -> None:
    script, out = Script([1, CRASH, 2]), Collect()
    for _ in range(2):
        result = run(lambda env: env.add_source(script).sink_to(out))
        assert (result[out], result.restarts) == ([1, 2], 1)


def test_the_clock_does_not_go_back() -> None:
    with pytest.raises(ProgramError, match="does not go back"):
        ManualClock().advance(-1)


# --- run and its result -------------------------------------------------------------------------------------


def test_side_outputs_are_collected_by_name() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        main = env.from_collection([1, 20, 3]).process(SplitsLate(), Types.LONG())
        main.sink_to(Collect("kept"))
        main.get_side_output(LATE).sink_to(Collect("late"))

    result = run(build)
    assert (result["kept"], result["late"]) == ([1, 3], [20])
    with pytest.raises(ProgramError, match=r"by name it had \['kept', 'late'\]"):
        result["lost"]


def test_an_unbounded_source_requires_a_number_of_epochs() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        env.add_source(DataGeneratorSource(lambda index: index, splits=1)).sink_to(out)

    with pytest.raises(ProgramError, match="never ends"):
        run(build)
    result = run(build, epochs=3, epoch_records=2)
    assert (result[out], result.epochs, result.status) == ([0, 1, 2, 3, 4, 5], 3, "SUSPENDED")


def test_epochs_are_counted_from_the_first_of_the_job() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        env.add_source(Script([1, EPOCH, 2, EPOCH, 3])).uid("numbers").sink_to(out).uid("out")

    assert run(build, store="counted-epochs", epochs=1)[out] == [1]
    assert run(build, store="counted-epochs", epochs=1)[out] == []  # already at its end: it starts, and stops
    assert run(build, store="counted-epochs", epochs=3)[out] == [2]
    assert run(build, store="counted-epochs")[out] == [3]


def test_a_job_that_does_not_end_in_time_is_cancelled() -> None:
    class Stuck(Script):
        def reach(self, split: Any, offset: Any, budget: int, context: Any) -> Any:
            return offset

        def finished(self, split: Any, offset: Any) -> bool:
            return False

    with pytest.raises(JobFailedError, match=r"did not end within 0\.2 s"):
        run(lambda env: env.add_source(Stuck([1])).sink_to(Collect()), timeout_s=0.2)


class Counting(MapFunction):
    def open(self, runtime_context: Any) -> None:
        group = runtime_context.get_metrics_group()
        self.seen = group.counter("seen")
        self.sizes = group.distribution("sizes")

    def map(self, value: int) -> int:
        self.seen.inc()
        self.sizes.update(value)
        return value


def test_metrics_are_summed_over_subtasks_and_epochs() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        script = Script([1, 2, EPOCH, 3, CRASH, 4])
        env.add_source(script).rebalance().map(Counting()).uid("counting").sink_to(Collect())

    metrics = run(build, parallelism=2).metrics
    assert metrics["counting.seen"] == {"counter": 4}
    assert metrics["counting.sizes"] == {"distribution": [4, 10, 1, 4]}


class Contextual(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.context = runtime_context

    def map(self, value: Any) -> Any:
        context = self.context
        return (
            context.get_index_of_this_subtask(),
            context.get_number_of_parallel_subtasks(),
            context.get_max_number_of_parallel_subtasks(),
            context.get_task_name_with_subtasks(),
            context.get_job_parameter("region", "nowhere"),
            context.get_job_parameter("absent", "nowhere"),
        )


def test_a_function_has_its_runtime_context_in_a_job() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        env.get_config().set_global_job_parameters({"region": "north"})
        env.from_collection([1, 2]).rebalance().map(Contextual()).name("where").sink_to(out)

    assert run(build, parallelism=2)[out] == [
        (0, 2, 128, "where (1/2)", "north", "nowhere"),
        (1, 2, 128, "where (2/2)", "north", "nowhere"),
    ]


# --- the harness --------------------------------------------------------------------------------------------


class SplitsLate(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        yield (LATE, value) if value > 10 else value


class Lifecycle(MapFunction):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self, runtime_context: Any) -> None:
        self.calls.append("open")

    def close(self) -> None:
        self.calls.append("close")

    def map(self, value: int) -> int:
        self.calls.append("map")
        return value + 1


class Words(FlatMapFunction):
    def flat_map(self, value: str) -> Any:
        return value.split()


class Even(FilterFunction):
    def filter(self, value: int) -> bool:
        return value % 2 == 0


def test_the_harness_opens_once_and_closes() -> None:
    function = Lifecycle()
    with OperatorHarness(function) as harness:
        harness.push_all([1, 2])
    harness.close()
    assert harness.output() == [2, 3]
    assert function.calls == ["open", "map", "map", "close"]


def test_the_harness_recognises_function_classes() -> None:
    words, even = OperatorHarness(Words()), OperatorHarness(Even())
    words.push("to be")
    even.push_all([1, 2, 3, 4])
    assert (words.output(), even.output()) == (["to", "be"], [2, 4])


def test_the_harness_requires_the_kind_of_a_plain_callable() -> None:
    with pytest.raises(ProgramError, match="kind='map'"):
        OperatorHarness(len)
    harness = OperatorHarness(len, kind="map")
    harness.push("four")
    assert harness.output() == [4]


def test_the_harness_rejects_unsupported_functions() -> None:
    class Largest(ReduceFunction):
        def reduce(self, value1: Any, value2: Any) -> Any:
            return max(value1, value2)

    with pytest.raises(NotYetError, match=r"OperatorHarness for a Largest.*by run\(\)"):
        OperatorHarness(Largest())


def test_the_harness_separates_undeclared_side_outputs() -> None:
    harness = OperatorHarness(SplitsLate(), Types.LONG())
    harness.push_all([1, 20, 3, 40])
    assert (harness.output(), harness.side_output(LATE)) == ([1, 3], [20, 40])
    assert harness.side_output(OutputTag("none")) == []


def test_the_harness_checks_types_as_a_task_does() -> None:
    harness = OperatorHarness(lambda n: str(n), Types.LONG(), kind="map")
    with pytest.raises(TypeMismatchError) as caught:
        harness.push(1)
    assert caught.value.value == "1"


def test_the_harness_raises_exceptions_of_the_function() -> None:
    harness = OperatorHarness(lambda n: 1 // n, kind="map")
    with pytest.raises(ZeroDivisionError):
        harness.push(0)


def test_the_harness_provides_timestamps_watermark_and_clock() -> None:
    clock = ManualClock(now_ms=1)
    harness = OperatorHarness(Clocked(), clock=clock)
    harness.push("a", timestamp=7)
    harness.watermark(50)
    harness.watermark(40)
    clock.advance(9)
    harness.push("b", timestamp=60)
    assert harness.output_with_timestamps() == [(("a", -(2**63), 1), 7), (("b", 50, 10), 60)]


def test_the_harness_sets_the_runtime_context() -> None:
    harness = OperatorHarness(
        Contextual(), name="where", subtask=2, parallelism=5, max_parallelism=9, job_parameters={"region": "north"}
    )
    harness.push(None)
    assert harness.output() == [(2, 5, 9, "where (3/5)", "north", "nowhere")]


def test_the_harness_reads_metrics() -> None:
    harness = OperatorHarness(Counting())
    harness.push(4)
    assert harness.metrics()["seen"] == {"counter": 1}
    harness.push(6)
    assert harness.metrics() == {"seen": {"counter": 2}, "sizes": {"distribution": [2, 10, 4, 6]}}


def test_the_harness_runs_columnar_functions() -> None:
    harness = OperatorHarness(
        lambda batch: pa.record_batch([pc.add(batch.column(0), 1)], names=batch.schema.names),
        Types.LONG(),
        input_type=Types.LONG(),
        kind="map_batches",
    )
    harness.push_all([1, 2])
    assert harness.output() == [2, 3]


def test_the_harness_converts_values_as_a_typed_stream_does() -> None:
    pair = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])
    harness = OperatorHarness(lambda row: row.b, kind="map", input_type=pair)
    harness.push(Row(1, "x"))
    assert harness.output() == ["x"]


# --- failures -----------------------------------------------------------------------------------------------


def test_a_failed_run_shows_the_users_traceback_and_the_record() -> None:
    with pytest.raises(JobFailedError) as caught:
        run(lambda env: env.from_collection([2, 0]).map(lambda n: 1 / n).sink_to(Collect()))
    shown = "".join(traceback.format_exception(caught.value))
    assert "record    0" in shown and "ZeroDivisionError: division by zero" in shown and "lambda n: 1 / n" in shown
    assert shown.count("record    0") == 1
