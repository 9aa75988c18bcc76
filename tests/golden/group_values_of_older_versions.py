"""Queries whose groups store values, over changes that are the same in every version: one half runs in an earlier
version (`tests/compatibility/make_group_values.py`), the rest in this one.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from changing_tables import _add_query, random_changelog

from millstream.testing import Collect, run

__all__ = ["EPOCHS_BEFORE", "GROWING_TABLE", "GROWS", "QUERIES", "TABLE", "run_query"]

QUERIES = {
    1: "SELECT k, MIN(v), MAX(s), MAX(x), COUNT(DISTINCT v), COUNT(*) FROM t GROUP BY k",
    # By a version that spilled only values of counts; no group was large enough.
    2: "SELECT k, SUM(DISTINCT v), FIRST_VALUE(v), COUNT(DISTINCT v), AVG(DISTINCT x), MIN(v), COUNT(DISTINCT s) "
    "FROM t GROUP BY k",
    # From here on values spilled at four: those of counts have rows of their own. Of x there was no spilled-value
    # count:
    # all values were in the group's row.
    3: "SELECT k, COUNT(DISTINCT x), COUNT(DISTINCT v), COUNT(DISTINCT x > 0), COUNT(DISTINCT s) FROM t GROUP BY k",
    # Likewise; a MIN had no spilled-value count, so later columns have other positions now.
    4: "SELECT k, MIN(v), COUNT(DISTINCT v) FROM t GROUP BY k",
}
QUERIES[5] = QUERIES[2]
# Of an append-only table: each aggregate had rows of its own, also several of one argument.
GROWS = 6
QUERIES[GROWS] = """SELECT k, COUNT(DISTINCT v), MAX(v), COUNT(DISTINCT v) FILTER (WHERE x > 0), SUM(DISTINCT v),
    COUNT(*), COUNT(DISTINCT s), AVG(DISTINCT x), COUNT(DISTINCT x) FILTER (WHERE v > 0),
    COUNT(DISTINCT s) FILTER (WHERE v > 0), COUNT(DISTINCT v > 0), SUM(DISTINCT CAST(v AS DECIMAL(20, 2))),
    COUNT(DISTINCT CAST(v AS SMALLINT)) FROM t GROUP BY k"""
TABLE = random_changelog(Random("group values of yesterday"), 6, 30, only_grows=False, keys=2)
GROWING_TABLE = random_changelog(Random("group values of yesterday"), 6, 30, only_grows=True, keys=3)
EPOCHS_BEFORE = {1: 2, 2: 2, 3: 4, 4: 4, 5: 4, GROWS: 4}


def run_query(number: int, store: str, out: Collect, epochs: int | None = None, query: str | None = None) -> Any:
    """Run a query from the store's current state; `query` replaces it."""
    table = GROWING_TABLE if number == GROWS else TABLE
    build = partial(_add_query, query or QUERIES[number], {"t": table.script()}, out, number == GROWS)
    return run(build, parallelism=2, epochs=epochs, store=store)
