"""What the engine refuses, and how it says so: failing functions, wrong types, wrong programs, broken exchanges.

Every message is checked for its subject, what was found, and the user's own line.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from programs.plain import NUMBERS, numbers

from millstream.common import RestartStrategies, Row, Types, WatermarkStrategy
from millstream.compiler.passes import compile_graph
from millstream.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.datastream.functions import MapFunction
from millstream.errors import FencedError, JobFailedError, ProgramError, StoreError
from millstream.jobs.epochs.epoch_run import Runner
from millstream.jobs.epochs.outcome import MixedEpochError, gather
from millstream.jobs.launch.launch import Launch
from millstream.plan.stages import Plan
from millstream.runtime.exchange.blocks import BrokenExchangeError, Inbox
from millstream.runtime.exchange.messages import BARRIER, DATA, Barrier, ChannelEnd, Envelope, open_envelopes, seal
from millstream.runtime.task.local import LocalRunner
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import EpochSpec
from millstream.storage.memory import MemoryStore
from millstream.testing import CRASH, EPOCH, Collect, ManualClock, Script, run

HERE = Path(__file__).name


def fails(build: Callable[[StreamExecutionEnvironment], Any], **options: Any) -> JobFailedError:
    with pytest.raises(JobFailedError) as caught:
        run(build, **options)
    return caught.value


def line_of(text: str) -> str:
    """`file.py:41` for the line of this file that holds `text`."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    [number] = [n for n, line in enumerate(lines, start=1) if text in line and "line_of" not in line]
    return f"{HERE}:{number}"


# --- a failing user function --------------------------------------------------------------------------------


def parse(text: str) -> int:
    return int(text)


def test_a_failing_function_is_reported_with_traceback_record_operator_and_line() -> None:
    error = fails(
        lambda env: env.from_collection(["1", "x2"]).rebalance().map(parse).name("parse").sink_to(Collect()),  # here
        parallelism=2,
    )
    report = error.report.splitlines()
    assert report[0] == "Traceback (most recent call last):"
    assert "return int(text)" in error.report
    assert "ValueError: invalid literal for int() with base 10: 'x2'" in report
    assert "  record    'x2'" in report
    assert "  operator  'parse' (map)" in error.report
    assert f"  program   {line_of('# here')}" in report
    assert "millstream/runtime" not in error.report, "the report shows our own frames"
    assert str(error).startswith("'parse' failed: ValueError: invalid literal")
    assert line_of("# here") in str(error)


@pytest.mark.parametrize("kind", ["flat_map", "filter", "key_by", "partition_custom", "timestamps"])
def test_every_kind_of_user_function_reports_the_record_it_failed_on(kind: str) -> None:
    def boom(value: int, *_: Any) -> Any:
        return 1 // (value - 2)

    def build(env: StreamExecutionEnvironment) -> None:
        stream: Any = env.from_collection([1, 2, 3])
        if kind == "timestamps":
            strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(boom)
            stream = stream.assign_timestamps_and_watermarks(strategy)
        elif kind == "partition_custom":
            stream = stream.partition_custom(lambda key, n: key % n, boom).map(str)
        elif kind == "flat_map":
            stream = stream.flat_map(lambda n: [boom(n)])
        else:
            stream = getattr(stream, kind)(boom)
            stream = stream.map(str)
        stream.sink_to(Collect())

    error = fails(build, parallelism=2)
    assert "ZeroDivisionError" in error.report
    assert "  record    2" in error.report.splitlines()


class FailsToOpen(MapFunction):
    def open(self, runtime_context: Any) -> None:
        raise OSError("no model on this disk")

    def map(self, value: Any) -> Any:
        return value


def test_a_function_that_cannot_be_opened_is_reported_as_such() -> None:
    error = fails(lambda env: env.from_collection([1]).map(FailsToOpen()).name("model").sink_to(Collect()))
    assert "OSError: no model on this disk" in error.report
    assert "'model' (open)" in error.report


def test_a_partitioner_out_of_range_is_refused_with_the_range() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.from_collection([7]).partition_custom(lambda key, n: key, lambda n: n).map(str).sink_to(Collect())

    assert "returned 7; it must return an int from 0 to 1" in str(fails(build, parallelism=2))


def test_a_failing_function_is_retried_as_the_strategy_says_and_then_reported() -> None:
    error = fails(
        lambda env: env.from_collection(["x"]).map(parse).sink_to(Collect()),
        restart=RestartStrategies.fixed_delay_restart(2, 0),
    )
    assert "invalid literal" in str(error)


# --- types --------------------------------------------------------------------------------------------------


def test_output_that_does_not_match_its_type_names_value_field_and_operator() -> None:
    row = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
    error = fails(
        lambda env: env.from_collection([1]).map(lambda n: Row("Ann", "old"), row).name("person").sink_to(Collect())
    )
    text = f"{error}\n{error.report}"
    assert "'person'" in text
    assert "age" in text
    assert "old" in text


def test_a_program_error_in_a_task_is_not_retried() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        env.add_source(Script([1, EPOCH, "two"])).map(lambda n: n, Types.LONG()).sink_to(out)

    error = fails(build, restart=RestartStrategies.fixed_delay_restart(100, 60_000))
    assert "two" in f"{error}{error.report}"
    assert out.values == [1]


# --- programs that cannot run -------------------------------------------------------------------------------


@pytest.mark.parametrize("has_another_branch", [False, True])
def test_a_stream_without_a_sink_runs_as_in_flink_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, has_another_branch: bool
) -> None:
    monkeypatch.setattr("millstream.graph.notices._LOGGED", set())
    seen = tmp_path / "seen"

    def note(value: int) -> int:
        with seen.open("a") as file:
            file.write(f"{value} ")
        return value

    def program(env: StreamExecutionEnvironment) -> None:
        numbers = env.from_collection([1, 2])
        numbers.map(note).map(str)  # no sink
        if has_another_branch:
            numbers.sink_to(Collect())

    run(program)
    assert sorted(seen.read_text().split()) == ["1", "2"]
    [said] = [record.message for record in caplog.records if "has no sink" in record.message]
    assert "it runs, and its records are dropped" in said and line_of("# no sink") in said


def test_a_program_without_a_source_is_refused() -> None:
    with pytest.raises(ProgramError, match="reads nothing"):
        run(lambda env: None)


def test_a_function_that_cannot_travel_is_refused_and_names_what_it_holds() -> None:
    lock = threading.Lock()

    def locked(value: int) -> int:
        with lock:
            return value

    with pytest.raises(ProgramError, match=r"function of 'guard'.*'lock' \(_thread\.lock\)") as caught:
        run(lambda env: env.from_collection([1]).map(locked).name("guard").sink_to(Collect()))
    assert "open()" in str(caught.value)


@pytest.mark.parametrize("parallelism", [0, -1, True, "2", 1.5])
def test_a_parallelism_that_is_no_positive_number_is_refused(parallelism: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(ProgramError, match="set_parallelism") as caught:
        env.set_parallelism(parallelism)
    assert caught.value.at is not None and caught.value.at.startswith(HERE)


def test_a_parallelism_above_the_maximum_is_refused() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.set_max_parallelism(4)
        env.from_collection([1]).map(str).set_parallelism(5).sink_to(Collect())

    with pytest.raises(ProgramError, match="found 5 for 'Map', whose maximum is 4"):
        run(build)


def test_forward_between_unequal_parallelisms_is_refused() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.from_collection([1]).forward().map(str).set_parallelism(2).sink_to(Collect())

    with pytest.raises(ProgramError, match="forward needs equal parallelism"):
        run(build)


def test_batch_mode_over_endless_input_is_refused() -> None:
    class Endless(Script):
        bounded = False

    def build(env: StreamExecutionEnvironment) -> None:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        env.add_source(Endless([1])).sink_to(Collect())

    with pytest.raises(ProgramError, match="BATCH needs bounded input"):
        run(build, epochs=1)


# --- stores -------------------------------------------------------------------------------------------------


def test_a_store_of_another_job_is_refused() -> None:
    run(lambda env: env.from_collection([1]).sink_to(Collect()), store="owned", job_name="clicks")
    with pytest.raises(StoreError, match="belongs to job 'clicks', not to 'orders'"):
        run(lambda env: env.from_collection([1]).sink_to(Collect()), store="owned", job_name="orders")


def test_a_program_that_lost_its_source_is_refused_with_the_lost_name() -> None:
    def build(uid: str) -> Callable[[StreamExecutionEnvironment], Any]:
        return lambda env: env.from_collection(NUMBERS).uid(uid).sink_to(Collect()).uid("out")

    run(build("numbers"), store="changed", epoch_records=5, epochs=2)
    with pytest.raises(StoreError, match=r"uid numbers.*this program does not have"):
        run(build("digits"), store="changed")


def test_a_new_operator_between_source_and_sink_is_no_change_of_the_program() -> None:
    def build(bonus: int) -> Callable[[StreamExecutionEnvironment], Any]:
        def add(env: StreamExecutionEnvironment) -> None:
            stream = env.from_collection([1, 2, 3, 4]).uid("numbers")
            if bonus:
                stream = stream.map(lambda n: n + bonus)
            stream.sink_to(out).uid("out")

        return add

    out = Collect()
    assert run(build(0), store="extended", epoch_records=2, epochs=1)[out] == [1, 2]
    assert run(build(100), store="extended")[out] == [103, 104]


# --- broken exchanges ---------------------------------------------------------------------------------------


class TamperingRunner(LocalRunner):
    """Runs epochs, but lets a test change what crosses the exchange into stage 1, while `tricks` are left."""

    def __init__(self, tamper: Callable[[list[Any]], list[Any]], tricks: int) -> None:
        super().__init__()
        self._tamper, self.tricks = tamper, tricks

    def _task(self, stage: int, subtask: int, spec: EpochSpec, rows: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        if stage == 1 and self.tricks:
            self.tricks -= 1
            envelopes = [envelope for batch in rows for envelope in open_envelopes(batch)]
            rows = iter([seal([envelope]) for envelope in self._tamper(envelopes)])
        yield from super()._task(stage, subtask, spec, rows)


def lost_block(envelopes: list[Any]) -> list[Any]:
    first = next(i for i, envelope in enumerate(envelopes) if envelope.kind == DATA)
    return envelopes[:first] + envelopes[first + 1 :]


def doubled_block(envelopes: list[Any]) -> list[Any]:
    first = next(envelope for envelope in envelopes if envelope.kind == DATA)
    return [first, *envelopes]


def lost_barrier(envelopes: list[Any]) -> list[Any]:
    last = max(i for i, envelope in enumerate(envelopes) if envelope.kind == BARRIER)
    return envelopes[:last] + envelopes[last + 1 :]


def doubled_barrier(envelopes: list[Any]) -> list[Any]:
    return [*envelopes, envelopes[-1]]


STORES = itertools.count()


def start(runner: Runner, out: Collect, restarts: int) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.add_source(numbers()).rebalance().map(lambda n: n, Types.LONG()).sink_to(out)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 0))
    launch = Launch(ManualClock(), runner, MemoryStore(f"broken-{next(STORES)}"))
    return launch.start(env._graph(None), env._job_settings())


@pytest.mark.parametrize("tamper", [lost_block, doubled_block, lost_barrier, doubled_barrier])
def test_an_epoch_with_a_broken_exchange_is_never_committed(tamper: Callable[[list[Any]], list[Any]]) -> None:
    out = Collect()
    with pytest.raises(JobFailedError) as caught:
        start(TamperingRunner(tamper, tricks=100), out, restarts=1).result()
    assert isinstance(caught.value.__cause__, BrokenExchangeError)
    assert out.publications == []


@pytest.mark.parametrize("tamper", [lost_block, doubled_block, lost_barrier, doubled_barrier])
def test_an_epoch_run_again_after_a_broken_exchange_is_whole(tamper: Callable[[list[Any]], list[Any]]) -> None:
    out = Collect()
    start(TamperingRunner(tamper, tricks=1), out, restarts=1).result()
    assert sorted(out.values) == NUMBERS


def plan_with_a_wide_stage() -> Plan:
    """Stage 0 has three tasks, but only the first sends records to stage 1."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(3)
    env.add_source(numbers()).sink_to(Collect())
    env.from_collection([1]).rebalance().map(str).sink_to(Collect())
    return compile_graph(env._graph(None))


def test_a_task_waits_for_the_barriers_of_senders_that_sent_it_nothing() -> None:
    plan = plan_with_a_wide_stage()
    [channel] = [channel for channel in plan.channels if not channel.local]
    assert (plan.stages[0].width, channel.senders) == (3, 1)
    inbox = Inbox(plan, 1, 0, epoch=7)
    inbox.barrier(Barrier(7, 0, "a", (ChannelEnd(channel.id, 0, 0, 0, 0),)))
    with pytest.raises(BrokenExchangeError, match=r"no barrier from sender\(s\) \[1, 2\]"):
        inbox.check()
    inbox.barrier(Barrier(7, 1, "b"))
    inbox.barrier(Barrier(7, 2, "c"))
    inbox.check()


def test_blocks_out_of_their_senders_order_are_refused() -> None:
    inbox = Inbox(plan_with_a_wide_stage(), 1, 0, epoch=7)
    first, second = (Envelope(0, DATA, pa.py_buffer(b""), 0, 0, 0, sequence) for sequence in (0, 1))
    with pytest.raises(BrokenExchangeError, match="block 1 of sender 0 arrived instead of block 0"):
        inbox.data(second)
    inbox.data(first)
    inbox.data(second)


def test_a_barrier_of_another_epoch_is_refused() -> None:
    inbox = Inbox(plan_with_a_wide_stage(), 1, 0, epoch=7)
    with pytest.raises(BrokenExchangeError, match="of another epoch"):
        inbox.barrier(Barrier(6, 0, "a"))


class RecordingRunner(LocalRunner):
    """Keeps the plan and what the last stage of an epoch sent."""

    def prepare(self, job: ShippedJob) -> None:
        super().prepare(job)
        self.plan = job.plan()

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        self.rows = super().run(spec)
        return self.rows


def one_epoch() -> tuple[Plan, list[tuple[int, bytes]]]:
    runner = RecordingRunner()
    start(runner, Collect(), restarts=0).result()
    return runner.plan, runner.rows


def test_an_epoch_in_which_a_task_did_not_acknowledge_is_refused() -> None:
    plan, rows = one_epoch()
    with pytest.raises(MixedEpochError, match="without an acknowledgement"):
        gather(plan, rows[:-1])
    with pytest.raises(MixedEpochError, match="with two: 1"):
        gather(plan, [*rows, rows[0]])


class MixingRunner(RecordingRunner):
    """Gives the first `times` epochs as Spark might after a lost executor: an acknowledgement is missing."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        rows = super().run(spec)
        if self.times:
            self.times -= 1
            return rows[:-1]
        return rows


def test_a_mixed_epoch_is_run_again_without_asking_the_restart_strategy() -> None:
    out = Collect()
    job = start(MixingRunner(times=2), out, restarts=0)
    job.result()
    assert sorted(out.values) == NUMBERS
    assert job.board.now.restarts == 0


def test_a_second_driver_stops_when_the_first_has_committed_the_epoch() -> None:
    store, out = MemoryStore("fenced"), Collect()

    class Overtaken(LocalRunner):
        """While its first epoch runs, another driver runs the whole job."""

        def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
            if spec.epoch == 1:
                Launch(ManualClock(), LocalRunner(), store, is_leased=False).start(graph, settings).result()
            return super().run(spec)

    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    env.add_source(Script([1, EPOCH, 2])).sink_to(out)
    graph, settings = env._graph("fenced"), env._job_settings()
    with pytest.raises(FencedError, match="another driver committed epoch 1 first"):
        Launch(ManualClock(), Overtaken(), store, is_leased=False).start(graph, settings).result()
    assert out.values == [1, 2]
    assert out.publications == [1, 2]


def test_a_plan_is_frozen() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.from_collection([1]).sink_to(Collect())
    plan = compile_graph(env._graph(None))
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.job_name = "other"  # type: ignore[misc]


def test_a_crash_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    out = Collect()
    run(lambda env: env.add_source(Script([1, CRASH, 2])).sink_to(out))
    assert "the script crashes at item 1" in caplog.text
    assert "restarting" in caplog.text
