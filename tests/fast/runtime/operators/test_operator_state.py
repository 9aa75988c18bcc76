"""Operator state: lists of a subtask, through epochs, crashes, moves between workers and other parallelisms."""

from __future__ import annotations

import itertools
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from screens.interrupts import heeded_interrupts

from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.retention import files_to_delete, named_files
from millstream.common import RestartStrategies, Types
from millstream.common.time import Time
from millstream.compiler.passes import compile_graph
from millstream.connectors.contracts import CommitId, Sink, SinkWriter, WriterContext
from millstream.connectors.direct_sinks import ForeachSink
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.python import PythonSource, Split, TwoPhaseSink
from millstream.datastream.functions import (
    CheckpointedFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
)
from millstream.datastream.state import (
    ListStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.errors import JobFailedError, MillstreamError, ProgramError
from millstream.jobs.epochs.outcome import gather
from millstream.records.batch import Batch
from millstream.runtime.exchange.messages import open_envelopes
from millstream.runtime.task.residents import Residents
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import Assignment, EpochSpec, JobFacts, ReadRange
from millstream.runtime.task.task import run_task
from millstream.state.stored.operator_lists import INLINE_BYTES_MAX, Slice, shares
from millstream.storage.memory import MemoryStore
from millstream.storage.names import SEGMENTS, parse_segment
from millstream.testing import CRASH, EPOCH, Collect, OperatorHarness, Result, Script, run

SEEN = ListStateDescriptor("seen", Types.LONG())
_STORES = itertools.count()


class Seen(ProcessFunction, CheckpointedFunction):
    """Every record with the number of records its subtask received before. Written like Flink's examples: the buffer is
    created in `__init__`, restored elements are appended to it, and the state is only accessed at snapshots.
    """

    def __init__(self, descriptor: ListStateDescriptor = SEEN, union: bool = False) -> None:
        self.descriptor, self.union = descriptor, union
        self.seen: list[Any] = []

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.state = (store.get_union_list_state if self.union else store.get_list_state)(self.descriptor)
        if context.is_restored():
            self.seen.extend(self.state)

    def snapshot_state(self, context: Any) -> None:
        self.state.clear()
        self.state.add_all(self.seen)

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, list(self.seen)
        self.seen.append(value)


def new_store() -> str:
    return f"operator-state-{next(_STORES)}"


def run_through(function: Any, script: Script, **options: Any) -> Result:
    out = Collect("out")

    def build(env: StreamExecutionEnvironment) -> None:
        dealt = env.add_source(script).partition_custom(lambda key, n: key % n, lambda value: value)
        dealt.process(function).uid("function").sink_to(out).uid("out")

    return run(build, **options)


def until_crash(function: Any, script: Script, **options: Any) -> None:
    """Run up to the script's next crash, from which a second run on the same store continues."""
    with pytest.raises(JobFailedError, match="the script crashes"):
        run_through(function, script, restart=RestartStrategies.no_restart(), **options)


def stored_lists(store: str, uid: str = "function") -> dict[str, Any]:
    """The newest manifest's accounts of an operator, by subtask."""
    newest = ManifestLog(MemoryStore(store)).newest()
    assert newest is not None
    state: Any = newest.states[uid]
    functions: dict[str, Any] = state["functions"]
    return functions


# --- golden runs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("records", [1, 4, None], ids=["many epochs", "some epochs", "one epoch"])
@pytest.mark.parametrize("crashes", [False, True], ids=["undisturbed", "crashing"])
def test_a_function_restores_the_state_of_its_subtask(parallelism: int, records: int | None, crashes: bool) -> None:
    numbers: list[Any] = list(range(12))
    items = [*numbers[:3], CRASH, *numbers[3:7], CRASH, *numbers[7:], CRASH] if crashes else numbers
    result = run_through(Seen(), Script(items), parallelism=parallelism, epoch_records=records)
    golden = {n: [m for m in range(n) if m % parallelism == n % parallelism] for n in range(12)}
    assert dict(result["out"]) == golden
    assert len(result["out"]) == 12
    assert result.restarts == (3 if crashes else 0)


class CountingMap(MapFunction, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        self.counts = context.get_operator_state_store().get_list_state(ListStateDescriptor("n", Types.LONG()))
        self.count = sum(self.counts)

    def snapshot_state(self, context: Any) -> None:
        self.counts.update([self.count])

    def map(self, value: Any) -> Any:
        self.count += 1
        return self.count


class CountingFlatMap(FlatMapFunction, CountingMap):
    def flat_map(self, value: Any) -> Any:
        yield self.map(value)


class EverySecond(FilterFunction, CountingMap):
    def filter(self, value: Any) -> bool:
        return bool(self.map(value) % 2)


@pytest.mark.parametrize(
    ("add", "golden"),
    [
        (lambda stream: stream.map(CountingMap()), [1, 2, 3, 4, 5]),
        (lambda stream: stream.flat_map(CountingFlatMap()), [1, 2, 3, 4, 5]),
        (lambda stream: stream.filter(EverySecond()), ["a", "c", "e"]),
    ],
    ids=["map", "flat_map", "filter"],
)
def test_functions_of_every_kind_have_operator_state(add: Callable[[Any], Any], golden: list[Any]) -> None:
    out = Collect()
    script = Script(["a", EPOCH, "b", "c", CRASH, EPOCH, "d", CRASH, "e"])
    assert run(lambda env: add(env.add_source(script)).sink_to(out))[out] == golden


def test_one_function_object_used_twice_has_two_states() -> None:
    out, function = Collect(), CountingMap()

    def build(env: StreamExecutionEnvironment) -> None:
        counted = env.add_source(Script([1, EPOCH, 2, CRASH, 3])).map(function)
        counted.filter(lambda n: n != 2).map(function).sink_to(out)

    assert run(build)[out] == [1, 2]


class CountsKeys(KeyedProcessFunction, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        self.total = context.get_operator_state_store().get_list_state(ListStateDescriptor("total", Types.LONG()))
        self.of_key = context.get_keyed_state_store().get_state(ValueStateDescriptor("total", Types.LONG()))

    def snapshot_state(self, context: Any) -> None:
        """The list is always up to date."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.of_key.update((self.of_key.value() or 0) + 1)
        self.total.update([sum(self.total) + 1])
        yield value, self.of_key.value(), sum(self.total)


def test_keyed_and_operator_state_may_share_a_name() -> None:
    out = Collect()
    script = Script(["a", "b", EPOCH, "a", CRASH, EPOCH, "a", "b"])
    result = run(lambda env: env.add_source(script).key_by(lambda v: v).process(CountsKeys()).sink_to(out))
    assert result[out] == [("a", 1, 1), ("b", 1, 2), ("a", 2, 3), ("a", 3, 4), ("b", 2, 5)]


class ReportsContext(Seen):
    """Emits what the contexts report."""

    def initialize_state(self, context: Any) -> None:
        super().initialize_state(context)
        self.reported = [context.is_restored(), context.get_restored_checkpoint_id()]
        self.opened = False

    def open(self, runtime_context: Any) -> None:
        self.reported.append(self.opened)  # AttributeError if initialize_state was not called first
        self.opened = True

    def snapshot_state(self, context: Any) -> None:
        super().snapshot_state(context)
        self.reported.append(context.get_checkpoint_id())

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, list(self.reported)


def test_contexts_report_epochs_and_initialize_state_precedes_open() -> None:
    result = run_through(ReportsContext(), Script([1, EPOCH, 2, EPOCH, 3, CRASH, 4]))
    assert result["out"] == [
        (1, [False, None, False]),
        (2, [False, None, False, 1]),
        (3, [True, 2, False]),
        (4, [True, 2, False]),
    ]


# --- sources and sinks --------------------------------------------------------------------------------------


class Remembers(PythonSource, CheckpointedFunction):
    """Numbers; each is emitted with the count that this subtask read before."""

    bounded = True

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("read", Types.LONG()))

    def snapshot_state(self, context: Any) -> None:
        """The list is up to date."""

    def splits(self, context: Any) -> Sequence[Split]:
        return [Split("numbers")]

    def reach(self, split: Split, offset: Any, budget: int, context: Any) -> Any:
        return min(offset + 2, 6)

    def finished(self, split: Split, offset: Any) -> bool:
        return bool(offset >= 6)

    def read(self, split: Split, start: Any, stop: Any) -> Any:
        for number in range(start, stop):
            yield [(number, len(self.state.get()))]
            self.state.add(number)


class FailsAt(MapFunction):
    """Fails at a value, once in the lifetime of `store`."""

    def __init__(self, value: Any, store: str) -> None:
        self.value, self.store = value, store

    def map(self, value: Any) -> Any:
        if value == self.value and MemoryStore(self.store).create("failed", b""):
            raise OSError("once")
        return value


def test_a_source_has_operator_state() -> None:
    out = Collect()
    result = run(
        lambda env: env.add_source(Remembers()).map(FailsAt((3, 3), new_store())).sink_to(out),
        restart=RestartStrategies.fixed_delay_restart(1, 0),
    )
    assert (result[out], result.restarts) == ([(n, n) for n in range(6)], 1)


class Pairs(TwoPhaseSink, CheckpointedFunction):
    """Publishes records in pairs; an odd one waits for the next epoch in operator state."""

    published: dict[int, list[Any]] = {}  # noqa: RUF012 - shared on purpose: what `commit` did is read by the test

    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self.openings = 0

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("waiting", Types.LONG()))
        self.waiting.extend(self.state)

    def open(self, context: WriterContext) -> None:
        assert self.state is not None
        self.openings += 1

    def write(self, values: list[Any]) -> None:
        self.waiting.extend(values)

    def stage(self) -> Any:
        assert self.openings == 1
        whole = len(self.waiting) // 2 * 2
        pairs, self.waiting = self.waiting[:whole], self.waiting[whole:]
        return pairs or None

    def snapshot_state(self, context: Any) -> None:
        self.state.update(self.waiting)

    def commit(self, commit: CommitId, staged: Sequence[Any]) -> None:  # type: ignore[override]
        self.published[commit.epoch] = [pair for pairs in staged for pair in pairs]


def test_a_two_phase_sink_stores_unstaged_records() -> None:
    Pairs.published = {}
    script = Script([1, 2, 3, EPOCH, 4, 5, 6, 7, 8, CRASH, EPOCH, 9, EPOCH, 10])
    run(lambda env: env.add_source(script).sink_to(Pairs()))
    assert {epoch: values for epoch, values in Pairs.published.items() if values} == {
        1: [1, 2],
        2: [3, 4, 5, 6, 7, 8],
        4: [9, 10],
    }


def test_a_sink_subtask_without_records_in_an_epoch_retains_its_state() -> None:
    Pairs.published = {}
    script = Script([0, 1, EPOCH, 3, EPOCH, 5, EPOCH, 2])

    def build(env: StreamExecutionEnvironment) -> None:
        dealt = env.add_source(script).partition_custom(lambda key, n: key % n, lambda value: value)
        dealt.sink_to(Pairs()).uid("pairs")

    store = new_store()
    run(build, parallelism=2, store=store)
    assert [Pairs.published[epoch] for epoch in (2, 4)] == [[1, 3], [0, 2]]
    assert stored_lists(store, "pairs")["1"]["lists"]["waiting"]["items"] == 1


class StatefulSinkOnly(Pairs):
    def writer(self, context: WriterContext) -> SinkWriter:
        return _Plain()


class _Plain(SinkWriter):
    def write(self, batch: Batch) -> None:
        """Discard it."""

    def stage(self) -> Sequence[Any]:
        return ()


class WithWriter(Sink):
    """A sink whose writer counts, across epochs, the records it wrote."""

    totals: dict[int, list[int]] = {}  # noqa: RUF012 - shared on purpose

    def writer(self, context: WriterContext) -> SinkWriter:
        return _Counts()

    def commit(self, commit: CommitId, publish: Sequence[Any], store: Any) -> None:
        self.totals[commit.epoch] = list(publish)


class _Counts(SinkWriter):
    def initialize_state(self, context: Any) -> None:
        self.total = context.get_operator_state_store().get_list_state(ListStateDescriptor("total", Types.LONG()))

    def snapshot_state(self, context: Any) -> None:
        """The list is up to date."""

    def write(self, batch: Batch) -> None:
        self.total.update([sum(self.total) + len(batch)])

    def stage(self) -> Sequence[Any]:
        return tuple(self.total)


def test_the_writer_of_any_sink_may_have_operator_state() -> None:
    WithWriter.totals.clear()
    run(lambda env: env.add_source(Script([1, 2, EPOCH, 3, CRASH, EPOCH, 4])).sink_to(WithWriter()))
    assert WithWriter.totals == {1: [2], 2: [3], 3: [4]}


def test_state_methods_on_a_sink_instead_of_its_writer_are_rejected() -> None:
    with pytest.raises(JobFailedError, match="move the methods to _Plain"):
        run(lambda env: env.add_source(Script([1])).sink_to(StatefulSinkOnly()))


def test_a_foreach_sink_with_operator_state_is_refused() -> None:
    class Function(CountingMap):
        def invoke(self, value: Any) -> None:
            """Discard it."""

    with pytest.raises(ProgramError, match="Derive it from TwoPhaseSink"):
        ForeachSink(Function())


# --- rescaling ----------------------------------------------------------------------------------------------


def run_rescaled(function: Callable[[], Any], before: int, after: int) -> Result:
    """Two epochs at one parallelism, the rest at another; the last epoch of the first run is published again."""
    store = new_store()
    script = Script([0, 1, 2, EPOCH, 3, 4, 5, EPOCH, CRASH, 6, 7, 8])
    until_crash(function(), script, parallelism=before, store=store)
    return run_through(function(), script, parallelism=after, store=store)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 3), (3, 2), (3, 1), (2, 2)])
def test_a_list_is_redistributed_when_the_parallelism_changes(before: int, after: int) -> None:
    result = run_rescaled(Seen, before, after)
    stored = [n for subtask in range(before) for n in range(6) if n % before == subtask]
    if before == after:
        dealt = [[n for n in range(6) if n % before == subtask] for subtask in range(before)]
    else:
        dealt = [stored[len(stored) * i // after : len(stored) * (i + 1) // after] for i in range(after)]
    seen = dict(result["out"])
    for n in (6, 7, 8):
        assert seen[n] == dealt[n % after] + [m for m in range(6, n) if m % after == n % after]


def test_a_union_list_is_restored_in_full_by_every_subtask() -> None:
    result = run_rescaled(lambda: Seen(union=True), 2, 3)
    assert {n: seen[:6] for n, seen in result["out"] if n > 5} == {n: [0, 2, 4, 1, 3, 5] for n in (6, 7, 8)}


def test_a_union_list_is_restored_in_full_at_the_same_parallelism() -> None:
    result = run_rescaled(lambda: Seen(union=True), 2, 2)
    assert {n: seen[:6] for n, seen in result["out"] if n > 5} == {n: [0, 2, 4, 1, 3, 5] for n in (6, 7, 8)}


class DeclaresAnother(Seen):
    """Declares another state than the stored one."""

    def __init__(self) -> None:
        super().__init__(ListStateDescriptor("other", Types.LONG()))


@pytest.mark.parametrize("union", [False, True])
@pytest.mark.parametrize("plain", [False, True], ids=["another state", "no state at all"])
def test_an_undeclared_list_is_retained_once(union: bool, plain: bool) -> None:
    store = new_store()
    script = Script([0, 1, 2, 3, EPOCH, CRASH, 4, EPOCH, 5, EPOCH, CRASH, 6])

    class PassThrough(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value

    until_crash(Seen(union=union), script, parallelism=2, store=store)
    until_crash(PassThrough() if plain else DeclaresAnother(), script, parallelism=3, store=store)
    accounts = stored_lists(store)
    assert [account["lists"].get("seen", {}).get("items", 0) for account in accounts.values()] == [1, 1, 2]
    last = run_through(Seen(union=union), script, parallelism=1, store=store)
    assert last["out"][-1] == (6, [0, 2, 1, 3])


COUNTS = st.lists(st.integers(0, 7), max_size=6)


def distribute_one_by_one(counts: list[int], parallelism: int) -> list[list[tuple[int, int]]]:
    """The reference: all items in a row, each assigned to its subtask."""
    items = [(subtask, i) for subtask, count in enumerate(counts) for i in range(count)]
    if len(counts) == parallelism:
        return [[item for item in items if item[0] == subtask] for subtask in range(parallelism)]
    hands: list[list[tuple[int, int]]] = [[] for _ in range(parallelism)]
    for at, item in enumerate(items):
        # The last share that begins at or before this item.
        chosen = max(h for h in range(parallelism) if len(items) * h // parallelism <= at)
        hands[chosen].append(item)
    return hands


@given(COUNTS, st.integers(1, 8))
def test_shares_agree_with_distributing_item_by_item(counts: list[int], parallelism: int) -> None:
    actual = shares(counts, parallelism)
    items = [[(s.subtask, i) for s in share for i in range(s.start, s.stop)] for share in actual]
    assert items == distribute_one_by_one(counts, parallelism)
    if len(counts) != parallelism:
        sizes = [len(share) for share in items]
        assert max(sizes) - min(sizes) <= 1


def test_a_subtask_reads_only_the_lists_that_overlap_its_share() -> None:
    assert shares([4, 4, 4], 2) == [[Slice(0, 0, 4), Slice(1, 0, 2)], [Slice(1, 2, 4), Slice(2, 0, 4)]]


# --- moves between workers ----------------------------------------------------------------------------------


class Worker:
    """A worker process of Spark from the tasks' point of view: it has its own residents."""

    tasks = itertools.count()

    def __init__(self, job: ShippedJob) -> None:
        self._job, self.residents = job, Residents()

    def run(self, epoch: int, states: dict[str, Any], value: int, lost: bool = False) -> Any:
        """The only task of an epoch: the outcome of reading `value`; None when the attempt is lost half-way."""
        plan = self._job.plan()
        [node, *_] = plan.nodes()
        read = ReadRange(Split("script-0", 0, 0), value, value + 1, subtask=0, watermark=0)
        whole = EpochSpec(epoch, 1, 0, False, {node.uid or "": (read,)}, {}, {}, {}, states)
        spec = EpochSpec.decode(whole.encode(), 0)
        assignment = Assignment(0, 0, 0, f"n{next(self.tasks)}", capture=False)
        sent = run_task(self._job, spec, assignment, iter(()), self.residents)
        envelopes = [envelope for batch in sent for envelope in open_envelopes(batch)]
        outcome = gather(plan, [(e.kind, e.payload.to_pybytes()) for e in envelopes])
        return None if lost else outcome.operator_states


class Opens(Seen):
    opened: list[str] = []  # noqa: RUF012 - shared on purpose

    def open(self, runtime_context: Any) -> None:
        self.opened.append("open")

    def close(self) -> None:
        self.opened.append("close")


def workers(function: Any, count: int) -> list[Worker]:
    env = StreamExecutionEnvironment()
    env.set_parallelism(1)
    stream = env.add_source(Script(list(range(20))))
    if isinstance(function, Sink):
        stream.sink_to(function).uid("function")
    else:
        stream.process(function).uid("function").sink_to(Collect())
    plan = compile_graph(env._graph("moves"))
    facts = JobFacts("moves", "id", "run", MemoryStore(new_store()))
    return [Worker(ShippedJob(cloudpickle.dumps(plan), facts)) for _ in range(count)]


def seen_by(states: dict[str, Any]) -> int:
    items: int = states["function"][0].lists["seen"].items
    return items


def test_a_function_that_stays_on_its_worker_is_opened_once() -> None:
    Opens.opened = []
    [worker] = workers(Opens(), 1)
    states: dict[str, Any] = {}
    for epoch in range(1, 5):
        states = worker.run(epoch, states, epoch)
        assert seen_by(states) == epoch
    assert Opens.opened == ["open"]


def test_a_function_that_returns_to_a_worker_restores_the_state_of_the_others() -> None:
    Opens.opened = []
    first, second = workers(Opens(), 2)
    states: dict[str, Any] = {}
    for epoch, worker in enumerate([first, second, second, first, second], start=1):
        states = worker.run(epoch, states, epoch)
        assert seen_by(states) == epoch
    assert Opens.opened == ["open", "open", "close", "open", "close", "open"]


def test_a_sink_that_returns_to_a_worker_restores_the_state_of_the_others() -> None:
    first, second = workers(Pairs(), 2)
    states: dict[str, Any] = {}
    waiting: list[int] = []
    for epoch, worker in enumerate([first, second, first, first, second], start=1):
        states = worker.run(epoch, states, epoch)
        lists = states["function"][0].lists
        waiting.append(lists["waiting"].items if "waiting" in lists else 0)
    assert waiting == [1, 0, 1, 0, 1]


def test_a_replayed_epoch_restores_the_last_committed_one() -> None:
    [worker] = workers(Opens(), 1)
    states = worker.run(1, {}, 1)
    worker.run(2, states, 2, lost=True)
    assert seen_by(worker.run(2, states, 2)) == 2


def test_an_attempt_that_died_before_its_acknowledgement_leaves_no_state() -> None:
    class Dies(Seen):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield from super().process_element(value, ctx)
            if value == 2 and MemoryStore("dies").create("once", b""):
                signal.raise_signal(signal.SIGINT)  # not a failure of the function: the task is killed

    [worker] = workers(Dies(), 1)
    states = worker.run(1, {}, 1)
    with heeded_interrupts(), pytest.raises(KeyboardInterrupt):
        worker.run(2, states, 2)
    assert seen_by(worker.run(2, states, 2)) == 2


# --- storage ------------------------------------------------------------------------------------------------


class Texts(Seen):
    def __init__(self, characters: int) -> None:
        super().__init__(ListStateDescriptor("texts", Types.STRING()))
        self.characters = characters

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value < 3:
            self.seen.append(str(value) * self.characters)
        yield value, [text[0] for text in self.seen]


def test_a_large_list_is_stored_in_a_file_retained_while_a_manifest_names_it() -> None:
    store = new_store()
    script = Script([1, EPOCH, 2, CRASH, EPOCH, 3, EPOCH, 4])
    result = run_through(Texts(INLINE_BYTES_MAX), script, store=store)
    assert result["out"] == [(1, ["1"]), (2, ["1", "2"]), (3, ["1", "2"]), (4, ["1", "2"])]
    newest = result.manifests[-1]
    file = stored_lists(store)["0"]["lists"]["texts"]["file"]
    name = parse_segment(file)
    assert name is not None and name.epoch == 2  # not rewritten while nothing changes
    stored = MemoryStore(store).list(SEGMENTS)
    assert file in stored and len(stored) >= 2
    deletable = files_to_delete(stored, named_files(newest), newest=newest.epoch, published_through=newest.epoch)
    assert set(deletable) == set(stored) - {file}


def test_a_small_list_is_stored_in_the_manifest() -> None:
    store = new_store()
    run_through(Texts(10), Script([1, EPOCH, 2]), store=store)
    assert "inline" in stored_lists(store)["0"]["lists"]["texts"]
    assert MemoryStore(store).list(SEGMENTS) == []


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_damaged_state_is_reported_and_never_read_as_empty(damage: str) -> None:
    store = new_store()
    script = Script([1, EPOCH, 2, EPOCH, CRASH, 3])
    until_crash(Texts(INLINE_BYTES_MAX), script, store=store)
    memory = MemoryStore(store)
    for name in memory.list(SEGMENTS):
        if damage == "missing":
            memory.delete(name)
        else:
            data = memory.get(name)
            memory.put(name, data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    with pytest.raises(JobFailedError, match=r"operator state 'texts' of '.*': the file 'segments/function/texts"):
        run_through(Texts(INLINE_BYTES_MAX), script, store=store)


VALUES: list[tuple[Any, list[Any]]] = [
    (Types.STRING(), ["", "ü", None]),
    (Types.TUPLE([Types.LONG(), Types.LIST(Types.STRING())]), [(1, ["a"]), (2, [])]),
    (Types.MAP(Types.STRING(), Types.DOUBLE()), [{}, {"a": 0.5}]),
    (Types.PICKLED_BYTE_ARRAY(), [{1, 2}, None, 2**100, Counter("ab")]),
    (Types.BOOLEAN(), [True, False]),
]


@pytest.mark.parametrize(("type_info", "values"), VALUES, ids=[type_info.notation for type_info, _ in VALUES])
def test_values_are_restored_unchanged(type_info: Any, values: list[Any]) -> None:
    class Keeps(Seen):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield list(self.seen)
            self.seen = list(values)

    out = Collect()
    function = Keeps(ListStateDescriptor("kept", type_info))
    script = Script([1, EPOCH, CRASH, 2])
    assert run(lambda env: env.add_source(script).process(function).sink_to(out))[out] == [[], values]


# --- mistakes -----------------------------------------------------------------------------------------------


def test_a_state_saved_with_another_type_is_refused() -> None:
    store, script = new_store(), Script([1, EPOCH, CRASH, 2, EPOCH, 3])
    until_crash(Seen(), script, store=store)
    with pytest.raises(JobFailedError, match="'seen' of 'PROCESS' was saved as int64, is now string"):
        run_through(Seen(ListStateDescriptor("seen", Types.STRING())), script, store=store)
    # The rejection did not lose anything.
    assert run_through(Seen(), script, store=store)["out"][-2:] == [(2, [1]), (3, [1, 2])]


def test_a_state_saved_as_a_list_is_not_read_as_a_union() -> None:
    store, script = new_store(), Script([1, EPOCH, CRASH, 2])
    until_crash(Seen(), script, store=store)
    with pytest.raises(JobFailedError, match="now requested by get_union_list_state"):
        run_through(Seen(union=True), script, store=store)


def initialized(ask: Callable[[Any], Any]) -> Any:
    """What a function gets that requests something from the context of `initialize_state`."""

    class RequestsInInitialize(CountingMap):
        def initialize_state(self, context: Any) -> None:
            super().initialize_state(context)
            self.received = ask(context)

    function = RequestsInInitialize()
    with OperatorHarness(function):
        return function.received


def test_the_same_descriptor_returns_the_same_state() -> None:
    def ask(context: Any) -> Any:
        store = context.get_operator_state_store()
        return store.get_list_state(SEEN), store.get_list_state(ListStateDescriptor("seen", Types.LONG()))

    one, other = initialized(ask)
    one.add(1)
    assert list(other) == [1]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda s: (s.get_list_state(SEEN), s.get_list_state(ListStateDescriptor("seen", Types.STRING()))), "int64"),
        (lambda s: (s.get_list_state(SEEN), s.get_union_list_state(SEEN)), "another name"),
        (lambda s: s.get_list_state(ValueStateDescriptor("seen", Types.LONG())), "expected a ListStateDescriptor"),
        (lambda s: s.get_list_state("seen"), "expected a ListStateDescriptor"),
        (lambda s: s.get_list_state(SEEN).add("one"), "operator state 'seen' of 'function'"),
    ],
    ids=["another type", "another mode", "another kind", "no descriptor", "a value of another type"],
)
def test_an_invalid_descriptor_is_rejected(ask: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        initialized(lambda context: ask(context.get_operator_state_store()))


def test_a_list_with_a_ttl_is_rejected() -> None:
    descriptor = ListStateDescriptor("seen", Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
    with pytest.raises(ProgramError, match="only keyed state has a time to live"):
        initialized(lambda context: context.get_operator_state_store().get_list_state(descriptor))


def test_keyed_state_without_a_key_is_refused() -> None:
    with pytest.raises(ProgramError, match="has no key"):
        initialized(lambda context: context.get_keyed_state_store())


def test_an_unserialisable_value_names_the_state() -> None:
    class Locks(Seen):
        def process_element(self, value: Any, ctx: Any) -> Any:
            self.seen.append(threading.Lock())
            return ()

    with pytest.raises(JobFailedError, match="state 'locks' of 'PROCESS': a value cannot be pickled") as raised:
        run_through(Locks(ListStateDescriptor("locks", Types.PICKLED_BYTE_ARRAY())), Script([1]))
    assert "snapshot_state" in raised.value.report


def test_a_failing_snapshot_fails_the_epoch_with_the_users_traceback() -> None:
    class Fails(Seen):
        def snapshot_state(self, context: Any) -> None:
            raise OSError("disk on fire")

    with pytest.raises(JobFailedError, match="disk on fire") as raised:
        run_through(Fails(), Script([1]))
    assert "test_operator_state.py" in raised.value.report and "snapshot_state" in raised.value.report


def test_a_function_with_only_one_of_the_two_state_methods_is_rejected() -> None:
    class Half(ProcessFunction):
        def snapshot_state(self, context: Any) -> None:
            """The other method is missing."""

        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value

    with pytest.raises(MillstreamError, match=r"has snapshot_state\(\), but operator state needs both"):
        run_through(Half(), Script([1]))


def test_a_program_without_a_former_stateful_operator_is_rejected() -> None:
    store, script, out = new_store(), Script([1, EPOCH, CRASH, 2]), Collect()
    until_crash(Seen(), script, store=store)
    with pytest.raises(MillstreamError, match="uid function"):
        run(lambda env: env.add_source(script).sink_to(out).uid("out"), store=store)
