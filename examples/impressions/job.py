"""Ad impressions: parse them, drop the bots, number them per ad in keyed state, write files exactly once.

    millstream run examples/impressions/job.py --store jobs/impressions -- --output jobs/impressions-output

Kill it whenever you like and run the same line again: it goes on where its newest manifest says, and so do the counts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from millstream.common import Duration, Encoder, Row, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink, OutputFileConfig, RollingPolicy
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor

CAMPAIGNS = ("spring-shoes", "city-bikes", "night-trains", "green-tea", "tiny-houses", "old-maps", "blue-jazz")
AGENTS = ("Firefox/150", "Chrome/155", "Safari/26", "crawler-bot/2", "Firefox/149", "Chrome/154", "Edge/155", "Edge/9")
IMPRESSION = Types.ROW_NAMED(
    ["id", "ad", "agent", "seen_ms", "at_ms"],
    [Types.LONG(), Types.INT(), Types.STRING(), Types.INT(), Types.LONG()],
)
RECORDS, PER_SECOND, FIRST_MS, SEED = 80_000, 5_000.0, 1_767_258_000_000, 1
# Most impressions come within a second of being seen. The watermark waits two; one in fifty comes later than that.
USUAL_DELAY_MS, PATIENCE, LATE_ONE_IN, LATE_MS = 1_000, Duration.of_seconds(2), 50, range(4_000, 12_000)


@dataclass(frozen=True)
class AdServer:
    """Sends impressions as JSON text: a function of the index alone, so that the stream can be read again."""

    first_ms: int = FIRST_MS
    per_second: float = PER_SECOND
    seed: int = SEED

    def __call__(self, index: int) -> str:
        dice, delay = _scattered(index, self.seed), self.delay_ms(index)
        event = {
            "id": index,
            "ad": dice % 997,
            "agent": AGENTS[dice // 997 % len(AGENTS)],
            "seen_ms": dice // 7_976 % 3_000,
            "at_ms": self.first_ms + int(index * 1_000 / self.per_second) - delay,
        }
        return json.dumps(event)

    def delay_ms(self, index: int) -> int:
        """How long after it was seen an impression comes here."""
        dice = _scattered(index, self.seed + 1)
        late, rest = dice % LATE_ONE_IN == 0, dice // LATE_ONE_IN
        return LATE_MS[rest % len(LATE_MS)] if late else rest % USUAL_DELAY_MS


def _scattered(index: int, seed: int) -> int:
    """A number below 2^32 that looks like chance, and is always the same."""
    mixed = (index + seed * 0x9E3779B9) * 0x85EBCA6B % 2**32
    return (mixed ^ mixed >> 15) * 0xC2B2AE35 % 2**32


def parse(text: str) -> Row:
    return Row(**json.loads(text))


def is_human(event: Row) -> bool:
    return "bot" not in event.agent


def described(event: Row) -> str:
    return f"{event.id},{event.ad},{CAMPAIGNS[event.ad % len(CAMPAIGNS)]},{event.seen_ms}"


class CountPerAd(KeyedProcessFunction):
    """Numbers the impressions of every ad: 1, 2, 3, … The number is all that is kept of an ad."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.late = runtime_context.get_metrics_group().counter("late")

    def process_element(self, event: Row, ctx: Any) -> Iterator[str]:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        if ctx.timestamp() <= ctx.timer_service().current_watermark():
            self.late.inc()
        yield f"{described(event)},{number}"


def main(output: str, records: int, rate: float, first_ms: int) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    source = DataGeneratorSource(AdServer(first_ms, rate), records, rate, type_info=Types.STRING())
    in_time = WatermarkStrategy.for_bounded_out_of_orderness(PATIENCE).with_timestamp_assigner(
        lambda text, _: json.loads(text)["at_ms"]
    )
    files = (
        FileSink.for_row_format(output, Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .with_output_file_config(OutputFileConfig.builder().with_part_suffix(".csv").build())
        .build()
    )
    (
        env.from_source(source, in_time, "impressions")
        .map(parse, output_type=IMPRESSION)
        .name("parse")
        .filter(is_human)
        .name("drop bots")
        .key_by("ad")
        .process(CountPerAd(), output_type=Types.STRING())
        .name("count per ad")
        .uid("count-per-ad")
        .sink_to(files)
        .name("files")
    )
    env.execute("impressions")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--output", required=True, help="folder for the files")
    options.add_argument("--records", type=int, default=RECORDS, help="how many impressions (default %(default)s)")
    options.add_argument("--rate", type=float, default=PER_SECOND, help="impressions per second (default %(default)s)")
    options.add_argument(
        "--first-ms",
        type=int,
        default=FIRST_MS,
        help="when the first one was seen, ms since 1970 (default %(default)s)",
    )
    main(**vars(options.parse_args()))
