"""Files on a real S3 (MinIO): read in ranges, published atomically, rejected if they changed; errors name the
object.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from s3_buckets import Bucket, service_environment
from servers.minio import MinioServer
from servers.tcp_proxy import TcpProxy

from millstream.common import Duration, Encoder, RestartStrategies, Row, Types, WatermarkStrategy
from millstream.connectors.contracts import SourceContext, Split
from millstream.connectors.files import places
from millstream.connectors.files.lines import TextLines
from millstream.connectors.files.source import FileSource as EngineSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.delta import DeltaSink
from millstream.datastream.connectors.file_system import (
    BucketAssigner,
    BulkFormat,
    FileSink,
    FileSource,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)
from millstream.datastream.formats.avro import AvroBulkWriters, AvroSchema
from millstream.datastream.formats.json import JsonBulkWriters
from millstream.datastream.formats.orc import OrcBulkWriters
from millstream.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from millstream.errors import JobFailedError, MillstreamError, StoreError
from millstream.testing import CRASH, Collect, Script, run

SALE = Types.ROW_NAMED(["shop", "cents"], [Types.STRING(), Types.LONG()])
FLAT = BucketAssigner.base_path_bucket_assigner()


def lines_of(url: str) -> FileSource:
    return FileSource.for_record_stream_format(StreamFormat.text_line_format(), url).build()


def read_all(source: FileSource, **settings: Any) -> list[Any]:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in").sink_to(out)

    return run(build, **settings)[out]


def text_sink(url: str) -> Any:
    return FileSink.for_row_format(url, Encoder.simple_string_encoder()).with_bucket_assigner(FLAT)


def test_lines_are_copied_from_objects_to_objects_over_many_epochs(bucket: Bucket) -> None:
    bucket.put("in/a.txt", b"".join(b"a %d\n" % n for n in range(5_000)))
    bucket.put("in/deep er/\xc3\xa4 b.txt".encode("latin1").decode("utf-8"), b"b 1\nb 2")
    bucket.put("in/_hidden/c.txt", b"no\n")
    bucket.put("in/.d.txt", b"no\n")
    bucket.put("in/folder/", b"")
    bucket.put("inside/e.txt", b"no\n")

    def program(env: StreamExecutionEnvironment) -> None:
        lines = env.from_source(lines_of(f"{bucket.url}/in"), WatermarkStrategy.no_watermarks(), "in").uid("in")
        lines.map(str.upper, Types.STRING()).sink_to(text_sink(f"{bucket.url}/out").build()).uid("out")

    run(program, parallelism=2, epoch_records=700)
    assert sorted(bucket.lines("out/")) == sorted([f"A {n}" for n in range(5_000)] + ["B 1", "B 2"])
    assert not [key for key in bucket.keys("out/") if ".millstream-staging" in key], "nothing staged is left"


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


@pytest.mark.parametrize("ending", PACKERS)
def test_compressed_objects_are_decompressed_while_reading(bucket: Bucket, ending: str) -> None:
    texts = [f"line {n} {'x' * (n % 50)}" for n in range(4_000)]
    bucket.put(f"in/a.txt.{ending}", PACKERS[ending]("\n".join(texts).encode()))
    assert read_all(lines_of(f"{bucket.url}/in"), epoch_records=600) == texts


def test_a_path_may_be_a_single_object_even_if_hidden(bucket: Bucket) -> None:
    bucket.put("in/_one.txt", b"yes\n")
    bucket.put("in/_one.txt.bak", b"no\n")
    assert read_all(lines_of(f"{bucket.url}/in/_one.txt")) == ["yes"]


def test_a_large_object_is_read_in_splits_by_ranges(bucket: Bucket) -> None:
    texts = [f"{n:09d}" for n in range(20_000)]
    bucket.put("in/a.txt", "\n".join(texts).encode())
    source = EngineSource([f"{bucket.url}/in"], TextLines(), split_bytes_max=30_000)
    context = SourceContext(now_ms=0, run_started_ms=0, parallelism=4)
    found: list[str] = []
    splits = list(source.splits(context))
    assert len(splits) == 7
    task_source = pickle.loads(pickle.dumps(source))
    for split in splits:
        for block in task_source.read(split, split.start, split.info["end"]):
            found.extend(block)
    assert found == texts


def test_a_replaced_object_is_rejected_by_name(bucket: Bucket) -> None:
    bucket.put("in/a.txt", b"one\ntwo\n")
    source = EngineSource([f"{bucket.url}/in"], TextLines())
    [split] = source.splits(SourceContext(now_ms=0, run_started_ms=0, parallelism=1))
    bucket.put("in/a.txt", b"one\nTWO\n")
    with pytest.raises(JobFailedError, match=r"in/a\.txt has changed since it was first listed"):
        list(source.read(split, 0, 8))
    bucket.client.delete_object(Bucket=bucket.name, Key="in/a.txt")
    with pytest.raises(JobFailedError, match=r"in/a\.txt no longer exists"):
        list(source.read(split, 0, 8))


def test_an_unquoted_etag_in_the_listing_is_the_same_etag(bucket: Bucket) -> None:
    bucket.put("in/a.txt", b"one\ntwo\n")
    source = EngineSource([f"{bucket.url}/in"], TextLines())
    [split] = source.splits(SourceContext(now_ms=0, run_started_ms=0, parallelism=1))
    bare = Split(split.name, 0, {**split.info, "mark": split.info["mark"].strip('"')})
    assert list(source.read(bare, 0, 8)) == [["one", "two"]]
    bucket.put("in/a.txt", b"one\nTWO\n")
    with pytest.raises(JobFailedError, match=r"in/a\.txt has changed since it was first listed"):
        list(source.read(bare, 0, 8))


def test_a_monitored_bucket_emits_new_objects_once_also_after_a_restart(bucket: Bucket, unique_name: str) -> None:
    bucket.put("in/a.txt", b"a\n")

    def build(env: StreamExecutionEnvironment) -> None:
        lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), f"{bucket.url}/in")
        source = lines.monitor_continuously(Duration.of_millis(1)).build()
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in")
        sink = text_sink(f"{bucket.url}/out").with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        stream.sink_to(sink.build()).uid("out")

    run(build, epochs=1, store=unique_name)
    assert bucket.lines("out/") == ["a"]
    bucket.put("in/b/c.txt", b"c\n")
    run(build, epochs=3, store=unique_name)  # the first run ended with its second epoch
    assert sorted(bucket.lines("out/")) == ["a", "c"]


def test_objects_are_exchanged_with_other_readers_and_writers(bucket: Bucket) -> None:
    rows = [Row(shop=f"s{n % 3}", cents=n) for n in range(1_000)]

    def write(env: StreamExecutionEnvironment) -> None:
        stream = env.from_collection(rows, SALE)
        for folder, writers in (
            ("parquet", ParquetBulkWriters.for_row_type(SALE)),
            ("json", JsonBulkWriters.for_lines()),
        ):
            sink = FileSink.for_bulk_format(f"{bucket.url}/{folder}", writers).with_bucket_assigner(FLAT).build()
            stream.sink_to(sink).uid(folder)

    run(write, epoch_records=300)
    frames = [pandas.read_parquet(io.BytesIO(bucket.get(key))) for key in bucket.keys("parquet/")]
    assert sorted(pandas.concat(frames).cents) == list(range(1_000))
    assert sorted(json.loads(line)["cents"] for line in bucket.lines("json/")) == list(range(1_000))

    buffer = io.BytesIO()
    pq.write_table(pa.table({"more": [1.5, 2.5], "cents": [7, 8], "shop": ["x", "y"]}), buffer)
    bucket.put("theirs/day=1/x.parquet", buffer.getvalue())
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(SALE), f"{bucket.url}/theirs").build()
    assert read_all(source) == [Row(shop="x", cents=7), Row(shop="y", cents=8)]


def test_avro_and_orc_objects_round_trip(bucket: Bucket) -> None:
    rows = [Row(shop=f"s{n % 3}", cents=n) for n in range(2_000)]
    fields = [{"name": "shop", "type": "string"}, {"name": "cents", "type": "long"}]
    schema = AvroSchema.parse_string(json.dumps({"type": "record", "name": "Sale", "fields": fields}))

    def write(env: StreamExecutionEnvironment) -> None:
        stream = env.from_collection(rows, SALE)
        for folder, writers in (
            ("avro", AvroBulkWriters.for_generic_record(schema)),
            ("orc", OrcBulkWriters.for_row_type(SALE)),
        ):
            sink = FileSink.for_bulk_format(f"{bucket.url}/{folder}", writers).with_bucket_assigner(FLAT).build()
            stream.sink_to(sink).uid(folder)

    run(write, epoch_records=700)
    for folder, format in (("avro", BulkFormat.avro_format(schema)), ("orc", BulkFormat.orc_format(SALE))):
        source = FileSource.for_bulk_file_format(format, f"{bucket.url}/{folder}").build()
        assert sorted(read_all(source, epoch_records=300), key=lambda row: row.cents) == rows, folder


def test_parts_of_several_epochs_and_buckets_are_published_once_through_crashes(bucket: Bucket) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.add_source(Script(["a 1", "b 2", CRASH, "a 3", "c 4", CRASH, "a 5"])).map(str, Types.STRING())
        sink = FileSink.for_row_format(f"{bucket.url}/out", Encoder.simple_string_encoder())
        sink = sink.with_bucket_assigner(BucketAssigner.python_bucket_assigner(lambda line: f"by={line[0]}"))
        config = OutputFileConfig.builder().with_part_prefix("log").with_part_suffix(".txt").build()
        stream.sink_to(sink.with_output_file_config(config).build()).uid("out")

    run(build, parallelism=2)
    assert sorted(bucket.lines("out/")) == ["a 1", "a 3", "a 5", "b 2", "c 4"]
    assert sorted({key.split("/")[1] for key in bucket.keys("out/")}) == ["by=a", "by=b", "by=c"]


def test_a_missing_bucket_is_reported_at_the_start(bucket: Bucket) -> None:
    with pytest.raises(MillstreamError, match="no-such-bucket-here") as refusal:
        read_all(lines_of("s3://no-such-bucket-here/in"))
    assert "FileSource" in str(refusal.value)
    with pytest.raises(StoreError, match="FileSink cannot write to s3://no-such-bucket-here/out"):
        run(
            lambda env: env.from_collection(["a"], Types.STRING()).sink_to(
                text_sink("s3://no-such-bucket-here/out").build()
            )
        )


def test_an_empty_folder_is_an_error_unless_it_is_monitored(bucket: Bucket) -> None:
    with pytest.raises(MillstreamError, match="there is no object at "):
        read_all(lines_of(f"{bucket.url}/logs"))
    bucket.put("logs/a.txt", b"a\n")
    assert read_all(lines_of(f"{bucket.url}/logs")) == ["a"]
    watched = EngineSource([f"{bucket.url}/to-come"], TextLines(), discovery_interval_ms=0)
    context = SourceContext(now_ms=0, run_started_ms=0, parallelism=1)
    assert list(watched.splits(context)) == []
    bucket.put("to-come/a.txt", b"a\n")
    assert len(list(watched.splits(context))) == 1


def test_wrong_credentials_are_reported_without_being_shown(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("in/a.txt", b"a\n")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret-at-all")
    with pytest.raises(MillstreamError, match=bucket.name) as refusal:
        read_all(lines_of(f"{bucket.url}/in"))
    assert "not-the-secret-at-all" not in str(refusal.value)


def test_an_address_with_credentials_is_rejected_without_showing_them() -> None:
    with pytest.raises(MillstreamError, match="environment") as refusal:
        lines_of("s3://key:secret@bucket/in")
    assert "secret@" not in str(refusal.value)


def test_the_program_of_the_page_copies_objects(bucket: Bucket) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "connectors" / "files.md"
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, page.name, "exec"), names)
    bucket.put("logs/a.txt", b"one\ntwo\n")
    run(lambda env: names["copy_objects"](env, bucket.name))
    assert bucket.lines("copies/") == ["one", "two"]


def through(minio_server: MinioServer, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Routes this process to the server through the proxy."""
    places._backend.cache_clear()
    for key, value in service_environment(minio_server, minio_server.url_at(proxy.port)).items():
        monkeypatch.setenv(key, value)


def test_a_temporary_outage_of_the_service_is_waited_for_without_loss(
    bucket: Bucket, minio_server: MinioServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{n:05d}" for n in range(4_000)]
    for file in range(8):
        bucket.put(f"in/{file}.txt", "\n".join(texts[file::8]).encode())

    def program(env: StreamExecutionEnvironment) -> None:
        lines = env.from_source(lines_of(f"{bucket.url}/in"), WatermarkStrategy.no_watermarks(), "in").uid("in")
        sink = text_sink(f"{bucket.url}/out").with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        lines.sink_to(sink.build()).uid("out")
        rows = lines.map(lambda text: Row(shop="s", cents=int(text)), SALE)
        rows.sink_to(DeltaSink.for_row_type(f"{bucket.url}/delta", SALE).build()).uid("delta")

    with minio_server.proxy() as proxy:
        through(minio_server, proxy, monkeypatch)
        done = threading.Event()

        def trouble() -> None:
            for _ in range(3):
                before = len(bucket.keys("out/"))
                while len(bucket.keys("out/")) == before and not done.wait(0.05):
                    pass
                proxy.cut()
                done.wait(0.7)
                proxy.mend()

        thread = threading.Thread(target=trouble)
        thread.start()
        try:
            restart = RestartStrategies.fixed_delay_restart(100, 100)
            run(program, parallelism=2, epoch_records=60, restart=restart, timeout_s=240)
        finally:
            done.set()
            thread.join()
    assert sorted(bucket.lines("out/")) == texts
    monkeypatch.setenv("AWS_ENDPOINT_URL", minio_server.url)
    monkeypatch.setenv("AWS_ENDPOINT", minio_server.url)
    assert sorted(DeltaTable(f"{bucket.url}/delta").to_pyarrow_table()["cents"].to_pylist()) == list(range(4_000))


@pytest.mark.timeout(180)
def test_a_permanent_outage_of_the_service_is_reported_in_bounded_time(
    bucket: Bucket, minio_server: MinioServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("in/a.txt", b"a\n")
    with minio_server.proxy() as proxy:
        through(minio_server, proxy, monkeypatch)
        proxy.cut()
        with pytest.raises(MillstreamError, match=bucket.name):
            read_all(lines_of(f"{bucket.url}/in"))
