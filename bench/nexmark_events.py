"""The events of `bench_nexmark.py` in Parquet files, and the tables and queries over them: one text for both engines.

People, auctions and bids are one table, as in Nexmark, with a view of each. Its columns are flat: Flink's Parquet
reader fails on times in nested rows. Each task has a file; rounds of events alternate between them, so that all files
are at about the same event time and nothing is late.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.connectors.tables.nexmark.columns import KINDS
from millstream.connectors.tables.nexmark.events import EventRules
from millstream.sql.splitting import statement_spans

__all__ = ["EVENT_RATE", "NexmarkQuery", "event_tables", "query_of", "write_events", "write_side_input"]

NEXMARK = Path(__file__).resolve().parent.parent / "tests" / "golden" / "sql_statements" / "nexmark"
EVENT_RATE = 100_000  # events in a second of event time: 20 M events are 200 s
_BATCH_ROWS = 200_000
_SIDE_ROWS = 10_000

_FIELDS = {
    "person": "id BIGINT, name VARCHAR, emailAddress VARCHAR, creditCard VARCHAR, city VARCHAR, state VARCHAR, "
    "extra VARCHAR",
    "auction": "id BIGINT, itemName VARCHAR, description VARCHAR, initialBid BIGINT, reserve BIGINT, "
    "expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra VARCHAR",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, extra VARCHAR",
}
_VIEWS = {
    "person": "id, name, emailAddress, creditCard, city, state, dateTime, extra",
    "auction": "id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra",
    "bid": "auction, bidder, price, channel, url, dateTime, extra",
}


@dataclass(frozen=True)
class NexmarkQuery:
    """A query: its definitions, the columns of its result as DDL, its SELECT. `tail`: what follows the columns if
    the query is about writing files, with ${folder} for their folder.
    """

    name: str
    definitions: tuple[str, ...]
    columns: str
    select: str
    tail: str | None

    def statements(self, folder: Path, options: str = "'connector' = 'blackhole'") -> Iterator[str]:
        """The statements that define its tables, replacing earlier ones; `folder` is the folder of its files. Its
        INSERT is `insert`.
        """
        for definition in self.definitions:
            kind, name = re.findall(r"CREATE (TABLE|VIEW) (\w+)", definition)[0]
            yield f"DROP {kind} IF EXISTS {name}"
            yield definition.replace("${folder}", f"file://{folder}")
        yield f"DROP TABLE IF EXISTS {self.name}_result"
        tail = f"WITH ({options})" if self.tail is None else self.tail.replace("${folder}", f"file://{folder}")
        yield f"CREATE TABLE {self.name}_result ({self.columns}) {tail}"

    @property
    def insert(self) -> str:
        return f"INSERT INTO {self.name}_result {self.select}"


def query_of(name: str) -> NexmarkQuery:
    """A query from its file."""
    text = re.sub(r"^--.*$", "", (NEXMARK / f"{name}.sql").read_text(encoding="utf-8"), flags=re.MULTILINE)
    *definitions, insert = (span.text.strip() for span in statement_spans(text))
    result = next(each for each in definitions if f"{name}_result" in each)
    match = re.fullmatch(r"CREATE TABLE \w+ \((.*?)\)\s*((?:PARTITIONED|WITH).*\));?", result, re.DOTALL)
    assert match is not None, name
    select = re.sub(rf"^INSERT INTO {name}_result\s+", "", insert).rstrip(";")
    # Functions are registered already, in each engine's own language.
    others = tuple(each.rstrip(";") for each in definitions if each is not result and "CREATE FUNCTION" not in each)
    return NexmarkQuery(name, others, match[1], select, match[2] if "${folder}" in match[2] else None)


def write_events(folder: Path, count: int, files: int) -> None:
    """This many events."""
    folder.mkdir(parents=True, exist_ok=True)
    rules = EventRules(rate=EVENT_RATE)
    schema = _schema()
    for number in range(files):
        with pq.ParquetWriter(folder / f"events-{number}.parquet", schema, compression="snappy") as writer:
            for start in range(0, count, _BATCH_ROWS * files):
                at = np.arange(start, min(start + _BATCH_ROWS * files, count))
                writer.write_batch(_events(rules, schema, at[at // rules.round_length % files == number]))


def _schema() -> pa.Schema:
    fields = [pa.field("event_type", pa.int32()), pa.field("dateTime", pa.timestamp("ms"))]
    for kind, columns in KINDS.items():
        fields += [
            pa.field(f"{kind}_{name}", type_.arrow) for name, (type_, _) in columns.items() if name != "dateTime"
        ]
    return pa.schema(fields)


def _events(rules: EventRules, schema: pa.Schema, at: np.ndarray) -> pa.RecordBatch:
    kinds = rules.kinds(at)
    columns = [pa.array(kinds.astype(np.int32)), pa.array(rules.times_ms(at), pa.timestamp("ms"))]
    for number, fields in enumerate(KINDS.values()):
        is_kind = kinds == number
        place = pa.array(np.cumsum(is_kind) - 1, mask=~is_kind)
        columns += [make(rules, at[is_kind]).take(place) for name, (_, make) in fields.items() if name != "dateTime"]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def write_side_input(folder: Path) -> None:
    """The lookup file of query 13."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "side_input.csv").write_text("".join(f"{key},value-{key}\n" for key in range(_SIDE_ROWS)))


def event_tables(folder: Path) -> Iterator[str]:
    """The statements that define the events in a folder, and a view of each kind, replacing earlier ones."""
    for view in ("q12_bid", *_VIEWS):
        yield f"DROP VIEW IF EXISTS {view}"
    yield "DROP TABLE IF EXISTS nexmark"
    fields = ", ".join(f"{kind}_{field}" for kind, fields in _FIELDS.items() for field in fields.split(", "))
    yield f"""CREATE TABLE nexmark (event_type INT, `dateTime` TIMESTAMP(3), {fields},
    WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'file://{folder}', 'format' = 'parquet')"""
    for number, (kind, columns) in enumerate(_VIEWS.items()):
        shown = ", ".join(
            "`dateTime`" if each == "dateTime" else f"{kind}_{each} AS {each}" for each in columns.split(", ")
        )
        yield f"CREATE VIEW {kind} AS SELECT {shown} FROM nexmark WHERE event_type = {number}"
