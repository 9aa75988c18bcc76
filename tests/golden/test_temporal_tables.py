"""Temporal joins: rows join the version of a keyed, upserted table that was valid at their time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millstream.errors import MillstreamError
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

RATES = [
    ["+I", ["usd", 100, "2024-01-01 00:00:01"]],
    ["+U", ["usd", 110, "2024-01-01 00:00:05"]],
    ["-D", ["usd", 110, "2024-01-01 00:00:09"]],
    ["+I", ["eur", 7, "2024-01-01 00:00:02"]],
]
ORDERS = [
    [number, currency, f"2024-01-01 00:00:{second:02d}"]
    for number, currency, second in (
        (1, "usd", 0),
        (2, "usd", 4),
        (3, "usd", 5),
        (4, "usd", 10),
        (5, "eur", 10),
        (6, None, 10),
    )
]


def with_tables(key: str = "STRING", rates: list[Any] = RATES) -> TableEnvironment:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    time = "ts TIMESTAMP(3), since AS CAST(DATE '2023-12-31' AS TIMESTAMP(3)), WATERMARK FOR ts AS ts"
    t_env.execute_sql(
        f"CREATE TABLE rates (c {key}, rate INT, {time}, PRIMARY KEY (c) NOT ENFORCED) WITH "
        f"('connector' = 'values', 'changelog-mode' = 'I,UA,D', 'data' = '{json.dumps(rates)}')"
    )
    t_env.execute_sql(
        f"CREATE TABLE orders (n INT, c STRING, {time}) WITH ('connector' = 'values', 'data' = '{json.dumps(ORDERS)}')"
    )
    return t_env


@pytest.mark.parametrize(
    ("join", "expected"),
    [
        ("LEFT JOIN", [(1, None), (2, 100), (3, 110), (4, None), (5, 7), (6, None)]),
        ("JOIN", [(2, 100), (3, 110), (5, 7)]),
    ],
)
def test_a_row_joins_the_version_at_its_time_and_none_after_a_delete(
    join: str, expected: list[tuple[int, int | None]]
) -> None:
    query = f"SELECT o.n, r.rate FROM orders o {join} rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.c = r.c"
    with jobs_in_memory():
        given = [tuple(row) for row in with_tables().execute_sql(query).collect()]
    assert sorted(given) == expected


def test_a_condition_on_the_version_does_not_match_an_older_one() -> None:
    query = (
        "SELECT o.n, r.rate FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.c = r.c AND r.rate <= 100 "
        "WHERE r.rate > 1"
    )
    with jobs_in_memory():
        given = [tuple(row) for row in with_tables().execute_sql(query).collect()]
    assert sorted(given) == [(2, 100), (5, 7)]  # at 5 s the rate was 110, which the condition rejects


def test_an_equality_on_a_non_key_column_does_not_match_an_older_version() -> None:
    query = (
        "SELECT o.n, r.rate FROM orders o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r "
        "ON o.c = r.c AND o.n + 98 = r.rate AND r.c = 'usd'"
    )
    with jobs_in_memory():
        given = [tuple(row) for row in with_tables().execute_sql(query).collect()]
    # Order 2 matches 100. Order 3 would match 101, but 100 is no longer the rate then.
    assert sorted(given) == [(1, None), (2, 100), (3, None), (4, None), (5, None), (6, None)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("WHERE r.rate = o.n + 97", []),  # order 3 arrives when the rate is 110, no longer 100
        ("WHERE r.rate = o.n + 98", [(2, 100)]),
        ("WHERE r.rate > o.n + 100", [(3, 110)]),
        ("WHERE r.since <= o.ts", [(2, 100), (3, 110), (5, 7)]),
        ("AND r.since <= o.ts", [(2, 100), (3, 110), (5, 7)]),
        ("AND r.ts <= o.since", []),
    ],
)
def test_a_condition_on_both_sides_applies_to_the_version_and_matches_no_other(
    condition: str, expected: list[tuple[int, int]]
) -> None:
    query = f"SELECT o.n, r.rate FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.c = r.c {condition}"
    with jobs_in_memory():
        given = [tuple(row) for row in with_tables().execute_sql(query).collect()]
    assert sorted(given) == expected


@pytest.mark.parametrize("key", ["VARCHAR(10)", "CHAR(3)"])
def test_a_key_of_another_declared_length_is_the_same_key(key: str) -> None:
    query = "SELECT o.n, r.rate FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.c = r.c"
    with jobs_in_memory():
        given = [tuple(row) for row in with_tables(key).execute_sql(query).collect()]
    assert sorted(given) == [(2, 100), (3, 110), (5, 7)]


def test_a_key_only_delete_needs_a_timestamp_only_in_a_versioned_table() -> None:
    rates = [*RATES, ["-D", ["eur", None, None]], ["+I", ["chf", 9, "2024-01-01 00:00:12"]]]
    with jobs_in_memory():
        t_env = with_tables(rates=rates)
        counted = [tuple(row) for row in t_env.execute_sql("SELECT COUNT(*), SUM(rate), MAX(ts) FROM rates").collect()]
        query = "SELECT r.rate FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.c = r.c"
        with pytest.raises(MillstreamError, match="deletes its key without a time"):
            list(t_env.execute_sql(query).collect())
    assert counted[-1][:2] == (1, 9)


def test_an_unsupported_lookup_key_is_rejected() -> None:
    t_env = with_tables("ARRAY<INT>")
    t_env.execute_sql(
        "CREATE TABLE listed (c ARRAY<INT>, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH "
        "('connector' = 'values', 'data' = '[]')"
    )
    query = "SELECT r.rate FROM listed o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.c = r.c"
    with pytest.raises(MillstreamError, match="looks versions up by key, which ARRAY<INT> = ARRAY<INT>"):
        t_env.execute_sql(query)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.n = r.rate", "primary key must be included"),
        ("orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON r.c = 'usd'", "primary key must be included"),
        ("orders o JOIN orders FOR SYSTEM_TIME AS OF o.ts AS r ON o.n = r.n", "no primary key can be found"),
        ("orders o FULL JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.c = r.c", "only supports INNER and LEFT"),
    ],
)
def test_an_unsupported_temporal_join_is_rejected(query: str, words: str) -> None:
    with pytest.raises(MillstreamError, match=words):
        with_tables().explain_sql(f"SELECT o.n FROM {query}")
