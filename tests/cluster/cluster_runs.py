"""Programs run on a cluster as a user runs them: a process of their own, with a store on MinIO."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from servers.minio import MinioServer
from servers.server_process import ROOT
from servers.spark_cluster import SPARK_HOME, SparkCluster

__all__ = ["answer_of", "driver_environment", "millstream_run", "program_run", "spark_submit"]

TESTS = ROOT / "tests"
_HIDDEN = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "SPARK_LOCAL_IP")


def driver_environment(store: MinioServer | None = None) -> dict[str, str]:
    """What the driver's process finds: our source, the tests' modules, the way to the store; no word on executors."""
    environment = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(TESTS)])
    if store is not None:
        environment |= store.environment_for_clients() | {"AWS_ENDPOINT_URL": store.url}
    return environment


def millstream_run(
    cluster: SparkCluster, program: Path, *arguments: str, settings: Mapping[str, str] | None = None
) -> list[str]:
    """The command `millstream run --master … program`, with small JVMs."""
    definitions = {**cluster.settings(), **(settings or {})}
    words = [word for key, value in definitions.items() for word in ("-D", f"{key}={value}")]
    run = [sys.executable, "-m", "millstream.cli", "run", "--plain", "--master", cluster.master_url]
    return [*run, *words, str(program), *arguments]


def spark_submit(cluster: SparkCluster, program: Path, *arguments: str) -> list[str]:
    """The command `spark-submit --master … program`, of the driver's own PySpark."""
    words = [word for key, value in cluster.settings().items() for word in ("--conf", f"{key}={value}")]
    words += ["--conf", f"spark.pyspark.driver.python={sys.executable}"]
    return [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.master_url, *words, str(program), *arguments]


def answer_of(run: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What a program printed as its answer."""
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    [line] = [line for line in run.stdout.splitlines() if line.startswith("ANSWER ")]
    return dict(json.loads(line.removeprefix("ANSWER ")))


def program_run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], timeout_s: float = 200.0
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        command, cwd=folder, env=dict(environment), capture_output=True, text=True, timeout=timeout_s, check=False
    )
