"""`make bench-stateless`: stateless programs against hand-written PySpark, in one run on one machine.

    throughput   a per-record map, map_batches and one exchange, against the same work in mapInArrow and repartition
    smallest     an epoch of one record with no, one and two exchanges, against the bare Spark job of that shape and
                 against Structured Streaming with Spark's default settings (an application of its own)
    soak         memory, shuffle files and open files over 3,000 epochs

Ours is always a whole epoch of a real job through the public API, from the planning of its input to its manifest,
synced to disk. Choose parts with --only; --quick for a smoke test; --json for machines.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
# Workers import modules of this folder, too; they inherit this when the JVM starts.
os.environ["PYTHONPATH"] = os.pathsep.join([str(FOLDER), str(FOLDER.parent / "src"), os.environ.get("PYTHONPATH", "")])
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src")]

import hand_written as hand  # noqa: E402
from gated import Batches, Build, GatedJob  # noqa: E402
from measure import Report, at_least, at_most, median_ratio, take_turns, timed_s  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from pyspark.sql import Row as SparkRow  # noqa: E402
from records import KEYED_TYPE, MIXED_ROW_TYPE, MIXED_TUPLE_TYPE, Keyed, Longs, Mixed  # noqa: E402
from soak import Probe, watch  # noqa: E402

from millstream.common import Row  # noqa: E402
from millstream.common.typeinfo import TypeInformation, Types  # noqa: E402
from millstream.spark.session import make_session, separate_session  # noqa: E402

PARTS = ("throughput", "smallest", "soak")
TASKS = 2
EXCHANGES = (0, 1, 2)


@dataclass(frozen=True)
class Sizes:
    """The size of the measurement."""

    map_records: int = 5_000_000
    exchange_records: int = 10_000_000
    # At a hundred million rows a second, fewer would measure the start of a job.
    column_records: int = 100_000_000
    rounds: int = 5
    rounds_of_slow_maps: int = 3
    epoch_rounds: int = 8
    epochs_per_round: int = 12
    epoch_warm_up: int = 60
    soak_epochs: int = 3_000
    soak_warm_up: int = 300
    soak_every: int = 30


QUICK = Sizes(
    map_records=500_000,
    exchange_records=1_000_000,
    column_records=10_000_000,
    rounds=3,
    rounds_of_slow_maps=2,
    epoch_rounds=3,
    epochs_per_round=6,
    epoch_warm_up=15,
    soak_epochs=200,
    soak_warm_up=50,
    soak_every=15,
)


def _add_one(value: int) -> int:
    return value + 1


def _tuple_changed(record: Any) -> Any:
    return record[0] + 1, record[1] * 2.0, record[2]


def _key_of(record: Any) -> Any:
    return record[0]


def _row_changed(record: Any) -> Any:
    return Row(record[0] + 1, record[1] * 2.0, record[2])


def _spark_row_changed(record: Any) -> Any:
    return SparkRow(record[0] + 1, record[1] * 2.0, record[2])


# --- throughput ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contest:
    """One comparison: our program, the hand-written frame, and the required ratio (None: reported only)."""

    name: str
    records: int
    batches: Batches
    type_info: TypeInformation
    build: Build
    frame: Callable[[SparkSession], DataFrame]
    bound: float | None
    rounds: int
    spark_defaults: bool = False


def contests(sizes: Sizes) -> Iterator[Contest]:
    """Every throughput requirement."""
    some, many = sizes.map_records, sizes.exchange_records
    shown = f"{some / 1e6:g} M"
    longs, mixed, keyed, columns = Longs(some), Mixed(some), Keyed(many), Keyed(sizes.column_records)
    yield Contest(
        f"map of {shown} longs, to a mapInArrow loop", some, longs, Types.LONG(),
        lambda s: s.map(_add_one, Types.LONG()),
        lambda spark: hand.one_pass(spark, longs, hand.column_loop(_add_one)), 0.8, sizes.rounds,
    )  # fmt: skip
    yield Contest(
        f"map of {shown} 3-field tuples, to a mapInArrow loop", some, mixed, MIXED_TUPLE_TYPE,
        lambda s: s.map(_tuple_changed, MIXED_TUPLE_TYPE),
        lambda spark: hand.one_pass(spark, mixed, hand.tuple_loop(_tuple_changed)), 0.8, sizes.rounds_of_slow_maps,
    )  # fmt: skip
    yield Contest(
        f"map of {shown} 3-field rows, to a mapInArrow loop", some, mixed, MIXED_ROW_TYPE,
        lambda s: s.map(_row_changed, MIXED_ROW_TYPE),
        lambda spark: hand.one_pass(spark, mixed, hand.row_loop(_spark_row_changed)), 0.8, sizes.rounds_of_slow_maps,
    )  # fmt: skip
    yield Contest(
        f"map_batches of {columns.total / 1e6:g} M rows, 3 columns anew, to bare mapInArrow", columns.total, columns,
        KEYED_TYPE, lambda s: s.map_batches(hand.reworked, KEYED_TYPE),
        lambda spark: hand.one_pass(spark, columns, hand.reworked), 0.9, sizes.rounds,
    )  # fmt: skip
    # A function so light (30 us a batch) that the engine's own 16 us a batch show: reported, so that they do not grow.
    yield Contest(
        f"map_batches of {columns.total / 1e6:g} M rows, 1 column anew, to bare mapInArrow", columns.total, columns,
        KEYED_TYPE, lambda s: s.map_batches(hand.doubled, KEYED_TYPE),
        lambda spark: hand.one_pass(spark, columns, hand.doubled), None, sizes.rounds,
    )  # fmt: skip
    yield Contest(
        f"rebalance of {many / 1e6:g} M rows, to typed repartition", many, keyed, KEYED_TYPE,
        lambda s: s.rebalance().map_batches(hand.passed_on, KEYED_TYPE),
        lambda spark: hand.exchange(spark, keyed), 1.8, sizes.rounds, spark_defaults=True,
    )  # fmt: skip
    yield Contest(
        f"key_by of {many / 1e6:g} M rows, to typed repartition by key", many, keyed, KEYED_TYPE,
        lambda s: s.key_by(_key_of, Types.STRING()).map_batches(hand.passed_on, KEYED_TYPE),
        lambda spark: hand.keyed_exchange(spark, keyed), None, sizes.rounds_of_slow_maps, spark_defaults=True,
    )  # fmt: skip


def measure_throughput(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Every contest, in turns."""
    defaults, ours_session = session.newSession(), separate_session(session)
    for contest in contests(sizes):
        # The better settings for the hand-written frame: ours start jobs faster, Spark's move typed rows faster.
        frame = contest.frame(defaults if contest.spark_defaults else ours_session)
        with GatedJob(session, TASKS, contest.batches, contest.type_info, contest.build, TASKS) as job:
            took = take_turns({"ours": job.epoch_s, "theirs": partial(_execution_s, frame)}, contest.rounds)
        ratio = median_ratio(took["theirs"], took["ours"])
        ours, theirs = (contest.records / statistics.median(took[side]) / 1e6 for side in ("ours", "theirs"))
        rates = f"{ours:.2f} M records/s, hand-written {theirs:.2f} M/s (medians of {contest.rounds})"
        if contest.bound is None:
            report.note(f"{contest.name}: {ratio:.2f} × (no requirement); {rates}")
        else:
            report.add(at_least(contest.name, ratio, contest.bound))
            report.note(rates)


def _execution_s(frame: DataFrame) -> float:
    return timed_s(lambda: hand.collect(frame))


# --- the smallest epoch -------------------------------------------------------------------------------------


class DefaultStreaming:
    """The Structured Streaming application with Spark's defaults, in a process of its own."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("wb")
        command = [sys.executable, str(FOLDER / "streaming_child.py")]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def batches_ms(self, exchanges: int, count: int) -> float:
        """The median duration of a micro-batch."""
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(f"{exchanges} {count}\n")
        self._child.stdin.flush()
        answer = self._child.stdout.readline()
        if not answer:
            raise RuntimeError(f"the Structured Streaming application ended; its log is {self._log.name}")
        return float(statistics.median(json.loads(answer)))

    def close(self) -> None:
        """Let it finish."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(60)
        self._log.close()


def measure_smallest(report: Report, session: SparkSession, sizes: Sizes, log: Path) -> None:
    """One record per epoch, by number of exchanges."""
    ours_session = separate_session(session)
    count = sizes.epochs_per_round
    with ExitStack() as stack:
        streaming = DefaultStreaming(log)
        stack.callback(streaming.close)
        for exchanges in EXCHANGES:
            frame = hand.smallest(ours_session, exchanges)
            with smallest_job(session, exchanges) as job:
                job.epochs_s(sizes.epoch_warm_up)
                for _ in range(sizes.epoch_warm_up):
                    hand.collect(frame)
                contestants = {
                    "ours": partial(_epochs_ms, job, count),
                    "bare": partial(_executions_ms, frame, count),
                    "streaming": partial(streaming.batches_ms, exchanges, count),
                }
                took = take_turns(contestants, sizes.epoch_rounds)
            shape = f"smallest epoch, {exchanges} exchange{'' if exchanges == 1 else 's'}"
            report.add(at_most(f"{shape}, to the bare Spark job", median_ratio(took["ours"], took["bare"]), 1.3))
            report.add(at_most(f"{shape}, to Structured Streaming", median_ratio(took["ours"], took["streaming"]), 0.6))
            ours, bare, theirs = (statistics.median(took[side]) for side in contestants)
            report.note(f"{ours:.0f} ms; bare {bare:.0f} ms; Structured Streaming {theirs:.0f} ms")


def _epochs_ms(job: GatedJob, count: int) -> float:
    return 1000 * statistics.median(job.epochs_s(count))


def _executions_ms(frame: DataFrame, count: int) -> float:
    return 1000 * statistics.median(_execution_s(frame) for _ in range(count))


@contextmanager
def smallest_job(session: SparkSession, exchanges: int) -> Iterator[GatedJob]:
    """A job of one record per epoch through that many exchanges."""

    def build(stream: Any) -> Any:
        stream = stream.map(_add_one, Types.LONG())
        for _ in range(exchanges):
            stream = stream.rebalance().map(_add_one, Types.LONG())
        return stream

    with GatedJob(session, 1, Longs(1), Types.LONG(), build, TASKS) as job:
        yield job


# --- soak ---------------------------------------------------------------------------------------------------


def measure_soak(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Everything flat over thousands of epochs with one exchange."""
    with smallest_job(session, 1) as job:
        probe = Probe(session, job.store)
        before_mb = probe.java_resident_mb()
        results = watch(probe, job.epochs_s, sizes.soak_epochs, sizes.soak_warm_up, sizes.soak_every)
        after_mb = probe.java_resident_mb()
    for result in results:
        report.add(result.requirement(sizes.soak_epochs))
    report.note(f"JVM resident, from start to end: {before_mb:.0f} → {after_mb:.0f} MB (the heap may grow to 1 GB)")


def main() -> int:
    """Run the requested measurements; the exit code says whether every requirement holds."""
    parser = argparse.ArgumentParser(description="stateless programs against hand-written PySpark")
    parser.add_argument("--json", action="store_true", help="print JSON in place of lines")
    parser.add_argument("--quick", action="store_true", help="smaller sizes: a smoke test")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part (may be repeated)")
    parser.add_argument("--no-soak", dest="soak", action="store_false", help="leave the soak out (about five minutes)")
    asked = parser.parse_args()
    parts = [part for part in asked.only or PARTS if part != "soak" or asked.soak]
    sizes = QUICK if asked.quick else Sizes()
    report = Report("stateless", as_json=asked.json, quick=asked.quick)
    logs = Path(tempfile.mkdtemp(prefix="millstream-bench-logs-"))
    session = make_session(f"local[{TASKS}]", {}, logs / "spark.log")
    try:
        if "throughput" in parts:
            measure_throughput(report, session, sizes)
        if "smallest" in parts:
            measure_smallest(report, session, sizes, logs / "streaming.log")
        if "soak" in parts:
            measure_soak(report, session, sizes)
    finally:
        session.stop()
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
