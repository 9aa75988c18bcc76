"""Tables on Spark: programs that other tests run in memory run here as users run them, with the same rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from programs.sql_savepoints import INSERTS_OF_OTHERS, expected_windows, go_on, job_until_savepoint, written_windows

from millstream.common import Types, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import StateSchemaError
from millstream.table import DataTypes, Schema, StreamTableEnvironment, Table
from millstream.table.expressions import col, lit
from millstream.table.udf import udf, udtf
from millstream.table.window import Tumble
from millstream.testing.local_jobs import jobs_in_memory


class ByField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


@udf(result_type=DataTypes.BIGINT(), func_type="pandas")
def squared(n: Any) -> Any:
    return n * n


@udtf(result_types=[DataTypes.STRING()])
def letters(word: str) -> Any:
    yield from word


def tables(t_env: StreamTableEnvironment, env: StreamExecutionEnvironment) -> list[Table]:
    """Expressions, functions of all kinds, windows, a stream."""
    records = [(f"w{n % 3}", n * 700) for n in range(50)]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByField())
    stream = env.from_collection(records, Types.ROW_NAMED(["word", "at"], [Types.STRING(), Types.LONG()]))
    schema = (
        Schema.new_builder()
        .column_by_metadata("ts", "TIMESTAMP_LTZ(3)", "rowtime")
        .watermark("ts", "SOURCE_WATERMARK()")
        .build()
    )
    table = t_env.from_data_stream(stream.assign_timestamps_and_watermarks(strategy), schema)
    window = Tumble.over(lit(5).seconds).on(col("ts")).alias("w")
    return [
        table.where(col("at") > 30_000).select(col("word").upper_case, squared(col("at"))),
        table.where(col("at") < 1_500).join_lateral(letters(col("word")).alias("letter")).drop_columns(col("ts")),
        table.window(window)
        .group_by(col("w"), col("word"))
        .select(col("word"), col("w").start, col("at").sum, col("at").count),
    ]


def rows(table: Table) -> list[tuple[Any, ...]]:
    with table.execute().collect() as found:
        return sorted(tuple(each) for each in found)


@pytest.mark.parametrize("number", range(3))
def test_a_query_emits_the_same_rows_on_spark_as_in_memory(
    new_env: Callable[..., StreamExecutionEnvironment], number: int
) -> None:
    env = new_env()
    on_spark = rows(tables(StreamTableEnvironment.create(env), env)[number])
    with jobs_in_memory():
        local = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
        in_memory = rows(tables(StreamTableEnvironment.create(local), local)[number])
    assert on_spark == in_memory and len(on_spark) > 5


def test_an_insert_writes_files_on_spark(new_env: Callable[..., StreamExecutionEnvironment], tmp_path: Path) -> None:
    t_env = StreamTableEnvironment.create(new_env())
    t_env.execute_sql(
        "CREATE TABLE numbers (n INT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
        "'fields.n.start' = '1', 'fields.n.end' = '100')"
    )
    t_env.execute_sql(
        f"CREATE TABLE kept (n INT, twice INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/kept', "
        "'format' = 'parquet')"
    )
    t_env.execute_sql("INSERT INTO kept SELECT n, n * 2 FROM numbers WHERE n > 90").wait()
    assert rows(t_env.from_path("numbers").where(col("n") == 7)) == [(7,)]  # a transient job leaves the store unchanged
    files = pa.dataset.dataset(str(tmp_path / "kept"), format="parquet").to_table().sort_by("n")
    assert files.to_pydict() == {"n": list(range(91, 101)), "twice": [n * 2 for n in range(91, 101)]}


def test_a_sql_job_stopped_with_a_savepoint_is_restored_at_another_parallelism(
    new_env: Callable[..., StreamExecutionEnvironment], tmp_path: Path
) -> None:
    def environment(store: str) -> StreamTableEnvironment:
        return StreamTableEnvironment.create(new_env().set_parallelism(2).set_store(str(tmp_path / store)))

    savepoint = job_until_savepoint(environment("first"), tmp_path)
    assert 0 < len(written_windows(tmp_path)) < len(expected_windows())
    with pytest.raises(StateSchemaError, match=r"it stored SUM\(n\), and would store MAX\(n\)"):
        go_on(environment("changed"), tmp_path, savepoint, 3, INSERTS_OF_OTHERS[0])
    go_on(environment("second"), tmp_path, savepoint, parallelism=3)
    assert written_windows(tmp_path) == expected_windows()
