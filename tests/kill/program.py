"""The job that the kill tests kill: a generator at a rate → map → filter → rebalance → files, text and Parquet, and
beside it, per user, a count and a sum in keyed state, told by a timer at the end, windows of three kinds
(`killed_windows`), which hold records of several epochs, connected streams with asynchronous calls and broadcast
state (`killed_streams`), and a loop (`killed_loop`).

    python program.py STORE OUTPUT [SNAPSHOT [EPOCH]]

With a snapshot it starts from there (give '' for none); with an epoch it stops by itself once that is committed.

One line is printed as each phase is reached, so that a test can strike at a chosen moment:

    PHASE imported | session | epoch N | finished

It is an ordinary program: it knows nothing of being killed, and is simply started again on the same store.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import killed_loop as loop
import killed_streams as streams
import killed_windows as windows
from phases import phase, tell_epochs

from millstream.common import Configuration, Encoder, Row, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from millstream.datastream.formats.parquet import ParquetBulkWriters
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ListStateDescriptor, ValueStateDescriptor
from millstream.spark.session import make_session

RECORDS = 3_600
RECORDS_PER_SECOND = 3_000
EPOCH_RECORDS = 300
EPOCHS_KEPT = 3
END_MS = 10**12
EVENT = Types.ROW_NAMED(["id", "user", "cents"], [Types.LONG(), Types.STRING(), Types.LONG()])


def event(index: int) -> str:
    return f"{index},user-{index * 7919 % 101},{index * 31 % 1000}"


def parse(line: str) -> Row:
    number, user, cents = line.split(",")
    return Row(int(number), user, int(cents))


def line_ms(line: str) -> int:
    return windows.happened_ms(int(line.split(",")[0]))


def is_kept(row: Row) -> bool:
    return bool(row[2] % 5)


def expected() -> list[Row]:
    """The answer, computed apart."""
    return [row for row in map(parse, map(event, range(RECORDS))) if is_kept(row)]


def window_results() -> list[str]:
    """Every window's result, computed apart."""
    return windows.expected([(row[1], windows.happened_ms(row[0]), row[2]) for row in expected()])


def stream_results() -> list[str]:
    """What the several streams give, computed apart."""
    return streams.expected(expected())


def loop_results() -> list[str]:
    """What leaves the loop, computed apart."""
    return loop.expected(expected())


def totals() -> list[str]:
    """Count and sum per user, computed apart."""
    users: dict[str, list[int]] = {}
    for row in expected():
        users.setdefault(row[1], []).append(row[2])
    return [f"{user} {len(cents)} {sum(cents)}" for user, cents in users.items()]


class Totals(KeyedProcessFunction):
    """Counts and sums in two states and a list, so that each must survive; tells them when the input ends."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.cents = runtime_context.get_list_state(ListStateDescriptor("cents", Types.LONG()))

    def process_element(self, value: Row, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        self.cents.add(value[2])
        ctx.timer_service().register_event_time_timer(END_MS)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[str]:
        yield f"{ctx.get_current_key()} {self.count.value()} {sum(self.cents.get())}"


def build(env: StreamExecutionEnvironment, output: Path) -> None:
    here = BucketAssigner.base_path_bucket_assigner()
    source = DataGeneratorSource(event, RECORDS, RECORDS_PER_SECOND, Types.STRING())
    events = env.from_source(source, windows.in_time(line_ms), "events").uid("events")
    parsed = events.map(parse, EVENT).filter(is_kept).rebalance()
    lines = parsed.map(lambda row: f"{row[0]} {row[1]} {row[2]}", Types.STRING())

    # One file per epoch and subtask, and files that gather several epochs: their open parts live in the manifest.
    each = FileSink.for_row_format(str(output / "each"), Encoder.simple_string_encoder()).with_bucket_assigner(here)
    lines.sink_to(each.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()).uid("each")
    many = FileSink.for_row_format(str(output / "many"), Encoder.simple_string_encoder()).with_bucket_assigner(here)
    lines.sink_to(many.with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=12_000)).build()).uid("many")
    bulk = FileSink.for_bulk_format(str(output / "parquet"), ParquetBulkWriters.for_row_type(EVENT))
    parsed.map(lambda row: row, EVENT).sink_to(bulk.with_bucket_assigner(here).build()).uid("parquet")

    kept = FileSink.for_row_format(str(output / "totals"), Encoder.simple_string_encoder()).with_bucket_assigner(here)
    counted = parsed.key_by(lambda row: row[1], Types.STRING()).process(Totals(), Types.STRING()).uid("totals")
    counted.sink_to(kept.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()).uid("totals-out")

    shut = FileSink.for_row_format(str(output / "windows"), Encoder.simple_string_encoder()).with_bucket_assigner(here)
    results = windows.add_windows(parsed)
    results.sink_to(shut.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()).uid("windows-out")

    met = FileSink.for_row_format(str(output / "streams"), Encoder.simple_string_encoder()).with_bucket_assigner(here)
    results = streams.add_streams(parsed.map(lambda row: row, EVENT))
    results.sink_to(met.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()).uid("streams-out")

    left = FileSink.for_row_format(str(output / "loop"), Encoder.simple_string_encoder()).with_bucket_assigner(here)
    results = loop.add_loop(parsed)
    results.sink_to(left.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()).uid("loop-out")


def main(store: str, output: str, snapshot: str = "", last_epoch: str = "0") -> None:
    phase("imported")
    # Not in memory: what a killed Spark leaves behind then goes away with the test.
    session = make_session("local[2]", {"spark.local.dir": str(Path(output).parent / "spark")})
    phase("session")
    env = StreamExecutionEnvironment.get_execution_environment().use_spark_session(session)
    env.set_parallelism(2).set_store(store)
    settings = Configuration().set_integer("millstream.epoch.max-records", EPOCH_RECORDS)
    settings.set_integer("millstream.retention.epochs", EPOCHS_KEPT)
    if snapshot:
        settings.set_string("execution.state-recovery.path", snapshot)
    env.configure(settings)
    build(env, Path(output))
    job = env._launch("killed")
    tell_epochs(job.board, lambda epoch: job.stop() if epoch == int(last_epoch) else None)
    job.result()
    phase("finished")
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
