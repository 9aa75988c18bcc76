"""Columnar SQL sessions match sessions computed event by event, whatever the epochs."""

from __future__ import annotations

import datetime
from collections import defaultdict
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
    """The timestamp of a row."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def sessions_of(rows: list[tuple[Any, int, int]]) -> list[tuple[Any, ...]]:
    """The reference: rows of a key in time order, split if two are further apart than the gap."""
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


def rows_in_sessions(rows: list[tuple[Any, int, int]]) -> list[tuple[Any, ...]]:
    """Each row (key, time, value) with the bounds of its session."""
    bounds = [(key, start, end) for key, start, end, *_ in sessions_of(rows)]
    return [
        (*row, start, end)
        for row in rows
        for key, start, end in bounds
        if key == row[0] and start <= row[1] <= end - GAP_MS
    ]


def random_input(seed: int) -> tuple[list[tuple[Any, int, int]], list[Any]]:
    """Rows, and a script of them."""
    random = Random(seed)
    now, rows, items = 0, [], []
    for _ in range(random.choice((5, 60))):
        for _ in range(random.randrange(6)):
            now += random.choice((0, 100, 400, 900, 1_000, 1_001, 2_500))
            # Never later than the watermark delay.
            row = (random.choice(("a", "b", None)), max(0, now - random.randrange(BOUND_MS)), random.randrange(9))
            rows.append(row)
            items.append(Row(*row))
        items += random.choice(([EPOCH], [CRASH, EPOCH]) if seed % 2 else ([EPOCH],))
    return rows, items


def answer(query: str, items: list[Any], parallelism: int) -> list[Any]:
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

    return list(run(build, parallelism=parallelism)[out])


@pytest.mark.parametrize("query", QUERIES, ids=["legacy", "tvf"])
@pytest.mark.parametrize("seed", range(6))
def test_sessions_match_the_reference_wherever_epochs_are_cut(query: str, seed: int) -> None:
    rows, items = random_input(seed)
    given = []
    for key, start, end, *rest in answer(query, items, seed % 3 + 1):
        given.append((key, _ms(start), _ms(end), *rest))
    assert sorted(given, key=repr) == sessions_of(rows)


SESSIONS = "TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND))"


def grouped(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Counts and sums of the last column, by the others."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for row in rows:
        groups[row[:-1]].append(row[-1])
    return sorted(((*key, len(values), sum(values)) for key, values in groups.items()), key=repr)


@pytest.mark.parametrize("seed", range(4))
def test_session_rows_are_grouped_by_other_columns_than_the_partition(seed: int) -> None:
    rows, items = random_input(seed)
    within = rows_in_sessions(rows)
    bounds = [
        (
            "SELECT window_start, window_end, COUNT(*), SUM(v) FROM {} GROUP BY window_start, window_end",
            grouped([(start, end, v) for _, _, v, start, end in within]),
        ),
        (
            "SELECT window_start, window_end, k, v, COUNT(*), SUM(v) FROM {} GROUP BY k, v, window_start, window_end",
            grouped([(start, end, k, v, v) for k, _, v, start, end in within]),
        ),
        (
            "SELECT window_start, window_end, COUNT(*), SUM(v) FROM {} WHERE window_end > window_start AND v > 4 "
            "GROUP BY window_start, window_end",
            grouped([(start, end, v) for _, _, v, start, end in within if v > 4]),
        ),
        (
            # A filtered row still belongs to its session: it may connect its neighbours.
            "SELECT window_start, window_end, k, COUNT(*), SUM(v) FROM {} WHERE v > 4 "
            "GROUP BY k, window_start, window_end",
            grouped([(start, end, k, v) for k, _, v, start, end in within if v > 4]),
        ),
        (
            "SELECT window_start, window_end, k, t, v FROM {} WHERE v > 4",
            sorted([(start, end, k, t, v) for k, t, v, start, end in within if v > 4], key=repr),
        ),
        (
            "SELECT window_start, window_end, COUNT(*), SUM(n) FROM (SELECT k, window_start, window_end, COUNT(*) AS n "
            "FROM {} GROUP BY k, window_start, window_end) GROUP BY window_start, window_end",
            grouped([(start, end, count) for _, start, end, count, *_ in sessions_of(rows)]),
        ),
    ]
    for query, expected in bounds:
        given = [
            (_ms(start), _ms(end), *rest) for start, end, *rest in answer(query.format(SESSIONS), items, seed % 3 + 1)
        ]
        assert sorted(given, key=repr) == expected, query


def _ms(moment: Any) -> int:
    return round((moment - datetime.datetime(1970, 1, 1)).total_seconds() * 1000)
