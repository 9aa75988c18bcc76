"""GROUP BY, DISTINCT and PARTITION BY of arrays, maps and rows that hold them: equal values are one group in every
epoch, also after deletes and after operators are restored from stored state.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from programs.one_task import QueryPlan, QueryTask
from test_operators_against_references import REOPENED, TYPE, changelogs, rows_after

from millstream.common.types import Row
from millstream.errors import NotYetError
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

KEYS = {
    "an array": "ARRAY[k, CAST(NULL AS INT), 7]",
    # The same map, written in two orders.
    "a map": "CASE WHEN v > 0 THEN MAP['a', k, 'b', 1] ELSE MAP['b', 1, 'a', k] END",
    "a row": "ROW(k, ARRAY[MAP[COALESCE(s, '-'), k]])",
}


@cache
def plan_of(query: str, only_grows: bool = False) -> QueryPlan:
    return QueryPlan(query, ["t"], TYPE, only_grows=only_grows)


def hashable(value: Any) -> Any:
    """A hashable equal of the value; NaN equals itself."""
    if isinstance(value, Row | list | tuple):
        return tuple(map(hashable, value))
    return frozenset((key, hashable(item)) for key, item in value.items()) if isinstance(value, dict) else value


def key_of(name: str, row: Any) -> Any:
    k, _, s = row
    return {
        "an array": (k, None, 7),
        "a map": frozenset({("a", k), ("b", 1)}),
        "a row": (k, (frozenset({("-" if s is None else s, k)}),)),
    }[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", KEYS)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(changelogs(), REOPENED)
def test_equal_nested_values_are_one_group(name: str, epochs: list[list[Row]], reopened: list[bool]) -> None:
    task = QueryTask(plan_of(f"SELECT g, COUNT(*), MAX(v) FROM (SELECT v, {KEYS[name]} AS g FROM t) GROUP BY g"))
    emitted, arrived = list[Row](), list[Row]()
    for changes, is_new in zip(epochs, reopened, strict=True):
        emitted += task.run({"t": changes}, reopened=is_new)
        arrived += changes
        groups: dict[Any, list[Any]] = {}
        for row in rows_after(arrived):
            groups.setdefault(key_of(name, row), []).append(row[1])
        expected = Counter(
            (key, len(values), max((value for value in values if value is not None), default=None))
            for key, values in groups.items()
        )
        changed = [Row(*map(hashable, row)) for row in emitted]
        for new, old in zip(changed, emitted, strict=True):
            new.set_row_kind(old.get_row_kind())
        assert Counter(rows_after(changed)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", KEYS)
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(changelogs(only_grows=True), REOPENED)
def test_equal_nested_values_are_one_partition(name: str, epochs: list[list[Row]], reopened: list[bool]) -> None:
    numbered = f"SELECT k, v, s, ROW_NUMBER() OVER (PARTITION BY {KEYS[name]} ORDER BY v DESC NULLS LAST) AS n FROM t"
    task = QueryTask(plan_of(f"SELECT k, v, s FROM ({numbered}) WHERE n = 1", only_grows=True))
    emitted, arrived = list[Row](), list[Row]()
    for rows, is_new in zip(epochs, reopened, strict=True):
        emitted += task.run({"t": rows}, reopened=is_new)
        arrived += rows
        best: dict[Any, Any] = {}
        for row in map(tuple, arrived):
            known = best.get(key_of(name, row))
            if known is None or (row[1] is not None and (known[1] is None or row[1] > known[1])):
                best[key_of(name, row)] = row
        assert Counter(rows_after(emitted)) == Counter(best.values())


ANSWERS = {
    "SELECT DISTINCT a FROM n": {((1, 2),), ((),), (None,)},
    "SELECT a FROM n INTERSECT SELECT a FROM n WHERE i > 1": {((1, 2),), ((),), (None,)},
    "SELECT a FROM n UNION SELECT ARRAY[9]": {((1, 2),), ((),), (None,), ((9,),)},
    "SELECT COUNT(DISTINCT a), COUNT(DISTINCT m), APPROX_COUNT_DISTINCT(m) FROM n": {(2, 2, 2)},
    "SELECT i, SUM(i) OVER (PARTITION BY m ORDER BY i) FROM n": {(1, 1), (2, 3), (3, 3), (4, 4)},
    "SELECT a, GROUPING(a), COUNT(*) FROM n GROUP BY ROLLUP (a)": {
        *[((1, 2), 0, 2), ((), 0, 1), (None, 0, 1)],
        (None, 1, 4),
    },
    "SELECT m, a, COUNT(*) FROM n GROUP BY m, a HAVING COUNT(*) > 1": {
        (frozenset({("x", 1), ("y", 2)}), (1, 2), 2),
    },
}


@pytest.mark.parametrize("query", ANSWERS)
def test_nested_values_are_distinguished_in_all_operators(query: str) -> None:
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        t_env.execute_sql(
            "CREATE VIEW n AS SELECT * FROM (VALUES (1, ARRAY[1, 2], MAP['x', 1, 'y', 2]), "
            "(2, ARRAY[1, 2], MAP['y', 2, 'x', 1]), (3, ARRAY_REMOVE(ARRAY[1], 1), MAP['x', 2, 'y', 1]), "
            "(4, CAST(NULL AS ARRAY<INT>), CAST(NULL AS MAP<STRING, INT>))) AS v(i, a, m)"
        )
        rows = [tuple(map(hashable, row)) for row in t_env.execute_sql(query).collect()]
    assert len(rows) == len(ANSWERS[query]) and set(rows) == ANSWERS[query]


def test_a_multiset_of_arrays_is_rejected_with_an_alternative() -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    with jobs_in_memory(), pytest.raises(NotYetError, match=r"COLLECT of ARRAY<INT.*ARRAY_AGG"):
        t_env.execute_sql("SELECT COLLECT(a) FROM (VALUES (ARRAY[1])) AS v(a)").print()
