"""Spark's own stream-stream join in an application of its own, with its best settings.

    python join_child.py DISORDER_MS LOWER_MS UPPER_MS
    → answers lines `QUERY FOLDER` (`spark_child`): the Parquet files of FOLDER/orders and FOLDER/payments are the next
      input of that query. In addition to the time it reports `pairs` and `checksum` of the joined rows

The query: an inner join of two streams on their key and a range of time, watermarks on both sides, into `noop`. Its
name is the place of its state: `rocksdb` (the newest layout, commits as changelogs) or `memory`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from spark_child import IN_MEMORY, IN_ROCKSDB, FedQuery, answer

_LAYOUT = "spark.sql.streaming.join.stateFormatVersion"
_QUERIES = {
    "rocksdb": {
        **IN_ROCKSDB,
        _LAYOUT: "4",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    },
    "memory": {**IN_MEMORY, _LAYOUT: "2"},
}


def main() -> None:
    """Answer requests until the input ends."""
    disorder_ms, lower_ms, upper_ms = map(int, sys.argv[1:])

    def begin(session: SparkSession, name: str, place: Path) -> FedQuery:
        for setting, value in _QUERIES[name].items():
            session.conf.set(setting, value)  # a query retains the settings it was started with

        def read(folder: Path, time: str, amount: str) -> DataFrame:
            rows = session.readStream.schema(f"key long, {time} timestamp, {amount} long").parquet(str(folder))
            return rows.withWatermark(time, f"{disorder_ms} milliseconds")

        def joined(folder: Path) -> DataFrame:
            orders = read(folder / "orders", "ordered", "amount").alias("o")
            payments = read(folder / "payments", "paid", "cents").alias("p")
            lower, upper = (f.expr(f"o.ordered + INTERVAL '{ms / 1000}' SECOND") for ms in (lower_ms, upper_ms))
            within = (f.col("o.key") == f.col("p.key")) & f.col("p.paid").between(lower, upper)
            pairs = orders.join(payments, within).select("o.key", "amount", "cents")
            return pairs.observe(
                "joined", f.count("*").alias("pairs"), f.sum(f.col("amount") * f.col("cents")).alias("checksum")
            )

        return FedQuery(joined, ("orders", "payments"), place)

    # State is dropped by the next micro-batch that has input; no other runs for that alone.
    answer(begin, {"spark.sql.streaming.noDataMicroBatches.enabled": "false"})


if __name__ == "__main__":
    main()
