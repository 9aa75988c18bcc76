"""After every epoch a query over changing tables equals a batch engine's answer over the rows read so far."""

from __future__ import annotations

import os
import re
from random import Random
from typing import Any

import pytest
from changing_tables import RunPlan, check_every_epoch, check_timed_query, random_changelog
from first_values import FirstValues
from random_queries import random_query
from timed_tables import random_tables
from timed_views import random_view

from millstream.common.types import Row

SEEDS = int(os.environ.get("MILLSTREAM_CHANGELOGS", "100"))
"""How many random queries are tried; `make chaos` takes more. The queries of this file have a hundredth each."""
CHANGELOGS = range(max(1, SEEDS // 100))
FAMILY = os.environ.get("MILLSTREAM_CHANGELOG_FAMILY", "query")
"""Another name gives other random queries: seeds that were never tried."""
TABLES = ("t", "u", "w")
FIRSTS = "f"
"""A view of first and last values of the first table."""
FEW = {
    "tables.spilled_values.VALUES_IN_ROW_MAX": 1,
    "tables.group_aggregate._GATHERED_BYTES": 100,
    "tables.group_aggregate._BATCH_ROWS_MAX": 3,
    "tables.group_aggregate._UNSORTED_GROUPS_MAX": 1,
    "tables.changes._BATCH_ROWS_MAX": 3,
    "tables.stored_table._GATHERED_BYTES_MAX": 200,
    "joins.matching.PAIRS_MAX": 4,
}

GROUPS = (
    "SELECT k, COUNT(*) FROM t GROUP BY k",
    "SELECT k, COUNT(v), SUM(v), MIN(v), MAX(v) FROM t GROUP BY k",
    "SELECT k, s, SUM(x), MIN(s), MAX(x) FROM t GROUP BY k, s",
    "SELECT COUNT(*) FILTER (WHERE v > 0), COUNT(DISTINCT s), SUM(DISTINCT v) FROM t GROUP BY k",
    "SELECT s, COUNT(*) FROM t WHERE v > 0 GROUP BY s HAVING COUNT(*) > 1",
    "SELECT DISTINCT k, s FROM t",
    "SELECT n, COUNT(*), MIN(k), MAX(k), SUM(k) FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) q GROUP BY n",
    "SELECT MAX(n), COUNT(DISTINCT n) FROM (SELECT k, s, COUNT(*) AS n FROM t GROUP BY k, s) q GROUP BY k",
    "SELECT k FROM t UNION SELECT CAST(v AS INTEGER) FROM t",
    "SELECT k, v FROM t UNION ALL SELECT k, COUNT(*) FROM t GROUP BY k",
    "SELECT k + 1, -SUM(v) FROM t GROUP BY k",
)


@pytest.mark.parametrize("only_grows", [True, False], ids=["only-grows", "changes"])
@pytest.mark.parametrize("query", GROUPS)
def test_groups_match_the_batch_answer_after_every_epoch(query: str, only_grows: bool) -> None:
    for seed in CHANGELOGS:
        random = Random(f"{query} {only_grows} {seed}")
        table = random_changelog(random, 3, random.choice((3, 12, 30)), only_grows=only_grows, both_zeros=True)
        check_every_epoch(query, {"t": table}, RunPlan.random(random, 3), only_grows=only_grows)


JOINS = (
    "SELECT t.k, t.v, u.s FROM t JOIN u ON t.k = u.k",
    "SELECT t.k, t.v, u.s FROM t LEFT JOIN u ON t.k = u.k",
    "SELECT t.k, t.v, u.k, u.s FROM t RIGHT JOIN u ON t.k = u.k AND t.s = u.s",
    "SELECT t.k, t.s, u.k, u.x FROM t FULL JOIN u ON t.k = u.k AND t.v < u.v",
    "SELECT t.k, u.k FROM t LEFT JOIN u ON t.k = u.k AND t.v > 0 AND u.v > 0",
    "SELECT a.k, b.v FROM t a JOIN t b ON a.v = b.v WHERE a.k > b.k",
    "SELECT t.k, COUNT(*), SUM(u.v) FROM t, u WHERE t.k = u.k GROUP BY t.k",
    "SELECT q.k, q.n, u.s FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) q LEFT JOIN u ON q.k = u.k",
    "SELECT t.k, u.v, w.s FROM t JOIN u ON t.k = u.k LEFT JOIN t w ON u.v = w.v",
    "SELECT t.v, u.v FROM t JOIN u ON t.v > u.v",
    "SELECT t.k, t.v, u.s FROM t JOIN u ON t.k IS NOT DISTINCT FROM u.k AND t.v < u.v",
    "SELECT t.k, t.s, u.k, u.x FROM t FULL JOIN u ON t.s IS NOT DISTINCT FROM u.s AND u.x IS NOT DISTINCT FROM t.x",
)


@pytest.mark.parametrize("only_grows", [True, False], ids=["only-grows", "changes"])
@pytest.mark.parametrize("query", JOINS)
def test_joins_match_the_batch_answer_after_every_epoch(query: str, only_grows: bool) -> None:
    for seed in CHANGELOGS:
        random = Random(f"{query} {only_grows} {seed}")
        size = random.choice((2, 6, 16))
        tables = {
            name: random_changelog(random, 3, size, only_grows=only_grows, both_zeros=True) for name in ("t", "u")
        }
        check_every_epoch(query, tables, RunPlan.random(random, 3), only_grows=only_grows)


ORDER = "v DESC NULLS LAST, s NULLS FIRST, x NULLS LAST"
NUMBERED = f"SELECT k, v, s, x, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {ORDER}) AS n FROM t"
RANKS = (
    f"SELECT k, v, s, x, n FROM ({NUMBERED}) q WHERE n <= 3",
    f"SELECT k, v, s, x FROM ({NUMBERED}) q WHERE n <= 2",
    f"SELECT k, v, s, x FROM ({NUMBERED}) q WHERE n = 1",
    f"SELECT k, v, s, n FROM ({NUMBERED}) q WHERE n BETWEEN 2 AND 3 AND v > 0",
    f"SELECT k, v, s, x FROM t QUALIFY RANK() OVER (PARTITION BY k ORDER BY {ORDER}) <= 2",
    "SELECT k, v, r FROM (SELECT k, v, DENSE_RANK() OVER (PARTITION BY k ORDER BY v NULLS LAST) AS r FROM t) q "
    "WHERE r < 3",
    f"SELECT k, v, s, x FROM t ORDER BY {ORDER}, k NULLS FIRST LIMIT 4",
    f"SELECT k, SUM(v) FROM ({NUMBERED}) q WHERE n <= 2 GROUP BY k",
    "SELECT s, c, ROW_NUMBER() OVER (ORDER BY c DESC, s NULLS FIRST) AS n "
    "FROM (SELECT s, COUNT(*) AS c FROM t GROUP BY s) q QUALIFY n <= 2",
)


@pytest.mark.parametrize("only_grows", [True, False], ids=["only-grows", "changes"])
@pytest.mark.parametrize("query", RANKS)
def test_top_n_matches_the_batch_answer_after_every_epoch(query: str, only_grows: bool) -> None:
    for seed in CHANGELOGS:
        random = Random(f"{query} {only_grows} {seed}")
        table = random_changelog(random, 3, random.choice((3, 12, 30)), only_grows=only_grows, both_zeros=True)
        check_every_epoch(query, {"t": table}, RunPlan.random(random, 3), only_grows=only_grows)


# Of rows that tie in the order any may be first, but only emitted rows may be retracted. Compared are the columns
# that all tied rows have in common.
EQUALS = "(SELECT k, MOD(v, 2) AS v, s, x FROM t) q"
EQUAL_ORDER = "(PARTITION BY k ORDER BY v NULLS FIRST)"
EQUAL_ROWS = f"SELECT k, v, s, x, {{}}() OVER {EQUAL_ORDER} AS n FROM {EQUALS}"
TIES: tuple[tuple[str, tuple[int, ...]], ...] = (
    (f"SELECT k, v, s, x, n FROM ({EQUAL_ROWS.format('ROW_NUMBER')}) r WHERE n BETWEEN 2 AND 4", (0, 1, 4)),
    (f"SELECT k, v, s, x FROM ({EQUAL_ROWS.format('ROW_NUMBER')}) r WHERE n <= 2", (0, 1)),
    (f"SELECT k, v, s, x FROM ({EQUAL_ROWS.format('ROW_NUMBER')}) r WHERE n = 1", (0, 1)),
    (f"SELECT k, v, s, x, n FROM ({EQUAL_ROWS.format('RANK')}) r WHERE n BETWEEN 2 AND 4", (0, 1, 2, 3, 4)),
    (f"SELECT k, v, s, x, n FROM ({EQUAL_ROWS.format('DENSE_RANK')}) r WHERE n = 2", (0, 1, 2, 3, 4)),
    (f"SELECT k, v, s, x FROM {EQUALS} ORDER BY v NULLS FIRST LIMIT 3 OFFSET 2", (1,)),
    (f"SELECT COUNT(*) FROM (SELECT k, s FROM {EQUALS} LIMIT 3 OFFSET 1) r HAVING COUNT(*) > 0", (0,)),
    (
        f"SELECT k, v, s, x, LAG(v) OVER w, ROW_NUMBER() OVER w, LAG(s) OVER w, LEAD(x) OVER w FROM {EQUALS} "
        f"WINDOW w AS {EQUAL_ORDER}",
        (0, 1, 4, 5),
    ),
    (
        f"SELECT k, v, s, x, COUNT(*) OVER w, MAX(s) OVER w FROM {EQUALS} "
        "WINDOW w AS (PARTITION BY k ORDER BY v NULLS FIRST ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
        (0, 1, 4),
    ),
)


@pytest.mark.parametrize("only_grows", [True, False], ids=["only-grows", "changes"])
@pytest.mark.parametrize(("query", "columns"), TIES)
def test_only_emitted_rows_are_retracted_among_ties(query: str, columns: tuple[int, ...], only_grows: bool) -> None:
    for seed in CHANGELOGS:
        random = Random(f"{query} {only_grows} {seed}")
        table = random_changelog(random, 5, random.choice((6, 20)), only_grows=only_grows, keys=2)

        def comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(row[at] for at in columns)

        check_every_epoch(query, {"t": table}, RunPlan.random(random, 5), only_grows=only_grows, comparable=comparable)


# A total order up to identical rows: frames of ROWS are then deterministic.
WHOLE = "v NULLS FIRST, s NULLS LAST, x DESC NULLS LAST"
AROUND = f"PARTITION BY k ORDER BY {WHOLE} ROWS BETWEEN 3 PRECEDING AND CURRENT ROW"
OVERS = (
    "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY v NULLS FIRST), COUNT(*) OVER (PARTITION BY k ORDER BY v "
    "NULLS FIRST) FROM t",
    f"SELECT k, v, s, x, SUM(x) OVER w, MIN(v) OVER w, MAX(s) OVER w, COUNT(v) OVER w FROM t WINDOW w AS ({AROUND})",
    "SELECT k, v, COUNT(*) OVER w, SUM(v) OVER w, MIN(x) OVER w FROM t "
    "WINDOW w AS (PARTITION BY k ORDER BY v DESC NULLS LAST RANGE BETWEEN 3 PRECEDING AND CURRENT ROW)",
    "SELECT k, v, SUM(v) OVER w, COUNT(DISTINCT s) OVER w FROM t "
    "WINDOW w AS (PARTITION BY k ORDER BY v NULLS FIRST RANGE BETWEEN 4 PRECEDING AND 2 FOLLOWING)",
    "SELECT k, v, COUNT(DISTINCT s) OVER w, SUM(v) FILTER (WHERE x > 0) OVER w FROM t "
    "WINDOW w AS (PARTITION BY k ORDER BY v NULLS FIRST)",
    "SELECT s, v, SUM(v) OVER (PARTITION BY s), MAX(x) OVER (PARTITION BY s) FROM t",
    f"SELECT k, v, s, x, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {WHOLE}), RANK() OVER (PARTITION BY k ORDER BY "
    f"{WHOLE}), DENSE_RANK() OVER (PARTITION BY k ORDER BY {WHOLE}) FROM t",
    f"SELECT k, v, s, x, LAG(v) OVER (PARTITION BY k ORDER BY {WHOLE}), LEAD(s, 2, 'none') OVER (PARTITION BY k "
    f"ORDER BY {WHOLE}) FROM t",
    "SELECT v, PERCENT_RANK() OVER w, CUME_DIST() OVER w FROM t WINDOW w AS (ORDER BY v NULLS FIRST)",
    f"SELECT k, v, s, x, NTILE(3) OVER (PARTITION BY k ORDER BY {WHOLE}) FROM t",
    f"SELECT k, v, s, x, COUNT(v) OVER (PARTITION BY k ORDER BY {WHOLE} ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING), "
    f"SUM(v) OVER (PARTITION BY k ORDER BY {WHOLE} ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) FROM t",
    f"SELECT k, v, s, x, SUM(v) OVER (PARTITION BY k ORDER BY {WHOLE} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 "
    "PRECEDING) FROM t",
    "SELECT k, n, SUM(n) OVER (ORDER BY k NULLS FIRST ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) "
    "FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) q",
    "SELECT m, COUNT(*) FROM (SELECT MAX(v) OVER (PARTITION BY k ORDER BY x NULLS FIRST) AS m FROM t) q GROUP BY m",
)


@pytest.mark.parametrize("only_grows", [True, False], ids=["only-grows", "changes"])
@pytest.mark.parametrize("query", OVERS)
def test_over_windows_match_the_batch_answer_after_every_epoch(query: str, only_grows: bool) -> None:
    for seed in CHANGELOGS:
        random = Random(f"{query} {only_grows} {seed}")
        table = random_changelog(random, 5, random.choice((3, 12, 30)), only_grows=only_grows, both_zeros=True)
        check_every_epoch(query, {"t": table}, RunPlan.random(random, 5), only_grows=only_grows)


UNIQUE = "v NULLS LAST, s NULLS FIRST, x NULLS LAST"
INNER_QUERIES = (
    "SELECT k, v FROM t WHERE k IN (SELECT k FROM u)",
    "SELECT k, v FROM t WHERE v > 0 AND k NOT IN (SELECT v FROM u)",
    "SELECT k, v FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.v < t.v)",
    "SELECT k, v FROM t WHERE NOT EXISTS (SELECT v FROM u WHERE u.k = t.k AND u.s <> 'a')",
    "SELECT k, v FROM t WHERE NOT EXISTS (SELECT v FROM u WHERE u.k IS NOT DISTINCT FROM t.k AND u.s = t.s)",
    "SELECT k, (SELECT COUNT(*) FROM u WHERE u.k IS NOT DISTINCT FROM t.k), (SELECT MAX(v) FROM u WHERE t.s IS NOT "
    "DISTINCT FROM u.s) FROM t",
    # A name resolves to a table of the outer query before a column of the subquery.
    "SELECT k, v FROM t WHERE EXISTS (SELECT 1 FROM (SELECT k, v AS t FROM u) q WHERE q.k = t.k AND q.t < t.v)",
    "SELECT k, v FROM t WHERE v > (SELECT MIN(v) FROM u)",
    "SELECT k, (SELECT MAX(v) FROM u WHERE u.k = t.k), (SELECT COUNT(*) FROM u WHERE u.k = t.k) FROM t",
    "SELECT k, (SELECT COALESCE(SUM(v), 0) + COUNT(*) FROM u WHERE u.k = t.k), (SELECT COUNT(*) + 1 FROM u) FROM t",
    "SELECT k, v FROM t WHERE v > (SELECT CASE WHEN COUNT(*) > 1 THEN MAX(v) ELSE -1 END FROM u WHERE u.k = t.k)",
    # Several inner values equal one outer value.
    "SELECT k, (SELECT MAX(v) FROM u WHERE ABS(u.v) = t.v), (SELECT COUNT(*) FROM u WHERE u.k - u.v = t.v) FROM t",
    f"SELECT k, (SELECT s FROM u WHERE u.k = t.k ORDER BY {UNIQUE} LIMIT 1) FROM t",
    # An aggregate without GROUP BY emits one row for no input.
    "SELECT k, (SELECT COUNT(*) + 1 FROM u WHERE u.k = t.v), (SELECT COALESCE(MAX(v), 0) FROM u WHERE u.v = t.v) "
    "FROM t",
    "SELECT k, (SELECT CHAR_LENGTH(JSON_ARRAYAGG(v)) FROM u WHERE u.k = t.v), (SELECT JSON_ARRAYAGG(v) FROM u WHERE "
    "u.v > 99) FROM t",
    "SELECT k, v FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.v HAVING COUNT(*) > 1)",
    f"SELECT t.k, t.v, f.v, f.s FROM t, LATERAL (SELECT v, s FROM u WHERE u.k = t.k ORDER BY {UNIQUE} LIMIT 2) f",
    "SELECT t.k, f.a, f.b FROM t LEFT JOIN LATERAL (SELECT v, s FROM u WHERE u.k = t.k AND u.v < t.v) AS f (a, b) "
    "ON f.b <> 'a'",
    "SELECT t.k, f.s, f.n FROM t CROSS JOIN LATERAL (SELECT s, COUNT(*) AS n FROM u WHERE u.k + 1 = t.k GROUP BY s) f",
    "SELECT k, s FROM t INTERSECT SELECT k, s FROM u",
    "SELECT k, s FROM t EXCEPT SELECT k, s FROM u",
    "SELECT k FROM t INTERSECT ALL SELECT k FROM u",
    "SELECT k FROM t EXCEPT ALL SELECT k FROM u",
    "SELECT k, s, COUNT(*), SUM(v) FROM t GROUP BY ROLLUP (k, s) HAVING COUNT(*) > 0",
    "SELECT k, s, MIN(v) FROM t GROUP BY GROUPING SETS ((k, s), (k), (s))",
    "SELECT k, GROUPING(k), GROUPING_ID(s, k), COUNT(*) FROM t GROUP BY CUBE (k, s)",
)


@pytest.mark.parametrize("only_grows", [True, False], ids=["only-grows", "changes"])
@pytest.mark.parametrize("query", INNER_QUERIES)
def test_subqueries_match_the_batch_answer_after_every_epoch(query: str, only_grows: bool) -> None:
    for seed in CHANGELOGS:
        random = Random(f"{query} {only_grows} {seed}")
        size = random.choice((2, 6, 16))
        tables = {
            name: random_changelog(random, 3, size, only_grows=only_grows, both_zeros=True) for name in ("t", "u")
        }
        # For no rows, ROLLUP emits a row in batch engines, and none in a stream.
        tables["t"].epochs[0].append(_first())
        check_every_epoch(query, tables, RunPlan.random(random, 3), only_grows=only_grows)


@pytest.mark.parametrize("tens", range((SEEDS + 9) // 10))
def test_random_queries_match_the_batch_answer_after_every_epoch(tens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every other run lowers the thresholds, so that paths for many rows are taken with few.
    for constant, few in FEW.items() if tens % 2 else ():
        monkeypatch.setattr(f"millstream.runtime.{constant}", few)
    for seed in range(10 * tens, min(SEEDS, 10 * tens + 10)):
        check = check_query_over_times if seed % 5 == 4 else check_random_query
        check(Random(f"{FAMILY} {seed}"))


def check_random_query(random: Random) -> None:
    query, only_grows = random_query(random, (*TABLES, FIRSTS)), random.random() < 0.3
    views = {FIRSTS: FirstValues.random(random, "t")} if is_named(FIRSTS, query.text) else {}
    size = random.choice((2, 5, 10))
    named = [name for name in TABLES if is_named(name, query.text) or (views and name == "t")]
    tables = {name: random_changelog(random, 3, size, only_grows=only_grows, keys=3, both_zeros=True) for name in named}
    life = RunPlan.random(random, 3)
    check_every_epoch(query.text, tables, life, only_grows=only_grows, views=views, comparable=query.comparable)


def check_query_over_times(random: Random) -> None:
    """A query over event-time views: time joins, windows, sessions, OVER."""
    views = {name: random_view(random) for name in ("a", "b")}
    query = random_query(random, tuple(views))
    named = {name: view for name, view in views.items() if is_named(name, query.text)}
    tables = random_tables(random, 4, 6, late=all(view.takes_late for view in named.values()))
    tables["t"].crashes = tuple(random.sample(range(4), random.choice((0, 0, 1))))
    check_timed_query(query.text, named, tables, RunPlan.random(random, 4), query.comparable)


def is_named(table: str, query: str) -> bool:
    return re.search(rf"FROM {table}\b", query) is not None


def _first() -> Row:
    return Row(1, 1, "a", 0.5)
