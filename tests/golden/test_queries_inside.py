"""Subqueries in every position of an expression match the batch engine's answer after every epoch."""

from __future__ import annotations

import os
from random import Random

import pytest
from changing_tables import RunPlan, check_every_epoch, random_changelog
from random_queries_inside import random_query_inside

from millstream.common.types import Row

SEEDS = int(os.environ.get("MILLSTREAM_CHANGELOGS", "100")) // 5
FAMILY = os.environ.get("MILLSTREAM_CHANGELOG_FAMILY", "inside")
"""Another name gives other random queries: seeds that were never tried."""

MARKS = (
    "SELECT k, v IN (SELECT v FROM u), v NOT IN (SELECT v FROM u) FROM t",
    "SELECT k, EXISTS (SELECT 1 FROM u), NOT EXISTS (SELECT 1 FROM u WHERE v > 5) FROM t",
    "SELECT k, EXISTS (SELECT 1 FROM u WHERE u.k = t.k) FROM t",
    "SELECT k FROM t WHERE v > 3 OR v IN (SELECT v FROM u)",
    "SELECT k FROM t WHERE NOT (v > 3 AND EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.v > t.v))",
    "SELECT k, CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.k = t.k) THEN 1 WHEN v IN (SELECT k FROM u) THEN 2 ELSE 3 END "
    "FROM t",
    "SELECT k, s IN (SELECT s FROM u WHERE u.k = t.k) AND x > ANY (SELECT x FROM u) FROM t",
    "SELECT k, (k, v) IN (SELECT k, v FROM u) FROM t",
    "SELECT k FROM t WHERE (k, s) IN (SELECT k, s FROM u)",
    "SELECT k FROM t WHERE (k, s) NOT IN (SELECT k, s FROM u)",
    "SELECT k, v, k + (SELECT MIN(v) FROM u) IN (SELECT v FROM u WHERE s = t.s) FROM t",
    "SELECT k, 0 IN (SELECT COUNT(*) FROM u WHERE u.k = t.k), k NOT IN (SELECT MAX(k) FROM u) FROM t",
    "SELECT k FROM t WHERE k NOT IN (SELECT MAX(k) FROM u)",
    "SELECT k FROM t WHERE EXISTS (SELECT COUNT(*) FROM u WHERE u.k = t.k)",
    "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k HAVING COUNT(*) < 2)",
)
QUANTIFIED = (
    "SELECT k, v > ALL (SELECT v FROM u WHERE u.k = t.k), v < SOME (SELECT v FROM u) FROM t",
    "SELECT k, v <> ALL (SELECT v FROM u), v = ALL (SELECT v FROM u WHERE u.k = t.k) FROM t",
    "SELECT k, v <> ANY (SELECT v FROM u WHERE u.k = t.k), s >= ALL (SELECT s FROM u WHERE u.v < t.v) FROM t",
    "SELECT k FROM t WHERE v <= ALL (SELECT v FROM u WHERE u.s = t.s)",
)
VALUES = (
    "SELECT k, (SELECT MAX(v) FROM u WHERE u.k < t.k), (SELECT COUNT(*) FROM u WHERE u.k < t.k) FROM t",
    "SELECT k, (SELECT t.v + MAX(v) FROM u WHERE u.k = t.k), (SELECT MAX(v + t.v) FROM u WHERE u.k < t.k) FROM t",
    "SELECT k, (SELECT DISTINCT k + 1 FROM u WHERE u.k = t.k) FROM t",
    "SELECT k, (SELECT n FROM (SELECT k AS kk, COUNT(*) AS n FROM u GROUP BY k) q WHERE q.kk = t.k) FROM t",
    # A key unknown to the planner: rows are counted, and after an update only the new one is present.
    "SELECT k, (SELECT m FROM (SELECT k + 0 AS kk, MAX(v) AS m FROM u GROUP BY k) q WHERE q.kk = t.k) FROM t",
    "SELECT k, (SELECT n FROM (SELECT COUNT(*) + 0 AS n, k + 0 AS kk FROM u GROUP BY k) q WHERE q.kk = t.k) FROM t",
    "SELECT (SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM u WHERE u.k = t.k) AS q) FROM t",
    "SELECT (SELECT COUNT(*) FROM u WHERE u.k = t.k HAVING COUNT(*) < 2) FROM t",
    "SELECT k, (SELECT SUM(v) FROM (SELECT v FROM u WHERE u.k = t.k UNION ALL SELECT v FROM u WHERE u.v > t.v) q) "
    "FROM t",
    "SELECT k, (SELECT COUNT(*) FROM (SELECT v FROM u WHERE u.k = t.k INTERSECT SELECT v FROM u WHERE u.k < t.v) q) "
    "FROM t",
    "SELECT k, (SELECT COUNT(*) FROM u LEFT JOIN (SELECT k, v FROM u) w ON u.v = w.v AND w.k < t.k) FROM t",
    "SELECT k, (SELECT COUNT(*) FROM u RIGHT JOIN (SELECT k, v FROM u WHERE v > t.v) w ON u.k = w.k) FROM t",
    "SELECT k, (SELECT COUNT(*) + SUM(w.v) FROM u FULL JOIN (SELECT k, v FROM u WHERE v > t.v) w ON u.k = w.k AND "
    "u.v < t.v) FROM t",
    "SELECT k, (SELECT MAX(n) FROM (SELECT ROW_NUMBER() OVER (ORDER BY v NULLS FIRST) AS n FROM u WHERE u.k <> t.k) q) "
    "FROM t",
    "SELECT t.k, n FROM t, LATERAL (SELECT COUNT(*) AS n FROM u WHERE u.k = t.k)",
    "SELECT t.k, l.v FROM t, LATERAL (SELECT v FROM u WHERE u.v > t.k ORDER BY v NULLS LAST LIMIT 2) AS l",
)
CLAUSES = (
    "SELECT k, COUNT(*) FROM t GROUP BY k HAVING COUNT(*) > (SELECT COUNT(*) FROM u WHERE u.k = t.k)",
    "SELECT k, COUNT(*) FROM t GROUP BY k HAVING k IN (SELECT k FROM u) OR SUM(v) IN (SELECT v FROM u)",
    "SELECT k, SUM(v) FROM t GROUP BY k HAVING SUM(v) > ALL (SELECT v FROM u WHERE u.k = t.k)",
    "SELECT k, (SELECT COUNT(*) FROM u WHERE u.k = t.k), SUM(v) FROM t GROUP BY k",
    "SELECT k, SUM(CASE WHEN v IN (SELECT v FROM u) THEN 1 ELSE 0 END), MAX((SELECT MAX(v) FROM u WHERE u.k = t.k)) "
    "FROM t GROUP BY k",
    "SELECT k IN (SELECT k FROM u), COUNT(*) FROM t GROUP BY k IN (SELECT k FROM u)",
    "SELECT SUM(v), EXISTS (SELECT 1 FROM u WHERE u.v > 5) FROM t HAVING COUNT(*) > 0",
    "SELECT t.k, t.v, u.v FROM t JOIN u ON t.k = u.k AND t.v > (SELECT MIN(v) FROM u)",
    "SELECT t.k, u.v FROM t JOIN u ON t.k = u.k OR EXISTS (SELECT 1 FROM u w WHERE w.v = t.v AND w.k = u.k)",
    "SELECT t.k, t.v, u.v FROM t LEFT JOIN u ON t.k = u.k AND u.v IN (SELECT v FROM t)",
    "SELECT t.k, u.v FROM t RIGHT JOIN u ON t.k = u.k AND t.v IN (SELECT w.v FROM t w WHERE w.s = t.s)",
    "SELECT t.k, t.v, u.v FROM t FULL JOIN u ON t.k = u.k AND EXISTS (SELECT 1 FROM u w WHERE w.v = t.v)",
    "SELECT v FROM t ORDER BY (SELECT MAX(u.v) FROM u WHERE u.k = t.k) NULLS LAST, v NULLS LAST LIMIT 3",
    "SELECT k, COUNT(*) FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k OR u.v = t.v) GROUP BY k",
)
NESTED = (
    "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND EXISTS (SELECT 1 FROM u w WHERE w.v = t.v AND "
    "w.k <> u.k))",
    "SELECT k, EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.v NOT IN (SELECT w.v FROM u w WHERE w.k = t.k AND w.v > "
    "u.k)) FROM t",
    "SELECT k, EXISTS (SELECT 1 FROM u WHERE u.v = (SELECT MAX(w.v) FROM u w WHERE w.k = t.k)) FROM t",
    "SELECT k, (SELECT COUNT(*) FROM u WHERE u.v IN (SELECT w.v FROM u w WHERE w.k < t.k)) FROM t",
)


# Correlated columns in the subquery's SELECT: also the slip of a name that only the outer query has.
OUTER_COLUMNS = (
    "SELECT k, v FROM t WHERE x IN (SELECT t.x FROM u)",
    "SELECT k, v FROM t WHERE v NOT IN (SELECT t.v FROM u WHERE u.k = t.k)",
    "SELECT k, (SELECT t.v FROM u WHERE u.k = 1 LIMIT 1) FROM t",
    "SELECT k, v FROM t WHERE EXISTS (SELECT t.v FROM u WHERE t.v = 1)",
    "SELECT k, v FROM t WHERE v IN (SELECT u.v + t.k FROM u)",
    "SELECT t.k, l.a, l.b FROM t, LATERAL (SELECT t.v AS a, u.v AS b FROM u WHERE u.k = t.k) AS l",
    "SELECT t.k, l.a FROM t LEFT JOIN LATERAL (SELECT t.v + u.v AS a FROM u WHERE u.k < t.k) AS l ON l.a > 0",
)
# LATERAL rows whose arguments, conditions or neighbouring subqueries name outer columns.
MADE_OF_OUTER_ROWS = (
    "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM UNNEST(ARRAY[t.k, 2]) AS q(e) WHERE q.e > 1)",
    "SELECT k, (SELECT SUM(q.e) FROM UNNEST(ARRAY[t.k, 2]) AS q(e) WHERE q.e < t.v) FROM t",
    "SELECT k, (SELECT COUNT(*) FROM u, UNNEST(ARRAY[t.k, u.k]) AS q(e) WHERE q.e = u.v OR u.s = t.s) FROM t",
    "SELECT k, EXISTS (SELECT 1 FROM u LEFT JOIN UNNEST(ARRAY[u.k, 2]) AS q(e) ON q.e > t.k WHERE q.e IS NULL) FROM t",
    "SELECT k, (SELECT COUNT(*) FROM (SELECT k FROM u WHERE u.v > t.v) b LEFT JOIN UNNEST(ARRAY[b.k, 2]) AS q(e) ON "
    "q.e > b.k) FROM t",
    "SELECT k, (SELECT COUNT(*) FROM u, LATERAL (SELECT w.v FROM u w WHERE w.k = t.k AND w.v > u.v) l) FROM t",
    "SELECT k, EXISTS (SELECT 1 FROM u LEFT JOIN LATERAL (SELECT w.v FROM u w WHERE w.k = u.k) l ON l.v > t.v WHERE "
    "l.v IS NULL AND u.k = t.k) FROM t",
    "SELECT k, (SELECT t.v WHERE t.v > 1), v IN (SELECT t.k UNION ALL SELECT 3) FROM t",
)


# USING and NATURAL with LATERAL rows; DuckDB's UNNEST does not support USING.
USING = {
    "SELECT k, t.v, l.x FROM t JOIN LATERAL (SELECT k, x FROM u WHERE u.v > t.v) l USING (k)": "",
    "SELECT k, t.v, l.x FROM t LEFT JOIN LATERAL (SELECT u.k, u.x FROM u WHERE u.v > t.v) l USING (k)": "",
    "SELECT k, v, y FROM t NATURAL JOIN LATERAL (SELECT u.k, u.v, u.x + t.x AS y FROM u) l": "",
    "SELECT k, s FROM t JOIN UNNEST(ARRAY[1, 2]) AS q(k) USING (k)": "SELECT k, s FROM t WHERE k IN (1, 2)",
    "SELECT * FROM (SELECT s, k FROM t) t NATURAL LEFT JOIN UNNEST(ARRAY[1, 2]) AS q(k)": "SELECT k, s FROM t",
}


@pytest.mark.parametrize("query", USING)
def test_using_joins_lateral_rows(query: str) -> None:
    _check(Random(query), query, only_grows=False, oracle=USING[query] or None)


@pytest.mark.parametrize(
    "query", [*MARKS, *QUANTIFIED, *VALUES, *CLAUSES, *NESTED, *OUTER_COLUMNS, *MADE_OF_OUTER_ROWS]
)
def test_a_subquery_matches_the_batch_answer_after_every_epoch(query: str) -> None:
    _check(Random(query), query, only_grows=False)


@pytest.mark.parametrize("tens", range((SEEDS + 9) // 10))
def test_random_subqueries_match_the_batch_answer_after_every_epoch(tens: int) -> None:
    for seed in range(10 * tens, min(SEEDS, 10 * tens + 10)):
        random = Random(f"{FAMILY} {seed}")
        _check(random, random_query_inside(random), random.random() < 0.3)


def _check(random: Random, query: str, only_grows: bool, oracle: str | None = None) -> None:
    size = random.choice((2, 6, 10))
    tables = {name: random_changelog(random, 3, size, only_grows=only_grows, both_zeros=True) for name in ("t", "u")}
    # For no rows a global aggregate emits a row in batch engines, and none in a stream.
    tables["t"].epochs[0].append(Row(1, 1, "a", 0.5))
    check_every_epoch(query, tables, RunPlan.random(random, 3), only_grows=only_grows, oracle=oracle)
