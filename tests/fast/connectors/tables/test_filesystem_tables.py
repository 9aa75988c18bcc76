"""Tables in files: what one statement writes another reads; partitions are pruned, and committed once complete."""

from __future__ import annotations

import functools
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.connectors.contracts import CommitId, SourceContext, WriterContext
from millstream.connectors.files.csv_records import CsvDialect
from millstream.connectors.files.places import InputFile
from millstream.connectors.tables.factories import factory_of
from millstream.connectors.tables.factory import TableDefinition
from millstream.connectors.tables.filesystem.partition_commit import PartitionedFileSink, PartitionTime
from millstream.connectors.tables.formats.csv_format import CsvTableDecoder, CsvTableFiles
from millstream.errors import NotAvailableError, NotYetError, ProgramError
from millstream.expressions import types
from millstream.expressions.nested_types import RowType
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.storage.store import open_store
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

STRING = types.VarCharType(0x7FFFFFFF)
DAYS = RowType.of(["n", "day"], [types.IntType(), STRING], nullable=False)
STORE = open_store("memory://partition-commit")
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        yield TableEnvironment.create(EnvironmentSettings.in_streaming_mode())


def rows(t_env: TableEnvironment, statement: str) -> list[tuple[Any, ...]]:
    with t_env.execute_sql(statement).collect() as found:
        return sorted(tuple(each) for each in found)


def files(base: Path) -> list[str]:
    return sorted(str(path.relative_to(base)) for path in base.rglob("*") if path.is_file())


WRITTEN = """('connector' = 'values', 'data' = '[
  [1, "a", "1.50", "2026-11-16 07:00:00.5", "x"], [2, "b c", null, null, "x"],
  [3, null, "-2.25", "2026-11-17 00:00:00", "y/z"]
]')"""
COLUMNS = "n INT, word STRING, price DECIMAL(10, 2), ts TIMESTAMP(3), part STRING"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["_day", ".day", "__a", "a/b", "a=b", "%5F"])
def test_a_partition_column_of_any_name_is_read_back(t_env: TableEnvironment, tmp_path: Path, name: str) -> None:
    """A folder `_day=…` is no hidden one: its rows would be written, and read by nobody."""
    t_env.execute_sql(
        f"CREATE TABLE stored (n INT, `{name}` STRING) PARTITIONED BY (`{name}`) WITH "
        f"('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'csv')"
    )
    t_env.execute_sql("INSERT INTO stored VALUES (1, '_x'), (2, '.y'), (3, 'z')").wait()
    assert rows(t_env, "SELECT * FROM stored") == [(1, "_x"), (2, ".y"), (3, "z")]
    assert rows(t_env, f"SELECT n FROM stored WHERE `{name}` = 'z'") == [(3,)]
    partitions = [each[0] for each in rows(t_env, "SHOW PARTITIONS stored")]
    assert len(partitions) == 3 and all(name in each for each in partitions)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["csv", "json", "avro", "parquet", "orc"])
def test_what_is_written_is_read(t_env: TableEnvironment, tmp_path: Path, format: str) -> None:
    t_env.execute_sql(f"CREATE TABLE given ({COLUMNS}) WITH {WRITTEN}")
    null = ", 'csv.null-literal' = 'NULL'" if format == "csv" else ""
    t_env.execute_sql(
        f"CREATE TABLE stored ({COLUMNS}) PARTITIONED BY (part) WITH "
        f"('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = '{format}'{null})"
    )
    t_env.execute_sql("INSERT INTO stored SELECT * FROM given").wait()
    assert {name.split("/")[0] for name in files(tmp_path)} == {"part=x", "part=y%2Fz"}
    key = lambda row: row[0]  # noqa: E731
    expected = [tuple(row) for row in t_env.execute_sql("SELECT * FROM given").collect()]
    assert sorted([tuple(row) for row in t_env.execute_sql("SELECT * FROM stored").collect()], key=key) == expected
    assert rows(t_env, "SELECT part, n FROM stored WHERE part = 'x'") == [("x", 1), ("x", 2)]
    assert rows(t_env, "SELECT part FROM stored") == [("x",), ("x",), ("y/z",)]


def test_metadata_of_files_and_patterns_of_paths(t_env: TableEnvironment, tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "c.txt"):
        (tmp_path / name).write_text("1,x\n")
        os.utime(tmp_path / name, (1_000, 1_000))
    t_env.execute_sql(
        "CREATE TABLE t (n INT, word STRING, name STRING METADATA FROM 'file.name' VIRTUAL, size BIGINT METADATA FROM "
        "'file.size' VIRTUAL, changed TIMESTAMP_LTZ(3) METADATA FROM 'file.modification-time' VIRTUAL) WITH "
        f"('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'csv', "
        "'source.path.regex-pattern' = '.*/[ab].csv')"
    )
    found = rows(t_env, "SELECT name, size, changed FROM t")
    assert [(name, size, changed.timestamp()) for name, size, changed in found] == [
        ("a.csv", 4, 1_000),
        ("b.csv", 4, 1_000),
    ]


def test_partitioned_tables_are_exchanged_with_other_programs(t_env: TableEnvironment, tmp_path: Path) -> None:
    t_env.execute_sql(f"CREATE TABLE given ({COLUMNS}) WITH {WRITTEN}")
    for format in ("parquet", "csv", "json"):
        path = tmp_path / format
        t_env.execute_sql(
            f"CREATE TABLE {format}_table ({COLUMNS}) PARTITIONED BY (part) WITH "
            f"('connector' = 'filesystem', 'path' = '{path}', 'format' = '{format}')"
        )
        t_env.execute_sql(f"INSERT INTO {format}_table SELECT * FROM given").wait()
    parquet = duckdb.sql(
        f"SELECT n, price, ts FROM read_parquet('{tmp_path}/parquet/*/*.parquet', hive_partitioning=true) ORDER BY n"
    )
    assert [row[0] for row in parquet.fetchall()] == [1, 2, 3]
    table = duckdb.sql(
        f"SELECT column0, column3 FROM read_csv('{tmp_path}/csv/*/*.csv', header=false) ORDER BY column0"
    )
    assert [str(row[1]) for row in table.fetchall()] == ["2026-11-16 07:00:00.500000", "None", "2026-11-17 00:00:00"]
    documents = pd.concat([pd.read_json(path, lines=True) for path in sorted((tmp_path / "json").rglob("*.json"))])
    assert sorted(documents["n"]) == [1, 2, 3]
    other = tmp_path / "theirs" / "dt=2026-11-16"
    other.mkdir(parents=True)
    duckdb.sql(f"COPY (SELECT 7 AS n, 'q\"r,\ns' AS word) TO '{other}/x.csv' (HEADER false)")
    duckdb.sql(f"COPY (SELECT 8::INT AS n, 'b' AS word) TO '{other}/y.csv' (HEADER false)")
    t_env.execute_sql(
        "CREATE TABLE theirs (n INT, word STRING, dt DATE) PARTITIONED BY (dt) WITH "
        f"('connector' = 'filesystem', 'path' = '{tmp_path}/theirs', 'format' = 'csv')"
    )
    assert rows(t_env, "SELECT n, word, CAST(dt AS STRING) FROM theirs") == [
        (7, 'q"r,\ns', "2026-11-16"),
        (8, "b", "2026-11-16"),
    ]


def test_partitions_that_are_not_wanted_are_not_opened(t_env: TableEnvironment, tmp_path: Path) -> None:
    for day, text in (("1", "5,a\n"), ("2", "what is no row\n"), ("__DEFAULT_PARTITION__", "9,b\n")):
        (tmp_path / f"dt={day}").mkdir()
        (tmp_path / f"dt={day}" / "x.csv").write_text(text)
    t_env.execute_sql(
        "CREATE TABLE t (n INT, word STRING, dt INT) PARTITIONED BY (dt) WITH "
        f"('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'csv')"
    )
    assert rows(t_env, "SELECT n FROM t WHERE dt < 2 AND n > 0") == [(5,)]
    assert rows(t_env, "SELECT n FROM t WHERE 1 = dt") == [(5,)]
    assert rows(t_env, "SELECT n FROM t WHERE dt IS NULL") == [(9,)]
    assert rows(t_env, "SELECT n FROM t WHERE dt IN (1, 3)") == [(5,)]
    assert rows(t_env, "SELECT n FROM t WHERE dt <> 2") == [(5,)]


# --- CSV files --------------------------------------------------------------------------------------------------------

FIELD = st.sampled_from(["a", "1", "", '"q"', '"a,b"', '"two\nlines"', '"say ""x"""', 'un"even', "é", "#no"])
LINE = st.tuples(st.integers(0, 9).map(str), FIELD).map(",".join)


@settings(max_examples=15, deadline=None)
@given(st.lists(LINE, min_size=1, max_size=8), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(1, 60))
def test_files_of_csv_by_lines_are_files_by_records(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str, has_end: bool, step: int
) -> None:
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    path.write_bytes((end.join(lines) + (end if has_end else "")).encode())
    row_type = RowType.of(["n", "word"], [types.IntType(), STRING], nullable=False)
    decoder = CsvTableDecoder(row_type, CsvDialect(), ignores_bad=True)

    def read(is_slow: bool, step: int) -> tuple[list[Any], list[Any]]:
        format: Any = CsvTableFiles(decoder)
        if is_slow:
            format._lines = lambda *_: None
        [split] = format.plan(InputFile(str(path), path.stat().st_size, 0), 1 << 20)
        at, found, places = split.start, [], []
        while not format.finished(split, at):
            reading = format.read(split, at, min(at + step, split.info["end"]))
            while True:
                try:
                    found += next(reading).to_pylist()
                except StopIteration as stopped:
                    assert stopped.value > at
                    at = stopped.value
                    break
            places.append(at)
        return found, places

    slow, _ = read(True, 1 << 20)
    assert read(False, 1 << 20)[0] == slow
    assert read(False, step)[0] == read(True, step)[0] == slow


# --- partition commit -------------------------------------------------------------------------------------------------


def committing(base: Path, **options: str) -> PartitionedFileSink:
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    definition = TableDefinition(
        "t",
        DAYS,
        {"path": str(base), "format": "csv", "sink.partition-commit.policy.kind": "success-file", **named},
        partition_keys=("day",),
    )
    sink = factory_of("filesystem").sink(definition)
    assert isinstance(sink, PartitionedFileSink)
    return sink


class Job:
    """Epochs of a sink. Everything goes through JSON, as it does through the manifest."""

    def __init__(self, sink: PartitionedFileSink) -> None:
        self.sink, self.pending, self.epoch, self.publishes = sink, None, 0, True
        self.newest: list[Any] = []

    def run(
        self, days: list[str], now_ms: int = 0, watermark_ms: int = MIN_WATERMARK, final: bool = False, kills: int = 0
    ) -> None:
        self.epoch += 1
        staged: list[Any] = []
        if days:
            context = WriterContext("sink", self.epoch, 0, 1, f"x{self.epoch}", STORE, now_ms, None, "job")
            writer = pickle.loads(pickle.dumps(self.sink)).writer(context)
            columns = pa.RecordBatch.from_arrays(
                [pa.array(range(len(days)), pa.int32()), pa.array(days)], schema=DAYS.schema
            )
            writer.write(Batch.of_columns(columns, TableRowType(DAYS)))
            staged = json.loads(json.dumps(list(writer.stage())))
        plan = self.sink.plan_timed_commit(staged, self.pending, now_ms, final, watermark_ms)
        again = self.sink.plan_timed_commit(staged, self.pending, now_ms, final, watermark_ms)
        assert plan == again
        self.pending = json.loads(json.dumps(plan.pending))
        self.newest = json.loads(json.dumps(plan.publish))
        for _ in range(kills + 1 if self.publishes else 0):  # a commit that is not known to be done is done again
            self.publish()

    def publish(self) -> None:
        self.sink.commit(CommitId("job", "sink", self.epoch), self.newest, STORE)


def test_a_partition_is_committed_when_the_watermark_has_passed_its_time(tmp_path: Path) -> None:
    job = Job(
        committing(
            tmp_path, sink__partition_commit__trigger="partition-time", sink__partition_commit__delay="1 h",
            sink__rolling_policy__rollover_interval="1 d",
        )
    )  # fmt: skip
    job.run(["1970-01-01", "1970-01-02"], watermark_ms=HOUR_MS)
    assert files(tmp_path) == files(tmp_path / ".millstream-staging") or all(
        "millstream-staging" in name for name in files(tmp_path)
    )
    job.run([], watermark_ms=HOUR_MS + 1, kills=2)
    names = [name for name in files(tmp_path) if "staging" not in name]
    assert "day=1970-01-01/_SUCCESS" in names and len(names) == 2
    job.run(["1970-01-02"], watermark_ms=DAY_MS + HOUR_MS)
    assert "day=1970-01-02/_SUCCESS" not in files(tmp_path)
    os.remove(tmp_path / "day=1970-01-01/_SUCCESS")  # a consumer took it
    job.run(["1970-01-01"], watermark_ms=DAY_MS + HOUR_MS)
    assert "day=1970-01-01/_SUCCESS" in files(tmp_path), "late rows make the partition complete anew"
    job.run([], final=True, watermark_ms=MAX_WATERMARK)
    assert "day=1970-01-02/_SUCCESS" in files(tmp_path)
    assert job.pending is None and not [name for name in files(tmp_path) if "staging" in name]


def test_a_partition_is_committed_when_it_has_been_open_for_so_long(tmp_path: Path) -> None:
    job = Job(committing(tmp_path, sink__partition_commit__delay="10 s"))
    job.run(["a", "b"], now_ms=1_000)
    assert job.sink.due_ms(job.pending) == 11_000
    job.run(["c"], now_ms=10_999)
    assert not [name for name in files(tmp_path) if "_SUCCESS" in name]
    job.run([], now_ms=11_000)
    assert [name for name in files(tmp_path) if "_SUCCESS" in name] == ["day=a/_SUCCESS", "day=b/_SUCCESS"]


def test_a_job_may_begin_and_cease_to_commit_partitions(tmp_path: Path) -> None:
    definition = TableDefinition(
        "t",
        DAYS,
        {"path": str(tmp_path), "format": "csv", "sink.rolling-policy.rollover-interval": "1 d"},
        partition_keys=("day",),
    )
    plain: Any = factory_of("filesystem").sink(definition)
    committing_sink = committing(
        tmp_path, sink__partition_commit__trigger="partition-time", sink__rolling_policy__rollover_interval="1 d"
    )
    for first, second in ((plain, committing_sink), (committing_sink, plain)):
        job = Job(first)
        job.run(["1970-01-01"])
        assert job.pending and job.sink.due_ms(job.pending) is not None
        job.sink = second
        job.run([], final=True)
        assert job.pending is None
    assert len([name for name in files(tmp_path) if name.endswith(".csv")]) == 1


def test_the_success_file_follows_every_part_of_its_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from millstream.connectors.tables.filesystem import partition_commit

    sink = committing(tmp_path)
    seen: list[list[str]] = []
    original = partition_commit.with_patience

    def watching(store: Any) -> Any:
        seen.append([name for name in files(tmp_path) if "staging" not in name])
        return original(store)

    monkeypatch.setattr(partition_commit, "with_patience", watching)
    Job(sink).run(["a", "b"])
    assert len(seen[-1]) == 2 and not any("_SUCCESS" in name for name in seen[-1])


class Died(BaseException):
    """The process was killed here."""


def test_success_is_never_seen_before_the_rows_wherever_the_driver_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died_at_every_step = False
    for step in range(1, 200):
        base = tmp_path / str(step)
        sink = committing(base)
        job = Job(sink)
        taken = 0

        def stepping(call: Any, *arguments: Any, **named: Any) -> Any:
            nonlocal taken
            taken += 1
            if taken >= step:  # noqa: B023 - used within this turn only
                raise Died  # a dead process changes nothing any more
            return call(*arguments, **named)

        job.publishes = False
        job.run(["a", "b"])
        with monkeypatch.context() as killing:
            for name in ("link", "unlink", "rename", "replace", "fsync", "mkdir"):
                killing.setattr(os, name, functools.partial(stepping, getattr(os, name)))
            try:
                job.publish()
                died_at_every_step = True
            except Died:
                pass
        for day in ("a", "b"):
            if (base / f"day={day}" / "_SUCCESS").exists():
                assert len(list((base / f"day={day}").glob("part-*.csv"))) == 1
        job.publish()
        assert [name for name in files(base) if "_SUCCESS" in name] == ["day=a/_SUCCESS", "day=b/_SUCCESS"]
        assert len([name for name in files(base) if name.endswith(".csv")]) == 2
        if died_at_every_step:
            assert step > 10
            return
    pytest.fail("the commit never came to its end")


@pytest.mark.parametrize(
    ("pattern", "formatter", "zone", "folder", "expected"),
    [
        (None, None, "UTC", "day=1970-01-02", DAY_MS),
        ("$day $hour:00:00", None, "UTC", "day=1970-01-01/hour=7", 7 * HOUR_MS),
        ("$day $hour:00:00", None, "Europe/Berlin", "day=1970-01-02/hour=07", DAY_MS + 6 * HOUR_MS),
        ("$day $hour", "%Y%m%d %H", "UTC", "day=19700101/hour=07", 7 * HOUR_MS),
        ("$day $hour:00", None, "UTC", "day=1970-01-01/hour=07%3A30", 7 * HOUR_MS + HOUR_MS // 2),
        (None, None, "UTC", "day=__DEFAULT_PARTITION__", None),
        (None, None, "UTC", "day=1970-02-30", None),
    ],
)
def test_times_of_partitions(
    pattern: str | None, formatter: str | None, zone: str, folder: str, expected: int | None
) -> None:
    assert PartitionTime(("day", "hour"), pattern, formatter, zone).milliseconds(folder) == expected


def test_a_query_commits_its_partitions(t_env: TableEnvironment, tmp_path: Path) -> None:
    t_env.execute_sql(
        """CREATE TABLE given (n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'values',
        'data' = '[[1, "2026-11-16 07:00:00"], [2, "2026-11-17 08:00:00"]]')"""
    )
    t_env.execute_sql(
        f"""CREATE TABLE stored (n INT, dt STRING, hm STRING) PARTITIONED BY (dt, hm) WITH (
        'connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'csv', 'scan.watermark.idle-timeout' = '1 s',
        'sink.parallelism' = '1', 'sink.partition-commit.trigger' = 'partition-time',
        'sink.partition-commit.delay' = '1 min', 'sink.partition-commit.policy.kind' = 'success-file',
        'partition.time-extractor.timestamp-pattern' = '$dt $hm:00',
        'sink.rolling-policy.rollover-interval' = '1min', 'sink.rolling-policy.check-interval' = '1min')"""
    )
    t_env.execute_sql(
        "INSERT INTO stored SELECT n, DATE_FORMAT(ts, 'yyyy-MM-dd'), DATE_FORMAT(ts, 'HH:mm') FROM given"
    ).wait()
    assert [name for name in files(tmp_path) if "_SUCCESS" in name] == [
        "dt=2026-11-16/hm=07%3A00/_SUCCESS",
        "dt=2026-11-17/hm=08%3A00/_SUCCESS",
    ]


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({}, ProgramError, "needs the options 'path', 'format'"),
        ({"path": "x"}, ProgramError, "needs the option 'format'"),
        ({"path": "x", "format": "cvs"}, ProgramError, "Did you mean 'csv'"),
        ({"path": "x", "format": "csv", "pat": "y"}, ProgramError, "Did you mean 'path'"),
        ({"path": "x", "format": "csv", "json.ignore-parse-errors": "true"}, ProgramError, "does not know"),
        ({"path": "x", "format": "csv", "source.monitor-interval": "soon"}, ProgramError, "a duration"),
        ({"path": "x", "format": "csv", "source.path.regex-pattern": "("}, ProgramError, "a regular expression"),
        ({"path": "x", "format": "maxwell-json"}, NotYetError, "a later version"),
    ],
)
def test_options_of_sources(options: dict[str, str], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        factory_of("filesystem").source(TableDefinition("t", DAYS, options), None, [])


COMMIT = "sink.partition-commit"


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({f"{COMMIT}.policy.kind": "metastore"}, NotYetError, "Hive"),
        ({f"{COMMIT}.policy.kind": "custom"}, NotAvailableError, "Java"),
        ({f"{COMMIT}.policy.kind": "sucess-file"}, ProgramError, "Did you mean 'success-file'"),
        ({f"{COMMIT}.trigger": "event-time"}, ProgramError, "one of process-time, partition-time"),
        ({f"{COMMIT}.policy.kind": "success-file", f"{COMMIT}.success-file.name": "done"}, ProgramError, "starts with"),
        ({f"{COMMIT}.watermark-time-zone": "Mars"}, ProgramError, "a time zone"),
        ({"partition.time-extractor.timestamp-pattern": "$dya"}, ProgramError, "Did you mean 'day'"),
        ({"partition.time-extractor.timestamp-formatter": "yyyy-LL"}, ProgramError, "a format of"),
        ({"sink.rolling-policy.file-size": "big"}, ProgramError, "a size"),
    ],
)
def test_options_of_sinks(tmp_path: Path, options: dict[str, str], kind: type[Exception], words: str) -> None:
    definition = TableDefinition(
        "t", DAYS, {"path": str(tmp_path), "format": "csv", **options}, partition_keys=("day",)
    )
    with pytest.raises(kind, match=words):
        factory_of("filesystem").sink(definition)
    with pytest.raises(ProgramError, match="INSERT OVERWRITE"):
        factory_of("filesystem").sink(
            TableDefinition("t", DAYS, {"path": str(tmp_path), "format": "csv"}), overwrite=True
        )


def test_files_of_columns_by_name_are_read_for_wanted_columns_only(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"n": 1, "day": "a"}\n{"n": "no number", "day": "b"}\n')
    definition = TableDefinition("t", DAYS, {"path": str(tmp_path), "format": "json"})
    source = factory_of("filesystem").source(definition, [1], []).source
    context = SourceContext(0, 0, 1)
    [split] = source.splits(context)
    [batch] = source.read(split, split.start, split.info["end"])
    assert batch.to_pylist() == [{"day": "a"}, {"day": "b"}]


def test_a_file_name_that_is_not_utf8_is_shown_with_replacements(t_env: TableEnvironment, tmp_path: Path) -> None:
    Path(os.fsdecode(bytes(tmp_path) + b"/a\xff.csv")).write_text("1\n")
    t_env.execute_sql(
        "CREATE TABLE t (n INT, `file.name` STRING METADATA) WITH "
        f"('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'csv')"
    )
    assert rows(t_env, "SELECT n, `file.name` FROM t") == [(1, "a\N{REPLACEMENT CHARACTER}.csv")]
