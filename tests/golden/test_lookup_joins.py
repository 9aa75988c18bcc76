"""Lookup joins: each row joins the table's rows for its key at arrival, with few requests and no repeated one."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from changing_tables import TYPE, materialised, random_changelog
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.nexmark_queries import definitions, query_statements, write_events

from millstream.errors import MillstreamError
from millstream.runtime.tables.lookup_join import lookup_join_slowly
from millstream.table import EnvironmentSettings, StreamTableEnvironment, TableEnvironment
from millstream.testing import Collect, Script, run
from millstream.testing.local_jobs import jobs_in_memory

ASKED: list[list[tuple[Any, ...]]] = []
FAILURES: list[Exception] = []
APPEARING: list[list[dict[str, Any]]] = []


def cities(keys: pa.RecordBatch) -> list[dict[str, Any]]:
    """A third-party table that records its requests."""
    ASKED.append(sorted(zip(*(column.to_pylist() for column in keys.columns), strict=True)))
    if FAILURES:
        raise FAILURES.pop()
    if APPEARING:
        return APPEARING.pop(0)
    return [{"id": key, "city": f"city {key}"} for (key,) in ASKED[-1] if key < 1000]


@pytest.fixture
def t_env() -> Iterator[TableEnvironment]:
    ASKED.clear()
    with jobs_in_memory():
        made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        made.get_config().set("parallelism.default", "1")
        yield made


def changes(t_env: TableEnvironment, statement: str) -> list[tuple[Any, ...]]:
    with t_env.execute_sql(statement).collect() as found:
        return sorted((tuple(row) for row in found), key=str)


def orders(t_env: TableEnvironment, rows: list[Any]) -> None:
    t_env.execute_sql(
        "CREATE TABLE orders (o INT, place INT, at AS PROCTIME()) WITH ('connector' = 'values', "
        f"'data' = '{json.dumps(rows)}')".replace(" at AS", " `at` AS")
    )


def places(t_env: TableEnvironment, **options: str) -> None:
    given = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    clauses = "".join(f", '{name}' = '{value}'" for name, value in given.items())
    t_env.execute_sql(
        f"CREATE TABLE places (id INT, city STRING) WITH ('connector' = 'python', 'function' = "
        f"'{__name__}:cities'{clauses})"
    )


JOIN = "SELECT o, city FROM orders {} JOIN places FOR SYSTEM_TIME AS OF orders.`at` ON place = id"


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3) | st.none()), max_size=12),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b"])), max_size=6),
    st.booleans(),
)
def test_a_lookup_join_matches_the_tables_rows(rows: list[Any], table: list[Any], keeps_all: bool) -> None:
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        orders(t_env, rows)
        t_env.execute_sql(
            f"CREATE TABLE places (id INT, city STRING) WITH ('connector' = 'values', 'data' = '{json.dumps(table)}')"
        )
        found = changes(t_env, JOIN.format("LEFT" if keeps_all else ""))
    expected = lookup_join_slowly(rows, 1, table, 0, keeps_all)
    assert found == sorted(((row[0], row[3] if len(row) > 2 else None) for row in expected), key=str)


def test_the_distinct_keys_of_a_batch_are_requested_together(t_env: TableEnvironment) -> None:
    orders(t_env, [[1, 7], [2, 7], [3, 8], [4, None], [5, 2000]])
    places(t_env)
    assert changes(t_env, JOIN.format("LEFT")) == [
        (1, "city 7"), (2, "city 7"), (3, "city 8"), (4, None), (5, None),
    ]  # fmt: skip
    assert ASKED == [[(7,), (8,), (2000,)]]


def test_many_keys_are_requested_concurrently(t_env: TableEnvironment) -> None:
    orders(t_env, [[number, number] for number in range(25)])
    places(t_env, lookup__request_keys="10", lookup__requests="3")
    assert len(changes(t_env, JOIN.format(""))) == 25
    assert sorted(map(len, ASKED)) == [5, 10, 10]


def test_cached_keys_are_not_requested_again(t_env: TableEnvironment) -> None:
    t_env.get_config().set("millstream.epoch.max-records", "2")
    orders(t_env, [[1, 7], [2, 8], [3, 7], [4, 2000], [5, 2000], [6, 9]])
    places(t_env, lookup__cache="PARTIAL")
    assert len(changes(t_env, JOIN.format(""))) == 4
    asked = [key for request in ASKED for (key,) in request]
    assert sorted(asked) == [7, 8, 9, 2000], "each key once, the missing one too"


def test_a_failed_request_is_retried_up_to_a_limit(t_env: TableEnvironment) -> None:
    orders(t_env, [[1, 7]])
    places(t_env, lookup__max_retries="2")
    FAILURES.extend([OSError("away"), OSError("away")])
    assert changes(t_env, JOIN.format("")) == [(1, "city 7")]
    FAILURES.extend([OSError("away")] * 3)
    with pytest.raises(MillstreamError, match=r"the lookup failed 3 times: OSError: away"):
        changes(t_env, JOIN.format(""))
    FAILURES.clear()


def test_a_hint_retries_keys_without_a_row(t_env: TableEnvironment) -> None:
    orders(t_env, [[1, 7], [2, 8]])
    places(t_env)
    APPEARING.extend([[{"id": 7, "city": "a"}], [], [{"id": 8, "city": "b"}]])
    hint = (
        "/*+ LOOKUP('table' = 'places', 'retry-predicate' = 'lookup_miss', 'retry-strategy' = 'fixed_delay', "
        "'fixed-delay' = '1 ms', 'max-attempts' = '3') */"
    )
    assert changes(t_env, JOIN.format("").replace("SELECT", f"SELECT {hint}")) == [(1, "a"), (2, "b")]
    assert ASKED == [[(7,), (8,)], [(8,)], [(8,)]]
    with pytest.raises(MillstreamError, match="unknown option 'max-attempt'"):
        t_env.execute_sql(JOIN.format("").replace("SELECT", f"SELECT {hint.replace('attempts', 'attempt')}"))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT * FROM orders o JOIN places FOR SYSTEM_TIME AS OF o.`at` AS p ON o.o > p.id", "requires an equality"),
        ("SELECT * FROM orders o RIGHT JOIN places FOR SYSTEM_TIME AS OF o.`at` AS p ON o.o = p.id", "INNER and LEFT"),
        (
            "SELECT * FROM orders o JOIN made FOR SYSTEM_TIME AS OF o.`at` AS p ON o.o = p.id",
            "requires a lookup source",
        ),
    ],
)
def test_an_unsupported_lookup_is_rejected_before_the_job_starts(
    t_env: TableEnvironment, query: str, words: str
) -> None:
    orders(t_env, [])
    places(t_env)
    t_env.execute_sql("CREATE TABLE made (id INT) WITH ('connector' = 'datagen')")
    with pytest.raises(MillstreamError, match=words):
        t_env.execute_sql(query)


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_nexmarks_query_13_joins_bids_with_a_file(mode: str, tmp_path: Path) -> None:
    write_events(tmp_path / "events")
    (tmp_path / "side_input").mkdir()
    (tmp_path / "side_input" / "values.csv").write_text("".join(f"{key},value {key}\n" for key in range(0, 10_000, 3)))
    made = EnvironmentSettings.in_batch_mode() if mode == "batch" else EnvironmentSettings.in_streaming_mode()
    t_env = TableEnvironment.create(made)
    with jobs_in_memory():
        for statement in (*definitions(tmp_path / "events"), *query_statements("q13", tmp_path)):
            t_env.execute_sql(statement).wait()
        bids = changes(t_env, "SELECT auction, bidder, price FROM bid")
    lines = [line for path in (tmp_path / "q13").rglob("part-*") for line in path.read_text().splitlines()]
    found = sorted((int(row[0]), int(row[1]), int(row[2]), row[4]) for row in csv.reader(lines))
    assert found and found == sorted(
        (auction, bidder, price, f"value {auction % 10_000}")
        for auction, bidder, price in bids
        if auction % 10_000 % 3 == 0
    )


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.integers(1, 2))
def test_a_delete_retracts_the_rows_that_were_joined_originally(seed: int, keeps_all: bool, parallelism: int) -> None:
    random = Random(seed)
    table = random_changelog(random, 5, 8, only_grows=False, keys=3)
    out = Collect()
    APPEARING.clear()
    ASKED.clear()

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        stream = env.add_source(Script(table.script([seed % 5]), type_info=TYPE), type_info=TYPE)
        t_env.create_temporary_view("t", t_env.from_changelog_stream(stream))
        t_env.execute_sql(
            "CREATE TABLE places (id INT, city STRING, asked INT) WITH ('connector' = 'python', 'function' = "
            f"'{__name__}:changing_cities')"
        )
        kind = "LEFT" if keeps_all else ""
        query = f"SELECT k, v, s, id, city, asked FROM (SELECT *, PROCTIME() AS p FROM t) {kind} JOIN places FOR "
        t_env.to_changelog_stream(t_env.sql_query(f"{query} SYSTEM_TIME AS OF p ON k = id")).sink_to(out)

    result = run(build, parallelism=parallelism)
    for epoch in range(1, 6):
        # Deletes retract existing rows: retracting any other row fails here.
        given = materialised(record.value for record in result.of(out) if record.epoch <= epoch)
        rows = materialised(row for rows in table.epochs[:epoch] for row in rows)
        expected: Counter[Any] = Counter()
        for (k, v, s, _), count in rows.items():
            found = [] if k is None else [(k, f"{k} {copy}") for copy in range(k)]
            for id_and_city in found or ([(None, None)] if keeps_all else []):
                expected[k, v, s, *id_and_city] += count
        assert _without_last(given) == expected


def _without_last(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    counts: Counter[tuple[Any, ...]] = Counter()
    for row, count in rows.items():
        counts[row[:-1]] += count
    return counts


def changing_cities(keys: pa.RecordBatch) -> list[dict[str, Any]]:
    """As many rows as the key's value, different on every lookup."""
    ASKED.append([])
    found = keys.column(0).to_pylist()
    return [{"id": key, "city": f"{key} {copy}", "asked": len(ASKED)} for key in found for copy in range(key)]
