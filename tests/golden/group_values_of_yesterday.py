"""A query whose groups keep values of rows that may go, over changes that are the same in every version: half of it is
run by an earlier one (`tests/compatibility/make_group_values.py`), the rest by this."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from changing_tables import _add_query, random_changelog

from millstream.testing import Collect, run

__all__ = ["EPOCHS_BEFORE", "QUERY", "TABLE", "run_query"]

QUERY = "SELECT k, MIN(v), MAX(s), MAX(x), COUNT(DISTINCT v), COUNT(*) FROM t GROUP BY k"
TABLE = random_changelog(Random("group values of yesterday"), 6, 30, only_grows=False, keys=2)
EPOCHS_BEFORE = 2


def run_query(store: str, out: Collect, epochs: int | None = None) -> Any:
    """Run the query, from where the store is."""
    build = partial(_add_query, QUERY, {"t": TABLE.script()}, out, False)
    return run(build, parallelism=2, epochs=epochs, store=store)
