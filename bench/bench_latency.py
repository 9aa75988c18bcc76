"""`make bench-latency`: from an event to its published output, through one `key_by` with state.

Events occur at a steady rate, 1,000 or 100,000 a second, over 10,000 keys, independently of their processing. Ours
counts them by key in a `ValueState` and publishes a result for each; the latency of an event ends when the sink's
`commit` is called, after the manifest is on disk. The bare Spark job of the same shape counts in a dictionary of its
worker processes, job after job over the events since the previous one, and ends when `collect` returns: it stores and
publishes nothing. Both take turns; the first second of each turn is not counted.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# Workers import modules of this folder, too; they inherit this when the JVM starts.
os.environ["PYTHONPATH"] = os.pathsep.join([str(FOLDER), str(FOLDER.parent / "src"), os.environ.get("PYTHONPATH", "")])
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src")]

import numpy as np  # noqa: E402
from latency_programs import TASKS, BareJob, EventSource, Latencies, Phase, PublishedSink, counted_by_key  # noqa: E402
from measure import Report, at_most  # noqa: E402
from parts import run_parts  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from running_job import RunningJob  # noqa: E402

from millstream.checkpoint.manifest import ManifestLog  # noqa: E402
from millstream.common import WatermarkStrategy  # noqa: E402
from millstream.datastream import StreamExecutionEnvironment  # noqa: E402
from millstream.jobs.epochs.epoch_statistics import statistics_of  # noqa: E402
from millstream.spark.session import separate_session  # noqa: E402
from millstream.storage.store import open_store  # noqa: E402

BOUNDS = {1_000: 2.5, 100_000: 4.0}
"""How much longer ours may take than the bare job, by the rate."""
TAIL_MAX = 2.5
UNCOUNTED_S = 1.0
EPOCHS_SHOWN = 20
STALLED_S = 120.0


@dataclass(frozen=True)
class Sizes:
    """The size of the measurement."""

    turn_s: float = 6.0
    rounds: int = 5
    warm_up_s: float = 10.0


QUICK = Sizes(turn_s=3.0, rounds=2, warm_up_s=4.0)


class Timer:
    """Gathers the latencies of a turn, without its first second."""

    def __init__(self) -> None:
        self._taken: list[Latencies] = []

    def note(self, phase: Phase, first: int, last: int, now_s: float) -> None:
        counted = max(first, phase.first * TASKS + int(UNCOUNTED_S * phase.rate))
        if counted <= last:
            self._taken.append(phase.latencies_s(counted, last, now_s))

    def taken_ms(self) -> Latencies:
        taken, self._taken = self._taken, []
        if not taken:
            raise RuntimeError("nothing came out of a turn: it was too short, or the machine too busy")
        return 1000 * np.concatenate(taken)


def _our_turn(source: EventSource, sink: PublishedSink, rate: int, lasts_s: float) -> Latencies:
    timer = Timer()
    sink.taken()
    phase = source.begin(rate)
    time.sleep(lasts_s)
    source.end()
    time.sleep(1.0)  # running epochs are published without being waited for
    for first, last, now_s in sink.taken():
        timer.note(phase, first, last, now_s)
    return timer.taken_ms()


def _bare_turn(job: BareJob, rate: int, lasts_s: float) -> Latencies:
    timer = Timer()
    job.run(rate, lasts_s, timer.note)
    return timer.taken_ms()


def measure_latency(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Both rates; ours and the bare job take turns."""
    bare = BareJob(separate_session(session))
    source, sink = EventSource(), PublishedSink()

    def add(environment: StreamExecutionEnvironment) -> None:
        events = environment.from_source(source, WatermarkStrategy.no_watermarks(), "events")
        counted_by_key(events).sink_to(sink)

    with RunningJob(session, add, TASKS) as job:
        source.begin(min(BOUNDS))
        sink.wait(STALLED_S)
        source.end()
        for rate, bound in BOUNDS.items():
            turns: dict[str, Callable[[float], Latencies]] = {
                "ours": partial(_our_turn, source, sink, rate),
                "bare": partial(_bare_turn, bare, rate),
            }
            taken: dict[str, list[Latencies]] = {side: [] for side in turns}
            for turn in turns.values():
                turn(sizes.warm_up_s)
            for number in range(sizes.rounds):
                for side in sorted(turns, reverse=number % 2 == 1):
                    taken[side].append(turns[side](sizes.turn_s))
            _judge(report, rate, bound, taken)
            report.note(_epochs_shown(job.store))


def _judge(report: Report, rate: int, bound: float, taken: dict[str, list[Latencies]]) -> None:
    pairs = zip(taken["ours"], taken["bare"], strict=True)
    ratio = statistics.median(float(np.median(ours) / np.median(bare)) for ours, bare in pairs)
    ours, bare = (np.percentile(np.concatenate(taken[side]), (50, 99)) for side in ("ours", "bare"))
    shown = f"{rate:,} events/s"
    report.add(at_most(f"{shown}: p50, to the bare Spark job's", ratio, bound))
    report.add(at_most(f"{shown}: p99 to p50", ours[1] / ours[0], TAIL_MAX))
    report.note(f"p50 {ours[0]:.0f} ms, p99 {ours[1]:.0f} ms; bare p50 {bare[0]:.0f} ms, p99 {bare[1]:.0f} ms")


def _epochs_shown(store: str) -> str:
    """The phases of the newest epochs, from their manifests."""
    log = ManifestLog(open_store(Path(store).as_uri()))
    told = [statistics_of(log.read(epoch)) or {} for epoch in log.epochs()[-EPOCHS_SHOWN:]]
    figures = {
        "events": [one["in"] for one in told if "in" in one],
        "ms from trigger to manifest": [one["duration_ms"] for one in told if "duration_ms" in one],
        "ms of it the Spark job": [one["run_ms"] for one in told if "run_ms" in one],
        "ms to commit": [one["before"]["commit_ms"] for one in told if "commit_ms" in one.get("before", {})],
        "ms to publish": [one["before"]["publish_ms"] for one in told if "publish_ms" in one.get("before", {})],
    }
    return "an epoch: " + ", ".join(
        f"{statistics.median(values):,.1f} {what}" for what, values in figures.items() if values
    )


def main() -> int:
    """Measure; the exit code says whether every requirement holds."""
    about = "from an event to its published output"
    return run_parts("latency", about, {"latency": measure_latency}, Sizes(), QUICK, tasks=TASKS)


if __name__ == "__main__":
    sys.exit(main())
