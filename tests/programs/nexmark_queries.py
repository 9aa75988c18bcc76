"""Nexmark's queries over a few events, into files: one text for Flink (`scripts/nexmark-oracle`) and for us.

Both read the same events from Parquet files, and write lines of CSV, so that the text of every value is compared, too.
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

__all__ = ["BIDS", "CHANGING_QUERIES", "QUERIES", "definitions", "query_statements", "result_of", "write_events"]

NEXMARK = Path(__file__).resolve().parents[1] / "golden" / "sql_statements" / "nexmark"
# Query 12 uses processing time, and of bounded input Flink emits only windows that end while it runs: not comparable.
QUERIES = ("q0", "q1", "q2", "q10", "q11", "q14", "q21", "q22")
# These update their results. Flink runs them as a batch, whose rows are the remaining ones. Flink does not support
# query 6.
CHANGING_QUERIES = (*("q3", "q4", "q5", "q7", "q8", "q9", "q15", "q16", "q17", "q18", "q19", "q20", "q23"),)
TIES = {
    "b.price DESC, b.`dateTime` ASC": "b.bidder, b.extra",
    "`dateTime` DESC": "price, extra",
    "price DESC": "`dateTime`, bidder, extra",
}
BIDS = 2_500
RATE = 10  # events in a second: the bids of some minutes, in partitions of a minute
LINES_SHOWN = 20


def write_events(folder: Path) -> None:
    """Some events, as a Parquet file of each kind."""
    rules = EventRules(rate=RATE)
    first = 0
    for (kind, fields), share in zip(KINDS.items(), (rules.people, rules.auctions, rules.bids), strict=True):
        nth = np.arange(BIDS * share // rules.bids)
        at = nth // share * rules.round_length + first + nth % share
        columns = [make(rules, at) for _, make in fields.values()]
        schema = pa.schema([(name, type_.arrow) for name, (type_, _) in fields.items()])
        (folder / kind).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_arrays(columns, schema=schema), folder / kind / "events.parquet")
        first += share


def definitions(folder: Path) -> Iterator[str]:
    """The tables of the events."""
    for kind, fields in KINDS.items():
        columns = ", ".join(f"`{name}` {type_}" for name, (type_, _) in fields.items())
        yield f"""CREATE TABLE {kind} ({columns}, WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'file://{folder / kind}', 'format' = 'parquet')"""


def query_statements(name: str, output: Path) -> Iterator[str]:
    """The statements of a query; the INSERT is the last."""
    options = f"'connector' = 'filesystem', 'path' = 'file://{output}/{name}', 'format' = 'csv'"
    for span in statement_spans((NEXMARK / f"{name}.sql").read_text(encoding="utf-8")):
        text = re.sub(r"WITH \('connector' = 'blackhole'\)", f"WITH ({options})", span.text)
        # Of tied bids any may be first: here the order is total.
        for order in TIES:
            text = text.replace(f"ORDER BY {order}) AS", f"ORDER BY {order}, {TIES[order]}) AS")
        yield text.replace("${folder}", f"file://{output}")


def result_of(name: str, output: Path) -> dict[str, object]:
    """A query's output in short: the number of lines, their checksum, and some samples. They are those of its
    visible files, sorted; each with its partition, if any.
    """
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
