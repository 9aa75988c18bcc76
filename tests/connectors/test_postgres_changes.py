"""Rows and changes of a real PostgreSQL table: each exactly once, in order, in whole transactions, through every
failure.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from change_readers import CONTEXT, Reader, changes_of, drop_slots, mirrored, rows_of
from database_rows import query, url_of
from servers.fixtures import with_server
from servers.postgres import PostgresServer
from waits.patience import PATIENCE_S

from millstream.checkpoint.manifest import ManifestLog
from millstream.common import Configuration, Row, RowKind, Types, WatermarkStrategy
from millstream.connectors.databases import change_reader, changes_source, first_start, log_watch, slots, table_copy
from millstream.connectors.databases.change_reader import close_cached
from millstream.connectors.databases.changes_source import PostgresChangesSource
from millstream.connectors.databases.patience import DatabaseUnavailableError, Patience
from millstream.connectors.databases.pgoutput import lsn_text
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.databases import DatabaseSink, PostgresChanges
from millstream.errors import FencedError, JobFailedError, MillstreamError, ProgramError
from millstream.jobs.clock import SystemClock
from millstream.jobs.launch.launch import Launch
from millstream.jobs.replay.replay import replay
from millstream.runtime.task.local import LocalRunner
from millstream.storage import open_store
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, run


@pytest.fixture(autouse=True)
def _no_connection_is_left() -> Iterator[None]:
    yield
    close_cached()


@pytest.fixture
def table(postgres_server: PostgresServer, unique_name: str) -> Iterator[str]:
    query(postgres_server, f"create table {unique_name} (id int primary key, name text, n numeric(20, 2))")
    query(postgres_server, f"alter table {unique_name} replica identity full")
    yield unique_name
    drop_slots(postgres_server, unique_name)


@pytest.fixture
def reader(postgres_server: PostgresServer, table: str, unique_name: str) -> Iterator[Callable[..., Reader]]:
    readers: list[Reader] = []

    def made(store: MemoryStore | None = None, **more: Any) -> Reader:
        source = changes_of(postgres_server, table, **more)
        readers.append(Reader(source, store or MemoryStore(unique_name)))
        return readers[-1]

    yield made
    for one in readers:
        one.source.close()


# --- whole jobs ------------------------------------------------------------------------------------------------


def test_a_job_mirrors_a_table_that_is_written_while_it_starts(postgres_server: PostgresServer, table: str) -> None:
    """Rows are written before, while and after slot and copy are created: none is lost or duplicated."""
    mirror = f"{table}m"
    query(postgres_server, f"create table {mirror} (like {table} including all)")
    written = threading.Event()

    def write() -> None:
        rng = random.Random(5)
        with psycopg.connect(url_of(postgres_server), autocommit=True) as connection:
            for number in range(400):
                connection.execute(f"insert into {table} values ({number}, 'n', {number})")
                connection.execute(f"update {table} set n = n + 1 where id = {rng.randrange(number + 1)}")
                connection.execute(f"delete from {table} where id = {rng.randrange(3 * number + 1)}")
                if number == 100:
                    written.set()
            connection.execute(f"insert into {table} values (1000, 'last', 0)")

    writing = threading.Thread(target=write)
    writing.start()
    written.wait(30)
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.from_source(changes_of(postgres_server, table), WatermarkStrategy.no_watermarks(), "rows")
        rows.sink_to(DatabaseSink(url_of(postgres_server), mirror, key="id"))
        rows.sink_to(out)

    name = f"mirror-{table}"
    changes: list[Row] = []
    epochs = 0
    while not any(change.id == 1000 for change in changes):
        epochs += 1
        # Each run resumes the stopped one.
        changes.extend(run(build, epochs=epochs, epoch_records=200, store=name)[out])
    writing.join()
    assert mirrored(changes) == rows_of(postgres_server, table) == rows_of(postgres_server, mirror)


def test_a_bounded_job_ends_with_the_existing_rows(postgres_server: PostgresServer, table: str) -> None:
    query(postgres_server, f"insert into {table} select i, 'a', i from generate_series(1, 50) i")
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.from_source(changes_of(postgres_server, table, bounded=True), WatermarkStrategy.no_watermarks(), "r")
        rows.sink_to(out)

    assert mirrored(run(build)[out]) == rows_of(postgres_server, table)


def test_every_epoch_can_be_replayed_while_the_log_is_kept(postgres_server: PostgresServer, table: str) -> None:
    """A replay reads from the copy and the log, and stages, exactly the committed rows."""
    query(postgres_server, f"create table {table}m (like {table} including all)")
    query(postgres_server, f"insert into {table} select i, 'a', i from generate_series(1, 30) i")
    name = f"replayed-{table}"

    def build(env: StreamExecutionEnvironment) -> StreamExecutionEnvironment:
        rows = env.from_source(changes_of(postgres_server, table), WatermarkStrategy.no_watermarks(), "rows")
        rows.sink_to(DatabaseSink(url_of(postgres_server), f"{table}m", key="id"))
        return env

    run(build, epochs=2, epoch_records=20, store=name)
    query(postgres_server, f"update {table} set n = n + 1")
    query(postgres_server, f"delete from {table} where id < 5")
    newest = ManifestLog(MemoryStore(name)).epochs()[-1]
    run(build, epochs=newest + 2, epoch_records=20, store=name)
    log = ManifestLog(MemoryStore(name))
    epochs = [epoch for epoch in log.epochs() if log.read(epoch).status == "RUNNING"]
    assert len(epochs) >= 4
    before = rows_of(postgres_server, f"{table}m")
    for epoch in epochs:
        env = build(StreamExecutionEnvironment())
        graph = env._graph(None)
        found = replay(graph, env._job_settings(), f"memory://{name}@{epoch}", graph.nodes[0].name)
        assert found.is_same, found.text()
    assert rows_of(postgres_server, f"{table}m") == before


# --- ranges of the log -----------------------------------------------------------------------------------------


def write_transactions(server: PostgresServer, table: str, seed: int, transactions: int) -> None:
    """Random changes, some of them rolled back, as concurrent clients make them."""
    rng = random.Random(seed)
    with psycopg.connect(url_of(server)) as connection:
        for _ in range(transactions):
            for _ in range(rng.randrange(1, 6)):
                id_ = rng.randrange(12)
                connection.execute(
                    rng.choice(
                        [
                            f"insert into {table} values ({id_}, 'x', 1) "
                            f"on conflict (id) do update set n = {table}.n + 1",
                            f"delete from {table} where id = {id_}",
                            f"update {table} set n = n * 2, name = null where id > {id_}",
                            f"update {table} set id = id + 100 where id = {id_} and not exists "
                            f"(select from {table} where id = {id_ + 100})",
                        ]
                    )
                )
            (connection.rollback if rng.random() < 0.2 else connection.commit)()


@pytest.mark.parametrize("seed", range(4))
def test_any_history_read_in_any_ranges_yields_the_table(
    seed: int, postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    rng = random.Random(seed)
    write_transactions(postgres_server, table, seed, 5)
    read = reader()
    for part in range(6):
        write_transactions(postgres_server, table, 100 * seed + part, 15)
        if rng.random() < 0.5:
            read.epoch(rng.choice([1, 3, 50]), commits=False)  # it crashed, and is read with other ranges
        for _ in range(rng.randrange(3)):
            read.epoch(rng.choice([1, 3, 50]))
    query(postgres_server, f"insert into {table} values (-1, 'last', 0)")
    read.until(lambda: any(row.id == -1 for row in read.rows), 20)
    assert mirrored(read.rows) == rows_of(postgres_server, table)


def test_a_range_is_repeatable_until_no_retained_epoch_needs_it(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    read = reader()
    (split,) = read.source.splits(CONTEXT)
    places = [split.start]
    for number in range(4):
        query(postgres_server, f"insert into {table} values ({number}, 'n', 0)")
        read.until(lambda number=number: len(read.rows) > number)  # type: ignore[misc]
        places.append(read.positions[split.name])
    ranges = list(itertools.pairwise(places))

    def ids(start: int, stop: int) -> list[int]:
        return [id_ for batch in read.task.read(split, start, stop) for id_ in batch.column("id").to_pylist()]

    assert [ids(*range_) for range_ in ranges] == [[0], [1], [2], [3]]
    assert ids(places[1], places[4]) == [1, 2, 3]
    read.source.released([{split.name: places[2]}, {split.name: places[3]}])
    assert [ids(*range_) for range_ in ranges[2:]] == [[2], [3]]
    with pytest.raises(ProgramError, match=r"continues from .*retains it from .* only.*Start from a newer epoch"):
        ids(*ranges[1])


def test_a_lost_or_advanced_reader_slot_changes_nothing(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second slot only makes reading cheaper. Here it is ahead, then missing."""
    monkeypatch.setattr(log_watch, "_BEHIND_BYTES_MAX", 1)
    read = reader()
    (split,) = read.source.splits(CONTEXT)
    for number in range(6):
        query(postgres_server, f"insert into {table} values ({number}, 'n', 0)")
        read.until(lambda number=number: len(read.rows) > number)  # type: ignore[misc]
    stands = (
        "select confirmed_flush_lsn > (select confirmed_flush_lsn from pg_replication_slots where slot_name = '{}') "
    )
    slot = split.info["slot"]
    assert query(postgres_server, f"{stands.format(slot)} from pg_replication_slots where slot_name = '{slot}_r'") == [
        (True,)
    ]
    ids = [
        id_
        for b in read.task.read(split, split.start, read.positions[split.name])
        for id_ in b.column("id").to_pylist()
    ]
    assert ids == list(range(6))
    query(postgres_server, f"select pg_drop_replication_slot('{slot}_r')")
    query(postgres_server, f"insert into {table} values (6, 'n', 0)")
    read.until(lambda: len(read.rows) == 7)
    assert [row.id for row in read.rows] == list(range(7))


def test_a_slot_advanced_just_before_reading_loses_nothing(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = reader()
    (split,) = read.source.splits(CONTEXT)
    query(postgres_server, f"insert into {table} values (1, 'n', 0)")
    query(postgres_server, f"insert into {table} values (2, 'n', 0)")
    read.until(lambda: len(read.rows) == 2)
    choose, moves = change_reader.slot_for, iter([True])

    def choose_and_move(connection: Any, slot: Any, start: int, subject: str) -> Any:
        chosen = choose(connection, slot, start, subject)
        if next(moves, False):
            query(
                postgres_server, f"select pg_replication_slot_advance('{chosen[0].name}', pg_current_wal_flush_lsn())"
            )
        return chosen

    monkeypatch.setattr(change_reader, "slot_for", choose_and_move)
    ids = [
        id_
        for b in read.task.read(split, split.start, read.positions[split.name])
        for id_ in b.column("id").to_pylist()
    ]
    assert ids == [1, 2]


def test_a_connection_lost_in_the_middle_of_a_range_reads_the_rest_once(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    read = reader()
    (split,) = read.source.splits(CONTEXT)
    query(postgres_server, f"insert into {table} select i, 'a', i from generate_series(1, 40000) i")
    stop = split.start
    while stop == split.start:
        stop = read.source.reach(split, split.start, 100_000, CONTEXT)
    ids = []
    for number, batch in enumerate(read.task.read(split, split.start, stop)):
        ids.extend(batch.column("id").to_pylist())
        if number in (0, 2):
            query(
                postgres_server,
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where state = 'idle in transaction' and query like '%millstream_changes%'",
            )
    assert ids == list(range(1, 40001))


def test_a_fork_continues_with_its_own_slot(postgres_server: PostgresServer, table: str, tmp_path: Path) -> None:
    """Both jobs continue independently, each with every change once, also after the first has released the log."""
    query(postgres_server, f"insert into {table} select i, 'a', i from generate_series(1, 100) i")
    tables = [f"{table}a", f"{table}b"]
    for name in tables:
        query(postgres_server, f"create table {name} (like {table})")

    def run_until(number: int, count: int, snapshot: str = "") -> None:
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
        env.set_store(str(tmp_path / str(number)))
        settings = Configuration().set_integer("millstream.epoch.max-records", 40)
        env.configure(settings.set_string("execution.state-recovery.path", snapshot) if snapshot else settings)
        rows = env.from_source(changes_of(postgres_server, table), WatermarkStrategy.no_watermarks(), "rows").uid("in")
        rows.sink_to(DatabaseSink(url_of(postgres_server), tables[number])).uid("out")
        launch = Launch(SystemClock(), LocalRunner(), open_store(str(tmp_path / str(number))))
        job = launch.prepare(env._graph("fork"), env._job_settings()).start()
        deadline_s = time.monotonic() + PATIENCE_S
        while query(postgres_server, f"select count(*) >= {count} from {tables[number]}") == [(False,)]:
            assert time.monotonic() < deadline_s and not job.wait(0)
            time.sleep(0.02)
        job.stop()
        job.result()

    run_until(0, 100)
    query(postgres_server, f"insert into {table} select i, 'b', i from generate_series(101, 150) i")
    run_until(1, 50, snapshot=str(tmp_path / "0"))
    run_until(0, 150)
    query(postgres_server, f"insert into {table} select i, 'c', i from generate_series(151, 170) i")
    run_until(0, 170)
    run_until(1, 70)
    found = [[id_ for (id_,) in query(postgres_server, f"select id from {name} order by id")] for name in tables]
    assert found == [list(range(1, 171)), list(range(101, 171))]
    slots = query(postgres_server, f"select count(*) from pg_replication_slots where slot_name like '{table[-12:]}%'")
    assert slots == [(4,)]


def test_the_backlog_approximates_the_size_of_the_log(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    read = reader()
    (split,) = read.source.splits(CONTEXT)
    for number in range(30):
        query(postgres_server, f"insert into {table} select {1000 * number} + i, 'a', i from generate_series(1, 100) i")
    read.until(lambda: bool(read.rows), 200)
    left = 3000 - len(read.rows)
    backlog = read.source.backlog(split, read.positions[split.name], CONTEXT)
    assert left / 2 < backlog < 2 * left
    read.until(lambda: len(read.rows) == 3000)
    read.epoch()
    assert read.source.backlog(split, read.positions[split.name], CONTEXT) in (0, None)


def test_a_transaction_is_never_split(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    read = reader()
    query(postgres_server, f"insert into {table} select i, 'a', i from generate_series(1, 3000) i")
    query(postgres_server, f"insert into {table} values (5000, 'b', 0)")
    sizes: list[int] = []
    while sum(sizes) < 3001:
        sizes.append(read.epoch(10))
    assert [size for size in sizes if size] == [3000, 1]


def test_an_epoch_with_a_small_byte_limit_ends_at_a_transaction(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    read = reader()
    for number in range(5):
        query(postgres_server, f"insert into {table} select {10 * number} + i, 'a', i from generate_series(1, 9) i")
    (split,) = read.source.splits(CONTEXT)
    stop = split.start
    while stop == split.start:
        stop = read.source.reach(split, split.start, 1000, CONTEXT)
    at, ids = split.start, []
    while at < stop:
        reading = read.task.read_within(split, at, stop, 500)
        while True:
            try:
                ids.extend(next(reading).column("id").to_pylist())
            except StopIteration as end:
                assert end.value > at
                at = end.value
                break
        assert len(ids) % 9 == 0
    assert len(ids) == len(set(ids)) == 45 and at == stop


def test_a_server_killed_while_changes_are_read_emits_each_once(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    read = reader()
    write_transactions(postgres_server, table, 1, 20)
    read.epoch(10)
    read.epoch(10)
    postgres_server.kill()
    postgres_server.restart()
    write_transactions(postgres_server, table, 2, 20)
    query(postgres_server, f"insert into {table} values (-1, 'last', 0)")
    read.until(lambda: any(row.id == -1 for row in read.rows), 10)
    assert mirrored(read.rows) == rows_of(postgres_server, table)


def test_writes_to_other_tables_advance_the_slot_without_rows(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_watch, "_EMPTY_BYTES_MAX", 200_000)
    read = reader()
    (split,) = read.source.splits(CONTEXT)
    assert read.epoch() == 0 and not read.positions, "nothing was written, so there is no epoch"
    query(postgres_server, f"create table {table}o as select i, repeat('x', 100) from generate_series(1, 5000) i")
    read.until(lambda: read.positions.get(split.name, 0) > split.start)
    assert not read.rows
    query(postgres_server, f"insert into {table} values (1, 'a', 0)")
    read.until(lambda: bool(read.rows))


# --- the copy of the rows --------------------------------------------------------------------------------------


def test_every_type_is_equal_in_the_copy_and_in_the_log(postgres_server: PostgresServer, unique_name: str) -> None:
    query(
        postgres_server,
        f"create table {unique_name} (id int primary key, s smallint, l bigint, r real, d double precision, b boolean, "
        "t text, v varchar(9), u uuid, j jsonb, y bytea, da date, ti time, ts timestamp(3), tz timestamptz, "
        "nu numeric(30, 3), free numeric, a int[], ta text[], empty text)",
    )
    query(postgres_server, f"alter table {unique_name} replica identity full")
    values = (
        "-3, 9223372036854775807, 1.1, 'Infinity', true, E'a\"b,\\n\\\\.\\nä', 'v', "
        "'6f1c5b2e-1f5e-4c06-9d5a-7a0a0f9a7a01', '{\"k\": [1, null]}', '\\xdeadbeef', '0001-01-01', '23:59:59.999999', "
        "'2024-02-29 12:00:00.123', '1969-12-31 23:59:59.5+02', 123456789012345678901234567.125, 1e-10, "
        '\'{1,NULL,3}\', \'{"a,b","",NULL,"\\""}\', \'\''
    )
    query(postgres_server, f"insert into {unique_name} values (1, {values}), (2{', null' * 19})")
    store = MemoryStore(unique_name)
    read = Reader(changes_of(postgres_server, unique_name), store)
    read.epoch()
    copied = list(read.rows)
    query(
        postgres_server,
        f"insert into {unique_name} select 10 + id, {'s, l, r, d, b, t, v, u, j, y, da, ti, ts, tz'}, "
        f"nu, free, a, ta, empty from {unique_name}",
    )
    read.until(lambda: len(read.rows) == 4)
    logged = read.rows[2:]
    for from_copy, from_log in zip(copied, logged, strict=True):
        assert from_log.id == from_copy.id + 10
        assert list(from_log)[1:] == list(from_copy)[1:]
    row = copied[0]
    assert (row.t, row.empty, row.y, row.a, row.ta) == (
        'a"b,\n\\.\nä',
        "",
        b"\xde\xad\xbe\xef",
        [1, None, 3],
        ["a,b", "", None, '"'],
    )
    assert str(row.nu) == "123456789012345678901234567.125" and row.d == float("inf") and row.r == pytest.approx(1.1)
    assert all(value is None for value in list(copied[1])[1:])
    read.source.close()
    drop_slots(postgres_server, unique_name)


def test_a_value_outside_its_columns_range_is_reported(postgres_server: PostgresServer, table: str) -> None:
    query(postgres_server, f"alter table {table} add column at date")
    query(postgres_server, f"insert into {table} values (1, 'a', 1, 'infinity')")
    with pytest.raises(MillstreamError, match=r"column 'at': found 'infinity', expected .*STRING accepts any value"):
        Reader(changes_of(postgres_server, table), MemoryStore(table))
    as_text = Types.ROW_NAMED(["id", "at"], [Types.INT(), Types.STRING()])
    read = Reader(changes_of(postgres_server, table, type_info=as_text), MemoryStore(table))
    read.epoch()
    assert read.rows == [Row(id=1, at="infinity")]
    read.source.close()


def test_a_change_never_overtakes_the_row_it_changes(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    query(postgres_server, f"insert into {table} select i, 'a', i from generate_series(1, 20) i")
    read = reader()
    query(postgres_server, f"update {table} set name = 'b'")
    for _ in range(4):
        read.epoch(6)
    assert [row.get_row_kind() for row in read.rows[:20]] == [RowKind.INSERT] * 20
    read.until(lambda: len(read.rows) == 60)
    assert mirrored(read.rows) == rows_of(postgres_server, table)


def test_a_crashed_start_leaves_no_slot_behind(
    postgres_server: PostgresServer, table: str, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, copy_all = MemoryStore(unique_name), first_start.copy_table

    def copy_and_die(*arguments: Any) -> Any:
        copy_all(*arguments)
        raise SystemExit("killed")

    query(postgres_server, f"insert into {table} values (0, 'a', 1)")
    with monkeypatch.context() as patch:
        patch.setattr(first_start, "copy_table", copy_and_die)
        with pytest.raises(SystemExit):
            Reader(changes_of(postgres_server, table), store)
    query(postgres_server, f"insert into {table} values (1, 'a', 1)")
    read = Reader(changes_of(postgres_server, table), store)
    read.epoch()
    assert [row.id for row in read.rows] == [0, 1]
    assert len([name for name in store.list("input") if name.endswith(".parquet")]) == 1
    found = query(postgres_server, f"select count(*) from pg_replication_slots where slot_name like '{table[-12:]}%'")
    assert found == [(2,)], "the slot and its reader"
    read.source.close()


def test_two_concurrent_first_starts_leave_one_job_with_its_slot(
    postgres_server: PostgresServer, table: str, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, copy_all = MemoryStore(unique_name), first_start.copy_table
    answers: list[str] = []

    def start_another(*arguments: Any) -> Any:
        monkeypatch.setattr(first_start, "copy_table", copy_all)
        mine = changes_of(postgres_server, table)._connector
        other = PostgresChangesSource(mine.address, mine.settings, mine.row_type, Patience(total_s=0.3))
        with pytest.raises(DatabaseUnavailableError) as caught:
            other.opened(store, None)
        answers.append(str(caught.value))
        return copy_all(*arguments)

    monkeypatch.setattr(first_start, "copy_table", start_another)
    monkeypatch.setattr(changes_source, "claim_name", lambda store, name: None)  # it would stop one process
    query(postgres_server, f"insert into {table} values (0, 'a', 1)")
    read = Reader(changes_of(postgres_server, table), store)
    assert "another driver is starting this job" in answers[0]
    read.epoch()
    query(postgres_server, f"insert into {table} values (1, 'a', 1)")
    read.until(lambda: len(read.rows) == 2)
    read.source.close()


def test_a_driver_that_waited_for_anothers_start_creates_nothing(
    postgres_server: PostgresServer, table: str, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, look = MemoryStore(unique_name), changes_source.load_table
    monkeypatch.setattr(changes_source, "claim_name", lambda store, name: None)
    first = Reader(changes_of(postgres_server, table), store)
    before = [None]  # the second checked before the first was done
    monkeypatch.setattr(changes_source, "load_table", lambda *at: before.pop() if before else look(*at))
    with pytest.raises(FencedError, match="another driver has started this job"):
        Reader(changes_of(postgres_server, table), store)
    found = query(postgres_server, f"select count(*) from pg_replication_slots where slot_name like '{table[-12:]}%'")
    assert found == [(2,)], "the slot of the first and its reader"
    first.source.close()


def test_a_table_cannot_be_rewritten_between_two_ranges_of_its_copy(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    query(postgres_server, f"insert into {table} select i, repeat('a', 1000), i from generate_series(1, 100) i")
    query(postgres_server, f"delete from {table} where id <= 30")
    copy_range, copied = table_copy._copy_range, threading.Lock()
    refusals: list[Exception] = []

    def vacuum_between(*arguments: Any) -> Any:
        with copied:
            file = copy_range(*arguments)
            try:
                with psycopg.connect(postgres_server.dsn, autocommit=True) as other:
                    other.execute("set lock_timeout = '100ms'")
                    other.execute(f"vacuum full {table}")
            except psycopg.errors.LockNotAvailable as error:
                refusals.append(error)
            return file

    monkeypatch.setattr(table_copy, "_copy_range", vacuum_between)
    monkeypatch.setattr(first_start, "copy_table", partial(table_copy.copy_table, range_pages=2))
    read = reader()
    read.until(lambda: read.source._is_copy_read)
    assert sorted(row.id for row in read.rows) == list(range(31, 101))
    assert len(refusals) > 2


def test_a_byte_order_mark_at_the_start_of_a_copied_row_is_preserved() -> None:
    assert [column.to_pylist() for column in table_copy._parse("\ufeffa,b\n\ufeffc,\n".encode(), 2)] == [
        ["\ufeffa", "\ufeffc"],
        ["b", None],
    ]


def test_a_table_with_inheriting_tables_is_rejected(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    query(postgres_server, f"create table {table}_heir () inherits ({table})")
    assert f"{table}_heir inherit from the table" in refusal(reader)


def test_the_end_of_a_small_byte_limit_does_not_depend_on_relation_messages(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    read = reader()
    (split,) = read.source.splits(CONTEXT)
    for number in range(12):
        query(postgres_server, f"insert into {table} values ({number}, 'a', 1)")
    read.until(lambda: len(read.rows) == 12)
    stop, slot = read.positions[split.name], split.info["slot"]
    ends = read.source._with_connection(
        lambda connection: slots.commits(connection, slots.Slot(slot, split.info["publication"]), stop, 1000)
    )
    start = ends[3].end

    def end_of(bytes_max: int) -> int:
        reading = read.task.read_within(split, start, stop, bytes_max)
        while True:
            try:
                next(reading)
            except StopIteration as end:
                return end.value

    before = [
        end_of(size) for size in range(20, 200, 10)
    ]  # the slot sends the table's relation message before the range
    query(postgres_server, f"select pg_replication_slot_advance('{slot}_r', '{lsn_text(start)}')")
    assert [end_of(size) for size in range(20, 200, 10)] == before


def test_the_copy_is_removed_when_no_retained_epoch_needs_it(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader], unique_name: str
) -> None:
    query(postgres_server, f"insert into {table} select i, 'a', i from generate_series(1, 20) i")
    store = MemoryStore(unique_name)
    read = reader(store)
    read.epoch(10)
    half = dict(read.positions)
    read.epoch(10)
    read.source.released([half, read.positions])
    assert [name for name in store.list("input") if name.endswith(".parquet")]
    read.source.released([read.positions])
    assert not [name for name in store.list("input") if name.endswith(".parquet")]
    query(postgres_server, f"insert into {table} values (100, 'b', 0)")
    read.until(lambda: len(read.rows) == 21)
    read.source.close()
    again = reader(store)
    with pytest.raises(ProgramError, match="the copy of the table is removed"):
        again.source.committed(half)
    again.source.committed(read.positions)


# --- upserts ---------------------------------------------------------------------------------------------------


def test_upserts_have_only_the_key_of_the_previous_row(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    query(postgres_server, f"alter table {table} replica identity default")
    read = reader(upserts=True)
    query(postgres_server, f"insert into {table} values (1, 'a', 1), (2, 'b', 2)")
    query(postgres_server, f"update {table} set n = 5 where id = 1")
    query(postgres_server, f"update {table} set id = 3 where id = 2")
    query(postgres_server, f"delete from {table} where id = 1")
    read.until(lambda: len(read.rows) == 6)
    found = [(row.get_row_kind(), row.id, row.name) for row in read.rows]
    assert found == [
        (RowKind.INSERT, 1, "a"),
        (RowKind.INSERT, 2, "b"),
        (RowKind.UPDATE_AFTER, 1, "a"),
        (RowKind.DELETE, 2, None),
        (RowKind.UPDATE_AFTER, 3, "b"),
        (RowKind.DELETE, 1, None),
    ]


def test_an_unchanged_toasted_value_is_retained_or_reported(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    query(postgres_server, f"alter table {table} alter column name set storage external")
    large = "repeat('x', 100000)"
    read = reader()
    query(postgres_server, f"insert into {table} values (1, {large}, 1)")
    query(postgres_server, f"update {table} set n = 2")
    read.until(lambda: len(read.rows) == 3)
    assert [len(row.name) for row in read.rows] == [100_000] * 3
    query(postgres_server, f"alter table {table} replica identity default")
    query(postgres_server, f"update {table} set n = 3")
    with pytest.raises(ProgramError, match=r"does not have rows as they were before a change|has only the key"):
        read.until(lambda: len(read.rows) == 5)


# --- rejections ------------------------------------------------------------------------------------------------


def refusal(read: Callable[[], Any]) -> str:
    with pytest.raises(ProgramError) as refused:
        read()
    return str(refused.value)


def test_a_table_without_full_replica_identity_is_rejected(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    query(postgres_server, f"alter table {table} replica identity default")
    message = refusal(reader)
    assert f"Run: ALTER TABLE public.{table} REPLICA IDENTITY FULL" in message and "upserts=True" in message


def test_an_altered_or_truncated_table_is_reported(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    read = reader()
    query(postgres_server, f"alter table {table} add column more int")
    query(postgres_server, f"insert into {table} values (1, 'a', 1, 7)")
    read.until(lambda: len(read.rows) == 1)  # an added column changes nothing
    query(postgres_server, f"truncate {table}")
    assert "the table was truncated" in refusal(lambda: read.until(lambda: len(read.rows) == 2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("alter table {} drop column name", "column 'name' no longer exists"),
        ("alter table {} rename column name to title", "column 'name' no longer exists"),
        ("alter table {} alter column name type bytea using null", "column 'name' has another type"),
    ],
)
def test_a_dropped_column_is_reported(
    change: str, message: str, postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    read = reader()
    query(postgres_server, change.format(table))
    query(postgres_server, f"insert into {table} (id) values (1)")
    assert message in refusal(lambda: read.until(lambda: bool(read.rows)))


def test_a_dropped_slot_is_reported_at_the_start_and_while_reading(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader], unique_name: str
) -> None:
    store = MemoryStore(unique_name)
    read = reader(store)
    query(postgres_server, f"insert into {table} values (1, 'a', 1)")
    read.until(lambda: len(read.rows) == 1)
    drop_slots(postgres_server, table)
    query(postgres_server, f"insert into {table} values (2, 'a', 1)")
    assert "was dropped, and its log may be lost" in refusal(lambda: read.until(lambda: len(read.rows) == 2))
    read.source.close()
    again = reader(store)
    message = refusal(lambda: again.source.committed(read.positions))
    assert "was dropped, and its log may be lost. Start the job again" in message


def test_positions_of_another_copy_are_rejected(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    read = reader()
    assert "in another copy of the table" in refusal(lambda: read.source.committed({"3f9a-changes": 7}))


def test_a_publication_without_the_table_is_rejected(
    postgres_server: PostgresServer, table: str, reader: Callable[..., Reader]
) -> None:
    query(postgres_server, f"create table {table}o (i int); create publication {table}p for table {table}o")
    assert "does not have the table, so changes would be missing" in refusal(lambda: reader(publication=f"{table}p"))
    query(postgres_server, f"create publication {table}q for table {table} with (publish = 'insert')")
    assert "does not publish every kind of change" in refusal(lambda: reader(publication=f"{table}q"))
    query(postgres_server, f"create publication {table}w for table {table} where (n > 0)")
    assert "publishes some rows only, (n > " in refusal(lambda: reader(publication=f"{table}w"))


@pytest.mark.parametrize("change", ["alter publication {}p drop table {}", "drop publication {}p"])
def test_a_table_removed_from_its_publication_is_reported(
    change: str,
    postgres_server: PostgresServer,
    table: str,
    reader: Callable[..., Reader],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_watch, "_EMPTY_BYTES_MAX", 1)
    read = reader(publication=f"{table}p")
    query(postgres_server, f"insert into {table} values (1, 'a', 1)")
    read.until(lambda: len(read.rows) == 1)
    query(postgres_server, change.format(table, table))
    query(postgres_server, f"insert into {table} values (2, 'a', 1)")
    message = refusal(lambda: read.until(lambda: len(read.rows) == 2))
    assert "does not have the table, so changes" in message or "does not exist" in message


def test_a_partitioned_table_and_quoted_names_are_read(postgres_server: PostgresServer, unique_name: str) -> None:
    schema, name = f'"S {unique_name}"', '"' + 'Ünï "" %s.' + "x" * 40 + '"'
    query(postgres_server, f"create schema {schema}")
    query(postgres_server, f'create table {schema}.{name} (id int primary key, "N%s" text) partition by range (id)')
    query(postgres_server, f"create table {schema}.low partition of {schema}.{name} for values from (0) to (10)")
    query(postgres_server, f"create table {schema}.high partition of {schema}.{name} for values from (10) to (99)")
    for part in (name, "low", "high"):
        query(postgres_server, f"alter table {schema}.{part} replica identity full")
    query(postgres_server, f"insert into {schema}.{name} values (1, 'a'), (11, 'b')")
    source = PostgresChanges(url_of(postgres_server), f"{schema}.{name}", slot="Odd slot " + "x" * 80)
    read = Reader(source, MemoryStore(unique_name))
    read.epoch()
    query(postgres_server, f"update {schema}.{name} set id = 12 where id = 1")  # it moves to the other partition
    query(postgres_server, f"insert into {schema}.{name} values (2, 'c')")
    read.until(lambda: any(row.id == 2 for row in read.rows))
    assert mirrored(read.rows) == {11: (11, "b"), 12: (12, "a"), 2: (2, "c")}
    read.source.close()
    query(
        postgres_server,
        "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name like 'odd_slot%'",
    )


def test_missing_replication_privileges_are_reported_by_name(postgres_server: PostgresServer, table: str) -> None:
    role = f"r{table[-12:]}"
    query(postgres_server, f"create role {role} login; grant select on {table} to {role}")
    url = url_of(postgres_server, user=role)

    def read() -> Any:
        return Reader(PostgresChanges(url, table, slot=table[-12:], patience_s=1), MemoryStore(table))

    assert f'Have the owner of the table run: CREATE PUBLICATION "millstream_{table}" FOR TABLE' in refusal(read)
    query(postgres_server, f"create publication millstream_{table} for table {table}")
    message = refusal(read)
    assert "must be superuser or replication role" in message and f"ALTER ROLE {role} REPLICATION" in message


def test_a_server_without_logical_decoding_is_reported() -> None:
    with with_server(PostgresServer(wal_level="replica")) as server:
        query(server, "create table t (id int primary key)")
        query(server, "alter table t replica identity full")
        message = refusal(lambda: Reader(PostgresChanges(url_of(server), "t"), MemoryStore("no-logical-log")))
        assert "the server has wal_level = replica" in message and "ALTER SYSTEM SET wal_level = logical" in message
        close_cached()


def test_a_slot_with_a_lost_log_is_reported() -> None:
    with with_server(PostgresServer(max_slot_wal_keep_size="1MB", min_wal_size="32MB", max_wal_size="32MB")) as server:
        query(server, "create table t (id int primary key, name text, n int)")
        query(server, "alter table t replica identity full")
        read = Reader(PostgresChanges(url_of(server), "t"), MemoryStore("lost-log"))
        deadline_s = time.monotonic() + PATIENCE_S
        while query(server, "select count(*) from pg_replication_slots where wal_status <> 'lost'") != [(0,)]:
            assert time.monotonic() < deadline_s
            query(server, "create table if not exists filler as select repeat('x', 1000) from generate_series(1, 9000)")
            query(server, "drop table filler")
            query(server, "select pg_switch_wal()")
            query(server, "checkpoint")
        query(server, "insert into t values (1, 'a', 1)")
        message = refusal(lambda: read.until(lambda: bool(read.rows)))
        assert "has lost its log: it grew beyond max_slot_wal_keep_size" in message and "Start the job again" in message
        read.source.close()
        close_cached()


def test_a_missing_table_and_a_wrong_type_are_reported_at_the_users_line(
    postgres_server: PostgresServer, table: str
) -> None:
    assert "table nowhere does not exist" in refusal(lambda: PostgresChanges(url_of(postgres_server), "nowhere"))
    other = Types.ROW_NAMED(["id", "title"], [Types.INT(), Types.STRING()])
    message = refusal(lambda: changes_of(postgres_server, table, type_info=other))
    assert "but not ['title']" in message and "change_readers.py" in message


def test_an_error_in_a_job_names_the_table(postgres_server: PostgresServer, table: str) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.from_source(changes_of(postgres_server, table), WatermarkStrategy.no_watermarks(), "rows")
        rows.sink_to(Collect())

    name = f"truncated-{table}"
    query(postgres_server, f"insert into {table} values (1, 'a', 1)")
    run(build, epochs=1, store=name)
    query(postgres_server, f"truncate {table}")
    with pytest.raises((JobFailedError, ProgramError), match=f"Changes of public.{table}: the table was truncated"):
        run(build, epochs=20, store=name)
