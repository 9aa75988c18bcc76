"""The job that the cluster's kill tests disturb: numbers, counted by key, to files in an object store, exactly once.

    millstream run --master spark://… cluster_program.py

The application outlives a job: it reads one JSON line per job from its input, runs the job to its end, and prints one
line as each phase is reached:

    PHASE session | epoch N
    ENDED finished | ENDED KindOfError what it says

Every result is "key,count,number": the how-manyth record of the key it was, and which. Each must be there once.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from phases import phase, tell_epochs

from millstream.common import Configuration, Encoder, RestartStrategies, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSink, RollingPolicy
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor

RECORDS = 1_200
KEYS = 23
EPOCH_RECORDS = 100
PARALLELISM = 3


def key_of(number: int) -> str:
    return f"key-{number * 7919 % KEYS}"


class Count(KeyedProcessFunction):
    """Numbers the records of a key. `straggles`: the first attempt of a task is slow now and then."""

    def __init__(self, straggles: bool) -> None:
        self.straggles = straggles

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterator[str]:
        if self.straggles and value % 400 == 399:
            from pyspark import TaskContext

            context = TaskContext.get()
            time.sleep(4 if context is not None and context.attemptNumber() == 0 else 0)
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{key_of(value)},{count},{value}"


def build(env: StreamExecutionEnvironment, order: dict[str, Any]) -> None:
    env.set_parallelism(PARALLELISM).set_store(order["store"]).set_max_parallelism(12)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1_000, 200))
    env.configure(Configuration().set_integer("millstream.epoch.max-records", EPOCH_RECORDS))
    numbers = env.from_source(
        NumberSequenceSource(0, RECORDS - 1), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
    ).uid("numbers")
    counted = numbers.key_by(key_of, Types.STRING()).process(Count(order["straggles"]), Types.STRING()).uid("counted")
    files = FileSink.for_row_format(order["output"], Encoder.simple_string_encoder())
    sink = files.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
    counted.sink_to(sink).uid("results")


def main() -> None:
    phase("session")
    for line in sys.stdin:
        order = json.loads(line)
        try:
            env = StreamExecutionEnvironment.get_execution_environment()
            build(env, order)
            job = env._launch("counted")
            tell_epochs(job.board)
            job.result()
            print("ENDED finished", flush=True)
        except Exception as error:
            print(f"ENDED {type(error).__name__} {str(error).splitlines()[0]}", flush=True)


if __name__ == "__main__":
    main()
