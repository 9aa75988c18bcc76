"""Rows rejected by real targets: detected before the commit if possible, else dead-lettered, each in one place once."""

from __future__ import annotations

import io
import json
import re
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import pytest
from inputs.fresh_names import fresh_name
from servers.http_service import HttpService
from servers.mariadb import MariadbServer
from servers.postgres import PostgresServer
from servers.redis import RedisServer

from millstream.cli.refused import set_refused_aside, show_refused
from millstream.common import Row, Types
from millstream.common.serialization import SimpleStringSchema
from millstream.common.time import Instant
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import CommitId, WriterContext
from millstream.connectors.databases.addresses import parse_address
from millstream.connectors.databases.dialect import TableName
from millstream.connectors.databases.patience import Patience
from millstream.connectors.databases.sink import DatabaseSink as EngineSink
from millstream.connectors.databases.sink import TableRows
from millstream.connectors.refused_rows import RefusedRow, RefusedRowsError, without_rows
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.databases import DatabaseSink
from millstream.datastream.connectors.http import HttpSink
from millstream.datastream.connectors.redis import RedisSink
from millstream.errors import MillstreamError, ProgramError
from millstream.records.batch import Batch
from millstream.storage.memory import MemoryStore
from millstream.testing.local_jobs import jobs_in_memory

WORDS = Types.ROW_NAMED(["id", "v"], [Types.INT(), Types.STRING()])
NAN, INFINITY = float("nan"), float("inf")


class Database(Protocol):
    """A server of one of the two kinds."""

    def execute(self, sql: str) -> list[Any]: ...


@pytest.fixture(params=["postgresql", "mysql"])
def database(request: pytest.FixtureRequest) -> tuple[Database, str]:
    """A database, and its address."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        return server, f"postgresql://postgres@127.0.0.1:{server.port}/test"
    maria: MariadbServer = request.getfixturevalue("mariadb_server")
    return maria, f"mysql://{maria.user}:{quote(maria.password)}@127.0.0.1:{maria.port}/{maria.database}"


def engine_sink(url: str, table: str, key: Sequence[str] = ()) -> EngineSink:
    sink = EngineSink(parse_address(url), TableRows(TableName.parse(table), tuple(key))).opened(None)
    assert isinstance(sink, EngineSink)
    return sink


def staged(sink: EngineSink, store: MemoryStore, rows: Sequence[Any], type_info: TypeInformation) -> list[Any]:
    """The payload of a task of an older version, which stages rows that will be rejected."""
    context = WriterContext(
        "out", 1, 0, 1, fresh_name("n").replace("-", ""), store, 0, type_info, "job", dead_letters="x"
    )
    writer = sink.writer(context)
    writer.write(Batch.of_values(list(rows), type_info))
    return list(writer.stage())


# --- detected before the commit --------------------------------------------------------------------------------

COLUMNS: list[tuple[str, TypeInformation, list[Any]]] = [
    ("varchar(3)", Types.STRING(), ["abc", "abcd", "abc   ", "äöü", "äöü\N{GRINNING FACE}", "", None]),
    ("char(3)", Types.STRING(), ["abc", "abcd", "a"]),
    ("text", Types.STRING(), ["a\0b", "a"]),
    ("varchar(3) not null", Types.STRING(), [None, "a"]),
    ("varchar(3) not null default 'x'", Types.STRING(), [None, "a"]),
    ("smallint", Types.LONG(), [32767, 32768, -32768, -32769, None]),
    ("integer", Types.LONG(), [2**31 - 1, 2**31, -(2**31), -(2**31) - 1]),
    ("bigint", Types.INT(), [2**31 - 1]),
    (
        "decimal(5,2)",
        Types.DECIMAL(10, 4),
        [Decimal(v) for v in ("999.99", "999.9949", "-999.995", "1000")],
    ),
    ("decimal(5,2)", Types.LONG(), [999, -999, 1000, -1000]),
    ("decimal(5,2)", Types.DOUBLE(), [1.0, NAN, INFINITY]),
    ("double precision", Types.DOUBLE(), [1.0, NAN, INFINITY, -INFINITY, None]),
    ("real", Types.DOUBLE(), [1e38, NAN, -INFINITY]),
]
OF_POSTGRES = [
    ("uuid", Types.STRING(), [str(uuid.UUID(int=7)), "{" + str(uuid.UUID(int=7)) + "}", uuid.UUID(int=7).hex, "no"]),
    ("real", Types.DOUBLE(), [3e38, 1e39]),
]
OF_MYSQL = [
    ("tinyint unsigned", Types.INT(), [255, 256, -1]),
    ("int unsigned", Types.LONG(), [2**32 - 1, 2**32, -1]),
    ("bigint unsigned", Types.LONG(), [2**63 - 1, -1]),
    ("mediumint", Types.INT(), [2**23 - 1, 2**23]),
]


def test_rows_the_database_would_reject_are_rejected_before_the_commit(
    database: tuple[Database, str], unique_name: str
) -> None:
    server, url = database
    columns = [*COLUMNS, *(OF_POSTGRES if url.startswith("postgresql") else OF_MYSQL)]
    for number, (declared, type_info, values) in enumerate(columns):
        table, row_type = f"{unique_name}{number}", Types.ROW_NAMED(["id", "v"], [Types.INT(), type_info])
        server.execute(f"create table {table} (id int, v {declared})")
        sink, store = engine_sink(url, table), MemoryStore(table)
        rows = [Row(id=at, v=value) for at, value in enumerate(values)]
        before = {value.row for value in sink.accepted.refused(Batch.of_values(rows, row_type).columns())}
        after = set()
        for at, row in enumerate(rows):
            try:
                sink.commit(CommitId(table, "out", at + 1), staged(sink, store, [row], row_type), store)
            except RefusedRowsError as error:
                assert [refused.row for refused in error.rows] == [0]
                after.add(at)
        sink.close()
        assert before == after, (declared, [values[at] for at in before ^ after])


@pytest.mark.parametrize("key", [(), ("id",)])
def test_the_rejected_rows_among_many_are_identified(
    database: tuple[Database, str], unique_name: str, key: tuple[str, ...]
) -> None:
    server, url = database
    server.execute(f"create table {unique_name} (id int primary key, v varchar(9), check (v <> 'bad'))")
    rows = [Row(id=n, v="bad" if n % 41 == 7 else "far too long" if n % 50 == 9 else "good") for n in range(400)]
    rows += [] if key else [Row(id=3, v="twice")]
    sink, store = engine_sink(url, unique_name, key), MemoryStore(unique_name)
    publish = [*staged(sink, store, rows[:150], WORDS), *staged(sink, store, rows[150:], WORDS)]
    with pytest.raises(RefusedRowsError, match="The first refused row is") as refusal:
        sink.commit(CommitId(unique_name, "out", 1), publish, store)
    assert server.execute(f"select count(*) from {unique_name}")[0][0] == 0
    places = [(refused.item, refused.row) for refused in refusal.value.rows]
    expected = [at for at, row in enumerate(rows) if row.v != "good"]
    assert places == [(0, at) if at < 150 else (1, at - 150) for at in expected]
    for _ in range(2):
        sink.commit(CommitId(unique_name, "out", 1), without_rows(publish, refusal.value.rows), store)
    sink.close()
    taken = [row[0] for row in server.execute(f"select id from {unique_name} order by id")]
    assert taken == [n for n in range(400) if n not in expected]


def test_the_search_for_rejected_rows_is_time_limited_and_completed_later(
    database: tuple[Database, str], unique_name: str
) -> None:
    server, url = database
    server.execute(f"create table {unique_name} (id int primary key, v varchar(9), check (v <> 'bad'))")
    clock = iter(range(0, 10**6, 1_000))  # every check of the clock reports a timeout
    patience = Patience(monotonic=lambda: float(next(clock)))
    table = TableRows(TableName.parse(unique_name), ("id",))
    sink, store = EngineSink(parse_address(url), table, patience=patience).opened(None), MemoryStore(unique_name)
    assert isinstance(sink, EngineSink)
    publish = staged(sink, store, [Row(id=n, v="bad" if n in (3, 5, 6) else "good") for n in range(9)], WORDS)
    left_out: list[RefusedRow] = []
    for row in (3, 5, 6):
        with pytest.raises(RefusedRowsError) as refusal:
            sink.commit(CommitId(unique_name, "out", 1), without_rows(publish, left_out), store)
        assert [refused.row for refused in refusal.value.rows] == [row]
        left_out += refusal.value.rows
    sink.commit(CommitId(unique_name, "out", 1), without_rows(publish, left_out), store)
    assert server.execute(f"select count(*) from {unique_name}")[0][0] == 6
    sink.close()


def test_a_deferred_constraint_names_its_rows_too(postgres_server: PostgresServer, unique_name: str) -> None:
    postgres_server.execute(f"create table {unique_name} (id int unique deferrable initially deferred, v text)")
    url = f"postgresql://postgres@127.0.0.1:{postgres_server.port}/test"
    sink, store = engine_sink(url, unique_name), MemoryStore(unique_name)
    publish = staged(sink, store, [Row(id=1, v="a"), Row(id=2, v="b"), Row(id=1, v="c")], WORDS)
    with pytest.raises(RefusedRowsError, match="violates unique constraint") as refusal:
        sink.commit(CommitId(unique_name, "out", 1), publish, store)
    assert [(refused.row, refused.shown) for refused in refusal.value.rows] == [(2, '{"id": 1, "v": "c"}')]
    sink.close()


def test_table_errors_name_no_rows(database: tuple[Database, str], unique_name: str) -> None:
    server, url = database
    server.execute(f"create table {unique_name} (id int, v varchar(9))")
    sink, store = engine_sink(url, unique_name), MemoryStore(unique_name)
    publish = staged(sink, store, [Row(id=1, v="a")], WORDS)
    server.execute(f"drop table {unique_name}")
    with pytest.raises(ProgramError, match="exist") as refusal:
        sink.commit(CommitId(unique_name, "out", 1), publish, store)
    assert not isinstance(refusal.value, RefusedRowsError)
    sink.close()


@pytest.mark.parametrize("key", [(), ("id",)])
def test_an_identity_column_accepts_the_streams_values(
    postgres_server: PostgresServer, unique_name: str, key: tuple[str, ...]
) -> None:
    postgres_server.execute(f"create table {unique_name} (id int generated always as identity primary key, v text)")
    url = f"postgresql://postgres@127.0.0.1:{postgres_server.port}/test"
    sink, store = engine_sink(url, unique_name, key), MemoryStore(unique_name)
    sink.commit(CommitId(unique_name, "out", 1), staged(sink, store, [Row(id=7, v="a")], WORDS), store)
    sink.close()
    assert list(postgres_server.execute(f"select id, v from {unique_name}")) == [(7, "a")]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("id int, v text, z int not null", r"columns \['z'\] are NOT NULL and have no default"),
        ("id int, v varchar(9) generated always as ('x') stored", r"fields \['v'\], but the database computes"),
    ],
)
def test_unwritable_columns_are_rejected_before_the_commit(
    database: tuple[Database, str], unique_name: str, tmp_path: Path, columns: str, message: str
) -> None:
    server, url = database
    server.execute(f"create table {unique_name} ({columns})")
    sink = DatabaseSink(url, unique_name).with_dead_letters(str(tmp_path / "letters"))
    with pytest.raises(MillstreamError, match=message):
        run_job(tmp_path / "store", sink, [Row(id=1, v="a")])
    assert not list((tmp_path / "store" / "manifests").glob("*"))


def test_columns_with_defaults_may_be_omitted(database: tuple[Database, str], unique_name: str) -> None:
    server, url = database
    key = "serial primary key" if url.startswith("postgresql") else "int auto_increment primary key"
    filled = f"n {key}, d int not null default 7, g int generated always as (id * 2) stored"
    server.execute(f"create table {unique_name} (id int, v text, {filled})")
    sink, store = engine_sink(url, unique_name), MemoryStore(unique_name)
    sink.commit(CommitId(unique_name, "out", 1), staged(sink, store, [Row(id=1, v="a")], WORDS), store)
    sink.close()
    assert list(server.execute(f"select id, d, g from {unique_name}")) == [(1, 7, 2)]


def test_views_and_tables_with_row_security_are_written_and_name_rejected_rows(
    postgres_server: PostgresServer, unique_name: str
) -> None:
    execute = postgres_server.execute
    execute(f"create table {unique_name} (id int, v text, check (v <> 'bad'))")
    execute(f"create view {unique_name}_view as select * from {unique_name} where id < 100 with check option")
    execute(f"create role {unique_name} login")
    execute(f"grant all on schema public to {unique_name}")
    execute(f"grant all on {unique_name}, {unique_name}_view to {unique_name}")
    execute(f"alter table {unique_name} enable row level security")
    execute(f"create policy few on {unique_name} using (true) with check (id < 50)")
    rows = [Row(id=n, v="bad" if n == 2 else "good") for n in (1, 2, 3, 60, 100)]
    for table, user, refused in (
        (unique_name, unique_name, [2, 60, 100]),
        (f"{unique_name}_view", "postgres", [2, 100]),
    ):
        address = parse_address(f"postgresql://{user}@127.0.0.1:{postgres_server.port}/test")
        commits = TableName.parse(f"{table}_commits")
        sink = EngineSink(address, TableRows(TableName.parse(table)), commits).opened(None)
        assert isinstance(sink, EngineSink)
        store = MemoryStore(table)
        publish = staged(sink, store, rows, WORDS)
        with pytest.raises(RefusedRowsError) as refusal:
            sink.commit(CommitId(table, "out", 1), publish, store)
        left_out = refusal.value.rows
        assert [rows[row.row].id for row in left_out] == refused
        sink.commit(CommitId(table, "out", 1), without_rows(publish, left_out), store)
        sink.close()
    ids = [row[0] for row in execute(f"select id from {unique_name} order by id")]
    assert ids == [1, 1, 3, 3, 60]


def test_a_mysql_view_is_rejected(mariadb_server: MariadbServer, unique_name: str) -> None:
    server = mariadb_server
    server.execute(f"create table {unique_name} (id int)")
    server.execute(f"create view {unique_name}_view as select * from {unique_name}")
    url = f"mysql://{server.user}:{quote(server.password)}@127.0.0.1:{server.port}/{server.database}"
    with pytest.raises(ProgramError, match=r"is a view\. Use its base table"):
        engine_sink(url, f"{unique_name}_view")


NESTED: list[tuple[TypeInformation, Any, Any]] = [
    (Types.ROW_NAMED(["a", "b"], [Types.DOUBLE(), Types.STRING()]), Row(a=1.0, b="x"), Row(a=NAN, b="x")),
    (Types.TUPLE([Types.LONG(), Types.FLOAT()]), (1, 1.0), (1, INFINITY)),
    (Types.MAP(Types.STRING(), Types.DOUBLE()), {"a": 1.0}, {"a": 1.0, "b": -INFINITY}),
    (Types.LIST(Types.TUPLE([Types.DOUBLE()])), [(1.0,)], [(1.0,), (NAN,)]),
]


@pytest.mark.parametrize("number", range(len(NESTED)))
def test_numbers_without_a_json_form_are_rejected_before_the_commit_or_dead_lettered(
    database: tuple[Database, str], unique_name: str, tmp_path: Path, number: int
) -> None:
    server, url = database
    element, good, bad = NESTED[number]
    declared = "json[]" if number == 3 and url.startswith("postgresql") else "json"
    server.execute(f"create table {unique_name} (id int, v {declared})")
    row_type = Types.ROW_NAMED(["id", "v"], [Types.INT(), element])
    rows = [Row(id=1, v=good), Row(id=2, v=bad), Row(id=3, v=None), Row(id=4, v=good)]
    with pytest.raises(MillstreamError, match="'v' is a value with NaN or infinity, which JSON does not have"):
        run_job(tmp_path / "store", DatabaseSink(url, unique_name), rows, row_type)
    sink = DatabaseSink(url, unique_name).with_dead_letters(str(tmp_path / "letters"))
    run_job(tmp_path / "store", sink, rows, row_type)
    assert [letter["record"]["id"] for letter in letters(tmp_path / "letters")] == [2]
    assert sorted(row[0] for row in server.execute(f"select id from {unique_name}")) == [1, 3, 4]


def test_an_older_versions_epoch_with_numbers_without_a_json_form_names_its_rows(
    database: tuple[Database, str], unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, url = database
    server.execute(f"create table {unique_name} (id int, v json)")
    element, good, bad = NESTED[0]
    row_type = Types.ROW_NAMED(["id", "v"], [Types.INT(), element])
    sink, store = engine_sink(url, unique_name), MemoryStore(unique_name)
    publish = staged(sink, store, [Row(id=1, v=good), Row(id=2, v=bad)], row_type)
    monkeypatch.setattr("millstream.connectors.databases.accepted_values._holds_no_json", lambda *_, **__: False)
    with pytest.raises(RefusedRowsError, match="Out of range float values") as refusal:
        sink.commit(CommitId(unique_name, "out", 1), publish, store)
    assert [refused.row for refused in refusal.value.rows] == [1]
    sink.close()


def test_an_instant_outside_datetimes_range_is_reported(mariadb_server: MariadbServer, unique_name: str) -> None:
    server = mariadb_server
    url = f"mysql://{server.user}:{quote(server.password)}@127.0.0.1:{server.port}/{server.database}"
    server.execute(f"create table {unique_name} (id int, v datetime)")
    row_type = Types.ROW_NAMED(["id", "v"], [Types.INT(), Types.INSTANT()])
    sink, store = engine_sink(url, unique_name), MemoryStore(unique_name)
    publish = staged(sink, store, [Row(id=1, v=Instant(0, 0)), Row(id=2, v=Instant(10**12, 0))], row_type)
    with pytest.raises(RefusedRowsError, match="date value out of range") as refusal:
        sink.commit(CommitId(unique_name, "out", 1), publish, store)
    assert [refused.row for refused in refusal.value.rows] == [1]
    sink.close()


# --- whole jobs ------------------------------------------------------------------------------------------------


def run_job(place: Path, sink: Any, rows: list[Any], type_info: Any = WORDS) -> None:
    with jobs_in_memory():
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_store(str(place))
        env.from_collection(rows, type_info).uid("rows").sink_to(sink).uid("out")
        env.execute("ledger")


def letters(folder: Path) -> list[Any]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def test_an_epoch_blocked_by_a_constraint_continues_on_request(
    database: tuple[Database, str], unique_name: str, tmp_path: Path
) -> None:
    server, url = database
    server.execute(f"create table {unique_name} (id int, v varchar(9), check (v <> 'bad'))")
    rows = [Row(id=1, v="good"), Row(id=2, v="bad"), Row(id=3, v="good")]
    store, folder = tmp_path / "store", tmp_path / "letters"
    for _ in range(2):  # neither a restart nor another program helps
        with pytest.raises(MillstreamError, match=r"(?s)`millstream refused .*store --set-aside FOLDER`"):
            run_job(store, DatabaseSink(url, unique_name), rows)
    screen = io.StringIO()
    assert show_refused(str(store), None, screen=screen) == 0
    assert "1 row refused, and the epoch is not published" in screen.getvalue() and '"bad"' in screen.getvalue()
    assert set_refused_aside(str(store), None, str(folder)) == 0
    assert set_refused_aside(str(store), None, str(folder)) == 0  # it was logged before
    for _ in range(2):
        run_job(store, DatabaseSink(url, unique_name), rows)
    assert sorted(row[0] for row in server.execute(f"select id from {unique_name}")) == [1, 3]
    [letter] = letters(folder)
    assert letter["record"] == {"id": 2, "v": "bad"} and "constraint" in letter["reason"].lower()
    screen = io.StringIO()
    assert show_refused(str(store), None, screen=screen) == 0 and "1 row set aside in" in screen.getvalue()
    assert set_refused_aside(str(store), None, str(folder)) == 2  # no epoch is pending


def test_a_sink_with_dead_letters_continues_without_rejected_rows(
    database: tuple[Database, str], unique_name: str, tmp_path: Path
) -> None:
    server, url = database
    server.execute(f"create table {unique_name} (id int, v varchar(9), check (v <> 'bad'))")
    rows = [Row(id=1, v="good"), Row(id=2, v="bad"), Row(id=3, v="far too long"), Row(id=4, v="good")]
    page = (Path(__file__).resolve().parents[2] / "docs" / "connectors" / "refused-rows.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], names)
    with jobs_in_memory():
        env = StreamExecutionEnvironment.get_execution_environment()
        stream = env.from_collection(rows, WORDS)
        names["keep_going"](stream, DatabaseSink(url, unique_name), str(tmp_path / "letters"))
        env.execute("ledger")
    assert sorted(row[0] for row in server.execute(f"select id from {unique_name}")) == [1, 4]
    assert [letter["record"]["id"] for letter in letters(tmp_path / "letters")] == [2, 3]


def test_redis_continues_after_rejected_commands(redis_server: RedisServer, unique_name: str, tmp_path: Path) -> None:
    import redis

    def command(row: Row) -> tuple[str, ...]:
        return ("RPUSH", f"{unique_name}:{row.v}", str(row.id))

    sink = RedisSink.commands(redis_server.url, command).with_dead_letters(str(tmp_path / "letters"))
    rows = [Row(id=n, v="text" if n % 3 == 1 else "list") for n in range(10)]
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        client.set(f"{unique_name}:text", "no list")
        run_job(tmp_path / "store", sink, rows)
        assert client.lrange(f"{unique_name}:list", 0, -1) == ["0", "2", "3", "5", "6", "8", "9"]
    reasons = [letter["reason"] for letter in letters(tmp_path / "letters")]
    assert len(reasons) == 3 and all("WRONGTYPE" in reason for reason in reasons)


def test_the_other_requests_are_sent_under_their_own_keys(http_service: HttpService, tmp_path: Path) -> None:
    answers: Callable[[bytes], int] = lambda body: 422 if b"bad" in body else 204  # noqa: E731
    http_service.judge = answers
    sink = HttpSink(http_service.url, SimpleStringSchema(), body="lines", records_max=1)
    rows = ["a", "bad 1", "b", "bad 2", "c"]
    with pytest.raises(MillstreamError, match=r"(?s)answered 422.*--set-aside FOLDER"):
        run_job(tmp_path / "store", sink, rows, Types.STRING())
    assert set_refused_aside(str(tmp_path / "store"), None, str(tmp_path / "letters")) == 0
    run_job(tmp_path / "store", sink, rows, Types.STRING())
    names: dict[str, set[bytes]] = {}
    for _, headers, body in http_service.requests:
        names.setdefault(headers["idempotency-key"], set()).add(body)
    assert all(len(bodies) == 1 for bodies in names.values()), "one name for two requests"
    taken = {headers["idempotency-key"]: body for status, headers, body in http_service.requests if status == "taken"}
    assert sorted(taken.values()) == [b"a\n", b"b\n", b"c\n"]
    assert [letter["record"]["body"] for letter in letters(tmp_path / "letters")] == ["bad 1\n", "bad 2\n"]


def test_accepted_requests_are_not_sent_again_after_a_rejection(http_service: HttpService, tmp_path: Path) -> None:
    http_service.judge = lambda body: 422 if b"bad" in body else 204
    sink = HttpSink(http_service.url, SimpleStringSchema(), body="lines", records_max=1)
    rows = ["a", "bad 1", "b", "bad 2", "c"]
    run_job(tmp_path / "store", sink.with_dead_letters(str(tmp_path / "letters")), rows, Types.STRING())
    bodies = [body for status, _, body in http_service.requests if status == "taken"]
    assert sorted(bodies) == [b"a\n", b"b\n", b"c\n"]
