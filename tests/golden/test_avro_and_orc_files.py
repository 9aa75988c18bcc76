"""Avro and ORC files: compatible with other writers and readers, readable in any ranges; damage is reported by file
name.
"""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pandas
import pyarrow as pa
import pyarrow.orc as orc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common import Row, Types, WatermarkStrategy
from millstream.connectors.contracts import SourceContext
from millstream.connectors.files.avro_files import AvroParts, AvroRows
from millstream.connectors.files.formats import FileFormat
from millstream.connectors.files.lines import TextLines
from millstream.connectors.files.orc_files import OrcParts, OrcRows
from millstream.connectors.files.parquet_rows import ParquetRows
from millstream.connectors.files.source import FileSource as EngineSource
from millstream.connectors.messages.avro_schemas import AvroSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import BucketAssigner, BulkFormat, FileSink, FileSource
from millstream.datastream.formats.avro import AvroBulkWriters, AvroInputFormat, AvroSchema
from millstream.datastream.formats.csv import CsvBulkWriters, CsvSchema
from millstream.datastream.formats.json import JsonBulkWriters
from millstream.datastream.formats.orc import OrcBulkWriters
from millstream.datastream.formats.parquet import AvroParquetReaders, AvroParquetWriters, ParquetBulkWriters
from millstream.errors import JobFailedError, MillstreamError, NotAvailableError, ProgramError
from millstream.records.batch import Batch
from millstream.testing import Collect, run

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Sale",
        "fields": [
            {"name": "shop", "type": ["null", "string"], "default": None},
            {"name": "cents", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
)
SALES = [
    Row(
        shop=None if n % 5 == 0 else f"s{n}",
        cents=n,
        at=dt.datetime(2026, 3, 1) + dt.timedelta(seconds=n),
        tags=["x"] * (n % 3),
    )
    for n in range(3_000)
]
ROW_TYPE = Types.ROW_NAMED(
    ["shop", "cents", "at", "tags"],
    [Types.STRING(), Types.LONG(), Types.SQL_TIMESTAMP(), Types.LIST(Types.STRING())],
)
FLAT = BucketAssigner.base_path_bucket_assigner()


def collected(source: FileSource, **settings: Any) -> list[Any]:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in").sink_to(out)

    return run(build, **settings)[out]


def written(writers: Any, folder: Path, rows: list[Any], row_type: Any) -> list[Path]:
    def build(env: StreamExecutionEnvironment) -> None:
        sink = FileSink.for_bulk_format(str(folder), writers).with_bucket_assigner(FLAT).build()
        env.from_collection(rows, row_type).sink_to(sink).uid("out")

    run(build, epoch_records=800)
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def avro_bytes(records: list[dict[str, Any]], schema: str = SCHEMA, **settings: Any) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, fastavro.parse_schema(json.loads(schema)), records, **settings)
    return file.getvalue()


def test_avro_files_are_written_and_read_by_pyflinks_names(tmp_path: Path) -> None:
    schema = AvroSchema.parse_string(SCHEMA)
    files = written(AvroBulkWriters.for_generic_record(schema), tmp_path / "out", SALES, schema.get_row_type())
    assert len(files) == 4 and all(file.suffix == ".avro" for file in files)
    theirs = [record for file in files for record in fastavro.reader(io.BytesIO(file.read_bytes()))]
    assert sorted(record["cents"] for record in theirs) == list(range(3_000))
    source = FileSource.for_bulk_file_format(BulkFormat.avro_format(schema), str(tmp_path / "out")).build()
    assert sorted(collected(source, epoch_records=500), key=lambda row: row.cents) == SALES
    out = Collect()
    result = run(lambda env: env.create_input(AvroInputFormat(str(tmp_path / "out"), schema)).sink_to(out))
    assert sorted(result[out], key=lambda row: row.cents) == SALES


def test_orc_files_are_written_and_read(tmp_path: Path) -> None:
    files = written(OrcBulkWriters.for_row_type(ROW_TYPE), tmp_path / "out", SALES, ROW_TYPE)
    frames = [pandas.read_orc(file) for file in files]
    assert sorted(pandas.concat(frames).cents) == list(range(3_000))
    source = FileSource.for_bulk_file_format(BulkFormat.orc_format(ROW_TYPE), str(tmp_path / "out")).build()
    assert sorted(collected(source, epoch_records=500), key=lambda row: row.cents) == SALES


def test_parquet_with_an_avro_schema_is_written_and_read(tmp_path: Path) -> None:
    schema = AvroSchema.parse_string(SCHEMA)
    written(AvroParquetWriters.for_generic_record(schema), tmp_path / "out", SALES[:9], schema.get_row_type())
    source = FileSource.for_record_stream_format(AvroParquetReaders.for_generic_record(schema), str(tmp_path / "out"))
    assert collected(source.build()) == SALES[:9]


def test_avro_of_an_older_schema_is_read_by_the_newer_one(tmp_path: Path) -> None:
    old = '{"type": "record", "name": "Sale", "fields": [{"name": "cents", "type": "int"}]}'
    new = json.dumps(
        {
            "type": "record",
            "name": "Sale",
            "fields": [{"name": "cents", "type": "long"}, {"name": "shop", "type": "string", "default": "?"}],
        }
    )
    (tmp_path / "a.avro").write_bytes(avro_bytes([{"cents": 1}], old))
    source = FileSource.for_bulk_file_format(BulkFormat.avro_format(new), str(tmp_path)).build()
    assert collected(source) == [Row(cents=1, shop="?")]
    other = '{"type": "record", "name": "Sale", "fields": [{"name": "missing", "type": "string"}]}'
    with pytest.raises(MillstreamError, match=r"a\.avro"):
        collected(FileSource.for_bulk_file_format(BulkFormat.avro_format(other), str(tmp_path)).build())


def pieces(format: FileFormat, path: Path, cuts: list[int]) -> list[Any]:
    """All records, read in ranges that end at `cuts`, each by a fresh reader."""
    source = EngineSource([str(path)], format)
    context = SourceContext(now_ms=0, run_started_ms=0, parallelism=1)
    [split] = source.splits(context)
    offset: Any = split.start
    values: list[Any] = []
    for budget in [*cuts, *[10_000] * 10]:
        stop = source.reach(split, offset, budget, context)
        if source.finished(split, offset):
            break
        reading = source.read(split, offset, stop)
        while True:
            try:
                batch = next(reading)
            except StopIteration as end:
                offset = stop if end.value is None else end.value
                break
            values.extend(
                Batch.of_columns(batch, format.type_info).values() if isinstance(batch, pa.RecordBatch) else batch
            )
    assert source.finished(split, offset)
    return values


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[FileFormat, Path]]:
    folder = tmp_path_factory.mktemp("ranges")
    records = [
        {"shop": sale.shop, "cents": sale.cents, "at": sale.at.replace(tzinfo=dt.UTC), "tags": sale.tags}
        for sale in SALES
    ]
    (folder / "a.avro").write_bytes(avro_bytes(records, sync_interval=900, codec="deflate"))
    (folder / "b.avro.gz").write_bytes(gzip.compress(avro_bytes(records, sync_interval=900)))
    table = pa.Table.from_pylist([sale.as_dict() for sale in SALES])
    with orc.ORCWriter(str(folder / "a.orc"), stripe_size=4_000, batch_size=64, compression="uncompressed") as writer:
        for at in range(0, 3_000, 100):
            writer.write(table.slice(at, 100))
    pa.parquet.write_table(table, folder / "a.parquet", row_group_size=400)
    avro = AvroRows(AvroSource(SCHEMA))
    return {
        "avro": (avro, folder / "a.avro"),
        "packed avro": (avro, folder / "b.avro.gz"),
        "orc": (OrcRows(ROW_TYPE), folder / "a.orc"),
        "parquet": (ParquetRows(ROW_TYPE), folder / "a.parquet"),
    }


@pytest.mark.parametrize("kind", ["avro", "packed avro", "orc", "parquet"])
@given(cuts=st.lists(st.integers(1, 1_500), max_size=6))
def test_any_ranges_read_every_record_once_and_in_order(
    files: dict[str, tuple[FileFormat, Path]], kind: str, cuts: list[int]
) -> None:
    assert pieces(*files[kind], cuts) == SALES


@pytest.mark.parametrize("kind", ["avro", "orc"])
def test_a_truncated_or_invalid_file_is_reported_by_name(
    files: dict[str, tuple[FileFormat, Path]], kind: str, tmp_path: Path
) -> None:
    format, path = files[kind]
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], b"nothing of the kind" * 10, data[:20]):
        file = tmp_path / "x" / path.name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(damaged)
        with pytest.raises(JobFailedError, match=rf"{path.name} is not complete"):
            pieces(format, file, [])


def test_chunks_of_several_epochs_become_one_file() -> None:
    for parts, read in (
        (AvroParts(AvroSource(SCHEMA)), lambda data: [r["cents"] for r in fastavro.reader(io.BytesIO(data))]),
        (OrcParts(ROW_TYPE), lambda data: orc.ORCFile(io.BytesIO(data)).read()["cents"].to_pylist()),
    ):
        chunks = []
        for start in (0, 10, 25):
            encoder = parts.encoder()
            encoder.add(Batch.of_values(SALES[start : start + 10], ROW_TYPE))
            assert encoder.size_bytes() > 0
            chunks.append(encoder.finish())
        assert read(parts.assemble(chunks)) == [*range(20), *range(25, 35)]
        assert parts.assemble(chunks) == parts.assemble(chunks)


def test_values_unsupported_by_orc_or_avro_are_rejected(tmp_path: Path) -> None:
    clock = Types.ROW_NAMED(["at"], [Types.SQL_TIME()])
    with pytest.raises(MillstreamError, match="ORC file cannot hold"):
        written(OrcBulkWriters.for_row_type(clock), tmp_path / "t", [Row(dt.time(1))], clock)
    with pytest.raises(MillstreamError, match="does not fit the Avro schema"):
        written(
            AvroBulkWriters.for_generic_record(AvroSchema.parse_string(SCHEMA)),
            tmp_path / "a",
            [Row("s", None, dt.datetime(2026, 1, 1), [])],
            ROW_TYPE,
        )
    with pytest.raises(NotAvailableError, match=r"orc\.bloom"):
        OrcBulkWriters.for_row_type(clock, {"orc.bloom.filter.columns": "at"})
    with pytest.raises(ProgramError, match="expected an AvroSchema"):
        AvroBulkWriters.for_generic_record(SCHEMA)  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="expected an AvroInputFormat"):
        StreamExecutionEnvironment().create_input(object())  # type: ignore[arg-type]


def test_decimals_and_dates_survive_orc(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["amount", "day"], [Types.BIG_DEC(), Types.SQL_DATE()])
    rows = [Row(amount=Decimal("1.500000000000000001"), day=dt.date(1600, 2, 29)), Row(amount=None, day=None)]
    written(OrcBulkWriters.for_row_type(row_type), tmp_path / "out", rows, row_type)
    assert (
        collected(FileSource.for_bulk_file_format(BulkFormat.orc_format(row_type), str(tmp_path / "out")).build())
        == rows
    )


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
    "lz4": lambda data: _through_arrow(data, "lz4"),
    "deflate": zlib.compress,
}


def _through_arrow(data: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("ending", PACKERS)
def test_compressed_lines_are_read_in_any_ranges_also_from_concatenated_streams(tmp_path: Path, ending: str) -> None:
    lines = [f"line {n} {'x' * (n % 90)}" for n in range(5_000)]
    text = "\n".join(lines).encode()
    (tmp_path / f"a.{ending}").write_bytes(PACKERS[ending](text[:100_001]) + PACKERS[ending](text[100_001:]))
    assert pieces(TextLines(), tmp_path / f"a.{ending}", [7, 1_000, 1]) == lines


@pytest.mark.parametrize("ending", PACKERS)
def test_a_truncated_compressed_file_is_reported_by_name(tmp_path: Path, ending: str) -> None:
    data = PACKERS[ending](b"".join(b"%d\n" % (n * 7919) for n in range(50_000)))
    (tmp_path / f"a.{ending}").write_bytes(data[: len(data) - 20])
    with pytest.raises(JobFailedError, match=rf"a\.{ending} is not complete"):
        pieces(TextLines(), tmp_path / f"a.{ending}", [])


def test_duckdb_reads_what_we_write(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["shop", "cents"], [Types.STRING(), Types.LONG()])
    rows = [Row(shop=f"s{n % 3}, x", cents=n) for n in range(2_000)]
    schema = CsvSchema.builder().add_string_column("shop").add_number_column("cents").set_use_header().build()
    for folder, writers in (
        ("parquet", ParquetBulkWriters.for_row_type(row_type)),
        ("json", JsonBulkWriters.for_lines()),
        ("csv", CsvBulkWriters.for_schema(schema)),
    ):
        written(writers, tmp_path / folder, rows, row_type)
        table = f"'{tmp_path / folder}/*.{folder}'"
        found = duckdb.sql(f"SELECT shop, sum(cents) FROM {table} GROUP BY shop ORDER BY shop").fetchall()
        assert found == [(f"s{k}, x", sum(range(k, 2_000, 3))) for k in range(3)], folder
