"""Tables of a real PostgreSQL as SQL tables: read in a snapshot, upserted by key, and captured change by change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from database_rows import query
from servers.mariadb import MariadbServer
from servers.postgres import PostgresServer

from millstream.connectors.databases.change_reader import close_cached
from millstream.errors import MillstreamError
from millstream.table import EnvironmentSettings, ExplainDetail, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory


@pytest.fixture
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        yield TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    close_cached()


def jdbc(server: PostgresServer, table: str) -> str:
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/test"
    return f"'connector' = 'jdbc', 'url' = '{url}', 'table-name' = '{table}', 'username' = 'postgres'"


def changes(t_env: TableEnvironment, statement: str) -> list[tuple[Any, ...]]:
    with t_env.execute_sql(statement).collect() as found:
        return sorted((str(row.get_row_kind()), *row) for row in found)


def as_text(row: Any) -> tuple[Any, ...]:
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


def test_rows_of_every_type_round_trip_through_a_table(
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


def test_an_updating_query_is_written_by_key(
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
            assert {as_text(next(rows)), as_text(next(rows))} == {("+I", 1, "a", "1.00"), ("+I", 2, "b", "2.00")}
            query(postgres_server, f"update {unique_name} set n = 5 where id = 1")
            assert [as_text(next(rows)), as_text(next(rows))] == [("-U", 1, "a", "1.00"), ("+U", 1, "a", "5.00")]
            query(postgres_server, f"delete from {unique_name} where id = 2")
            assert as_text(next(rows)) == ("-D", 2, "b", "2.00")
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


ODD_THEIRS = (
    "id int, u uuid, j jsonb, i inet, iv interval, d numeric(12, 3), n numeric(12, 3), t time, ts timestamp, "
    "z timestamptz, b bytea, p text[], y bool, r real, c char(4), m money, e text"
)
ODD_OURS = (
    "id INT, u STRING, j STRING, i STRING, iv STRING, d DOUBLE, n DECIMAL(12, 3), t TIME, ts TIMESTAMP(6), "
    "z TIMESTAMP_LTZ(6), b BYTES, p ARRAY<STRING>, y BOOLEAN, r FLOAT, c STRING, m STRING, e STRING"
)
ODD_ROWS = (
    "(1, '0189c7e4-0000-7000-8000-00000000002a', '{\"a\": [1, null]}', '10.0.0.7', '1 day 02:03:04', 1.5, 2.25, "
    "'12:30:00', '2026-11-18 21:00:00.123456', '2026-11-18 21:00:00+02', '\\x00ff', '{a,NULL,\"b,c\"}', true, 0.1, "
    "'ab', '12.50', ''), (2" + ", null" * 16 + ")"
)


def test_a_lookup_reads_every_column_as_a_scan_does(
    t_env: TableEnvironment, postgres_server: PostgresServer, unique_name: str
) -> None:
    query(postgres_server, f"create table {unique_name} ({ODD_THEIRS})")
    query(postgres_server, f"insert into {unique_name} values {ODD_ROWS}")
    t_env.execute_sql(f"CREATE TABLE t ({ODD_OURS}) WITH ({jdbc(postgres_server, unique_name)})")
    t_env.execute_sql(
        "CREATE TABLE o (k INT, p AS PROCTIME()) WITH ('connector' = 'values', 'data' = '[[1], [2], [3]]')"
    )
    scanned = changes(t_env, "SELECT * FROM t")
    with t_env.execute_sql("SELECT t.* FROM o JOIN t FOR SYSTEM_TIME AS OF o.p ON o.k = t.id").collect() as rows:
        looked_up = sorted((str(row.get_row_kind()), *row) for row in rows)
    assert looked_up == scanned and len(scanned) == 2
    assert scanned[0][2:7] == (
        "0189c7e4-0000-7000-8000-00000000002a", '{"a": [1, null]}', "10.0.0.7", "1 day 02:03:04", 1.5,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("theirs", "ours", "value", "bad"),
    [
        ("uuid", "STRING", "0189c7e4-0000-7000-8000-00000000002a", "no uuid"),
        ("int", "STRING", "7", "99999999999999"),
        ("text", "STRING", "a", "a\\u0000b"),
        ("inet", "STRING", "10.0.0.7", "10.0.0.777"),
        ("jsonb", "STRING", "[]", "["),
        ("timestamp", "STRING", "2026-11-18 21:00:00", "2026-13-18 21:00:00"),
    ],
)
def test_a_lookup_key_outside_the_columns_type_matches_nothing_and_does_not_fail(
    theirs: str,
    ours: str,
    value: str,
    bad: str,
    t_env: TableEnvironment,
    postgres_server: PostgresServer,
    unique_name: str,
) -> None:
    query(postgres_server, f"create table {unique_name} (k {theirs}, n int)")
    query(postgres_server, f"insert into {unique_name} values ('{value}', 1)")
    t_env.execute_sql(f"CREATE TABLE t (k {ours}, n INT) WITH ({jdbc(postgres_server, unique_name)})")
    data = f'[["{value}"], ["{bad}"], ["{value}"], [null]]'
    t_env.execute_sql(f"CREATE TABLE o (k STRING, p AS PROCTIME()) WITH ('connector' = 'values', 'data' = '{data}')")
    with t_env.execute_sql("SELECT n FROM o LEFT JOIN t FOR SYSTEM_TIME AS OF o.p ON o.k = t.k").collect() as rows:
        assert sorted(str(row[0]) for row in rows) == ["1", "1", "None", "None"]


def mysql_table(server: MariadbServer, table: str) -> str:
    url = f"jdbc:mysql://127.0.0.1:{server.port}/{server.database}"
    login = f"'username' = '{server.user}', 'password' = '{server.password}'"
    return f"'connector' = 'jdbc', 'url' = '{url}', 'table-name' = '{table}', {login}"


def test_a_lookup_in_mysql_reads_written_values(
    t_env: TableEnvironment, mariadb_server: MariadbServer, unique_name: str
) -> None:
    """The same types are written by the sink and read by the lookup, and MySQL's own types, too."""
    mariadb_server.execute(
        f"create table {unique_name} (id int primary key, yes bool, clock time(6), n decimal(12, 3), d decimal(12, 3), "
        "at datetime(6), moment datetime(6), day date, data blob, parts json, name text, flags bit(12), flag bit(1))"
    )
    columns = (
        "id INT, yes BOOLEAN, clock TIME, n DECIMAL(12, 3), d DOUBLE, `at` TIMESTAMP(6), moment TIMESTAMP_LTZ(6), "
        "`day` DATE, data BYTES, parts ARRAY<INT>, name STRING, PRIMARY KEY (id) NOT ENFORCED"
    )
    options = mysql_table(mariadb_server, unique_name)
    t_env.execute_sql(f"CREATE TABLE t ({columns}) WITH ({options})")
    values = (
        "(1, TRUE, TIME '12:30:00', 1.500, CAST(2.25 AS DOUBLE), TIMESTAMP '2026-11-18 21:00:00.123456', "
        "CAST(TIMESTAMP '2026-11-18 20:00:00' AS TIMESTAMP_LTZ(6)), DATE '2026-11-18', X'00FF', ARRAY[1, 2], 'ä')"
    )
    t_env.execute_sql(f"INSERT INTO t VALUES {values}").wait()
    mariadb_server.execute(f"update {unique_name} set flags = 261, flag = 1")
    mariadb_server.execute(f"insert into {unique_name} (id) values (2)")
    more = "flags BIGINT, flag BOOLEAN, "
    t_env.execute_sql(f"CREATE TABLE u ({more}{columns}) WITH ({options})")
    t_env.execute_sql(
        "CREATE TABLE o (k INT, p AS PROCTIME()) WITH ('connector' = 'values', 'data' = '[[1], [2], [3]]')"
    )
    [written] = changes(t_env, f"SELECT * FROM (VALUES {values})")
    with t_env.execute_sql("SELECT u.* FROM o JOIN u FOR SYSTEM_TIME AS OF o.p ON o.k = u.id").collect() as rows:
        nulls, found = sorted((tuple(row) for row in rows), key=lambda row: -row[2])
    assert found == (261, True, *written[1:])
    assert nulls == (None, None, 2, *[None] * 10)


def test_a_lookup_key_outside_mysqls_numbers_matches_nothing(
    t_env: TableEnvironment, mariadb_server: MariadbServer, unique_name: str
) -> None:
    mariadb_server.execute(f"create table {unique_name} (k double, n int)")
    mariadb_server.execute(f"insert into {unique_name} values (1.5, 1)")
    t_env.execute_sql(f"CREATE TABLE t (k DOUBLE, n INT) WITH ({mysql_table(mariadb_server, unique_name)})")
    t_env.execute_sql(
        "CREATE TABLE o (s STRING, p AS PROCTIME()) WITH ('connector' = 'values', "
        '\'data\' = \'[["1.5"], ["NaN"], ["Infinity"]]\')'
    )
    joined = "(SELECT CAST(s AS DOUBLE) AS k, p FROM o) AS o LEFT JOIN t FOR SYSTEM_TIME AS OF o.p ON o.k = t.k"
    with t_env.execute_sql(f"SELECT n FROM {joined}").collect() as rows:
        assert sorted(str(row[0]) for row in rows) == ["1", "None", "None"]


def test_a_value_that_does_not_fit_its_column_is_reported_and_not_requested_again(
    t_env: TableEnvironment, mariadb_server: MariadbServer, postgres_server: PostgresServer, unique_name: str
) -> None:
    mariadb_server.execute(f"create table {unique_name} (k int, v time)")
    mariadb_server.execute(f"insert into {unique_name} values (1, '838:59:59')")
    query(postgres_server, f"create table {unique_name} (k int, v text); insert into {unique_name} values (1, 'true')")
    t_env.execute_sql("CREATE TABLE o (k INT, p AS PROCTIME()) WITH ('connector' = 'values', 'data' = '[[1]]')")
    for name, kind, options in (
        ("m", "TIME", mysql_table(mariadb_server, unique_name)),
        ("g", "BOOLEAN", jdbc(postgres_server, unique_name)),
    ):
        t_env.execute_sql(f"CREATE TABLE {name} (k INT, v {kind}) WITH ({options})")
        statement = f"SELECT v FROM o JOIN {name} FOR SYSTEM_TIME AS OF o.p ON o.k = {name}.k"
        with pytest.raises(MillstreamError, match="Declare another type for it") as refusal:
            list(t_env.execute_sql(statement).collect())
        assert "max-retries" not in str(refusal.value)
