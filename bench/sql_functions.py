"""The functions and tables of `bench_sql`'s comparison with PyFlink: the same code runs in both."""

from __future__ import annotations

from typing import Any

__all__ = ["TABLES", "per_row", "per_series"]

TABLES = (
    "DROP TABLE IF EXISTS numbers",
    "DROP TABLE IF EXISTS taken",
    "CREATE TABLE numbers (n BIGINT, m BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000000000', "
    "'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '{rows}', "
    "'fields.m.min' = '0', 'fields.m.max' = '1000')",
    "CREATE TABLE taken (value_taken BIGINT) WITH ('connector' = 'blackhole')",
)


def per_row(n: int, m: int) -> int:
    return n * 3 + m


def per_series(n: Any, m: Any) -> Any:
    return n * 3 + m
