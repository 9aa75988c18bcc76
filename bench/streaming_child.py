"""A Structured Streaming application of its own, with Spark's default settings, that measures itself on demand.

    python streaming_child.py
    → reads lines `EXCHANGES BATCHES` from its input; for each it runs a fresh query of that shape until this many
      micro-batches are done and prints their durations in ms as a JSON list (Spark's own `triggerExecution`)

The query: two rows per micro-batch, `mapInArrow`, then per exchange `repartition` and `mapInArrow`, into `noop`. The
first micro-batches of a query are excluded: they plan, compile and start workers.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

_TASKS = 2
_WARM_UP_BATCHES = 3


def _pass_on(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from rows


def durations_ms(session: SparkSession, exchanges: int, batches: int) -> list[int]:
    """The durations of `batches` micro-batches, after warm-up."""
    source = session.readStream.format("rate-micro-batch").options(rowsPerBatch=_TASKS, numPartitions=_TASKS)
    frame = source.load().select("value").mapInArrow(_pass_on, "value long")
    for _ in range(exchanges):
        frame = frame.repartition(_TASKS).mapInArrow(_pass_on, "value long")
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as checkpoint:
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        try:
            done: dict[int, int] = {}
            while len(done) < batches + _WARM_UP_BATCHES:
                time.sleep(0.1)
                failure = query.exception()
                if failure is not None:
                    raise failure
                # Only complete batches: an idle trigger has no addBatch.
                done |= {
                    p["batchId"]: p["durationMs"]["triggerExecution"]
                    for p in query.recentProgress
                    if "addBatch" in p["durationMs"]
                }
        finally:
            query.stop()
    return [done[batch] for batch in sorted(done)][_WARM_UP_BATCHES : _WARM_UP_BATCHES + batches]


def main() -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Spark may print; answers have a stream of their own.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session: SparkSession = SparkSession.builder.master(f"local[{_TASKS}]").getOrCreate()
    try:
        for line in sys.stdin:
            exchanges, batches = map(int, line.split())
            print(json.dumps(durations_ms(session, exchanges, batches)), file=answers, flush=True)
    finally:
        session.stop()


if __name__ == "__main__":
    main()
