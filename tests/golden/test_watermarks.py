"""Event time, rule by rule, in memory, on a clock that the test controls and with scripted arrival times.

`Arrivals` is the input: every split lists its records with their arrival times. The clock advances ten milliseconds
each time the driver polls for input, so a quiet job sees time pass and equal runs see equal times.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from inputs.fresh_names import fresh_name

from millstream.common import Configuration, Duration, RestartStrategies, WatermarkGenerator, WatermarkStrategy
from millstream.common.watermark_strategy import WatermarkAlignment
from millstream.compiler.passes import compile_graph
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.datastream import DataStream, ProcessFunction, StreamExecutionEnvironment
from millstream.errors import JobFailedError, ProgramError
from millstream.jobs.epochs.input_plan import AlignedSplit, PlannedSource, held_back, homes
from millstream.jobs.epochs.input_planner import plan_input
from millstream.jobs.epochs.watermarks import strategies_of, watermark_is_due
from millstream.records.watermarks import IDLE_WATERMARK
from millstream.runtime.task.event_time import restored_times
from millstream.state.stored.accounts import SubtaskAccount, accounts_of
from millstream.state.stored.times import EventTimeState
from millstream.testing import CRASH, EPOCH, Collect, ManualClock, Result, Script, run

LOW, HIGH = -(2**63), 2**63 - 1
TURN_MS = 10


class Arrivals(Source):
    """Each split is a list of (arrives at ms, event time); a record is (split, event time)."""

    bounded = True

    def __init__(
        self, clock: ManualClock, *splits: Sequence[tuple[int, int]], name: str = "", crash_at: int = -1
    ) -> None:
        self.clock, self.arrivals, self.name, self.crash_at = clock, splits, name, crash_at

    def splits(self, context: SourceContext) -> Sequence[Split]:
        self.clock.advance(TURN_MS)
        return [Split(f"{self.name}{number}", 0, number) for number in range(len(self.arrivals))]

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        arrived = sum(at_ms <= context.now_ms for at_ms, _ in self.arrivals[split.info])
        if self.crash_at >= 0 and self.crash_at <= context.now_ms:
            raise RuntimeError("the driver's machine is gone")
        return min(arrived, offset + budget)

    def finished(self, split: Split, offset: Offset) -> bool:
        return bool(offset >= len(self.arrivals[split.info]))

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        yield [(split.name, time) for _, time in self.arrivals[split.info][start:stop]]
        return stop


class WatermarkProbe(ProcessFunction):
    """Emits each record with the watermark in effect when it is processed."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        yield value, ctx.timer_service().current_watermark()


def by_field(strategy: WatermarkStrategy) -> WatermarkStrategy:
    return strategy.with_timestamp_assigner(lambda value, _: value[1])  # type: ignore[arg-type]


ASCENDING = by_field(WatermarkStrategy.for_monotonous_timestamps())
IDLE_AFTER_50 = ASCENDING.with_idleness(Duration.of_millis(50))


def watched(env: StreamExecutionEnvironment, stream: DataStream, out: Collect, exchanges: int = 1) -> None:
    """Send the stream through exchanges and record the watermark downstream of them."""
    env.configure(Configuration().set_string("millstream.epoch.poll-interval", "1 ms"))
    for _ in range(exchanges):
        stream = stream.rebalance().map(lambda value: value)
    stream.rebalance().process(WatermarkProbe()).uid("watch").sink_to(out)


def run_source(source: Source, strategy: WatermarkStrategy, clock: ManualClock | None = None, **how: Any) -> Result:
    """A job of one source, with its strategy at the source."""
    out = Collect("out")

    def build(env: StreamExecutionEnvironment) -> None:
        watched(env, env._read(source, strategy, "in").uid("in"), out)

    return run(build, clock=clock, **how)


def seen(result: Result) -> dict[Any, int]:
    return dict(result["out"])


def watermark_history(result: Result, uid: str = "watch") -> list[int]:
    """The watermark of an operator after each epoch."""
    found: list[int] = []
    for manifest in result.manifests:
        state = manifest.states[uid]
        assert isinstance(state, dict) and isinstance(state["watermark"], int)
        found.append(state["watermark"])
    assert found == sorted(found), "a watermark went back"
    return found


def steps(numbers: list[int]) -> list[int]:
    """The values without adjacent duplicates."""
    return [number for number, _ in itertools.groupby(numbers)]


# --- the built-in strategies -----------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize(("delay_ms", "expected"), [(0, [LOW, 9, 19]), (5, [LOW, 4, 14])])
def test_lateness_is_decided_by_the_watermark_at_the_start_of_the_epoch(
    parallelism: int, delay_ms: int, expected: list[int]
) -> None:
    strategy = by_field(WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(delay_ms)))
    source = Script([("a", 10), ("b", 3), EPOCH, ("c", 20), EPOCH, ("d", 7)])
    result = run_source(source, strategy, parallelism=parallelism)
    first, second, third = expected
    assert seen(result) == {("a", 10): first, ("b", 3): first, ("c", 20): second, ("d", 7): third}
    assert watermark_history(result)[-1] == HIGH


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("epoch_records", [1, 4, 100])
def test_the_slowest_split_holds_the_watermark_at_any_parallelism_and_epoch_size(
    parallelism: int, epoch_records: int
) -> None:
    fast, slow = [("fast", 100 + n) for n in range(8)], [("slow", n) for n in range(8)]
    result = run_source(Script(fast, slow), ASCENDING, parallelism=parallelism, epoch_records=epoch_records)
    # Both splits end in the same epoch; until then the slower one holds the watermark.
    assert all(watermark < 7 for watermark in seen(result).values())
    assert watermark_history(result)[-1] == HIGH


def test_without_a_strategy_there_is_no_event_time_until_the_end() -> None:
    result = run_source(Script([("a", 1), EPOCH, ("b", 2)]), by_field(WatermarkStrategy.no_watermarks()))
    assert set(seen(result).values()) == {LOW}
    assert steps(watermark_history(result)) == [LOW, HIGH]


@pytest.mark.parametrize("wrong", [None, 1.5, True, "7", 2**63])
@pytest.mark.parametrize("where", ["at the source", "in mid-stream"])
def test_an_invalid_timestamp_is_rejected_with_the_record_and_the_users_line(wrong: Any, where: str) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: wrong)  # type: ignore[arg-type]

    def build(env: StreamExecutionEnvironment) -> None:
        if where == "at the source":
            env._read(Script(["the record"]), strategy, "in").sink_to(Collect())
        else:
            env.from_collection(["the record"]).assign_timestamps_and_watermarks(strategy).sink_to(Collect())

    with pytest.raises(JobFailedError, match="timestamp") as failure:
        run(build)
    assert "  record    'the record'" in failure.value.report.splitlines()
    assert "test_watermarks.py" in failure.value.report
    assert repr(wrong) in failure.value.report


def test_a_numpy_integer_is_a_valid_timestamp() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: np.int64(v))  # type: ignore[arg-type]
    assert seen(run_source(Script([5, EPOCH, 6]), strategy)) == {5: LOW, 6: 4}


# --- custom watermark generators -------------------------------------------------------------------------------


class EveryTenth(WatermarkGenerator):
    """Advances event time in steps of ten, one step behind; `count` shows whether the generator's state survives."""

    def __init__(self) -> None:
        self.highest, self.count = LOW, 0

    def on_event(self, value: Any, timestamp: int, output: Any) -> None:
        self.highest = max(self.highest, timestamp)
        self.count += 1

    def on_periodic_emit(self, output: Any) -> None:
        output.emit_watermark(self.highest // 10 * 10 + self.count)


class Punctuated(WatermarkGenerator):
    """Special records carry the watermark or mark the split idle or active."""

    def on_event(self, value: Any, timestamp: int, output: Any) -> None:
        if value[0] == "mark":
            output.emit_watermark(timestamp)
        elif value[0] in ("idle", "active"):
            getattr(output, f"mark_{value[0]}")()

    def on_periodic_emit(self, output: Any) -> None:
        pass


def test_generator_state_survives_epochs_and_a_crash() -> None:
    script = [("a", 11), ("b", 12), EPOCH, ("c", 13), EPOCH, CRASH, ("d", 28), EPOCH, ("e", 30)]
    result = run_source(Script(script), by_field(WatermarkStrategy.for_generator(EveryTenth)))
    assert seen(result) == {("a", 11): LOW, ("b", 12): LOW, ("c", 13): 12, ("d", 28): 13, ("e", 30): 24}
    assert result.restarts == 1


@pytest.mark.parametrize("parallelism", [1, 2])
def test_each_split_has_its_own_generator_and_the_smallest_watermark_wins(parallelism: int) -> None:
    source = Script([("a", 10), EPOCH, ("b", 50)], [("c", 20), EPOCH, ("d", 20)])
    result = run_source(source, by_field(WatermarkStrategy.for_generator(EveryTenth)), parallelism=parallelism)
    assert seen(result)["b", 50] == seen(result)["d", 20] == 11


def test_a_generator_may_emit_within_an_epoch_and_watermarks_never_regress() -> None:
    script = [("mark", 7), ("x", 9), ("mark", 3), EPOCH, ("mark", 2), EPOCH, ("y", 9)]
    result = run_source(Script(script), by_field(WatermarkStrategy.for_generator(Punctuated)))
    assert seen(result)["mark", 2] == seen(result)["y", 9] == 7


def test_a_generator_may_mark_its_split_idle_and_active_again() -> None:
    one = [("mark", 5), EPOCH, ("idle", 0), EPOCH, ("x", 0), EPOCH, ("active", 0), EPOCH, ("x", 1)]
    other = [("mark", 9), EPOCH, ("mark", 10), EPOCH, ("mark", 11), EPOCH, ("mark", 12), EPOCH, ("mark", 13)]
    result = run_source(Script(one, other), by_field(WatermarkStrategy.for_generator(Punctuated)), parallelism=2)
    assert watermark_history(result)[:4] == [5, 10, 11, 11]


class Unpicklable(EveryTenth):
    def __init__(self) -> None:
        super().__init__()
        self.highest_seen: Any = {1, 2}


class EmitsText(EveryTenth):
    def on_event(self, value: Any, timestamp: int, output: Any) -> None:
        output.emit_watermark("noon")


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lambda: "no generator", "expected a WatermarkGenerator"),
        (Unpicklable, "The snapshot of Unpicklable holds a value of type set"),
        (EmitsText, "emit_watermark got 'noon'"),
    ],
)
def test_an_invalid_generator_is_rejected_with_the_reason(factory: Any, message: str) -> None:
    with pytest.raises(JobFailedError, match="failed") as failure:
        run_source(Script([("a", 1)]), by_field(WatermarkStrategy.for_generator(factory)))
    assert message in failure.value.report


def test_a_generator_instead_of_a_factory_is_rejected_immediately() -> None:
    with pytest.raises(ProgramError, match="Pass the class"):
        WatermarkStrategy.for_generator(EveryTenth())  # type: ignore[arg-type]


# --- idleness --------------------------------------------------------------------------------------------------


def test_a_quiet_split_holds_the_watermark_without_an_idle_timeout() -> None:
    clock = ManualClock()
    source = Arrivals(clock, [(0, 5), (300, 6)], [(0, 50), (20, 60), (300, 70)])
    assert steps(watermark_history(run_source(source, ASCENDING, clock))) == [4, HIGH]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_split_becomes_idle_after_its_timeout_and_the_job_wakes_up_for_it(parallelism: int) -> None:
    clock = ManualClock()
    source = Arrivals(clock, [(0, 5), (300, 6)], [(0, 50), (40, 60), (300, 70)])
    result = run_source(source, IDLE_AFTER_50, clock, parallelism=parallelism)
    assert seen(result) == {
        ("0", 5): LOW,
        ("1", 50): LOW,
        ("1", 60): 4,
        # The first split was already idle, and the watermark had followed the second one.
        ("0", 6): 59,
        ("1", 70): 59,
    }
    assert steps(watermark_history(result)) == [4, 59, HIGH]
    # Epochs at 0 and 40, one when the first split became idle, and one at 300. No epoch runs while both are idle.
    assert result.epochs == 4


def test_a_reactivated_split_counts_again_and_the_watermark_does_not_regress() -> None:
    clock = ManualClock()
    quiet = [(0, 5), (200, 6), (220, 100), (260, 101)]
    busy = [(at_ms, 50 + at_ms) for at_ms in range(0, 250, 10)]
    result = run_source(Arrivals(clock, quiet, busy), IDLE_AFTER_50, clock)
    back = [watermark for (split, _), watermark in seen(result).items() if split == "0"][1:]
    moved = steps(watermark_history(result))
    # The record was late, because the watermark had advanced without its split; from then on the split holds it.
    assert back == [moved[-2]] * 3
    assert 200 < moved[-2] < 50 + 200
    assert moved[-1] == HIGH


def test_when_all_splits_are_idle_the_watermark_stops_and_no_epoch_runs() -> None:
    clock = ManualClock()
    result = run_source(Arrivals(clock, [(0, 5), (900, 6)], [(0, 7), (900, 8)]), IDLE_AFTER_50, clock, parallelism=2)
    assert steps(watermark_history(result)) == [4, HIGH]
    assert result.epochs == 2


def test_an_idle_branch_stops_while_another_branch_of_the_job_advances() -> None:
    clock, out = ManualClock(), Collect("out")
    quiet = Arrivals(clock, [(0, 5), (300, 6)], name="q")
    busy = Arrivals(clock, [(at_ms, at_ms) for at_ms in range(0, 300, 10)], name="b")

    def build(env: StreamExecutionEnvironment) -> None:
        env._read(busy, ASCENDING, "busy").sink_to(Collect())
        watched(env, env._read(quiet, IDLE_AFTER_50, "quiet"), out)

    result = run(build, clock=clock, parallelism=2)
    assert result.epochs > 10
    assert steps(watermark_history(result)) == [4, HIGH]


def test_a_split_without_any_record_becomes_idle() -> None:
    clock = ManualClock()
    result = run_source(Arrivals(clock, [(900, 6)], [(0, 7), (40, 8), (900, 9)]), IDLE_AFTER_50, clock)
    assert steps(watermark_history(result)) == [LOW, 7, HIGH]


@pytest.mark.parametrize("exchanges", [0, 2])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_idleness_crosses_exchanges_and_a_union_ignores_its_idle_input(parallelism: int, exchanges: int) -> None:
    clock, out = ManualClock(), Collect("out")
    quiet = Arrivals(clock, [(0, 5), (600, 6)], name="q")
    busy = Arrivals(clock, [(0, 50), (60, 60), (80, 70), (600, 80)], name="b")

    def build(env: StreamExecutionEnvironment) -> None:
        left, right = env._read(quiet, IDLE_AFTER_50, "quiet"), env._read(busy, ASCENDING, "busy")
        watched(env, left.map(lambda value: value).union(right), out, exchanges)

    result = run(build, clock=clock, parallelism=parallelism)
    moved = steps(watermark_history(result))
    assert moved[0] == 4 and moved[-1] == HIGH and 69 in moved
    assert seen(result)["b0", 80] == 69


def test_the_end_of_one_source_does_not_end_event_time_while_the_other_is_idle() -> None:
    clock, out = ManualClock(), Collect("out")

    def build(env: StreamExecutionEnvironment) -> None:
        short = env._read(Arrivals(clock, [(0, 50)], name="s"), ASCENDING, "short")
        long = env._read(Arrivals(clock, [(0, 5), (400, 6), (420, 7)], name="l"), IDLE_AFTER_50, "long")
        watched(env, short.union(long), out)

    result = run(build, clock=clock, parallelism=2)
    assert steps(watermark_history(result)) == [4, 5, HIGH]
    assert seen(result)["l0", 6] == 4


def test_the_end_of_a_source_advances_event_time_although_the_other_is_quiet() -> None:
    clock, out = ManualClock(), Collect("out")

    def build(env: StreamExecutionEnvironment) -> None:
        short = env._read(Arrivals(clock, [(0, 5)], name="s"), ASCENDING, "short")
        long = env._read(Arrivals(clock, [(0, 50), (400, 60)], name="l"), ASCENDING, "long")
        watched(env, short.union(long), out)

    result = run(build, clock=clock)
    assert steps(watermark_history(result)) == [4, 49, HIGH]
    assert result.epochs == 3, "one for the input, one for the end of the first source, one for the rest"


@pytest.mark.parametrize(("strategy", "moves"), [(IDLE_AFTER_50, True), (ASCENDING, False)])
def test_the_next_time_based_watermark_change_is_known(strategy: WatermarkStrategy, moves: bool) -> None:
    clock = ManualClock()
    source = Arrivals(clock, [(10, 5), (900, 6)], [(10, 50), (50, 60), (900, 70)])
    env = StreamExecutionEnvironment()
    watched(env, env._read(source, strategy, "in").uid("in"), Collect())
    plan = compile_graph(env._graph("job"))
    after_two_epochs = run_source(source, strategy, clock).manifests[1]
    context = SourceContext(now_ms=65, run_started_ms=0, parallelism=1)
    strategies, sources = strategies_of(plan), (PlannedSource("in", source, 1),)
    planned = plan_input(sources, after_two_epochs.sources, 100, context, strategies, accounts_of(after_two_epochs))
    assert not planned.has_input
    assert not watermark_is_due(plan, planned, strategies, after_two_epochs, 69)
    assert watermark_is_due(plan, planned, strategies, after_two_epochs, 70) == moves
    assert not watermark_is_due(plan, planned, strategies, None, 70)


# --- in mid-stream ---------------------------------------------------------------------------------------------


def run_mid_stream(source: Source, strategy: WatermarkStrategy, clock: ManualClock, **how: Any) -> Result:
    out = Collect("out")

    def build(env: StreamExecutionEnvironment) -> None:
        stream = env._read(source, None, "in").assign_timestamps_and_watermarks(strategy).uid("times")
        watched(env, stream, out)

    return run(build, clock=clock, **how)


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_strategy_in_mid_stream_has_a_watermark_per_subtask(parallelism: int) -> None:
    clock = ManualClock()
    source = Arrivals(clock, [(0, 5), (20, 6), (200, 7)], [(0, 50), (40, 60), (200, 70)], [(0, 90), (200, 91)])
    result = run_mid_stream(source, ASCENDING, clock, parallelism=parallelism)
    # With two subtasks the first and the third split share one, and the third is far ahead: a strategy in mid-stream
    # no longer distinguishes splits.
    assert steps(watermark_history(result)) == ([49, 59, HIGH] if parallelism == 2 else [4, 5, HIGH])


def test_an_idle_subtask_in_mid_stream_is_ignored_and_the_job_wakes_up_for_it() -> None:
    clock = ManualClock()
    source = Arrivals(clock, [(0, 5), (300, 6)], [(0, 50), (40, 60), (300, 70)])
    result = run_mid_stream(source, IDLE_AFTER_50, clock, parallelism=2)
    assert steps(watermark_history(result)) == [4, 59, HIGH]
    assert result.epochs == 4
    assert seen(result)["0", 6] == 59


def test_generator_state_in_mid_stream_survives_a_crash() -> None:
    out = Collect("out")
    script = Script([("a", 11), EPOCH, ("b", 12), EPOCH, CRASH, ("c", 28), EPOCH, ("d", 1)])
    strategy = by_field(WatermarkStrategy.for_generator(EveryTenth))
    result = run(lambda env: watched(env, env.add_source(script).assign_timestamps_and_watermarks(strategy), out))
    assert seen(result) == {("a", 11): LOW, ("b", 12): 11, ("c", 28): 12, ("d", 1): 23}


# --- restart and rescale ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_crash_changes_no_watermark(parallelism: int) -> None:
    def script(mark: Any) -> Script:
        return Script(
            [("a", 10), EPOCH, ("b", 20), EPOCH, mark, ("c", 30)], [("d", 15), EPOCH, ("e", 16), EPOCH, ("f", 3)]
        )

    clean, crashed = (run_source(script(m), ASCENDING, parallelism=parallelism) for m in (EPOCH, CRASH))
    assert crashed.restarts == 1
    assert seen(clean) == seen(crashed)


def crash_then(first: int, second: int, mid_stream: bool) -> tuple[list[int], dict[Any, int]]:
    """Run at one parallelism until the crash, then restore at another. Returns the watermarks after it."""
    clock, store = ManualClock(), fresh_name("watermarks")
    arrivals = ([(0, 5), (400, 6), (420, 9)], [(0, 50), (400, 60), (420, 61)], [(0, 90), (400, 95), (420, 96)])
    start: Any = run_mid_stream if mid_stream else run_source
    with pytest.raises(JobFailedError):
        start(
            Arrivals(clock, *arrivals, crash_at=200),
            ASCENDING,
            clock,
            parallelism=first,
            store=store,
            restart=RestartStrategies.no_restart(),
        )
    result = start(Arrivals(clock, *arrivals), ASCENDING, clock, parallelism=second, store=store)
    return steps(watermark_history(result)), seen(result)


@pytest.mark.parametrize(("first", "second"), [(3, 1), (1, 3), (2, 3), (3, 2)])
def test_a_split_keeps_its_watermark_at_another_parallelism(first: int, second: int) -> None:
    moved, records = crash_then(first, second, mid_stream=False)
    assert moved == [5, HIGH]
    assert {time: watermark for (_, time), watermark in records.items() if time in (6, 60)} == {6: 4, 60: 4}


@pytest.mark.parametrize("second", [1, 2])
def test_after_a_rescale_mid_stream_subtasks_start_at_the_smallest_previous_watermark(second: int) -> None:
    _, records = crash_then(3, second, mid_stream=True)
    assert {time: watermark for (_, time), watermark in records.items() if time in (6, 60)} == {6: 4, 60: 4}
    accounts = {0: SubtaskAccount(time=EventTimeState(4)), 1: SubtaskAccount(time=EventTimeState(9))}
    assert [time.watermark for time in restored_times(accounts, second + 2)] == [4] * (second + 2)


def test_downtime_does_not_count_towards_the_idle_timeout() -> None:
    clock, store = ManualClock(), fresh_name("watermarks")
    arrivals = ([(0, 5), (100_040, 6), (100_200, 7)], [(0, 50), (100_000, 60), (100_200, 70)])
    with pytest.raises(JobFailedError):
        restart = RestartStrategies.no_restart()
        run_source(Arrivals(clock, *arrivals, crash_at=30), IDLE_AFTER_50, clock, store=store, restart=restart)
    clock.advance(100_000 - clock.now_ms())
    result = run_source(Arrivals(clock, *arrivals), IDLE_AFTER_50, clock, store=store)
    assert seen(result)["0", 6] == 4


# --- alignment -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2])
def test_splits_of_an_alignment_group_stay_within_the_drift_across_sources(parallelism: int) -> None:
    drift_ms, out = 5, Collect("out")
    aligned = ASCENDING.with_watermark_alignment("together", Duration.of_millis(drift_ms))
    fast = Script([("fast", n * 10) for n in range(10)])
    slow = Script([("slow", n) for n in range(40)], [("slower", n) for n in range(30)])

    def build(env: StreamExecutionEnvironment) -> None:
        stream = env._read(fast, aligned, "fast").union(env._read(slow, aligned, "slow"))
        watched(env, stream, out)

    result = run(build, parallelism=parallelism, epoch_records=3)
    assert len(result["out"]) == 80
    epochs = {record.value[0]: record.epoch for record in result.of("out")}
    # The fast split pauses at 10, 20, … and resumes as soon as the slowest one is within the drift.
    for stands in (10, 20):
        assert epochs["fast", stands + 10] == epochs["slower", stands - drift_ms] + 1
    assert epochs["slow", 20] == epochs["slower", 20], "splits within the drift do not wait"


def test_a_split_paused_by_alignment_does_not_become_idle() -> None:
    clock = ManualClock()
    strategy = IDLE_AFTER_50.with_watermark_alignment("together", Duration.of_millis(5))
    slow = [(at_ms, at_ms // 10) for at_ms in range(0, 400, 20)]
    result = run_source(Arrivals(clock, [(0, 30), (0, 31)], slow), strategy, clock, epoch_records=2)
    held = [m for m in result.manifests if not m.sources["in"]["0"].finished]
    assert len(held) > 10
    assert watermark_history(result)[len(held) - 1] < 30, "the watermark ran away from the split that was held back"


def test_a_split_paused_by_another_source_still_holds_a_unions_watermark() -> None:
    clock, out = ManualClock(), Collect("out")
    near = Duration.of_millis(5)
    fast = Arrivals(clock, [(0, 30), (0, 31)], name="f")
    slow = Arrivals(clock, [(0, 0), (400, 40)], name="s")
    other = Arrivals(clock, [(0, 100), (400, 101)], name="o")

    def build(env: StreamExecutionEnvironment) -> None:
        env._read(slow, ASCENDING.with_watermark_alignment("g", near), "slow").sink_to(Collect())
        held = env._read(fast, IDLE_AFTER_50.with_watermark_alignment("g", near), "fast")
        watched(env, held.union(env._read(other, ASCENDING, "other")), out)

    result = run(build, clock=clock, epoch_records=3)
    assert seen(result)["f0", 31] == seen(result)["o0", 101] == 29
    assert result.epochs == 3, "the job woke although nothing could move"


def test_an_idle_split_does_not_pause_its_alignment_group() -> None:
    clock = ManualClock()
    strategy = IDLE_AFTER_50.with_watermark_alignment("together", Duration.of_millis(5))
    result = run_source(Arrivals(clock, [(0, 0), (700, 1)], [(0, 30), (0, 60)]), strategy, clock, epoch_records=2)
    epochs = {record.value[0]: record.epoch for record in result.of("out")}
    assert epochs["1", 60] < epochs["0", 1]


def test_alignment_groups_are_independent_and_each_source_has_its_own_drift() -> None:
    near, far, other = (WatermarkAlignment(g, d, 1) for g, d in (("g", 5), ("g", 50), ("other", 5)))
    splits = [
        AlignedSplit("a", "0", near, 100, False),
        AlignedSplit("b", "0", far, 140, False),
        AlignedSplit("c", "0", near, 106, False),
        AlignedSplit("d", "0", other, 10_000, False),
    ]
    assert held_back(splits) == {("c", "0")}
    assert held_back([]) == frozenset()


# --- where splits are read -------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 20), unique=True), st.dictionaries(st.integers(0, 20), st.integers(0, 6)), st.integers(1, 5)
)
def test_splits_are_assigned_evenly_and_move_only_to_balance(
    live: list[int], before: dict[int, int], parallelism: int
) -> None:
    names, old = [str(n) for n in live], {str(n): at for n, at in before.items()}
    found = homes(names, old, parallelism)
    counts = [list(found.values()).count(subtask) for subtask in range(parallelism)]
    assert list(found) == names and max(counts) - min(counts) <= 1
    assert homes(names[::-1], found, parallelism) == found
    stayed = [old[name] for name in names if old.get(name, parallelism) < parallelism]
    spread = [stayed.count(subtask) for subtask in range(parallelism)]
    if len(stayed) == len(names) and max(spread) - min(spread) <= 1:
        assert found == {name: old[name] for name in names}


# --- a source whose splits are all read, but which may discover more ------------------------------------------------


class Folder(Arrivals):
    """Every split has one record, and further splits appear over time, like files in a folder."""

    def splits(self, context: SourceContext) -> Sequence[Split]:
        listed = super().splits(context)
        return [split for split in listed if self.arrivals[split.info][0][0] <= context.now_ms]

    def complete(self, context: SourceContext) -> bool:
        return all(arrival[0][0] <= context.now_ms for arrival in self.arrivals)


def test_a_source_with_all_splits_read_has_not_ended_while_more_may_be_discovered() -> None:
    clock, out = ManualClock(), Collect("out")
    folder = Folder(clock, [(0, 10)], [(300, 20)], name="file")
    other = Arrivals(clock, [(0, 1), (100, 40), (200, 50), (300, 60)], name="o")

    def build(env: StreamExecutionEnvironment) -> None:
        watched(env, env._read(folder, ASCENDING, "files").union(env._read(other, ASCENDING, "other")), out)

    result = run(build, clock=clock)
    assert seen(result)["o0", 50] == seen(result)["file1", 20] == 9


def test_a_discovering_source_without_open_splits_becomes_idle() -> None:
    clock, out = ManualClock(), Collect("out")
    folder = Folder(clock, [(0, 10)], [(600, 20)], name="file")
    other = Arrivals(clock, [(0, 1), (40, 40), (600, 60)], name="o")

    def build(env: StreamExecutionEnvironment) -> None:
        watched(env, env._read(folder, IDLE_AFTER_50, "files").union(env._read(other, ASCENDING, "other")), out)

    result = run(build, clock=clock)
    assert seen(result)["file1", 20] == 39
    assert result.epochs == 4


# --- all rules at once -----------------------------------------------------------------------------------------

ARRIVALS = st.lists(st.tuples(st.integers(0, 25).map(lambda n: n * 10), st.integers(0, 100)), max_size=6).map(
    lambda split: sorted(split, key=lambda arrival: arrival[0])
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ARRIVALS, min_size=1, max_size=4),
    st.integers(1, 3),
    st.sampled_from([0, 7]),
    st.sampled_from([None, 30]),
    st.integers(0, 2),
    st.booleans(),
)
def test_a_watermark_never_regresses_nor_passes_the_slowest_active_split(
    arrivals: list[list[tuple[int, int]]],
    parallelism: int,
    delay_ms: int,
    timeout_ms: int | None,
    exchanges: int,
    small_epochs: bool,
) -> None:
    clock, out = ManualClock(), Collect("out")
    strategy = by_field(WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(delay_ms)))
    if timeout_ms is not None:
        strategy = strategy.with_idleness(Duration.of_millis(timeout_ms))

    def build(env: StreamExecutionEnvironment) -> None:
        watched(env, env._read(Arrivals(clock, *arrivals), strategy, "in").uid("in"), out, exchanges)

    epoch_records = len(arrivals) if small_epochs else None
    result = run(build, clock=clock, parallelism=parallelism, epoch_records=epoch_records)
    assert sorted(v for v, _ in result["out"]) == sorted((str(n), t) for n, s in enumerate(arrivals) for _, t in s)
    for uid in result.manifests[-1].program:
        previous = LOW
        for manifest, reached in zip(result.manifests, watermark_history(result, uid), strict=True):
            if reached > previous and manifest.status == "RUNNING":
                assert reached <= _bound(manifest, arrivals, delay_ms, timeout_ms)
            previous = reached
    courses = [watermark_history(result, uid) for uid in result.manifests[-1].program]
    for number, (before, after) in enumerate(itertools.pairwise(result.manifests)):
        if after.status == "RUNNING" and after.sources == before.sources:
            assert any(moved[number + 1] > moved[number] for moved in courses), "an epoch ran for nothing"


def _bound(manifest: Any, arrivals: list[list[tuple[int, int]]], delay_ms: int, timeout_ms: int | None) -> int:
    """The reference: the smallest (largest timestamp read - delay - 1) over unfinished splits that are not idle."""
    bounds = []
    for number, split in enumerate(arrivals):
        at = manifest.sources["in"].get(str(number))
        read = 0 if at is None else at.offset
        # A split that ends in this epoch still counts in it.
        quiet_ms = manifest.created_ms - manifest.states["in"].get("splits", {}).get(str(number), {}).get(
            "active_ms", 0
        )
        idle = timeout_ms is not None and quiet_ms >= timeout_ms
        if read < len(split) and not idle:
            bounds.append(max((time for _, time in split[:read]), default=LOW) - delay_ms - 1)
    return max(LOW, min(bounds, default=HIGH))


@given(st.lists(st.one_of(st.integers(LOW, HIGH - 2), st.just(IDLE_WATERMARK), st.just(HIGH)), min_size=1))
def test_merging_inputs_prefers_active_watermarks_to_idle_and_idle_to_ended(ways: list[int]) -> None:
    real = [way for way in ways if way < IDLE_WATERMARK]
    expected = min(real) if real else IDLE_WATERMARK if IDLE_WATERMARK in ways else HIGH
    assert min(ways) == expected


@given(st.integers(LOW, HIGH - 2), st.integers(0, 100), st.integers(1, 100), st.integers(0, 300))
def test_an_input_is_idle_exactly_from_its_timeout_on(
    watermark: int, active_ms: int, timeout_ms: int, now_ms: int
) -> None:
    stands = EventTimeState(watermark, active_ms).effective_watermark(timeout_ms, now_ms)
    assert stands == (IDLE_WATERMARK if now_ms >= active_ms + timeout_ms else watermark)
