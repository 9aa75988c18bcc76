"""`make bench-width`: the cost of one more task. The smallest epoch of one job at five widths, on two cores.

One record an epoch, counted by key in a `ValueState` downstream of one exchange, on 4,096 keys: two stages, so 2 ×
parallelism tasks. The duration of an epoch must grow with the number of its tasks, and with nothing else: the cost of a
task at parallelism 128 is compared with that at 8; at 512, far beyond these cores, it is reported only. The bare Spark
job of the same shape is also reported only: empty rows cross one `repartitionById` between two `mapInArrow`. Its own
cost of a task grows too, with the lookups of every shuffle of that width.

Ours is a whole epoch of a real job, from the previous manifest to its own, synced to disk.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
# Workers import modules of this folder, too; they inherit this when the JVM starts.
os.environ["PYTHONPATH"] = os.pathsep.join([str(FOLDER), str(FOLDER.parent / "src"), os.environ.get("PYTHONPATH", "")])
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src")]

import hand_written as hand  # noqa: E402
from gated import GatedJob  # noqa: E402
from measure import Report, at_most, median_ratio, take_turns, timed_s  # noqa: E402
from parts import run_parts  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from records import Longs  # noqa: E402

from millstream.common.typeinfo import Types  # noqa: E402
from millstream.datastream import KeyedProcessFunction, RuntimeContext  # noqa: E402
from millstream.datastream.state import ValueStateDescriptor  # noqa: E402
from millstream.spark.session import separate_session  # noqa: E402

CORES = 2
STAGES = 2
WIDTHS = (2, 8, 32, 128)
NARROW, WIDE = 8, 128
TOLD_WIDTH = 512
SIDES = ("ours", "bare")
KEY_GROUPS = {"pipeline.max-parallelism": "512"}
# So that every subtask has state.
LOADING = (Longs(4_096),)


@dataclass(frozen=True)
class Sizes:
    """The size of the measurement."""

    warm_up: int = 12
    rounds: int = 5
    epochs_per_round: int = 2


QUICK = Sizes(warm_up=3, rounds=2, epochs_per_round=1)


class CountOfKey(KeyedProcessFunction):
    """Counts the records of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield count


def _same(value: int) -> int:
    return value


def _build(stream: Any) -> Any:
    return stream.key_by(_same, Types.LONG()).process(CountOfKey(), Types.LONG())


def _epoch_s(job: GatedJob, count: int) -> float:
    return statistics.median(job.epochs_s(count))


def _execution_s(frame: DataFrame, count: int) -> float:
    return statistics.median(timed_s(lambda: hand.collect(frame)) for _ in range(count))


def _turns(session: SparkSession, sizes: Sizes, widths: Sequence[int], rounds: int) -> dict[str, list[float]]:
    """These widths take turns, ours and the bare job's."""
    with ExitStack() as stack:
        contestants = {}
        for width in widths:
            job = stack.enter_context(GatedJob(session, 1, Longs(1), Types.LONG(), _build, width, LOADING, KEY_GROUPS))
            frame = hand.smallest(separate_session(session), 1, width)
            # Each task has to be opened once in every worker process before epochs are comparable.
            job.epochs_s(sizes.warm_up)
            for _ in range(3):
                hand.collect(frame)
            contestants[f"ours {width}"] = partial(_epoch_s, job, sizes.epochs_per_round)
            contestants[f"bare {width}"] = partial(_execution_s, frame, sizes.epochs_per_round)
        return take_turns(contestants, rounds)


def measure_width(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """The judged widths, and then, in one round, the one that is only reported."""
    took = _turns(session, sizes, WIDTHS, sizes.rounds)
    growth = {side: median_ratio(_per_task(took, side, WIDE), _per_task(took, side, NARROW)) for side in SIDES}
    report.add(at_most(f"time per task at parallelism {WIDE}, to {NARROW}", growth["ours"], 1.5))
    report.note(f"the bare Spark job's time per task at parallelism {WIDE}, to {NARROW}: {growth['bare']:.2f} ×")
    took |= _turns(session, sizes, [TOLD_WIDTH], 1)
    for width in (*WIDTHS, TOLD_WIDTH):
        ours, bare = (statistics.median(took[f"{side} {width}"]) for side in SIDES)
        our_task, bare_task = (statistics.median(_per_task(took, side, width)) for side in SIDES)
        report.note(
            f"parallelism {width}: {1000 * ours:.0f} ms, {1000 * our_task:.2f} ms a task; "
            f"bare {1000 * bare:.0f} ms, {1000 * bare_task:.2f} ms a task"
        )


def _per_task(took: Mapping[str, Sequence[float]], side: str, width: int) -> list[float]:
    return [s / (STAGES * width) for s in took[f"{side} {width}"]]


def main() -> int:
    """Measure; the exit code says whether every requirement holds."""
    return run_parts("width", "what one more task costs", {"width": measure_width}, Sizes(), QUICK, tasks=CORES)


if __name__ == "__main__":
    sys.exit(main())
