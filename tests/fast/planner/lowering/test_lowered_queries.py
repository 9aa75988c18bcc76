"""Queries as text, from the parser to rows: behaviour that only the whole pipeline shows."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from programs.relations import moment

from millstream.expressions import types
from millstream.expressions.nested_types import RowType
from millstream.graph.builder import GraphBuilder
from millstream.planner.binder import bind_query
from millstream.planner.entries import ColumnEntry, TableEntry, WatermarkEntry
from millstream.planner.lowering import CollectTarget, SourceOrigin, lower
from millstream.planner.passes import optimised
from millstream.planner.relations import Sink
from millstream.planner.session import PlannerSession
from millstream.records.table_type import TableRowType
from millstream.sql.parser import parse_expression, parse_query
from millstream.testing import Collect, Script, run

COLUMNS = {"k": types.VarCharType(9), "n": types.IntType(), "ts": types.TimestampType(3)}
ROWS = [("ab"[number % 2], number, moment(number * 100)) for number in range(40)]


def session_with(rows: list[Any], config: dict[str, str] | None = None) -> PlannerSession:
    """A session that knows the table `events`."""
    session = PlannerSession(config=dict(config or {}))
    row_type = TableRowType(RowType.of(list(COLUMNS), list(COLUMNS.values()), nullable=False))
    entry = TableEntry(
        tuple(ColumnEntry(name, type_) for name, type_ in COLUMNS.items()),
        WatermarkEntry("ts", parse_expression("ts - INTERVAL '1' SECOND")),
        origin=SourceOrigin(Script(rows, type_info=row_type), "events"),
    )
    session.store.add_table(("default_catalog", "default_database", "events"), entry)
    return session


def result_of(query: str, **options: Any) -> list[tuple[Any, ...]]:
    out = Collect()
    session = session_with(ROWS)
    relation = bind_query(parse_query(query), session)
    sinks = optimised([Sink(relation.schema, relation, CollectTarget(out))], session)
    run(lambda env: lower(sinks, env._builder, session), **options)
    return [tuple(row) for row in out.values]


WINDOW = "TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '2' SECOND)) GROUP BY window_start, window_end, k"


def test_an_added_result_column_does_not_prevent_restoring_state() -> None:
    options = {"store": "test-lowered-queries-column", "epoch_records": 5}
    first = result_of(f"SELECT window_start, k, SUM(n) FROM {WINDOW}", epochs=3, **options)
    rest = result_of(f"SELECT window_start, k, SUM(n), SUM(n) + 1 FROM {WINDOW}", **options)
    whole = result_of(f"SELECT window_start, k, SUM(n) FROM {WINDOW}")
    assert first + [row[:3] for row in rest] == whole
    assert all(total + 1 == again for _, _, total, again in rest)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_windows_of_a_filtered_and_computed_table(parallelism: int) -> None:
    results = result_of(
        "SELECT window_end, small, COUNT(*) AS c, SUM(n) FILTER (WHERE n > 3) AS s "
        "FROM TABLE(HOP(TABLE (SELECT n < 10 AS small, n, ts FROM events WHERE k = 'a'), DESCRIPTOR(ts), "
        "INTERVAL '1' SECOND, INTERVAL '2' SECOND)) GROUP BY window_start, window_end, small HAVING COUNT(*) > 5",
        parallelism=parallelism,
        epoch_records=7,
    )
    expected = []
    for start in range(-1_000, 4_000, 1_000):
        held = [n for k, n, ts in ROWS if k == "a" and moment(start) <= ts < moment(start + 2_000)]
        for small in (True, False):
            group = [n for n in held if (n < 10) is small]
            if len(group) > 5:
                large = [n for n in group if n > 3]
                expected.append((moment(start + 2_000), small, len(group), sum(large) if large else None))
    assert sorted(results, key=repr) == sorted(expected, key=repr)


def test_windows_over_window_results_use_their_rowtime() -> None:
    results = result_of(
        "SELECT window_start, SUM(c) FROM TABLE(TUMBLE(TABLE ("
        "SELECT window_time AS rowtime, k, COUNT(*) AS c FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), "
        "INTERVAL '1' SECOND)) GROUP BY window_start, window_end, window_time, k"
        "), DESCRIPTOR(rowtime), INTERVAL '2' SECOND)) GROUP BY window_start, window_end",
        epoch_records=3,
    )
    assert sorted(results) == [(moment(0), 20), (moment(2_000), 20)]


def test_current_timestamp_is_constant_within_an_epoch() -> None:
    [(count,)] = {
        (len({row[0] for row in result_of("SELECT PROCTIME() FROM events")}),),
    }
    assert count == 1
    assert all(isinstance(row[0], dt.datetime) for row in result_of("SELECT CURRENT_TIMESTAMP FROM events"))


def test_sinks_of_equally_named_tables_are_named_by_their_paths() -> None:
    session = session_with(ROWS)
    paths = [("default_catalog", database, "out") for database in ("default_database", "other")]
    out = TableEntry((ColumnEntry("k", types.VarCharType(9)),), options=(("connector", "blackhole"),))
    relation = bind_query(parse_query("SELECT k FROM events"), session)
    sinks = optimised([Sink(relation.schema, relation, replace(out, path=path)) for path in paths], session)
    assert [node.name for node in lower(sinks, GraphBuilder(), session)] == [
        "Sink: default_database.out",
        "Sink: other.out",
    ]
    assert [node.name for node in lower(sinks[:1], GraphBuilder(), session)] == ["Sink: out"]
