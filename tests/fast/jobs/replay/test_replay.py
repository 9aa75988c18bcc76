"""Replay: a committed epoch run again has the committed results, and differences are reported."""

from __future__ import annotations

import bdb
import itertools
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.retention import RetentionPolicy
from millstream.cli.main import app
from millstream.common import Configuration, Types
from millstream.common.time import Duration
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.contracts import Sink, SinkWriter
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction, MapFunction
from millstream.datastream.state import ListStateDescriptor, ValueStateDescriptor
from millstream.errors import JobFailedError, NotAvailableError, ProgramError, StoreError
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.jobs.replay.replay import Replay, replay
from millstream.storage.memory import MemoryStore
from millstream.storage.names import manifest_name, parse_segment
from millstream.storage.shared_names import LEASES
from millstream.testing import CRASH, EPOCH, Collect, ManualClock, Pause, Script, run

_STORES = itertools.count()
NUMBERS = [n for ten in range(4) for n in (*range(ten * 10, ten * 10 + 10), EPOCH)]
Build = Callable[[StreamExecutionEnvironment], Any]


class Total(KeyedProcessFunction):
    """Sums by key; `more` is added to each record, `seen` stores all records untyped."""

    def __init__(self, more: Callable[[], int] = lambda: 0) -> None:
        self._more = more

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: int, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0) + value + self._more())
        self.seen.add({f"n{value}", "and", "more"})
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 5)
        yield ctx.get_current_key(), self.total.value()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), -timestamp


def new_store() -> str:
    return f"replays-{next(_STORES)}"


def totals(out: Sink, more: Callable[[], int] = lambda: 0, items: Any = NUMBERS, clock: Any = None) -> Build:
    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Script(items, type_info=Types.LONG(), clock=clock), "numbers").uid("numbers")
        keyed = numbers.map(lambda n: n + 1, Types.LONG()).uid("plus").key_by(lambda n: n % 3, Types.LONG())
        keyed.process(Total(more)).uid("totals").name("sum").sink_to(out).uid("out")

    return build


def replay_epoch(
    store: str, build: Build, epoch: int | None, operator: str, parallelism: int = 1, **options: Any
) -> Replay:
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    build(env)
    name = f"memory://{store}" if epoch is None else f"memory://{store}@{epoch}"
    return replay(env._graph(None), env._job_settings(), name, operator, **options)


def files_of(store: str) -> dict[str, bytes]:
    memory = MemoryStore(store)
    return {name: memory.get(name) for name in memory.list("")}


# --- the same ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 3])
def test_every_epoch_replays_to_its_committed_results_and_changes_nothing(parallelism: int) -> None:
    store, clock = new_store(), ManualClock()
    items = [*range(5), Pause(3), *range(5, 12), EPOCH, *range(20, 25), Pause(10), 30, 31]
    build = totals(Collect(), items=items, clock=clock)
    result = run(build, store=store, parallelism=parallelism, clock=clock)
    before = files_of(store)
    ran = [m.epoch for m in result.manifests if m.status in ("RUNNING", "DRAINED")]
    assert len(ran) >= 4
    for epoch, operator in [*((epoch, "totals") for epoch in ran), (2, "plus"), (2, "out"), (2, "numbers")]:
        report = replay_epoch(store, build, epoch, operator, parallelism)
        assert report.is_same, report.text()
    assert files_of(store) == before


def test_the_report_has_record_counts_and_compared_items() -> None:
    store, build = new_store(), totals(Collect())
    run(build, store=store)
    report = replay_epoch(store, build, 2, "totals")
    assert (report.uid, report.operator, report.epoch, report.records_in) == ("totals", "sum", 2, 10)
    assert "state 'total' of 'sum'" in report.compared and "state 'seen' of 'sum'" in report.compared
    assert any(what.startswith("output of ") for what in report.compared)
    assert report.text().endswith("the same as was committed")


def test_a_replay_may_run_only_the_upstream_of_the_operator() -> None:
    store, notes = new_store(), new_store()

    class Noted(MapFunction):
        def map(self, value: Any) -> Any:
            MemoryStore(notes).put(f"n{value}", b"")  # a list would be copied with the function
            return value

    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Script([1, 2], [3, 4])).uid("numbers").map(lambda n: n * 2).uid("twice")
        numbers.map(Noted()).uid("noted").sink_to(Collect()).uid("out")

    run(build, store=store)
    for name in (noted := MemoryStore(notes).list("")):
        MemoryStore(notes).delete(name)
    only_operator = replay_epoch(store, build, 1, "twice", downstream=False)
    assert (only_operator.is_same, list(only_operator.compared)) == (True, ["records of 'Map'"]), only_operator.text()
    assert noted == ["n2", "n4", "n6", "n8"]
    assert MemoryStore(notes).list("") == []


def test_an_epoch_that_crashed_first_replays_without_the_crash() -> None:
    store, build = new_store(), totals(Collect(), items=[1, 2, EPOCH, 3, CRASH, 4])
    run(build, store=store)
    assert replay_epoch(store, build, 2, "totals").is_same


def test_an_operator_is_selected_by_name_and_the_newest_epoch_by_default() -> None:
    store, build = new_store(), totals(Collect())
    run(build, store=store, epochs=2)
    with pytest.raises(StoreError, match=r"epoch 3 .* no operator ran in it. Replay .*@2"):
        replay_epoch(store, build, None, "sum")
    assert replay_epoch(store, build, 2, "sum").epoch == 2


def test_a_job_is_replayed_at_the_parallelism_it_ran_at() -> None:
    store = new_store()

    def build(env: StreamExecutionEnvironment) -> None:
        env.from_collection(list(range(9)), Types.LONG()).map(lambda n: n % 4, Types.LONG()).key_by(
            lambda n: n, Types.LONG()
        ).reduce(lambda a, b: a + b).sink_to(Collect())

    run(build, store=store, parallelism=3, epoch_records=4)
    for epoch in (1, 2):
        report = replay_epoch(store, build, epoch, "Reduce", parallelism=1)
        assert report.is_same, report.text()


def test_a_fork_replays_in_its_own_store_with_the_files_of_its_origin() -> None:
    old, new = new_store(), new_store()
    run(totals(Collect()), store=old, epochs=2)

    def forked(env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration().set_string("execution.state-recovery.path", f"memory://{old}@2"))
        totals(Collect())(env)

    run(forked, store=new)
    with pytest.raises(StoreError, match=r"epoch 3 .* a start from a snapshot; no operator ran in it"):
        replay_epoch(new, forked, 3, "totals")
    report = replay_epoch(new, forked, 4, "totals")
    assert report.is_same and report.records_in == 10, report.text()


def test_functions_are_opened_and_closed() -> None:
    store, notes = new_store(), new_store()

    class Noted(MapFunction):
        def open(self, runtime_context: Any) -> None:
            MemoryStore(notes).put("open", b"")

        def map(self, value: Any) -> Any:
            return value

        def close(self) -> None:
            MemoryStore(notes).put("close", b"")

    def build(env: StreamExecutionEnvironment) -> None:
        env.add_source(Script([1, EPOCH, 2])).uid("in").map(Noted()).uid("noted").sink_to(Collect()).uid("out")

    run(build, store=store)
    for name in MemoryStore(notes).list(""):
        MemoryStore(notes).delete(name)
    assert replay_epoch(store, build, 1, "noted").is_same
    assert MemoryStore(notes).list("") == ["close", "open"]


def test_event_time_and_windows_replay() -> None:
    from millstream.common.time import Time
    from millstream.datastream.window import TumblingEventTimeWindows

    store = new_store()
    splits = [[n for at in (s, s + 20, s + 40) for n in (*range(at, at + 20, 4), EPOCH)] for s in range(3)]

    def build(env: StreamExecutionEnvironment) -> None:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(3)).with_timestamp_assigner(
            lambda value, _: value
        )
        source = env.from_source(Script(*splits), strategy.with_idleness(Duration.of_seconds(1)), "times").uid("times")
        windows = source.key_by(lambda n: n % 2).window(TumblingEventTimeWindows.of(Time.milliseconds(16)))
        windows.reduce(lambda a, b: a + b).uid("sums").sink_to(Collect()).uid("out")

    result = run(build, store=store, parallelism=2)
    for epoch in range(1, result.epochs + 1):
        for operator in ("times", "sums"):
            report = replay_epoch(store, build, epoch, operator, parallelism=2)
            assert report.is_same, report.text()


def test_loops_replay_with_all_their_rounds() -> None:
    store = new_store()

    def build(env: StreamExecutionEnvironment) -> None:
        loop = env.add_source(Script([5, 3, EPOCH, 4])).uid("in").iterate()
        body = loop.map(lambda n: n - 1).uid("minus")
        loop.close_with(body.filter(lambda n: n > 0).uid("again"))
        body.filter(lambda n: n <= 0).uid("done").sink_to(Collect()).uid("out")

    result = run(build, store=store)
    for epoch in range(1, result.epochs + 1):
        report = replay_epoch(store, build, epoch, "minus")
        assert report.is_same, report.text()
    assert replay_epoch(store, build, 1, "minus").records_in > 2


# --- differences ------------------------------------------------------------------------------------------------


def test_a_function_with_other_results_is_reported_with_key_and_both_values() -> None:
    store = new_store()
    run(totals(Collect()), store=store)
    report = replay_epoch(store, totals(Collect(), lambda: 1), 2, "totals")
    assert not report.is_same
    lines = [d.text() for d in report.differences if d.what == "state 'total'"]
    assert len(lines) == 3
    committed = sum(n + 1 for n in range(20) if (n + 1) % 3 == 0)
    assert f"'sum' (uid totals), state 'total', key 0: committed {committed}, replayed {committed + 3}" in lines
    assert "NOT the same as was committed" in report.text()


def test_a_stateless_function_with_other_results_is_reported_in_its_downstream_output() -> None:
    store, left = new_store(), [0, 0, 1, 1]

    def build(env: StreamExecutionEnvironment) -> None:
        env.add_source(Script([1, 2])).map(lambda n: (n, left.pop(0) == 1)).uid("odd").sink_to(Collect()).uid("out")

    run(build, store=store)
    assert replay_epoch(store, build, 1, "odd").is_same  # the list is pickled with the function, and starts empty
    del left[:2]
    report = replay_epoch(store, build, 1, "odd", differences_max=1)
    assert (report.count, len(report.differences)) == (2, 1), report.text()
    assert report.differences[0].text().endswith("output: committed (1, False), replayed (1, True)")


def test_a_row_on_one_side_only_is_reported_as_missing_on_the_other() -> None:
    store = new_store()
    run(totals(Collect(), items=[0, 1, 2]), store=store)

    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Script([0, 1, 2], type_info=Types.LONG()), "numbers").uid("numbers")
        keyed = numbers.map(lambda n: 1, Types.LONG()).uid("plus").key_by(lambda n: n % 3, Types.LONG())
        keyed.process(Total()).uid("totals").name("sum").sink_to(Collect()).uid("out")

    report = replay_epoch(store, build, 1, "totals")
    assert any(d.what == "state 'total'" and repr(d.replayed) == "nothing" for d in report.differences), report.text()


def test_a_failure_of_user_code_is_raised_with_its_own_traceback() -> None:
    store = new_store()
    run(totals(Collect()), store=store)

    def fails() -> int:
        raise ZeroDivisionError("on purpose")

    with pytest.raises(JobFailedError, match=r"'sum' failed in the replay of epoch 2: ZeroDivisionError") as caught:
        replay_epoch(store, totals(Collect(), fails), 2, "totals")
    assert "when it was committed, this did not fail" in caught.value.report
    assert caught.value.__cause__ is not None
    raised = caught.value.__cause__.__cause__
    assert isinstance(raised, ZeroDivisionError) and raised.__traceback__ is not None


# --- no outside effects -----------------------------------------------------------------------------------------


class OutsideSink(Sink):
    """A sink that writes outside the store, in the task."""

    written: list[Any] = []  # noqa: RUF012 (shared on purpose: what all copies wrote)

    def writer(self, context: Any) -> SinkWriter:
        written = OutsideSink.written

        class Writer(SinkWriter):
            def write(self, batch: Any) -> None:
                written.extend(batch.values())

            def stage(self) -> Any:
                return ()

        return Writer()

    def commit(self, commit: Any, publish: Any, store: Any) -> None:
        OutsideSink.written.append("published")


def test_a_sink_that_writes_outside_the_store_is_not_run_and_its_records_are_counted() -> None:
    store, build = new_store(), totals(OutsideSink())
    run(build, store=store)
    assert len(OutsideSink.written) > 10
    OutsideSink.written.clear()
    report = replay_epoch(store, build, 2, "out")
    assert (report.is_same, report.records_in, OutsideSink.written) == (True, 10, []), report.text()
    assert any("was not run" in note for note in report.notes)


def test_replayed_epochs_are_leased_during_the_replay_and_released_afterwards() -> None:
    store, notes = new_store(), new_store()

    def leased_epochs() -> int:
        MemoryStore(notes).put("leases", str(len(MemoryStore(store).list(LEASES))).encode())
        return 0

    run(totals(Collect()), store=store)
    assert replay_epoch(store, totals(Collect(), leased_epochs), 2, "totals").is_same
    assert MemoryStore(notes).get("leases") == b"2"  # the epoch, and the previous one
    assert not MemoryStore(store).list(LEASES)


# --- on the command line ----------------------------------------------------------------------------------------

PROGRAM = """
import sys
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment

wrong = int(sys.argv[1])

def plus(n):
    return n // wrong + 1

env = StreamExecutionEnvironment.get_execution_environment()
stream = env.from_collection([3, 4, 5], Types.LONG())
stream.map(plus, Types.LONG()).uid("plus").key_by(lambda n: 0, Types.LONG()).sum().uid("sum").print()
env.execute("numbers")
print("after the job")
"""


def run_program(folder: Path) -> tuple[str, str]:
    """The program's file, and the store of a job that it ran."""
    from millstream.datastream.environment.launch_defaults import with_job_receiver, with_launch_defaults
    from millstream.jobs.launch.launch import Launch
    from millstream.runtime.task.local import LocalRunner
    from millstream.storage.store import open_store

    program, store = folder / "job.py", folder / "store"
    program.write_text(PROGRAM)

    def take(graph: Any, settings: Any) -> NoReturn:
        Launch(ManualClock(), LocalRunner(), open_store(str(store))).prepare(graph, settings).start().result()
        raise SystemExit(0)

    with with_launch_defaults({}), with_job_receiver(take), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["job.py", "1"])
        with pytest.raises(SystemExit):
            runpy.run_path(str(program), run_name="__main__")
    return str(program), str(store)


def test_the_command_replays_reports_and_ends_the_program(tmp_path: Path) -> None:
    program, store = run_program(tmp_path)
    same = CliRunner().invoke(app, ["replay", f"{store}@1", program, "-o", "sum", "1"])
    assert (same.exit_code, same.output.splitlines()[-1]) == (0, "the same as was committed"), same.output
    assert "after the job" not in same.output
    differs = CliRunner().invoke(app, ["replay", f"{store}@1", "--operator", "sum", program, "2"])
    assert differs.exit_code == 1
    assert "'Sum' (uid sum), state" in differs.output


def test_the_debugger_opens_where_user_code_raised(tmp_path: Path) -> None:
    program, store = run_program(tmp_path)
    typed = "p ('n is', n)\nq\n"
    failed = CliRunner().invoke(app, ["replay", f"{store}@1", program, "-o", "plus", "--pdb", "0"], input=typed)
    assert failed.exit_code == 1
    assert "('n is', 3)" in failed.output and "ZeroDivisionError" in failed.output


def test_a_breakpoint_in_user_code_works_and_leaving_it_aborts(tmp_path: Path) -> None:
    program, store = run_program(tmp_path)
    Path(program).write_text(PROGRAM.replace("return n", "breakpoint(); return n"))
    seen: list[int] = []

    def stop() -> NoReturn:
        seen.append(sys._getframe(1).f_locals["n"])
        raise bdb.BdbQuit  # as the debugger does on quit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.breakpointhook", stop)
        left = CliRunner().invoke(app, ["replay", f"{store}@1", program, "-o", "plus", "1"])
    assert (seen, left.exit_code) == ([3], 130), left.output


def test_an_invalid_command_is_reported_before_the_program_runs(tmp_path: Path) -> None:
    program, store = run_program(tmp_path)
    result = CliRunner().invoke(app, ["replay", f"{store}@9", program, "-o", "sum", "1"])
    assert (result.exit_code, "has no epoch 9; it retains 1" in result.output) == (2, True), result.output
    unknown = CliRunner().invoke(app, ["replay", f"{store}@1", program, "-o", "sums", "1"])
    assert (unknown.exit_code, "Did you mean 'sum'?" in unknown.output) == (1, True), unknown.output
    (tmp_path / "idle.py").write_text("pass")
    idle = CliRunner().invoke(app, ["replay", f"{store}@1", str(tmp_path / "idle.py"), "-o", "sum"])
    assert (idle.exit_code, "without starting a job" in idle.output) == (1, True), idle.output


# --- refusals ---------------------------------------------------------------------------------------------------


def test_an_unretained_epoch_is_rejected_with_the_retained_ones() -> None:
    store, build = new_store(), totals(Collect())
    run(build, store=store)
    with pytest.raises(StoreError, match=r"has no epoch 99; it retains 1-5"):
        replay_epoch(store, build, 99, "totals")
    MemoryStore(store).delete_many([manifest_name(epoch) for epoch in (1, 2)])
    with pytest.raises(StoreError, match=r"epoch 3 of .* followed epoch 2, which is not retained any more.*3-5"):
        replay_epoch(store, build, 3, "totals")
    assert replay_epoch(store, build, 4, "totals").is_same


def test_an_unknown_operator_is_refused_with_the_nearest() -> None:
    store, build = new_store(), totals(Collect())
    run(build, store=store)
    with pytest.raises(ProgramError, match=r"has no operator 'total'. Did you mean 'totals'\? It has .*uid numbers"):
        replay_epoch(store, build, 2, "total")


def test_another_program_is_rejected_with_the_differences() -> None:
    store = new_store()
    run(totals(Collect()), store=store)

    def without(env: StreamExecutionEnvironment) -> None:
        env.add_source(Script(NUMBERS)).uid("numbers").sink_to(Collect()).uid("out")

    def inserted(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Script(NUMBERS, type_info=Types.LONG())).uid("numbers").filter(bool).uid("more")
        keyed = numbers.map(lambda n: n + 1, Types.LONG()).uid("plus").key_by(lambda n: n % 3, Types.LONG())
        keyed.process(Total()).uid("totals").sink_to(Collect()).uid("out")

    with pytest.raises(ProgramError, match=r"a program that had 'Map' \(uid plus\), 'sum' \(uid totals\); this one"):
        replay_epoch(store, without, 2, "out")
    with pytest.raises(ProgramError, match=r"'Filter' \(uid more\) is new .* 'KEYED PROCESS' gets its input from"):
        replay_epoch(store, inserted, 2, "totals")


def test_an_added_downstream_operator_does_not_prevent_a_replay() -> None:
    store = new_store()
    run(totals(Collect()), store=store)

    def more(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Script(NUMBERS, type_info=Types.LONG()), "numbers").uid("numbers")
        plus = numbers.map(lambda n: n + 1, Types.LONG()).uid("plus")
        plus.map(lambda n: 1 / 0).uid("debugging").sink_to(Collect()).uid("more")
        keyed = plus.key_by(lambda n: n % 3, Types.LONG())
        keyed.process(Total()).uid("totals").name("sum").sink_to(Collect()).uid("out")

    report = replay_epoch(store, more, 2, "plus")
    assert report.is_same, report.text()


def test_a_source_that_cannot_be_read_again_is_rejected_with_advice() -> None:
    from millstream.connectors.socket import SocketSource

    with pytest.raises(NotAvailableError, match=r"it cannot be replayed\. Run the job with millstream.record on"):
        SocketSource("localhost", 9999).reopened(MemoryStore(new_store()), None)


class ReadOnceScript(Script):
    """A script that can be read only once, by the first epoch that reads it."""

    replayable = False

    def reopened(self, store: Any, session: Any) -> Any:
        raise NotAvailableError("it is gone")


@pytest.mark.parametrize("parallelism", [1, 2])
def test_an_epoch_with_recorded_input_replays_although_its_source_cannot_be_read_again(parallelism: int) -> None:
    changed, ended = [[1, "a"], [2], EPOCH, [3], [4]], [["x"], ["y"]]

    def build(env: StreamExecutionEnvironment, record: bool = True) -> None:
        env.configure(Configuration().set_boolean("millstream.record", record))
        lists = (
            env.add_source(ReadOnceScript(changed, ended), "lists").uid("lists").map(lambda one: one.pop(0)).uid("pop")
        )
        lists.key_by(str).reduce(lambda a, b: b).uid("last").sink_to(Collect()).uid("out")

    store, without = new_store(), new_store()
    result = run(build, store=store, parallelism=parallelism, epoch_records=4)
    for epoch in range(1, result.epochs + 1):
        report = replay_epoch(store, build, epoch, "lists", parallelism)
        assert report.is_same and report.records_in, report.text()
    run(lambda env: build(env, record=False), store=without, parallelism=parallelism)
    with pytest.raises(NotAvailableError, match="it is gone"):
        replay_epoch(without, build, 1, "last", parallelism)


def test_recorded_input_is_swept_with_its_epoch() -> None:
    store = new_store()

    def build(env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration().set_boolean("millstream.record", True))
        env.add_source(Script(NUMBERS)).uid("numbers").sink_to(Collect()).uid("out")

    run(build, store=store)
    memory = MemoryStore(store)

    def recorded() -> set[int]:
        return {parsed.epoch for name in memory.list("segments") if (parsed := parse_segment(name)) is not None}

    assert recorded() == {1, 2, 3, 4}
    Sweeper(memory, lambda: 0, RetentionPolicy(2)).sweep(ManifestLog(memory).newest())
    assert (ManifestLog(memory).epochs(), recorded()) == ([4, 5], {4})


def test_the_watermark_of_a_split_never_moves_back_in_a_replay() -> None:
    store = new_store()

    def build(env: StreamExecutionEnvironment) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
        env.from_source(Script([30, 40, EPOCH, 5, 6, EPOCH, 50]), strategy, "times").uid("times").sink_to(Collect())

    run(build, store=store)
    report = replay_epoch(store, build, 2, "times")
    assert report.is_same, report.text()


def test_missing_input_is_reported(tmp_path: Path) -> None:
    from millstream.datastream.connectors.file_system import FileSource, StreamFormat

    store, lines = new_store(), tmp_path / "lines.txt"
    lines.write_text("a\nb\nc\n")

    def build(env: StreamExecutionEnvironment) -> None:
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(lines)).build()
        env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").uid("in").sink_to(Collect()).uid("out")

    run(build, store=store)
    report = replay_epoch(store, build, 1, "out")
    assert (report.is_same, report.records_in) == (True, 3), report.text()
    os.remove(lines)
    with pytest.raises(JobFailedError, match=r"failed in the replay of epoch 1: .*lines.txt"):
        replay_epoch(store, build, 1, "out")
