"""Broadcast state: every subtask's copy is the replay of all changes, through crashes, restarts and rescales.

The programs of `programs/connected.py` test that results are the same at every parallelism and epoch size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs.fresh_names import fresh_name
from waits.refusals import Refused

from millstream.common import Duration, Types, WatermarkStrategy
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream.functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    ProcessFunction,
)
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.errors import JobFailedError
from millstream.runtime.exchange.messages import Envelope, open_envelopes
from millstream.runtime.keyed.broadcast_state import BroadcastStates
from millstream.runtime.task.local import LocalRunner
from millstream.runtime.task.spec import EpochSpec
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.tables.state_table import TableSetting
from millstream.storage.memory import MemoryStore
from millstream.testing import CRASH, EPOCH, Collect, ManualClock, Pause, Result, Script, Watermark, run

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
COUNT = ValueStateDescriptor("count", Types.LONG())

Change = tuple[Any, ...]  # ("put", key, value), ("remove", key) or ("clear",)


def apply_change(rules: Any, change: Change) -> None:
    """Apply a change to a broadcast state or to a dictionary."""
    what, *key_and_value = change
    if what == "put":
        key, value = key_and_value
        rules[key] = value
    elif what == "remove" and key_and_value[0] in rules:
        del rules[key_and_value[0]]
    elif what == "clear":
        rules.clear()


class Replica(BroadcastProcessFunction):  # type: ignore[type-arg]
    """Emits for every record its subtask and the content of that subtask's copy."""

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value, self.subtask, sorted(ctx.get_broadcast_state(RULES).items())

    def process_broadcast_element(self, value: Change, ctx: Any) -> None:
        apply_change(ctx.get_broadcast_state(RULES), value)


def run_broadcast(
    function: Any, records: Script, rules: Script, key: Any = None, states: Any = (RULES,), **options: Any
) -> tuple[list[Any], Result]:
    """The output of a function for `records` connected with broadcast `rules`; with `key`, the records are keyed by
    it.
    """
    out = Collect("out")

    def build(env: StreamExecutionEnvironment) -> None:
        stream: DataStream = env.add_source(records).uid("records")
        stream = stream if key is None else stream.key_by(key)
        outputs = stream.connect(env.add_source(rules).uid("rules").broadcast(*states)).process(function)
        outputs.uid("function").sink_to(out).uid("out")

    result = run(build, **options)
    return result[out], result


def new_store() -> str:
    return fresh_name("broadcast")


# --- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_records_see_all_broadcast_records_of_their_epoch_and_earlier_ones(parallelism: int) -> None:
    rules = Script([("put", "a", 1), EPOCH, ("put", "b", 2), ("put", "a", 3), EPOCH, ("remove", "b")])
    values, _ = run_broadcast(Replica(), Script([1, EPOCH, 2, EPOCH, 3]), rules, parallelism=parallelism)
    seen = {record: items for record, _, items in values}
    assert seen == {1: [("a", 1)], 2: [("a", 3), ("b", 2)], 3: [("a", 3)]}


class Echo(BroadcastProcessFunction):  # type: ignore[type-arg]
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield "record", value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield "rule", value, ctx.timestamp(), ctx.current_watermark() < 0, ctx.current_processing_time()


def test_every_subtask_emits_the_output_of_broadcast_records() -> None:
    values, _ = run_broadcast(Echo(), Script([1]), Script(["x"]), parallelism=2, clock=ManualClock(now_ms=7))
    assert sorted(values) == [("record", 1), *[("rule", "x", None, True, 7)] * 2]


class AddsPosition(BroadcastProcessFunction):  # type: ignore[type-arg]
    """Passes records on with their position in this subtask's input."""

    def open(self, runtime_context: Any) -> None:
        self.count = 0

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        self.count += 1
        yield self.count, value[0], ctx.get_broadcast_state(RULES).get("limit")

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put("limit", value)


def test_output_stays_in_order_in_a_downstream_function_with_its_own_rules() -> None:
    out = Collect("out")

    def build(env: StreamExecutionEnvironment) -> None:
        first = env.add_source(Script([1, 2, 3])).connect(env.add_source(Script(["x"])).broadcast(RULES))
        second = first.process(Echo()).connect(env.add_source(Script([9])).broadcast(RULES))
        second.process(AddsPosition()).sink_to(out)

    assert run(build)[out] == [(1, "rule", 9), (2, "record", 9), (3, "record", 9), (4, "record", 9)]


class ReversedSenders(LocalRunner):
    """Blocks arrive in a different order of senders in every other subtask, as a shuffle may deliver them."""

    def _task(self, stage: int, subtask: int, spec: EpochSpec, rows: Iterator[pa.RecordBatch]) -> Iterator[Envelope]:
        by_sender: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for batch in rows:
            for envelope in open_envelopes(batch):
                by_sender[envelope.sender].append(batch)
        order = sorted(by_sender, reverse=subtask % 2 == 1)
        yield from super()._task(stage, subtask, spec, iter([batch for s in order for batch in by_sender[s]]))


def test_rules_of_several_senders_are_applied_in_the_same_order_in_every_subtask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millstream.testing.in_memory.LocalRunner", ReversedSenders)
    rules = Script(*([("put", "who", split), EPOCH, ("put", "who", split + 10)] for split in range(3)))
    values, _ = run_broadcast(Replica(), Script(range(6), type_info=Types.LONG()), rules, parallelism=3)
    assert {subtask for _, subtask, _ in values} == {0, 1, 2}
    assert len({str(items) for _, _, items in values}) == 1, values


# --- every copy is the replay of all changes --------------------------------------------------------------------------

KEYS = st.sampled_from("abcdefgh")
CHANGES = st.one_of(
    st.tuples(st.just("put"), KEYS, st.integers(0, 1_000)),
    st.tuples(st.just("put"), KEYS, st.integers(0, 1_000)),
    st.tuples(st.just("remove"), KEYS),
    st.just(("clear",)),
)


def cut_at(changes: list[Change], cuts: list[int]) -> list[list[Change]]:
    bounds = [0, *sorted(cuts), len(changes)]
    return [changes[start:stop] for start, stop in pairwise(bounds)]


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(
    st.lists(CHANGES, min_size=100, max_size=100),
    st.lists(st.integers(0, 100), min_size=5, max_size=9),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=3),
    st.integers(0, 4),
)
def test_all_copies_equal_a_replay_of_100_changes_through_crashes_restarts_and_rescales(
    changes: list[Change], cuts: list[int], runs: list[tuple[int, int]], crash: int
) -> None:
    epochs = cut_at(changes, cuts)
    expected: list[list[tuple[str, int]]] = []
    replayed: dict[str, int] = {}
    for epoch in epochs:
        for change in epoch:
            apply_change(replayed, change)
        expected.append(sorted(replayed.items()))
    marked = [[*epoch, CRASH] if number == crash else epoch for number, epoch in enumerate(epochs)]
    rules = Script([item for epoch in marked for item in (*epoch, EPOCH)])
    # Twelve records are distributed evenly to up to four subtasks.
    records = Script([item for number in range(len(epochs)) for item in (*[number] * 12, EPOCH)])
    store, reached, replicas = new_store(), 0, set()
    for parallelism, length in [*runs, (2, len(epochs))]:
        values, result = run_broadcast(
            Replica(), records, rules, parallelism=parallelism, store=store, epochs=reached + length
        )
        reached = result.manifests[-1].epoch if result.manifests else reached
        assert {subtask for _, subtask, _ in values} <= set(range(parallelism))
        for number, subtask, items in values:
            assert items == expected[number], (number, subtask)
            replicas.add(number)
        if result.status == "FINISHED":
            break
    assert replicas == set(range(len(epochs)))


# --- storage ----------------------------------------------------------------------------------------------------------


def tables_of(result: Result, epoch: int) -> dict[str, Any]:
    """The broadcast tables in every subtask's account."""
    states: Any = next(manifest for manifest in result.manifests if manifest.epoch == epoch).states
    return {subtask: account.get("broadcast") for subtask, account in states["function"]["subtasks"].items()}


def test_the_state_is_stored_once_at_any_parallelism() -> None:
    rules = Script([("put", "a", 1), ("put", "b", 2), EPOCH, ("put", "c", 3), EPOCH, EPOCH])
    records = Script([1, EPOCH, 2, EPOCH, 3])
    _, result = run_broadcast(Replica(), records, rules, parallelism=3)
    first, second, third = (tables_of(result, epoch) for epoch in (1, 2, 3))
    assert list(first) == ["0"] and len(first["0"]["rules"]) == 1
    assert len(second["0"]["rules"]) == 2, "a change adds one segment and rewrites none"
    assert third == second, "an epoch without changes wrote a segment"


class Nothing(BroadcastProcessFunction):  # type: ignore[type-arg]
    def process_element(self, value: Any, ctx: Any) -> None:
        return None

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        return None


def test_an_undeclared_state_is_retained_until_it_is_declared_again() -> None:
    store = new_store()
    rules, records = Script([("put", "a", 1), EPOCH, EPOCH]), Script([1, EPOCH, 2, EPOCH, 3])
    run_broadcast(Replica(), records, rules, store=store, epochs=1)
    other = MapStateDescriptor("other", Types.STRING(), Types.LONG())
    run_broadcast(
        Nothing(), records, rules, states=(other,), store=store, epochs=3, parallelism=2
    )  # epoch 2 is the stop
    values, _ = run_broadcast(Replica(), records, rules, store=store)
    assert values == [(3, 0, [("a", 1)])]


def test_a_copy_changed_in_a_failed_attempt_is_read_again() -> None:
    segments = OpenSegments(MemoryStore(new_store()))

    def place(attempt: int, subtask: int) -> TableSetting:
        return TableSetting("uid", 1, subtask, f"attempt{attempt}", range(128), 0, segments)

    writer, other = (BroadcastStates("function", (RULES,), 128) for _ in range(2))
    writer.begin(place(1, 0), {})
    writer.writable(RULES).put("a", 1)
    accounts = {0: SubtaskAccount(broadcast=writer.end())}
    for subtask, states in ((0, writer), (1, other)):
        states.begin(place(2, subtask), accounts)
        states.writable(RULES).put("a", 2)
        states.writable(RULES).put("b", 3)
        assert subtask == 0 or states.end() is None
        states.begin(place(3, subtask), accounts)
        assert list(states.readable(RULES).items()) == [("a", 1)]


class CallsEveryMethod(BroadcastProcessFunction):  # type: ignore[type-arg]
    """Every read and write method, on a state of untyped values."""

    ANYTHING = MapStateDescriptor("anything", Types.LONG(), Types.PICKLED_BYTE_ARRAY())

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        state = ctx.get_broadcast_state(self.ANYTHING)
        yield sorted(state), sorted(state.keys()), sorted(map(str, state.values())), state.is_empty()
        yield state.get(1), state.contains(1), 2 in state, state[2]

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        state = ctx.get_broadcast_state(self.ANYTHING)
        state.clear() if value is None else state.put_all(value)
        assert state.is_empty() == (value is None)
        assert sorted(state.keys()) == sorted(state) and len(list(state.values())) == len(list(state.items()))


def test_a_broadcast_state_reads_like_a_map() -> None:
    rules = Script([{1: ["x"], 2: "y"}, EPOCH, None])
    values, _ = run_broadcast(CallsEveryMethod(), Script([0, EPOCH, 0]), rules, states=(CallsEveryMethod.ANYTHING,))
    full = [([1, 2], [1, 2], ["['x']", "y"], False), (["x"], True, True, "y")]
    assert values == [*full, ([], [], [], True), (None, False, False, None)]


class RetainsView(BroadcastProcessFunction):  # type: ignore[type-arg]
    """Retains the view of its first record, which is allowed."""

    view: Any = None

    def __init__(self, state: MapStateDescriptor) -> None:
        self.state = state

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        self.view = self.view or ctx.get_broadcast_state(self.state)
        yield self.view.get(0.1), self.view.get(1), self.view.get(2.5), self.view[0.1]

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        apply_change(ctx.get_broadcast_state(self.state), value)


@pytest.mark.parametrize("key_type", [Types.FLOAT(), Types.DOUBLE()], ids=str)
def test_a_key_is_converted_to_its_stored_form_also_by_a_view_of_an_earlier_epoch(key_type: Any) -> None:
    state = MapStateDescriptor("rounded", key_type, Types.STRING())
    rules = Script(
        [("put", 0.1, "tenth"), EPOCH, ("put", 1, "one"), EPOCH, EPOCH, ("clear",), EPOCH, ("put", 2.5, "x")]
    )
    records = Script([0, EPOCH, 0, EPOCH, 0, EPOCH, 0, EPOCH, CRASH, 0])
    values, _ = run_broadcast(RetainsView(state), records, rules, states=(state,))
    both = ("tenth", "one", None, "tenth")
    assert values == [("tenth", None, None, "tenth"), both, both, (None, None, None, None), (None, None, "x", None)]


# --- on keyed streams -------------------------------------------------------------------------------------------------


class Raised(KeyedBroadcastProcessFunction):  # type: ignore[type-arg]
    """Counts the records of a key; a broadcast number is added to the counts of all existing keys."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(COUNT)
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        self.count.update((self.count.value() or 0) + 1)
        self.seen.add(value)
        yield ctx.get_current_key(), self.count.value(), list(self.seen)

    def process_broadcast_element(self, value: int, ctx: Any) -> None:
        ctx.apply_to_keyed_state(COUNT, lambda key, count: count.update(count.value() + value))
        if value < 0:
            ctx.apply_to_keyed_state(ListStateDescriptor("seen", Types.LONG()), lambda key, seen: seen.clear())


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_broadcast_record_can_update_the_state_of_every_key(parallelism: int) -> None:
    records = Script([1, 2, 3, EPOCH, 1, 2, CRASH, EPOCH, 1, 2, 3])
    rules = Script([EPOCH, 100, 1000, EPOCH, -1])
    values, _ = run_broadcast(Raised(), records, rules, key=lambda n: n, parallelism=parallelism)
    counts: dict[int, list[Any]] = defaultdict(list)
    for key, *rest in values:
        counts[key].append(tuple(rest))
    assert counts[1] == [(1, [1]), (1102, [1, 1]), (1102, [1])]
    assert counts[2] == [(1, [2]), (1102, [2, 2]), (1102, [2])]
    assert counts[3] == [(1, [3]), (1101, [3])]


class Reminder(KeyedBroadcastProcessFunction):  # type: ignore[type-arg]
    """Sets the timer that a rule requests, and emits the rules when it fires."""

    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(ctx.get_broadcast_state(RULES).get("wait"))
        ctx.timer_service().register_processing_time_timer(1_500)
        assert ctx.timestamp() == 3 and ctx.current_processing_time() == 1_000 and ctx.current_watermark() < 0

    def process_broadcast_element(self, value: Change, ctx: Any) -> None:
        apply_change(ctx.get_broadcast_state(RULES), value)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        rules = sorted(ctx.get_broadcast_state(RULES).items())
        yield ctx.get_current_key(), timestamp, ctx.time_domain().name, rules


def test_timers_read_broadcast_state() -> None:
    out, clock = Collect(), ManualClock(now_ms=1_000)
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda value, _: 3)

    def build(env: StreamExecutionEnvironment) -> None:
        records = env.from_source(Script(["k", EPOCH, Pause(900), EPOCH, Watermark(60)], clock=clock), strategy, "in")
        changes = Script([("put", "wait", 50), EPOCH, ("put", "new", 1), EPOCH, Watermark(60), Watermark(70)])
        rules = env.from_source(changes, WatermarkStrategy.no_watermarks(), "rules")
        records.key_by(lambda value: value).connect(rules.broadcast(RULES)).process(Reminder()).sink_to(out)

    early, late = run(build, clock=clock)[out]
    assert early == ("k", 1_500, "PROCESSING_TIME", [("wait", 50)]), "it preceded the epoch's rules"
    assert late == ("k", 50, "EVENT_TIME", [("new", 1), ("wait", 50)])


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def numbers() -> DataStream:
    return StreamExecutionEnvironment().from_collection([1, 2], Types.LONG())


def test_broadcast_requires_map_descriptors_with_distinct_names(numbers: DataStream) -> None:
    with Refused("expected a MapStateDescriptor"):
        numbers.broadcast(COUNT)  # type: ignore[call-overload]
    with Refused("two descriptors are named 'rules'"):
        numbers.broadcast(RULES, RULES)
    mortal = MapStateDescriptor("mortal", Types.STRING(), Types.LONG())
    mortal.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_seconds(1)).build())
    with Refused("'mortal' has a time to live"):
        numbers.broadcast(mortal)


def test_keyed_and_plain_streams_reject_each_others_functions(numbers: DataStream) -> None:
    class Plain(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> None:
            return None

    rules = numbers.broadcast(RULES)
    with Refused("Raised is a KeyedBroadcastProcessFunction", "key_by() before connect()"):
        numbers.connect(rules).process(Raised())
    with Refused("Replica is a BroadcastProcessFunction", "Use a KeyedBroadcastProcessFunction"):
        numbers.key_by(lambda n: n).connect(rules).process(Replica())
    with Refused("found a ProcessFunction (Plain), expected BroadcastProcessFunction"):
        numbers.connect(rules).process(Plain())  # type: ignore[arg-type]
    with Refused("different environments"):
        StreamExecutionEnvironment().from_collection([1]).connect(rules)


class CallsContext(KeyedBroadcastProcessFunction):  # type: ignore[type-arg]
    """Calls its arguments: `element` for records, `broadcast` for rules, `timer` when one fires."""

    def __init__(self, element: Any = None, broadcast: Any = None, timer: Any = None) -> None:
        self.element, self.broadcast, self.timer = element, broadcast, timer

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(COUNT)

    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(1)
        if self.element is not None:
            self.element(ctx)

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        if self.broadcast is not None:
            self.broadcast(self, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        if self.timer is not None:
            self.timer(ctx)


def nothing_with(key: Any, state: Any) -> None:
    return None


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            CallsContext(element=lambda ctx: ctx.get_broadcast_state(RULES).put("a", 1)),
            "Write it in process_broadcast_element",
        ),
        (CallsContext(element=lambda ctx: ctx.get_broadcast_state(RULES).clear()), "the copies would differ"),
        (
            CallsContext(timer=lambda ctx: ctx.get_broadcast_state(RULES).remove("a")),
            "Write it in process_broadcast_element",
        ),
        (
            CallsContext(
                element=lambda ctx: ctx.get_broadcast_state(MapStateDescriptor("x", Types.LONG(), Types.LONG()))
            ),
            r"has no broadcast state 'x'; it has \['rules'\]. Pass its descriptor to broadcast",
        ),
        (
            CallsContext(
                broadcast=lambda _, ctx: ctx.get_broadcast_state(MapStateDescriptor("y", Types.LONG(), Types.LONG()))
            ),
            "has no broadcast state 'y'",
        ),
        (
            CallsContext(
                element=lambda ctx: ctx.get_broadcast_state(MapStateDescriptor("rules", Types.LONG(), Types.LONG()))
            ),
            "Use one descriptor for both",
        ),
        (CallsContext(broadcast=lambda me, ctx: me.count.value()), "keyed state was used outside a keyed call"),
        (
            CallsContext(
                broadcast=lambda _, ctx: ctx.apply_to_keyed_state(ValueStateDescriptor("z", Types.LONG()), nothing_with)
            ),
            r"it has \['count'\]. Request it in open\(\)",
        ),
        (
            CallsContext(broadcast=lambda _, ctx: ctx.get_broadcast_state(RULES).put("a", "text")),
            "broadcast state 'rules'",
        ),
    ],
)
def test_forbidden_context_calls_fail_the_job_with_advice(function: Any, words: str) -> None:
    with pytest.raises(JobFailedError, match=words):
        run_broadcast(function, Script([1]), Script([1]), key=lambda n: n)


def test_the_plan_shows_the_broadcast_states(numbers: DataStream) -> None:
    numbers.connect(numbers.broadcast(RULES)).process(Replica()).sink_to(Collect())
    plan = numbers.get_execution_environment().explain()
    assert "broadcasts: rules" in plan and "broadcast from" in plan and "as input 2" in plan
