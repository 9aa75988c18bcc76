"""A live dashboard: turnover per shop and minute, as it grows, as it ends, and corrected when a sale comes late.

    millstream run examples/dashboard/job.py --store jobs/dashboard

Every line says of which minute it is and how far that one is: `so far` while the minute is open, `final` when event
time has passed its end, `corrected` for sales that came later than that. What comes later still is told as lost.
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
FINAL_CENTS = ValueStateDescriptor("final cents", Types.LONG())

MINUTE, EVERY = Duration.of_minutes(1), Duration.of_seconds(10)
PATIENCE, CORRECTIONS_MS = Duration.of_seconds(2), 30_000


def sale(index: int) -> Row:
    """A sale of the shops' tills, four a second; every twentieth is sent twenty seconds late."""
    delay_ms = 20_000 if index % 20 == 19 else index * 7 % 1_500
    return Row(shop=SHOPS[index % 3], cents=100 + index * 37 % 900, at_ms=index * 250 - delay_ms)


class Stage(ProcessWindowFunction):  # type: ignore[type-arg]
    """Says how far a minute is. It gets one value: the turnover was added up as sales came."""

    def process(self, key: str, context: Any, elements: Iterable[Row]) -> Iterable[Row]:
        (total,) = elements
        window, told = context.window(), context.window_state().get_state(FINAL_CENTS)
        if context.current_watermark() < window.max_timestamp():
            yield Row(key, window.start, total.cents, "so far")
        elif told.value() != total.cents:
            yield Row(key, window.start, total.cents, "final" if told.value() is None else "corrected")
            told.update(total.cents)

    def clear(self, context: Any) -> None:
        context.window_state().get_state(FINAL_CENTS).clear()


def turnover(sales: DataStream) -> DataStream:
    """What the dashboard shows, of a stream of sales with timestamps."""
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


def main(records: int, rate: float) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    in_time = WatermarkStrategy.for_bounded_out_of_orderness(PATIENCE).with_timestamp_assigner(lambda s, _: s.at_ms)
    sales = env.from_source(DataGeneratorSource(sale, records, rate, SALE), in_time, "sales")
    told = turnover(sales)
    told.print()
    told.get_side_output(TOO_LATE).print("lost")
    env.execute("dashboard")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=2_000, help="how many sales (default %(default)s)")
    options.add_argument("--rate", type=float, default=100.0, help="sales per second (default %(default)s)")
    main(**vars(options.parse_args()))
