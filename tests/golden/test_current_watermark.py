"""CURRENT_WATERMARK is the watermark before the epoch of a row, and NULL before the first watermark."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.table import Schema, StreamTableEnvironment
from millstream.testing import EPOCH, Collect, Script, Watermark, run

TYPE = Types.ROW_NAMED(["n", "t"], [Types.INT(), Types.LONG()])


class ByTime:
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def answers(query: str, rowtime: str, items: list[Any], parallelism: int = 1) -> list[tuple[Any, ...]]:
    out = Collect()

    def build(env: Any) -> None:
        strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(ByTime())
        timed = env.from_source(Script(items, type_info=TYPE), strategy, "t")
        t_env = StreamTableEnvironment.create(env)
        schema = Schema.new_builder().column_by_metadata("ts", rowtime, "rowtime", True)
        t_env.create_temporary_view(
            "t", t_env.from_data_stream(timed, schema.watermark("ts", "SOURCE_WATERMARK()").build())
        )
        t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(out)

    return sorted(tuple(record.value) for record in run(build, parallelism=parallelism).of(out))


ITEMS = [Row(1, 5_000), EPOCH, Row(2, 6_000), Watermark(4_000), Row(3, 7_000), EPOCH]


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("rowtime", ["TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP_LTZ(0)", "TIMESTAMP_LTZ(3)"])
def test_the_watermark_is_null_before_the_first_one(rowtime: str, parallelism: int) -> None:
    query = "SELECT n, CAST(CURRENT_WATERMARK(ts) AS STRING), CURRENT_WATERMARK(ts) IS NULL FROM t"
    shown = "1970-01-01 00:00:04" + (".000" if "3" in rowtime else "")
    found = answers(query, rowtime, ITEMS, parallelism)
    assert found[:2] == [(1, None, True), (2, None, True)]
    assert found[2] == (3, shown, False)


def test_flinks_documented_filter_of_late_rows_retains_the_first_rows() -> None:
    query = "SELECT n FROM t WHERE CURRENT_WATERMARK(ts) IS NULL OR ts > CURRENT_WATERMARK(ts)"
    items = [Row(1, 5_000), EPOCH, Watermark(6_000), Row(2, 5_500), Row(3, 7_000), EPOCH]
    assert answers(query, "TIMESTAMP(3)", items) == [(1,), (3,)]


@pytest.mark.parametrize("precision", [6, 9])
def test_a_watermark_in_a_finer_type_is_null_or_a_time(precision: int) -> None:
    query = f"SELECT n, CAST(CURRENT_WATERMARK(CAST(ts AS TIMESTAMP({precision}))) AS STRING) FROM t"
    found = answers(query, "TIMESTAMP(3)", ITEMS)
    assert found == [(1, None), (2, None), (3, f"1970-01-01 00:00:04.{'0' * precision}")]
