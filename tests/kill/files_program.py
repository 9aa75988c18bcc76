"""The job that the kill tests of files kill: objects of a bucket → parse → objects as text, as compacted Parquet, and a
Delta table.

    python files_program.py STORE BUCKET

It prints its phases as `program.py` does, and knows nothing of being killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from phases import phase, tell_epochs

from millstream.common import Configuration, Encoder, Row, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.delta import DeltaSink
from millstream.datastream.connectors.file_system import (
    BucketAssigner,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    FileSource,
    RollingPolicy,
    StreamFormat,
)
from millstream.datastream.formats.parquet import ParquetBulkWriters
from millstream.spark.session import make_session

FILES = 9
LINES = 200
EPOCH_RECORDS = 200
SALE = Types.ROW_NAMED(["shop", "id", "cents"], [Types.STRING(), Types.LONG(), Types.LONG()])


def line(number: int) -> str:
    return f"{number},shop-{number * 7919 % 3},{number * 31 % 1000}"


def parse(text: str) -> Row:
    number, shop, cents = text.split(",")
    return Row(shop, int(number), int(cents))


def build(env: StreamExecutionEnvironment, bucket: str) -> None:
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), f"{bucket}/in").build()
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").uid("lines").rebalance()
    flat = BucketAssigner.base_path_bucket_assigner()
    text = FileSink.for_row_format(f"{bucket}/text", Encoder.simple_string_encoder()).with_bucket_assigner(flat)
    text = text.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
    lines.map(str.upper, Types.STRING()).sink_to(text.build()).uid("text")
    sales = lines.map(parse, SALE)
    by_shop = BucketAssigner.python_bucket_assigner(lambda sale: f"shop={sale[0]}")
    bulk = FileSink.for_bulk_format(f"{bucket}/parquet", ParquetBulkWriters.for_row_type(SALE))
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).build()
    bulk = bulk.with_bucket_assigner(by_shop).enable_compact(strategy, FileCompactor.concat_file_compactor())
    sales.sink_to(bulk.build()).uid("parquet")
    table = DeltaSink.for_row_type(f"{bucket}/delta", SALE).with_partition_columns("shop")
    sales.map(lambda sale: sale, SALE).sink_to(table.build()).uid("delta")


def main(store: str, bucket: str) -> None:
    phase("imported")
    session = make_session("local[2]", {"spark.local.dir": str(Path(store).parent / "spark")})
    phase("session")
    env = StreamExecutionEnvironment.get_execution_environment().use_spark_session(session)
    env.set_parallelism(2).set_store(store)
    env.configure(Configuration().set_integer("millstream.epoch.max-records", EPOCH_RECORDS))
    build(env, bucket)
    job = env._launch("killed-files")
    tell_epochs(job.board)
    job.result()
    phase("finished")
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
