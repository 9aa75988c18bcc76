"""The rows of a real PostgreSQL table, once: in one snapshot, readable again whatever happens to the table."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from database_rows import query, url_of
from servers.postgres import PostgresServer

from millstream.common import Types, WatermarkStrategy
from millstream.connectors.contracts import SourceContext
from millstream.connectors.databases import table_copy, table_source
from millstream.connectors.databases.stored_tables import release_name
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.databases import PostgresTable
from millstream.errors import FencedError, ProgramError, StoreDamagedError
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, run

CONTEXT = SourceContext(now_ms=0, run_started_ms=0, parallelism=1)


@pytest.fixture
def table(postgres_server: PostgresServer, unique_name: str) -> str:
    query(postgres_server, f"create table {unique_name} (id int primary key, name text)")
    query(postgres_server, f"insert into {unique_name} select i, 'n' || i from generate_series(1, 5000) i")
    return unique_name


def read_all(server: PostgresServer, table: str, store: str | None = None, **more: Any) -> list[int]:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.from_source(PostgresTable(url_of(server), table, **more), WatermarkStrategy.no_watermarks(), "rows")
        rows.sink_to(out)

    return [row.id for row in run(build, parallelism=2, epoch_records=700, store=store)[out]]


def test_a_job_reads_every_row_once(postgres_server: PostgresServer, table: str) -> None:
    assert sorted(read_all(postgres_server, table)) == list(range(1, 5001))


def test_page_ranges_together_are_the_table_while_it_is_written(
    postgres_server: PostgresServer, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows moved, inserted and deleted while ranges are read are as in the snapshot."""
    query(postgres_server, f"update {table} set name = name || 'x' where id % 3 = 0")  # some pages are half empty
    copy_range = table_copy._copy_range
    with psycopg.connect(url_of(postgres_server), autocommit=True) as other:

        def write_before(*arguments: Any) -> Any:
            other.execute(f"update {table} set name = 'moved' where id % 7 = 0")
            other.execute(f"delete from {table} where id in (select id from {table} order by id desc limit 20)")
            other.execute(f"insert into {table} select max(id) + 100000, 'new' from {table}")
            return copy_range(*arguments)

        monkeypatch.setattr(table_copy, "_copy_range", write_before)
        monkeypatch.setattr(table_copy, "_READERS_MAX", 1)
        monkeypatch.setattr(table_copy.copy_table, "__defaults__", (5,))
        store = MemoryStore(table)
        source: Any = PostgresTable(url_of(postgres_server), table)._connector.opened(store, None)
    splits = source.splits(CONTEXT)
    assert len(splits) > 5
    rows = [row for split in splits for batch in source.read(split, 0, split.info["end"]) for row in batch.to_pylist()]
    assert sorted(row["id"] for row in rows) == list(range(1, 5001))
    assert all(row["name"].rstrip("x") == f"n{row['id']}" for row in rows)
    source.close()


def test_a_restarted_job_reads_its_stored_snapshot_and_not_the_current_table(
    postgres_server: PostgresServer, table: str, unique_name: str
) -> None:
    store = MemoryStore(unique_name)
    for _ in range(2):
        source: Any = PostgresTable(url_of(postgres_server), table)._connector.opened(store, None)
        (split,) = source.splits(CONTEXT)
        ids = [id_ for batch in source.read(split, 10, 14) for id_ in batch.column("id").to_pylist()]
        assert ids == [11, 12, 13, 14]
        query(postgres_server, f"delete from {table}")
        source.close()
    # One byte of the copy is changed: the damage is reported, and no wrong row is emitted.
    (file,) = (name for name in store.list("input") if name.endswith(".parquet"))
    data = bytearray(store.get(file))
    data[len(data) // 3] ^= 1
    store.put(file, bytes(data))
    with pytest.raises(StoreDamagedError, match="missing or damaged"):
        list(source.read(split, 0, split.info["end"]))


def test_an_empty_table_and_one_with_odd_names_are_read(postgres_server: PostgresServer, unique_name: str) -> None:
    query(postgres_server, f'create table "{unique_name}.Odd ""%s" ("a b" text)')
    name = f'"{unique_name}.Odd ""%s"'
    url = url_of(postgres_server)
    store = MemoryStore(unique_name)
    source: Any = PostgresTable(url, name)._connector.opened(store, None)
    assert source.splits(CONTEXT) == []
    source.close()
    query(postgres_server, f"insert into {name} values (null), (''), ('\"'), (E'\\n')")
    source = PostgresTable(url, name, name="again")._connector.opened(store, None)
    (split,) = source.splits(CONTEXT)
    (batch,) = source.read(split, 0, 4)
    assert batch.column(0).to_pylist() == [None, "", '"', "\n"]
    source.close()


def test_two_sources_of_one_name_with_different_types_are_rejected(
    postgres_server: PostgresServer, table: str, unique_name: str
) -> None:
    store = MemoryStore(unique_name)
    source: Any = PostgresTable(url_of(postgres_server), table)._connector
    opened = source.opened(store, None)
    with pytest.raises(ProgramError, match="Two tables of this job are stored under the name"):
        source.opened(store, None)
    opened.close()
    other = PostgresTable(url_of(postgres_server), table, Types.ROW_NAMED(["id"], [Types.LONG()]))._connector
    with pytest.raises(ProgramError, match="Declare the stored type, or start again: give the source another name"):
        other.opened(store, None)


def test_two_drivers_start_concurrently_and_one_of_them_stops(
    postgres_server: PostgresServer, table: str, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, source = MemoryStore(unique_name), PostgresTable(url_of(postgres_server), table)._connector
    copy_all, others = table_source.copy_table, []

    def copy_while_another_begins(*arguments: Any) -> Any:
        if not others:
            others.append(None)
            release_name((store.url, source.place.name))  # the other driver is another process
            others.append(source.opened(store, None))
        return copy_all(*arguments)

    monkeypatch.setattr(table_source, "copy_table", copy_while_another_begins)
    with pytest.raises(FencedError, match="another driver has started this job at the same time"):
        source.opened(store, None)
    assert others[1].splits(CONTEXT)
    others[1].close()
