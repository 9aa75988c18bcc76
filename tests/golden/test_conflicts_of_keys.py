"""INSERT … ON CONFLICT: several rows of a query with one key of the target table."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from changing_tables import ADDED, TYPE, Changelog, random_changelog
from programs.relations import kept_tables

from millstream.common.types import Row, RowKind
from millstream.errors import MillstreamError
from millstream.table import StreamTableEnvironment
from millstream.testing import Collect, Script, run

COLUMNS = "k INT, v BIGINT, s STRING"


def tables_of(query: str, table: Changelog, *, grows: bool = False, parallelism: int = 1) -> list[dict[Any, Any]]:
    """The contents of a table keyed by k after every epoch."""
    out = Collect()

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        stream = env.add_source(Script(table.script(), type_info=TYPE), type_info=TYPE)
        made = t_env.from_data_stream(stream) if grows else t_env.from_changelog_stream(stream)
        t_env.create_temporary_view("t", made)
        t_env.execute_sql(f"CREATE TABLE sink ({COLUMNS}, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'kept')")
        statements = t_env.create_statement_set()
        statements.add_insert_sql(f"INSERT INTO sink {query}")
        with kept_tables(out):
            statements.attach_as_datastream()

    result = run(build, parallelism=parallelism)
    held: dict[Any, Any] = {}
    tables = []
    for epoch in range(1, len(table.epochs) + 1):
        for record in (record for record in result.of(out) if record.epoch == epoch):
            key, values = record.value[0], tuple(record.value)
            if record.value.get_row_kind() in ADDED:
                held[key] = values
            else:
                held.pop(key, None)
        tables.append(dict(held))
    return tables


def firsts_of(table: Changelog) -> list[dict[Any, Any]]:
    """The first of the present rows of each key, after every epoch."""
    live: list[tuple[Any, ...]] = []
    tables = []
    for epoch in table.epochs:
        for change in epoch:
            row = (change[0], change[1], change[2])
            if change.get_row_kind() in ADDED:
                live.append(row)
            else:
                live.remove(row)
        tables.append({row[0]: row for row in reversed(live) if row[0] is not None})
    return tables


@pytest.mark.parametrize("grows", [True, False], ids=["only-grows", "changes"])
def test_do_nothing_keeps_the_first_row_of_each_key(grows: bool) -> None:
    query = "SELECT k, v, s FROM t WHERE k IS NOT NULL ON CONFLICT DO NOTHING"
    for seed in range(3):
        table = random_changelog(Random(f"nothing {grows} {seed}"), 4, 12, only_grows=grows)
        assert tables_of(query, table, grows=grows, parallelism=1 + seed % 2) == firsts_of(table)


def test_do_error_passes_rows_with_distinct_keys() -> None:
    query = "SELECT k, SUM(v), MAX(s) FROM t WHERE k IS NOT NULL GROUP BY k ON CONFLICT DO {}"
    table = random_changelog(Random("unique"), 4, 12, only_grows=False)
    assert tables_of(query.format("ERROR"), table) == tables_of(query.format("DEDUPLICATE"), table)


def test_do_error_fails_if_two_rows_share_a_key() -> None:
    table = Changelog([[_row(1, "a")], [_row(2, "a")], [_row(1, "b")]])
    with pytest.raises(MillstreamError, match="ON CONFLICT DO ERROR: 2 rows have one primary key"):
        tables_of("SELECT k, v, s FROM t ON CONFLICT DO ERROR", table)


def test_an_updated_row_does_not_conflict_with_its_previous_version() -> None:
    before, after = _row(1, "a", RowKind.UPDATE_BEFORE), _row(1, "b", RowKind.UPDATE_AFTER)
    table = Changelog([[_row(1, "a")], [before, after]])
    query = "SELECT k, v, s FROM t ON CONFLICT DO ERROR"
    assert tables_of(query, table) == [{1: (1, 0, "a")}, {1: (1, 0, "b")}]


def test_equal_rows_conflict_too() -> None:
    table = Changelog([[_row(1, "a"), _row(1, "a")]])
    with pytest.raises(MillstreamError, match="2 rows have one primary key"):
        tables_of("SELECT k, v, s FROM t ON CONFLICT DO ERROR", table)
    assert tables_of("SELECT k, v, s FROM t ON CONFLICT DO NOTHING", table) == [{1: (1, 0, "a")}]


def _row(key: int, text: str, kind: RowKind = RowKind.INSERT) -> Row:
    row = Row(key, 0, text, 0.0)
    row.set_row_kind(kind)
    return row
