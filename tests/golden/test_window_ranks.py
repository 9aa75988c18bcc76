"""Window Top-N, window deduplication and windows with GROUPING SETS emit each window's result once, at the window's
end: the same rows, in the same epochs, as the reference, without retractions or leftover state.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from random import Random
from typing import Any

import pytest
from inputs.fresh_names import fresh_name
from timed_tables import TimedTable, milliseconds, ran, random_tables, stored_rows
from timed_views import WINDOWS, in_time, in_windows

from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.errors import StateSchemaError, StoreError
from millstream.graph.table_nodes import OrderKey
from millstream.runtime.tables.references.ranks import first_rows
from millstream.table import EnvironmentSettings, StreamTableEnvironment, TableEnvironment
from millstream.testing import Collect, ManualClock, Pause, Script, run
from millstream.testing.local_jobs import jobs_in_memory

TUMBLE = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND))"
ADDED = (RowKind.INSERT, RowKind.UPDATE_AFTER)
ORDERS = {
    "v DESC NULLS LAST, t": ([OrderKey(1, descending=True, nulls_first=False), OrderKey(2)], False),
    "v": ([OrderKey(1)], False),
    "ts DESC": ([OrderKey(2, descending=True)], True),
}


def emitted(query: str, tables: dict[str, TimedTable], parallelism: int, **how: Any) -> Counter[Any]:
    """Rows with the epochs that emit them; all are inserts."""
    result, out = ran(query, tables, parallelism=parallelism, **how)
    records = result.of(out)
    assert all(record.value.get_row_kind() is RowKind.INSERT for record in records)
    return Counter((record.epoch - 1, *map(milliseconds, record.value)) for record in records)


def first_of(kind: str, by: str, order: str, bounds: str, source: str, columns: str = "k, v, t") -> str:
    """The first rows of each partition in each window."""
    return (
        f"SELECT {columns}, n FROM (SELECT *, {kind}() OVER (PARTITION BY {by} ORDER BY {order}) AS n FROM {source}) "
        f"WHERE {bounds}"
    )


@pytest.mark.parametrize("shape", WINDOWS)
@pytest.mark.parametrize("kind", ["ROW_NUMBER", "RANK", "DENSE_RANK"])
def test_window_top_n_matches_the_reference(kind: str, shape: str) -> None:
    windows = WINDOWS[shape]
    source = f"TABLE({shape.format('TABLE t, DESCRIPTOR(ts)')})"
    for seed, text in enumerate(ORDERS):
        order, latest_first = ORDERS[text]
        first, last = (1, 1) if latest_first else (2, 3)
        latest_first = latest_first and kind == "ROW_NUMBER"
        random = Random(f"{kind} {shape} {seed}")
        tables = {"t": random_tables(random, 6, 12)["t"]}
        tables["t"].crashes = (random.randrange(6),) if seed % 2 else ()
        expected: list[Any] = []
        for epoch, due in in_time(tables["t"], lambda row: in_windows(row, windows)):
            rows = [(*row.contents, *row.key[1:]) for row in due]
            ranked = first_rows(kind, rows, [0, 3, 4], order, first, last, latest_first=latest_first)
            expected += [(epoch, *row[:3], row[-1]) for row in ranked]
        bounds = f"n >= {first} AND n <= {last}"
        query = first_of(kind, "window_end, k, window_start", text, bounds, source)
        # One task reads the rows, so that the arrival order of ties is defined.
        assert emitted(query, tables, 1 if text == "v" else seed % 3 + 1) == Counter(expected)


def test_top_n_over_window_aggregates_matches_batch() -> None:
    grouped = f"SELECT window_start, window_end, k, SUM(v) AS s FROM {TUMBLE} GROUP BY window_start, window_end, k"
    query = first_of(
        "ROW_NUMBER", "window_start, window_end", "s DESC NULLS LAST, k", "n <= 2", f"({grouped})", "window_start, k, s"
    )
    for seed in range(2):
        tables = {"t": random_tables(Random(f"batch {seed}"), 6, 12, late=False)["t"]}
        given = emitted(query, tables, seed + 2)
        rows = list(tables["t"].rows)
        assert Counter(row[1:] for row in given.elements()) == Counter(in_batch(query, rows))


def in_batch(query: str, rows: list[Any]) -> list[Any]:
    """The result of the same query over all rows, by a TableEnvironment in BATCH mode."""
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        t_env.execute_sql(
            "CREATE TABLE t (k STRING, v BIGINT, t BIGINT, ts AS CAST(TO_TIMESTAMP_LTZ(t, 3) AS TIMESTAMP(3)), "
            f"WATERMARK FOR ts AS ts) WITH ('connector' = 'values', 'data' = '{json.dumps(rows)}')"
        )
        return [tuple(map(milliseconds, row)) for row in t_env.execute_sql(query).collect()]


def test_an_expired_window_leaves_no_state() -> None:
    epochs = [([(str(n % 4), n, at * 1_000 + n) for n in range(40)], at * 1_000) for at in range(1, 20)]
    query = first_of("ROW_NUMBER", "window_start, window_end, k", "v DESC", "n <= 3", TUMBLE)
    result, _ = ran(query, {"t": TimedTable([*epochs, ([], 20_999), ([], 21_500)])}, parallelism=2)
    rows = [stored_rows(manifest) for manifest in result.manifests]
    assert max(rows) <= 12 * 2, rows  # the first 3 of 4 keys for each 40 rows of a window, and those just emitted
    assert rows[-1] == 0


def test_late_rows_are_dropped_and_counted() -> None:
    table = TimedTable([([("a", 1, 100)], 1_200), ([("a", 9, 300), ("a", 2, 1_500)], 5_000)])
    result, out = ran(first_of("ROW_NUMBER", "window_start, window_end", "v DESC", "n = 1", TUMBLE), {"t": table})
    assert [tuple(row) for row in result[out]] == [("a", 1, 100, 1), ("a", 2, 1_500, 1)]
    late = [count for name, count in result.metrics.items() if name.endswith("numLateRecordsDropped")]
    assert late == [{"counter": 1}], result.metrics


@pytest.mark.parametrize("stopped_after", [1, 3])
def test_windows_survive_a_rescale(stopped_after: int) -> None:
    tables = {"t": random_tables(Random("rescaled"), 6, 12)["t"]}
    query = first_of("ROW_NUMBER", "window_start, window_end, k", "v DESC NULLS LAST, t", "n <= 2", TUMBLE)
    whole = Counter(row[1:] for row in emitted(query, tables, 2).elements())
    store = fresh_name("window-ranks")
    first = emitted(query, tables, 1, store=store, epochs=stopped_after)
    rest = emitted(query, tables, 3, store=store)
    assert Counter(row[1:] for row in (first | rest).elements()) == whole


def test_state_of_an_updating_top_n_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {"t": random_tables(Random("before"), 4, 12)["t"]}
    query = first_of("ROW_NUMBER", "window_start, window_end, k", "v DESC NULLS LAST", "n <= 2", TUMBLE)
    store = fresh_name("window-ranks")
    with monkeypatch.context() as before:
        module = sys.modules["millstream.planner.passes.recognise_ranks"]
        before.setattr(module, "rank_in_windows", lambda relation, **how: relation)
        ran(query, tables, store=store, epochs=2)
    with pytest.raises(StoreError, match=r"has state of 'Rank'.* new in it: .*'WindowRank'"):
        ran(query, tables, store=store)


BY_CLOCK = "TABLE(TUMBLE(TABLE c, DESCRIPTOR(p), INTERVAL '1' SECOND))"
PLAIN = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.LONG()])


@pytest.mark.parametrize(
    "source",
    [
        BY_CLOCK,
        f"(SELECT k, SUM(v) AS v, window_start, window_end FROM {BY_CLOCK} GROUP BY k, window_start, window_end)",
    ],
    ids=["rows", "aggregates"],
)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_processing_time_windows_emit_their_first_rows_at_their_end(source: str, zone: str) -> None:
    clock, out = ManualClock(10_200), Collect()
    # The job wakes up at the end of a window: it needs no row for that.
    items = [Row("a", 1), Row("b", 5), Pause(700), Row("c", 3), Pause(5_000), Row("d", 7), Pause(100)]
    query = first_of("ROW_NUMBER", "window_start, window_end", "v DESC", "n <= 2", source, "k, v")

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        t_env.get_config().set_local_timezone(zone)
        stream = env.add_source(Script(items, type_info=PLAIN, clock=clock), type_info=PLAIN)
        t_env.create_temporary_view("plain", t_env.from_data_stream(stream))
        t_env.execute_sql("CREATE TEMPORARY VIEW c AS SELECT *, PROCTIME() AS p FROM plain")
        t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(out)

    result = run(build, clock=clock, parallelism=2)
    records = [(record.epoch, str(record.value.get_row_kind()), *record.value) for record in result.of(out)]
    assert [record[1:] for record in records] == [("+I", "b", 5, 1), ("+I", "c", 3, 2), ("+I", "d", 7, 1)]
    assert records[0][0] == records[1][0] < records[2][0]
    assert stored_rows(result.manifests[-1]) == 0


def test_the_first_row_to_arrive_is_inserted_once_and_never_updated() -> None:
    tables = {"t": random_tables(Random("first to come"), 6, 12)["t"]}
    query = (
        "SELECT k, v, t FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY p) AS n "
        "FROM (SELECT *, PROCTIME() AS p FROM t)) WHERE n = 1"
    )
    expected: dict[Any, Any] = {}
    for epoch, (rows, _) in enumerate(tables["t"].epochs):
        for row in rows:
            expected.setdefault(row[0], (epoch, *row))
    assert emitted(query, tables, 1) == Counter(expected.values())


DOCUMENTED = {
    "window Top-N": first_of(
        "ROW_NUMBER", "window_start, window_end", "v DESC", "n <= 3", TUMBLE, "window_start, k, v"
    ),
    "window deduplication": first_of(
        "ROW_NUMBER", "window_start, window_end, k", "ts DESC", "n = 1", TUMBLE, "window_start, k, v"
    ),
    "grouping sets": f"SELECT window_start, k, SUM(v), 1 FROM {TUMBLE} "
    "GROUP BY window_start, window_end, GROUPING SETS ((k), ())",
    "rollup": f"SELECT window_start, k, SUM(v), 1 FROM {TUMBLE} GROUP BY window_start, window_end, ROLLUP (k)",
    "cube": f"SELECT window_start, k, SUM(v), 1 FROM {TUMBLE} GROUP BY window_start, window_end, CUBE (k)",
    "deduplication": "SELECT ts, k, v, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY p) AS n FROM t) "
    "WHERE n = 1",
}


@pytest.mark.parametrize("query", DOCUMENTED.values(), ids=DOCUMENTED)
def test_an_insert_only_sink_accepts_append_only_results(query: str) -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.execute_sql(
        "CREATE TABLE t (k STRING, v BIGINT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts) "
        "WITH ('connector' = 'values', 'data' = '[]')"
    )
    t_env.execute_sql(
        "CREATE TABLE files (w TIMESTAMP(3), k STRING, v BIGINT, n BIGINT) "
        "WITH ('connector' = 'filesystem', 'path' = '/nowhere', 'format' = 'json')"
    )
    assert "Sink(table=" in t_env.explain_sql(f"INSERT INTO files {query}")


SETS = ((0,), (1,), ())
GROUPED = (
    "SELECT {bounds}, k, v, COUNT(*), SUM(t), GROUPING(k, v) FROM {source} "
    "GROUP BY {windows}, GROUPING SETS ((k), (v), ())"
)


@pytest.mark.parametrize("shape", [*WINDOWS, "legacy"])
def test_windows_with_grouping_sets_match_the_reference(shape: str) -> None:
    table = shape.format("TABLE t, DESCRIPTOR(ts)")
    bounds = windows = "window_start, window_end"
    source = f"TABLE({table})"
    if shape == "legacy":
        size = "(ts, INTERVAL '1' SECOND)"
        source, windows, bounds = "t", f"TUMBLE{size}", f"TUMBLE_START{size}, TUMBLE_END{size}"
    query = GROUPED.format(bounds=bounds, source=source, windows=windows)
    for seed in range(2):
        random = Random(f"{shape} {seed}")
        tables = {"t": random_tables(random, 6, 12)["t"]}
        tables["t"].crashes = (random.randrange(6),) if seed % 2 else ()
        expected: list[Any] = []
        panes = WINDOWS.get(shape, next(iter(WINDOWS.values())))
        for epoch, due in in_time(tables["t"], lambda row, panes=panes: in_windows(row, panes)):  # type: ignore[misc]
            groups: dict[Any, list[int]] = {}
            for row in due:
                for set_ in SETS:
                    chosen = tuple(row.contents[at] if at in set_ else None for at in (0, 1))
                    mark = (0 not in set_) * 2 + (1 not in set_)
                    groups.setdefault((*row.key[1:], *chosen, mark), []).append(row.contents[2])
            expected += [(epoch, *key[:4], len(times), sum(times), key[4]) for key, times in groups.items()]
        assert emitted(query, tables, seed + 1) == Counter(expected)


def test_a_window_missing_from_a_grouping_set_is_an_ordinary_column() -> None:
    tables = {"t": TimedTable([([("a", 1, 100)], 500), ([("a", 2, 200), ("a", 3, 1_500)], 9_000)])}
    query = f"SELECT window_start, COUNT(*) FROM {TUMBLE} GROUP BY ROLLUP (window_start, window_end)"
    result, out = ran(query, tables)
    table: Counter[Any] = Counter()
    for row in result[out]:
        table[tuple(map(milliseconds, row))] += 1 if row.get_row_kind() in ADDED else -1
    assert +table == Counter({(0, 2): 2, (1_000, 1): 2, (None, 3): 1})


def test_window_top_n_can_feed_further_windows() -> None:
    first = first_of(
        "ROW_NUMBER",
        "window_start, window_end",
        "v DESC NULLS LAST, t",
        "n <= 2",
        TUMBLE,
        "window_start, window_end, v",
    )
    query = f"SELECT window_end, COUNT(*), SUM(v) FROM ({first}) GROUP BY window_start, window_end"
    tables = {"t": random_tables(Random("behind"), 6, 12)["t"]}
    expected: list[Any] = []
    for epoch, due in in_time(tables["t"], lambda row: in_windows(row, next(iter(WINDOWS.values())))):
        for end in {row.key[2] for row in due}:
            values = sorted((row.contents[1] for row in due if row.key[2] == end), key=lambda v: (v is None, -(v or 0)))
            there = [value for value in values[:2] if value is not None]
            expected.append((epoch, end, len(values[:2]), sum(there) if there else None))
    assert emitted(query, tables, 2) == Counter(expected)


FIRST = (
    "(SELECT k, v, t FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, v ORDER BY p) AS n "
    "FROM (SELECT *, PROCTIME() AS p FROM t)) WHERE n = 1)"
)


def test_a_deduplication_resumes_state_from_when_it_was_planned_as_updating(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = {"t": random_tables(Random("said to change"), 6, 12)["t"]}
    counted = f"SELECT v, COUNT(*) FROM {FIRST} GROUP BY v"
    whole = Counter(row[1:] for row in emitted(f"SELECT * FROM {FIRST}", tables, 1).elements())
    store, behind = fresh_name("window-ranks"), fresh_name("window-ranks")
    with monkeypatch.context() as before:
        module = sys.modules["millstream.planner.traits.changes"]
        before.setattr(module, "is_first_to_come", lambda rank: False)
        first = emitted(f"SELECT * FROM {FIRST}", tables, 1, store=store, epochs=3)
        ran(counted, tables, store=behind, epochs=3)
    rest = emitted(f"SELECT * FROM {FIRST}", tables, 2, store=store)
    assert Counter(row[1:] for row in (first | rest).elements()) == whole
    # Downstream operators store other state for an append-only input.
    with pytest.raises(StateSchemaError, match="had retractions, and now is append-only"):
        ran(counted, tables, store=behind)
