"""The database sink on a real PostgreSQL: rows and their commit's name appear together, once, through every failure."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import psycopg
import pytest
from database_rows import WORDS, commit_id, query, staged, statement_sink, table_sink, url_of, words
from servers.postgres import PostgresServer
from servers.tcp_proxy import TcpProxy

from millstream.common import Row, RowKind, Types
from millstream.connectors.databases.dialect import Timeouts
from millstream.connectors.databases.patience import DatabaseUnavailableError
from millstream.connectors.databases.sink import COMMITS_TABLE
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.databases import DatabaseSink
from millstream.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcExecutionOptions, JdbcSink
from millstream.errors import JobFailedError, ProgramError, TypeMismatchError
from millstream.storage.memory import MemoryStore
from millstream.testing import CRASH, Script, run


@pytest.fixture
def store(unique_name: str) -> MemoryStore:
    return MemoryStore(unique_name)


class OpenSink(Protocol):
    def __call__(self, url: str, table: str, key: Sequence[str] = ()) -> Any: ...


@pytest.fixture
def open_sink() -> Iterator[OpenSink]:
    """Sinks as a driver opens them; closed at the end."""
    sinks = []

    def opened(url: str, table: str, key: Sequence[str] = ()) -> Any:
        sinks.append(table_sink(url, table, key).opened(None))
        return sinks[-1]

    yield opened
    for sink in sinks:
        sink.close()


@pytest.fixture
def table(postgres_server: PostgresServer, unique_name: str) -> str:
    query(postgres_server, f"create table {unique_name} (word text not null, n bigint)")
    return unique_name


@pytest.fixture
def keyed_table(postgres_server: PostgresServer, table: str) -> str:
    query(postgres_server, f"alter table {table} add primary key (word)")
    return table


def rows_of(server: PostgresServer, table: str) -> list[tuple[str, int]]:
    return [tuple(row) for row in query(server, f"select word, n from {table} order by n, word")]


def expected_rows(count: int, first: int = 0) -> list[tuple[str, int]]:
    return [(row.word, row.n) for row in words(count, first)]


# --- whole jobs ------------------------------------------------------------------------------------------------


def test_a_job_that_crashes_between_epochs_inserts_every_row_once(postgres_server: PostgresServer, table: str) -> None:
    script = [*words(10), CRASH, *words(10, 10), CRASH, *words(5, 20)]

    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.add_source(Script(script, type_info=WORDS))
        rows.sink_to(DatabaseSink(url_of(postgres_server), table))

    result = run(build, epoch_records=4)
    assert result.restarts == 2
    assert rows_of(postgres_server, table) == expected_rows(25)


def test_changes_are_applied_by_row_kind(postgres_server: PostgresServer, keyed_table: str) -> None:
    changes = [
        Row.of_kind(RowKind.INSERT, word="kept", n=1),
        Row.of_kind(RowKind.INSERT, word="gone", n=2),
        Row.of_kind(RowKind.INSERT, word="moved", n=3),
        Row.of_kind(RowKind.DELETE, word="gone", n=2),
        Row.of_kind(RowKind.UPDATE_BEFORE, word="moved", n=3),
        Row.of_kind(RowKind.UPDATE_AFTER, word="renamed", n=3),
        Row.of_kind(RowKind.UPDATE_BEFORE, word="kept", n=1),
        Row.of_kind(RowKind.UPDATE_AFTER, word="kept", n=10),
        Row.of_kind(RowKind.DELETE, word="never", n=0),
    ]
    for epoch_records in (100, 1, 2):
        query(postgres_server, f"truncate {keyed_table}")

        def build(env: StreamExecutionEnvironment) -> None:
            rows = env.from_collection(changes, type_info=WORDS)
            rows.sink_to(DatabaseSink(url_of(postgres_server), keyed_table, key="word"))

        run(build, epoch_records=epoch_records)
        assert rows_of(postgres_server, keyed_table) == [("renamed", 3), ("kept", 10)]


def test_quoted_names_and_composite_keys_are_supported(postgres_server: PostgresServer, unique_name: str) -> None:
    table, commits = f'"S {unique_name}"."Odd ""%s.t"', f'"S {unique_name}"."commits %s"'
    query(postgres_server, f'create schema "S {unique_name}"')
    query(postgres_server, f'create table {table} ("a b" text, "%s" int, n int not null, primary key ("%s", "a b"))')
    query(postgres_server, f"create table {unique_name} (a text, b int, unique (a, b))")
    rows_type = Types.ROW_NAMED(["a b", "%s", "n"], [Types.STRING(), Types.INT(), Types.INT()])
    keys_type = Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()])
    rows = [Row("x", 1, 1), Row("x", 2, 2), Row("x", 1, 3), Row.of_kind(RowKind.DELETE, "x", 2, None)]
    url = url_of(postgres_server)

    def build(env: StreamExecutionEnvironment) -> None:
        changes = env.from_collection(rows, type_info=rows_type)
        changes.sink_to(DatabaseSink(url, table, key=["a b", "%s"], commits_table=commits))
        keys = env.from_collection([Row("x", 1), Row("x", 1), Row("y", 1)], type_info=keys_type)
        keys.sink_to(DatabaseSink(url, unique_name, key=["a", "b"]))  # the table has only key columns

    run(build)
    assert query(postgres_server, f"select * from {table}") == [("x", 1, 3)]
    assert query(postgres_server, f"select * from {unique_name} order by 1") == [("x", 1), ("y", 1)]
    assert len(query(postgres_server, f"select * from {commits}")) == 1


def jdbc_sink(url: str, sql: str) -> JdbcSink:
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:{url}")
    execution = JdbcExecutionOptions.builder().with_batch_size(3).with_batch_interval_ms(200).with_max_retries(5)
    return JdbcSink.sink(sql, WORDS, options.with_driver_name("org.postgresql.Driver").build(), execution.build())


@pytest.mark.parametrize(
    "sql",
    [
        "insert into {table} (word, n) values (?, ?)",
        "INSERT INTO {table} (word, n) SELECT ?, ? WHERE 'why?' <> '100%'",
    ],
)
def test_pyflinks_jdbc_sink_is_exactly_once_for_any_statement(
    sql: str, postgres_server: PostgresServer, table: str
) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.add_source(Script([*words(7), CRASH, *words(4, 7)], type_info=WORDS))
        rows.add_sink(
            jdbc_sink(f"postgresql://127.0.0.1:{postgres_server.port}/test?user=postgres", sql.format(table=table))
        )

    run(build, epoch_records=5)
    assert rows_of(postgres_server, table) == expected_rows(11)


def test_a_plain_insert_into_a_view_works_as_in_jdbc(postgres_server: PostgresServer, table: str) -> None:
    query(postgres_server, f"create view {table}v as select * from {table}")

    def build(env: StreamExecutionEnvironment) -> None:
        url = f"postgresql://127.0.0.1:{postgres_server.port}/test?user=postgres"
        rows = env.from_collection(words(7), type_info=WORDS)
        rows.add_sink(jdbc_sink(url, f"insert into {table}v (word, n) values (?, ?)"))

    run(build)
    assert rows_of(postgres_server, table) == expected_rows(7)


# --- one commit, and possible failures ------------------------------------------------------------------------


def test_a_repeated_or_late_commit_changes_nothing(
    postgres_server: PostgresServer, table: str, store: MemoryStore, open_sink: OpenSink
) -> None:
    sink = open_sink(url_of(postgres_server), table)
    first, second = staged(sink, store, words(6)), staged(sink, store, words(4, 6))
    for commit, payloads in [(1, first), (1, first), (3, second), (3, second), (1, first)]:
        sink.commit(commit_id(commit, table), payloads, store)
    assert rows_of(postgres_server, table) == expected_rows(10)
    # The same epoch of another job, such as a fork, is another commit.
    sink.commit(commit_id(1, f"{table}-fork"), first, store)
    assert len(rows_of(postgres_server, table)) == 16


def test_two_concurrent_drivers_write_each_epoch_once(
    postgres_server: PostgresServer, table: str, store: MemoryStore, open_sink: OpenSink
) -> None:
    sinks = [open_sink(url_of(postgres_server), table) for _ in range(2)]
    epochs = [staged(sinks[0], store, words(3, 3 * epoch)) for epoch in range(25)]

    def publish(number: int) -> None:
        for epoch, payloads in enumerate(epochs, start=1):
            sinks[number].commit(commit_id(epoch, table), payloads, store)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert rows_of(postgres_server, table) == expected_rows(75)


@pytest.mark.parametrize("stalled_commits", [True, False])
def test_a_driver_stalled_in_its_transaction_blocks_its_successor_and_duplicates_nothing(
    stalled_commits: bool, postgres_server: PostgresServer, table: str, store: MemoryStore, open_sink: OpenSink
) -> None:
    sink = open_sink(url_of(postgres_server), table)
    payloads = staged(sink, store, words(5))
    name = commit_id(1, table).committer
    with psycopg.connect(url_of(postgres_server)) as stalled:
        stalled.execute(f"insert into {COMMITS_TABLE} (committer, epoch) values (%s, 1)", [name])
        stalled.execute(f"insert into {table} select 'w' || n % 7, n from generate_series(0, 4) n")  # type: ignore[call-overload]
        successor = threading.Thread(target=sink.commit, args=(commit_id(1, table), payloads, store))
        successor.start()
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        while query(postgres_server, waiting) == [(0,)]:
            assert successor.is_alive()
        (stalled.commit if stalled_commits else stalled.rollback)()
    successor.join(30)
    assert rows_of(postgres_server, table) == expected_rows(5)
    query(postgres_server, f"delete from {COMMITS_TABLE} where committer = '{name}'")


@pytest.mark.parametrize("key", [(), ("word",)])
def test_a_connection_cut_after_any_byte_of_the_transaction_leaves_every_row_once(
    key: tuple[str, ...],
    postgres_server: PostgresServer,
    postgres_proxy: TcpProxy,
    keyed_table: str,
    store: MemoryStore,
    open_sink: OpenSink,
) -> None:
    if not key:
        query(postgres_server, f"alter table {keyed_table} drop constraint {keyed_table}_pkey")
    proxied = open_sink(url_of(postgres_server, postgres_proxy.port), keyed_table, key)
    payloads = staged(proxied, store, [Row(word=f"w{n}", n=n) for n in range(20)])
    expected = [(f"w{n}", n) for n in range(20)]
    proxied.commit(commit_id(1, keyed_table), payloads, store)
    for epoch, cut_after in enumerate(range(0, 1800, 90), start=2):
        query(postgres_server, f"truncate {keyed_table}")
        postgres_proxy.cut_after(cut_after)
        mender = threading.Timer(0.05, postgres_proxy.mend)
        mender.start()
        proxied.commit(commit_id(epoch, keyed_table), payloads, store)
        mender.join()
        assert rows_of(postgres_server, keyed_table) == expected, cut_after
        postgres_proxy.mend()


def test_a_missing_response_is_waited_for_in_bounded_time(
    postgres_server: PostgresServer, postgres_proxy: TcpProxy, table: str, store: MemoryStore
) -> None:
    """The proxy holds the connection open and forwards nothing: the network's own time-outs do not apply."""
    sink: Any = table_sink(url_of(postgres_server, postgres_proxy.port), table)
    sink.timeouts = Timeouts(transaction_s=1.0)
    sink = sink.opened(None)
    payloads = staged(sink, store, words(5))
    sink.commit(commit_id(1, table), payloads, store)
    postgres_proxy.stall()
    mender = threading.Timer(1.5, postgres_proxy.mend)
    mender.start()
    sink.commit(commit_id(2, table), staged(sink, store, words(5, 5)), store)
    mender.join()
    assert rows_of(postgres_server, table) == expected_rows(10)
    sink.close()


def test_a_commit_whose_acknowledgement_is_lost_is_recognised(
    postgres_server: PostgresServer,
    table: str,
    store: MemoryStore,
    open_sink: OpenSink,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = open_sink(url_of(postgres_server), table)
    payloads = staged(sink, store, words(5))
    commit, losses = psycopg.Connection.commit, iter([True])

    def commit_and_lose(connection: Any) -> None:
        commit(connection)
        if next(losses, False):
            raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(psycopg.Connection, "commit", commit_and_lose)
    sink._connection.close()
    sink._connection = None
    losses = iter([False, True])  # the first commit is that of a new session's settings
    sink.commit(commit_id(1, table), payloads, store)
    assert rows_of(postgres_server, table) == expected_rows(5)


def test_a_server_killed_between_and_within_commits_loses_and_duplicates_nothing(
    postgres_server: PostgresServer, table: str, store: MemoryStore, open_sink: OpenSink
) -> None:
    sink = open_sink(url_of(postgres_server), table)
    epochs = [staged(sink, store, words(2000, 2000 * epoch)) for epoch in range(12)]
    half_way, done = threading.Event(), []

    def publish() -> None:
        for epoch, payloads in enumerate(epochs, start=1):
            sink.commit(commit_id(epoch, table), payloads, store)
            if epoch == 5:
                half_way.set()
        done.append(True)

    publishing = threading.Thread(target=publish)
    publishing.start()
    assert half_way.wait(60)
    postgres_server.kill()
    postgres_server.restart()
    publishing.join(60)
    assert done and rows_of(postgres_server, table) == expected_rows(24_000)


def test_synchronous_commit_is_enforced_for_every_role(
    postgres_server: PostgresServer, table: str, open_sink: OpenSink, unique_name: str
) -> None:
    role = f"r{unique_name[-12:]}"
    query(postgres_server, f"create role {role} login superuser")
    query(postgres_server, f"alter role {role} set synchronous_commit = off")
    sink = open_sink(url_of(postgres_server, user=role), table)
    assert sink._connection.execute("show synchronous_commit").fetchone() == ("on",)


# --- rejections ------------------------------------------------------------------------------------------------


def refused(server: PostgresServer, table: str, key: Any = (), rows: Any = None, type_info: Any = WORDS) -> str:
    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.from_collection(words(2) if rows is None else rows, type_info=type_info)
        stream.sink_to(DatabaseSink(url_of(server), table, key=key))

    with pytest.raises((ProgramError, JobFailedError)) as refusal:
        run(build)
    return str(refusal.value)


def test_a_missing_table_is_reported_before_the_job_starts(postgres_server: PostgresServer) -> None:
    assert "append to nowhere): the table does not exist. Create it first" in refused(postgres_server, "nowhere")


def test_a_key_without_a_unique_index_is_rejected(postgres_server: PostgresServer, keyed_table: str) -> None:
    message = refused(postgres_server, keyed_table, key="n")
    assert f"n is not unique in the table (unique are: {keyed_table}_pkey (word))" in message
    assert "has the columns ['word', 'n'], not ['m']" in refused(postgres_server, keyed_table, key=["word", "m"])


@pytest.mark.parametrize(
    ("index", "shown"),
    [
        ("create unique index {0}i on {0} (n)", "(n)"),
        ("create unique index {0}i on {0} (n) where n > 5", "(n, …)"),
        ("create unique index {0}i on {0} (lower(word))", "(…)"),
        ("alter table {0} add constraint {0}i exclude using btree (n with =)", "(n, …)"),
    ],
)
def test_an_upsert_that_may_violate_another_index_is_rejected(
    index: str, shown: str, postgres_server: PostgresServer, keyed_table: str
) -> None:
    """The server would reject rows of an epoch that the job has committed, and the job could never continue."""
    query(postgres_server, index.format(keyed_table))
    message = refused(postgres_server, keyed_table, key="word")
    assert f"has the unique index {keyed_table}i {shown} besides the key word" in message
    assert f"drop it (DROP INDEX {keyed_table}i)" in message


def test_indexes_that_contain_the_key_and_deferrable_ones_are_accepted(
    postgres_server: PostgresServer, keyed_table: str
) -> None:
    """Two rows swap the values of a deferrable constraint within an epoch: it is checked when both are written."""
    query(postgres_server, f"create unique index on {keyed_table} (n, word)")
    query(postgres_server, f"alter table {keyed_table} add unique (n) deferrable")
    query(postgres_server, f"insert into {keyed_table} values ('a', 1), ('b', 2)")
    rows = [Row.of_kind(RowKind.UPDATE_AFTER, word="a", n=2), Row.of_kind(RowKind.UPDATE_AFTER, word="b", n=1)]
    run(
        lambda env: env.from_collection(rows, type_info=WORDS).sink_to(
            DatabaseSink(url_of(postgres_server), keyed_table, key="word")
        )
    )
    assert rows_of(postgres_server, keyed_table) == [("b", 1), ("a", 2)]


def test_a_unique_index_on_one_partition_is_rejected(postgres_server: PostgresServer, unique_name: str) -> None:
    query(postgres_server, f"create table {unique_name} (word text primary key, n bigint) partition by hash (word)")
    part = f"{unique_name}p"
    query(postgres_server, f"create table {part} partition of {unique_name} for values with (modulus 1, remainder 0)")
    written = DatabaseSink(url_of(postgres_server), unique_name, key="word")
    run(lambda env: env.from_collection(words(3), type_info=WORDS).sink_to(written))
    assert rows_of(postgres_server, unique_name) == expected_rows(3)
    query(postgres_server, f"create unique index {part}i on {part} (n)")
    assert f"has the unique index {part}i (n)" in refused(postgres_server, unique_name, key="word")


def test_an_unlogged_table_is_rejected(postgres_server: PostgresServer, table: str) -> None:
    query(postgres_server, f"alter table {table} set unlogged")
    assert "is unlogged: a crash of the server empties it" in refused(postgres_server, table)


def test_missing_privileges_are_reported_by_name(postgres_server: PostgresServer, table: str, unique_name: str) -> None:
    role = f"r{unique_name[-12:]}"
    query(postgres_server, f"create role {role} login; revoke create on schema public from public")
    own = f"{unique_name}commits"

    def message(commits_table: str) -> str:
        sink = DatabaseSink(url_of(postgres_server, user=role), table, commits_table=commits_table)
        with pytest.raises(ProgramError) as refusal:
            sink._connector.opened(None)
        return str(refusal.value)

    assert f'Have an authorised role run: CREATE TABLE IF NOT EXISTS "{own}" (committer text PRIMARY KEY' in message(
        own
    )
    query(postgres_server, f"create table {own} (committer text primary key, epoch bigint, committed_at timestamptz)")
    assert f"Role '{role}' may not write to table {own}. Have its owner run: GRANT" in message(own)
    query(postgres_server, f"grant all on {own} to {role}")
    assert f"Role '{role}' may not write to table {table}" in message(own)
    query(postgres_server, f"grant all on {table} to {role}")
    assert "but a table of commits has committer, epoch and committed_at" in message(table)


def test_rows_that_violate_the_table_are_reported(postgres_server: PostgresServer, table: str) -> None:
    message = refused(postgres_server, table, rows=[Row(word=None, n=1)])
    assert "'word' is null, but the column is NOT NULL" in message and '{"word": null, "n": 1}' in message
    message = refused(postgres_server, table, rows=[Row(word="a\0b", n=1)])
    assert "'word' is a string with the character NUL" in message and "with_dead_letters(folder)" in message
    query(postgres_server, f"alter table {table} add check (n < 3)")
    message = refused(postgres_server, table, rows=[Row(word="a", n=1), Row(word="b", n=3)])
    assert "violates check constraint" in message and '{"word": "b", "n": 3}' in message
    assert "`millstream refused memory:" in message and "--set-aside FOLDER" in message
    other = Types.ROW_NAMED(["word", "m"], [Types.STRING(), Types.LONG()])
    message = refused(postgres_server, table, rows=[Row(word="a", m=1)], type_info=other)
    assert "the table has the columns ['word', 'n'], but not ['m']" in message


def test_updates_without_a_key_are_rejected(postgres_server: PostgresServer, table: str) -> None:
    message = refused(postgres_server, table, rows=[Row.of_kind(RowKind.DELETE, word="a", n=1)])
    assert "found rows of kind -D" in message and "key=[...]" in message


def test_an_unknown_key_column_and_untyped_records_are_rejected(
    postgres_server: PostgresServer, keyed_table: str
) -> None:
    assert "'word' of a record is None" in refused(postgres_server, keyed_table, "word", [Row(word=None, n=1)])
    assert "records without a type" in refused(postgres_server, keyed_table, rows=[("a", 1)], type_info=None)


def test_an_unreachable_database_is_reported_in_bounded_time(store: MemoryStore) -> None:
    sink = table_sink("postgresql://ann:hushhush@127.0.0.1:9/test", "t", patience_s=0.3)
    with pytest.raises(
        DatabaseUnavailableError, match=r"no success in \d+ tries within 0.3 s.*Connection refused"
    ) as away:
        sink.opened(None)
    assert "hushhush" not in f"{away.value} {away.value.__cause__}"


def test_a_rejected_login_is_not_retried(postgres_server: PostgresServer) -> None:
    sink = table_sink(url_of(postgres_server, user="nobody"), "t", patience_s=60)
    with pytest.raises(ProgramError, match='role "nobody" does not exist'):
        sink.opened(None)


def test_the_password_is_never_shown() -> None:
    sink = DatabaseSink("postgresql://ann:hushhush@db/sales?sslkey=hushhush", "t", key="word")
    connector: Any = sink._connector
    assert "hushhush" not in f"{sink!r} {connector.describe()} {connector.subject} {connector.address!r}"
    # In another process it can still connect.
    assert pickle.loads(pickle.dumps(connector)).address.password == "hushhush"


def test_a_statement_with_a_wrong_number_of_parameters_is_rejected() -> None:
    with pytest.raises(ProgramError, match=r"has 1 parameters \(\?\), and type_info has 2 fields"):
        statement_sink("postgresql://db/sales", "insert into t values (?)", WORDS)


def test_a_row_of_another_type_than_declared_is_reported(store: MemoryStore) -> None:
    sink = statement_sink("postgresql://db/sales", "insert into t values (?, ?)", WORDS)
    with pytest.raises(TypeMismatchError):
        staged(sink, store, [("a", "b")], None)
