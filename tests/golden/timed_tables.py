"""Tables of timed rows for tests: random rows in epochs, some of them late, and a query over them.

A table is a list of epochs, each with its rows (k, v, t) and the watermark after them; `t` is the time of the row in
milliseconds, and `ts` its rowtime.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from millstream.checkpoint.manifest import Manifest
from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.state.stored.table_names import LEFT_TABLE, RANKED_ROWS, RIGHT_TABLE, VERSIONS
from millstream.table import Schema, StreamTableEnvironment
from millstream.testing import CRASH, EPOCH, Collect, Result, Script, Watermark, run

TYPE = Types.ROW_NAMED(["k", "v", "t"], [Types.STRING(), Types.LONG(), Types.LONG()])
Values = tuple[Any, Any, int]


class ByTime:
    """The timestamp of a row."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[2])


@dataclass
class TimedTable:
    """Epochs of rows; the task fails once in those in `crashes`."""

    epochs: list[tuple[list[Values], int | None]] = field(default_factory=list)
    crashes: Sequence[int] = ()

    def script(self) -> list[Any]:
        items: list[Any] = []
        for number, (rows, watermark) in enumerate(self.epochs):
            items += [Row(*row) for row in rows]
            items += [CRASH] if number in self.crashes else []
            items.append(EPOCH if watermark is None else Watermark(watermark))  # either ends the epoch
        return items

    @property
    def rows(self) -> list[Values]:
        return [row for rows, _ in self.epochs for row in rows]


def random_tables(random: Random, epochs: int, rows_max: int, *, late: bool = True) -> dict[str, TimedTable]:
    """Two tables with independent watermarks; with `late`, some rows are behind them."""
    tables = {}
    for name in ("t", "u"):
        table, watermark = TimedTable(), 0
        for _ in range(epochs):
            rows = []
            for _ in range(random.randrange(rows_max + 1)):
                earliest = watermark - 3_000 if late and random.random() < 0.2 else watermark + 1
                time = max(0, earliest + random.randrange(3_000))
                time = time if random.random() < 0.4 else time // 500 * 500  # at bounds of windows and of time
                key = None if random.random() < 0.1 else random.choice("abc")
                rows.append((key, None if random.random() < 0.1 else random.randrange(5), time))
            watermark += random.choice((0, 499, 500, 1_000, 2_501))
            table.epochs.append((rows, watermark))
        tables[name] = table
    return tables


def ran(
    query: str,
    tables: Mapping[str, TimedTable],
    *,
    config: Mapping[str, str] | None = None,
    views: Mapping[str, str] | None = None,
    **how: Any,
) -> tuple[Result, Collect]:
    """Run the query and emit its changes to the sink."""
    out = Collect()

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        for name, value in (config or {}).items():
            t_env.get_config().set(name, value)
        schema = (
            Schema.new_builder()
            .column_by_metadata("ts", "TIMESTAMP(3)", "rowtime", True)
            .watermark("ts", "SOURCE_WATERMARK()")
            .build()
        )
        for name, table in tables.items():
            strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(ByTime())
            stream = env.from_source(Script(table.script(), type_info=TYPE), strategy, name)
            t_env.create_temporary_view(name, t_env.from_data_stream(stream, schema))
        for name, text in (views or {}).items():
            t_env.execute_sql(f"CREATE TEMPORARY VIEW {name} AS {text}")
        t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(out)

    return run(build, **how), out


def stored_rows(manifest: Manifest, *names: str) -> int:
    """Number of rows stored by a job's joins and Top-N, or in tables of these names, by the manifest of an epoch."""
    return sum(
        ref["rows"]
        for state in manifest.states.values()
        for account in state.get("subtasks", {}).values()
        for side in names or (LEFT_TABLE, RIGHT_TABLE, VERSIONS, RANKED_ROWS)
        for ref in account["tables"].get(side, [])
    )


def milliseconds(moment: Any) -> Any:
    """A TIMESTAMP as milliseconds."""
    if not isinstance(moment, datetime.datetime):
        return moment
    return round((moment.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)).total_seconds() * 1000)
