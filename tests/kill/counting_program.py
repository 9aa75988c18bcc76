"""The job that is asked while it is killed: every record counts each key once, in a queryable state.

So whatever an epoch has read, all keys have the same count, and that is the number of records read by then.

    python counting_program.py STORE RECORDS PARALLELISM EPOCH_RECORDS [FAILS_AT [serving]]

Where it is told to, it fails once, at that record, and is restarted in its process, and it serves queries itself.
Phases are printed as by `program`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from counted import EPOCH_MS, EPOCH_RECORDS, KEYS, STATE
from phases import phase, tell_epochs

from millstream.common import Configuration, RestartStrategies, Types, WatermarkStrategy
from millstream.connectors.direct_sinks import DiscardingSink
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.jobs.clock import SystemClock
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.spark.session import make_session
from millstream.storage import open_store

_JOB = "counting"
_SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class Count(KeyedProcessFunction):
    """Counts the records of a key; fails at one of them unless `failed`, a file, says that it has done so before."""

    def __init__(self, fails_at: int, failed: Path) -> None:
        self._fails_at, self._failed = fails_at, failed

    def open(self, runtime_context: Any) -> None:
        descriptor = ValueStateDescriptor("count", Types.LONG())
        descriptor.set_queryable(STATE)
        self.count = runtime_context.get_state(descriptor)

    def process_element(self, value: tuple[str, int], ctx: Any) -> Iterable[None]:
        if value[1] == self._fails_at and not self._failed.exists():
            self._failed.touch()
            raise RuntimeError("it fails once")
        self.count.update((self.count.value() or 0) + 1)
        return ()


def _build(store: str, records: int, parallelism: int, fails_at: int = -1) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism).set_store(store)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 100))
    numbers = DataGeneratorSource(lambda number: number, records, type_info=Types.LONG())
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    pairs = stream.flat_map(lambda number: ((key, number) for key in KEYS), _PAIR).uid("pairs")
    failed = Path(f"{store}-failed-at-{fails_at}")
    counted = pairs.key_by(lambda pair: pair[0], Types.STRING()).process(Count(fails_at, failed)).uid("count")
    counted.sink_to(DiscardingSink()).uid("nowhere")
    return env


def first_epoch(store: str, records: int) -> None:
    """Run one epoch, in this process and without Spark, so that there is something to ask for."""
    env = _build(store, records, 1)
    env.configure(Configuration().set_integer("millstream.epoch.max-records", EPOCH_RECORDS))
    job = Launch(SystemClock(), LocalRunner(), open_store(store)).prepare(env._graph(_JOB), env._job_settings())
    job.board.listen(lambda progress: job.stop() if progress.epoch else None)
    job.start().result()


def main(
    store: str, records: str, parallelism: str, epoch_records: str, fails_at: str = "-1", serving: str = ""
) -> None:
    phase("imported")
    # Not in memory: what a killed Spark leaves behind then goes away with the test. A life is short, so what Java does
    # for long ones does not pay.
    settings = {"spark.local.dir": str(Path(store).parent / "spark"), "spark.driver.extraJavaOptions": _SHORT_LIVED}
    session = make_session("local[2]", settings)
    phase("session")
    env = _build(store, int(records), int(parallelism), int(fails_at)).use_spark_session(session)
    pace = Configuration().set_integer("millstream.epoch.max-records", int(epoch_records))
    env.configure(pace.set_string("millstream.epoch.min-interval", f"{EPOCH_MS} ms"))
    if serving:
        places = Configuration().set_string("millstream.query.listen", "127.0.0.1:0")
        env.configure(places.set_integer("millstream.query.flight-port", 0))
    job = env._launch(_JOB)
    tell_epochs(job.board)
    job.result()
    phase("finished")
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
