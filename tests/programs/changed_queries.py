"""Queries that are changed between two runs of a job, and the fate of their state.

A pair is a query and a changed one that finds its state by uid, with the fate of the changed operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from millstream.datastream import StreamExecutionEnvironment
from millstream.table import StreamTableEnvironment

__all__ = ["PAIRS", "ROWS", "STORED", "TABLES", "Pair", "program", "rows_of"]

ROWS = 60


def _orders() -> str:
    rows = (f'[{n}, {n % 3}, {n % 7}, {n % 5}, "{"ab"[n % 2]}", "1970-01-01 00:00:{n:02}"]' for n in range(ROWS))
    return "[" + ", ".join(rows) + "]"


def _prices() -> str:
    return "[" + ", ".join(f"[{n}, {n % 3}, {n % 4}]" for n in range(ROWS)) + "]"


TABLES = (
    "CREATE TABLE orders (id BIGINT, k BIGINT, a BIGINT, b BIGINT, s STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) "
    f"WITH ('connector' = 'values', 'data' = '{_orders()}')",
    f"CREATE TABLE prices (id BIGINT, k BIGINT, x BIGINT) WITH ('connector' = 'values', 'data' = '{_prices()}')",
)


class Pair(NamedTuple):
    name: str
    old: str
    new: str
    fate: str
    told: str = ""


_TOP = (
    "SELECT k, a, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {partition} ORDER BY {order}) AS n FROM orders) "
    "WHERE n <= {last}"
)
_TUMBLE = (
    "SELECT k, {call} FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '{size}' SECOND)) "
    "GROUP BY k, window_start, window_end"
)
_JOIN = "SELECT orders.{column}, prices.x FROM orders JOIN prices ON {condition}"
_OVER = "SELECT id, {call} OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN {rows} PRECEDING AND CURRENT ROW) FROM orders"
_SUM = "SELECT k, SUM(a) FROM orders GROUP BY k"

PAIRS = (
    Pair("another column", _SUM, "SELECT k, SUM(b) FROM orders GROUP BY k", "lost", "SUM(a)"),
    Pair("another function", _SUM, "SELECT k, MAX(a) FROM orders GROUP BY k", "lost", "MAX(a)"),
    Pair("DISTINCT", _SUM, "SELECT k, SUM(DISTINCT a) FROM orders GROUP BY k", "lost", "SUM(DISTINCT a)"),
    Pair("FILTER", _SUM, "SELECT k, SUM(a) FILTER (WHERE b > 1) FROM orders GROUP BY k", "lost", "FILTER"),
    Pair("another filter", _SUM, "SELECT k, SUM(a) FROM orders WHERE a > 1 GROUP BY k", "lost", "where >(a, 1)"),
    Pair(
        "another expression of the group",
        "SELECT g, SUM(a) FROM (SELECT MOD(id, 2) AS g, a FROM orders) GROUP BY g",
        "SELECT g, SUM(a) FROM (SELECT MOD(id, 3) AS g, a FROM orders) GROUP BY g",
        "lost",
        "MOD(id, 3)",
    ),
    Pair(
        "an aggregate before the others",
        _SUM,
        "SELECT k, MIN(b), SUM(a) FROM orders GROUP BY k",
        "lost",
        "would store MIN(b), SUM(a)",
    ),
    Pair(
        "an aggregate behind the others", _SUM, "SELECT k, SUM(a), MIN(b) FROM orders GROUP BY k", "extended", "MIN(b)"
    ),
    Pair(
        "other separators",
        "SELECT k, LISTAGG(s, ',') FROM orders GROUP BY k",
        "SELECT k, LISTAGG(s, ';') FROM orders GROUP BY k",
        "lost",
    ),
    Pair("another alias", _SUM, "select k as `of`, sum(a) as total\nfrom orders as o group by k", "kept"),
    Pair("a filter behind the groups", _SUM, _SUM + " HAVING SUM(a) > 3", "kept"),
    Pair(
        "conditions in another order",
        "SELECT k, SUM(a) FROM orders WHERE a > 1 AND b < 4 GROUP BY k",
        "SELECT k, SUM(a) FROM orders WHERE 4 > b AND 1 < a GROUP BY k",
        "kept",
    ),
    Pair(
        "a constant that is written otherwise",
        "SELECT k, SUM(a) FROM orders WHERE a > 2 GROUP BY k",
        "SELECT k, SUM(a) FROM orders WHERE a > 1 + 1 GROUP BY k",
        "kept",
    ),
    Pair(
        "DISTINCT of another column",
        "SELECT DISTINCT k FROM orders WHERE a > 1",
        "SELECT DISTINCT k FROM orders WHERE a > 2",
        "lost",
    ),
    Pair(
        "groups of other groups",
        "SELECT c, COUNT(*) FROM (SELECT k, COUNT(*) AS c FROM orders GROUP BY k) GROUP BY c",
        "SELECT c, COUNT(*) FROM (SELECT k, COUNT(*) AS c FROM orders WHERE a > 1 GROUP BY k) GROUP BY c",
        "lost",
    ),
    Pair("another window", _TUMBLE.format(call="SUM(a)", size=10), _TUMBLE.format(call="SUM(b)", size=10), "lost"),
    Pair(
        "another join condition",
        _JOIN.format(column="id", condition="orders.k = prices.k"),
        _JOIN.format(column="id", condition="orders.k = prices.x"),
        "lost",
    ),
    Pair(
        "another residual condition",
        _JOIN.format(column="id", condition="orders.k = prices.k AND orders.a > prices.x"),
        _JOIN.format(column="id", condition="orders.k = prices.k AND orders.a < prices.x"),
        "lost",
    ),
    Pair(
        "a join whose rows have another column",
        _JOIN.format(column="id", condition="orders.k = prices.k"),
        _JOIN.format(column="a", condition="orders.k = prices.k"),
        "lost",
    ),
    Pair(
        "an outer join",
        _JOIN.format(column="id", condition="orders.k = prices.k"),
        _JOIN.format(column="id", condition="orders.k = prices.k").replace("JOIN", "LEFT JOIN"),
        "lost",
    ),
    Pair(
        "a join that is written otherwise",
        _JOIN.format(column="id", condition="orders.k = prices.k"),
        "SELECT p.x AS price, o.id AS `order` FROM orders o, prices p WHERE p.k = o.k",
        "kept",
    ),
    Pair(
        "more first rows",
        _TOP.format(partition="k", order="a", last=2),
        _TOP.format(partition="k", order="a", last=3),
        "lost",
        "rows 1 to 3",
    ),
    Pair(
        "another order of NULLs",
        _TOP.format(partition="k", order="a NULLS FIRST", last=2),
        _TOP.format(partition="k", order="a NULLS LAST", last=2),
        "lost",
    ),
    Pair(
        "first rows of other rows",
        _TOP.format(partition="k", order="a", last=2),
        _TOP.format(partition="k", order="a", last=2) + " AND b > 1",
        "lost",
    ),
    Pair("another call over rows", _OVER.format(call="SUM(a)", rows=2), _OVER.format(call="SUM(b)", rows=2), "lost"),
)

STORED = (
    "SELECT best.k, best.id, best.total, prices.x, COUNT(*) OVER (PARTITION BY best.k ORDER BY best.id) AS n FROM ("
    "SELECT k, id, total FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY total DESC, id) AS n FROM ("
    "SELECT k, MOD(id, 5) AS id, SUM(a) AS total FROM orders WHERE b < 4 AND a > 0 GROUP BY k, MOD(id, 5))) "
    "WHERE n <= 2) AS best JOIN prices ON best.k = prices.k AND prices.x < best.total"
)
"""A query with several operators that keep state, each behind another."""


def program(query: str, sink: Any) -> Callable[[StreamExecutionEnvironment], None]:
    """A program whose stream consumes the changes of a query."""

    def build(env: StreamExecutionEnvironment) -> None:
        t_env = StreamTableEnvironment.create(env)
        for table in TABLES:
            t_env.execute_sql(table)
        t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(sink).uid("sink")

    return build


def rows_of(changes: list[Any], before: Sequence[tuple[Any, ...]] = ()) -> list[tuple[Any, ...]]:
    """The rows that remain of those before, after changes."""
    left = list(before)
    for row in changes:
        if str(row.get_row_kind()) in ("-U", "-D"):
            left.remove(tuple(row))
        else:
            left.append(tuple(row))
    return sorted(left, key=repr)
