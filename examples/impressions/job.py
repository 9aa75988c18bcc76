"""Ad impressions: parse them, drop the bots, look up the campaign, write files exactly once.

    millstream run examples/impressions/job.py --store jobs/impressions -- --output jobs/impressions-output

Kill it whenever you like and run the same line again: it goes on where its newest manifest says.
"""

from __future__ import annotations

import argparse
import json

from millstream.common import Encoder, Row, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink, OutputFileConfig, RollingPolicy

CAMPAIGNS = ("spring-shoes", "city-bikes", "night-trains", "green-tea", "tiny-houses", "old-maps", "blue-jazz")
AGENTS = ("Firefox/150", "Chrome/155", "Safari/26", "crawler-bot/2", "Firefox/149", "Chrome/154", "Edge/155", "Edge/9")
IMPRESSION = Types.ROW_NAMED(["id", "ad", "agent", "seen_ms"], [Types.LONG(), Types.INT(), Types.STRING(), Types.INT()])


def impression(index: int) -> str:
    """What the ad server sends, as JSON text: a function of the index alone, so that the stream can be read again."""
    dice = index * 2654435761 % 4294967296
    return json.dumps({"id": index, "ad": dice % 997, "agent": AGENTS[dice // 997 % 8], "seen_ms": dice // 7976 % 3000})


def parse(text: str) -> Row:
    event = json.loads(text)
    return Row(id=event["id"], ad=event["ad"], agent=event["agent"], seen_ms=event["seen_ms"])


def is_human(event: Row) -> bool:
    return "bot" not in event.agent


def with_campaign(event: Row) -> str:
    return f"{event.id},{event.ad},{CAMPAIGNS[event.ad % len(CAMPAIGNS)]},{event.seen_ms}"


def main(output: str, records: int, rate: float) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    source = DataGeneratorSource(impression, count=records, rate_per_second=rate, type_info=Types.STRING())
    files = (
        FileSink.for_row_format(output, Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .with_output_file_config(OutputFileConfig.builder().with_part_suffix(".csv").build())
        .build()
    )
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "impressions")
        .map(parse, output_type=IMPRESSION)
        .name("parse")
        .filter(is_human)
        .name("drop bots")
        .key_by(lambda event: event.ad, key_type=Types.INT())
        .map(with_campaign, output_type=Types.STRING())
        .name("add campaign")
        .sink_to(files)
        .name("files")
    )
    env.execute("impressions")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--output", required=True, help="folder for the files")
    options.add_argument("--records", type=int, default=80_000, help="how many impressions (default %(default)s)")
    options.add_argument("--rate", type=float, default=5_000, help="impressions per second (default %(default)s)")
    main(**vars(options.parse_args()))
