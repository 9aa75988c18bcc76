"""The database sink on a real MariaDB: the same guarantees as on PostgreSQL, in MySQL's dialect."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pytest
from database_rows import WORDS, commit_id, staged, table_sink, words
from servers.mariadb import MariadbServer
from servers.tcp_proxy import TcpProxy

from millstream.common import Instant, Row, RowKind, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.databases import DatabaseSink
from millstream.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from millstream.errors import JobFailedError, ProgramError
from millstream.storage.memory import MemoryStore
from millstream.testing import CRASH, Script, run


def url_of(server: MariadbServer, port: int | None = None) -> str:
    return f"mysql://{server.user}:{quote(server.password)}@127.0.0.1:{port or server.port}/{server.database}"


@pytest.fixture
def table(mariadb_server: MariadbServer, unique_name: str) -> str:
    mariadb_server.execute(f"create table {unique_name} (word varchar(50) primary key, n bigint) engine = InnoDB")
    return unique_name


@pytest.fixture
def proxy(mariadb_server: MariadbServer) -> Iterator[TcpProxy]:
    with mariadb_server.proxy() as way:
        yield way


def rows_of(server: MariadbServer, table: str) -> list[tuple[Any, ...]]:
    return server.execute(f"select word, n from {table} order by n, word")


@pytest.mark.parametrize("url_form", ["mysql://", "jdbc:mysql://", "jdbc:mariadb://"])
def test_changes_are_applied_by_row_kind_and_crashes_duplicate_nothing(
    url_form: str, mariadb_server: MariadbServer, table: str
) -> None:
    changes = [
        *[Row(word=f"w{n}", n=n) for n in range(20)],
        Row.of_kind(RowKind.DELETE, word="w3", n=3),
        CRASH,
        Row.of_kind(RowKind.UPDATE_BEFORE, word="w4", n=4),
        Row.of_kind(RowKind.UPDATE_AFTER, word="w4", n=400),
        Row.of_kind(RowKind.UPDATE_BEFORE, word="w5", n=5),
        Row.of_kind(RowKind.UPDATE_AFTER, word="w500", n=5),
    ]

    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.add_source(Script(changes, type_info=WORDS))
        rows.sink_to(DatabaseSink(url_of(mariadb_server).replace("mysql://", url_form), table, key="word"))

    run(build, epoch_records=7)
    expected = {f"w{n}": n for n in range(20) if n not in (3, 5)} | {"w4": 400, "w500": 5}
    assert dict(rows_of(mariadb_server, table)) == expected


def test_pyflinks_jdbc_sink_is_exactly_once(mariadb_server: MariadbServer, table: str) -> None:
    mariadb_server.execute(f"alter table {table} drop primary key")
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
    options.with_url(f"jdbc:mysql://127.0.0.1:{mariadb_server.port}/test?useSSL=false&rewriteBatchedStatements=true")
    options.with_user_name(mariadb_server.user).with_password(mariadb_server.password)

    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.add_source(Script([*words(7), CRASH, *words(4, 7)], type_info=WORDS))
        rows.add_sink(JdbcSink.sink(f"insert into {table} (word, n) values (?, ?)", WORDS, options.build()))

    run(build, epoch_records=5)
    assert rows_of(mariadb_server, table) == [(row.word, row.n) for row in words(11)]


def test_a_connection_cut_after_any_byte_of_the_transaction_leaves_every_row_once(
    mariadb_server: MariadbServer, table: str, proxy: TcpProxy, unique_name: str
) -> None:
    mariadb_server.execute(f"alter table {table} drop primary key")
    store, sink = MemoryStore(unique_name), table_sink(url_of(mariadb_server, proxy.port), table)
    sink = sink.opened(None)  # type: ignore[assignment]
    payloads = staged(sink, store, words(20))
    sink.commit(commit_id(1, table), payloads, store)
    for epoch, cut_after in enumerate(range(0, 900, 45), start=2):
        mariadb_server.execute(f"delete from {table}")
        proxy.cut_after(cut_after)
        mender = threading.Timer(0.05, proxy.mend)
        mender.start()
        sink.commit(commit_id(epoch, table), payloads, store)
        mender.join()
        proxy.mend()
        assert rows_of(mariadb_server, table) == [(row.word, row.n) for row in words(20)], cut_after
    sink.close()


def test_two_concurrent_drivers_write_each_epoch_once_to_mysql(
    mariadb_server: MariadbServer, table: str, unique_name: str
) -> None:
    mariadb_server.execute(f"alter table {table} drop primary key")
    store = MemoryStore(unique_name)
    sinks = [table_sink(url_of(mariadb_server), table).opened(None) for _ in range(2)]
    epochs = [staged(sinks[0], store, words(3, 3 * epoch)) for epoch in range(15)]  # type: ignore[arg-type]

    def publish(number: int) -> None:
        for epoch, payloads in enumerate(epochs, start=1):
            sinks[number].commit(commit_id(epoch, table), payloads, store)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert rows_of(mariadb_server, table) == [(row.word, row.n) for row in words(45)]
    for sink in sinks:
        sink.close()


def test_values_of_every_type_round_trip(mariadb_server: MariadbServer, unique_name: str) -> None:
    mariadb_server.execute(
        f"create table {unique_name} (t text, b bool, d double, x blob, da date, ti time(6), ts datetime(6), "
        "i datetime(6), n decimal(20, 3), j json) default charset utf8mb4"
    )
    names = ["t", "b", "d", "x", "da", "ti", "ts", "i", "n", "j"]
    types = [Types.STRING(), Types.BOOLEAN(), Types.DOUBLE(), Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.SQL_DATE()]
    types += [Types.SQL_TIME(), Types.SQL_TIMESTAMP(), Types.INSTANT(), Types.BIG_DEC(), Types.LIST(Types.INT())]
    moment = dt.datetime(2024, 2, 29, 12, 0, 0, 5)
    text = "it's 100% \"x\\\0\n ✓😀"
    row = Row(
        t=text, b=True, d=0.1, x=b"\x00'\\\xff", da=dt.date(1000, 1, 1), ti=dt.time(1, 2, 3, 4), ts=moment,
        i=Instant.of_epoch_milli(-1), n=Decimal("12.345"), j=[1, 2],
    )  # fmt: skip

    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.from_collection([row, Row(**dict.fromkeys(names))], type_info=Types.ROW_NAMED(names, types))
        rows.sink_to(DatabaseSink(url_of(mariadb_server), unique_name))

    run(build)
    found, nulls = mariadb_server.execute(f"select * from {unique_name}")
    time = dt.timedelta(hours=1, minutes=2, seconds=3, microseconds=4)
    before = dt.datetime(1969, 12, 31, 23, 59, 59, 999_000)
    assert found == (
        text,
        1,
        0.1,
        b"\x00'\\\xff",
        dt.date(1000, 1, 1),
        time,
        moment,
        before,
        Decimal("12.345"),
        "[1, 2]",
    )
    assert nulls == (None,) * 10


def refused(server: MariadbServer, table: str, rows: list[Row], key: Any = ()) -> str:
    def build(env: StreamExecutionEnvironment) -> None:
        env.from_collection(rows, type_info=WORDS).sink_to(DatabaseSink(url_of(server), table, key=key))

    with pytest.raises((ProgramError, JobFailedError)) as refusal:
        run(build)
    assert server.password not in str(refusal.value)
    return str(refusal.value)


def test_values_that_do_not_fit_are_rejected_and_never_truncated(mariadb_server: MariadbServer, table: str) -> None:
    message = refused(mariadb_server, table, [Row(word="x" * 51, n=1)])
    assert "'word' is longer than the column, which is varchar(50)" in message
    assert "the table does not exist" in refused(mariadb_server, "nowhere", words(1))
    assert "n is not unique in the table" in refused(mariadb_server, table, words(1), "n")
    mariadb_server.execute(f"alter table {table} engine = MyISAM")
    assert "has no transactions" in refused(mariadb_server, table, words(1))


def test_a_rejected_login_to_mysql_is_not_retried(mariadb_server: MariadbServer) -> None:
    sink = DatabaseSink(url_of(mariadb_server), "t", password="hushhush", patience_s=60)
    with pytest.raises(ProgramError, match="Access denied") as refusal:
        sink._connector.opened(None)
    assert "hushhush" not in str(refusal.value)


@pytest.mark.parametrize(
    ("index", "shown"),
    [("unique key i (n)", "i (n)"), ("unique key i (word(3), n)", "i (n, …)"), ("unique key i (word(3))", "i (…)")],
)
def test_an_upsert_that_could_overwrite_other_rows_is_rejected(
    index: str, shown: str, mariadb_server: MariadbServer, table: str
) -> None:
    """ON DUPLICATE KEY UPDATE uses whichever index a row collides with: a row of another key would be overwritten."""
    mariadb_server.execute(f"alter table {table} add {index}")
    mariadb_server.execute(f"insert into {table} values ('a', 1), ('b', 2), ('c', 3)")
    message = refused(mariadb_server, table, [Row.of_kind(RowKind.UPDATE_AFTER, word="d", n=3)], "word")
    assert f"has the unique index {shown} besides the key word" in message
    assert "MySQL would overwrite that row" in message
    assert rows_of(mariadb_server, table) == [("a", 1), ("b", 2), ("c", 3)]


def test_a_unique_index_that_contains_the_whole_key_is_accepted(mariadb_server: MariadbServer, table: str) -> None:
    mariadb_server.execute(f"alter table {table} add unique key i (n, word)")
    sink = DatabaseSink(url_of(mariadb_server), table, key="word")
    run(lambda env: env.from_collection([Row(word="a", n=1), Row(word="a", n=2)], type_info=WORDS).sink_to(sink))
    assert rows_of(mariadb_server, table) == [("a", 2)]


def test_a_prefix_index_is_no_key(mariadb_server: MariadbServer, table: str) -> None:
    """An index on a prefix of a column does not cover the rest of it."""
    mariadb_server.execute(f"alter table {table} drop primary key, add unique key i (word(3))")
    assert "word is not unique in the table (unique are: i (…))" in refused(mariadb_server, table, words(1), "word")


def test_an_index_created_while_the_job_runs_overwrites_nothing(
    mariadb_server: MariadbServer, table: str, unique_name: str
) -> None:
    store, sink = MemoryStore(unique_name), table_sink(url_of(mariadb_server), table, ["word"]).opened(None)
    payloads = staged(sink, store, [Row(word="a", n=1), Row(word="b", n=2)])  # type: ignore[arg-type]
    sink.commit(commit_id(1, table), payloads, store)
    mariadb_server.execute(f"alter table {table} add unique key i (n)")
    payloads = staged(sink, store, [Row(word="c", n=1)])  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match=r"has the unique index i \(n\) besides the key word"):
        sink.commit(commit_id(2, table), payloads, store)
    assert rows_of(mariadb_server, table) == [("a", 1), ("b", 2)]
    mariadb_server.execute(f"alter table {table} drop index i")
    sink.commit(commit_id(2, table), payloads, store)
    assert rows_of(mariadb_server, table) == [("a", 1), ("c", 1), ("b", 2)]
    sink.close()
