"""Flink 2.3 itself, for comparison: its jars, and a process of it that runs SQL.

The jars come from the registries of Python and of Maven, into build/flink (`scripts/flink_jars.py`). The Hadoop jars
that its Parquet reader needs are those of PySpark.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pyspark

__all__ = ["Cost", "Flink"]

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "scripts"))

from flink_jars import BUILD, JARS, VERSION, compile_against, fetch_jars  # noqa: E402

PARQUET = BUILD / "parquet"
CLASSES = BUILD / "bench-classes"

_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>millstream</groupId><artifactId>flink-for-benchmarks</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.flink</groupId><artifactId>flink-sql-parquet</artifactId><version>{version}</version>
    <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
  </dependency></dependencies>
</project>
"""


@dataclass(frozen=True)
class Cost:
    """The cost of a statement: wall-clock time, and processor time."""

    wall_s: float
    cpu_s: float


def install() -> None:
    """Fetch missing files."""
    fetch_jars()
    if not PARQUET.is_dir():
        subprocess.run([str(FOLDER.parent / "scripts" / "debian"), "mvn", "maven"], check=True)
        with tempfile.TemporaryDirectory() as work:
            pom = Path(work) / "pom.xml"
            pom.write_text(_POM.format(version=VERSION))
            copy = ["dependency:copy-dependencies", f"-DoutputDirectory={PARQUET}"]
            subprocess.run(["mvn", "--quiet", "--batch-mode", "--file", str(pom), *copy], check=True)
    compile_against(FOLDER / "flink" / "FlinkSql.java", CLASSES)


class Flink:
    """A running Flink. Settings are its best for throughput: objects reused, mini-batches, state on the heap."""

    def __init__(self, parallelism: int, mode: str = "streaming", heap: str = "4g") -> None:
        install()
        self._checkpoints: tempfile.TemporaryDirectory[str] | None = None
        hadoop = Path(pyspark.__file__).parent / "jars"
        jars = [f"{JARS}/*", f"{PARQUET}/*", str(CLASSES), *map(str, sorted(hadoop.glob("hadoop-client-*.jar")))]
        opened = [f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in ("lang", "util", "time", "net", "nio")]
        logging = f"-Dlog4j2.configurationFile={FOLDER / 'flink' / 'log4j.properties'}"
        # With a full heap it would go on collecting garbage for hours.
        memory = [f"-Xmx{heap}", "-XX:+ExitOnOutOfMemoryError"]
        command = ["java", *memory, logging, *opened, "-cp", ":".join(jars), "FlinkSql", mode]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for key, value in {
            "parallelism.default": str(parallelism),
            "pipeline.object-reuse": "true",
            "table.exec.mini-batch.enabled": "true",
            "table.exec.mini-batch.allow-latency": "2 s",
            "table.exec.mini-batch.size": "50000",
            "table.optimizer.distinct-agg.split.enabled": "true",
            "table.local-time-zone": "UTC",
            "state.backend.type": "hashmap",
            "restart-strategy.type": "none",  # a failure is an answer; it would restart forever
        }.items():
            if mode == "streaming" or "mini-batch" not in key:
                self.set(key, value)
        if mode == "streaming":
            # In files: its JobManager's memory takes 5 MB; a job with more state would fail and restart forever.
            self._checkpoints = tempfile.TemporaryDirectory(prefix="millstream-flink-checkpoints-")
            self.set("execution.checkpointing.storage", "filesystem")
            self.set("execution.checkpointing.dir", f"file://{self._checkpoints.name}")
            self.set("execution.checkpointing.interval", "10 s")

    @property
    def pid(self) -> int:
        return self._process.pid

    def set(self, key: str, value: str) -> None:
        self._ask(f"set {key}={value}")

    def do(self, statement: str) -> Cost:
        """Run a statement to its end."""
        return self._ask(f"do {statement.strip().rstrip(';')}")

    def collect(self, query: str, path: Path) -> None:
        """Write the changes of a query into a file: a line each, its kind and its tab-separated values."""
        self._ask(f"collect {path} {query.strip().rstrip(';')}")

    def _ask(self, text: str) -> Cost:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{text}\n.\n")
        self._process.stdin.flush()
        while True:
            answer = self._process.stdout.readline()
            if answer.startswith("done "):
                _, wall_s, cpu_s = answer.split()
                return Cost(float(wall_s), float(cpu_s))
            if answer.startswith("error ") or not answer:
                raise RuntimeError(f"Flink: {answer.strip() or 'it ended'}\n{text}")

    def __enter__(self) -> Flink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        if self._checkpoints is not None:
            self._checkpoints.cleanup()
