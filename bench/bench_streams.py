"""`make bench-streams`: programs that are more than a line of operators, in one run on one machine.

    async        calls to a service that answers after 20 ms, 100 at once, against one after another

Ours is always a whole epoch of a real job, to its manifest. Choose parts with --only; --quick for a smoke test.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# Workers import what is defined beside this file, too; they inherit this when the JVM starts.
os.environ["PYTHONPATH"] = os.pathsep.join([str(FOLDER), str(FOLDER.parent / "src"), os.environ.get("PYTHONPATH", "")])
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src")]

from gated import GatedJob  # noqa: E402
from measure import Report, at_least, take_turns  # noqa: E402
from parts import run_parts  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from records import Longs  # noqa: E402
from slow_service import ANSWER_TYPE, Ask, slow_service  # noqa: E402

from millstream.common import Time, Types  # noqa: E402
from millstream.datastream import AsyncDataStream, DataStream  # noqa: E402

TASKS = 2
SERVICE_MS = 20


@dataclass(frozen=True)
class Sizes:
    """How much is measured. `async_records` are those of one epoch."""

    async_records: int = 20_000
    async_rounds: int = 3
    one_by_one_records: int = 200


QUICK = Sizes(async_records=4_000, async_rounds=1, one_by_one_records=50)


def _asking(port: int, capacity: int) -> Callable[[DataStream], DataStream]:
    def program(numbers: DataStream) -> DataStream:
        return AsyncDataStream.ordered_wait(numbers, Ask(port), Time.seconds(60), capacity, ANSWER_TYPE)

    return program


def measure_async(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Both in one subtask: what is compared is the waiting."""
    many, few = sizes.async_records, sizes.one_by_one_records
    with (
        slow_service(SERVICE_MS) as port,
        GatedJob(session, 1, Longs(many), Types.LONG(), _asking(port, 100), 1) as at_once,
        GatedJob(session, 1, Longs(few), Types.LONG(), _asking(port, 1), 1) as one_by_one,
    ):
        took = take_turns({"at once": at_once.epoch_s, "one by one": one_by_one.epoch_s}, sizes.async_rounds)
    rates = [many / took_s for took_s in took["at once"]]
    alone = [few / took_s for took_s in took["one by one"]]
    ratio = statistics.median(fast / slow for fast, slow in zip(rates, alone, strict=True))
    report.add(at_least(f"async: 100 calls at once to a service of {SERVICE_MS} ms, to one by one", ratio, 50))
    report.note(f"{statistics.median(rates):,.0f} calls/s, one by one {statistics.median(alone):,.1f} calls/s")


PARTS: dict[str, Callable[[Report, SparkSession, Sizes], None]] = {
    "async": measure_async,
}


if __name__ == "__main__":
    sys.exit(run_parts("streams", "several streams, and calls to services", PARTS, Sizes(), QUICK, tasks=TASKS))
