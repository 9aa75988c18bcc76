"""Tables whose changes PostgreSQL's log does not contain completely are rejected by name; a rejected start leaves
nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from change_readers import Reader, changes_of, drop_slots, mirrored
from database_rows import query, url_of
from servers.fixtures import with_server
from servers.postgres import PostgresServer

from millstream.common import Row, RowKind, Types
from millstream.connectors.databases import changes_source, first_start, log_watch
from millstream.connectors.databases.change_reader import close_cached
from millstream.connectors.databases.stored_tables import load_table, save_table
from millstream.datastream.connectors.databases import PostgresChanges
from millstream.errors import ProgramError
from millstream.storage.memory import MemoryStore
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory


@pytest.fixture(autouse=True)
def _the_catalogue_is_read_each_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(changes_source, "_WATCH_S", 0.0)
    monkeypatch.setattr(log_watch, "_EMPTY_BYTES_MAX", 1)
    yield
    close_cached()


@pytest.fixture
def table(postgres_server: PostgresServer, unique_name: str) -> Iterator[str]:
    query(postgres_server, f"create table {unique_name} (id int primary key, name text)")
    query(postgres_server, f"alter table {unique_name} replica identity full")
    yield unique_name
    drop_slots(postgres_server, unique_name)


@pytest.fixture
def reader(postgres_server: PostgresServer, unique_name: str) -> Iterator[Callable[..., Reader]]:
    readers: list[Reader] = []

    def made(store: MemoryStore | None = None, **more: Any) -> Reader:
        source = changes_of(postgres_server, unique_name, **more)
        readers.append(Reader(source, store or MemoryStore(unique_name)))
        return readers[-1]

    yield made
    for one in readers:
        one.source.close()


def refusal(read: Callable[[], Any]) -> str:
    with pytest.raises(ProgramError) as refused:
        read()
    return str(refused.value)


def leftovers(server: PostgresServer, table: str) -> tuple[list[Any], list[Any]]:
    """Publications and slots of this table's tests."""
    publications = query(server, f"select pubname from pg_publication where pubname like '%{table}%'")
    return publications, query(
        server, f"select slot_name from pg_replication_slots where slot_name like '{table[-12:]}%'"
    )


# --- a start that is rejected ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "upserts"),
    [
        ("alter table {0} drop constraint {0}_pkey, replica identity default", True),
        ("alter table {0} drop constraint {0}_pkey, replica identity default", False),
        ("alter table {0} replica identity nothing", True),
        (
            "alter table {0} replica identity default, drop constraint {0}_pkey, add primary key (id) deferrable",
            True,
        ),
    ],
)
def test_a_table_without_a_replica_identity_is_rejected_at_the_start(
    change: str, upserts: bool, postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    query(postgres_server, change.format(table))
    message = refusal(lambda: reader(upserts=upserts))
    assert "has no replica identity" in message and "REPLICA IDENTITY FULL" in message
    assert leftovers(postgres_server, table) == ([], [])
    query(postgres_server, f"insert into {table} values (1, 'a')")
    query(postgres_server, f"update {table} set name = 'b'")  # of the application


def test_a_rejected_start_removes_only_its_own_objects(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    query(postgres_server, f"alter table {table} add column day date")
    query(postgres_server, f"insert into {table} values (1, 'a', 'infinity')")
    with pytest.raises(Exception, match="infinity"):
        reader()
    assert leftovers(postgres_server, table) == ([], [])
    query(postgres_server, f"create publication {table}p for table {table}")
    with pytest.raises(Exception, match="infinity"):
        reader(publication=f"{table}p")
    assert leftovers(postgres_server, table) == ([(f"{table}p",)], [])


def test_a_publication_usable_by_another_job_is_not_removed(
    postgres_server: PostgresServer,
    table: str,
    unique_name: str,
    reader: Callable[..., Reader],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy_all = first_start.copy_table

    def copy_while_another_begins(*arguments: Any) -> Any:
        monkeypatch.setattr(first_start, "copy_table", copy_all)
        reader(MemoryStore(f"{unique_name}-other"))
        raise ValueError("no room")

    monkeypatch.setattr(first_start, "copy_table", copy_while_another_begins)
    with pytest.raises(ProgramError, match="no room"):
        reader()
    publications, slots = leftovers(postgres_server, table)
    assert publications == [(f"millstream_{table}",)] and len(slots) == 2


def test_a_role_under_row_security_is_rejected(postgres_server: PostgresServer, table: str, unique_name: str) -> None:
    role = f"r{unique_name[-12:]}"
    query(postgres_server, f"create role {role} login replication; grant select on {table} to {role}")
    query(postgres_server, f"create policy p on {table} using (id > 5); alter table {table} enable row level security")
    source = PostgresChanges(url_of(postgres_server, user=role), table, slot=table[-12:])
    assert "sees some rows of the table only" in refusal(lambda: Reader(source, MemoryStore(unique_name)))


# --- columns that identify deleted rows -----------------------------------------------------------------------------


def test_a_replica_identity_other_than_the_key_is_rejected(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    query(postgres_server, f"alter table {table} alter column name set not null")
    query(postgres_server, f"create unique index {table}i on {table} (name)")
    query(postgres_server, f"alter table {table} replica identity using index {table}i")
    message = refusal(lambda: reader(upserts=True))
    assert f"the replica identity of public.{table} is name, but rows are identified by id" in message
    assert leftovers(postgres_server, table) == ([], [])
    query(postgres_server, f"alter table {table} drop constraint {table}_pkey")
    read = reader(upserts=True)  # without a primary key rows are identified by the log's columns
    query(postgres_server, f"insert into {table} values (1, 'a'), (2, 'b')")
    query(postgres_server, f"delete from {table} where id = 1")
    read.until(lambda: len(read.rows) == 3)
    assert (read.rows[2].get_row_kind(), *read.rows[2]) == (RowKind.DELETE, None, "a")


def test_the_declared_key_must_be_the_logs_identity(
    postgres_server: PostgresServer, table: str, unique_name: str
) -> None:
    query(postgres_server, f"alter table {table} replica identity default")
    query(postgres_server, f"insert into {table} values (1, 'a')")
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        t_env.execute_sql(
            "CREATE TABLE t (id INT, name STRING NOT NULL, PRIMARY KEY (name) NOT ENFORCED) WITH ("
            f"'connector' = 'postgres-cdc', 'hostname' = '127.0.0.1', 'port' = '{postgres_server.port}', 'username' = "
            f"'postgres', 'database-name' = 'test', 'table-name' = '{table}', 'changelog-mode' = 'upsert', "
            f"'slot.name' = '{table[-12:]}', 'scan.bounded.mode' = 'latest-offset')"
        )
        with pytest.raises(Exception, match="is id, but rows are identified by name"):
            list(t_env.execute_sql("SELECT * FROM t").collect())


def test_upserts_without_the_key_columns_are_rejected(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    query(postgres_server, f"alter table {table} replica identity default")
    names = Types.ROW_NAMED(["name"], [Types.STRING()])
    assert "the columns that are read have no id" in refusal(lambda: reader(upserts=True, type_info=names))


def test_a_replica_identity_changed_while_reading_is_reported(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    query(postgres_server, f"alter table {table} replica identity default, alter column name set not null")
    read = reader(upserts=True)
    monkeypatch.setattr(read.source, "_watch", lambda connection: None)  # the log itself shows the change, too
    query(postgres_server, f"insert into {table} values (1, 'a')")
    query(postgres_server, f"create unique index {table}i on {table} (name)")
    query(postgres_server, f"alter table {table} replica identity using index {table}i")
    query(postgres_server, f"delete from {table}")
    message = refusal(lambda: read.until(lambda: len(read.rows) == 2))
    assert "the replica identity was changed to name" in message and "rows are identified by id" in message


# --- identity of the table ---------------------------------------------------------------------------------------


def test_a_table_renamed_and_back_in_one_transaction_is_still_read(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    read = reader()
    query(
        postgres_server,
        f"begin; alter table {table} rename to {table}b; insert into {table}b values (1, 'a'); "
        f"alter table {table}b rename to {table}; commit",
    )
    query(postgres_server, f"insert into {table} values (2, 'b')")
    read.until(lambda: any(row.id == 2 for row in read.rows))
    assert mirrored(read.rows) == {1: (1, "a"), 2: (2, "b")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("alter table {0} rename to {0}b", "is now named public.{0}b"),
        (
            "alter table {0} rename to {0}b; create table {0} (id int primary key, name text)",
            "is now named public.{0}b",
        ),
        ("drop table {0}; create table {0} (id int primary key, name text)", "the table was dropped"),
        ("drop table {0}", "the table was dropped"),
        ("create table {0}h () inherits ({0})", "{0}h inherit from the table"),
    ],
)
@pytest.mark.parametrize("is_running", [True, False])
def test_another_table_under_the_name_is_reported(
    change: str,
    message: str,
    is_running: bool,
    postgres_server: PostgresServer,
    table: str,
    reader: Callable[..., Reader],
    unique_name: str,
) -> None:
    store = MemoryStore(unique_name)
    query(postgres_server, f"create publication {table}p for all tables")
    try:
        read = reader(store, publication=f"{table}p")
        query(postgres_server, f"insert into {table} values (1, 'a')")
        read.until(lambda: len(read.rows) == 1)
        source = changes_of(postgres_server, table, publication=f"{table}p")
        query(postgres_server, change.format(table))
        if is_running:
            message = refusal(lambda: read.until(lambda: len(read.rows) == 2))
        else:
            read.source.close()
            again = Reader(source, store)
            message = refusal(lambda: again.source.committed(read.positions))
            again.source.close()
        assert message.format(table) in message
    finally:
        query(postgres_server, f"drop publication {table}p")


# --- partitions --------------------------------------------------------------------------------------------------


@pytest.fixture
def parts(postgres_server: PostgresServer, unique_name: str) -> Iterator[str]:
    name = unique_name
    query(postgres_server, f"create table {name} (id int primary key, name text) partition by range (id)")
    for part, low in (("a", 0), ("b", 10)):
        query(postgres_server, f"create table {name}{part} partition of {name} for values from ({low}) to ({low + 10})")
        query(postgres_server, f"alter table {name}{part} replica identity full")
    query(postgres_server, f"insert into {name} values (1, 'a'), (11, 'b')")
    yield name
    drop_slots(postgres_server, name)


REMOVED = "1 of the table's partitions were detached or dropped"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("truncate {0}a", "the table was truncated"),
        ("alter table {0} detach partition {0}a", REMOVED),
        ("drop table {0}a", REMOVED),
        (
            "alter table {0} detach partition {0}a; alter table {0} attach partition {0}a for values from (0) to (10)",
            "partition public.{0}a was attached since the job has begun",
        ),
        (
            "create table {0}c (like {0} including all); alter table {0}c replica identity full; "
            "insert into {0}c values (21, 'c'); alter table {0} attach partition {0}c for values from (20) to (30)",
            "partition public.{0}c was attached since the job has begun",
        ),
        (
            "create table {0}c partition of {0} for values from (20) to (30)",
            "the replica identity of public.{0}c is 'd' (id)",
        ),
    ],
)
def test_attaching_or_detaching_a_partition_with_rows_is_reported(
    change: str, message: str, postgres_server: PostgresServer, parts: str, reader: Callable[..., Reader]
) -> None:
    read = reader()
    read.until(lambda: len(read.rows) == 2)
    for statement in change.format(parts).split("; "):
        query(postgres_server, statement)
    query(postgres_server, f"insert into {parts} values (12, 'b')")
    assert message.format(parts) in refusal(lambda: read.until(lambda: len(read.rows) == 3))


def test_new_partitions_are_read_and_those_without_identity_rejected(
    postgres_server: PostgresServer, parts: str, reader: Callable[..., Reader], unique_name: str
) -> None:
    store = MemoryStore(unique_name)
    read = reader(store)
    read.until(lambda: len(read.rows) == 2)
    query(
        postgres_server,
        f"begin; create table {parts}c partition of {parts} for values from (20) to (30); "
        f"alter table {parts}c replica identity full; insert into {parts} values (21, 'c'); commit",
    )
    query(postgres_server, f"update {parts} set id = 22 where id = 11")  # it moves to the new partition
    read.until(lambda: len(read.rows) == 5)
    assert mirrored(read.rows) == {1: (1, "a"), 21: (21, "c"), 22: (22, "b")}
    read.source.close()
    again = reader(store)
    again.source.committed(read.positions)  # the new partition is remembered
    again.source.close()


def test_a_partition_with_a_weaker_replica_identity_is_rejected_at_the_start(
    postgres_server: PostgresServer, parts: str, reader: Callable[..., Reader]
) -> None:
    query(postgres_server, f"alter table {parts} replica identity full; alter table {parts}b replica identity default")
    assert f"the replica identity of public.{parts}b is 'd' (id)" in refusal(reader)


def test_removed_partitions_are_ignored_if_truncate_is(
    postgres_server: PostgresServer, parts: str, reader: Callable[..., Reader]
) -> None:
    read = reader(skip_truncate=True)
    read.until(lambda: len(read.rows) == 2)
    query(postgres_server, f"truncate {parts}a; drop table {parts}a")
    query(postgres_server, f"insert into {parts} values (12, 'b')")
    read.until(lambda: len(read.rows) == 3)


@pytest.mark.parametrize(
    ("publication", "message"),
    [
        ("for table {0} with (publish_via_partition_root = true)", "and TRUNCATE of a partition not at all"),
        ("for table {0}, {0}o", "has other tables besides this partitioned one"),
        ("for all tables", "has other tables besides this partitioned one"),
        ("for table {0}o", "does not have the table"),
    ],
)
def test_a_publication_that_reports_partitions_wrongly_is_rejected(
    publication: str, message: str, postgres_server: PostgresServer, parts: str, reader: Callable[..., Reader]
) -> None:
    query(postgres_server, f"create table {parts}o (id int primary key)")
    query(postgres_server, f"create publication {parts}p {publication.format(parts)}")
    try:
        assert message in refusal(lambda: reader(publication=f"{parts}p"))
    finally:
        query(postgres_server, f"drop publication {parts}p")


def test_a_job_of_an_older_version_resumes_once_partitions_are_published_separately(
    postgres_server: PostgresServer, parts: str, reader: Callable[..., Reader], unique_name: str
) -> None:
    """The older version received partitions' changes under the table's name, and stored that name."""
    store, name = MemoryStore(unique_name), f"public.{parts}"
    read = reader(store)
    read.until(lambda: len(read.rows) == 2)
    read.source.close()
    stored = load_table(store, name)
    assert stored is not None and stored.relation and len(stored.parts) == 2
    save_table(store, name, replace(stored, relation=0, is_partitioned=False, parts=(), key=()))
    publication = f"alter publication millstream_{parts} set (publish_via_partition_root = "
    query(postgres_server, f"{publication}true)")
    query(postgres_server, f"insert into {parts} values (2, 'old')")
    message = refusal(lambda: reader(store))
    assert f'run: ALTER PUBLICATION "millstream_{parts}" SET (publish_via_partition_root = false)' in message
    query(postgres_server, f"{publication}false)")
    query(postgres_server, f"insert into {parts} values (3, 'new')")
    again = reader(store)
    again.positions, again.rows = dict(read.positions), list(read.rows)
    again.source.committed(again.positions)
    again.until(lambda: len(again.rows) == 4)
    assert mirrored(again.rows) == {1: (1, "a"), 11: (11, "b"), 2: (2, "old"), 3: (3, "new")}
    assert load_table(store, name) == stored


# --- columns, publications, time-outs ---------------------------------------------------------------------------------


def test_a_generated_column_is_rejected_and_the_others_are_read(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    query(postgres_server, f"alter table {table} add column twice int generated always as (id * 2) stored")
    message = refusal(reader)
    assert "computes the columns twice from others" in message and "Read id, name only" in message
    assert leftovers(postgres_server, table) == ([], [])
    read = reader(type_info=Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()]))
    query(postgres_server, f"insert into {table} values (1, 'a')")
    query(postgres_server, f"update {table} set name = 'b'")
    read.until(lambda: len(read.rows) == 3)
    assert mirrored(read.rows) == {1: (1, "b")}


def test_a_publication_with_missing_columns_is_rejected(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    query(postgres_server, f"create publication {table}p for table {table} (id)")
    assert "omits the columns name" in refusal(lambda: reader(publication=f"{table}p"))


def test_a_row_filter_that_rejects_everything_is_detected_without_any_change(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    query(postgres_server, f"create publication {table}p for table {table}")
    read = reader(publication=f"{table}p")
    read.epoch()
    query(postgres_server, f"alter publication {table}p set table {table} where (id > 100)")
    query(postgres_server, f"insert into {table} values (1, 'a')")
    assert "publishes some rows only, (id > 100)" in refusal(lambda: read.until(lambda: bool(read.rows)))


def test_a_snapshot_survives_the_idle_session_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    copy_all = first_start.copy_table
    with with_server(PostgresServer(idle_session_timeout="300ms")) as server:
        query(server, "create table t (id int primary key, name text)")
        query(server, "alter table t replica identity full")
        query(server, "insert into t values (1, 'a')")

        def copy_later(*arguments: Any) -> Any:
            idle = "select min(now() - state_change) from pg_stat_activity where state like 'idle%' and pid <> "
            while query(server, f"select ({idle} pg_backend_pid()) < interval '1 s'") == [(True,)]:
                pass  # all sessions of the start have been idle for longer than the timeout
            return copy_all(*arguments)

        monkeypatch.setattr(first_start, "copy_table", copy_later)
        read = Reader(PostgresChanges(url_of(server), "t", patience_s=0.0), MemoryStore("idle-sessions"))
        read.epoch()
        assert read.rows == [Row(id=1, name="a")]
        read.source.close()
        close_cached()
