"""The queries of `bench_sql.py`: Nexmark's from their files, and windows of many and of few keys. One text for both.

Both read the same bids from Parquet files, flat: Flink's Parquet reader fails on times in nested rows. Results go to a
blackhole in measurements, and to files in comparisons.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.connectors.tables.nexmark.columns import KINDS
from millstream.connectors.tables.nexmark.events import EventRules

__all__ = ["QUERIES", "Query", "bid_tables", "write_bids"]

NEXMARK = Path(__file__).resolve().parent.parent / "tests" / "golden" / "sql_statements" / "nexmark"
FILES = 8
_BATCH_ROWS = 262_144
_RATE = 1_000_000  # events in a second of event time: 20 M bids are some twenty seconds


@dataclass(frozen=True)
class Query:
    """A query over `bid`; `columns` of its result as DDL. `bound` is the required ratio. `files`: what follows the
    columns if the query is about writing files, with {folder} for their folder.
    """

    name: str
    select: str
    columns: str
    bound: float
    is_nexmark: bool = True
    by_the_clock: bool = False  # its result depends on when it runs
    files: str | None = None


def _nexmark(name: str, bound: float = 3, by_the_clock: bool = False) -> Query:
    text = re.sub(r"^--.*$", "", (NEXMARK / f"{name}.sql").read_text(), flags=re.MULTILINE)
    columns = re.search(rf"CREATE TABLE {name}_result \((.*?)\)\s*((?:PARTITIONED|WITH).*?\));", text, re.DOTALL)
    select = re.search(rf"INSERT INTO {name}_result\s+(.*?);?\s*$", text, re.DOTALL)
    assert columns is not None and select is not None, name
    files = columns.group(2).replace("${folder}", "file://{folder}") if "${folder}" in columns.group(2) else None
    return Query(name, select.group(1), columns.group(1), bound, by_the_clock=by_the_clock, files=files)


def _windows(name: str, key: str, keys: str) -> Query:
    select = f"""SELECT {key} AS k, COUNT(*) AS n, SUM(price) AS total, MAX(price) AS top, window_start
FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND))
GROUP BY {key}, window_start, window_end"""
    columns = "k BIGINT, n BIGINT, total BIGINT, top BIGINT, starttime TIMESTAMP(3)"
    return Query(f"{name}, {keys}", select, columns, 8, is_nexmark=False)


QUERIES = (
    _nexmark("q0"),
    _nexmark("q1"),
    _nexmark("q2"),
    _nexmark("q10"),
    _nexmark("q12", by_the_clock=True),
    _nexmark("q14"),
    _nexmark("q21"),
    _nexmark("q22"),
    _windows("window", "MOD(bidder, 100)", "100 keys"),
    _windows("window", "MOD(price * 31 + bidder * 7919 + auction * 104729, 1000000)", "1 M keys"),
)


def write_bids(folder: Path, count: int) -> None:
    """This many bids as Parquet files."""
    folder.mkdir(parents=True, exist_ok=True)
    rules = EventRules(rate=_RATE)
    fields = KINDS["bid"]
    schema = pa.schema([(name, type_.arrow) for name, (type_, _) in fields.items()])
    for number in range(FILES):
        first, last = number * count // FILES, (number + 1) * count // FILES
        with pq.ParquetWriter(folder / f"bids-{number}.parquet", schema, compression="snappy") as writer:
            for start in range(first, last, _BATCH_ROWS):
                nth = np.arange(start, min(start + _BATCH_ROWS, last))
                at = nth // rules.bids * rules.round_length + rules.people + rules.auctions + nth % rules.bids
                columns = [make(rules, at) for _, make in fields.values()]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def bid_tables(folder: Path) -> tuple[str, ...]:
    """The statements that define the bids in a folder, and query 12's view of them."""
    table = f"""CREATE TABLE bid (
    auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, `dateTime` TIMESTAMP(3), extra VARCHAR,
    WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'file://{folder}', 'format' = 'parquet')"""
    view = "CREATE VIEW q12_bid AS SELECT *, PROCTIME() AS p_time FROM bid"
    return "DROP VIEW IF EXISTS q12_bid", "DROP TABLE IF EXISTS bid", table, view
