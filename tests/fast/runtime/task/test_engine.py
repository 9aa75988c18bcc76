"""The engine, run in memory: every operator, partitioning and job shape has the same golden result, however its input
is cut.

`programs.py` holds the programs. Here they run through a crash (`tests/golden` runs them at every parallelism, in one
epoch and in many, and in BATCH); partitioning is checked record by record.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from programs.plain import NUMBERS, numbers

from millstream.common import RestartStrategies, Types
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.state.keys.key_columns import key_column
from millstream.testing import CRASH, EPOCH, Collect, Collected, Script, run

CRASHED: set[Any] = set()


class CrashOnceAt:
    """Fails the first time it receives `number`. A class of this module, not a closure: its copies share `CRASHED`."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, value: Any) -> Any:
        if value == self.number and value not in CRASHED:
            CRASHED.add(value)
            raise RuntimeError(f"scripted failure at {value}")
        return value


# --- partitioning -------------------------------------------------------------------------------------------


def records_per_subtask(partition: Any, parallelism: int = 3, receivers: int | None = None) -> list[Collected]:
    """The records that each subtask of a sink receives when the numbers are partitioned by `partition`."""
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        stream: DataStream = partition(env.add_source(numbers())).map(lambda n: n, Types.LONG())
        if receivers is not None:
            stream.set_parallelism(receivers)
        stream.sink_to(out).set_parallelism(receivers or parallelism)

    return run(build, parallelism=parallelism).of(out)


def by_subtask(records: list[Collected]) -> dict[int, list[Any]]:
    by_receiver: dict[int, list[Any]] = defaultdict(list)
    for record in records:
        by_receiver[record.subtask].append(record.value)
    return by_receiver


def test_key_by_routes_a_record_to_the_subtask_of_its_key_group() -> None:
    records = records_per_subtask(lambda stream: stream.key_by(lambda n: n % 7, Types.LONG()))
    targets = key_column([record.value % 7 for record in records], Types.LONG()).partitions(3, 128)
    assert [record.subtask for record in records] == targets.tolist()
    assert len(records) == len(NUMBERS)


def test_partition_custom_routes_a_record_to_the_partitioners_choice() -> None:
    records = records_per_subtask(
        lambda stream: stream.partition_custom(lambda key, n: key * 5 % n, lambda value: value)
    )
    assert all(record.subtask == record.value * 5 % 3 for record in records)


def test_broadcast_sends_every_record_to_every_subtask() -> None:
    by_receiver = by_subtask(records_per_subtask(lambda stream: stream.broadcast()))
    assert {subtask: sorted(values) for subtask, values in by_receiver.items()} == dict.fromkeys(range(3), NUMBERS)


def test_global_sends_all_records_to_subtask_0() -> None:
    by_receiver = by_subtask(records_per_subtask(lambda stream: stream.global_()))
    assert {subtask: sorted(values) for subtask, values in by_receiver.items()} == {0: NUMBERS}


def test_forward_does_not_move_records_between_tasks() -> None:
    by_receiver = by_subtask(records_per_subtask(lambda stream: stream.forward()))
    assert by_receiver == {0: NUMBERS[0::3], 1: NUMBERS[1::3], 2: NUMBERS[2::3]}


@pytest.mark.parametrize("receivers", [1, 2, 4, 5])
def test_rebalance_distributes_records_evenly(receivers: int) -> None:
    by_receiver = by_subtask(records_per_subtask(lambda stream: stream.rebalance(), receivers=receivers))
    sizes = [len(by_receiver[subtask]) for subtask in range(receivers)]
    assert sum(sizes) == len(NUMBERS)
    assert max(sizes) - min(sizes) <= 3, "each of the three senders may be off by one"


def test_rescale_sends_to_neighbouring_subtasks_only() -> None:
    by_receiver = by_subtask(records_per_subtask(lambda stream: stream.rescale(), receivers=6))
    for sender in range(3):
        reached = {subtask for subtask, values in by_receiver.items() for value in values if value % 3 == sender}
        assert reached == {2 * sender, 2 * sender + 1}


def test_rescale_to_fewer_subtasks_loses_nothing() -> None:
    by_receiver = by_subtask(records_per_subtask(lambda stream: stream.rescale(), receivers=2))
    assert sorted(value for values in by_receiver.values() for value in values) == NUMBERS


def test_records_from_one_sender_stay_in_order() -> None:
    for partition in (lambda s: s.rebalance(), lambda s: s.key_by(lambda n: n % 4), lambda s: s.shuffle()):
        for values in by_subtask(records_per_subtask(partition)).values():
            for sender in range(3):
                own = [value for value in values if value % 3 == sender]
                assert own == sorted(own)


def test_shuffle_is_repeated_when_an_epoch_is_replayed() -> None:
    def shuffled(items: list[Any]) -> list[Collected]:
        out = Collect()
        source = Script(items, type_info=Types.LONG())
        return run(lambda env: env.add_source(source).shuffle().map(str).sink_to(out), parallelism=3).of(out)

    assert shuffled([*NUMBERS, CRASH]) == shuffled(NUMBERS)


# --- epochs -------------------------------------------------------------------------------------------------


def test_an_epoch_mark_ends_the_epoch_there() -> None:
    out = Collect()
    result = run(lambda env: env.add_source(Script([1, 2, EPOCH, 3, EPOCH, 4, 5])).sink_to(out))
    assert [(record.value, record.epoch) for record in result.of(out)] == [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3)]


def test_the_record_budget_bounds_an_epoch() -> None:
    out = Collect()
    result = run(lambda env: env.from_collection(list(range(10))).sink_to(out), epoch_records=3)
    assert Counter(record.epoch for record in result.of(out)) == {1: 3, 2: 3, 3: 3, 4: 1}


def test_each_epoch_has_one_manifest_that_names_its_predecessor() -> None:
    out = Collect()
    result = run(lambda env: env.add_source(Script([1, EPOCH, 2, EPOCH, 3])).sink_to(out))
    assert [manifest.epoch for manifest in result.manifests] == [1, 2, 3, 4]
    assert [manifest.parent for manifest in result.manifests] == [0, 1, 2, 3]
    assert [manifest.status for manifest in result.manifests] == ["RUNNING", "RUNNING", "DRAINED", "FINISHED"]
    assert result.manifests[-1].published_through == 4


def test_a_job_with_empty_input_ends_without_output() -> None:
    out = Collect()
    result = run(lambda env: env.from_collection([]).map(str).sink_to(out), parallelism=2)
    assert result[out] == []
    assert result.status == "FINISHED"


def test_a_finished_job_does_nothing_when_started_again() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        env.from_collection([1, 2, 3]).uid("numbers").sink_to(out).uid("out")

    assert run(build, store="finished-job")[out] == [1, 2, 3]
    again = run(build, store="finished-job")
    assert (again[out], again.manifests, again.status) == ([], (), "FINISHED")


def test_a_stopped_job_continues_from_where_it_stopped() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        env.from_collection(list(range(10))).rebalance().map(lambda n: n).sink_to(out)

    first = run(build, store="stopped-job", epoch_records=2, epochs=2, parallelism=2)
    assert (sorted(first[out]), first.status) == ([0, 1, 2, 3], "SUSPENDED")
    rest = run(build, store="stopped-job", epoch_records=3, parallelism=3)
    assert (sorted(rest[out]), rest.status) == ([4, 5, 6, 7, 8, 9], "FINISHED")


def test_an_environment_can_be_used_again_after_a_job() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    first, second = Collect(), Collect()
    numbers = env.from_collection([1, 2, 3])
    numbers.map(lambda n: n + 1).sink_to(first)
    assert run(env, parallelism=1)[first] == [2, 3, 4]
    numbers.map(lambda n: n * 10).sink_to(second)
    assert run(env, parallelism=1)[second] == [10, 20, 30]
    assert first.values == [2, 3, 4], "the first job's sink ran in the second"


# --- crashes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 7, 13, 29])
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_crash_in_any_stage_is_recovered_exactly_once(stage: int, at: int) -> None:
    CRASHED.clear()
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.add_source(numbers())
        for number in range(3):
            if number == stage:
                stream = stream.map(CrashOnceAt(at), Types.LONG())
            stream = stream.rebalance().map(lambda n: n, Types.LONG())
        stream.sink_to(out)

    result = run(build, parallelism=2, epoch_records=7, restart=RestartStrategies.fixed_delay_restart(1, 0))
    assert sorted(result[out]) == NUMBERS
    assert result.restarts == 1


def test_a_crash_before_the_first_and_after_the_last_record_loses_nothing() -> None:
    out = Collect()
    result = run(lambda env: env.add_source(Script([CRASH, 1, 2, EPOCH, CRASH, CRASH, 3, CRASH])).sink_to(out))
    assert (result[out], result.restarts) == ([1, 2, 3], 4)


def test_records_of_a_failed_epoch_are_not_published() -> None:
    out = Collect()
    with pytest.raises(Exception, match="the script crashes"):
        run(
            lambda env: env.add_source(Script([1, EPOCH, 2, CRASH, 3])).sink_to(out),
            restart=RestartStrategies.no_restart(),
        )
    assert out.values == [1]


def test_metrics_and_counters_are_not_counted_twice_by_a_replay() -> None:
    out = Collect()
    result = run(lambda env: env.add_source(Script([1, 2, CRASH, 3])).map(lambda n: n).name("same").sink_to(out))
    counts = {uid: c["in"] for uid, c in result.manifests[-1].counters["operators"].items()}
    assert all(count == 3 for count in counts.values()), counts
