"""What is wrong with a cluster is said at the start, by name and with the next step, in bounded time; nothing is lost.

One cluster serves all tests: what is wrong is brought about by settings that reach executors alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cluster_runs import answer_of, driver_environment, millstream_run, program_run
from servers.executor_python import SPARKS_REQUIREMENTS, executor_python
from servers.minio import MinioServer
from servers.server_process import free_port
from servers.spark_cluster import SparkCluster
from waits.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).with_name("small_program.py")
SUMS = [sum(range(key, 60, 3)) for key in range(3)]


@pytest.fixture
def bucket(minio_server: MinioServer, unique_name: str) -> str:
    return minio_server.create_bucket(unique_name)


def run_small(
    cluster: SparkCluster, server: MinioServer, bucket: str, folder: Path, settings: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    command = millstream_run(cluster, PROGRAM, f"s3://{bucket}/small", settings=settings)
    return program_run(command, folder, driver_environment(server))


def patched_python(folder: Path, text: str) -> dict[str, str]:
    """Settings with which this is run when Python starts on an executor."""
    patch = folder / "patch"
    patch.mkdir()
    (patch / "sitecustomize.py").write_text(text)
    return {"spark.executorEnv.PYTHONPATH": str(patch)}


def test_executors_without_pyarrow_are_named_with_the_version_they_need(
    spark_cluster: SparkCluster, minio_server: MinioServer, bucket: str, tmp_path: Path
) -> None:
    python = executor_python(tuple(name for name in SPARKS_REQUIREMENTS if name != "pyarrow"))
    run = run_small(spark_cluster, minio_server, bucket, tmp_path, {"spark.pyspark.python": str(python)})
    assert run.returncode == 1
    assert "on 127.0.0." in run.stderr and "has no pyarrow" in run.stderr, run.stderr[-3000:]
    assert "millstream pack" in run.stderr


def test_a_python_that_executors_do_not_have_is_named(
    spark_cluster: SparkCluster, minio_server: MinioServer, bucket: str, tmp_path: Path
) -> None:
    run = run_small(spark_cluster, minio_server, bucket, tmp_path, {"spark.pyspark.python": "python0.9"})
    assert run.returncode == 1
    assert "cannot start 'python0.9'. Set spark.pyspark.python" in run.stderr, run.stderr[-3000:]


_FIELDS = "major minor micro releaselevel serial"
OTHER_PYTHON = f"""
import collections, sys
sys.version_info = collections.namedtuple("version_info", "{_FIELDS}")(3, 10, 9, "final", 0)
"""


@pytest.mark.parametrize(
    ("patch", "sentence"),
    [
        (OTHER_PYTHON, r"executor \d on 127\.0\.0\.\d runs Python 3\.10 \(.*\), the driver 3\.\d+\. Set "),
        (
            "import sys\nsys.version_info = (3, 2)\n",
            r"executor \d on 127\.0\.0\.\d cannot start its Python \(.*\): Attr",
        ),
    ],
    ids=["another", "one that Spark cannot run in"],
)
def test_executors_with_another_python_are_named_with_what_to_do(
    spark_cluster: SparkCluster, minio_server: MinioServer, bucket: str, tmp_path: Path, patch: str, sentence: str
) -> None:
    run = run_small(spark_cluster, minio_server, bucket, tmp_path, patched_python(tmp_path, patch))
    assert run.returncode == 1
    assert re.search(sentence, run.stderr) and "\tat " not in run.stderr, run.stderr[-3000:]


def test_a_store_that_only_the_driver_reaches_is_said_from_an_executor(
    spark_cluster: SparkCluster, minio_server: MinioServer, bucket: str, tmp_path: Path
) -> None:
    # A way out of the executors' network that leads nowhere.
    settings = {"spark.executorEnv.HTTP_PROXY": f"http://127.0.0.1:{free_port()}"}
    run = run_small(spark_cluster, minio_server, bucket, tmp_path, settings)
    assert run.returncode == 1
    assert f"store s3://{bucket}/small is reachable from the driver, but not from executor" in run.stderr, run.stderr


def test_a_clock_hours_away_is_told_and_the_answer_is_right(
    spark_cluster: SparkCluster, minio_server: MinioServer, bucket: str, tmp_path: Path
) -> None:
    settings = patched_python(tmp_path, "import time\n_now = time.time\ntime.time = lambda: _now() + 3 * 3600\n")
    run = run_small(spark_cluster, minio_server, bucket, tmp_path, settings)
    assert answer_of(run)["sums"] == SUMS
    assert "the clock of executor" in run.stderr and "ahead of the driver's" in run.stderr, run.stderr


def test_a_local_disk_that_cannot_be_written_to_is_an_error_and_not_an_endless_wait(
    spark_cluster: SparkCluster, minio_server: MinioServer, bucket: str, tmp_path: Path
) -> None:
    for worker in spark_cluster.workers:  # a file where its folder was: not even root can write below it
        # Put aside, not removed: executors of the test before may be clearing up in it.
        worker.local_folder.rename(worker.local_folder.with_suffix(".aside"))
        worker.local_folder.write_text("")
    try:
        began = time.monotonic()
        run = run_small(spark_cluster, minio_server, bucket, tmp_path, {})
        assert run.returncode == 1
        assert "executors could not be started. Their logs on the workers give the reason" in run.stderr, run.stderr[
            -3000:
        ]
        assert time.monotonic() - began < PATIENCE_S
    finally:
        for worker in spark_cluster.workers:
            worker.local_folder.unlink()
            worker.local_folder.mkdir()


def test_a_master_that_is_not_there_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    address = f"spark://127.0.0.1:{free_port()}"
    run_there = [sys.executable, "-m", "millstream.cli", "run", "--plain", "--master", address]
    command = [*run_there, "-D", "millstream.store.shared=true", str(PROGRAM), str(tmp_path / "store")]
    run = program_run(command, tmp_path, driver_environment(), timeout_s=60)
    assert run.returncode == 1
    assert f"master {address} cannot be reached from here" in run.stderr
