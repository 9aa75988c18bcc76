"""Spark's own windows in an application of its own, with Spark's default settings and state in RocksDB.

    python window_child.py WINDOW_MS DISORDER_MS
    → answers lines `QUERY FOLDER` (`spark_child`): the Parquet files of FOLDER are the next input of that query. The
      time is that of the micro-batches with input and of those without, which close windows

The query: `groupBy(window, key)` with count and sum, a watermark, append mode, into `noop`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from spark_child import IN_ROCKSDB, FedQuery, answer


def main() -> None:
    """Answer requests until the input ends."""
    window_ms, disorder_ms = map(int, sys.argv[1:])

    def begin(session: SparkSession, name: str, place: Path) -> FedQuery:
        def windows(folder: Path) -> DataFrame:
            rows = session.readStream.schema("key long, time timestamp, amount long").parquet(str(folder))
            return (
                rows.withWatermark("time", f"{disorder_ms} milliseconds")
                .groupBy(f.window("time", f"{window_ms} milliseconds"), "key")
                .agg(f.count("*").alias("count"), f.sum("amount").alias("total"))
            )

        return FedQuery(windows, (".",), place)

    answer(begin, IN_ROCKSDB)


if __name__ == "__main__":
    main()
