"""The driver notices acknowledgements that are lost, duplicated, or of an attempt that other tasks did not receive; and
a task reads only its own account.

The programs cover stages of different width, channels relayed by the stage between, and loops.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.plain import LOOPS, PROGRAMS, Program, multiset, numbers
from programs.running_totals import totals

from millstream.common import RestartStrategies, Types
from millstream.connectors.contracts import Split
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream.functions import CheckpointedFunction, MapFunction
from millstream.datastream.state import ListStateDescriptor
from millstream.errors import JobFailedError
from millstream.jobs.epochs.outcome import MixedEpochError
from millstream.jobs.launch.launch import Launch
from millstream.runtime.exchange.blocks import BrokenExchangeError
from millstream.runtime.exchange.messages import ACKNOWLEDGEMENT, BARRIER, Acknowledgement, Barrier, Envelope
from millstream.runtime.task.local import LocalRunner
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import EpochSpec, ReadRange
from millstream.state.segments.version import SegmentRef, coalesced, merge_versions, refs_for
from millstream.state.stored.accounts import FunctionAccount, LoopTail, StoredTables, SubtaskAccount
from millstream.state.tables.state_table import last_versions
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, ManualClock, run

STORES = itertools.count()


def of_many_widths(stream: DataStream, out: Collect) -> None:
    wide = stream.rebalance().map(lambda n: n, Types.LONG()).set_parallelism(5)
    narrow = wide.rebalance().map(lambda n: n, Types.LONG()).set_parallelism(3)
    narrow.key_by(lambda n: n % 5).map(lambda n: n * n, Types.LONG()).sink_to(out)


EXCHANGED = {
    "rebalance": PROGRAMS["rebalance"],
    "many widths": Program(of_many_widths, PROGRAMS["rebalance"].golden),
    "relayed": PROGRAMS["relayed"],
    "loop": next(iter(LOOPS.values())),
}
CASES = [("rebalance", 1), ("rebalance", 7), ("many widths", 7), ("relayed", 2), ("relayed", 7), ("loop", 2)]


# --- faults of acknowledgements and attempts ------------------------------------------------------------------------

Trick = Callable[[list[Envelope], Callable[[], list[Envelope]]], list[Envelope]]
"""From what a task sent, and another attempt of it, to what arrives."""


def first_of(envelopes: list[Envelope], kind: int) -> Envelope:
    return next(envelope for envelope in envelopes if envelope.kind == kind)


def lost(sent: list[Envelope], again: Callable[[], list[Envelope]]) -> list[Envelope]:
    dropped = first_of(sent, ACKNOWLEDGEMENT)
    return [envelope for envelope in sent if envelope is not dropped]


def doubled(sent: list[Envelope], again: Callable[[], list[Envelope]]) -> list[Envelope]:
    return [*sent, first_of(sent, ACKNOWLEDGEMENT)]


def of_another_task(sent: list[Envelope], again: Callable[[], list[Envelope]]) -> list[Envelope]:
    """The expected number of acknowledgements, but one is of a task that does not exist."""
    own = first_of(sent, ACKNOWLEDGEMENT)
    stray = replace(Acknowledgement.decode(own.payload.to_pybytes()), subtask=99)
    return [replace(e, payload=stray.encode()) if e is own else e for e in sent]


def acknowledged_by_another_attempt(sent: list[Envelope], again: Callable[[], list[Envelope]]) -> list[Envelope]:
    """Tasks receive the first attempt, the driver the second."""
    return [e for e in sent if e.kind != ACKNOWLEDGEMENT] + [e for e in again() if e.kind == ACKNOWLEDGEMENT]


def received_in_two_attempts(sent: list[Envelope], again: Callable[[], list[Envelope]]) -> list[Envelope]:
    """The last task of the next stage reads the second attempt, the others the first."""
    last = max(envelope.target for envelope in sent)
    return [e for e in sent if e.target != last] + [e for e in again() if e.target == last]


class FaultyRunner(LocalRunner):
    """Injects a fault into the last task of stage `at`, `faults` times."""

    def __init__(self, fault: Trick, at: int, faults: int) -> None:
        super().__init__()
        self._trick, self._at, self.faults, self.runs = fault, at, faults, 0

    def prepare(self, job: ShippedJob) -> None:
        super().prepare(job)
        self.plan = job.plan()

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        self.runs += 1
        return super().run(spec)

    def _task(self, stage: int, subtask: int, spec: EpochSpec, rows: Iterator[pa.RecordBatch]) -> Iterator[Envelope]:
        arrived = list(rows)
        sent = list(super()._task(stage, subtask, spec, iter(arrived)))
        at = self._at % len(self.plan.stages)
        if self.faults and stage == at and subtask == self.plan.stages[stage].width - 1:
            self.faults -= 1
            sent = self._trick(sent, lambda: list(super(FaultyRunner, self)._task(stage, subtask, spec, iter(arrived))))
        yield from sent


def start(program: Program, parallelism: int, runner: LocalRunner, out: Collect) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    program.build(env.add_source(numbers()), out)
    env.set_restart_strategy(RestartStrategies.no_restart())
    launch = Launch(ManualClock(), runner, MemoryStore(f"tricky-{next(STORES)}"))
    return launch.start(env._graph(None), env._job_settings())


@pytest.mark.parametrize("fault", [lost, doubled, of_another_task, acknowledged_by_another_attempt])
@pytest.mark.parametrize(("name", "parallelism"), CASES)
def test_an_epoch_with_inconsistent_acknowledgements_is_retried_completely(
    name: str, parallelism: int, fault: Trick
) -> None:
    out, runner = Collect(), FaultyRunner(fault, at=0, faults=2)
    start(EXCHANGED[name], parallelism, runner, out).result()
    assert runner.faults == 0 and runner.runs >= 3
    assert multiset(out.values) == multiset(EXCHANGED[name].golden(parallelism))


@pytest.mark.parametrize("fault", [lost, doubled, acknowledged_by_another_attempt, received_in_two_attempts])
@pytest.mark.parametrize(("name", "parallelism"), [case for case in CASES if case[1] > 1])
def test_an_epoch_with_persistently_inconsistent_acknowledgements_is_never_committed(
    name: str, parallelism: int, fault: Trick
) -> None:
    out = Collect()
    with pytest.raises(JobFailedError) as caught:
        start(EXCHANGED[name], parallelism, FaultyRunner(fault, at=0, faults=1_000), out).result()
    # A mixed attempt of a task that sent other blocks may be detected by the receiver already.
    assert isinstance(caught.value.__cause__, (MixedEpochError, BrokenExchangeError))
    assert out.publications == []


@pytest.mark.parametrize("fault", [lost, doubled])
@pytest.mark.parametrize("at", [1, -1])
def test_a_lost_acknowledgement_is_detected_at_every_stage(fault: Trick, at: int) -> None:
    out, runner = Collect(), FaultyRunner(fault, at, faults=1)
    start(EXCHANGED["many widths"], 7, runner, out).result()
    assert runner.faults == 0 and multiset(out.values) == multiset(EXCHANGED["many widths"].golden(7))


def test_two_attempts_with_equal_output_are_distinguished() -> None:
    """Only the nonce distinguishes them: counts, blocks and watermarks agree."""
    with pytest.raises(JobFailedError) as caught:
        runner = FaultyRunner(received_in_two_attempts, at=0, faults=1_000)
        start(EXCHANGED["rebalance"], 7, runner, Collect()).result()
    assert isinstance(caught.value.__cause__, MixedEpochError)
    assert "of stage 1 received other attempts of the tasks of stage 0" in str(caught.value.__cause__)


class CountingRunner(FaultyRunner):
    """Counts what tasks send, by kind and stage."""

    def __init__(self) -> None:
        super().__init__(lost, 0, faults=0)
        self.sent: dict[tuple[int, int], list[Envelope]] = {}

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        self.sent = {}
        return super().run(spec)

    def _task(self, stage: int, subtask: int, spec: EpochSpec, rows: Iterator[pa.RecordBatch]) -> Iterator[Envelope]:
        for envelope in super()._task(stage, subtask, spec, rows):
            self.sent.setdefault((stage, envelope.kind), []).append(envelope)
            yield envelope


def test_every_stage_sends_each_acknowledgement_once_and_each_receiver_one_small_barrier() -> None:
    runner = CountingRunner()
    start(EXCHANGED["many widths"], 7, runner, Collect()).result()
    widths = [stage.width for stage in runner.plan.stages]
    assert widths == [7, 5, 3, 7]
    for stage, width in enumerate(widths):
        assert len(runner.sent[stage, ACKNOWLEDGEMENT]) == sum(widths[: stage + 1])
        following = widths[stage + 1 :][:1]
        barriers = runner.sent.get((stage, BARRIER), [])
        assert len(barriers) == sum(width * receivers for receivers in following)
        assert all(barrier.payload.size < 200 for barrier in barriers)


def test_a_barrier_of_an_unknown_sender_is_rejected() -> None:
    class UnknownSender(LocalRunner):
        def _task(self, stage: int, subtask: int, spec: EpochSpec, rows: Iterator[pa.RecordBatch]) -> Any:
            for envelope in super()._task(stage, subtask, spec, rows):
                yield envelope
                if envelope.kind == BARRIER:
                    stranger = replace(Barrier.decode(envelope.payload), sender=50)
                    yield replace(envelope, payload=stranger.encode())

    with pytest.raises(JobFailedError, match="of none of the 2 senders"):
        start(EXCHANGED["rebalance"], 2, UnknownSender(), Collect()).result()


# --- a task reads its own account -----------------------------------------------------------------------------------


class WatchedAccounts(Mapping[int, Any]):
    """Accounts of one operator that record which subtasks were read."""

    def __init__(self, accounts: Mapping[int, Any], accounts_read: set[int]) -> None:
        self._accounts, self._reads = accounts, accounts_read

    def __getitem__(self, subtask: int) -> Any:
        account = self._accounts[subtask]
        self._reads.add(subtask)
        return account

    def __iter__(self) -> Iterator[int]:
        return iter(self._accounts)

    def __len__(self) -> int:
        return len(self._accounts)


class WatchedRunner(LocalRunner):
    """Records, for every task, which accounts it read besides its own; `epochs` had any to read."""

    foreign_reads: list[set[int]] = []  # noqa: RUF012 - shared on purpose: the test driver makes the runner
    epochs: set[int] = set()  # noqa: RUF012

    def _task(self, stage: int, subtask: int, spec: EpochSpec, rows: Iterator[pa.RecordBatch]) -> Iterator[Envelope]:
        accounts_read: set[int] = set()
        states = {uid: WatchedAccounts(accounts, accounts_read) for uid, accounts in spec.states.items()}
        functions = {uid: WatchedAccounts(accounts, accounts_read) for uid, accounts in spec.operator_states.items()}
        yield from super()._task(stage, subtask, replace(spec, states=states, operator_states=functions), rows)
        if any(map(len, states.values())) or any(map(len, functions.values())):
            self.epochs.add(spec.epoch)
        self.foreign_reads.append(accounts_read - {subtask})


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[WatchedRunner]:
    monkeypatch.setattr("millstream.testing.in_memory.LocalRunner", WatchedRunner)
    WatchedRunner.foreign_reads, WatchedRunner.epochs = [], set()
    return WatchedRunner


STATEFUL = [
    "every kind of state",
    "alarms",
    "session windows",
    "sliding windows in columns",
    "late records of a custom aggregate",
    "connected keyed process",
    "keyed broadcast state",
    "window join",
    "window join in columns",
    "interval join in columns",
    "loop: Collatz",
]


@pytest.mark.parametrize("name", STATEFUL)
def test_a_task_reads_only_its_own_account_while_the_parallelism_stays(name: str, watched: type[WatchedRunner]) -> None:
    program = {**PROGRAMS, **LOOPS}[name]
    run(lambda env: program.add(env, Collect()), parallelism=3, epoch_records=3)
    assert watched.epochs
    # Subtask 0 stores what all subtasks share.
    assert set().union(*watched.foreign_reads) <= ({0} if "broadcast" in name else set())


class Tally(MapFunction, CheckpointedFunction):
    """Counts in a list of its own, or in a union list."""

    def __init__(self, is_union: bool) -> None:
        self._is_union, self._count = is_union, 0

    def initialize_state(self, context: Any) -> None:
        lists = context.get_operator_state_store()
        descriptor = ListStateDescriptor("count", Types.LONG())
        self._counts = lists.get_union_list_state(descriptor) if self._is_union else lists.get_list_state(descriptor)
        self._count = sum(self._counts.get())

    def snapshot_state(self, context: Any) -> None:
        self._counts.update([self._count])

    def map(self, value: int) -> int:
        self._count += 1
        return self._count


@pytest.mark.parametrize("is_union", [False, True])
def test_a_function_reads_lists_of_other_subtasks_only_for_union_state(
    is_union: bool, watched: type[WatchedRunner]
) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.add_source(numbers()).uid("numbers").map(Tally(is_union), Types.LONG()).uid("tally").sink_to(out).uid("out")

    store, out = f"tally-{next(STORES)}", Collect()
    run(build, parallelism=3, epoch_records=3, epochs=2, store=store)
    run(build, parallelism=3, epoch_records=3, store=store)
    assert set().union(*watched.foreign_reads) == ({0, 1, 2} if is_union else set())
    # Ten records for each of three subtasks: two in two epochs, then eight added to their own list or to the union.
    assert max(out.values) == (3 * 2 + 8 if is_union else 2 + 8)


def test_after_a_rescale_tasks_read_all_accounts_once(watched: type[WatchedRunner]) -> None:
    store, out = f"acknowledged-{next(STORES)}", Collect()
    run(totals(out), parallelism=5, epochs=2, store=store, epoch_records=10)
    assert set().union(*watched.foreign_reads) == set()
    run(totals(out), parallelism=2, epochs=4, store=store, epoch_records=10)
    assert set().union(*watched.foreign_reads) == {0, 1, 2, 3, 4}
    watched.foreign_reads = []
    run(totals(out), parallelism=2, store=store, epoch_records=10)
    assert set().union(*watched.foreign_reads) == set()


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.integers(0, 9), st.text(max_size=5)), max_size=3),
    st.lists(st.tuples(st.integers(0, 4), st.text(max_size=3)), max_size=6, unique_by=lambda read: read[1]),
    st.integers(0, 12),
)
def test_a_subtask_decodes_its_own_ranges_and_all_accounts_of_a_spec(
    accounts: dict[str, dict[int, str]], splits: list[tuple[int, str]], subtask: int
) -> None:
    ranges = tuple(ReadRange(Split(name, 0, None), 0, 5, at, 7, {"active_ms": 3}) for at, name in splits)
    states = {
        uid: {number: SubtaskAccount(loop=LoopTail(1, text)) for number, text in own.items()}
        for uid, own in accounts.items()
    }
    functions = {"f": {2: FunctionAccount(3, "\n", 5, {})}}
    spec = EpochSpec(3, 1, 99, False, {"source": ranges}, {"source": 4}, {"a": -5}, states, functions)
    decoded = EpochSpec.decode(spec.encode(), subtask)
    assert decoded.reads.get("source", ()) == tuple(range_ for range_ in ranges if range_.subtask == subtask)
    assert {uid: dict(own) for uid, own in decoded.states.items()} == states
    assert {uid: dict(own) for uid, own in decoded.operator_states.items()} == functions
    assert decoded.states.get("a", {}).get(77) is None
    same = ("epoch", "round", "now_ms", "final", "floors", "watermarks")
    assert [getattr(decoded, name) for name in same] == [getattr(spec, name) for name in same]


# --- versions -------------------------------------------------------------------------------------------------------

GROUPS = 12


@st.composite
def versions(draw: st.DrawFn) -> list[SegmentRef]:
    """Refs as tasks of changing parallelism write them: few files, many ranges."""
    refs = []
    for _ in range(draw(st.integers(0, 14))):
        start = draw(st.integers(0, GROUPS - 1))
        stop = draw(st.integers(start + 1, GROUPS))
        refs.append(SegmentRef(draw(st.sampled_from("fgh")), 1, start, stop, 0, GROUPS, rows=1, file_bytes=1))
    return refs


def coalesced_slowly(refs: list[SegmentRef]) -> tuple[SegmentRef, ...]:
    """The reference: every ref compares with all refs before it."""
    merged: list[SegmentRef] = []
    for ref in refs:
        for at in range(len(merged) - 1, -1, -1):
            other = merged[at]
            if other.file == ref.file and (ref.group_start == other.group_stop or ref.group_stop == other.group_start):
                start, stop = min(ref.group_start, other.group_start), max(ref.group_stop, other.group_stop)
                merged[at] = replace(ref, group_start=start, group_stop=stop)
                break
            if other.group_start < ref.group_stop and ref.group_start < other.group_stop:
                merged.append(ref)
                break
        else:
            merged.append(ref)
    return tuple(merged)


@settings(max_examples=200, deadline=None)
@given(versions())
def test_versions_are_coalesced_like_the_reference(refs: list[SegmentRef]) -> None:
    assert coalesced(refs) == coalesced_slowly(refs)


@settings(max_examples=100, deadline=None)
@given(st.lists(versions(), max_size=4), st.integers(0, GROUPS - 1), st.integers(1, GROUPS))
def test_a_task_opens_only_accounts_live_in_its_own_key_groups(
    of_subtasks: list[list[SegmentRef]], start: int, length: int
) -> None:
    groups = range(start, min(start + length, GROUPS))
    own = last_versions([StoredTables({"t": tuple(refs)}) for refs in of_subtasks], groups).get("t", ())
    whole = refs_for(merge_versions(of_subtasks), groups)
    for group in groups:
        assert [ref.file for ref in own if group in ref.groups] == [ref.file for ref in whole if group in ref.groups]
    assert all(set(ref.groups) <= set(groups) for ref in own)
