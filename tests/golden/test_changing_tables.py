"""A query over tables that change is, after every epoch, what a batch engine says of all that was read."""

from __future__ import annotations

from random import Random

import pytest
from changing_tables import check_every_epoch, random_changelog

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
def test_groups_are_the_batch_answer_after_every_epoch(query: str, only_grows: bool) -> None:
    for seed in range(4):
        random = Random(f"{query} {seed}")
        table = random_changelog(random, 5, random.choice((3, 12, 40)), only_grows=only_grows)
        crashes = [random.randrange(5)] if seed % 2 else []
        check_every_epoch(query, {"t": table}, parallelism=seed % 3 + 1, crashes=crashes, only_grows=only_grows)
