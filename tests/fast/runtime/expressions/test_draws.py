"""What is random is the same when an epoch is run again, and only then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobs.replay.replay import replay
from millstream.runtime.expressions.draws import Draws
from millstream.table import StreamTableEnvironment
from millstream.testing import EPOCH, Collect, Script, run

QUERY = (
    "SELECT n, RAND() AS r, RAND() AS other, RAND(7) AS seeded, RAND(7) AS again, RAND_INTEGER(1000) AS k, "
    "UUID() AS id FROM numbers"
)


def drawing(env: StreamExecutionEnvironment, out: Collect) -> None:
    rows = [(n,) for n in range(40)]
    numbers = env.add_source(Script([*rows, EPOCH, *rows], type_info=Types.ROW_NAMED(["n"], [Types.LONG()])))
    t_env = StreamTableEnvironment.create(env)
    t_env.create_temporary_view("numbers", t_env.from_data_stream(numbers))
    t_env.to_data_stream(t_env.sql_query(QUERY)).sink_to(out).uid("out")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_replayed_epoch_draws_what_it_drew(parallelism: int) -> None:
    out, store = Collect(), f"draws-{parallelism}"
    run(lambda env: drawing(env, out), parallelism=parallelism, store=store)
    rows = [tuple(row) for row in out.values]
    assert len(rows) == 80
    for column in (1, 2, 3, 6):
        assert len({row[column] for row in rows}) == 80  # in other epochs and tasks others
    assert all(row[3] == row[4] != row[1] for row in rows)
    env = StreamExecutionEnvironment().set_parallelism(parallelism)
    drawing(env, Collect())
    for epoch in (1, 2):
        again = replay(env._graph(None), env._job_settings(), f"memory://{store}@{epoch}", "out")
        assert again.is_same, again


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.integers(1, 2), st.none() | st.integers(0, 9))
def test_batches_may_be_cut_anywhere(batches: list[int], numbers_a_row: int, seed: int | None) -> None:
    def drawn(cuts: list[int]) -> Any:
        draws = Draws("job", "uid", 0)
        draws.begin(3)
        parts = []
        for rows in cuts:
            draws.next_batch(rows)
            parts.append(draws.generator(seed, numbers_a_row).random(rows * numbers_a_row))
        return np.concatenate(parts)

    assert np.array_equal(drawn(batches), drawn([sum(batches)]))
