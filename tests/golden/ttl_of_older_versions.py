"""Queries with a TTL over changes that are the same in every version: one half runs in an earlier version
(`tests/compatibility/make_ttl_stores.py`), the rest in this one. No row is old enough to expire.
"""

from __future__ import annotations

from random import Random
from typing import Any

from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import StreamTableEnvironment
from millstream.testing import EPOCH, Collect, ManualClock, Pause, Script, run

__all__ = ["EPOCHS_BEFORE", "QUERIES", "run_query"]

LEFT, RIGHT = "(SELECT k, v FROM t WHERE v >= 0) a", "(SELECT k, v FROM t WHERE v < 0) b"
QUERIES = {
    # By a version that did not store match counts of emitted rows.
    1: f"SELECT a.k, a.v, b.v FROM {LEFT} FULL JOIN {RIGHT} ON a.k = b.k AND a.v + b.v <> 0",
    2: f"SELECT k, v FROM {LEFT} WHERE NOT EXISTS (SELECT 1 FROM {RIGHT} WHERE a.k = b.k AND a.v + b.v <> 0)",
    3: "SELECT k, v, n FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM t) "
    "WHERE n BETWEEN 2 AND 4",
    4: "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY v), LAG(v) OVER (PARTITION BY k ORDER BY v) FROM t",
}
EPOCHS_BEFORE = 3
_TYPE = Types.ROW_NAMED(["k", "v"], [Types.INT(), Types.LONG()])


def _items() -> list[Any]:
    """Six epochs, a minute apart."""
    random, live, items = Random("forgetting of yesterday"), list[tuple[int, int]](), list[Any]()
    for _ in range(6):
        items.append(Pause(60_000))
        for _ in range(12):
            kind = RowKind.DELETE if live and random.random() < 0.4 else RowKind.INSERT
            values = (random.randrange(3), random.randrange(-4, 5))
            if kind is RowKind.DELETE:
                values = live.pop(random.randrange(len(live)))
            else:
                live.append(values)
            items.append(Row(*values))
            items[-1].set_row_kind(kind)
        items.append(EPOCH)
    return items


def run_query(number: int, store: str, out: Collect, epochs: int | None = None, parallelism: int = 2) -> Any:
    """Run a query from the store's current state."""
    clock = ManualClock(1_000_000)

    def build(env: StreamExecutionEnvironment) -> None:
        t_env = StreamTableEnvironment.create(env)
        t_env.get_config().set("table.exec.state.ttl", "1 h")
        stream = env.add_source(Script(_items(), type_info=_TYPE, clock=clock), type_info=_TYPE).uid("source")
        t_env.create_temporary_view("t", t_env.from_changelog_stream(stream))
        t_env.to_changelog_stream(t_env.sql_query(QUERIES[number])).sink_to(out).uid("sink")

    return run(build, parallelism=parallelism, epochs=epochs, store=store, clock=clock)
