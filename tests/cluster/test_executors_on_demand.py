"""A job that changes its parallelism asks the cluster for executors and gives them back, with exact output."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_runs import answer_of, driver_environment, millstream_run, program_run
from servers.minio import MinioServer
from servers.spark_cluster import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_executors_come_and_go_with_the_parallelism(
    spark_cluster: SparkCluster, minio_server: MinioServer, unique_name: str, tmp_path: Path
) -> None:
    store = f"s3://{minio_server.create_bucket(unique_name)}/elastic"
    command = millstream_run(spark_cluster, Path(__file__).with_name("elastic_program.py"), store)
    answer = answer_of(program_run(command, tmp_path, driver_environment(minio_server), timeout_s=250))
    assert answer == {"executors": [1, 3, 1], "exact": True}
