"""The job of the kill tests with sinks that need no source beside: numbers, counted by key, to one sink. It ends.

    python counted_numbers.py STORE KIND PLACE PARALLELISM

KIND is redis (PLACE: prefix=url), files or delta (PLACE: folder). Every count goes to the sink. In Redis the last of
each key stands in the end, and a total that was added to once for each record.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from phases import phase, tell_epochs

from millstream.common import Configuration, Encoder, RestartStrategies, Row, Types, WatermarkStrategy
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream.connectors.delta import DeltaSink
from millstream.datastream.connectors.file_system import FileSink
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.connectors.redis import RedisSink
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.spark.session import make_session

RECORDS = 1_200
KEYS = 7
EPOCH_RECORDS = 60
COUNTED = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LONG()])
_SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def key_of(number: int) -> str:
    return f"k{number % KEYS}"


def expected() -> list[tuple[str, int]]:
    """Every count of every key, computed apart."""
    totals = {key_of(key): len(range(key, RECORDS, KEYS)) for key in range(KEYS)}
    return sorted((key, n) for key, total in totals.items() for n in range(1, total + 1))


class Count(KeyedProcessFunction):
    """Counts the records of a key."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterable[Row]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield Row(key=key_of(value), n=count)


def write(counted: DataStream, kind: str, place: str) -> None:
    if kind == "redis":
        prefix, _, url = place.partition("=")
        counted.sink_to(RedisSink.values(url, key="key", value="n", prefix=f"{prefix}:")).uid("values")
        counted.sink_to(RedisSink.commands(url, lambda row: ("INCRBY", f"{prefix}:total", 1))).uid("total")
    elif kind == "delta":
        counted.sink_to(DeltaSink.for_row_type(place, COUNTED).build()).uid("delta")
    else:
        lines = counted.map(lambda row: f"{row['key']},{row['n']}", Types.STRING())
        lines.sink_to(FileSink.for_row_format(place, Encoder.simple_string_encoder()).build()).uid("files")


def main(store: str, kind: str, place: str, parallelism: str) -> None:
    phase("imported")
    settings = {"spark.local.dir": str(Path(store).parent / "spark"), "spark.driver.extraJavaOptions": _SHORT_LIVED}
    session = make_session("local[2]", settings)
    phase("session")
    env = StreamExecutionEnvironment.get_execution_environment().use_spark_session(session)
    env.set_parallelism(int(parallelism)).set_store(store).set_max_parallelism(8)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(200, 100))
    env.configure(Configuration().set_integer("millstream.epoch.max-records", EPOCH_RECORDS))
    numbers = env.from_source(NumberSequenceSource(0, RECORDS - 1), WatermarkStrategy.no_watermarks(), "numbers")
    counted = numbers.uid("numbers").key_by(key_of, Types.STRING()).process(Count(), COUNTED).uid("count")
    write(counted, kind, place)
    job = env._launch("numbers")
    tell_epochs(job.board)
    job.result()
    phase("finished")


if __name__ == "__main__":
    main(*sys.argv[1:])
