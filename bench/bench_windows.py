"""`make bench-windows`: windows in columns and by a function per record, in one run on one machine.

    tumbling     count and sum in windows of 10 s, few keys and very many; and against Spark's `groupBy(window, key)` in
                 a Structured Streaming query with its state in RocksDB, on the same files
    sliding      windows of 60 s every second, against windows of 60 s side by side
    skew         most records in one key, against keys that are all alike
    custom       sum and count in windows of 10 s by a user's AggregateFunction, few keys and many, against a
                 KeyedProcessFunction with a ValueState on the same records
    sessions     epochs that close a few of very many open sessions, against the same epochs with no others open

Ours is always a whole epoch of a real job, to its manifest. Every epoch is a stretch of event time and closes the
windows of the one before. Choose parts with --only; --quick for a smoke test.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# Workers import modules of this folder, too; they inherit this when the JVM starts.
os.environ["PYTHONPATH"] = os.pathsep.join([str(FOLDER), str(FOLDER.parent / "src"), os.environ.get("PYTHONPATH", "")])
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src")]

from gated import Batches, GatedJob  # noqa: E402
from measure import Report, at_least, at_most, median_ratio, take_turns  # noqa: E402
from parts import run_parts  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from spark_child import Ask, spark_child  # noqa: E402
from window_records import (  # noqa: E402
    DISORDER_MS,
    SESSIONS_UID,
    TIMED_TYPE,
    SessionRecords,
    StoredEpoch,
    TimedRecords,
    custom,
    running,
    sessions,
    sliding,
    tumbling,
    write_epoch,
)

from millstream.checkpoint.manifest import ManifestLog  # noqa: E402
from millstream.datastream import DataStream  # noqa: E402
from millstream.storage import open_store  # noqa: E402

TASKS = 2
WARM_UP_ROUNDS = 1
SESSION_WARM_UP_ROUNDS = 3
TUMBLING_MS = 10_000
SLIDING_MS, SLIDE_MS = 60_000, 1_000


@dataclass(frozen=True)
class Sizes:
    """The size of the measurement. `records` are those of one epoch."""

    records: int = 10_000_000
    few_keys: int = 100
    most_keys: int = 1_000_000
    rounds: int = 3
    sliding_records: int = 5_000_000
    sliding_keys: int = 1_000
    skew_records: int = 5_000_000
    skew_keys: int = 10_000
    hot: float = 0.9
    custom_records: int = 5_000_000
    custom_keys: int = 100_000
    sessions_closed: int = 10_000
    session_stretches: int = 100
    session_rounds: int = 9


QUICK = Sizes(
    records=300_000, most_keys=50_000, rounds=2, sliding_records=300_000, sliding_keys=100, skew_records=300_000,
    skew_keys=1_000, custom_records=300_000, custom_keys=10_000, sessions_closed=2_000, session_stretches=20,
    session_rounds=5,
)  # fmt: skip

Program = Callable[[DataStream], DataStream]


def _job(session: SparkSession, epochs: Sequence[Batches], program: Program) -> GatedJob:
    return GatedJob(session, TASKS, epochs[-1], TIMED_TYPE, program, TASKS, epochs)


def _epochs(rounds: int, records: int, keys: int, span_ms: int, hot: float = 0.0) -> list[TimedRecords]:
    return [TimedRecords(epoch, records, keys, span_ms, hot) for epoch in range(WARM_UP_ROUNDS + rounds)]


def _rate(records: int, took_s: Sequence[float]) -> str:
    return f"{records / statistics.median(took_s) / 1e6:.2f} M/s"


def measure_tumbling(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Very many keys against few, and each against Spark's own."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millstream-bench-")))
        ask = stack.enter_context(spark_child(FOLDER / "window_child.py", TUMBLING_MS, DISORDER_MS))
        contestants: dict[str, Callable[[], float]] = {}
        for keys in (sizes.few_keys, sizes.most_keys):
            folders = [place / str(keys) / str(epoch) for epoch in range(WARM_UP_ROUNDS + sizes.rounds)]
            epochs = _epochs(sizes.rounds, sizes.records, keys, TUMBLING_MS)
            for folder, records in zip(folders, epochs, strict=True):
                write_epoch(records, folder, TASKS)
            stored = [StoredEpoch(str(folder)) for folder in folders]
            job = stack.enter_context(_job(session, stored, partial(tumbling, size_ms=TUMBLING_MS)))
            contestants[f"ours {keys}"] = job.epoch_s
            contestants[f"spark {keys}"] = partial(_next_epoch_s, ask, str(keys), iter(folders))
        took = take_turns(contestants, sizes.rounds, WARM_UP_ROUNDS)
    few, most = sizes.few_keys, sizes.most_keys
    for keys, bound in ((most, 6), (few, 3)):
        ours, sparks = took[f"ours {keys}"], took[f"spark {keys}"]
        report.add(at_least(f"tumbling, {keys:,} keys, to Spark's own", median_ratio(sparks, ours), bound))
        report.note(f"{_rate(sizes.records, ours)}, Spark's own {_rate(sizes.records, sparks)}")


def _next_epoch_s(ask: Ask, query: str, folders: Iterator[Path]) -> float:
    return float(ask(query, str(next(folders)))["ms"]) / 1000


def measure_sliding(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Windows of a minute every second, against windows of a minute."""
    records, span_ms = sizes.sliding_records, SLIDING_MS
    epochs = _epochs(sizes.rounds, records, sizes.sliding_keys, span_ms)
    overlapping = partial(sliding, size_ms=SLIDING_MS, slide_ms=SLIDE_MS)
    with (
        _job(session, epochs, overlapping) as many,
        _job(session, epochs, partial(tumbling, size_ms=SLIDING_MS)) as one,
    ):
        took = take_turns({"sliding": many.epoch_s, "tumbling": one.epoch_s}, sizes.rounds, WARM_UP_ROUNDS)
    name = f"sliding 60 s by 1 s, {sizes.sliding_keys:,} keys, to tumbling 60 s"
    report.add(at_most(name, median_ratio(took["sliding"], took["tumbling"]), 3))
    report.note(f"{_rate(records, took['sliding'])}, tumbling {_rate(records, took['tumbling'])}")


def measure_skew(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Most records in one key, against keys that are all alike."""
    records, keys, program = sizes.skew_records, sizes.skew_keys, partial(tumbling, size_ms=TUMBLING_MS)
    hot = _epochs(sizes.rounds, records, keys, TUMBLING_MS, sizes.hot)
    uniform = _epochs(sizes.rounds, records, keys, TUMBLING_MS)
    with _job(session, hot, program) as one, _job(session, uniform, program) as all_alike:
        took = take_turns({"hot": one.epoch_s, "uniform": all_alike.epoch_s}, sizes.rounds, WARM_UP_ROUNDS)
    name = f"skew: {sizes.hot:.0%} of records in one of {keys:,} keys, to uniform"
    report.add(at_least(name, median_ratio(took["uniform"], took["hot"]), 0.7))
    report.note(f"{_rate(records, took['hot'])}, uniform {_rate(records, took['uniform'])}")


def measure_custom(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """A user's aggregate function in windows, against a user's process function with state."""
    records = sizes.custom_records
    for keys in (sizes.few_keys, sizes.custom_keys):
        epochs = _epochs(sizes.rounds, records, keys, TUMBLING_MS)
        with (
            _job(session, epochs, partial(custom, size_ms=TUMBLING_MS)) as windows,
            _job(session, epochs, running) as state,
        ):
            took = take_turns({"windows": windows.epoch_s, "state": state.epoch_s}, sizes.rounds, WARM_UP_ROUNDS)
        name = f"custom aggregate, {keys:,} keys, to a process function"
        report.add(at_least(name, median_ratio(took["state"], took["windows"]), 0.6))
        report.note(f"{_rate(records, took['windows'])}, process function {_rate(records, took['state'])}")


def measure_sessions(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Epochs that close as many sessions, while very many others are open and while none is."""
    closed, stretches = sizes.sessions_closed, sizes.session_stretches
    stop = stretches + SESSION_WARM_UP_ROUNDS + sizes.session_rounds
    measured = [SessionRecords(stretch, stretch + 1, closed) for stretch in range(stretches, stop)]
    # Ten stretches at a time, without waiting: none of these sessions is due before the first measured epoch.
    loading = [SessionRecords(first, min(first + 10, stretches), closed) for first in range(0, stretches, 10)]
    with (
        _job(session, [*loading, *measured], partial(sessions, open_stretches=stretches)) as many,
        _job(session, measured, partial(sessions, open_stretches=1)) as few,
    ):
        load_s = sum(many.epoch_s() for _ in loading)
        took = take_turns({"many": many.epoch_s, "few": few.epoch_s}, sizes.session_rounds, SESSION_WARM_UP_ROUNDS)
        # Of those of the small job, the last are still open.
        _check_closed(many, closed * len(measured))
        _check_closed(few, closed * (len(measured) - 1))
    name = f"closing {closed:,} sessions of {closed * stretches:,} open, to {closed:,} open"
    report.add(at_most(name, median_ratio(took["many"], took["few"]), 1.5))
    medians = {which: f"{1000 * statistics.median(times_s):.0f} ms" for which, times_s in took.items()}
    loaded = f"loaded at {closed * stretches / load_s / 1e3:.0f} k sessions/s"
    report.note(f"{medians['many']}, with few {medians['few']}; {loaded}")


def _check_closed(job: GatedJob, expected: int) -> None:
    """A figure is valid only if the job has closed this many sessions."""
    newest = ManifestLog(open_store(job.store)).newest()
    closed = newest.counters["operators"][SESSIONS_UID]["out"] if newest else 0
    if closed != expected:
        raise RuntimeError(f"{closed:,} sessions were closed, expected {expected:,}: not what was to be measured")


PARTS: dict[str, Callable[[Report, SparkSession, Sizes], None]] = {
    "tumbling": measure_tumbling,
    "sliding": measure_sliding,
    "skew": measure_skew,
    "custom": measure_custom,
    "sessions": measure_sessions,
}


if __name__ == "__main__":
    sys.exit(run_parts("windows", "windows in columns", PARTS, Sizes(), QUICK, tasks=TASKS))
