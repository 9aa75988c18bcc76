"""An aggregate without GROUP BY over no rows: one row in BATCH, none in a stream until the first row arrives
(docs/sql/statements.md)."""

from __future__ import annotations

from typing import Any

import pytest
from changing_tables import TYPE

from millstream.common.types import Row, RowKind
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.table import EnvironmentSettings, StreamTableEnvironment, TableEnvironment
from millstream.testing import EPOCH, Collect, Script, run
from millstream.testing.local_jobs import jobs_in_memory

NO_TIME = WatermarkStrategy.no_watermarks()
NOTHING = "FROM (VALUES 1) AS t(x) WHERE x > 3"


@pytest.mark.parametrize(
    ("settings", "counts"),
    [(EnvironmentSettings.in_batch_mode, [(0,)]), (EnvironmentSettings.in_streaming_mode, [])],
)
def test_a_count_of_no_rows_is_a_row_in_batch_only(settings: Any, counts: list[Any]) -> None:
    with jobs_in_memory():
        t_env = TableEnvironment.create(settings())
        with t_env.execute_sql(f"SELECT COUNT(*) {NOTHING}").collect() as rows:
            assert [tuple(row) for row in rows] == counts
        with t_env.execute_sql(f"SELECT y, (SELECT COUNT(*) {NOTHING}) FROM (VALUES 5) AS u(y)").collect() as rows:
            assert [tuple(row) for row in rows] == [(5, 0)]


def test_a_stream_emits_the_result_row_with_the_first_input_row_and_retains_it() -> None:
    out, first = Collect(), Row(1, 2, "s", 1.0)
    gone = Row(1, 2, "s", 1.0)
    gone.set_row_kind(RowKind.DELETE)

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        stream = env.from_source(Script([first, EPOCH, gone, EPOCH], type_info=TYPE), NO_TIME, "t")
        t_env.create_temporary_view("t", t_env.from_changelog_stream(stream))
        t_env.to_changelog_stream(t_env.sql_query("SELECT COUNT(*) FROM t")).sink_to(out)

    run(build)
    assert [(row.get_row_kind(), row[0]) for row in out.values] == [
        (RowKind.INSERT, 1),
        (RowKind.UPDATE_BEFORE, 1),
        (RowKind.UPDATE_AFTER, 0),
    ]
