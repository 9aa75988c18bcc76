"""Spark's own streaming queries in an application of their own, driven from here one epoch at a time.

There are two halves. `spark_child` starts a script and sends requests: one line out, one line of JSON back. In the
script, `answer` is the other half for a `FedQuery`, a streaming query over folders that receive the input of one epoch
after the other. So both sides of a comparison take turns although each has a JVM.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["IN_MEMORY", "IN_ROCKSDB", "Ask", "FedQuery", "answer", "spark_child"]

_TASKS = 2
_STATE = "org.apache.spark.sql.execution.streaming.state"
# Spark's settings for the place of a query's state.
IN_ROCKSDB = {"spark.sql.streaming.stateStore.providerClass": f"{_STATE}.RocksDBStateStoreProvider"}
IN_MEMORY = {"spark.sql.streaming.stateStore.providerClass": f"{_STATE}.HDFSBackedStateStoreProvider"}
_TRIGGER_MS = 500

Ask = Callable[[str, str], dict[str, Any]]
"""(name of a query, folder) -> what the query says of having processed the files of that folder."""


@contextmanager
def spark_child(script: Path, *arguments: object) -> Iterator[Ask]:
    """The running script."""
    command = [sys.executable, str(script), *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        requests, answers = child.stdin, child.stdout

        def ask(query: str, folder: str) -> dict[str, Any]:
            print(query, folder, file=requests, flush=True)
            line = answers.readline()
            if not line:
                raise RuntimeError(f"Spark's own query ended with exit code {child.wait()}; run {command} to see why")
            told: dict[str, Any] = json.loads(line)
            return told

        try:
            yield ask
        finally:
            requests.close()
            child.wait(60)


class FedQuery:
    """One running query over folders that receive input; `build` creates it from their parent folder.

    A trigger occurs every half second and input is added between two of them: a query of several folders sees all of an
    epoch's input at once. The wait is not part of Spark's micro-batch duration.
    """

    def __init__(self, build: Callable[[Path], DataFrame], folders: tuple[str, ...], place: Path) -> None:
        self._input = place / "input"
        for folder in folders:
            (self._input / folder).mkdir(parents=True)
        writer = build(self._input).writeStream.format("noop").outputMode("append")
        writer = writer.trigger(processingTime=f"{_TRIGGER_MS} milliseconds")
        self._query: StreamingQuery = writer.option("checkpointLocation", str(place / "checkpoint")).start()
        self._epochs = 0
        self._through = -1

    def take(self, folder: Path) -> dict[str, Any]:
        """Process the files of a folder. Returns `ms`, the duration of the micro-batches, `batches`, their number,
        and the sums of their observed metrics.
        """
        self._put(folder)
        self._query.processAllAvailable()
        told: dict[str, Any] = {"ms": 0, "batches": 0}
        for progress in self._query.recentProgress:
            if progress["batchId"] > self._through and "addBatch" in progress["durationMs"]:
                told["ms"] += progress["durationMs"]["triggerExecution"]
                told["batches"] += 1
                for observed in progress["observedMetrics"].values():
                    for name, value in observed.asDict().items():
                        told[name] = told.get(name, 0) + (value or 0)
        self._through = max((progress["batchId"] for progress in self._query.recentProgress), default=self._through)
        return told

    def _put(self, folder: Path) -> None:
        """A file is renamed into place when it is complete: the source lists its folder at any time."""
        hidden: list[Path] = []
        for file in sorted(folder.rglob("*.parquet")):
            into = self._input / file.parent.relative_to(folder)
            hidden.append(into / f".{self._epochs:04d}-{file.name}")
            shutil.copyfile(file, hidden[-1])
        since_ms = time.time() * 1000 % _TRIGGER_MS
        if not _TRIGGER_MS / 4 < since_ms < _TRIGGER_MS / 2:
            time.sleep(((_TRIGGER_MS / 4 - since_ms) % _TRIGGER_MS) / 1000)
        for path in hidden:
            path.rename(path.with_name(path.name[1:]))
        self._epochs += 1

    def stop(self) -> None:
        """End the query."""
        self._query.stop()


def answer(begin: Callable[[SparkSession, str, Path], FedQuery], settings: Mapping[str, str]) -> None:
    """Answer requests until the input ends; a query is started, by its name and its place, when it is first named."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Spark may print; answers have a stream of their own.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{_TASKS}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", str(_TASKS)).config("spark.driver.memory", "3g")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    queries: dict[str, FedQuery] = {}
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as place:
        try:
            for line in sys.stdin:
                name, folder = line.split(maxsplit=1)
                if name not in queries:
                    queries[name] = begin(session, name, Path(place) / name)
                print(json.dumps(queries[name].take(Path(folder.strip()))), file=answers, flush=True)
        finally:
            for query in queries.values():
                query.stop()
            session.stop()
