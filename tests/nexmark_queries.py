"""Nexmark's queries over a few bids, into files: one text for Flink (`scripts/nexmark-oracle`) and for us.

Both read the same bids from a Parquet file, and write lines of CSV, so that the text of every value is compared, too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.connectors.tables.nexmark.columns import KINDS
from millstream.connectors.tables.nexmark.events import EventRules
from millstream.sql.splitting import statement_spans

__all__ = ["QUERIES", "definitions", "query_statements", "result_of", "write_bids"]

NEXMARK = Path(__file__).resolve().parent / "golden" / "sql_statements" / "nexmark"
# Query 12 counts by the clock, and of bounded input Flink gives only what ends while it runs: nothing to compare.
QUERIES = ("q0", "q1", "q2", "q10", "q14", "q21", "q22")
BIDS = 2_500
RATE = 10  # events in a second: the bids of some minutes, in partitions of a minute
LINES_SHOWN = 20


def write_bids(folder: Path) -> None:
    """Some bids as a Parquet file."""
    folder.mkdir(parents=True, exist_ok=True)
    rules, fields = EventRules(rate=RATE), KINDS["bid"]
    nth = np.arange(BIDS)
    at = nth // rules.bids * rules.round_length + rules.people + rules.auctions + nth % rules.bids
    columns = [make(rules, at) for _, make in fields.values()]
    schema = pa.schema([(name, type_.arrow) for name, (type_, _) in fields.items()])
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), folder / "bids.parquet")


def definitions(bids: Path) -> Iterator[str]:
    """The table of the bids."""
    yield f"""CREATE TABLE bid (
    auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, `dateTime` TIMESTAMP(3), extra VARCHAR,
    WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'file://{bids}', 'format' = 'parquet')"""


def query_statements(name: str, output: Path) -> Iterator[str]:
    """The statements of a query; the INSERT is the last."""
    options = f"'connector' = 'filesystem', 'path' = 'file://{output}/{name}', 'format' = 'csv'"
    for span in statement_spans((NEXMARK / f"{name}.sql").read_text(encoding="utf-8")):
        text = re.sub(r"WITH \('connector' = 'blackhole'\)", f"WITH ({options})", span.text)
        yield text.replace("${folder}", f"file://{output}")


def result_of(name: str, output: Path) -> dict[str, object]:
    """What a query wrote, short: how many lines, their sum, and some of them to look at. They are those of its visible
    files, sorted; each with its partition, where there are some."""
    folder = output / name
    paths = [path for path in folder.rglob("*") if path.is_file() and _is_visible(path.relative_to(folder))]
    lines = [
        "|".join((*path.relative_to(folder).parts[:-1], line))
        for path in paths
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    lines.sort()
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return {"lines": len(lines), "sha256": digest, "first": lines[:LINES_SHOWN]}


def _is_visible(path: Path) -> bool:
    return not any(part.startswith((".", "_")) for part in path.parts)
