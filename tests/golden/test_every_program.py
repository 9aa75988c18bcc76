"""Every program produces its one golden answer at any parallelism, in one epoch and in many, streaming and in BATCH,
and when it is stopped or crashes half-way and is restored at another parallelism.

In memory, without Spark; `tests/spark` has all of them in one Spark job.
"""

from __future__ import annotations

import itertools

import pytest
from programs.plain import LOOPS, NUMBERS, PROGRAMS, multiset, numbers

from millstream.common import RestartStrategies, Types
from millstream.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.errors import JobFailedError
from millstream.state.tables import changes
from millstream.testing import CRASH, Collect, Script, run

_STORES = itertools.count()
EVERY = {**PROGRAMS, **LOOPS}


@pytest.mark.parametrize("epoch_records", [None, 4], ids=["one epoch", "many epochs"])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("name", EVERY)
def test_a_program_produces_its_answer_at_any_parallelism_and_epoch_size(
    name: str, parallelism: int, epoch_records: int | None
) -> None:
    out = Collect()
    result = run(lambda env: EVERY[name].add(env, out), parallelism=parallelism, epoch_records=epoch_records)
    assert multiset(result[out]) == multiset(EVERY[name].golden(parallelism))
    assert (result.epochs > 1) == (epoch_records is not None or name in LOOPS)


@pytest.mark.parametrize("name", EVERY)
def test_batch_mode_produces_the_same_answer_for_any_number_of_epochs(name: str) -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        EVERY[name].add(env, out)

    result = run(build, parallelism=2, epoch_records=4)
    assert multiset(result[out]) == multiset(EVERY[name].golden(2))
    assert result.epochs > 1


@pytest.mark.parametrize("name", EVERY)
def test_changes_beyond_the_memory_limit_are_flushed_early_without_changing_the_answer(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "CHANGED_BYTES_MAX", 0)  # every change becomes a segment immediately
    out = Collect()
    result = run(lambda env: EVERY[name].add(env, out), parallelism=2, epoch_records=9)
    assert multiset(result[out]) == multiset(EVERY[name].golden(2))


@pytest.mark.parametrize("name", EVERY)
def test_a_crash_in_the_middle_changes_no_answer(name: str) -> None:
    out = Collect()
    split = NUMBERS[1::3]
    source = Script(NUMBERS[0::3], [*split[:5], CRASH, *split[5:]], NUMBERS[2::3], type_info=Types.LONG())
    result = run(lambda env: EVERY[name].add(env, out, source), parallelism=2, epoch_records=9)
    assert multiset(result[out]) == multiset(EVERY[name].golden(2))
    assert result.restarts == 1
    assert out.publications == sorted(out.publications), "epochs were published out of order"


def half_of(name: str, source: Script, parallelism: int, store: str, dies: bool) -> Collect:
    """Run a program until it is stopped, after two epochs, or until the script crashes it in the third."""
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        EVERY[name].add(env, out, source)

    if dies:
        no_restart = RestartStrategies.no_restart()
        with pytest.raises(JobFailedError, match="the script crashes"):
            run(build, parallelism=parallelism, epoch_records=9, restart=no_restart, store=store)
    else:
        assert run(build, parallelism=parallelism, epoch_records=9, epochs=2, store=store).status == "SUSPENDED"
    return out


@pytest.mark.parametrize("dies", [False, True], ids=["stopped", "crashed"])
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 1)], ids=["1 to 3", "3 to 2", "2 to 1"])
@pytest.mark.parametrize("name", EVERY)
def test_a_program_restored_at_another_parallelism_produces_its_answer(
    name: str, before: int, after: int, dies: bool
) -> None:
    store, split = f"rescaled-{next(_STORES)}", NUMBERS[1::3]
    crashing = Script(NUMBERS[0::3], [*split[:7], CRASH, *split[7:]], NUMBERS[2::3], type_info=Types.LONG())
    source = crashing if dies else numbers()
    first, second = half_of(name, source, before, store, dies), Collect()
    result = run(lambda env: EVERY[name].add(env, second, source), parallelism=after, epoch_records=9, store=store)
    assert result.status == "FINISHED" and (result.epochs == 2 or name in LOOPS)
    # The second run republishes committed epochs: an epoch counts once, in whichever sink.
    epochs = {epoch: sink for sink in (first, second) for epoch in sink.publications}
    found = multiset([r.value for epoch, sink in epochs.items() for r in sink.records if r.epoch == epoch])
    # All answers are equal, except that of broadcast(): it has every record once per subtask of its epoch.
    fewer, more = (multiset(EVERY[name].golden(p)) for p in sorted((before, after)))
    assert fewer <= found <= more
