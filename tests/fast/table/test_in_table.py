"""`in_` of a table means what IN (SELECT …) means: the same plan, and the same rows where values are NULL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from millstream.errors import MillstreamError, NotYetError, ProgramError
from millstream.table import DataTypes, EnvironmentSettings, Table, TableEnvironment
from millstream.table.expressions import col, lit
from millstream.testing.local_jobs import jobs_in_memory

ORDERS = DataTypes.ROW([DataTypes.FIELD("n", DataTypes.INT()), DataTypes.FIELD("word", DataTypes.STRING())])
NUMBERS = DataTypes.ROW([DataTypes.FIELD("k", DataTypes.INT())])


def tables(orders: list[Any], numbers: list[Any]) -> tuple[TableEnvironment, Table, Table]:
    t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    left = t_env.from_elements([(n, f"w{n}") for n in orders], ORDERS)
    right = t_env.from_elements([(k,) for k in numbers], NUMBERS)
    t_env.create_temporary_view("orders", left)
    t_env.create_temporary_view("numbers", right)
    return t_env, t_env.from_path("orders"), t_env.from_path("numbers")


Written = Callable[[Table], Any]


@pytest.mark.parametrize(
    ("written", "condition"),
    [
        (lambda numbers: col("n").in_(numbers), "n IN (SELECT k FROM numbers)"),
        (lambda numbers: ~col("n").in_(numbers), "NOT n IN (SELECT k FROM numbers)"),
        (lambda numbers: ~col("n").in_(numbers), "n NOT IN (SELECT k FROM numbers)"),
        (
            lambda numbers: (
                (col("word") != "a") & col("n").in_(numbers.where(col("k") > 3).select((col("k") + 1).alias("next_k")))
            ),
            "word <> 'a' AND n IN (SELECT k + 1 AS next_k FROM numbers WHERE k > 3)",
        ),
        (
            lambda numbers: col("n").in_(numbers) & ~(col("n") + 1).in_(numbers),
            "n IN (SELECT k FROM numbers) AND n + 1 NOT IN (SELECT k FROM numbers)",
        ),
    ],
)
def test_a_condition_on_a_table_has_the_plan_of_the_same_in_sql(written: Written, condition: str) -> None:
    t_env, orders, numbers = tables([1], [1])
    by_calls = orders.where(written(numbers)).explain()
    by_text = t_env.sql_query(f"SELECT * FROM orders WHERE {condition}").explain()
    assert _optimised(by_calls) == _optimised(by_text)
    assert ("AntiJoin" if "NOT" in condition else "SemiJoin") in by_calls


def _optimised(plan: str) -> str:
    return plan[plan.index("== Optimized Physical Plan ==") :]


@pytest.mark.parametrize(
    ("numbers", "inside", "outside"), [([1, 1, 4], [1], [2, 3]), ([None, 2], [2], []), ([4], [], [1, 2, 3])]
)
def test_null_is_in_no_table_and_a_table_with_null_leaves_nothing_out(
    numbers: list[Any], inside: list[int], outside: list[int]
) -> None:
    with jobs_in_memory():
        _, left, right = tables([None, 1, 2, 3], numbers)
        assert sorted(row[0] for row in left.where(col("n").in_(right)).execute().collect()) == inside
        assert sorted(row[0] for row in left.filter(~col("n").in_(right)).execute().collect()) == outside


def test_a_table_of_two_columns_is_refused_at_the_line() -> None:
    _, orders, _ = tables([1], [1])
    with pytest.raises(MillstreamError, match="compares with one column, but the query has 2"):
        orders.where(col("n").in_(orders))


def test_a_table_of_another_environment_is_refused() -> None:
    _, orders, _ = tables([1], [1])
    _, _, numbers = tables([1], [1])
    with pytest.raises(ProgramError, match="different environments"):
        orders.where(col("n").in_(numbers))


def test_a_table_among_values_is_refused() -> None:
    _, _, numbers = tables([1], [1])
    with pytest.raises(ProgramError, match="one table, or values alone"):
        col("n").in_(numbers, 3)


def test_a_condition_on_a_table_is_a_column_of_three_values() -> None:
    with jobs_in_memory():
        _, orders, numbers = tables([1, 2, None], [1, None])
        made = orders.select(col("n").in_(numbers), ~col("n").in_(numbers))
        assert Counter(map(tuple, made.execute().collect())) == Counter([(True, False), (None, None), (None, None)])
        kept = orders.where(col("n").in_(numbers) | (col("n") == lit(2)))
        assert sorted(row[0] for row in kept.execute().collect()) == [1, 2]


def test_a_condition_on_a_table_stands_in_arguments_of_aggregates() -> None:
    with jobs_in_memory():
        _, orders, numbers = tables([1, 2, 3], [1, 3])
        (row,) = orders.select(col("n").in_(numbers).then(lit(1), lit(0)).sum.alias("matches")).execute().collect()
        assert tuple(row) == (2,)


def test_a_condition_on_a_table_is_an_added_column() -> None:
    with jobs_in_memory():
        _, orders, numbers = tables([1, 2], [1, 3])
        made = orders.add_columns(col("n").in_(numbers).alias("found"))
        assert sorted(map(tuple, made.execute().collect())) == [(1, "w1", True), (2, "w2", False)]


def test_the_predicate_of_a_join_holds_no_condition_on_a_table() -> None:
    _, orders, numbers = tables([1], [1])
    with pytest.raises(NotYetError, match="A subquery in an expression in join"):
        orders.join(numbers, col("n").in_(numbers))


def test_it_is_shown_as_a_condition_on_a_table() -> None:
    _, _, numbers = tables([1], [1])
    assert str(col("n").in_(numbers)) == "in(n, UnnamedTable)"
    assert repr(col("n").in_(numbers)) == "Expression<(n IN (a table))>"
