"""Programs that run on one machine run on a cluster, by `--master` and a store alone, with the same answers.

Executors have Python and what Spark requires; neither millstream nor what it needs besides is installed there.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster_runs import answer_of, driver_environment, millstream_run, program_run, spark_submit
from servers.minio import MinioServer
from servers.server_process import ROOT
from servers.spark_cluster import SparkCluster

from millstream.checkpoint.manifest import ManifestLog
from millstream.spark.shipping.environment_archive import write_environment
from millstream.spark.shipping.packages import package_files
from millstream.storage import open_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
DEMO = ROOT / "examples" / "impressions"
RECORDS = 6_000


@pytest.fixture
def bucket(minio_server: MinioServer, unique_name: str) -> str:
    return minio_server.create_bucket(unique_name)


def test_all_programs_give_their_answers_on_executors_without_millstream(
    spark_cluster: SparkCluster, minio_server: MinioServer, bucket: str, tmp_path: Path
) -> None:
    settings = {"millstream.store": f"s3://{bucket}/all-programs"}
    command = millstream_run(spark_cluster, HERE / "all_programs.py", settings=settings)
    answer = answer_of(program_run(command, tmp_path, driver_environment(minio_server)))
    assert answer["programs"] > 50
    assert answer["wrong"] == []


def test_the_demo_is_exact_when_spark_submit_runs_it(
    spark_cluster: SparkCluster,
    minio_server: MinioServer,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, output = f"s3://{bucket}/impressions", f"s3://{bucket}/output"
    environment = driver_environment(minio_server) | {"MILLSTREAM_STORE": store}
    arguments = ["--output", output, "--records", str(RECORDS), "--rate", "3000"]
    run = program_run(spark_submit(spark_cluster, HERE / "submitted_demo.py", *arguments), tmp_path, environment)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    download(minio_server, bucket, "output/", tmp_path / "output")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    manifest = ManifestLog(open_store(store)).newest()
    with demo_modules() as demo:
        server = demo.AdServer(per_second=3000 / demo.SPEED)
        humans = demo.human_impressions(server, range(RECORDS))
        assert demo.judge_count(humans, tmp_path / "output" / "numbered").exact
        assert demo.judge_windows(humans, server, tmp_path / "output" / "windows", demo.dropped_in(manifest)).exact


def test_a_package_that_executors_lack_is_named_and_comes_in_an_archive_of_pack(
    spark_cluster: SparkCluster, minio_server: MinioServer, bucket: str, tmp_path: Path
) -> None:
    program, store = HERE / "packed_program.py", f"s3://{bucket}/packed"
    environment = driver_environment(minio_server)
    refused = program_run(millstream_run(spark_cluster, program, store), tmp_path, environment)
    assert refused.returncode == 1
    assert "has no package sortedcontainers, which the job's tasks import" in refused.stderr, refused.stderr[-3000:]
    files = {f"packages/{target}": path for target, path in package_files(["sortedcontainers"]).items()}
    write_environment(tmp_path / "environment.tar.gz", files, {})
    settings = {
        "spark.archives": f"{tmp_path}/environment.tar.gz#environment",
        "spark.pyspark.python": "./environment/bin/python",
    }
    run = program_run(millstream_run(spark_cluster, program, store, settings=settings), tmp_path, environment)
    assert answer_of(run) == {"words": ["aemrst", "illm"]}


def download(server: MinioServer, bucket: str, prefix: str, folder: Path) -> None:
    client = server.client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Contents", ()):
            place = folder / entry["Key"].removeprefix(prefix)
            place.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(bucket, entry["Key"], str(place))


@contextmanager
def demo_modules() -> Iterator[Any]:
    """The demo, as long as the block lasts: other examples have modules of the same names."""
    sys.path.insert(0, str(DEMO))
    try:
        yield importlib.import_module("demo")
    finally:
        sys.path.remove(str(DEMO))
        for name in ("demo", "job", "judge", "asking", "telling"):
            sys.modules.pop(name, None)
