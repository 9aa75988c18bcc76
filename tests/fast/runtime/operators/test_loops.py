"""Loops: records that go round are state, event time waits for them, and a job ends when they have left."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from programs.loops import END, MESSAGE, WALK, Component, collatz_steps, next_of
from waits.refusals import Refused

from millstream.checkpoint.manifest import Manifest
from millstream.common import Duration, RestartStrategies, Time, Types, WatermarkStrategy
from millstream.compiler.explain import explain
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream.functions import CheckpointedFunction, KeyedProcessFunction, ProcessFunction
from millstream.datastream.state import ListStateDescriptor, MapStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import JobFailedError, StoreDamagedError
from millstream.runtime.exchange.blocks import decode_block
from millstream.runtime.keyed.state_store import last_row_numbers, with_row_numbers
from millstream.state.stored.accounts import AccountReader, SubtaskAccount, accounts_of, to_json
from millstream.state.stored.operator_lists import Slice, column_of
from millstream.storage.memory import MemoryStore
from millstream.testing import CRASH, EPOCH, Collect, Script, run

_STORES = itertools.count()
FIXTURE = Path(__file__).parents[3] / "compatibility" / "loop-1.json"


def walk(stream: DataStream, out: Collect, rounds_max: int | None = None) -> None:
    """Collatz: every number until it is 1, with the count of steps."""
    loop = stream.map(lambda n: (n, n, 0), WALK).iterate(rounds_max=rounds_max).name("walks").uid("head")
    loop.close_with(loop.filter(lambda w: w[1] > 1).map(lambda w: (w[0], next_of(w[1]), w[2] + 1), WALK))
    loop.filter(lambda w: w[1] <= 1).map(lambda w: (w[0], w[2])).sink_to(out)


def steps_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    return sorted((n, collatz_steps(n)) for n in numbers)


def in_loop(manifest: Manifest) -> int:
    subtasks = (account for operator in accounts_of(manifest).values() for account in operator.subtasks.values())
    return sum(account.loop.records for account in subtasks if account.loop is not None)


def test_an_epoch_goes_round_until_nothing_comes_back() -> None:
    out = Collect()
    result = run(lambda env: walk(env.add_source(Script([9, 6, 1])), out))
    assert sorted(result[out]) == steps_of([9, 6, 1])
    assert in_loop(result.manifests[-1]) == 0


def test_what_is_left_after_the_last_round_is_in_the_snapshot_and_goes_on_in_the_next_epoch() -> None:
    out = Collect()
    result = run(lambda env: walk(env.add_source(Script([9, 6, 1])), out, rounds_max=4))
    # 9 needs 19 steps and 6 needs 8; four rounds make four steps, for a record is sent back in the first one too.
    assert [in_loop(m) for m in result.manifests[:6]] == [2, 2, 1, 1, 0, 0]
    assert sorted(result[out]) == steps_of([9, 6, 1])


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 1), (2, 2)])
def test_records_in_a_loop_are_restored_at_any_parallelism(before: int, after: int) -> None:
    store, first, second = f"loop-{next(_STORES)}", Collect(), Collect()
    source = Script([9, 6, 1], [7, 5], type_info=Types.LONG())
    half = run(lambda env: walk(env.add_source(source), first, rounds_max=3), parallelism=before, epochs=2, store=store)
    assert half.status == "SUSPENDED" and in_loop(half.manifests[-1]) == 3
    run(lambda env: walk(env.add_source(source), second, rounds_max=3), parallelism=after, store=store)
    found = {(r.epoch, r.value) for sink in (first, second) for r in sink.records}
    assert sorted(value for _, value in found) == steps_of([9, 6, 1, 7, 5])


def test_a_crash_in_a_round_repeats_the_whole_epoch_and_nothing_else(tmp_path: Path) -> None:
    out, crashed = Collect(), tmp_path / "crashed"

    class FailOnce(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            if value[2] == 5 and not crashed.exists():
                crashed.touch()
                raise RuntimeError("once")
            yield value

    def build(env: StreamExecutionEnvironment) -> None:
        loop = env.add_source(Script([9, 6])).map(lambda n: (n, n, 0), WALK).iterate(rounds_max=3)
        checked = loop.process(FailOnce(), WALK)
        loop.close_with(checked.filter(lambda w: w[1] > 1).map(lambda w: (w[0], next_of(w[1]), w[2] + 1), WALK))
        checked.filter(lambda w: w[1] <= 1).map(lambda w: (w[0], w[2])).sink_to(out)

    result = run(build, restart=RestartStrategies.fixed_delay_restart(1, 0))
    assert result.restarts == 1 and sorted(result[out]) == steps_of([9, 6])


def test_untyped_records_and_their_timestamps_go_round() -> None:
    out = Collect()

    class Stamp(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value["n"], ctx.timestamp()

    def build(env: StreamExecutionEnvironment) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n * 100)
        loop = env.add_source(Script([1, 2])).assign_timestamps_and_watermarks(strategy)
        head = loop.map(lambda n: {"n": n}).iterate()
        head.close_with(head.filter(lambda d: d["n"] < 10).map(lambda d: {"n": d["n"] * 10}))
        head.filter(lambda d: d["n"] >= 10).process(Stamp()).sink_to(out)

    assert sorted(run(build)[out]) == [(10, 100), (20, 200)]


def windows_behind_a_loop(env: StreamExecutionEnvironment, source: Script, out: Collect, rounds_max: int) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(0))
    stamped = env.add_source(source).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda n, _: n * 10)
    )
    loop = stamped.map(lambda n: (n, n, 0), WALK).iterate(rounds_max=rounds_max)
    loop.close_with(loop.filter(lambda w: w[1] > 1).map(lambda w: (w[0], next_of(w[1]), w[2] + 1), WALK))
    done = loop.filter(lambda w: w[1] <= 1).key_by(lambda w: 0, Types.LONG())
    windows = done.window(TumblingEventTimeWindows.of(Time.milliseconds(50)))
    windows.reduce(lambda a, b: (min(a[0], b[0]), 1, a[2] + b[2])).map(lambda w: (w[0], w[2])).sink_to(out)


@pytest.mark.slow
@pytest.mark.parametrize("rounds_max", [1, 2, 5, 50])
def test_event_time_waits_for_the_records_in_the_loop(rounds_max: int) -> None:
    out = Collect()
    source = Script([1, 2, 3, EPOCH, 5, 6, EPOCH, 9, 13, EPOCH, 30])
    result = run(lambda env: windows_behind_a_loop(env, source, out, rounds_max))
    sums = [(1, sum(map(collatz_steps, (1, 2, 3)))), (5, sum(map(collatz_steps, (5, 6, 9)))), (13, 9), (30, 18)]
    assert sorted(result[out]) == sums


def test_event_time_moves_on_in_the_same_epoch_when_nothing_came_back() -> None:
    out = Collect()
    source = Script([1, 2, EPOCH, 16, EPOCH, 17])
    result = run(lambda env: windows_behind_a_loop(env, source, out, rounds_max=50))
    assert (out.records[0].epoch, result[out][0]) == (2, (1, 1))


def test_timers_that_fire_at_the_end_of_input_may_send_records_round() -> None:
    class Last(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            if value < 100:
                ctx.timer_service().register_event_time_timer(END)
            else:
                yield value

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            yield ctx.get_current_key() + 100

    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        loop = env.add_source(Script([1, 2], type_info=Types.LONG())).iterate()
        told = loop.key_by(lambda n: n, Types.LONG()).process(Last(), Types.LONG())
        loop.close_with(told.filter(lambda n: n < 200).map(lambda n: n + 100, Types.LONG()))
        told.filter(lambda n: n >= 200).sink_to(out)

    assert sorted(run(build)[out]) == [201, 202]


def test_sources_that_take_turns_end_the_job_only_when_the_loop_is_empty() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        loop = env.add_source(Script([9], [6, EPOCH, EPOCH, 7], type_info=Types.LONG()))
        walk(loop.union(env.add_source(Script([5], type_info=Types.LONG()))), out, rounds_max=1)

    assert sorted(run(build, parallelism=2)[out]) == steps_of([9, 6, 7, 5])


# --- what is refused -----------------------------------------------------------------------------------------


def new_stream() -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection([1, 2], Types.LONG())


def test_a_loop_that_is_never_closed_is_refused_where_it_began() -> None:
    stream = new_stream()
    with Refused("'Iteration' is never closed", "close_with(feedback)"):
        loop = stream.iterate()
        loop.print()
        explain(stream.get_execution_environment()._graph("job"))


def test_a_loop_closed_with_a_stream_that_does_not_come_from_it_is_refused() -> None:
    stream = new_stream()
    loop = stream.iterate()
    loop.print()
    with Refused("a stream that does not descend from it", "derived from the result of iterate()"):
        loop.close_with(stream.map(lambda n: n, Types.LONG()))
        explain(stream.get_execution_environment()._graph("job"))


def test_close_with_refuses_other_types_other_environments_and_a_second_time() -> None:
    loop = new_stream().iterate()
    with Refused("the loop carries LONG, and the feedback is STRING", "Map it to the loop's type"):
        loop.close_with(loop.map(str, Types.STRING()))
    with Refused("close_with: found 3 (int), expected a stream"):
        loop.close_with(3)  # type: ignore[arg-type]
    with Refused("another environment"):
        loop.close_with(new_stream())
    assert loop.close_with(kept := loop.filter(lambda n: n > 3)) is kept
    with Refused("is closed already (test_loops.py:", "with a union"):
        loop.close_with(loop.filter(lambda n: n > 4))


def test_iterate_refuses_keyed_streams_and_numbers_that_make_no_sense() -> None:
    stream = new_stream()
    with Refused("iterate: a loop cannot start on a keyed stream"):
        stream.key_by(lambda n: n).iterate()
    with Refused("iterate: found -1, expected a whole number of at least 0"):
        stream.iterate(-1)
    with Refused("iterate: rounds_max: found 0, expected a whole number of at least 1"):
        stream.iterate(5000, rounds_max=0)


def test_records_in_a_loop_of_another_type_are_refused_and_kept() -> None:
    store, source = f"loop-{next(_STORES)}", Script([9, 6])
    run(lambda env: walk(env.add_source(source), Collect(), rounds_max=1), epochs=2, store=store)

    def changed(env: StreamExecutionEnvironment) -> None:
        loop = env.add_source(source).map(lambda n: (n, n, 0)).iterate(rounds_max=1).name("walks").uid("head")
        loop.close_with(loop.filter(lambda w: w[1] > 1).map(lambda w: (w[0], next_of(w[1]), w[2] + 1)))
        loop.filter(lambda w: w[1] <= 1).map(lambda w: (w[0], w[2])).sink_to(Collect())

    with pytest.raises(JobFailedError, match=r"2 records of type .* are in the loop 'walks'.*Let the loop run empty"):
        run(changed, store=store)
    out = Collect()
    run(lambda env: walk(env.add_source(source), out), store=store)
    assert sorted(out.values) == steps_of([9, 6])


# --- around loops --------------------------------------------------------------------------------------------


def test_a_second_job_of_the_environment_takes_the_loop_along() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    first, second = Collect(), Collect()
    loop = env.add_source(Script([9, 6])).map(lambda n: (n, n, 0), WALK).iterate()
    loop.close_with(loop.filter(lambda w: w[1] > 1).map(lambda w: (w[0], next_of(w[1]), w[2] + 1), WALK))
    done = loop.filter(lambda w: w[1] <= 1).map(lambda w: (w[0], w[2]))
    done.sink_to(first)
    assert sorted(run(env)[first]) == steps_of([9, 6])
    done.map(lambda w: w[1]).sink_to(second)
    assert sorted(run(env)[second]) == sorted(steps for _, steps in steps_of([9, 6]))


def test_the_plan_shows_where_a_loop_begins_and_closes() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    walk(env.add_source(Script([9, 6])), Collect())
    plan = explain(env._graph("job"))
    assert "walks  ×" in plan and "reads the records fed back by uid=feedback-walks-" in plan
    assert "Feedback: walks" in plan and "stores the records fed back to the head of its loop" in plan


def test_a_loop_written_by_version_1_is_still_read() -> None:
    written = json.loads(FIXTURE.read_text())
    account = AccountReader().subtask(written, "feedback")
    assert to_json(account) == written
    assert account.loop is not None and account.loop.blocks is not None
    entry = account.loop.blocks
    blocks = column_of([(entry, Slice(0, 0, entry.items))], MemoryStore(f"loop-{next(_STORES)}"), "the loop")
    assert blocks is not None
    batches = [batch for block in blocks for batch in decode_block(block.as_buffer(), WALK)]
    assert [value for batch in batches for value in batch.values()] == [(9, 28, 1), (6, 3, 1)]
    assert account.loop.records == 2 and [b.timestamps for b in batches] == [None]


def test_a_damaged_loop_is_an_error_and_never_an_empty_one() -> None:
    store, source = f"loop-{next(_STORES)}", Script([9, 6])
    half = run(lambda env: walk(env.add_source(source), Collect(), rounds_max=1), epochs=2, store=store)
    accounts = accounts_of(half.manifests[-1]).values()
    tails = [account.loop for operator in accounts for account in operator.subtasks.values()]
    entry = next(tail.blocks for tail in tails if tail is not None and tail.blocks is not None)
    assert entry.inline is not None
    cut = replace(entry, inline=entry.inline[:-8])
    with pytest.raises(StoreDamagedError, match="lost or changed"):
        column_of([(cut, Slice(0, 0, 1))], MemoryStore(store), "the records in the loop")


class Countdown(KeyedProcessFunction):
    """Sends every number back, one less, and keeps what it saw in a list."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        self.seen.add(value)
        ctx.timer_service().register_event_time_timer(END)
        if value > 0:
            yield value - 1

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield from (-1 - n for n in self.seen.get())


@pytest.mark.parametrize("rounds_max", [2, 100])
def test_a_list_behind_a_loop_keeps_the_elements_of_all_rounds_in_their_order(rounds_max: int) -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        loop = env.add_source(Script([3], type_info=Types.LONG())).iterate(rounds_max=rounds_max)
        counted = loop.key_by(lambda n: "all").process(Countdown(), Types.LONG())
        loop.close_with(counted.filter(lambda n: n >= 0))
        counted.filter(lambda n: n < 0).map(lambda n: -1 - n).sink_to(out)

    assert run(build)[out] == [3, 2, 1, 0]


def test_numbers_of_rows_go_on_where_the_largest_of_all_subtasks_ended_and_stay_for_states_nobody_declares() -> None:
    one, other = SubtaskAccount(elements_numbered={"a": 5, "b": 1}), SubtaskAccount(elements_numbered={"a": 9})
    assert last_row_numbers([one, other, SubtaskAccount()]) == {"a": 9, "b": 1}
    account = with_row_numbers(SubtaskAccount(), {"left alone": 7}, {})
    assert account == SubtaskAccount(elements_numbered={"left alone": 7})


class EveryOperatorState(ProcessFunction, CheckpointedFunction):
    """Every record with how many came before it, by each kind of operator state."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.list = store.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.union = store.get_union_list_state(ListStateDescriptor("union", Types.LONG()))
        self.map = store.get_broadcast_state(MapStateDescriptor("map", Types.LONG(), Types.LONG()))

    def snapshot_state(self, context: Any) -> None:
        """All is kept as it changes."""

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield len(list(self.list.get())), len(list(self.union.get())), len(list(self.map.items()))
        self.list.add(value[0])
        self.union.add(value[0])
        self.map.put(value[0], 1)


def test_operator_state_behind_a_loop_has_the_records_of_all_rounds_after_a_crash_too() -> None:
    out, numbers = Collect(), list(range(12))

    def build(env: StreamExecutionEnvironment) -> None:
        walks = env.add_source(Script([*numbers[:7], CRASH, *numbers[7:]])).map(lambda n: (n, n % 3, 0), WALK)
        loop = walks.iterate(rounds_max=2)
        loop.close_with(loop.filter(lambda w: w[1] > 0).map(lambda w: (w[0], w[1] - 1, 0), WALK))
        loop.filter(lambda w: w[1] == 0).process(EveryOperatorState()).sink_to(out)

    result = run(build, epoch_records=3, restart=RestartStrategies.fixed_delay_restart(1, 0))
    assert result.restarts == 1
    assert result[out] == [(n, n, n) for n in numbers]


def test_the_end_waits_for_records_that_come_back_to_a_head_which_was_ahead_of_the_others() -> None:
    # After the first round only one head has given out records; what these cause comes back to the other one.
    edges, out = [(0, 2), (1, 2), (1, 3)], Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        messages = env.add_source(Script(edges)).flat_map(
            lambda e: [(e[0], -1, e[0]), (e[1], -1, e[1]), (e[0], e[1], e[0]), (e[1], e[0], e[1])], MESSAGE
        )
        loop = messages.iterate(rounds_max=1)
        labels = loop.key_by(lambda m: m[0], Types.LONG()).process(Component(), MESSAGE)
        loop.close_with(labels.filter(lambda m: m[0] >= 0))
        labels.filter(lambda m: m[0] < 0).map(lambda m: (m[1], m[2])).sink_to(out)

    assert sorted(run(build, parallelism=2)[out]) == [(0, 0), (1, 0), (2, 0), (3, 0)]
