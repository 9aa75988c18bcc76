"""A disk of an executor's machine becomes full in the middle of a job: the one of the local tier, the one that Spark
keeps its shuffle in, or both. The output is exact, and so is that of the next job.

Each disk is a small file system of its own, in memory; it is filled up to the last byte.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import cluster_program as program
import pytest
from cluster_results import expected, results_of
from cluster_runs import driver_environment, millstream_run
from process_session import ProcessSession
from servers.minio import MinioServer
from servers.spark_cluster import SparkCluster, SparkWorker

PATIENCE_S = 200.0
FULL_AT = 4
"""The epoch after which there is no room any more."""
DISK = "256m"
BALLAST = "ballast"


def _mount(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.fixture
def worker(spark_cluster: SparkCluster) -> Iterator[SparkWorker]:
    """A worker that has small disks of its own."""
    worker = spark_cluster.workers[0]
    disks = (worker.local_folder, worker.temporary_folder)
    mounted: list[Path] = []
    worker.kill()
    try:
        for disk in disks:
            if not _mount("mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "tmpfs", str(disk)):
                pytest.skip("this user cannot mount a file system")
            mounted.append(disk)
        worker.start()
        yield worker
    finally:
        worker.kill()
        for disk in mounted:
            assert _mount("umount", "--lazy", str(disk))
        worker.start()


def fill(disk: Path) -> None:
    """Not a byte is left."""
    with contextlib.suppress(OSError), (disk / BALLAST).open("ab", buffering=0) as ballast:
        while True:
            ballast.write(bytes(1 << 16))


def run_to_the_end(session: ProcessSession, order: dict[str, object], act: Callable[[], None]) -> str:
    """How the job ended; `act` was done in the middle of it."""
    session.say(json.dumps(order))
    deadline, is_done = time.monotonic() + PATIENCE_S, False
    while time.monotonic() < deadline:
        try:
            line = session.next_line(0.5)
        except queue.Empty:
            continue
        assert line is not None, session.errors()[-4000:]
        if line.startswith("ENDED"):
            assert is_done, f"{line} before the disk was full"
            return line
        if line.startswith("PHASE epoch ") and int(line.split()[-1]) >= FULL_AT and not is_done:
            act()
            is_done = True
    raise AssertionError(f"it did not end in time:\n{session.errors()[-4000:]}")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_disk_that_becomes_full_in_the_middle_of_a_job_changes_nothing_of_its_output(
    spark_cluster: SparkCluster, minio_server: MinioServer, unique_name: str, worker: SparkWorker, tmp_path: Path
) -> None:
    command = millstream_run(spark_cluster, Path(program.__file__))
    session = ProcessSession(command, driver_environment(minio_server), tmp_path, tmp_path / "driver.log")
    tier, shuffle = worker.temporary_folder, worker.local_folder
    try:
        for number, disks in enumerate(((tier,), (shuffle,), (tier, shuffle))):
            bucket = minio_server.create_bucket(f"{unique_name}-{number}")
            order = {"store": f"s3://{bucket}/job", "output": f"s3://{bucket}/out", "straggles": False}
            ended = run_to_the_end(session, order, lambda: [fill(disk) for disk in disks] and None)  # noqa: B023
            assert ended == "ENDED finished", f"{ended}\n{session.errors()[-4000:]}"
            assert results_of(minio_server.client(), bucket) == expected(), session.errors()[-4000:]
            for disk in disks:
                (disk / BALLAST).unlink()
    finally:
        session.kill()
