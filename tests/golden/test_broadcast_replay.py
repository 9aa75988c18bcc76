"""A hundred rule changes, with a restore after nearly every one: every copy of the broadcast state equals the replay of
the changes.

One job stores the rules in three ways: connected to a plain stream, to a keyed one, and as operator state of a function
that receives every rule. It is stopped or crashes after each epoch and is restored at a random parallelism; in each
epoch every subtask of each operator emits its copy. (`tests/fast/runtime/operators/test_broadcast_state.py` has small
random cases.)
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from millstream.checkpoint.manifest import ManifestLog
from millstream.common import RestartStrategies, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedBroadcastProcessFunction,
    ProcessFunction,
)
from millstream.datastream.state import MapStateDescriptor
from millstream.errors import JobFailedError
from millstream.storage.memory import MemoryStore
from millstream.testing import CRASH, EPOCH, Collect, Collected, Script, run

CHANGES = 100
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
PROBES = range(24)

Change = tuple[int, str, str | None, int]
"""Its number; put, remove or clear; the key and the value."""


def changed(rules: Any, change: Change) -> None:
    """Apply a change, to a broadcast state or to a dictionary."""
    _, what, key, value = change
    if what == "put":
        rules[key] = value
    elif what == "clear":
        rules.clear()
    elif key in rules:
        del rules[key]


class EmitsRules:
    """Emits the copy of its subtask."""

    branch = ""
    subtask = -1

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def rules_record(self, number: int, rules: Any) -> Iterable[Any]:
        yield self.branch, number, self.subtask, sorted(rules.items())


class Plain(EmitsRules, BroadcastProcessFunction):  # type: ignore[type-arg]
    branch = "plain"

    def process_element(self, value: tuple[int, int], ctx: Any) -> Iterable[Any]:
        return self.rules_record(value[0], ctx.get_broadcast_state(RULES))

    def process_broadcast_element(self, value: Change, ctx: Any) -> None:
        changed(ctx.get_broadcast_state(RULES), value)


class Keyed(EmitsRules, KeyedBroadcastProcessFunction):  # type: ignore[type-arg]
    branch = "keyed"

    def process_element(self, value: tuple[int, int], ctx: Any) -> Iterable[Any]:
        return self.rules_record(value[0], ctx.get_broadcast_state(RULES))

    def process_broadcast_element(self, value: Change, ctx: Any) -> None:
        changed(ctx.get_broadcast_state(RULES), value)


class InOperatorState(EmitsRules, ProcessFunction, CheckpointedFunction):
    branch = "kept"

    def initialize_state(self, context: Any) -> None:
        self.rules = context.get_operator_state_store().get_broadcast_state(RULES)

    def snapshot_state(self, context: Any) -> None:
        """The map is up to date."""

    def process_element(self, value: Change, ctx: Any) -> Iterable[Any]:
        changed(self.rules, value)
        return self.rules_record(value[0], self.rules)


def add(env: StreamExecutionEnvironment, rules: Script, probes: Script, out: Collect) -> None:
    changes = env.add_source(rules).uid("rules")
    records = env.add_source(probes).uid("probes")
    plain = records.rebalance().connect(changes.broadcast(RULES)).process(Plain())
    keyed = records.key_by(lambda probe: probe[1]).connect(changes.broadcast(RULES)).process(Keyed())
    plain.union(keyed, changes.broadcast().process(InOperatorState())).sink_to(out)


def random_changes(rng: random.Random) -> list[Change]:
    kinds = rng.choices(["put", "remove", "clear"], [12, 5, 1], k=CHANGES)
    return [(number, kind, rng.choice("abcdefgh"), rng.randrange(1_000)) for number, kind in enumerate(kinds)]


def expected(changes: list[Change]) -> list[list[tuple[str, int]]]:
    replayed: dict[str, int] = {}
    found = []
    for change in changes:
        changed(replayed, change)
        found.append(sorted(replayed.items()))
    return found


def one_run(rules: Script, probes: Script, store: str, parallelism: int) -> tuple[list[Collected], str]:
    """Run for an epoch, or until the script crashes; returns the published rows, and how the run ended."""
    out, newest = Collect(), ManifestLog(MemoryStore(store)).newest()
    stop_at = 1 if newest is None else newest.epoch + 1
    try:
        result = run(
            lambda env: add(env, rules, probes, out),
            parallelism=parallelism,
            store=store,
            epochs=stop_at,
            restart=RestartStrategies.no_restart(),
        )
    except JobFailedError as failed:
        assert "the script crashes" in str(failed)
        return out.records, "CRASHED"
    return out.records, result.status


def test_all_copies_equal_the_replay_after_a_hundred_changes_restores_and_rescales() -> None:
    rng = random.Random("broadcast")
    changes = random_changes(rng)
    marks: list[Any] = [(*([CRASH] if rng.random() < 0.2 else []), EPOCH) for _ in changes]
    rules = Script([item for change, mark in zip(changes, marks, strict=True) for item in (change, *mark)])
    probes = Script([item for number in range(CHANGES) for item in (*((number, at) for at in PROBES), EPOCH)])
    ended: Counter[str] = Counter()
    rules_record: dict[int, tuple[int, list[Any]]] = {}
    while not ended["FINISHED"]:
        parallelism = rng.randrange(1, 5)
        records, status = one_run(rules, probes, "broadcast-replay", parallelism)
        ended[status] += 1
        by_epoch: dict[int, list[Any]] = defaultdict(list)
        for record in records:
            by_epoch[record.epoch].append(record.value)
        for epoch, values in by_epoch.items():
            rules_record.setdefault(epoch, (parallelism, values))  # a republished epoch is equal
    assert ended["CRASHED"] > 10 and ended["SUSPENDED"] > 80, ended
    replay, seen = expected(changes), set()
    for parallelism, values in rules_record.values():
        copies: dict[str, set[int]] = defaultdict(set)
        for branch, number, subtask, items in values:
            assert items == replay[number], (branch, number, subtask)
            copies[branch].add(subtask)
            seen.add((branch, number))
        assert copies["plain"] == copies["kept"] == set(range(parallelism)), "a subtask told nothing"
    assert seen == {(branch, number) for branch in ("plain", "keyed", "kept") for number in range(CHANGES)}
