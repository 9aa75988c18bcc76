"""Every epoch of every program replays to its committed result, at several parallelisms, and after a restore.

All operators are downstream of the first source, so one replay compares every operator: counts, event time, states,
output. None of these programs reads a clock or a random source; a difference is a bug of the replay, or of the engine.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from programs.plain import LOOPS, NUMBERS, PROGRAMS, numbers

from millstream.checkpoint.manifest import ManifestLog
from millstream.common import Configuration, Types
from millstream.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.errors import NotAvailableError
from millstream.jobs.replay.replay import Replay, replay
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, Script, run

_STORES = itertools.count()
EVERY = {**PROGRAMS, **LOOPS}


class Once(Script):
    """Cannot be read again."""

    def reopened(self, store: Any, session: Any) -> Any:
        raise NotAvailableError("it is gone")


def replayed(name: str, store: str, epoch: int, source: Script | None = None, batch: bool = False) -> Replay:
    env = StreamExecutionEnvironment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH if batch else RuntimeExecutionMode.STREAMING)
    EVERY[name].add(env, Collect(), source or numbers())
    graph, settings = env._graph(None), env._job_settings()
    first = next(node for node in graph.nodes if not node.inputs)
    return replay(graph, settings, f"memory://{store}@{epoch}", first.name)


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("name", EVERY)
def test_every_epoch_replays_to_its_committed_result(name: str, parallelism: int) -> None:
    store = f"replayed-{next(_STORES)}"
    run(lambda env: EVERY[name].add(env, Collect(), numbers()), parallelism=parallelism, epoch_records=12, store=store)
    log = ManifestLog(MemoryStore(store))
    ran = [epoch for epoch in log.epochs() if log.read(epoch).status in ("RUNNING", "DRAINED")]
    assert len(ran) > 1
    for epoch in ran:
        found = replayed(name, store, epoch)
        assert found.is_same, found.text()


@pytest.mark.parametrize("name", EVERY)
def test_every_epoch_replays_from_recorded_input(name: str) -> None:
    store = f"replayed-{next(_STORES)}"

    def build(env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration().set_boolean("millstream.record", True))
        EVERY[name].add(env, Collect(), numbers())

    run(build, parallelism=2, epoch_records=20, store=store)
    once = Once(NUMBERS[0::3], NUMBERS[1::3], NUMBERS[2::3], type_info=Types.LONG())
    for epoch in (1, 2):
        found = replayed(name, store, epoch, once)
        assert found.is_same, found.text()


@pytest.mark.parametrize("name", EVERY)
def test_the_epoch_of_a_batch_job_replays(name: str) -> None:
    store = f"replayed-{next(_STORES)}"

    def build(env: StreamExecutionEnvironment) -> None:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        EVERY[name].add(env, Collect(), numbers())

    run(build, parallelism=2, store=store)
    found = replayed(name, store, 1, batch=True)
    assert found.is_same, found.text()


@pytest.mark.parametrize("name", EVERY)
def test_the_first_epoch_after_a_rescale_replays(name: str) -> None:
    store = f"replayed-{next(_STORES)}"
    run(lambda env: EVERY[name].add(env, Collect(), numbers()), parallelism=3, epoch_records=9, epochs=2, store=store)
    run(lambda env: EVERY[name].add(env, Collect(), numbers()), parallelism=2, epoch_records=9, store=store)
    found = replayed(name, store, 4)
    assert found.is_same, found.text()
