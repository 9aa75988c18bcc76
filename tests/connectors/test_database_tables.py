"""Tables of a real PostgreSQL as tables of SQL: read in a snapshot, written by key, and followed change by change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from database_rows import query
from servers.postgres import PostgresServer

from millstream.connectors.databases.change_reader import close_kept
from millstream.errors import MillstreamError
from millstream.table import EnvironmentSettings, ExplainDetail, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory


@pytest.fixture
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        yield TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    close_kept()


def jdbc(server: PostgresServer, table: str) -> str:
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/test"
    return f"'connector' = 'jdbc', 'url' = '{url}', 'table-name' = '{table}', 'username' = 'postgres'"


def changes(t_env: TableEnvironment, statement: str) -> list[tuple[Any, ...]]:
    with t_env.execute_sql(statement).collect() as found:
        return sorted((str(row.get_row_kind()), *row) for row in found)


def told(row: Any) -> tuple[Any, ...]:
    return (str(row.get_row_kind()), *row[:2], str(row[2]))


COLUMNS = (
    "id INT, name STRING, price DECIMAL(10, 2), `day` DATE, `at` TIMESTAMP(3), moment TIMESTAMP_LTZ(6), clock TIME, "
    "data BYTES, parts ARRAY<INT>, yes BOOLEAN, PRIMARY KEY (id) NOT ENFORCED"
)
THEIRS = (
    "id int primary key, name text, price numeric(10, 2), day date, at timestamp, moment timestamptz, clock time, "
    "data bytea, parts int[], yes bool"
)
VALUES = (
    "(1, 'a', 1.50, DATE '2026-11-16', TIMESTAMP '2026-11-16 21:00:00.123', "
    "CAST(TIMESTAMP '2026-11-16 20:00:00' AS TIMESTAMP_LTZ(6)), TIME '12:30:00', X'00FF', ARRAY[1, 2], TRUE)"
)


def test_rows_of_every_type_go_into_a_table_and_come_back(
    t_env: TableEnvironment, postgres_server: PostgresServer, unique_name: str
) -> None:
    query(postgres_server, f"create table {unique_name} ({THEIRS})")
    t_env.execute_sql(f"CREATE TABLE t ({COLUMNS}) WITH ({jdbc(postgres_server, unique_name)})")
    t_env.execute_sql(f"INSERT INTO t VALUES {VALUES}").wait()
    [row] = query(postgres_server, f"select id, name, price::text, day::text, parts, yes from {unique_name}")
    assert row == (1, "a", "1.50", "2026-11-16", [1, 2], True)
    [found] = changes(t_env, "SELECT * FROM t")
    assert found[:4] == ("+I", 1, "a", found[3]) and str(found[3]) == "1.50"
    [values] = changes(t_env, f"SELECT * FROM (VALUES {VALUES})")
    assert found[4:] == values[4:]


def test_a_query_that_changes_is_written_by_key(
    t_env: TableEnvironment, postgres_server: PostgresServer, unique_name: str
) -> None:
    query(postgres_server, f"create table {unique_name} (name text primary key, n bigint)")
    query(postgres_server, f"insert into {unique_name} values ('gone', 1), ('stays', 1)")
    data = '[["+I",["gone",1]],["+I",["stays",2]],["-D",["gone",1]],["+U",["stays",5]]]'
    t_env.execute_sql(
        "CREATE TABLE c (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH ('connector' = 'values', "
        f"'changelog-mode' = 'I,UA,D', 'data' = '{data}')"
    )
    options = jdbc(postgres_server, unique_name)
    t_env.execute_sql(f"CREATE TABLE t (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH ({options})")
    t_env.execute_sql("INSERT INTO t SELECT name, n FROM c").wait()
    assert query(postgres_server, f"select * from {unique_name}") == [("stays", 5)]
    t_env.execute_sql("INSERT INTO t SELECT name, SUM(n) * 2 FROM c GROUP BY name").wait()
    assert query(postgres_server, f"select * from {unique_name}") == [("stays", 10)]
    t_env.execute_sql(f"CREATE TABLE plain (name STRING, n BIGINT) WITH ({options})")
    with pytest.raises(MillstreamError, match="doesn't support consuming update and delete changes"):
        t_env.execute_sql("INSERT INTO plain SELECT name, n FROM c")


def test_a_table_and_its_changes_are_one_table(
    t_env: TableEnvironment, postgres_server: PostgresServer, unique_name: str
) -> None:
    query(postgres_server, f"create table {unique_name} (id int primary key, name text, n numeric(20, 2))")
    query(postgres_server, f"alter table {unique_name} replica identity full")
    query(postgres_server, f"insert into {unique_name} values (1, 'a', 1), (2, 'b', 2)")
    t_env.execute_sql(
        "CREATE TABLE t (id INT, name STRING, n DECIMAL(20, 2), PRIMARY KEY (id) NOT ENFORCED) WITH ("
        f"'connector' = 'postgres-cdc', 'hostname' = '127.0.0.1', 'port' = '{postgres_server.port}', "
        f"'username' = 'postgres', 'database-name' = 'test', 'table-name' = '{unique_name}', "
        f"'slot.name' = '{unique_name[-12:]}')"
    )
    try:
        with t_env.execute_sql("SELECT id, name, n FROM t").collect() as rows:
            assert {told(next(rows)), told(next(rows))} == {("+I", 1, "a", "1.00"), ("+I", 2, "b", "2.00")}
            query(postgres_server, f"update {unique_name} set n = 5 where id = 1")
            assert [told(next(rows)), told(next(rows))] == [("-U", 1, "a", "1.00"), ("+U", 1, "a", "5.00")]
            query(postgres_server, f"delete from {unique_name} where id = 2")
            assert told(next(rows)) == ("-D", 2, "b", "2.00")
        mode = t_env.explain_sql("SELECT * FROM t", ExplainDetail.CHANGELOG_MODE)
        assert "changelogMode=[I,UB,UA,D]" in mode
    finally:
        query(
            postgres_server,
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots "
            f"where slot_name like '{unique_name[-12:]}%'",
        )


def test_rows_are_looked_up_by_key(t_env: TableEnvironment, postgres_server: PostgresServer, unique_name: str) -> None:
    query(
        postgres_server, f"create table {unique_name} (id int, part text, price numeric(10, 2), primary key (id, part))"
    )
    query(postgres_server, f"insert into {unique_name} values (1, 'a', 1.5), (1, 'b', 2), (2, 'a', 3)")
    t_env.execute_sql(
        "CREATE TABLE o (id INT, part STRING, p AS PROCTIME()) WITH ('connector' = 'values', 'data' = "
        '\'[[1, "a"], [1, "b"], [2, "b"], [1, "a"], [null, "a"]]\')'
    )
    options = f"{jdbc(postgres_server, unique_name)}, 'lookup.cache' = 'PARTIAL', 'lookup.request-keys' = '1'"
    t_env.execute_sql(f"CREATE TABLE prices (id INT, part STRING, price DECIMAL(10, 2)) WITH ({options})")
    joined = "FROM o LEFT JOIN prices FOR SYSTEM_TIME AS OF o.p AS d ON o.id = d.id AND o.part = d.part"
    with t_env.execute_sql(f"SELECT o.id, o.part, d.price {joined}").collect() as rows:
        found = sorted(tuple(map(str, row)) for row in rows)
    assert found == [
        ("1", "a", "1.50"), ("1", "a", "1.50"), ("1", "b", "2.00"), ("2", "b", "None"), ("None", "a", "None"),
    ]  # fmt: skip
    t_env.execute_sql(f"CREATE TABLE wrong (id INT, nothing STRING) WITH ({options})")
    with pytest.raises(MillstreamError, match='column "nothing" does not exist'):
        t_env.execute_sql("SELECT nothing FROM o JOIN wrong FOR SYSTEM_TIME AS OF o.p AS d ON o.id = d.id").print()
