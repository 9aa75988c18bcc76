"""Spark's own windows in an application of its own, with Spark's default settings and state in RocksDB.

    python window_child.py WINDOW_MS DISORDER_MS
    → reads lines `QUERY FOLDER` from its input: the Parquet files of FOLDER are the next input of the query of that
      name, which is begun when it is first named. When all of it is processed, it prints how many ms Spark says that
      took (the micro-batches with input and those without, which close windows), as a JSON number

The query: `groupBy(window, key)` with count and sum, a watermark, append mode, into `noop`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

_TASKS = 2
_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class WindowQuery:
    """One running query over a folder into which input is put."""

    def __init__(self, session: SparkSession, place: Path, window_ms: int, disorder_ms: int) -> None:
        self._input = place / "input"
        self._input.mkdir(parents=True)
        rows = session.readStream.schema("key long, time timestamp, amount long").parquet(str(self._input))
        windows = (
            rows.withWatermark("time", f"{disorder_ms} milliseconds")
            .groupBy(f.window("time", f"{window_ms} milliseconds"), "key")
            .agg(f.count("*").alias("count"), f.sum("amount").alias("total"))
        )
        writer = windows.writeStream.format("noop").outputMode("append")
        self._query: StreamingQuery = writer.option("checkpointLocation", str(place / "checkpoint")).start()
        self._epochs = 0
        self._through = -1

    def take(self, folder: Path) -> int:
        """Process the files of a folder; how many ms the micro-batches took."""
        for file in sorted(folder.glob("*.parquet")):
            # A file appears under its name when it is complete: the source lists the folder at any time.
            hidden = self._input / f".{self._epochs:04d}-{file.name}"
            shutil.copyfile(file, hidden)
            hidden.rename(self._input / hidden.name[1:])
        self._epochs += 1
        self._query.processAllAvailable()
        took_ms = 0
        for progress in self._query.recentProgress:
            if progress["batchId"] > self._through and "addBatch" in progress["durationMs"]:
                took_ms += progress["durationMs"]["triggerExecution"]
        self._through = max((progress["batchId"] for progress in self._query.recentProgress), default=self._through)
        return took_ms

    def stop(self) -> None:
        """End the query."""
        self._query.stop()


def main() -> None:
    """Answer requests until the input ends."""
    window_ms, disorder_ms = map(int, sys.argv[1:])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Spark may print; answers have a stream of their own.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{_TASKS}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", str(_TASKS)).config("spark.driver.memory", "3g")
    session: SparkSession = builder.config("spark.sql.streaming.stateStore.providerClass", _PROVIDER).getOrCreate()
    queries: dict[str, WindowQuery] = {}
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as place:
        try:
            for line in sys.stdin:
                name, folder = line.split(maxsplit=1)
                if name not in queries:
                    queries[name] = WindowQuery(session, Path(place) / name, window_ms, disorder_ms)
                print(json.dumps(queries[name].take(Path(folder.strip()))), file=answers, flush=True)
        finally:
            for query in queries.values():
                query.stop()
            session.stop()


if __name__ == "__main__":
    main()
