"""Streaming ORDER BY a time attribute: each row that is not late is emitted once, in time order, in any epochs."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from millstream.common.time import Duration
from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.errors import MillstreamError
from millstream.table import Schema, StreamTableEnvironment
from millstream.testing import CRASH, EPOCH, Collect, Script, run

TYPE = Types.ROW_NAMED(["n", "at", "v"], [Types.LONG(), Types.LONG(), Types.INT()])
BOUND_MS = 200


def answer(query: str, items: list[Any], parallelism: int) -> list[tuple[Any, ...]]:
    out = Collect()

    def build(env: Any) -> None:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(BOUND_MS))
        stream = env.add_source(Script(items, type_info=TYPE), type_info=TYPE)
        timed = stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda row, _: row.at))
        t_env = StreamTableEnvironment.create(env)
        schema = Schema.new_builder().column_by_metadata("ts", "TIMESTAMP(3)", "rowtime", True)
        table = t_env.from_data_stream(timed, schema.watermark("ts", "SOURCE_WATERMARK()").build())
        t_env.create_temporary_view("t", table)
        t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(out)

    return [tuple(record.value) for record in run(build, parallelism=parallelism).of(out)]


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_emitted_in_the_order_of_time_and_further_keys(seed: int) -> None:
    random = Random(seed)
    now, rows, items = 0, [], []
    for number in range(40):
        now += random.choice((0, 0, 1, 50))
        value = None if random.random() < 0.2 else random.randrange(3)
        rows.append((number, max(0, now - random.randrange(BOUND_MS)), value))
        items.append(Row(*rows[-1]))
        items += random.choice(([], [EPOCH], [CRASH, EPOCH]))
    parallelism = seed % 3 + 1
    by_time = [row[:3] for row in answer("SELECT n, `at`, v, ts FROM t ORDER BY ts", items, parallelism)]
    # Rows of one timestamp are in arrival order if one task reads them all.
    assert [row[1] for row in by_time] == sorted(row[1] for row in rows)
    assert sorted(by_time, key=str) == sorted(rows, key=str)
    query = "SELECT n, `at`, v, ts FROM t ORDER BY ts, v DESC, n"
    further = [row[:3] for row in answer(query, items, parallelism)]
    assert further == sorted(rows, key=lambda row: (row[1], row[2] is None, -(row[2] or 0), row[0]))
    windowed = answer(
        "SELECT COUNT(*) FROM (SELECT * FROM t ORDER BY ts) GROUP BY TUMBLE(ts, INTERVAL '1' SECOND)",
        items,
        parallelism,
    )
    assert sum(row[0] for row in windowed) == len(rows)


def test_a_descending_time_is_rejected() -> None:
    with pytest.raises(MillstreamError, match="Sort on a non-time-attribute field is not supported"):
        answer("SELECT n, ts FROM t ORDER BY ts DESC", [Row(1, 1, 1)], 1)
