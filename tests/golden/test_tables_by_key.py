"""Keyed tables as sources and sinks: upserts are normalised into full changes, and a keyed sink equals the query's
result after every epoch.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import duckdb
import pytest
from changing_tables import TYPE, Changelog, answer, materialised, random_changelog
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.relations import kept_tables

from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.runtime.tables.materialise import materialised_slowly
from millstream.runtime.tables.normalise import normalised_slowly
from millstream.table import (
    ChangelogMode,
    DataTypes,
    EnvironmentSettings,
    Schema,
    StreamTableEnvironment,
    TableEnvironment,
)
from millstream.table.udf import udf
from millstream.testing import CRASH, EPOCH, Collect, Script, run
from millstream.testing.local_jobs import jobs_in_memory

ROW = Types.ROW_NAMED(["k", "v", "s"], [Types.INT(), Types.LONG(), Types.STRING()])
SCHEMA = (
    Schema.new_builder()
    .column("k", DataTypes.INT().not_null())
    .column("v", DataTypes.BIGINT())
    .column("s", DataTypes.STRING())
    .primary_key("k")
    .build()
)
COMES = (RowKind.INSERT, RowKind.UPDATE_AFTER)
kinds = st.sampled_from([RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.UPDATE_AFTER, RowKind.DELETE])
upserts = st.tuples(kinds, st.integers(0, 3), st.integers(0, 2) | st.none(), st.sampled_from(["a", "b", None]))


def rows_after(table: Changelog, epochs: int) -> list[tuple[Any, ...]]:
    """The rows of a table after a number of epochs."""
    return list(materialised(row for epoch in table.epochs[:epochs] for row in epoch).elements())


def batch_answer(query: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The batch engine's answer to a query over these rows."""
    with duckdb.connect() as database:
        return answer(database, query, {"t": rows})


def _row(kind: RowKind, values: tuple[Any, ...]) -> Row:
    row = Row(*values)
    row.set_row_kind(kind)
    return row


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(upserts, max_size=6), min_size=1, max_size=4), st.integers(1, 3), st.booleans())
def test_upserts_are_normalised_into_full_changes(epochs: list[Any], parallelism: int, crashes: bool) -> None:
    script: list[Any] = []
    for epoch in epochs:
        # Only the key of a deletion counts.
        script += [_row(kind, (k, v, s)) for kind, k, v, s in epoch]
        script += [CRASH, EPOCH] if crashes else [EPOCH]
    out = Collect()

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        stream = env.add_source(Script(script, type_info=ROW), type_info=ROW)
        table = t_env.from_changelog_stream(stream, SCHEMA, ChangelogMode.upsert())
        t_env.to_changelog_stream(table).sink_to(out)

    result = run(build, parallelism=parallelism)
    table: dict[Any, tuple[Any, ...]] = {}
    for number, epoch in enumerate(epochs, start=1):
        expected = normalised_slowly(table, [(kind, k, (k, v, s)) for kind, k, v, s in epoch])
        given = [record.value for record in result.of(out) if record.epoch == number]
        assert Counter((row.get_row_kind(), tuple(row)) for row in given) == Counter(expected)
    materialised(record.value for record in result.of(out))


def _sink_table(query: str, key: str, columns: str, table: Changelog, **options: Any) -> list[dict[Any, Any]]:
    """The contents of a keyed sink after every epoch; a key written twice in one epoch is a failure."""
    out = Collect()
    names = [name.split()[0] for name in columns.split(", ")]

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        stream = env.add_source(Script(table.script(options.get("crashes", ())), type_info=TYPE), type_info=TYPE)
        t_env.create_temporary_view("t", t_env.from_changelog_stream(stream))
        t_env.execute_sql(
            f"CREATE TABLE sink ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('connector' = 'kept')"
        )
        statements = t_env.create_statement_set()
        statements.add_insert_sql(f"INSERT INTO sink {query}")
        with kept_tables(out):
            statements.attach_as_datastream()

    result = run(build, parallelism=options.get("parallelism", 1))
    at = [names.index(name) for name in key.split(", ")]
    rows: dict[Any, Any] = {}
    tables = []
    for epoch in range(1, len(table.epochs) + 1):
        told: Counter[Any] = Counter()
        for record in result.of(out):
            if record.epoch == epoch:
                values = tuple(record.value)
                name = tuple(values[place] for place in at)
                told[name] += 1
                assert record.value.get_row_kind() is not RowKind.UPDATE_BEFORE
                if record.value.get_row_kind() in COMES:
                    rows[name] = values
                else:
                    rows.pop(name, None)
        assert not told or max(told.values()) == 1, told
        tables.append(dict(rows))
    return tables


KEYED = (
    ("SELECT k, COUNT(*), MAX(s) FROM t WHERE k IS NOT NULL GROUP BY k", "k", "k INT, n BIGINT, s STRING"),
    (
        "SELECT k, s, SUM(v) FROM t WHERE k IS NOT NULL AND s IS NOT NULL GROUP BY k, s HAVING COUNT(*) > 1",
        "k, s",
        "k INT, s STRING, v BIGINT",
    ),
    ("SELECT COUNT(*), k FROM t WHERE k IS NOT NULL GROUP BY k", "k, n", "n BIGINT, k INT"),
    (
        "SELECT a.k, a.n, b.m FROM (SELECT k, COUNT(*) AS n FROM t WHERE k IS NOT NULL GROUP BY k) a LEFT JOIN "
        "(SELECT v, COUNT(*) AS m FROM t GROUP BY v) b ON a.n = b.v",
        "k",
        "k INT, n BIGINT, m BIGINT",
    ),
)


@pytest.mark.parametrize(("query", "key", "columns"), KEYED)
def test_a_sink_keyed_like_the_query_matches_it_after_every_epoch(query: str, key: str, columns: str) -> None:
    for seed in range(2):
        random = Random(f"{query} {seed}")
        table = random_changelog(random, 5, random.choice((6, 20)), only_grows=False)
        tables = _sink_table(query, key, columns, table, parallelism=seed * 2 + 1, crashes=[seed])
        for epoch, found in enumerate(tables, start=1):
            assert Counter(found.values()) == Counter(batch_answer(query, rows_after(table, epoch)))


@pytest.mark.parametrize("seed", range(4))
def test_the_latest_row_of_a_sink_key_wins_and_the_previous_one_reappears_on_its_deletion(seed: int) -> None:
    random = Random(seed)
    table = random_changelog(random, 6, 12, only_grows=False, keys=2)
    query = "SELECT k, v, s FROM t WHERE k IS NOT NULL"
    tables = _sink_table(query, "k", "k INT, v BIGINT, s STRING", table, parallelism=seed % 2 + 1, crashes=[seed])
    reference: dict[Any, list[tuple[Any, ...]]] = {}
    expected: dict[Any, Any] = {}
    for rows, found in zip(table.epochs, tables, strict=True):
        changes = [
            (1 if row.get_row_kind() in COMES else -1, (row[0],), tuple(row)[:3]) for row in rows if row[0] is not None
        ]
        expected |= materialised_slowly(reference, changes)
        assert found == {key: row for key, row in expected.items() if row is not None}


UPSERTED = (
    "CREATE TABLE u (k INT, v BIGINT, s STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'values', "
    """'changelog-mode' = 'I,UA,D', 'data' = '[["+U", [1, 5, "a"]], ["+U", [2, 6, "b"]], ["+U", [3, 7, "c"]], """
    """["-D", {"k": 1}], ["+U", [2, null, "c"]], ["+U", [3, 8, "d"]]]')"""
)


def _sink_changes(insert: str, columns: str, table: str = UPSERTED, **options: str) -> list[tuple[Any, ...]]:
    """The changes that a sink keyed by `k` receives, an epoch for each row."""
    out = Collect()
    with jobs_in_memory(), kept_tables(out):
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        for name, value in {"millstream.epoch.max-records": "1", **options}.items():
            t_env.get_config().set(name, value)
        t_env.create_temporary_function("louder", udf(lambda text: text.upper(), result_type=DataTypes.STRING()))
        t_env.execute_sql(table)
        t_env.execute_sql(f"CREATE TABLE sink ({columns}, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'kept')")
        t_env.execute_sql(f"INSERT INTO sink {insert}").wait()
    return [(str(value.get_row_kind()), *value) for value in out.values]


def test_a_deletion_reaches_a_sink_whose_columns_may_not_be_null() -> None:
    # The source emits deletes with the key alone.
    told = _sink_changes("SELECT k, v, s FROM u", "k INT, v BIGINT, s STRING NOT NULL")
    assert ("-D", 1, 5, "a") in told and told[-1] == ("+U", 3, 8, "d")


def test_a_row_dropped_for_a_null_deletes_its_predecessor() -> None:
    drop = {"table.exec.sink.not-null-enforcer": "DROP"}
    told = _sink_changes("SELECT k, v, s FROM u", "k INT, v BIGINT NOT NULL, s STRING", **drop)
    assert [row[:2] for row in told if row[0] == "-D"] == [("-D", 1), ("-D", 2)]
    rows = '[["+I", [1, 5]], ["+I", [1, null]], ["-D", [1, 5]]]'
    changing = "CREATE TABLE c (k INT, v BIGINT) WITH ('connector' = 'values', 'changelog-mode' = 'I,D', 'data' = '{}')"
    told = _sink_changes(
        "SELECT k, MAX(v) FROM c GROUP BY k", "k INT, v BIGINT NOT NULL", changing.format(rows), **drop
    )
    assert told == [("+I", 1, 5), ("-D", 1, 5)]


def test_a_function_is_not_called_for_a_key_only_deletion() -> None:
    plans = []
    for columns in ("s STRING NOT NULL", "s STRING"):
        table = UPSERTED.replace("s STRING", columns)
        with kept_tables(Collect()):
            t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
            t_env.create_temporary_function("louder", udf(lambda text: text, result_type=DataTypes.STRING()))
            t_env.execute_sql(table)
            t_env.execute_sql(
                "CREATE TABLE sink (k INT, s STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'kept')"
            )
            plans.append(t_env.explain_sql("INSERT INTO sink SELECT k, louder(s) FROM u"))
    assert ["ChangelogNormalize" in plan.split("== Optimized Physical")[1] for plan in plans] == [True, False]


OVER_UPSERTS = (
    "SELECT s, COUNT(*), SUM(v), MAX(v) FROM t GROUP BY s",
    "SELECT a.k, a.v, b.k FROM t a LEFT JOIN t b ON a.v = b.v AND a.k <> b.k",
    "SELECT k, v, s FROM t WHERE v > 0 AND k < 3",
    "SELECT s, v, k FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY s ORDER BY v DESC NULLS LAST, k) = 1",
    "SELECT v FROM t WHERE k < 2 EXCEPT SELECT v FROM t WHERE k >= 2",
)


@pytest.mark.parametrize("query", OVER_UPSERTS)
def test_a_query_over_upserts_matches_the_batch_answer_after_every_epoch(query: str) -> None:
    random = Random(query)
    epochs: list[list[tuple[RowKind, tuple[Any, ...]]]] = [
        [
            (
                random.choice((RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.UPDATE_AFTER, RowKind.DELETE)),
                (random.randrange(5), random.choice((None, 1, 2, 3)), random.choice(("a", "b", None))),
            )
            for _ in range(random.randrange(9))
        ]
        for _ in range(6)
    ]
    script: list[Any] = []
    for number, epoch in enumerate(epochs):
        script += [_row(kind, values) for kind, values in epoch]
        script += [CRASH, EPOCH] if number == 2 else [EPOCH]
    out = Collect()

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        stream = env.add_source(Script(script, type_info=ROW), type_info=ROW)
        t_env.create_temporary_view("t", t_env.from_changelog_stream(stream, SCHEMA, ChangelogMode.upsert()))
        t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(out)

    result = run(build, parallelism=2)
    table: dict[Any, tuple[Any, ...]] = {}
    for number, epoch in enumerate(epochs, start=1):
        for kind, values in epoch:
            table.pop(values[0], None)
            if kind in COMES:
                table[values[0]] = values
        given = materialised(record.value for record in result.of(out) if record.epoch <= number)
        rows = [(*values, None) for values in table.values()]
        assert given == Counter(batch_answer(query, rows)), f"epoch {number}"
