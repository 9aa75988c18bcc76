"""Random functions return the same values when an epoch is replayed, and only then."""

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
from millstream.runtime.expressions.java_random import JavaRandom, first_doubles, first_integers
from millstream.table import StreamTableEnvironment
from millstream.testing import CRASH, EPOCH, Collect, Script, run

QUERY = (
    "SELECT n, RAND() AS r, RAND() AS other, RAND(7) AS seeded, RAND(7) AS again, RAND_INTEGER(1000) AS k, "
    "UUID() AS id FROM numbers"
)


def build_draws(env: StreamExecutionEnvironment, out: Collect) -> None:
    rows = [(n,) for n in range(40)]
    numbers = env.add_source(Script([*rows, EPOCH, *rows], type_info=Types.ROW_NAMED(["n"], [Types.LONG()])))
    t_env = StreamTableEnvironment.create(env)
    t_env.create_temporary_view("numbers", t_env.from_data_stream(numbers))
    t_env.to_data_stream(t_env.sql_query(QUERY)).sink_to(out).uid("out")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_replayed_epoch_draws_the_same_values(parallelism: int) -> None:
    out, store = Collect(), f"draws-{parallelism}"
    run(lambda env: build_draws(env, out), parallelism=parallelism, store=store)
    rows = [tuple(row) for row in out.values]
    assert len(rows) == 80
    for column in (1, 2, 6):
        assert len({row[column] for row in rows}) == 80  # different values in other epochs and tasks
    assert all(row[3] == row[4] != row[1] for row in rows)
    assert {row[3] for row in rows} <= {*JavaRandom(7).doubles(80).tolist()}  # the same sequence in every task
    env = StreamExecutionEnvironment().set_parallelism(parallelism)
    build_draws(env, Collect())
    for epoch in (1, 2):
        again = replay(env._graph(None), env._job_settings(), f"memory://{store}@{epoch}", "out")
        assert again.is_same, again


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.integers(1, 2))
def test_batches_may_be_cut_anywhere(batches: list[int], numbers_a_row: int) -> None:
    def drawn(cuts: list[int]) -> Any:
        draws = Draws("job", "uid", 0)
        draws.begin(3)
        parts = []
        for rows in cuts:
            draws.next_batch(rows)
            parts.append(draws.generator(numbers_a_row).random(rows * numbers_a_row))
        return np.concatenate(parts)

    assert np.array_equal(drawn(batches), drawn([sum(batches)]))


# --- with a seed ------------------------------------------------------------------------------------------------------

# The results of java.util.Random: nextDouble(), then nextInt(bound) of a new one for each bound.
JAVAS: dict[int, tuple[list[float], dict[int, list[int]]]] = {
    0: (
        [0.730967787376657, 0.24053641567148587, 0.6374174253501083],
        {10: [0, 8, 9, 7, 5, 3], 64: [46, 53, 15, 38, 40, 19], 1_500_000_000: [516548029, 1302116447, 1368843515]},
    ),
    -7: (
        [0.2691218093260761, 0.6731811902798038, 0.5214896372918163],
        {1000: [662, 297, 590, 707, 478, 87], 1_500_000_000: [577934662, 1445645590, 1119890478, 314447087]},
    ),
    42: (
        [0.7275636800328681, 0.6832234717598454, 0.30871945533265976],
        {10: [0, 3, 8, 4, 0, 5], 1_500_000_000: [117392763, 1467211248, 102948884], 2**31 - 1: [1562431130, 117392763]},
    ),
    2**31 - 1: ([0.6201007799387834, 0.8487186553865054], {64: [39, 58, 54, 52, 51, 41], 1000: [281, 505, 419]}),
}


@pytest.mark.parametrize("seed", JAVAS)
def test_a_seed_yields_the_numbers_of_java(seed: int) -> None:
    doubles, integers = JAVAS[seed]
    assert JavaRandom(seed).doubles(len(doubles)).tolist() == doubles
    assert first_doubles(np.array([seed])).tolist() == doubles[:1]
    for bound, numbers in integers.items():
        assert JavaRandom(seed).integers(np.full(len(numbers), bound)).tolist() == numbers
        assert first_integers(np.array([seed]), np.array([bound])).tolist() == numbers[:1]


@given(st.lists(st.integers(0, 20_000), max_size=4), st.integers(-(2**31), 2**31 - 1), st.integers(1, 2**31 - 1))
def test_a_sequence_continues_across_any_cut(cuts: list[int], seed: int, bound: int) -> None:
    whole, parts = JavaRandom(seed), JavaRandom(seed)
    at_once = whole.doubles(sum(cuts))
    assert np.array_equal(at_once, np.concatenate([np.zeros(0), *(parts.doubles(cut) for cut in cuts)]))
    bounds = np.full(20, bound)
    assert whole.integers(bounds).tolist() == [int(parts.integers(bounds[:1])[0]) for _ in range(20)]


SEEDED = "SELECT n, RAND(1) AS a, RAND(1) AS b, RAND_INTEGER(1, 1500000000) AS c, RAND(n), RAND_INTEGER(n, 10)"


def seeded_rows(items: list[object], **how: object) -> list[tuple[object, ...]]:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Script(items, type_info=Types.ROW_NAMED(["n"], [Types.INT()])))
        t_env = StreamTableEnvironment.create(env)
        t_env.create_temporary_view("numbers", t_env.from_data_stream(numbers))
        t_env.to_data_stream(t_env.sql_query(f"{SEEDED} FROM numbers")).sink_to(out).uid("out")

    run(build, **how)  # type: ignore[arg-type]
    return [tuple(row) for row in out.values]


def test_a_seed_yields_one_sequence_across_cuts_and_failures() -> None:
    values = [n % 5 for n in range(60)]
    rows: list[object] = [(n,) for n in values]
    plain = seeded_rows(rows)
    assert [row[1] for row in plain] == JavaRandom(1).doubles(60).tolist() == [row[2] for row in plain]
    assert [row[3] for row in plain] == JavaRandom(1).integers(np.full(60, 1_500_000_000)).tolist()
    assert [row[4] for row in plain] == first_doubles(np.array(values)).tolist()
    assert [row[5] for row in plain] == first_integers(np.array(values), np.full(60, 10)).tolist()
    cut = [*rows[:7], EPOCH, *rows[7:20], CRASH, *rows[20:33], EPOCH, EPOCH, *rows[33:]]
    assert seeded_rows(cut) == plain


def test_null_seeds_and_null_bounds_draw_nothing() -> None:
    draws = {"a": "RAND(CAST(NULL AS INT))", "b": "RAND_INTEGER(1, NULLIF(n, 2))", "c": "RAND(NULLIF(n, 2))"}
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        items = [(n,) for n in (10, 2, 10)]
        numbers = env.add_source(Script(items, type_info=Types.ROW_NAMED(["n"], [Types.INT()])))
        t_env = StreamTableEnvironment.create(env)
        t_env.create_temporary_view("numbers", t_env.from_data_stream(numbers))
        t_env.to_data_stream(t_env.sql_query(f"SELECT {', '.join(draws.values())} FROM numbers")).sink_to(out)

    run(build)
    first = float(first_doubles(np.array([10]))[0])
    assert [tuple(row) for row in out.values] == [(None, 5, first), (None, None, None), (None, 8, first)]
