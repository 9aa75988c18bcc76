"""Formats of files take the Table API's `DataTypes`, as PyFlink's do, and other things that PyFlink's programs say."""

from __future__ import annotations

import datetime
import logging
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Configuration, Row, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSink, FileSource
from millstream.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from millstream.datastream.formats.orc import OrcBulkWriters
from millstream.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from millstream.errors import NotAvailableError, ProgramError
from millstream.spark.session import _quiet_py4j
from millstream.table import DataTypes, PlanReference, TableConfig, TableEnvironment
from millstream.table.environment_settings import EnvironmentSettings
from millstream.testing.local_jobs import jobs_in_memory

SALE = DataTypes.ROW(
    [
        DataTypes.FIELD("shop", DataTypes.STRING()),
        DataTypes.FIELD("cents", DataTypes.BIGINT()),
        DataTypes.FIELD("price", DataTypes.DECIMAL(10, 2)),
        DataTypes.FIELD("at", DataTypes.TIMESTAMP(3)),
        DataTypes.FIELD("tags", DataTypes.ARRAY(DataTypes.STRING())),
        DataTypes.FIELD("place", DataTypes.ROW([DataTypes.FIELD("row", DataTypes.INT())])),
    ]
)
AT = datetime.datetime(2026, 1, 2, 3, 4, 5)
SALES = [Row("north", 120, Decimal("1.20"), AT, ["a", "b"], Row(1)), Row("river", 40, None, None, [], None)]
STREAM = Types.ROW_NAMED(
    ["shop", "cents", "price", "at", "tags", "place"],
    [
        Types.STRING(),
        Types.LONG(),
        Types.BIG_DEC(),
        Types.SQL_TIMESTAMP(),
        Types.LIST(Types.STRING()),
        Types.ROW_NAMED(["row"], [Types.INT()]),
    ],
)


def written_and_read(folder: Path, writers: Any, reader: Any, rows: Any, type_info: Any) -> list[Any]:
    with jobs_in_memory():
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        env.from_collection(rows, type_info).sink_to(FileSink.for_bulk_format(str(folder), writers).build())
        env.execute()
        files = FileSource.for_record_stream_format if isinstance(reader, CsvReaderFormat) else None
        source = (files or FileSource.for_bulk_file_format)(reader, str(folder)).build()
        with env.from_source(source, WatermarkStrategy.no_watermarks(), "files").execute_and_collect() as found:
            return [tuple(row) for row in found]


def test_parquet_is_written_and_read_by_datatypes(tmp_path: Path) -> None:
    writers = ParquetBulkWriters.for_row_type(SALE, hadoop_config=Configuration(), utc_timestamp=True)
    reader = ParquetColumnarRowInputFormat(SALE, Configuration(), 2048, True, True)
    found = written_and_read(tmp_path, writers, reader, SALES, STREAM)
    assert found[0][:5] == ("north", 120, Decimal("1.20"), AT, ["a", "b"]) and tuple(found[0][5]) == (1,)
    assert found[1] == ("river", 40, None, None, [], None)


def test_csv_columns_are_named_by_datatypes(tmp_path: Path) -> None:
    schema = (
        CsvSchema.builder()
        .add_string_column("shop")
        .add_number_column("cents", number_type=DataTypes.BIGINT())
        .add_number_column("price", number_type=DataTypes.DECIMAL(10, 2))
        .add_array_column("tags", separator="#", element_type=DataTypes.INT())
        .build()
    )
    names = ["shop", "cents", "price", "tags"]
    types = [Types.STRING(), Types.LONG(), Types.BIG_DEC(), Types.LIST(Types.INT())]
    rows = [Row("north", 120, Decimal("1.20"), [1, 2])]
    writers, reader = CsvBulkWriters.for_schema(schema), CsvReaderFormat.for_schema(schema)
    found = written_and_read(tmp_path, writers, reader, rows, Types.ROW_NAMED(names, types))
    assert found == [("north", 120, Decimal("1.20"), [1, 2])]
    with pytest.raises(ProgramError, match=r"add_number_column: found .*expected a number type"):
        CsvSchema.builder().add_number_column("n", DataTypes.STRING())


def test_orc_takes_datatypes_and_hadoops_settings_that_are_empty() -> None:
    OrcBulkWriters.for_row_type(SALE, {}, Configuration())
    full = Configuration()
    full.set_string("fs.s3a.access.key", "x")
    for use in (
        lambda: OrcBulkWriters.for_row_type(SALE, {}, full),
        lambda: ParquetBulkWriters.for_row_type(SALE, full),
        lambda: ParquetColumnarRowInputFormat(SALE, full),
    ):
        with pytest.raises(NotAvailableError, match="Hadoop is not used here"):
            use()
    for wrong in (
        DataTypes.BIGINT(),
        "ROW<a INT>",
        DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INTERVAL(DataTypes.DAY()))]),
    ):
        with pytest.raises(ProgramError, match=r"found .*test_types_of_the_table_api\.py:\d+"):
            ParquetBulkWriters.for_row_type(wrong)  # type: ignore[arg-type]


def test_settings_of_pyflinks_programs_are_taken() -> None:
    configuration = Configuration()
    configuration.set_string("pipeline.time-characteristic", "EventTime")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.get_config()
    settings = EnvironmentSettings.new_instance().with_configuration(configuration).build()
    t_env = TableEnvironment.create(settings)
    t_env.get_config().set("pipeline.time-characteristic", "ProcessingTime")
    t_env.get_config().set_python_executable(sys.executable)
    assert t_env.get_config().get_python_executable() == sys.executable
    with pytest.raises(NotAvailableError, match=r"set_python_executable\('/no/python'\): .*Start the program"):
        TableConfig.get_default().set_python_executable("/no/python")


def test_a_plan_is_written_to_a_path_and_read_from_it(tmp_path: Path) -> None:
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        t_env.execute_sql("CREATE TABLE numbers (n BIGINT) WITH ('connector'='datagen', 'number-of-rows'='3')")
        t_env.execute_sql("CREATE TABLE nowhere (n BIGINT) WITH ('connector'='blackhole')")
        t_env.compile_plan_sql("INSERT INTO nowhere SELECT n FROM numbers").write_to_file(tmp_path / "plan.json")
        t_env.execute_plan(PlanReference.from_file(tmp_path / "plan.json")).wait()


def test_py4j_does_not_speak_of_its_connections_unless_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    logger, inner = logging.getLogger("py4j"), logging.getLogger("py4j.clientserver")
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    monkeypatch.setattr(logging.getLogger(), "level", logging.INFO)
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    assert inner.isEnabledFor(logging.INFO)
    _quiet_py4j()
    assert not inner.isEnabledFor(logging.INFO) and inner.isEnabledFor(logging.WARNING)
    logger.setLevel(logging.DEBUG)
    _quiet_py4j()
    assert inner.isEnabledFor(logging.DEBUG)
    logger.setLevel(logging.NOTSET)
