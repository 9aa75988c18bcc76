"""Operators that forget by the clock: what they give is a changelog, whatever is forgotten, and whenever.

Tables grow and change in epochs cut anywhere, the clock goes on between them, and some epochs begin with new operators
that know nothing but what was written.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from one_task import QueryPlan, QueryTask

from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.runtime.tables.references.forgetting import ForgettingJoin

TYPE = Types.ROW_NAMED(["k", "v"], [Types.INT(), Types.LONG()])
ADDED = (RowKind.INSERT, RowKind.UPDATE_AFTER)
TTL_MS = 1_000
PAUSES_MS = (0, 1, 400, 600, 999, 1_000, 1_500)
Changes = list[tuple[RowKind, tuple[Any, ...]]]
CHANGELOGS = int(os.environ.get("MILLSTREAM_CHANGELOGS", "6"))
EXAMPLES = settings(max_examples=5 * CHANGELOGS, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def histories(draw: st.DrawFn, *, only_grows: bool = False) -> list[tuple[int, bool, dict[str, Changes]]]:
    """Epochs: how long the clock goes on before each, whether operators are opened anew, and what changes of both
    tables. Only what was added is taken away."""
    live: dict[str, list[tuple[Any, ...]]] = {"t": [], "u": []}
    epochs = []
    for _ in range(draw(st.integers(1, 7))):
        changes: dict[str, Changes] = {"t": [], "u": []}
        for table in draw(st.lists(st.sampled_from(["t", "u"]), max_size=5)):
            rows = live[table]
            if rows and not only_grows and draw(st.integers(0, 2)) == 0:
                changes[table].append((RowKind.DELETE, rows.pop(draw(st.integers(0, len(rows) - 1)))))
            else:
                key = draw(st.sampled_from([0, 0, 0, 1, 1, None]))
                rows.append((key, draw(st.integers(0, 2))))
                changes[table].append((RowKind.INSERT, rows[-1]))
        epochs.append((draw(st.sampled_from(PAUSES_MS)), draw(st.booleans()), changes))
    return epochs


def as_rows(changes: Changes) -> list[Row]:
    rows = []
    for kind, values in changes:
        rows.append(Row(*values))
        rows[-1].set_row_kind(kind)
    return rows


class Given:
    """What a query has given so far, as a table: whatever is taken away must be in it."""

    def __init__(self) -> None:
        self.table: Counter[tuple[Any, ...]] = Counter()

    def follow(self, rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
        """Take changes in, in their order; what they come to."""
        net: Counter[tuple[Any, ...]] = Counter()
        for row in rows:
            sign = 1 if row.get_row_kind() in ADDED else -1
            self.table[tuple(row)] += sign
            net[tuple(row)] += sign
            assert self.table[tuple(row)] >= 0, f"{row} goes, and is not there"
        return Counter({row: count for row, count in net.items() if count})


@cache
def plan_of(query: str, ttl: str | None = "1 s", only_grows: bool = False) -> QueryPlan:
    tables = [name for name in ("t", "u") if f" {name} " in f"{query} "]
    return QueryPlan(query, tables, TYPE, only_grows=only_grows, ttl=ttl)


def run_epochs(plan: QueryPlan, epochs: Any) -> Iterable[tuple[int, dict[str, Changes], list[Row]]]:
    """When each epoch is, what comes in it, and what the query gives."""
    task, now_ms = QueryTask(plan), 10_000
    for pause_ms, is_reopened, changes in epochs:
        now_ms += pause_ms
        come = {name: as_rows(changes[name]) for name in plan.tables.values()}
        yield now_ms, changes, task.run(come, reopened=is_reopened, now_ms=now_ms)


def join_query(kind: str, hint: str = "", right: str = "u") -> str:
    if kind in ("SEMI", "ANTI"):
        negation = "NOT " * (kind == "ANTI")
        return f"SELECT * FROM t WHERE {negation}EXISTS (SELECT 1 FROM u WHERE t.k = u.k AND t.v <= u.v)"
    return f"SELECT {hint} * FROM t {kind} JOIN {right} ON t.k = u.k AND t.v <= u.v"


JOINS = ["INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI"]
HINTS = {
    (TTL_MS, TTL_MS): "",
    (TTL_MS, None): "/*+ STATE_TTL('u' = '0') */",
    (None, TTL_MS): "/*+ STATE_TTL('t' = '0') */",
    (TTL_MS, 400): "/*+ STATE_TTL('u' = '400 ms') */",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", JOINS)
@EXAMPLES
@given(data=st.data())
def test_a_join_that_forgets_gives_what_its_reference_gives_and_takes_away_only_what_was_given(
    kind: str, data: st.DataObject
) -> None:
    ttl_ms = data.draw(st.sampled_from(list(HINTS))) if kind not in ("SEMI", "ANTI") else (TTL_MS, TTL_MS)
    only_grows = data.draw(st.booleans())
    reference, given_rows = ForgettingJoin(kind, ttl_ms, (2, 2), lambda a, b: a[1] <= b[1]), Given()
    plan = plan_of(join_query(kind, HINTS[ttl_ms]), only_grows=only_grows)
    for now_ms, changes, rows in run_epochs(plan, data.draw(histories(only_grows=only_grows))):
        assert given_rows.follow(rows) == reference.apply((changes["t"], changes["u"]), now_ms)
