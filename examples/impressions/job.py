"""Ad impressions: parse them, drop the bots, number them per ad, sum them up per ad and ten seconds, write files.

    millstream run examples/impressions/job.py --store jobs/impressions -- --output jobs/impressions-output

Kill it at any time and run the same line again: it resumes from its newest manifest, with its counts and open windows.
`numbered/` below the output has every impression with its number, `windows/` the result of every ad and window, again
whenever late impressions have changed it; each line is published exactly once. The screen shows how windows fill, when
they close, and their late impressions.

Run with `-D millstream.query.listen=127.0.0.1:8787`, it answers queries of an ad's open windows:

    curl http://127.0.0.1:8787/v1/jobs/impressions/states/impressions/windows/17
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from millstream.common import Duration, Encoder, Row, Types, WatermarkStrategy
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream import aggregates as agg
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink, OutputFileConfig, RollingPolicy
from millstream.datastream.formats.csv import CsvBulkWriters, CsvSchema
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import MapStateDescriptor, ValueStateDescriptor
from millstream.datastream.window import CumulativeEventTimeWindows, TumblingEventTimeWindows

CAMPAIGNS = ("spring-shoes", "city-bikes", "night-trains", "green-tea", "tiny-houses", "old-maps", "blue-jazz")
AGENTS = ("Firefox/150", "Chrome/155", "Safari/26", "crawler-bot/2", "Firefox/149", "Chrome/154", "Edge/155", "Edge/9")
IMPRESSION = Types.ROW_NAMED(
    ["id", "ad", "agent", "seen_ms", "at_ms"],
    [Types.LONG(), Types.INT(), Types.STRING(), Types.INT(), Types.LONG()],
)
RECORDS, PER_SECOND, FIRST_MS, SEED = 80_000, 5_000.0, 1_767_258_000_000, 1
ADS = 997
# Most impressions arrive within a second of being seen. The watermark delay is two; one in fifty arrives later.
USUAL_DELAY_MS, PATIENCE, LATE_ONE_IN, LATE_MS = 1_000, Duration.of_seconds(2), 50, range(4_000, 12_000)
# A closed window accepts late impressions for five more seconds. Later ones are dropped, and counted.
WINDOW, STEP, ALLOWED_LATENESS_MS = Duration.of_seconds(10), Duration.of_millis(2_500), 5_000
OPEN_WINDOWS = "impressions"
FLAT, CSV = BucketAssigner.base_path_bucket_assigner(), OutputFileConfig.builder().with_part_suffix(".csv").build()
# The impressions of a second were seen in four, so that a short demo has many windows.
SPEED = 4


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
            "ad": dice % ADS,
            "agent": AGENTS[dice // ADS % len(AGENTS)],
            "seen_ms": dice // (ADS * len(AGENTS)) % 3_000,
            "at_ms": self.first_ms + int(index * 1_000 / self.per_second) - delay,
        }
        return json.dumps(event)

    def delay_ms(self, index: int) -> int:
        """The delay between seeing an impression and its arrival."""
        dice = _scattered(index, self.seed + 1)
        late, rest = dice % LATE_ONE_IN == 0, dice // LATE_ONE_IN
        return LATE_MS[rest % len(LATE_MS)] if late else rest % USUAL_DELAY_MS


def _scattered(index: int, seed: int) -> int:
    """A pseudo-random number below 2^32, always the same."""
    mixed = (index + seed * 0x9E3779B9) * 0x85EBCA6B % 2**32
    return (mixed ^ mixed >> 15) * 0xC2B2AE35 % 2**32


def parse(text: str) -> Row:
    return Row(**json.loads(text))


def is_human(event: Row) -> bool:
    return "bot" not in event.agent


def described(event: Row) -> str:
    return f"{event.id},{event.ad},{CAMPAIGNS[event.ad % len(CAMPAIGNS)]},{event.seen_ms}"


class CountPerAd(KeyedProcessFunction):
    """Numbers the impressions of every ad: 1, 2, 3, … The number is the only state of an ad."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, event: Row, ctx: Any) -> Iterator[str]:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield f"{described(event)},{number}"


class Closed(KeyedProcessFunction):
    """From the results of all ads in a window: a line when it has closed, and one when it becomes final.

    A result is late if the watermark had passed the window's end before it arrived: then it is an update.
    """

    def open(self, runtime_context: Any) -> None:
        self.impressions = runtime_context.get_map_state(MapStateDescriptor("impressions", Types.INT(), Types.LONG()))
        self.updates = runtime_context.get_state(ValueStateDescriptor("updates", Types.LONG()))
        self.late = runtime_context.get_state(ValueStateDescriptor("late", Types.LONG()))

    def process_element(self, result: Row, ctx: Any) -> None:
        timers, closes_ms = ctx.timer_service(), result.window_end - 1
        if closes_ms <= timers.current_watermark():
            known = self.impressions.get(result.ad) or 0
            self.updates.update((self.updates.value() or 0) + 1)
            self.late.update((self.late.value() or 0) + result.impressions - known)
        else:
            timers.register_event_time_timer(closes_ms)
        timers.register_event_time_timer(closes_ms + ALLOWED_LATENESS_MS)
        self.impressions.put(result.ad, result.impressions)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        start_ms, per_ad = ctx.get_current_key(), list(self.impressions.values())
        total = f"{sum(per_ad):,} impressions of {len(per_ad):,} ads"
        if timestamp < start_ms + WINDOW.to_millis() + ALLOWED_LATENESS_MS - 1:
            yield f"{window_text(start_ms)}  {bar(1.0)} closed   {total}"
            return
        late, updates = self.late.value() or 0, self.updates.value() or 0
        came_late = f"{late:,} late ones in {updates:,} updates" if late else "none came late"
        yield f"{window_text(start_ms)}  {bar(1.0)} final    {total}, {came_late}"
        for state in (self.impressions, self.updates, self.late):
            state.clear()


def in_time() -> WatermarkStrategy:
    waiting = WatermarkStrategy.for_bounded_out_of_orderness(PATIENCE)
    return waiting.with_timestamp_assigner(lambda text, _: json.loads(text)["at_ms"])


def humans_of(texts: DataStream) -> DataStream:
    return texts.map(parse, output_type=IMPRESSION).name("parse").filter(is_human).name("drop bots")


def numbered(humans: DataStream) -> DataStream:
    """Every impression as a line that ends with its number among those of its ad."""
    lines = humans.key_by("ad").process(CountPerAd(), output_type=Types.STRING())
    return lines.name("count per ad").uid("count-per-ad")


def windows_per_ad(humans: DataStream) -> DataStream:
    """How often and how long each ad was seen in every ten seconds; again when late impressions change it.

    The results of an ad's open windows can be queried by this name.
    """
    return (
        humans.key_by("ad")
        .window(TumblingEventTimeWindows.of(WINDOW))
        .queryable(OPEN_WINDOWS)
        .allowed_lateness(ALLOWED_LATENESS_MS)
        .aggregate(agg.Aggregates(impressions=agg.count(), seen_ms=agg.sum("seen_ms")))
        .name("windows per ad")
        .uid("windows-per-ad")
    )


def closed(windows: DataStream) -> DataStream:
    """Lines about closed windows. They are few, and emitted by one subtask, in order."""
    told = windows.key_by("window_start").process(Closed(), output_type=Types.STRING()).set_parallelism(1)
    return told.name("tell of windows").uid("tell-of-windows")


def filling(humans: DataStream) -> DataStream:
    """Lines about the open window, over all ads, whenever another quarter of its time has passed."""
    growing = humans.window_all(CumulativeEventTimeWindows.of(WINDOW, STEP))
    parts = growing.aggregate(agg.Aggregates(impressions=agg.count())).name("windows filling").uid("windows-filling")
    return parts.flat_map(tell_of_filling, output_type=Types.STRING()).set_parallelism(1).name("tell of filling")


def tell_of_filling(part: Row) -> Iterator[str]:
    share = (part.window_end - part.window_start) / WINDOW.to_millis()
    if share < 1:  # a whole window is reported when the results of its ads arrive
        yield f"{window_text(part.window_start)}  {bar(share)} filling  {part.impressions:,} impressions so far"


def window_text(start_ms: int) -> str:
    """The window with this start, as "13:19:10–13:19:20"."""
    bounds = (start_ms, start_ms + WINDOW.to_millis())
    return "–".join(f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%S}" for at_ms in bounds)


def bar(share: float) -> str:
    return ("█" * round(share * 8)).ljust(8, "░")


def lines_in(folder: str) -> FileSink:
    lines = FileSink.for_row_format(folder, Encoder.simple_string_encoder())
    return (
        lines.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .with_bucket_assigner(FLAT)
        .with_output_file_config(CSV)
        .build()
    )


def results_in(folder: str) -> FileSink:
    columns = CsvSchema.builder()
    for name in ("ad", "window_start", "window_end", "impressions", "seen_ms"):
        columns.add_number_column(name)
    results = FileSink.for_bulk_format(folder, CsvBulkWriters.for_schema(columns.build()))
    return results.with_bucket_assigner(FLAT).with_output_file_config(CSV).build()


def main(output: str, records: int, rate: float, first_ms: int) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    source = DataGeneratorSource(AdServer(first_ms, rate / SPEED), records, rate, type_info=Types.STRING())
    humans = humans_of(env.from_source(source, in_time(), "impressions"))
    numbered(humans).sink_to(lines_in(f"{output}/numbered")).name("numbered")
    windows = windows_per_ad(humans)
    windows.sink_to(results_in(f"{output}/windows")).name("windows")
    closed(windows).print().set_parallelism(1).name("screen")
    filling(humans).print().set_parallelism(1).name("screen")
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
