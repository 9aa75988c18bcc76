"""Programs that run on one machine run on a cluster, by `--master` and a store alone, with the same answers.

Executors have Python and what Spark requires; neither millstream nor what it needs besides is installed there.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster_runs import driver_environment, millstream_run, program_run
from servers.minio import MinioServer
from servers.spark_cluster import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HERE = Path(__file__).parent


def test_all_programs_give_their_answers_on_executors_without_millstream(
    spark_cluster: SparkCluster, minio_server: MinioServer, unique_name: str, tmp_path: Path
) -> None:
    store = f"s3://{minio_server.create_bucket(unique_name)}/all-programs"
    command = millstream_run(spark_cluster, HERE / "all_programs.py", settings={"millstream.store": store})
    run = program_run(command, tmp_path, driver_environment(minio_server))
    assert run.returncode == 0, run.stderr[-4000:] + spark_cluster.executor_logs()
    [line] = [line for line in run.stdout.splitlines() if line.startswith("ANSWER ")]
    answer = json.loads(line.removeprefix("ANSWER "))
    assert answer["programs"] > 50
    assert answer["wrong"] == []
