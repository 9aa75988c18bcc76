"""Impressions per ad and hour, of a million ads, readable at any moment while the hours are still open.

    millstream run examples/impressions/hourly.py --store jobs/hourly -- --output jobs/hourly-output

Then open http://127.0.0.1:8787 and type the numbers of some ads. The job serves the queries itself, from its newest
committed epoch: there is no separate database, and nothing is written for readers. Kill it and run the same line again:
the page reports the lost connection, reconnects when the job is back, and no count has decreased.

An hour passes in a minute here. Past hours are written to files, each ad and hour once.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from millstream.common import Configuration, Duration, Types, WatermarkStrategy
from millstream.connectors.contracts import Split
from millstream.connectors.program_sources import DataGeneratorSource
from millstream.datastream import DataStream, StreamExecutionEnvironment, WindowedStream
from millstream.datastream import aggregates as agg
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink, OutputFileConfig
from millstream.datastream.formats.parquet import ParquetBulkWriters
from millstream.datastream.window import TumblingEventTimeWindows

ADS, PER_SECOND, SPEED, FIRST_MS = 1_000_000, 100_000.0, 60, 1_767_258_000_000
HOUR = Duration.of_hours(1)
# An impression arrives up to two minutes after it was seen. An hour is closed five minutes after its end, so that for
# as long two of them are open.
DELAY_MS_MAX, PATIENCE = 120_000, Duration.of_minutes(5)
IMPRESSION = Types.ROW_NAMED(["ad", "at_ms", "seen_ms"], [Types.LONG(), Types.LONG(), Types.LONG()])
HOURLY = Types.ROW_NAMED(
    ["ad", "window_start", "window_end", "impressions", "seen_ms"],
    [Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG()],
)
# The state's name, which the page and other clients query.
NAME = "impressions"
PAGE = Path(__file__).resolve().parent / "page.html"
SPLITS, BATCH = 16, 65_536


@dataclass(frozen=True)
class AdServer:
    """Generates impressions in batches, as functions of their indexes alone, so that the stream can be read again.

    Ads with small numbers are seen often, and the last of them a few times an hour.
    """

    ads: int = ADS
    per_second: float = PER_SECOND
    first_ms: int = FIRST_MS

    def __call__(self, index: np.ndarray) -> pa.RecordBatch:
        dice = _scattered(index)
        ad = ((dice >> np.uint64(24)) / 2.0**40) ** 3 * self.ads
        delay_ms = dice % np.uint64(DELAY_MS_MAX)
        at_ms = self.first_ms + index * (SPEED * 1_000 / self.per_second) - delay_ms
        seen_ms = (dice >> np.uint64(8)) % np.uint64(3_000)
        columns = [pa.array(column.astype(np.int64)) for column in (ad, at_ms, seen_ms)]
        return pa.RecordBatch.from_arrays(columns, IMPRESSION.get_field_names())


def _scattered(index: np.ndarray) -> np.ndarray:
    """Pseudo-random numbers below 2^64, always the same (splitmix64)."""
    mixed = index.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)


class Impressions(DataGeneratorSource):
    """Millstream's generator creates records one by one. This one creates columns of them."""

    def read(self, split: Split, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for at in range(start, stop, BATCH):
            yield self.generator_function(np.arange(at, min(stop, at + BATCH)) * SPLITS + split.info)


def impressions(env: StreamExecutionEnvironment, server: AdServer, records: int | None, paced: bool) -> DataStream:
    """The stream of them, with timestamps: `records` or without end, as fast as the server sends or as we can."""
    total = None if records is None else max(records, SPLITS)
    source = Impressions(server, total, server.per_second if paced else None, IMPRESSION, SPLITS)
    in_time = WatermarkStrategy.for_bounded_out_of_orderness(PATIENCE).with_timestamp_assigner("at_ms")
    return env.from_source(source, in_time, "impressions")


def hours_of(seen: DataStream) -> WindowedStream:
    return seen.key_by("ad").window(TumblingEventTimeWindows.of(HOUR))


def summed_up(hours: WindowedStream) -> DataStream:
    """How often and how long each ad was seen in every hour, emitted at the hour's end."""
    sums = hours.aggregate(agg.Aggregates(impressions=agg.count(), seen_ms=agg.sum("seen_ms")))
    return sums.name("hours per ad").uid("hours-per-ad")


def hours_in(folder: str) -> FileSink:
    files = FileSink.for_bulk_format(folder, ParquetBulkWriters.for_row_type(HOURLY))
    named = OutputFileConfig.builder().with_part_suffix(".parquet").build()
    flat = BucketAssigner.base_path_bucket_assigner()
    return files.with_bucket_assigner(flat).with_output_file_config(named).build()


def settings(listen: str) -> Configuration:
    """Serve queries and the page; two epochs a second, with half a minute of them retained."""
    chosen = Configuration()
    chosen.set_string("millstream.query.listen", listen)
    chosen.set_string("millstream.query.page", str(PAGE))
    chosen.set_string("millstream.epoch.min-interval", "500 ms")
    chosen.set_string("millstream.retention.epochs", "60")
    return chosen


def program(seen: DataStream, output: str) -> None:
    # This name alone makes the open hours queryable.
    hours = hours_of(seen).queryable(NAME)
    summed_up(hours).sink_to(hours_in(output)).name("hours")


def main(output: str, listen: str, ads: int, rate: float, records: int | None) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(settings(listen))
    program(impressions(env, AdServer(ads, rate), records, paced=True), output)
    env.execute("hourly")


def arguments(text: str | None) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--output", required=True, help="folder for the hours that are over")
    options.add_argument("--ads", type=int, default=ADS, help="how many ads there are (default %(default)s)")
    options.add_argument("--rate", type=float, default=PER_SECOND, help="impressions per second (default %(default)s)")
    options.add_argument("--records", type=int, help="how many impressions (default: without end)")
    return options


if __name__ == "__main__":
    options = arguments(__doc__)
    options.add_argument("--listen", default="127.0.0.1:8787", help="where queries are answered (default %(default)s)")
    main(**vars(options.parse_args()))
