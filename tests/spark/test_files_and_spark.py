"""Spark reads the files that we write, and we read the files that Spark writes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

from millstream.common import Row, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import BucketAssigner, BulkFormat, FileSink, FileSource, StreamFormat
from millstream.datastream.formats.csv import CsvBulkWriters, CsvSchema
from millstream.datastream.formats.json import JsonBulkWriters
from millstream.datastream.formats.orc import OrcBulkWriters
from millstream.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from millstream.testing import Collect, run

SALE = Types.ROW_NAMED(
    ["shop", "cents", "day", "price"], [Types.STRING(), Types.LONG(), Types.SQL_DATE(), Types.BIG_DEC()]
)
ROWS = [
    Row(shop="north, left", cents=1, day=dt.date(2026, 3, 1), price=Decimal("1.5")),
    Row(shop='"river"', cents=None, day=dt.date(1969, 12, 31), price=None),
]


def write(folder: Path, writers: Any, rows: list[Row], row_type: Any) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        sink = FileSink.for_bulk_format(str(folder), writers)
        sink = sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        env.from_collection(rows, row_type).sink_to(sink.build()).uid("out")

    run(build)


def read(source: FileSource) -> list[Any]:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in").sink_to(out)

    return run(build)[out]


def test_spark_reads_what_we_write(spark: Any, tmp_path: Path) -> None:
    session = spark
    write(tmp_path / "parquet", ParquetBulkWriters.for_row_type(SALE), ROWS, SALE)
    write(tmp_path / "orc", OrcBulkWriters.for_row_type(SALE), ROWS, SALE)
    for kind in ("parquet", "orc"):
        found = session.read.format(kind).load(str(tmp_path / kind)).orderBy("day", ascending=False).collect()
        assert [(row.shop, row.cents, row.day) for row in found] == [(row.shop, row.cents, row.day) for row in ROWS], (
            kind
        )
        assert [row.price for row in found] == [Decimal("1.5"), None]
    plain = Types.ROW_NAMED(["shop", "cents"], [Types.STRING(), Types.LONG()])
    pairs = [Row(shop=row.shop, cents=row.cents) for row in ROWS]
    write(tmp_path / "json", JsonBulkWriters.for_lines(), pairs, plain)
    found = session.read.json(str(tmp_path / "json")).orderBy("cents", ascending=False).collect()
    assert [(row.shop, row.cents) for row in found] == [(row.shop, row.cents) for row in ROWS]
    schema = CsvSchema.builder().add_string_column("shop").add_number_column("cents").set_use_header().build()
    write(tmp_path / "csv", CsvBulkWriters.for_schema(schema), pairs, plain)
    options = {"header": True, "escape": '"', "inferSchema": True}
    found = session.read.options(**options).csv(str(tmp_path / "csv")).orderBy("cents", ascending=False).collect()
    assert [(row.shop, row.cents) for row in found] == [(row.shop, row.cents) for row in ROWS]


def test_we_read_what_spark_writes(spark: Any, tmp_path: Path) -> None:
    rows = [(row.shop, row.cents, row.day, row.price) for row in ROWS]
    frame = spark.createDataFrame(rows, "shop string, cents bigint, day date, price decimal(38,18)")
    frame.write.parquet(str(tmp_path / "parquet"))
    frame.write.orc(str(tmp_path / "orc"))
    frame.select("shop").write.option("compression", "bzip2").text(str(tmp_path / "text"))
    formats = {"parquet": ParquetColumnarRowInputFormat(SALE), "orc": BulkFormat.orc_format(SALE)}
    for kind, format in formats.items():
        found = read(FileSource.for_bulk_file_format(format, str(tmp_path / kind)).build())
        assert sorted(found, key=lambda row: row.day, reverse=True) == ROWS, kind
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path / "text")).build()
    assert sorted(read(lines)) == sorted(row.shop for row in ROWS)
