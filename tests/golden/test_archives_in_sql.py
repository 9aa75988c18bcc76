"""Queries over live and archived rows: in SQL, over HTTP and in Python; options, alterations and forks."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from waits.live_answers import eventually, rows

from millstream import query
from millstream.errors import MillstreamError
from millstream.query import archived_rows
from millstream.query.server import Limits, QueryServer, Reader, Rights, ServerSettings
from millstream.state_reader.verifying import verify
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

LAST = 600
"""One row a second of event time; windows of ten seconds. The first has nine rows, the last one."""
WINDOWS = LAST // 10 + 1
WAIT_S = 90
SOURCE = (
    "CREATE TABLE {name} (n BIGINT, ts AS TO_TIMESTAMP_LTZ(n * 1000, 3), WATERMARK FOR ts AS ts) WITH ('connector' = "
    "'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '{last}'{more})"
)
QUERY = (
    "SELECT window_end AS closed, COUNT(*) AS c FROM TABLE(TUMBLE(TABLE {source}, DESCRIPTOR(ts), "
    "INTERVAL '10' SECOND)) GROUP BY window_start, window_end"
)
ALTERED = QUERY.replace("COUNT(*) AS c", "COUNT(*) AS c, COUNT(*) * 2 AS twice")


@pytest.fixture
def t_env(tmp_path: Path) -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        env.get_config().set("millstream.store", str(tmp_path / "store"))
        env.get_config().set("millstream.epoch.max-records", "60")
        env.get_config().set("millstream.retention.epochs", "100")
        env.get_config().set("table.local-time-zone", "UTC")
        env.execute_sql(SOURCE.format(name="numbers", last=LAST, more=""))
        yield env


def create(archive: Path, **options: str) -> str:
    given = {"archive.path": str(archive), "archive.by": "closed", "archive.after": "60 s"} | {
        name.replace("_", "."): value for name, value in options.items()
    }
    written = "".join(f", '{name}' = '{value}'" for name, value in given.items() if value)
    return (
        "CREATE TABLE closed_windows (closed TIMESTAMP_LTZ(3) NOT NULL, c BIGINT, PRIMARY KEY (closed) NOT ENFORCED) "
        f"WITH ('connector' = 'state'{written})"
    )


def run_windows_job(env: TableEnvironment, archive: Path, **options: str) -> None:
    """Run a job with windows, most of which expire into an archive."""
    env.execute_sql(create(archive, **options))
    env.get_config().set("pipeline.name", "hours")
    env.execute_sql(f"INSERT INTO closed_windows {QUERY.format(source='numbers')}").wait()


def test_a_query_reads_state_and_archive_of_one_epoch(t_env: TableEnvironment, tmp_path: Path) -> None:
    run_windows_job(t_env, tmp_path / "archive")
    assert rows(t_env, "SELECT COUNT(*), SUM(c), MIN(c), MAX(c) FROM closed_windows") == [(WINDOWS, LAST, 1, 10)]
    view = query.open(str(tmp_path / "store"))
    newest = view.newest().table("closed_windows")
    archived = sum(file.rows for file in newest.archived_files)
    assert archived > WINDOWS // 2 and newest.all().num_rows == WINDOWS
    counted = []
    for epoch in view.epochs():
        as_of = f"FOR SYSTEM_TIME AS OF {epoch}"
        [(count, last)] = rows(
            t_env,
            f"SELECT COUNT(*), TIMESTAMPDIFF(SECOND, TO_TIMESTAMP_LTZ(0, 3), MAX(closed)) FROM closed_windows {as_of}",
        )
        assert count == (last or 0) // 10  # all windows in order, each once
        counted.append(count)
    assert counted == sorted(counted) and counted[-1] == WINDOWS
    # The change stream emits each window when it leaves the state, once.
    assert pq.read_table(tmp_path / "archive").num_rows == archived
    t_env.execute_sql(f"CREATE CATALOG live WITH ('type' = 'jobs', 'stores' = '{tmp_path}')")
    assert rows(t_env, "SELECT SUM(c) FROM live.hours.closed_windows") == [(LAST,)]


def test_filters_by_time_and_key_prune_archive_files(
    t_env: TableEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_windows_job(t_env, tmp_path / "archive")
    read: list[str] = []
    read_file = archived_rows.read_file

    def counted(file: Any, *arguments: Any) -> pa.Table:
        read.append(file.file)
        return read_file(file, *arguments)

    monkeypatch.setattr(archived_rows, "read_file", counted)
    files = query.open(str(tmp_path / "store")).newest().table("closed_windows").archived_files
    assert len(files) > 8
    for condition, count, files_max in (
        # An archived portion has a file per subtask, and an epoch may have started the next portion.
        ("closed = TO_TIMESTAMP_LTZ(100000, 3)", 1, 2),
        ("closed IN (TO_TIMESTAMP_LTZ(100000, 3), TO_TIMESTAMP_LTZ(110001, 3))", 1, 4),
        ("closed <= TO_TIMESTAMP_LTZ(30000, 3)", 3, 4),
        ("closed > TO_TIMESTAMP_LTZ(20000, 3) AND TO_TIMESTAMP_LTZ(30000, 3) >= closed", 1, 4),
        ("closed > TO_TIMESTAMP_LTZ(598000, 3)", 2, 0),
        ("c = 9", 1, len(files)),
    ):
        read.clear()
        assert rows(t_env, f"SELECT COUNT(*) FROM closed_windows WHERE {condition}") == [(count,)], condition
        assert len(read) <= files_max <= len(files), (condition, read)
    with pytest.raises(MillstreamError, match=r"more than 5 rows.*or by time: WHERE closed"):
        t_env.execute_sql("SET 'table.live.rows-max' = '5'")
        rows(t_env, "SELECT COUNT(*) FROM closed_windows")


def test_archived_rows_are_queried_over_http_and_a_plain_get_reports_that_it_skips_them(
    t_env: TableEnvironment, tmp_path: Path
) -> None:
    run_windows_job(t_env, tmp_path / "archive")
    view = query.open(str(tmp_path / "store"))
    token = "a-token-of-some-length"
    rights = Rights({hashlib.sha256(token.encode()).digest(): Reader("dash", ("closed_windows",))})
    with (
        QueryServer(view, ServerSettings(port=0, rights=rights, limits=Limits(request_timeout_s=50.0))) as server,
        httpx.Client(base_url=f"{server.url}/v1/jobs/hours", timeout=60) as client,
    ):
        body, headers = {"statement": "SELECT SUM(c) FROM closed_windows"}, {"authorization": f"Bearer {token}"}
        assert client.post("/sql", json=body, headers=headers).json()["rows"] == [[LAST]]
    first = view.newest().table("closed_windows").all()["closed"][0]
    assert view.newest().table("closed_windows").of_keys(pa.array([first.as_py()], first.type)).num_rows == 1
    with pytest.raises(MillstreamError, match="is a table with an archive"):
        view.newest().get_columns("closed_windows", pa.array([0], pa.timestamp("ms", "UTC")))


def test_the_plan_shows_where_expired_rows_are_archived(t_env: TableEnvironment, tmp_path: Path) -> None:
    t_env.execute_sql(create(tmp_path / "archive"))
    [(plan,)] = t_env.execute_sql(f"EXPLAIN INSERT INTO closed_windows {QUERY.format(source='numbers')}").collect()
    assert f"archive=[path={tmp_path / 'archive'}, by=closed, after=60 s]" in plan


def test_a_removed_archive_file_fails_queries_that_need_it(t_env: TableEnvironment, tmp_path: Path) -> None:
    run_windows_job(t_env, tmp_path / "archive")
    files = query.open(str(tmp_path / "store")).newest().table("closed_windows").archived_files
    (tmp_path / "archive" / files[0].file).unlink()
    with pytest.raises(MillstreamError, match=f"{files[0].file} in .* is missing, with {files[0].rows} rows"):
        rows(t_env, "SELECT COUNT(*) FROM closed_windows")
    assert rows(t_env, "SELECT c FROM closed_windows WHERE closed = TO_TIMESTAMP_LTZ(600000, 3)") == [(10,)]
    report = verify(str(tmp_path / "store"))
    [problem] = report.problems
    assert files[0].file in problem.file and "is missing" in problem.finding
    assert report.newest_whole == report.epochs[-1].epoch, "the job can go on"


def test_a_replaced_archive_file_is_an_error_and_verify_reports_it(t_env: TableEnvironment, tmp_path: Path) -> None:
    run_windows_job(t_env, tmp_path / "archive")
    assert verify(str(tmp_path / "store")).is_whole
    files = query.open(str(tmp_path / "store")).newest().table("closed_windows").archived_files
    by_size: dict[tuple[int, int], list[str]] = {}
    for file in files:
        by_size.setdefault((file.rows, file.bytes), []).append(file.file)
    first, last = next((names[0], names[-1]) for names in by_size.values() if len(names) > 1)
    places = tmp_path / "archive" / first, tmp_path / "archive" / last
    contents = [place.read_bytes() for place in places]
    for place, content in zip(places, reversed(contents), strict=True):
        place.write_bytes(content)
    with pytest.raises(MillstreamError, match="has changed: its checksum"):
        rows(t_env, "SELECT COUNT(*) FROM closed_windows")
    message = verify(str(tmp_path / "store")).problems
    assert {Path(problem.file).name for problem in message} == {first, last}
    for place, content in zip(places, contents, strict=True):
        place.write_bytes(content)
    assert rows(t_env, "SELECT COUNT(*) FROM closed_windows") == [(WINDOWS,)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"archive_path": ""}, "no 'archive.path'"),
        ({"archive_after": ""}, "but no age at which rows are archived"),
        ({"archive_after": "soon"}, "option 'archive.after' is 'soon', expected a duration"),
        (
            {"archive_by": "c"},
            "option 'archive.by' is 'c', expected a column of DATE, TIMESTAMP or TIMESTAMP_LTZ: closed",
        ),
        ({"archive_by": "close"}, "Did you mean 'closed'"),
        ({"archive_format": "orc"}, "option 'archive.format' is 'orc', expected one of parquet, delta"),
        ({"archive_folder": "x"}, "'archive.folder', which its connector does not know"),
        ({"ttl": "1 h"}, "has 'ttl' and 'archive.path'"),
        ({"archive_path": "s3://me:secret@bucket/x"}, "credentials"),
    ],
)
def test_invalid_archive_options_are_rejected_before_the_job_starts(
    t_env: TableEnvironment, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    t_env.execute_sql(create(tmp_path / "archive", **options))
    with pytest.raises(MillstreamError) as error:
        t_env.execute_sql(f"INSERT INTO closed_windows {QUERY.format(source='numbers')}").wait()
    assert message in str(error.value)
    assert not (tmp_path / "store").exists()


def test_an_archive_is_outside_the_store_and_not_shared_by_tables(t_env: TableEnvironment, tmp_path: Path) -> None:
    for number, inside in enumerate((tmp_path / "store" / "archive", tmp_path / "store", tmp_path / "x/../store/a")):
        t_env.execute_sql(create(inside).replace("closed_windows", f"inside_{number}"))
        with pytest.raises(MillstreamError, match="inside the job's own store"):
            t_env.execute_sql(f"INSERT INTO inside_{number} {QUERY.format(source='numbers')}").wait()
        assert not (tmp_path / "store").exists()
    both = t_env.create_statement_set()
    for name in ("some_windows", "other_windows"):
        t_env.execute_sql(create(tmp_path / "archive").replace("closed_windows", name))
        both.add_insert_sql(f"INSERT INTO {name} {QUERY.format(source='numbers')}")
    with pytest.raises(MillstreamError, match="share one archive"):
        both.execute().wait()
    run_windows_job(t_env, tmp_path / "store-archive")  # a folder whose name starts like the store's
    assert rows(t_env, "SELECT SUM(c) FROM closed_windows") == [(LAST,)]


def test_an_archive_belongs_to_one_job_while_that_job_exists(t_env: TableEnvironment, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    run_windows_job(t_env, archive)
    files = {path.name for path in archive.rglob("*")}
    view = query.open(str(tmp_path / "store")).newest()
    newest = max(file.version for file in view.table("closed_windows").archived_files)

    def second(**settings: str) -> TableEnvironment:
        env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        options = {"store": str(tmp_path / "second"), "epoch.max-records": "60", "retention.epochs": "100"}
        for key, value in ({f"millstream.{name}": value for name, value in options.items()} | settings).items():
            env.get_config().set(key, value)
        env.get_config().set("table.local-time-zone", "UTC")
        env.execute_sql(SOURCE.format(name="numbers", last=LAST, more=""))
        return env

    # The same program with another store, and a restored copy: both would write the archive of the first.
    for settings in ({}, {"execution.state-recovery.path": f"{tmp_path / 'store'}@3"}):
        with pytest.raises(MillstreamError, match=r"which belongs to job 'hours' in .*store"):
            run_windows_job(second(**settings), archive)
        assert not (tmp_path / "second").exists() and {path.name for path in archive.rglob("*")} == files
    shutil.rmtree(tmp_path / "store")
    env = second()
    run_windows_job(env, archive)  # the other jobs are gone
    assert rows(env, "SELECT COUNT(*), SUM(c) FROM closed_windows") == [(WINDOWS, LAST)]
    newer = query.open(str(tmp_path / "second")).newest().table("closed_windows").archived_files
    assert min(file.version for file in newer) > newest, "of two rows of a key others take the newer"


# --- materialised tables ----------------------------------------------------------------------------------------------


def materialized(name: str, archive: Path, format: str, query: str, more: str = "") -> str:
    options = f"'archive.path' = '{archive}', 'archive.format' = '{format}', 'archive.by' = 'closed', "
    return (
        f"CREATE MATERIALIZED TABLE {name} (PRIMARY KEY (closed) NOT ENFORCED) WITH ({options}'archive.after' = '100 s'"
        f"{more}) FRESHNESS = INTERVAL '1' SECOND AS {query.format(source='slow')}"
    )


def count_windows(env: TableEnvironment, table: str) -> int:
    """The number of windows; they are in order, each once."""
    begin = "TIMESTAMP '1970-01-01 00:00:00'"  # a window's end has no time zone, whatever its time column has
    statement = f"SELECT COUNT(*), TIMESTAMPDIFF(SECOND, {begin}, MAX(closed)), MAX(c) FROM {table}"
    [(count, last, most)] = rows(env, statement)
    assert count == (last or 0) // 10 and most in ((None,), (9,), (10,))[min(count, 2)]  # the first second is 1
    return int(count)


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_materialised_table_is_altered_forked_and_dropped_with_its_archive(
    t_env: TableEnvironment, tmp_path: Path, format: str
) -> None:
    t_env.execute_sql(SOURCE.format(name="slow", last=10_000_000, more=", 'rows-per-second' = '600'"))
    archive, other = tmp_path / "archive", tmp_path / "other"
    t_env.execute_sql(materialized("hours", archive, format, QUERY))
    before = eventually(lambda: count_windows(t_env, "hours"), lambda count: count > 40, WAIT_S)
    t_env.execute_sql(f"ALTER MATERIALIZED TABLE hours AS {ALTERED.format(source='slow')}")
    after = eventually(lambda: count_windows(t_env, "hours"), lambda count: count > before + 40, WAIT_S)
    assert after > before
    # The new column is NULL in rows archived earlier.
    [(nulls, doubled)] = rows(t_env, "SELECT COUNT(*) - COUNT(twice), SUM(twice) FROM hours")
    assert nulls >= 20 and doubled > 0
    # A column dropped and added again is a new one: earlier rows do not have it, in the state or in the archive.
    t_env.execute_sql(f"ALTER MATERIALIZED TABLE hours AS {QUERY.format(source='slow')}")
    between = count_windows(t_env, "hours")
    eventually(lambda: count_windows(t_env, "hours"), lambda count: count > between, WAIT_S)  # an epoch ran without it
    t_env.execute_sql(f"ALTER MATERIALIZED TABLE hours AS {ALTERED.replace('* 2', '* 3').format(source='slow')}")
    [(newer,)] = eventually(
        lambda: rows(t_env, "SELECT COUNT(twice) FROM hours"), lambda answer: answer[0][0] > 40, WAIT_S
    )
    assert newer < count_windows(t_env, "hours") - before
    assert rows(t_env, "SELECT COUNT(*) FROM hours WHERE twice <> c * 3") == [(0,)]
    for options, message in (
        ("", "has an archive, and its copy names none"),
        (f"'archive.path' = '{archive}', ", "needs its own"),
    ):
        wrong = (
            f"CREATE MATERIALIZED TABLE wrong (PRIMARY KEY (closed) NOT ENFORCED) WITH ({options}"
            f"'fork.from' = 'hours') AS {ALTERED.replace('* 2', '* 3').format(source='slow')}"
        )
        with pytest.raises(MillstreamError, match=message):
            t_env.execute_sql(wrong)
    t_env.execute_sql(materialized("copied", other, format, ALTERED.replace("* 2", "* 3"), ", 'fork.from' = 'hours'"))
    forked = count_windows(t_env, "copied")
    assert forked >= after
    eventually(lambda: count_windows(t_env, "copied"), lambda count: count > forked + 40, WAIT_S)
    t_env.execute_sql("DROP MATERIALIZED TABLE hours")
    assert count_windows(t_env, "copied") > forked  # rows that its origin archived are still readable
    t_env.execute_sql("DROP MATERIALIZED TABLE copied")
    for folder in (archive, other):
        table = DeltaTable(folder).to_pyarrow_table() if format == "delta" else pq.read_table(folder)
        ends = table["closed"].to_pylist()
        assert ends and len(set(ends)) == len(ends), "others see a row twice"
