"""Operators with a state TTL: their output is a valid changelog whatever expires, and whenever.

Tables grow and change in epochs cut anywhere, the clock advances between them, and some epochs begin with new operators
restored from the stored state.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from programs.one_task import QueryPlan, QueryTask

from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.runtime.tables.references.expiry import ExpiringJoin, ExpiringRows

TYPE = Types.ROW_NAMED(["k", "v"], [Types.INT(), Types.LONG()])
ADDED = (RowKind.INSERT, RowKind.UPDATE_AFTER)
TTL_MS = 1_000
PAUSES_MS = (0, 1, 400, 600, 999, 1_000, 1_500)
Changes = list[tuple[RowKind, tuple[Any, ...]]]
CHANGELOGS = int(os.environ.get("MILLSTREAM_CHANGELOGS", "6"))
EXAMPLES = settings(max_examples=5 * CHANGELOGS, deadline=None, suppress_health_check=list(HealthCheck))
FEW_EXAMPLES = settings(EXAMPLES, max_examples=2 * CHANGELOGS)


@st.composite
def histories(draw: st.DrawFn, *, only_grows: bool = False) -> list[tuple[int, bool, dict[str, Changes]]]:
    """Epochs: how far the clock advances before each, whether operators are opened anew, and the changes of both
    tables. Only existing rows are deleted.
    """
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


def changes_of(*epochs: tuple[int, str, str]) -> list[tuple[int, bool, dict[str, Changes]]]:
    """Epochs in which the row (0, 0) is inserted ("+") and deleted ("-") in two tables, so many ms after the previous
    epoch.
    """
    kinds = {"+": RowKind.INSERT, "-": RowKind.DELETE}
    return [
        (pause_ms, False, {"t": [(kinds[sign], (0, 0)) for sign in t], "u": [(kinds[sign], (0, 0)) for sign in u]})
        for pause_ms, t, u in epochs
    ]


def as_rows(changes: Changes) -> list[Row]:
    rows = []
    for kind, values in changes:
        rows.append(Row(*values))
        rows[-1].set_row_kind(kind)
    return rows


def hashable(value: Any) -> Any:
    return repr(value) if isinstance(value, dict | list | float) else value


def change_of(row: Row) -> Any:
    return row.get_row_kind() in ADDED, tuple(map(hashable, row))


class EmittedTable:
    """The rows that a query has emitted so far, as a table: every retracted row must be in it."""

    def __init__(self) -> None:
        self.table: Counter[tuple[Any, ...]] = Counter()

    def follow(self, rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
        """Apply changes in order; returns the resulting rows."""
        net: Counter[tuple[Any, ...]] = Counter()
        for row in rows:
            is_added, values = change_of(row)
            sign = 1 if is_added else -1
            self.table[values] += sign
            net[values] += sign
            assert self.table[values] >= 0, f"{row} is retracted, but not in the table"
        return Counter({row: count for row, count in net.items() if count})


@cache
def plan_of(query: str, ttl: str | None = "1 s", only_grows: bool = False, **keys: str) -> QueryPlan:
    tables = [name for name in ("t", "u") if f" {name} " in f"{query} "]
    return QueryPlan(query, tables, TYPE, only_grows=only_grows, ttl=ttl, **keys)


def run_epochs(plan: QueryPlan, epochs: Any) -> Iterable[tuple[int, dict[str, Changes], list[Row]]]:
    """For each epoch its time, its changes, and the query's output."""
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
def test_an_expiring_join_agrees_with_its_reference_and_retracts_only_emitted_rows(
    kind: str, data: st.DataObject
) -> None:
    ttl_ms = data.draw(st.sampled_from(list(HINTS))) if kind not in ("SEMI", "ANTI") else (TTL_MS, TTL_MS)
    only_grows = data.draw(st.booleans())
    reference, emitted_rows = ExpiringJoin(kind, ttl_ms, (2, 2), lambda a, b: a[1] <= b[1]), EmittedTable()
    plan = plan_of(join_query(kind, HINTS[ttl_ms]), only_grows=only_grows)
    for now_ms, changes, rows in run_epochs(plan, data.draw(histories(only_grows=only_grows))):
        assert emitted_rows.follow(rows) == reference.apply((changes["t"], changes["u"]), now_ms)


@pytest.mark.slow
@pytest.mark.parametrize("kind", JOINS)
@pytest.mark.parametrize(
    "epochs", [((0, "+", "+"), (999, "-+", ""), (1, "", "+")), ((0, "+", ""), (1, "-+", ""), (999, "-", "+"))]
)
def test_a_row_that_was_deleted_and_inserted_again_in_one_epoch_is_young(kind: str, epochs: Any) -> None:
    """As in two epochs: Flink, too, counts its age from the last write."""
    reference, emitted_rows = ExpiringJoin(kind, (TTL_MS, TTL_MS), (2, 2)), EmittedTable()
    for now_ms, changes, rows in run_epochs(plan_of(join_query(kind)), changes_of(*epochs)):
        assert emitted_rows.follow(rows) == reference.apply((changes["t"], changes["u"]), now_ms)


@pytest.mark.slow
@EXAMPLES
@example(epochs=changes_of((0, "+", ""), (0, "+", "+"), (1_000, "--+", "")))
@given(epochs=histories())
def test_an_expired_match_ends_when_its_unique_key_is_inserted_again(epochs: Any) -> None:
    sums = "(SELECT /*+ STATE_TTL('u' = '0') */ k, SUM(v) AS v FROM u GROUP BY k) g"
    plan = plan_of(f"SELECT /*+ STATE_TTL('t' = '0') */ t.k, t.v, g.v FROM t LEFT JOIN {sums} ON t.k = g.k")
    reference = ExpiringJoin("LEFT", (None, TTL_MS), (2, 2), unique=(False, True))
    groups: dict[Any, list[int]] = {}
    emitted_rows = EmittedTable()
    for now_ms, changes, rows in run_epochs(plan, epochs):
        before = {key: (key, sum(values)) for key, values in groups.items() if values}
        for kind, (key, value) in changes["u"]:
            values = groups.setdefault(key, [])
            values.append(value) if kind in ADDED else values.remove(value)
        after = {key: (key, sum(values)) for key, values in groups.items() if values}
        updates = [(RowKind.DELETE, row) for key, row in before.items() if after.get(key) != row]
        updates += [(RowKind.INSERT, row) for key, row in after.items() if before.get(key) != row]
        net = reference.apply((changes["t"], updates), now_ms)
        assert emitted_rows.follow(rows) == Counter({(*row[:2], row[3]): count for row, count in net.items()})


def first_numbers(rows: list[Any]) -> list[Any]:
    """The second and the third row by the second column; of equal ones the first."""
    order = sorted(range(len(rows)), key=lambda at: rows[at][1])
    numbers = [order.index(at) + 1 for at in range(len(rows))]
    return [number if 2 <= number <= 3 else None for number in numbers]


def running_sums(rows: list[Any]) -> list[Any]:
    return [sum(each[1] for each in rows if each[1] <= row[1]) for row in rows]


PLACED = {
    "SELECT k, v, n FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM t ) "
    "WHERE n BETWEEN 2 AND 3": first_numbers,
    "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY v) FROM t ": running_sums,
}


@pytest.mark.slow
@pytest.mark.parametrize("query", PLACED)
@EXAMPLES
@example(epochs=changes_of((0, "+", ""), (0, "-+-++", ""), (400, "--+", ""), (600, "-", "")))
@example(epochs=changes_of((0, "+", ""), (400, "-+", ""), (600, "+", "")))
@given(epochs=histories())
def test_rows_of_a_partition_are_emitted_without_expired_ones(query: str, epochs: Any) -> None:
    reference, emitted_rows = ExpiringRows(TTL_MS, PLACED[query]), EmittedTable()
    for now_ms, changes, rows in run_epochs(plan_of(query), epochs):
        assert emitted_rows.follow(rows) == reference.apply(changes["t"], now_ms)


RANK = "SELECT {columns} FROM (SELECT k, v, {call} OVER (PARTITION BY k ORDER BY v{down}) AS n FROM t ) WHERE {bound}"
OVERS = ", ".join(
    f"{call} OVER (PARTITION BY k ORDER BY v)" for call in ("SUM(v)", "COUNT(*)", "FIRST_VALUE(v)", "RANK()", "LAG(v)")
)
MEASURES = (
    "COUNT(*), COUNT(v), SUM(v), AVG(v), MIN(v), MAX(v), COUNT(DISTINCT v), SUM(DISTINCT v), FIRST_VALUE(v), "
    "LAST_VALUE(v), LISTAGG(CAST(v AS STRING)), COLLECT(v), ARRAY_AGG(v), STDDEV_POP(v), VAR_SAMP(v), "
    "MIN(v) FILTER (WHERE v > 0), COUNT(DISTINCT v) FILTER (WHERE v < 2)"
)
QUERIES = [
    *(join_query(kind) for kind in JOINS),
    "SELECT t.k, g.s FROM t LEFT JOIN (SELECT k, SUM(v) AS s FROM u GROUP BY k) g ON t.k = g.k",
    "SELECT k, v FROM t WHERE v IN (SELECT v FROM u )",
    "SELECT k, v FROM t WHERE v NOT IN (SELECT v FROM u )",
    "SELECT k, v, (SELECT MAX(v) FROM u WHERE u.k = t.k) FROM t ",
    *(
        RANK.format(columns=columns, call=call, down=down, bound=bound)
        for columns, call, down, bound in (
            ("k, v", "ROW_NUMBER()", "", "n <= 1"),
            ("k, v", "ROW_NUMBER()", " DESC", "n <= 2"),
            ("k, v", "RANK()", "", "n BETWEEN 2 AND 3"),
            ("k, v, n", "ROW_NUMBER()", " DESC", "n <= 1"),
            ("k, v, n", "ROW_NUMBER()", "", "n <= 2"),
            ("k, v, n", "DENSE_RANK()", " DESC", "n <= 2"),
        )
    ),
    f"SELECT k, v, {OVERS} FROM t ",
    "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY v ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM t ",
    f"SELECT k, {MEASURES} FROM t GROUP BY k",
    f"SELECT {MEASURES} FROM t ",
    "SELECT k, v, COUNT(*) FROM t GROUP BY GROUPING SETS ((k), (v), ())",
    "SELECT k, COUNT(*) FROM t GROUP BY k HAVING COUNT(*) > 1",
    "SELECT DISTINCT k FROM t ",
    "SELECT k, v FROM t ORDER BY v LIMIT 2",
    *(f"SELECT k, v FROM t {word} SELECT k, v FROM u " for word in ("UNION", "INTERSECT", "EXCEPT")),
    *(f"SELECT k, v FROM t {word} ALL SELECT k, v FROM u " for word in ("INTERSECT", "EXCEPT")),
    "SELECT c, COUNT(*) FROM (SELECT k, COUNT(*) AS c FROM t GROUP BY k) GROUP BY c",
    "SELECT t.k, COUNT(u.v), SUM(t.v) FROM t LEFT JOIN u ON t.k = u.k GROUP BY t.k",
    "SELECT a.k, a.v, u.v FROM (SELECT t.k, t.v FROM t FULL JOIN u ON t.k = u.k) a LEFT JOIN u ON a.v = u.v",
]


@pytest.mark.slow
@pytest.mark.parametrize("only_grows", [False, True], ids=["changing", "growing"])
@pytest.mark.parametrize("query", QUERIES)
@FEW_EXAMPLES
@given(data=st.data())
def test_with_expiry_only_emitted_rows_are_retracted(query: str, only_grows: bool, data: st.DataObject) -> None:
    emitted_rows = EmittedTable()
    plan = plan_of(query, only_grows=only_grows)
    for _, _, rows in run_epochs(plan, data.draw(histories(only_grows=only_grows))):
        emitted_rows.follow(rows)


TTL_HINT = "/*+ STATE_TTL('t' = '1 s', 'u' = '500 ms') */"
FOLLOWED = [
    *(
        f"SELECT k, COUNT(*), SUM(v), COUNT(w) FROM (SELECT {TTL_HINT} t.k, t.v, u.v AS w FROM t {kind} JOIN u "
        "ON t.k = u.k) GROUP BY k"
        for kind in ("INNER", "LEFT", "RIGHT", "FULL")
    ),
    "SELECT k, SUM(n), MAX(v) FROM (SELECT k, v, n FROM (SELECT /*+ STATE_TTL('t' = '1 s') */ k, v, "
    "ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM t ) WHERE n BETWEEN 2 AND 3) GROUP BY k",
    "SELECT k, SUM(s), MIN(s) FROM (SELECT /*+ STATE_TTL('t' = '1 s') */ k, "
    "SUM(v) OVER (PARTITION BY k ORDER BY v) AS s FROM t ) GROUP BY k",
    "SELECT c, COUNT(*) FROM (SELECT /*+ STATE_TTL('t' = '1 s') */ k, COUNT(*) AS c FROM t GROUP BY k) GROUP BY c",
]


@pytest.mark.slow
@pytest.mark.parametrize("query", FOLLOWED)
@FEW_EXAMPLES
@given(epochs=histories())
def test_a_group_without_expiry_can_follow_an_expiring_operator(query: str, epochs: Any) -> None:
    emitted_rows = EmittedTable()
    for _, _, rows in run_epochs(
        plan_of(query, None), epochs
    ):  # it raises when a row is retracted that was never inserted
        emitted_rows.follow(rows)


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
@FEW_EXAMPLES
@given(epochs=histories())
def test_rows_younger_than_the_time_to_live_have_exact_results(query: str, epochs: Any) -> None:
    young = [(pause_ms // 100, is_reopened, changes) for pause_ms, is_reopened, changes in epochs]
    forgetting, exact = (run_epochs(plan_of(query, ttl), young) for ttl in ("1 s", None))
    for (_, _, emitted_rows), (_, _, exact_rows) in zip(forgetting, exact, strict=True):
        assert Counter(map(change_of, emitted_rows)) == Counter(map(change_of, exact_rows))


@pytest.mark.slow
@EXAMPLES
@given(epochs=histories())
def test_expired_upserts_are_retracted_at_most_once(epochs: Any) -> None:
    plan = plan_of("SELECT k, v FROM t ", key="k")
    upserts = [
        (pause, again, {"t": [c for c in changes["t"] if c[1][0] is not None]}) for pause, again, changes in epochs
    ]
    emitted_rows = EmittedTable()
    for _, _, rows in run_epochs(plan, upserts):
        emitted_rows.follow(rows)


@pytest.mark.slow
@EXAMPLES
@given(epochs=histories())
def test_a_keyed_sink_gets_each_key_once_and_deletes_only_emitted_rows(epochs: Any) -> None:
    plan = plan_of("SELECT k, v FROM t ", sink_key="v")
    table: dict[Any, Any] = {}
    for _, _, rows in run_epochs(plan, epochs):
        keys = [row[1] for row in rows]
        assert len(keys) == len(set(keys))
        for row in rows:
            if row.get_row_kind() in ADDED:
                table[row[1]] = row[0]
            else:
                assert table.pop(row[1], "none") == row[0]
