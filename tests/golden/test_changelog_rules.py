"""Changelog modes of sinks and conversions, and the checks before a job starts that could not be correct."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from programs.relations import kept_tables

from millstream import query
from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.errors import MillstreamError
from millstream.table import (
    ChangelogMode,
    DataTypes,
    EnvironmentSettings,
    Schema,
    StreamTableEnvironment,
    TableEnvironment,
)
from millstream.testing import EPOCH, Collect, Script, run
from millstream.testing.local_jobs import jobs_in_memory

ROW = Types.ROW_NAMED(["k", "v"], [Types.INT(), Types.LONG()])
CHANGES = (
    "CREATE TABLE c (k INT, v BIGINT) WITH ('connector' = 'values', 'changelog-mode' = 'I,UB,UA,D', "
    "'data' = '[[\"+I\", [1, 1]]]')"
)


@pytest.fixture
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory(), kept_tables(Collect()):
        made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        made.execute_sql(CHANGES)
        yield made


def _row(kind: RowKind, *values: Any) -> Row:
    row = Row(*values)
    row.set_row_kind(kind)
    return row


def changes_of(
    schema: Schema | None, mode: ChangelogMode | None, query: str = "SELECT k, SUM(v) AS v FROM t GROUP BY k"
) -> Any:
    """The changes of a query as a stream emits them: epoch, kind and values."""
    out = Collect()
    script = [
        _row(RowKind.INSERT, 1, 1), _row(RowKind.INSERT, 2, 5), EPOCH,
        _row(RowKind.UPDATE_BEFORE, 1, 1), _row(RowKind.UPDATE_AFTER, 1, 3), EPOCH, _row(RowKind.DELETE, 2, 5), EPOCH,
    ]  # fmt: skip

    def build(env: Any) -> None:
        made = StreamTableEnvironment.create(env)
        stream = env.add_source(Script(script, type_info=ROW), type_info=ROW)
        made.create_temporary_view("t", made.from_changelog_stream(stream))
        made.to_changelog_stream(made.sql_query(query), schema, mode).sink_to(out)

    result = run(build)
    return sorted((record.epoch, str(record.value.get_row_kind()), *record.value) for record in result.of(out))


KEYED = (
    Schema.new_builder()
    .column("k", DataTypes.BIGINT().not_null())
    .column("v", DataTypes.STRING())
    .primary_key("k")
    .build()
)


def test_a_stream_has_all_changes_or_upserts_by_a_key() -> None:
    assert changes_of(None, None) == [
        (1, "+I", 1, 1), (1, "+I", 2, 5), (2, "+U", 1, 3), (2, "-U", 1, 1), (3, "-D", 2, 5),
    ]  # fmt: skip
    query = "SELECT CAST(k AS BIGINT) AS k, CAST(SUM(v) AS STRING) AS v FROM t WHERE k IS NOT NULL GROUP BY k"
    assert changes_of(KEYED, ChangelogMode.upsert(), query) == [
        (1, "+I", 1, "1"), (1, "+I", 2, "5"), (2, "+U", 1, "3"), (3, "-D", 2, "5"),
    ]  # fmt: skip


def test_an_invalid_changelog_mode_is_rejected() -> None:
    with pytest.raises(MillstreamError, match="doesn't support consuming update and delete changes"):
        changes_of(None, ChangelogMode.insert_only())
    with pytest.raises(MillstreamError, match="upserts need a key"):
        changes_of(None, ChangelogMode.upsert())
    other = Schema.new_builder().column("k", DataTypes.DATE()).column("v", DataTypes.STRING()).build()
    with pytest.raises(MillstreamError, match="Incompatible types for sink column 'k'"):
        changes_of(other, None)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT r, COUNT(*) FROM (SELECT k, RAND() AS r FROM c) x GROUP BY r", r"The column\(s\): r can not satisfy"),
        ("SELECT k FROM c WHERE RAND() < 0.5", "The condition can not satisfy"),
        ("SELECT x.k, y.k FROM (SELECT k, UUID() AS u FROM c) x JOIN c y ON x.u = CAST(y.v AS STRING)", "u can not"),
    ],
)
def test_a_nondeterministic_update_is_rejected_unless_allowed(t_env: TableEnvironment, query: str, words: str) -> None:
    with pytest.raises(MillstreamError, match=words):
        t_env.execute_sql(query)
    t_env.get_config().set("table.optimizer.non-deterministic-update.strategy", "IGNORE")
    t_env.explain_sql(query)


def test_nondeterministic_columns_are_allowed_in_an_append_only_query(t_env: TableEnvironment) -> None:
    t_env.explain_sql("SELECT k, COUNT(*), RAND() FROM c GROUP BY k")
    t_env.explain_sql("SELECT r, COUNT(*) FROM (SELECT RAND() AS r FROM (VALUES (1)) AS v (a)) x GROUP BY r")
    t_env.execute_sql("CREATE TABLE s (k INT, r DOUBLE, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'kept')")
    t_env.execute_sql("INSERT INTO s SELECT k, RAND() FROM c GROUP BY k")
    with pytest.raises(MillstreamError, match="can not satisfy the determinism requirement"):
        t_env.execute_sql("INSERT INTO s SELECT k, RAND() FROM c")


def test_a_changelog_is_rejected_in_batch_mode() -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    t_env.execute_sql(CHANGES)
    with pytest.raises(MillstreamError, match="only possible for INSERT-only table sources"):
        t_env.execute_sql("SELECT * FROM c")


def test_upserts_without_a_key_are_rejected(t_env: TableEnvironment) -> None:
    t_env.execute_sql("CREATE TABLE u (k INT) WITH ('connector' = 'values', 'changelog-mode' = 'I,UA,D')")
    with pytest.raises(MillstreamError, match=r"is a changelog of upserts.*has no primary key"):
        t_env.execute_sql("SELECT * FROM u")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, COUNT(*) FROM d GROUP BY k",
        "SELECT * FROM d QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) = 1",
        "SELECT * FROM d JOIN c ON d.k = c.k",
    ],
)
def test_a_retraction_of_an_absent_row_is_reported_with_the_row(t_env: TableEnvironment, query: str) -> None:
    t_env.execute_sql(CHANGES.replace("TABLE c", "TABLE d").replace('"+I", [1, 1]', '"-D", [7, 77]'))
    with pytest.raises(MillstreamError, match="retracted that was never inserted") as caught:
        t_env.execute_sql(query).print()
    assert "7" in str(caught.value)


def test_duplicate_changes_are_normalised(t_env: TableEnvironment) -> None:
    data = '[["+I",[1,1]],["+I",[1,1]],["-U",[1,1]],["+U",[1,2]],["-D",[9,9]]]'
    t_env.execute_sql(
        "CREATE TABLE twice (k INT, v BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'values', "
        f"'changelog-mode' = 'I,UB,UA,D', 'data' = '{data}')"
    )
    t_env.get_config().set("table.exec.source.cdc-events-duplicate", "true")
    with t_env.execute_sql("SELECT COUNT(*), SUM(v) FROM twice").collect() as rows:
        assert [tuple(row) for row in rows] == [(1, 2)]


COMING_AND_GOING = '[["+I", [1, 10]], ["+I", [1, 20]], ["-D", [1, 20]], ["+I", [2, 5]]]'


def test_retracting_changes_are_no_upserts_and_need_no_key(t_env: TableEnvironment) -> None:
    t_env.execute_sql(
        "CREATE TABLE log (k INT, v BIGINT) WITH ('connector' = 'values', 'changelog-mode' = 'I,D', "
        f"'data' = '{COMING_AND_GOING}')"
    )
    with t_env.execute_sql("SELECT k, v FROM log").collect() as rows:
        assert sorted(tuple(row) for row in rows if row.get_row_kind() is RowKind.INSERT)[:1] == [(1, 10)]
    with t_env.execute_sql("SELECT COUNT(*), SUM(v) FROM log").collect() as rows:
        assert [tuple(row) for row in rows][-1] == (2, 15)


def test_the_previous_row_of_a_key_reappears_in_a_queryable_table() -> None:
    store = "coming-and-going"

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        t_env.execute_sql(
            "CREATE TABLE told (op STRING, k INT, v BIGINT) WITH ('connector' = 'values', "
            """'data' = '[["c", 1, 10], ["c", 1, 20], ["d", 1, 20], ["c", 2, 5]]')"""
        )
        t_env.execute_sql(
            "CREATE TABLE last (k INT, v BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'state')"
        )
        statements = t_env.create_statement_set()
        statements.add_insert_sql(
            "INSERT INTO last SELECT k, v FROM FROM_CHANGELOG(input => TABLE told, op => DESCRIPTOR(op), "
            "op_mapping => MAP['c', 'INSERT', 'd', 'DELETE'])"
        )
        statements.attach_as_datastream()

    run(build, store=store, epoch_records=1)
    rows = query.open(f"memory://{store}").newest().table("last").all().to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [(1, 10), (2, 5)]
