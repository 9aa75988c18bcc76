"""Queries whose groups keep values of rows that may go, over changes that are the same in every version: half of one is
run by an earlier version (`tests/compatibility/make_group_values.py`), the rest by this."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from changing_tables import _add_query, random_changelog

from millstream.testing import Collect, run

__all__ = ["EPOCHS_BEFORE", "QUERIES", "TABLE", "run_query"]

QUERIES = {
    1: "SELECT k, MIN(v), MAX(s), MAX(x), COUNT(DISTINCT v), COUNT(*) FROM t GROUP BY k",
    # By a version that had rows of their own for values of counts only; no group was large enough.
    2: "SELECT k, SUM(DISTINCT v), FIRST_VALUE(v), COUNT(DISTINCT v), AVG(DISTINCT x), MIN(v), COUNT(DISTINCT s) "
    "FROM t GROUP BY k",
    # From here on values moved at four: those of counts have rows of their own. Of x there was no number of values that
    # are elsewhere: all were in the group's row.
    3: "SELECT k, COUNT(DISTINCT x), COUNT(DISTINCT v), COUNT(DISTINCT x > 0), COUNT(DISTINCT s) FROM t GROUP BY k",
    # Likewise; a MIN had no number of values elsewhere, so what is behind it has another place now.
    4: "SELECT k, MIN(v), COUNT(DISTINCT v) FROM t GROUP BY k",
}
QUERIES[5] = QUERIES[2]
TABLE = random_changelog(Random("group values of yesterday"), 6, 30, only_grows=False, keys=2)
EPOCHS_BEFORE = {1: 2, 2: 2, 3: 4, 4: 4, 5: 4}


def run_query(number: int, store: str, out: Collect, epochs: int | None = None) -> Any:
    """Run a query, from where the store is."""
    build = partial(_add_query, QUERIES[number], {"t": TABLE.script()}, out, False)
    return run(build, parallelism=2, epochs=epochs, store=store)
