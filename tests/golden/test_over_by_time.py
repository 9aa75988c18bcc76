"""OVER by time emits each row once, equal to DuckDB's result over all rows, wherever epochs are cut; it stores only the
rows that later frames need.
"""

from __future__ import annotations

import datetime
from collections import Counter
from itertools import count
from random import Random
from typing import Any

import duckdb
import pytest

from millstream import state_reader
from millstream.common.time import Duration
from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.errors import MillstreamError
from millstream.table import (
    AggregateFunction,
    DataTypes,
    EnvironmentSettings,
    Schema,
    StreamTableEnvironment,
    TableEnvironment,
)
from millstream.table.udf import udaf
from millstream.testing import CRASH, EPOCH, Collect, Script, run

TYPE = Types.ROW_NAMED(
    ["n", "k", "t", "v", "x"], [Types.LONG(), Types.STRING(), Types.LONG(), Types.LONG(), Types.DOUBLE()]
)
BOUND_MS = 2_000
BEGIN = datetime.datetime(1970, 1, 1)
STORES = count()
RANGES = (
    "SELECT n, SUM(v) OVER w, COUNT(*) OVER w, MAX(x) OVER w FROM t WINDOW w AS (PARTITION BY k ORDER BY ts)",
    "SELECT n, SUM(v) OVER w, MIN(v) OVER w, COUNT(DISTINCT v) OVER w FROM t WINDOW w AS "
    "(PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND CURRENT ROW)",
    "SELECT n, COUNT(DISTINCT v) OVER w, SUM(x) FILTER (WHERE v > 3) OVER w FROM t WINDOW w AS (ORDER BY ts)",
    "SELECT n, RANK() OVER w, DENSE_RANK() OVER w FROM t WINDOW w AS (PARTITION BY k ORDER BY ts)",
    "SELECT n, s, MAX(s) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND CURRENT ROW) "
    "FROM (SELECT n, k, ts, SUM(v) OVER (ORDER BY ts) AS s FROM t) q",
)
ROWS = (
    "SELECT n, SUM(v) OVER w, AVG(x) OVER w, MAX(v) OVER w FROM t WINDOW w AS "
    "(PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)",
    "SELECT n, SUM(x) OVER (PARTITION BY k ORDER BY ts ROWS UNBOUNDED PRECEDING), ROW_NUMBER() OVER "
    "(PARTITION BY k ORDER BY ts), LAG(v, 2, -1) OVER (PARTITION BY k ORDER BY ts) FROM t",
    "SELECT n, LAG(v) OVER (ORDER BY ts), COUNT(v) OVER (ORDER BY ts ROWS BETWEEN CURRENT ROW AND CURRENT ROW) FROM t",
)


class ByTime:
    """The timestamp of a row."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[2])


def add_table(env: Any, items: list[Any], t_env: StreamTableEnvironment) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(BOUND_MS))
    stream = env.add_source(Script(items, type_info=TYPE), type_info=TYPE)
    timed = stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(ByTime()))
    schema = (
        Schema.new_builder()
        .column_by_metadata("ts", "TIMESTAMP(3)", "rowtime", True)
        .column_by_expression("p", "PROCTIME()")
        .watermark("ts", "SOURCE_WATERMARK()")
        .build()
    )
    t_env.create_temporary_view("t", t_env.from_data_stream(timed, schema))


def answers(query: str, rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as database:
        database.execute("CREATE TABLE t (n BIGINT, k VARCHAR, t BIGINT, v BIGINT, x DOUBLE, ts TIMESTAMP)")
        for row in rows:
            database.execute(
                "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", (*row, BEGIN + datetime.timedelta(milliseconds=row[2]))
            )
        return Counter(tuple(row) for row in database.execute(query).fetchall())


def script(random: Random, *, has_equals: bool, crashes: bool) -> tuple[list[tuple[Any, ...]], list[Any]]:
    """Rows within the watermark delay, in epochs."""
    now, rows, items = 0, [], []
    for _ in range(random.choice((4, 25))):
        for _ in range(random.randrange(8)):
            now += random.choice((0, 500, 1_000, 1_500))
            time = max(0, now - random.randrange(0, BOUND_MS, 500))
            number = len(rows)
            exact = time if has_equals else time * 1_000 + number
            value = None if random.random() < 0.1 else random.randrange(9)
            row = (number, random.choice(("a", "b", None)), exact, value, random.randrange(-4, 5) / 2)
            rows.append(row)
            items.append(Row(*row))
        items += [CRASH, EPOCH] if crashes and random.random() < 0.3 else [EPOCH]
    return rows, items


@pytest.mark.parametrize(
    ("query", "has_equals"), [*((query, True) for query in RANGES), *((query, False) for query in ROWS)]
)
def test_every_row_matches_the_batch_result(query: str, has_equals: bool) -> None:
    for seed in range(3):
        random = Random(f"{query} {seed}")
        rows, items = script(random, has_equals=has_equals, crashes=seed % 2 == 1)
        if (
            not has_equals
        ):  # times are a thousand times as far apart, the watermark delay is not: no row is out of order
            items = [item for item in items if not isinstance(item, Row)]
            rows.sort(key=lambda row: row[2])
            step = max(1, len(items))
            items = [each for row in rows for each in ((Row(*row), EPOCH) if row[0] % step == 0 else (Row(*row),))]
        out = Collect()

        def build(env: Any, items: list[Any] = items, out: Collect = out) -> None:
            t_env = StreamTableEnvironment.create(env)
            add_table(env, items, t_env)
            t_env.to_data_stream(t_env.sql_query(query)).sink_to(out)

        result = run(build, parallelism=seed % 3 + 1)
        assert Counter(tuple(row) for row in result[out]) == answers(query, rows)


@pytest.mark.parametrize("query", [*RANGES, *ROWS])
def test_batch_mode_emits_the_same_rows(query: str) -> None:
    rows, _ = script(Random(query), has_equals=query in RANGES, crashes=False)
    out = Collect()

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env, EnvironmentSettings.in_batch_mode())
        add_table(env, [Row(*row) for row in rows], t_env)
        t_env.to_data_stream(t_env.sql_query(query)).sink_to(out)

    assert Counter(tuple(row) for row in run(build, parallelism=2)[out]) == answers(query, rows)


def test_rows_are_emitted_in_time_order_and_late_ones_are_dropped() -> None:
    times = [5_000, 3_000, 4_000, None, 9_000, None, 20_000, None, 1_000, 21_000, None, 30_000]
    items = [EPOCH if time is None else Row(number, "a", time, 1, 0.0) for number, time in enumerate(times)]
    out = Collect()

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        add_table(env, items, t_env)
        t_env.to_data_stream(t_env.sql_query("SELECT t, SUM(v) OVER (ORDER BY ts) FROM t")).sink_to(out)

    given = [tuple(row) for row in run(build)[out]]
    assert given == [(3_000, 1), (4_000, 2), (5_000, 3), (9_000, 4), (20_000, 5), (21_000, 6), (30_000, 7)]


def test_emitted_rows_retain_their_timestamps_and_can_feed_windows() -> None:
    items = [Row(number, "a", number * 400, 1, 0.0) for number in range(10)]
    out = Collect()

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        add_table(env, items, t_env)
        t_env.create_temporary_view(
            "totals", t_env.sql_query("SELECT ts, SUM(v) OVER (PARTITION BY k ORDER BY ts) AS s FROM t")
        )
        query = (
            "SELECT MAX(s) FROM TABLE(TUMBLE(TABLE totals, DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY window_start"
        )
        t_env.to_data_stream(t_env.sql_query(f"{query}, window_end")).sink_to(out)

    assert [row[0] for row in run(build)[out]] == [3, 5, 8, 10]


def test_by_processing_time_rows_are_emitted_immediately_in_arrival_order() -> None:
    items = [Row(0, "a", 9, 4, 0.0), Row(1, "b", 5, 6, 0.0), EPOCH, Row(2, "a", 1, 3, 0.0), Row(3, "a", 7, 5, 0.0)]
    out = Collect()

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        add_table(env, items, t_env)
        query = "SELECT n, SUM(v) OVER w, LAG(v) OVER w FROM t WINDOW w AS (PARTITION BY k ORDER BY p)"
        t_env.to_data_stream(t_env.sql_query(query)).sink_to(out)

    result = run(build)
    assert [(each.epoch, *each.value) for each in result.of(out)] == [
        (1, 0, 4, None),
        (1, 1, 6, None),
        (2, 2, 7, 4),
        (2, 3, 12, 3),
    ]


@pytest.mark.parametrize(
    ("frame", "stored"),
    [
        ("RANGE UNBOUNDED PRECEDING", 1),
        ("ROWS BETWEEN 4 PRECEDING AND CURRENT ROW", 4),
        ("RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND CURRENT ROW", 3),
    ],
)
def test_only_rows_that_later_frames_need_are_stored(frame: str, stored: int) -> None:
    items: list[Any] = []
    for number in range(60):
        items.append(Row(number, "a", number * 1_000, 1, 0.0))
        items += [EPOCH] if number % 3 == 2 else []
    store = f"test-over-by-time-{next(STORES)}"

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        add_table(env, items, t_env)
        query = f"SELECT SUM(v) OVER (PARTITION BY k ORDER BY ts {frame}) FROM t"
        t_env.to_data_stream(t_env.sql_query(query)).sink_to(Collect())

    run(build, store=store)
    reader = state_reader.open(f"memory://{store}")
    with reader.at(epoch=[info.epoch for info in reader.epochs()][-5]) as snapshot:
        rows = [row for info in snapshot.states() for row in snapshot.read(info.uid, info.name)]
    # In addition, the rows of the last seconds, which wait for the watermark.
    assert stored <= len(rows) <= stored + 6, rows


SEVERAL = (
    "SELECT n, SUM(v) OVER (PARTITION BY k ORDER BY ts), MAX(x) OVER (ORDER BY v NULLS FIRST) FROM t",
    "SELECT n, SUM(v) OVER (ORDER BY n ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING), COUNT(*) OVER (ORDER BY x RANGE "
    "BETWEEN 0.5 PRECEDING AND 1.5 FOLLOWING), LEAD(v) OVER (ORDER BY n DESC) FROM t",
    "SELECT n, SUM(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND INTERVAL '2' "
    "SECOND FOLLOWING), NTILE(4) OVER (ORDER BY n), CUME_DIST() OVER (PARTITION BY k ORDER BY ts) FROM t",
)


@pytest.mark.parametrize("query", SEVERAL)
def test_batch_mode_supports_different_windows_in_one_query(query: str) -> None:
    rows, _ = script(Random(query), has_equals=True, crashes=False)
    out = Collect()

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env, EnvironmentSettings.in_batch_mode())
        add_table(env, [Row(*row) for row in rows], t_env)
        t_env.to_data_stream(t_env.sql_query(query)).sink_to(out)

    assert Counter(tuple(row) for row in run(build, parallelism=2)[out]) == answers(query, rows)


class Spread(AggregateFunction):
    """The difference of the largest and the smallest value."""

    def create_accumulator(self) -> list[int]:
        return []

    def accumulate(self, accumulator: list[int], value: int) -> None:
        accumulator.append(value)

    def get_value(self, accumulator: list[int]) -> int | None:
        return max(accumulator) - min(accumulator) if accumulator else None

    def get_result_type(self) -> Any:
        return DataTypes.BIGINT()

    def get_accumulator_type(self) -> Any:
        return DataTypes.ARRAY(DataTypes.BIGINT())


@pytest.mark.parametrize("mode", ["stream", "batch"])
@pytest.mark.parametrize("frame", ["ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", "RANGE UNBOUNDED PRECEDING"])
def test_a_user_defined_aggregate_runs_over_rows(frame: str, mode: str) -> None:
    rows = [(number, "ab"[number % 2], number * 500, number * 7 % 5, 0.0) for number in range(12)]
    out = Collect()

    def build(env: Any) -> None:
        settings = EnvironmentSettings.in_batch_mode() if mode == "batch" else EnvironmentSettings.in_streaming_mode()
        t_env = StreamTableEnvironment.create(env, settings)
        t_env.create_temporary_system_function("spread", udaf(Spread(), result_type=DataTypes.BIGINT()))
        add_table(env, [Row(*row) for row in rows[:5]] + [EPOCH] + [Row(*row) for row in rows[5:]], t_env)
        query = f"SELECT n, spread(v) OVER (PARTITION BY k ORDER BY ts {frame}) FROM t"
        t_env.to_data_stream(t_env.sql_query(query)).sink_to(out)

    window = f"(PARTITION BY k ORDER BY ts {frame})"
    expected = answers(f"SELECT n, MAX(v) OVER {window} - MIN(v) OVER {window} FROM t", rows)
    assert Counter(tuple(row) for row in run(build, parallelism=2)[out]) == expected


def test_lag_by_time_does_not_read_later_rows() -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.execute_sql(
        "CREATE TABLE t (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'values', 'data' = '[]')"
    )
    with pytest.raises(MillstreamError, match="would read rows that have not arrived yet"):
        t_env.execute_sql("SELECT LAG(v, -1) OVER (ORDER BY ts) FROM t")
