"""Streams as tables and tables as streams: columns, time attributes, and programs that mix both."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.common import Row, RowKind, Types, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream.functions import ProcessFunction
from millstream.errors import ProgramError, SqlError
from millstream.table import ChangelogMode, DataTypes, Schema, StreamTableEnvironment, Table
from millstream.table.expressions import col, lit
from millstream.table.udf import udf, udtf
from millstream.table.window import Slide, Tumble
from millstream.testing.local_jobs import jobs_in_memory

BID = Types.ROW_NAMED(["name", "price", "at"], [Types.STRING(), Types.INT(), Types.LONG()])
BIDS = [("a", 1, 1_000), ("b", 2, 4_000), ("a", 3, 6_000), ("a", 4, 11_000)]


class ByField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[2])


@pytest.fixture
def env() -> Iterator[StreamExecutionEnvironment]:
    with jobs_in_memory():
        env = StreamExecutionEnvironment.get_execution_environment()
        yield env.set_parallelism(1)


@pytest.fixture
def t_env(env: StreamExecutionEnvironment) -> StreamTableEnvironment:
    return StreamTableEnvironment.create(env)


@pytest.fixture
def bids(env: StreamExecutionEnvironment) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByField())
    return env.from_collection(BIDS, BID).assign_timestamps_and_watermarks(strategy)


def rows(table: Table) -> list[tuple[Any, ...]]:
    with table.execute().collect() as results:
        return [tuple(each) for each in results]


def schema_of(table: Table) -> list[str]:
    return [str(field) for field in table._relation.schema.fields]


def test_a_typed_stream_has_a_column_for_each_field(t_env: StreamTableEnvironment, bids: DataStream) -> None:
    table = t_env.from_data_stream(bids)
    assert schema_of(table) == ["name STRING", "price INT", "at BIGINT"]
    assert rows(table) == BIDS


def test_fields_are_selected_by_name_or_renamed_by_position(t_env: StreamTableEnvironment, bids: DataStream) -> None:
    assert rows(t_env.from_data_stream(bids, col("price"), col("name").alias("who")))[0] == (1, "a")
    by_place = t_env.from_data_stream(bids, col("x"), col("y"))
    assert schema_of(by_place) == ["x STRING", "y INT"] and rows(by_place)[1] == ("b", 2)
    with pytest.raises(ProgramError, match="4 fields for a stream with 3"):
        t_env.from_data_stream(bids, col("x"), col("y"), col("z"), col("u"))


def test_a_single_value_is_one_column(t_env: StreamTableEnvironment, env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1, 2], Types.LONG())
    assert rows(t_env.from_data_stream(numbers)) == [(1,), (2,)]
    word = Schema.new_builder().column("n", DataTypes.DECIMAL(5, 1)).build()
    assert [str(n) for (n,) in rows(t_env.from_data_stream(numbers, word))] == ["1.0", "2.0"]


def test_the_time_of_a_stream_is_a_rowtime_by_metadata_or_field(
    t_env: StreamTableEnvironment, bids: DataStream
) -> None:
    schema = (
        Schema.new_builder()
        .column_by_metadata("ts", "TIMESTAMP_LTZ(3)", "rowtime")
        .watermark("ts", "SOURCE_WATERMARK()")
        .build()
    )
    by_metadata = t_env.from_data_stream(bids, schema)
    assert schema_of(by_metadata)[-1] == "ts TIMESTAMP_LTZ(3) *ROWTIME*"
    by_field = t_env.from_data_stream(bids, col("name"), col("price"), col("ts").rowtime)
    assert schema_of(by_field)[-1] == "ts TIMESTAMP(3) *ROWTIME*"
    for table in (by_metadata, by_field):
        window = Tumble.over(lit(5).seconds).on(col("ts")).alias("w")
        summed = table.window(window).group_by(col("w"), col("name")).select(col("name"), col("price").sum)
        assert sorted(rows(summed)) == [("a", 1), ("a", 3), ("a", 4), ("b", 2)]


def test_a_watermark_may_be_an_expression(t_env: StreamTableEnvironment, bids: DataStream) -> None:
    schema = (
        Schema.new_builder()
        .column_by_expression("ts", "TO_TIMESTAMP_LTZ(`at`, 3)")
        .watermark("ts", col("ts") - lit(1).second)
        .build()
    )
    table = t_env.from_data_stream(bids, schema)
    window = Slide.over(lit(10).seconds).every(lit(5).seconds).on(col("ts")).alias("w")
    counted = table.window(window).group_by(col("w")).select(col("w").start, col("price").count)
    assert [count for _, count in sorted(rows(counted))] == [2, 3, 2, 1]


def test_a_table_becomes_a_stream_of_rows_with_its_time(t_env: StreamTableEnvironment, bids: DataStream) -> None:
    class WithTime(ProcessFunction):
        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
            yield value.name, value.price + 1, ctx.timestamp(), value.get_row_kind() is RowKind.INSERT

    table = t_env.from_data_stream(bids, col("name"), col("price"), col("ts").rowtime)
    stream = t_env.to_data_stream(table.where(col("price") > 2).drop_columns(col("ts")).add_columns(lit(1)))
    with stream.process(WithTime()).execute_and_collect() as results:
        assert [each[:2] for each in results] == [("a", 4), ("a", 5)]
    with t_env.to_data_stream(table).process(WithTime()).execute_and_collect() as results:
        assert next(results) == ("a", 2, 1_000, True)


def test_append_and_retract_streams_have_the_requested_type(t_env: StreamTableEnvironment, bids: DataStream) -> None:
    table = t_env.from_data_stream(bids).select(col("name"), col("price"))
    pairs = t_env.to_append_stream(table, Types.TUPLE([Types.STRING(), Types.INT()]))
    with pairs.execute_and_collect() as results:
        assert next(results) == ("a", 1)
    flagged = t_env.to_retract_stream(table, Types.ROW([Types.STRING(), Types.INT()]))
    with flagged.execute_and_collect() as results:
        assert [(flag, tuple(row)) for flag, row in results][1] == (True, ("b", 2))
    counts = table.group_by(col("name")).select(col("name"), col("price").sum)
    tuples = t_env.to_retract_stream(counts, Types.TUPLE([Types.STRING(), Types.INT()]))
    with tuples.execute_and_collect() as results:
        assert (True, ("b", 2)) in list(results)
    with t_env.to_retract_stream(table.select(col("price")), Types.INT()).execute_and_collect() as results:
        assert next(results) == (True, 1)
    for older in (t_env.to_append_stream, t_env.to_retract_stream):
        with pytest.raises(ProgramError, match="2 columns, expected one"):
            older(table, Types.STRING())


def test_a_view_of_a_stream_is_read_by_sql(t_env: StreamTableEnvironment, bids: DataStream) -> None:
    t_env.create_temporary_view("bids", bids, col("who"), col("price"), col("at"))
    assert rows(t_env.sql_query("SELECT who, price * 2 FROM bids WHERE price > 3")) == [("a", 8)]
    assert t_env.list_temporary_views() == ["bids"]


def test_a_query_is_a_separate_job_from_streams_that_were_begun(
    t_env: StreamTableEnvironment, env: StreamExecutionEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    env.from_collection(["not yet"], Types.STRING()).print()
    assert rows(t_env.from_elements([(1,)], ["n"])) == [(1,)]
    assert "not yet" not in capfd.readouterr().out
    env.execute()
    assert "not yet" in capfd.readouterr().out


def test_a_statement_set_may_run_with_the_streams(
    t_env: StreamTableEnvironment, env: StreamExecutionEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    t_env.execute_sql("CREATE TABLE shown (n BIGINT) WITH ('connector' = 'print')")
    statements = t_env.create_statement_set()
    statements.add_insert("shown", t_env.from_elements([(41,)], ["n"]))
    statements.attach_as_datastream()
    env.execute()
    assert "41" in capfd.readouterr().out


def test_streams_of_another_environment_are_refused(t_env: StreamTableEnvironment) -> None:
    other = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(ProgramError, match="belongs to another environment"):
        t_env.from_data_stream(other.from_collection([1], Types.LONG()))


def test_changelog_streams_preserve_row_kinds_in_both_directions(
    t_env: StreamTableEnvironment, bids: DataStream
) -> None:
    with pytest.raises(SqlError, match=r"The stream is a changelog of upserts.* has no primary key"):
        t_env.from_changelog_stream(bids, changelog_mode=ChangelogMode.upsert())
    with t_env.to_changelog_stream(t_env.from_changelog_stream(bids)).execute_and_collect() as results:
        assert len(list(results)) == len(BIDS)
    grown = t_env.from_changelog_stream(bids, changelog_mode=ChangelogMode.insert_only())
    assert rows(grown) == BIDS
    with t_env.to_changelog_stream(grown).execute_and_collect() as results:
        assert [each.get_row_kind() for each in results] == [RowKind.INSERT] * 4


def test_a_union_of_streams_is_a_table(t_env: StreamTableEnvironment, env: StreamExecutionEnvironment) -> None:
    both = env.from_collection([1], Types.LONG()).union(env.from_collection([2], Types.LONG()))
    assert sorted(rows(t_env.from_data_stream(both, col("n")))) == [(1,), (2,)]


def test_times_and_decimals_are_converted_both_ways(t_env: StreamTableEnvironment) -> None:
    moment = datetime.datetime(2024, 5, 6, 7, 8, 9, 123_000)
    row_type = DataTypes.ROW([DataTypes.FIELD("t", DataTypes.TIMESTAMP(3)), DataTypes.FIELD("d", DataTypes.DATE())])
    table = t_env.from_elements([(moment, moment.date())], row_type)
    with t_env.to_data_stream(table).map(lambda row: row).execute_and_collect() as results:
        assert [tuple(each) for each in results] == [(moment, moment.date())]


@pytest.mark.parametrize(("type_name", "way"), [("BITMAP", "BITMAP_FROM_BYTES"), ("VARIANT", "PARSE_JSON")])
def test_user_values_are_not_mistaken_for_bitmaps_and_variants(
    t_env: StreamTableEnvironment, bids: DataStream, type_name: str, way: str
) -> None:
    with pytest.raises(ProgramError, match=way):
        t_env.from_data_stream(bids, Schema.new_builder().column("name", type_name).build())
    with pytest.raises(ProgramError, match=way):
        udf(lambda value: value, result_type=f"ARRAY<{type_name}>")
    with pytest.raises(ProgramError, match=way):
        udtf(lambda value: [value], result_types=[type_name])


def test_a_variant_stays_a_variant_through_a_stream(t_env: StreamTableEnvironment) -> None:
    stream = t_env.to_data_stream(t_env.sql_query("SELECT PARSE_JSON('[1, 2]') AS v, BITMAP_BUILD(ARRAY[7]) AS b"))
    t_env.create_temporary_view("again", t_env.from_data_stream(stream))
    assert rows(t_env.sql_query("SELECT JSON_STRING(v), BITMAP_TO_STRING(b) FROM again")) == [("[1,2]", "{7}")]


def test_an_updating_table_becomes_a_data_frame_of_its_final_rows(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment
) -> None:
    pytest.importorskip("pandas")
    changes = [
        Row.of_kind(RowKind.INSERT, "a", 1),
        Row.of_kind(RowKind.INSERT, "b", 2),
        Row.of_kind(RowKind.INSERT, "b", 2),
        Row.of_kind(RowKind.UPDATE_BEFORE, "a", 1),
        Row.of_kind(RowKind.UPDATE_AFTER, "a", 5),
        Row.of_kind(RowKind.DELETE, "b", 2),
    ]
    type_info = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()])
    frame = t_env.from_changelog_stream(env.from_collection(changes, type_info)).to_pandas()
    assert sorted(frame.itertuples(index=False, name=None)) == [("a", 5), ("b", 2)]
    once_too_often = env.from_collection([*changes, changes[-1], changes[-1]], type_info)
    with pytest.raises(ProgramError, match="is deleted more often than it was inserted"):
        t_env.from_changelog_stream(once_too_often).to_pandas()
