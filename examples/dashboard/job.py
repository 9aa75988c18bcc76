"""A live dashboard: turnover per shop and minute, early, final, and corrected when a sale is late.

    millstream run examples/dashboard/job.py --store jobs/dashboard

Every line has its minute and stage: `so far` every ten seconds while the minute is open, `final` when the watermark has
passed its end, `corrected` for late sales after that. Sales that are too late for a correction are reported as lost:

    09:03  river       425.94  so far
    09:03  river       429.17  final
    09:03  river       436.60  corrected
    lost> 09:01  river         8.63

A screen that shows the newest line of every shop and minute is always up to date.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from millstream.common import Duration, Row, Types, WatermarkStrategy
from millstream.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.functions import ProcessWindowFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import ContinuousEventTimeTrigger, TumblingEventTimeWindows

SHOPS = ("north", "river", "station")
SALE = Types.ROW_NAMED(["shop", "cents", "at_ms"], [Types.STRING(), Types.LONG(), Types.LONG()])
TOLD = Types.ROW_NAMED(
    ["shop", "minute_ms", "cents", "stage"], [Types.STRING(), Types.LONG(), Types.LONG(), Types.STRING()]
)
TOO_LATE = OutputTag("too late", SALE)
TOLD_CENTS = ValueStateDescriptor("told cents", Types.LONG())
IS_FINAL = ValueStateDescriptor("is final", Types.BOOLEAN())

MINUTE, EVERY = Duration.of_minutes(1), Duration.of_seconds(10)
PATIENCE, CORRECTIONS_MS = Duration.of_seconds(2), 30_000
OPENING_MS = 9 * 60 * 60_000


def sale(index: int) -> Row:
    """A sale of the shops' tills, four a second. Every twentieth arrives 20 seconds late, a few two minutes."""
    delay_ms = 120_000 if index % 800 == 799 else 20_000 if index % 20 == 19 else index * 7 % 1_500
    return Row(shop=SHOPS[index % 3], cents=100 + index * 37 % 900, at_ms=OPENING_MS + index * 250 - delay_ms)


class Stage(ProcessWindowFunction):  # type: ignore[type-arg]
    """Emits the stage of a minute, if it changed. It receives one value: the turnover was aggregated incrementally."""

    def process(self, key: str, context: Any, elements: Iterable[Row]) -> Iterable[Row]:
        (total,) = elements
        window, kept = context.window(), context.window_state()
        told_cents, is_final = kept.get_state(TOLD_CENTS), kept.get_state(IS_FINAL)
        is_open = context.current_watermark() < window.max_timestamp()
        stage = "so far" if is_open else "corrected" if is_final.value() else "final"
        if stage == "final" or total.cents != told_cents.value():
            yield Row(key, window.start, total.cents, stage)
        told_cents.update(total.cents)
        is_final.update(not is_open)

    def clear(self, context: Any) -> None:
        for state in (TOLD_CENTS, IS_FINAL):
            context.window_state().get_state(state).clear()


def turnover(sales: DataStream) -> DataStream:
    """The dashboard's lines, from a stream of sales with timestamps."""
    return (
        sales.key_by("shop")
        .window(TumblingEventTimeWindows.of(MINUTE))
        .trigger(ContinuousEventTimeTrigger.of(EVERY))
        .allowed_lateness(CORRECTIONS_MS)
        .side_output_late_data(TOO_LATE)
        .reduce(lambda a, b: Row(shop=a.shop, cents=a.cents + b.cents, at_ms=b.at_ms), Stage(), TOLD)
        .name("turnover")
        .uid("turnover")
    )


def in_time() -> WatermarkStrategy:
    return WatermarkStrategy.for_bounded_out_of_orderness(PATIENCE).with_timestamp_assigner("at_ms")


def line(told: Row) -> str:
    return f"{amount_text(told.minute_ms, told.shop, told.cents)}  {told.stage}"


def lost_line(sale: Row) -> str:
    return amount_text(sale.at_ms, sale.shop, sale.cents)


def amount_text(at_ms: int, shop: str, cents: int) -> str:
    hours, minutes = divmod(at_ms // MINUTE.to_millis(), 60)
    return f"{hours:02d}:{minutes:02d}  {shop:9}{cents / 100:9.2f}"


def main(records: int, rate: float) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    told = turnover(env.from_source(DataGeneratorSource(sale, records, rate, SALE), in_time(), "sales"))
    # One subtask prints, so that the lines of a shop stay in order and carry no number.
    told.map(line, Types.STRING()).set_parallelism(1).print().set_parallelism(1)
    lost = told.get_side_output(TOO_LATE)
    lost.map(lost_line, Types.STRING()).set_parallelism(1).print("lost").set_parallelism(1)
    env.execute("dashboard")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=1_200, help="how many sales (default %(default)s)")
    options.add_argument("--rate", type=float, default=60.0, help="sales per second (default %(default)s)")
    main(**vars(options.parse_args()))
