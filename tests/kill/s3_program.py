"""The job that is killed while all it keeps is on S3: numbers → a running count for each key → files in a bucket.

    python s3_program.py STORE OUTPUT PARALLELISM

Both are addresses in a bucket; where the service is and how to get in stand in the environment. Phases are printed as
by `program`.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from phases import phase, tell_epochs

from millstream.common import Configuration, Encoder, RestartStrategies, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.spark.session import make_session

RECORDS = 1_500
KEYS = 7
_EPOCH_RECORDS = 150
_SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def expected() -> list[str]:
    """Every line, computed apart."""
    totals = Counter(number % KEYS for number in range(RECORDS))
    counts = [f"key {key}: {count}" for key, total in totals.items() for count in range(1, total + 1)]
    return counts + [f"number {number}" for number in range(RECORDS)]


class Count(KeyedProcessFunction):
    """With each record, how many of its key came so far: that tells lost and doubled state, the number lost input."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterable[str]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"key {ctx.get_current_key()}: {count}"
        yield f"number {value}"


def main(store: str, output: str, parallelism: str) -> None:
    phase("imported")
    settings = {"spark.local.dir": os.path.join(os.getcwd(), "spark"), "spark.driver.extraJavaOptions": _SHORT_LIVED}
    session = make_session("local[2]", settings)
    phase("session")
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(int(parallelism)).set_store(store)
    env.use_spark_session(session)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10, 500))
    pace = Configuration().set_integer("millstream.epoch.max-records", _EPOCH_RECORDS)
    env.configure(pace.set_string("millstream.epoch.min-interval", "300 ms"))
    source = DataGeneratorSource(lambda number: number, RECORDS, type_info=Types.LONG())
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    counted = numbers.key_by(lambda number: number % KEYS, Types.LONG()).process(Count(), Types.STRING()).uid("count")
    sink = FileSink.for_row_format(output, Encoder.simple_string_encoder())
    sink = sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    counted.sink_to(sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()).uid("files")
    job = env._launch("on-s3")
    tell_epochs(job.board)
    job.result()
    phase("finished")
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
