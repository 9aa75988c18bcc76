"""Sessions of SQL, in columns, are those that a reader would cut by hand: event by event, whatever the epochs."""

from __future__ import annotations

import datetime
from random import Random
from typing import Any

import pytest

from millstream.common.time import Duration
from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.table import Schema, StreamTableEnvironment
from millstream.testing import CRASH, EPOCH, Collect, Script, run

TYPE = Types.ROW_NAMED(["k", "t", "v"], [Types.STRING(), Types.LONG(), Types.LONG()])
GAP_MS = 1_000
BOUND_MS = 2_000
QUERIES = (
    "SELECT k, SESSION_START(ts, INTERVAL '1' SECOND), SESSION_END(ts, INTERVAL '1' SECOND), COUNT(*), SUM(v), MAX(v) "
    "FROM t GROUP BY k, SESSION(ts, INTERVAL '1' SECOND)",
    "SELECT k, window_start, window_end, COUNT(*), SUM(v), MAX(v) "
    "FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND)) "
    "GROUP BY k, window_start, window_end",
)


class ByTime:
    """The time of a row."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def sessions_of(rows: list[tuple[Any, int, int]]) -> list[tuple[Any, ...]]:
    """The slow way: rows of a key in the order of their times, cut where more than the gap lies between two."""
    found: list[tuple[Any, ...]] = []
    for key in {row[0] for row in rows}:
        of_key = sorted(row[1:] for row in rows if row[0] == key)
        while of_key:
            session = [of_key.pop(0)]
            while of_key and of_key[0][0] <= session[-1][0] + GAP_MS:
                session.append(of_key.pop(0))
            values = [value for _, value in session]
            found.append((key, session[0][0], session[-1][0] + GAP_MS, len(values), sum(values), max(values)))
    return sorted(found, key=repr)


@pytest.mark.parametrize("query", QUERIES, ids=["legacy", "tvf"])
@pytest.mark.parametrize("seed", range(6))
def test_sessions_are_those_of_the_slow_way_wherever_epochs_are_cut(query: str, seed: int) -> None:
    random = Random(seed)
    now, rows, items = 0, [], []
    for _ in range(random.choice((5, 60))):
        for _ in range(random.randrange(6)):
            now += random.choice((0, 100, 400, 900, 1_000, 1_001, 2_500))
            # Never later than the watermark waits for.
            row = (random.choice(("a", "b", None)), max(0, now - random.randrange(BOUND_MS)), random.randrange(9))
            rows.append(row)
            items.append(Row(*row))
        items += random.choice(([EPOCH], [CRASH, EPOCH]) if seed % 2 else ([EPOCH],))
    out = Collect()

    def build(env: Any) -> None:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(BOUND_MS))
        stream = env.add_source(Script(items, type_info=TYPE), type_info=TYPE)
        timed = stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(ByTime()))
        t_env = StreamTableEnvironment.create(env)
        schema = (
            Schema.new_builder()
            .column_by_metadata("ts", "TIMESTAMP(3)", "rowtime", True)
            .watermark("ts", "SOURCE_WATERMARK()")
            .build()
        )
        t_env.create_temporary_view("t", t_env.from_data_stream(timed, schema))
        t_env.to_data_stream(t_env.sql_query(query)).sink_to(out)

    result = run(build, parallelism=seed % 3 + 1)
    given = []
    for key, start, end, *rest in result[out]:
        given.append((key, _ms(start), _ms(end), *rest))
    assert sorted(given, key=repr) == sessions_of(rows)


def _ms(moment: Any) -> int:
    return round((moment - datetime.datetime(1970, 1, 1)).total_seconds() * 1000)
