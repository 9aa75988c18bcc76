"""Every program gives its one golden answer at any parallelism, in one epoch and in many, streaming and in BATCH.

In memory, without Spark; `tests/fast` has the programs through a crash, `tests/spark` all of them in one Spark job.
"""

from __future__ import annotations

import pytest
from programs import PROGRAMS, multiset

from millstream.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.testing import Collect, run


@pytest.mark.parametrize("epoch_records", [None, 4], ids=["one epoch", "many epochs"])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_its_answer_at_any_parallelism_and_epoch_size(
    name: str, parallelism: int, epoch_records: int | None
) -> None:
    out = Collect()
    result = run(lambda env: PROGRAMS[name].add(env, out), parallelism=parallelism, epoch_records=epoch_records)
    assert multiset(result[out]) == multiset(PROGRAMS[name].golden(parallelism))
    assert (result.epochs > 1) == (epoch_records is not None)


@pytest.mark.parametrize("name", PROGRAMS)
def test_batch_mode_runs_the_same_stages_once(name: str) -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        PROGRAMS[name].add(env, out)

    result = run(build, parallelism=2, epoch_records=4)
    assert multiset(result[out]) == multiset(PROGRAMS[name].golden(2))
    assert result.epochs == 1
