"""Row-count windows in the Table API: the results of Flink 2.3 for the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.errors import MillstreamError
from millstream.table import AggregateFunction, DataTypes, EnvironmentSettings, Table, TableEnvironment
from millstream.table.expressions import call_sql, col, lit, row_interval
from millstream.table.udf import udaf
from millstream.table.window import GroupWindow, Session, Slide, Tumble
from millstream.testing.local_jobs import jobs_in_memory

K, V, W = col("k"), col("v"), col("w")


@pytest.fixture
def numbers() -> Iterator[Table]:
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        rows = [(n % 2, n, "abc"[n % 3]) for n in range(11)]
        yield t_env.from_elements(rows, ["k", "v", "s"]).add_columns(call_sql("PROCTIME()").alias("at"))


def rows(table: Table) -> list[tuple[Any, ...]]:
    with table.execute().collect() as results:
        return sorted(tuple(row) for row in results)


def tumble(size: int) -> GroupWindow:
    return Tumble.over(row_interval(size)).on(col("at")).alias("w")


def slide(size: int, every: int) -> GroupWindow:
    return Slide.over(row_interval(size)).every(row_interval(every)).on(col("at")).alias("w")


def test_a_row_count_window_fires_when_its_group_fills_it(numbers: Table) -> None:
    table = numbers.window(tumble(2)).group_by(W, K).select(K, V.sum.alias("total"), V.max - V.min, V.count)
    assert rows(table) == [(0, 2, 2, 2), (0, 10, 2, 2), (0, 18, 2, 2), (1, 4, 2, 2), (1, 12, 2, 2)]
    assert rows(numbers.window(tumble(3)).group_by(W).select(V.sum)) == [(3,), (12,), (21,)]
    assert rows(numbers.window(tumble(12)).group_by(W).select(V.sum)) == []


@pytest.mark.parametrize(
    ("size", "every", "totals"),
    [
        (2, 1, [(0, 2), (0, 6), (0, 10), (0, 14), (0, 18), (1, 4), (1, 8), (1, 12), (1, 16)]),
        (3, 2, [(0, 6), (0, 18), (1, 9), (1, 21)]),
        (2, 3, [(0, 2), (0, 14), (1, 4), (1, 16)]),
        (4, 2, [(0, 12), (0, 28), (1, 16)]),
    ],
)
def test_a_sliding_row_count_window_starts_every_slide_rows(
    numbers: Table, size: int, every: int, totals: list[tuple[int, int]]
) -> None:
    assert rows(numbers.window(slide(size, every)).group_by(W, K).select(K, V.sum)) == totals


def test_groups_are_expressions_and_aggregates_may_be_of_distinct_values_or_texts(numbers: Table) -> None:
    assert rows(numbers.window(tumble(4)).group_by(W).select(col("s").count.distinct)) == [(3,), (3,)]
    parity = numbers.window(tumble(5)).group_by(W, (K + 1).alias("p")).select(col("p"), K + 1, col("s").list_agg(","))
    assert rows(parity) == [(1, 1, "a,c,b,a,c"), (2, 2, "b,a,c,b,a")]


class Mean(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def accumulate(self, accumulator: list[int], value: int) -> None:
        accumulator[0] += value
        accumulator[1] += 1

    def get_value(self, accumulator: list[int]) -> float:
        return accumulator[0] / accumulator[1]

    def get_result_type(self) -> Any:
        return DataTypes.DOUBLE()

    def get_accumulator_type(self) -> Any:
        return DataTypes.ARRAY(DataTypes.BIGINT())


def test_user_defined_aggregates_run_over_row_count_windows(numbers: Table) -> None:
    means = [(0, 1.0), (0, 5.0), (0, 9.0), (1, 2.0), (1, 6.0)]
    mean = udaf(Mean())
    assert rows(numbers.window(tumble(2)).group_by(W, K).select(K, mean(V))) == means
    assert rows(numbers.window(tumble(2)).group_by(W, K).aggregate(mean(V).alias("m")).select(K, col("m"))) == means
    of_series = udaf(lambda values: values.mean(), result_type=DataTypes.DOUBLE(), func_type="pandas")
    assert rows(numbers.window(tumble(2)).group_by(W, K).select(K, of_series(V))) == means


@pytest.mark.parametrize(
    ("window", "selected", "message"),
    [
        (tumble(2), [W.start], "a window of rows has no start"),
        (tumble(2), [V], "found the column 'v', expected groups and aggregates"),
        (tumble(0), [K], "expected at least one row"),
        (Tumble.over(row_interval(2)).on(V).alias("w"), [K], "expected a column of processing time"),
        (Slide.over(row_interval(2)).every(lit(5).seconds).on(col("at")).alias("w"), [K], "row_interval"),
        (Session.with_gap(row_interval(2)).on(col("at")).alias("w"), [K], "expected a duration"),
    ],
)
def test_unsupported_uses_of_row_count_windows_are_rejected(
    numbers: Table, window: GroupWindow, selected: list[Any], message: str
) -> None:
    with pytest.raises(MillstreamError, match=message):
        numbers.window(window).group_by(W, K).select(*selected)
