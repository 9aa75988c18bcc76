"""PyFlink as a contestant of `bench_kafka`: an environment of its own in build/pyflink, its connector's jar, its runs.

PyFlink and the jar are never dependencies of ours: they are downloaded when the benchmark first needs them. The jar is
that of Flink 2.2, the newest available; Flink 2.3 runs it. Downloading it needs Maven, as the servers of the tests do.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from processor_time import taken_s

__all__ = ["PyFlinkRun", "installed_pyflink", "run_pyflink"]

_FOLDER = Path(__file__).resolve().parent.parent / "build" / "pyflink"
_PACKAGE = "apache-flink==2.3.0"
_JAR = "flink-sql-connector-kafka-5.0.0-2.2.jar"
_ARTIFACT = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"
_CHILD = Path(__file__).with_name("kafka_pyflink_child.py")


@dataclass(frozen=True)
class PyFlinkRun:
    """The duration of one run of the statement, and the processor time of all PyFlink's processes."""

    wall_s: float
    processor_s: float


def installed_pyflink() -> Path:
    """PyFlink's interpreter. Takes minutes the first time; raises OSError or CalledProcessError without a registry."""
    python = _FOLDER / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(_FOLDER / "venv")], check=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([str(python), "-m", "pip", "install", *quiet, _PACKAGE], check=True)
    if not (_FOLDER / _JAR).exists():
        # Maven knows the registry of this installation.
        target = [f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={_FOLDER}"]
        subprocess.run(["mvn", "-q", "dependency:copy", *target], check=True)
    return python


def run_pyflink(
    python: Path, parallelism: int, bootstrap: str, source: str, targets: Sequence[str]
) -> list[PyFlinkRun]:
    """Count into each target, in one process; the first run warms it up."""
    command = [str(python), str(_CHILD), str(_FOLDER / _JAR), str(parallelism), bootstrap, source, *targets]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    runs: list[PyFlinkRun] = []
    taken_before_s = 0.0
    assert child.stdout is not None and child.stderr is not None
    for line in child.stdout:
        if line.startswith("took "):
            total_s = taken_s(child.pid)
            runs.append(PyFlinkRun(float(line.split()[1]), total_s - taken_before_s))
            taken_before_s = total_s
    errors = child.stderr.read()
    if child.wait() != 0 or len(runs) != len(targets):
        raise RuntimeError(f"PyFlink failed: {errors[-2000:]}")
    return runs
