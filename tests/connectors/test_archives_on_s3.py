"""Tables with an archive on a real S3 (MinIO): state, archive, or both on it; with latency, kills and outages."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from s3_buckets import Bucket
from servers.http_proxy import Fate, HttpProxy, Request
from servers.minio import MinioServer
from waits.live_answers import rows

from millstream import query
from millstream.connectors.files import places
from millstream.errors import MillstreamError
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

LAST, WINDOW_S = 600, 10
WINDOWS = LAST // WINDOW_S + 1
"""One number a second of event time. The first window has nine, the last one."""
SOURCE = (
    "CREATE TABLE numbers (n BIGINT, ts AS TO_TIMESTAMP_LTZ(n * 1000, 3), WATERMARK FOR ts AS ts) WITH ('connector' = "
    f"'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '{LAST}')"
)
INSERT = (
    "INSERT INTO closed_windows SELECT window_end AS closed, COUNT(*) AS c FROM TABLE(TUMBLE(TABLE numbers, "
    f"DESCRIPTOR(ts), INTERVAL '{WINDOW_S}' SECOND)) GROUP BY window_start, window_end"
)
COUNT = "SELECT COUNT(*), TIMESTAMPDIFF(SECOND, TO_TIMESTAMP_LTZ(0, 3), MAX(closed)) FROM {table}"


def session(tmp_path: Path, store: str, archive: str, format: str, machine: int = 0) -> TableEnvironment:
    """A session that knows the tables. `machine`: a machine of its own has an empty local tier."""
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for key, value in {
        "millstream.store": store,
        "millstream.tier.folder": str(tmp_path / f"tier-{machine}"),
        "millstream.epoch.max-records": "60",
        "millstream.retention.epochs": "100",
        "table.local-time-zone": "UTC",
        "pipeline.name": "hours",
    }.items():
        env.get_config().set(key, value)
    env.execute_sql(SOURCE)
    env.execute_sql(
        "CREATE TABLE closed_windows (closed TIMESTAMP_LTZ(3) NOT NULL, c BIGINT, PRIMARY KEY (closed) NOT ENFORCED) "
        f"WITH ('connector' = 'state', 'archive.path' = '{archive}', 'archive.format' = '{format}', "
        "'archive.by' = 'closed', 'archive.after' = '60 s')"
    )
    return env


def seen_by_others(bucket: Bucket, archive: str, format: str) -> pa.Table:
    """The archive's rows as other engines read them."""
    if format == "delta":
        return DeltaTable(archive).to_pyarrow_table()
    if "://" not in archive:
        return pq.read_table(archive)
    prefix = archive.removeprefix(f"{bucket.url}/") + "/"
    names = [key for key in bucket.keys(prefix) if "/." not in key]
    return pa.concat_tables([pq.read_table(pa.BufferReader(bucket.get(name))) for name in names])


def check_whole(env: TableEnvironment, bucket: Bucket, store: str, archive: str, format: str) -> None:
    """All windows of every retained epoch are present once; and other engines read every expired window once."""
    assert rows(env, "SELECT COUNT(*), SUM(c), MIN(c), MAX(c) FROM closed_windows") == [(WINDOWS, LAST, 1, 10)]
    view = query.open(store)
    counts = []
    for epoch in view.epochs():
        [(count, last)] = rows(env, COUNT.format(table=f"closed_windows FOR SYSTEM_TIME AS OF {epoch}"))
        assert count == (last or 0) // WINDOW_S
        counts.append(count)
    assert counts == sorted(counts) and counts[-1] == WINDOWS
    files = view.newest().table("closed_windows").archived_files
    ends = seen_by_others(bucket, archive, format)["closed"].to_pylist()
    assert len(ends) == len(set(ends)) == sum(file.rows for file in files) > WINDOWS // 2
    early = "closed <= TO_TIMESTAMP_LTZ(30000, 3)"
    assert rows(env, f"SELECT SUM(c) FROM closed_windows WHERE {early}") == [(29,)]


@pytest.mark.parametrize("format", ["parquet", "delta"])
@pytest.mark.parametrize(("store_there", "archive_there"), [(True, True), (True, False), (False, True)])
def test_state_and_archive_form_one_table_in_any_placement(
    bucket: Bucket, tmp_path: Path, format: str, store_there: bool, archive_there: bool
) -> None:
    stores = f"{bucket.url}/stores" if store_there else str(tmp_path / "stores")
    archive = f"{bucket.url}/archive" if archive_there else str(tmp_path / "archive")
    env = session(tmp_path, f"{stores}/hours", archive, format)
    with jobs_in_memory():
        env.execute_sql(INSERT).wait()
        check_whole(env, bucket, f"{stores}/hours", archive, format)
        env.execute_sql(f"CREATE CATALOG live WITH ('type' = 'jobs', 'stores' = '{stores}')")
        assert rows(env, "SELECT SUM(c) FROM live.hours.closed_windows") == [(LAST,)]
    if archive_there:
        assert not [key for key in bucket.keys("archive/") if "/.millstream-staging/" in key], "nothing staged is left"


def killed_once_ahead(env: TableEnvironment, epoch: int) -> Any:
    """Start the job, and kill it at this published epoch, with epochs running ahead of their commits."""
    job: Any = env.execute_sql(INSERT)._outcome.source.job  # type: ignore[union-attr]
    while not job.status().is_terminal_state() and job.board.now.published < epoch:
        time.sleep(0.005)
    job.cancel()
    job.wait()
    return job


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_distant_job_killed_and_resumed_on_other_machines_loses_and_duplicates_nothing(
    minio_server: MinioServer, bucket: Bucket, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, archive = f"{bucket.url}/hours", f"{bucket.url}/archive"
    with HttpProxy(minio_server.port, lambda request: Fate(delay_ms=20)) as way, jobs_in_memory():
        for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL"):
            monkeypatch.setenv(name, way.url)
        places._backend.cache_clear()
        most = 0
        for machine, epoch in enumerate((2, 4, 6)):
            env = session(tmp_path, store, archive, format, machine)
            killed_once_ahead(env, epoch)
            [(count, last)] = rows(env, COUNT.format(table="closed_windows"))
            assert count == (last or 0) // WINDOW_S >= most
            most = count
        env = session(tmp_path, store, archive, format, 9)
        env.execute_sql(INSERT).wait()
        check_whole(env, bucket, store, archive, format)


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_an_unreachable_archive_is_waited_for_and_queries_report_missing_files(
    minio_server: MinioServer, bucket: Bucket, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, archive = str(tmp_path / "hours"), f"{bucket.url}/archive"
    requests: list[Request] = []

    def sometimes(request: Request) -> Fate:
        requests.append(request)
        return Fate(cut="after" if len(requests) % 7 == 3 else None)

    with HttpProxy(minio_server.port, sometimes) as way, jobs_in_memory():
        for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL"):
            monkeypatch.setenv(name, way.url)
        places._backend.cache_clear()
        env = session(tmp_path, store, archive, format)
        env.execute_sql(INSERT).wait()
        check_whole(env, bucket, store, archive, format)
        file = query.open(store).newest().table("closed_windows").archived_files[0]
        bucket.client.delete_object(Bucket=bucket.name, Key=f"archive/{file.file}")
        with pytest.raises(MillstreamError, match=f"{file.file} in .*archive is missing, with {file.rows} rows"):
            rows(env, "SELECT COUNT(*) FROM closed_windows")
