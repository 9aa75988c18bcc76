"""Every program produces its golden answer downstream of a loop too: its operators process records of several rounds of
an epoch.

The loop forwards the numbers below ten immediately, those below twenty after a round, the rest after two. Order within
a split is preserved, so nothing else about a program's input changes.
"""

from __future__ import annotations

import itertools

import pytest
from programs.plain import PROGRAMS, multiset, numbers

from millstream.common import Types
from millstream.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.testing import Collect, run

_STORES = itertools.count()
WAITING = Types.TUPLE([Types.LONG(), Types.LONG()])  # the number, and how many rounds remain


def delayed(stream: DataStream) -> DataStream:
    loop = stream.map(lambda n: (n, n // 10), WAITING).iterate()
    loop.close_with(loop.filter(lambda w: w[1] > 0).map(lambda w: (w[0], w[1] - 1), WAITING))
    return loop.filter(lambda w: w[1] == 0).map(lambda w: w[0], Types.LONG())


@pytest.mark.parametrize("epoch_records", [None, 9], ids=["one epoch", "many epochs"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_downstream_of_a_loop_produces_its_answer(name: str, epoch_records: int | None) -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        PROGRAMS[name].build(delayed(env.add_source(numbers())), out)

    result = run(build, parallelism=2, epoch_records=epoch_records)
    assert multiset(result[out]) == multiset(PROGRAMS[name].golden(2))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_downstream_of_a_loop_produces_its_answer_in_batch_mode(name: str) -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        PROGRAMS[name].build(delayed(env.add_source(numbers())), out)

    assert multiset(run(build, parallelism=2)[out]) == multiset(PROGRAMS[name].golden(2))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_downstream_of_a_loop_rescaled_half_way_produces_its_answer(name: str) -> None:
    store, first, second = f"rescaled-behind-a-loop-{next(_STORES)}", Collect(), Collect()

    def build(env: StreamExecutionEnvironment, out: Collect) -> None:
        PROGRAMS[name].build(delayed(env.add_source(numbers())), out)

    half = run(lambda env: build(env, first), parallelism=3, epoch_records=15, epochs=1, store=store)
    assert half.status == "SUSPENDED"
    assert run(lambda env: build(env, second), parallelism=2, epoch_records=15, store=store).status == "FINISHED"
    epochs = {epoch: sink for sink in (first, second) for epoch in sink.publications}
    found = multiset([r.value for epoch, sink in epochs.items() for r in sink.records if r.epoch == epoch])
    fewer, more = (multiset(PROGRAMS[name].golden(p)) for p in (2, 3))
    assert fewer <= found <= more
