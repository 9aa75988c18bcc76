"""Broadcast state as operator state: a map of which each subtask stores its own copy and restores one of the copies.

`tests/golden/test_broadcast_replay.py` tests at length that equal copies stay equal through crashes and rescales.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from millstream.checkpoint.manifest import ManifestLog
from millstream.common import Duration, Row, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import BroadcastProcessFunction, CheckpointedFunction, ProcessFunction
from millstream.datastream.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig
from millstream.errors import JobFailedError, ProgramError
from millstream.state.stored.operator_lists import INLINE_BYTES_MAX
from millstream.storage.memory import MemoryStore
from millstream.storage.names import parse_segment
from millstream.testing import CRASH, EPOCH, Collect, OperatorHarness, Result, Script, run

SEEN = MapStateDescriptor("seen", Types.LONG(), Types.STRING())
_STORES = itertools.count()


class Copies(ProcessFunction, CheckpointedFunction):
    """Emits the content of its map, then adds the record. The copies differ, as those of a careless function would."""

    def __init__(self, descriptor: Any = SEEN) -> None:
        self.descriptor = descriptor

    def initialize_state(self, context: Any) -> None:
        self.seen = context.get_operator_state_store().get_broadcast_state(self.descriptor)

    def snapshot_state(self, context: Any) -> None:
        """The map is up to date."""

    def process_element(self, value: int, ctx: Any) -> Any:
        yield value, dict(self.seen.items())
        self.seen.put(value, str(value))


class PassThrough(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        yield value


def new_store() -> str:
    return f"operator-broadcast-{next(_STORES)}"


def run_through(function: Any, script: Script, **options: Any) -> Result:
    out = Collect("out")

    def build(env: StreamExecutionEnvironment) -> None:
        dealt = env.add_source(script).partition_custom(lambda key, n: key % n, lambda value: value)
        dealt.process(function).uid("function").sink_to(out).uid("out")

    return run(build, **options)


def accounts(store: str) -> list[Any]:
    """The map in the newest manifest, by subtask."""
    newest = ManifestLog(MemoryStore(store)).newest()
    assert newest is not None
    functions: Any = newest.states["function"]
    return [account["lists"].get("seen") for account in functions["functions"].values()]


def as_texts(*numbers: int) -> dict[int, str]:
    return {number: str(number) for number in numbers}


# --- assignment of copies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_subtask_restores_its_own_copy_after_a_crash(parallelism: int) -> None:
    script = Script([0, 1, 2, EPOCH, 3, 4, CRASH, 5, EPOCH, 6, 7, 8, CRASH, EPOCH, 9])
    result = run_through(Copies(), script, parallelism=parallelism)
    golden = {n: as_texts(*(m for m in range(n) if m % parallelism == n % parallelism)) for n in range(10)}
    assert dict(result["out"]) == golden and result.restarts == 2


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 5), (3, 2), (3, 1), (1, 3)])
def test_at_another_parallelism_subtask_i_restores_copy_i_mod_n(before: int, after: int) -> None:
    store = new_store()
    script = Script([*range(6), EPOCH, EPOCH, 30, 31, 32, 33, 34, 35])
    run_through(Copies(), script, parallelism=before, store=store, epochs=1)
    result = run_through(Copies(), script, parallelism=after, store=store)
    copies = [as_texts(*(m for m in range(6) if m % before == subtask)) for subtask in range(before)]
    restored = {n: {m: t for m, t in seen.items() if m < 30} for n, seen in result["out"] if n >= 30}
    assert restored == {n: copies[n % after % before] for n in range(30, 36)}


def test_a_subtask_without_entries_restores_an_empty_map() -> None:
    store, script = new_store(), Script([0, 2, EPOCH, 4, 5])
    run_through(Copies(), script, parallelism=2, store=store, epochs=1)
    assert dict(run_through(Copies(), script, parallelism=2, store=store)["out"])[5] == {}


@pytest.mark.parametrize("between", [2, 3])
def test_an_undeclared_map_is_retained_copy_by_copy(between: int) -> None:
    store = new_store()
    script = Script([0, 1, EPOCH, 2, EPOCH, 10, 11])
    run_through(Copies(), script, parallelism=2, store=store, epochs=1)
    run_through(PassThrough(), script, parallelism=between, store=store, epochs=3)  # epoch 2 is the stop
    last = dict(run_through(Copies(), script, parallelism=2, store=store)["out"])
    assert (last[10], last[11]) == (as_texts(0), as_texts(1))


# --- storage ----------------------------------------------------------------------------------------------------------


def test_a_large_map_is_stored_in_a_file_rewritten_only_when_it_changes() -> None:
    class Large(Copies):
        def process_element(self, value: int, ctx: Any) -> Any:
            if value == 1:
                self.seen.put(value, "x" * INLINE_BYTES_MAX)
            yield len(self.seen.get(1))

    store = new_store()
    assert run_through(Large(), Script([1, EPOCH, 2, CRASH, EPOCH, 3]), store=store)["out"] == [INLINE_BYTES_MAX] * 3
    [entry] = accounts(store)
    assert (entry["mode"], entry["type"], entry["items"]) == ("broadcast", "map<int64, string>", 1)
    name = parse_segment(entry["file"])
    assert name is not None and name.epoch == 1


PAIRS: list[tuple[Any, Any, dict[Any, Any]]] = [
    (Types.STRING(), Types.DOUBLE(), {"": 0.5, "ü": None}),
    (Types.TUPLE([Types.LONG(), Types.STRING()]), Types.LIST(Types.STRING()), {(1, "a"): ["b"], (2, "b"): []}),
    (Types.LONG(), Types.ROW([Types.LONG(), Types.STRING()]), {1: Row(f0=1, f1="a"), 2: Row(f0=2, f1=None)}),
    (Types.PICKLED_BYTE_ARRAY(), Types.PICKLED_BYTE_ARRAY(), {None: {1, 2}, 2**100: None}),
]


@pytest.mark.parametrize(("key", "value", "pairs"), PAIRS, ids=[f"{key} to {value}" for key, value, _ in PAIRS])
def test_entries_are_restored_unchanged(key: Any, value: Any, pairs: dict[Any, Any]) -> None:
    class Keeps(Copies):
        def process_element(self, value: int, ctx: Any) -> Any:
            yield dict(self.seen.items())
            self.seen.put_all(pairs)

    function = Keeps(MapStateDescriptor("kept", key, value))
    assert run_through(function, Script([1, EPOCH, CRASH, 2]))["out"] == [{}, pairs]


def test_it_has_the_interface_of_a_map_state() -> None:
    class ReadsMap(Copies):
        def process_element(self, value: int, ctx: Any) -> Any:
            seen = self.seen
            assert seen.is_empty()
            seen[1], seen[2], seen[3] = "a", "b", "c"
            del seen[3]
            seen.remove(4)
            yield sorted(seen), list(seen.values()), seen[1], seen.get(3), 2 in seen, seen.contains(3), seen.is_empty()
            seen.clear()

    answer = ([1, 2], ["a", "b"], "a", None, True, False, False)
    assert run_through(ReadsMap(), Script([1, EPOCH, CRASH, 2]))["out"] == [answer, answer]


# --- mistakes ---------------------------------------------------------------------------------------------------------


def descriptor_with_ttl() -> MapStateDescriptor:
    descriptor = MapStateDescriptor("mortal", Types.LONG(), Types.STRING())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_seconds(1)).build())
    return descriptor


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda s: s.get_broadcast_state(ListStateDescriptor("seen", Types.LONG())), "expected a MapStateDescriptor"),
        (lambda s: s.get_broadcast_state("seen"), "found 'seen', expected a MapStateDescriptor"),
        (lambda s: s.get_broadcast_state(descriptor_with_ttl()), "only keyed state has a time to live"),
        (lambda s: s.get_broadcast_state(SEEN).put(1, 2), "operator state 'seen' of 'function'"),
        (lambda s: s.get_broadcast_state(SEEN).put("x", "2"), "the map keys of operator state 'seen' of 'function'"),
        (
            lambda s: (s.get_list_state(ListStateDescriptor("seen", Types.LONG())), s.get_broadcast_state(SEEN)),
            r"was declared by get_list_state as int64, and is now requested by get_broadcast_state as map<int64, str",
        ),
    ],
    ids=["another kind", "no descriptor", "expires", "a value that does not fit", "a key", "a list of the name"],
)
def test_an_invalid_descriptor_or_value_is_rejected(ask: Callable[[Any], Any], message: str) -> None:
    class DeclaresState(Copies):
        def initialize_state(self, context: Any) -> None:
            ask(context.get_operator_state_store())

    with pytest.raises(ProgramError, match=message), OperatorHarness(DeclaresState()):
        pass


def test_the_same_descriptor_returns_the_same_map() -> None:
    class Twice(Copies):
        def initialize_state(self, context: Any) -> None:
            super().initialize_state(context)
            self.again = context.get_operator_state_store().get_broadcast_state(SEEN)

        def process_element(self, value: int, ctx: Any) -> Any:
            self.again.put(value, "x")
            yield self.seen.get(value)

    assert run_through(Twice(), Script([1]))["out"] == ["x"]


def test_a_map_saved_with_another_type_is_refused() -> None:
    store, script = new_store(), Script([1, EPOCH, 2, EPOCH, 3])
    run_through(Copies(), script, store=store, epochs=1)
    with pytest.raises(JobFailedError, match="'seen' of 'PROCESS' was saved as string, is now int64"):
        run_through(Copies(MapStateDescriptor("seen", Types.LONG(), Types.LONG())), script, store=store)


class Rules(BroadcastProcessFunction, CheckpointedFunction):  # type: ignore[type-arg]
    """Has a broadcast state of its stream, and an operator state of its own."""

    def __init__(self, own: MapStateDescriptor) -> None:
        self.own = own

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_broadcast_state(self.own)

    def snapshot_state(self, context: Any) -> None:
        """The map is up to date."""

    def process_broadcast_element(self, value: int, ctx: Any) -> None:
        ctx.get_broadcast_state(SEEN).put(value, "stream")
        self.state.put(value, "own")

    def process_element(self, value: int, ctx: Any) -> Any:
        yield value, dict(ctx.get_broadcast_state(SEEN).items()), dict(self.state.items())


def run_with_rules(function: Rules) -> list[Any]:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        rules = env.add_source(Script([1, EPOCH, 2]))
        records = env.add_source(Script([10, EPOCH, 20, CRASH]))
        records.connect(rules.broadcast(SEEN)).process(function).sink_to(out)

    return run(build, parallelism=2)[out]


def test_a_broadcast_function_may_declare_a_further_operator_state() -> None:
    both = {1: "stream", 2: "stream"}, {1: "own", 2: "own"}
    own = MapStateDescriptor("own", Types.LONG(), Types.STRING())
    assert run_with_rules(Rules(own)) == [(10, {1: "stream"}, {1: "own"}), (20, *both)]


def test_a_broadcast_function_may_not_declare_an_operator_state_of_the_same_name() -> None:
    with pytest.raises(JobFailedError, match=r"'seen' of .* has the name of a state of its broadcast stream"):
        run_with_rules(Rules(SEEN))
