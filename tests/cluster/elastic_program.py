"""A job that is rescaled while it runs, with executors on demand. Run by test_executors_on_demand.

    python elastic_program.py STORE

Prints one JSON line: how many executors there were at parallelism 1, 3 and 1 again, and what was published.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from pyspark.sql import SparkSession

from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.testing import Collect

RECORDS, RATE = 1_000_000, 20.0


def executors_become(count: int, timeout_s: float = 60.0) -> int:
    """How many executors run when there are `count`, or at the latest after a while."""
    session: Any = SparkSession.getActiveSession()
    deadline = time.monotonic() + timeout_s
    while (found := session.sparkContext._jsc.sc().getExecutorIds().size()) != count and time.monotonic() < deadline:
        time.sleep(0.1)
    return int(found)


def main(store: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1).set_store(store)
    settings = Configuration().set_boolean("millstream.rescale.auto", True).set_integer("millstream.rescale.max", 3)
    # It would choose a parallelism by itself, but here it is told.
    env.configure(
        settings.set_string("millstream.rescale.cooldown", "1 h").set_string("millstream.epoch.min-interval", "200 ms")
    )
    out = Collect()
    source = DataGeneratorSource(lambda number: number, RECORDS, RATE, type_info=Types.LONG())
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.key_by(lambda n: n % 7, Types.LONG()).map(lambda n: n, Types.LONG()).sink_to(out)
    job = env._launch("elastic")
    counts = [executors_become(1)]
    job.rescale(3)
    counts.append(executors_become(3))
    job.rescale(1)
    counts.append(executors_become(1))
    job.stop()
    job.wait()
    is_exact = sorted(out.values) == list(range(len(out.values))) and len(out.values) > 0
    print("ANSWER " + json.dumps({"executors": counts, "exact": is_exact}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
