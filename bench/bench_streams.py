"""`make bench-streams`: programs with several streams or exchanges, in one run on one machine.

    interval-join  orders and payments of a key within a time interval, against Spark's own stream-stream join, same
    files
    broadcast      records enriched from broadcast state, against the same in a dictionary: by a process function, which
                   yields its results too, and by a plain map, which returns them
    exchanges      a program with two exchanges, against the same with one
    async          calls to a service that responds after 20 ms, 100 concurrently, against one after another

Ours is always a whole epoch of a real job, to its manifest. Choose parts with --only; --quick for a smoke test.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
# Workers import modules of this folder, too; they inherit this when the JVM starts.
os.environ["PYTHONPATH"] = os.pathsep.join([str(FOLDER), str(FOLDER.parent / "src"), os.environ.get("PYTHONPATH", "")])
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src")]

from gated import Build, Feed, GatedJob  # noqa: E402
from join_records import (  # noqa: E402
    DISORDER_MS,
    LOWER_MS,
    ORDER_TYPE,
    PAYMENT_TYPE,
    SIDES,
    UPPER_MS,
    PairSums,
    StoredSide,
    joined_by_function,
    joined_in_columns,
    write_epoch,
)
from keyed_programs import AMOUNT_TYPE, Amounts  # noqa: E402
from measure import Report, at_least, at_most, median_ratio, take_turns  # noqa: E402
from parts import run_parts  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from records import Longs  # noqa: E402
from slow_service import ANSWER_TYPE, Ask, slow_service  # noqa: E402
from spark_child import spark_child  # noqa: E402
from stream_programs import (  # noqa: E402
    RULE_TYPE,
    SALE_TYPE,
    Rules,
    Sales,
    by_broadcast_state,
    by_dictionary,
    by_process_function,
    dealt_out,
    keyed_again,
)

from millstream.common import Time, Types  # noqa: E402
from millstream.datastream import AsyncDataStream, DataStream  # noqa: E402

TASKS = 2
SERVICE_MS = 20
JOIN_WARM_UP_ROUNDS = 3


@dataclass(frozen=True)
class Sizes:
    """The size of the measurement. All records are those of one epoch; of the join, those of each side."""

    join_records: int = 200_000
    join_keys: int = 100_000
    join_rounds: int = 10
    broadcast_records: int = 6_000_000
    broadcast_rounds: int = 5
    exchange_records: int = 10_000_000
    keyed_records: int = 2_000_000
    exchange_rounds: int = 5
    async_records: int = 20_000
    async_rounds: int = 3
    one_by_one_records: int = 200


QUICK = Sizes(
    join_records=60_000, join_keys=30_000, join_rounds=3, broadcast_records=2_000_000, broadcast_rounds=3,
    exchange_records=2_000_000, keyed_records=300_000, exchange_rounds=3, async_records=4_000, async_rounds=1,
    one_by_one_records=50,
)  # fmt: skip


class SparkJoin:
    """Spark's own join, fed one epoch at a time; collects its reports."""

    def __init__(self, ask: Callable[[str, str], dict[str, Any]], query: str, folders: list[Path]) -> None:
        self._ask, self._query, self._folders = ask, query, iter(folders)
        self.pairs = self.checksum = 0

    def epoch_s(self) -> float:
        """The next epoch."""
        told = self._ask(self._query, str(next(self._folders)))
        if told["batches"] != 1:
            raise RuntimeError(f"Spark took {told['batches']} micro-batches for an epoch, expected 1: run it again")
        self.pairs += told["pairs"]
        self.checksum += told["checksum"]
        return float(told["ms"]) / 1000


def _join_job(session: SparkSession, folders: list[Path], program: Build, sink: PairSums) -> GatedJob:
    left, right = ([StoredSide(str(folder / side)) for folder in folders] for side in SIDES)
    payments = Feed(right[-1], PAYMENT_TYPE, right)
    return GatedJob(session, TASKS, left[-1], ORDER_TYPE, program, TASKS, left, beside=payments, sink=sink)


def measure_interval_join(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """In columns and by a function, against Spark's own with its state in either place. All must produce the same
    pairs.
    """
    ours = {"columns": joined_in_columns, "function": joined_by_function}
    sinks = {name: PairSums() for name in ours}
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millstream-bench-")))
        folders = [place / str(epoch) for epoch in range(JOIN_WARM_UP_ROUNDS + sizes.join_rounds)]
        for epoch, folder in enumerate(folders):
            write_epoch(epoch, sizes.join_records, sizes.join_keys, folder, TASKS)
        ask = stack.enter_context(spark_child(FOLDER / "join_child.py", DISORDER_MS, LOWER_MS, UPPER_MS))
        sparks = {name: SparkJoin(ask, name, folders) for name in ("rocksdb", "memory")}
        jobs = {
            name: stack.enter_context(_join_job(session, folders, program, sinks[name]))
            for name, program in ours.items()
        }
        contestants = {name: one.epoch_s for name, one in (jobs | sparks).items()}
        took = take_turns(contestants, sizes.join_rounds, JOIN_WARM_UP_ROUNDS)
    found = {name: sink.totals() for name, sink in sinks.items()}
    found |= {name: (spark.pairs, spark.checksum) for name, spark in sparks.items()}
    if len(set(found.values())) != 1:
        raise RuntimeError(f"not all joined the same pairs; (pairs, checksum) are {found}")
    best = min(sparks, key=lambda name: statistics.median(took[name]))
    name = f"interval join, {sizes.join_keys:,} keys, to Spark's own (state: {best})"
    report.add(at_least(name, median_ratio(took[best], took["columns"]), 3))
    both = 2 * sizes.join_records
    rates = {name: f"{both / statistics.median(times_s) / 1e3:,.0f} k/s" for name, times_s in took.items()}
    report.note(
        f"{rates['columns']}, by a function {rates['function']}; Spark's own in RocksDB {rates['rocksdb']}, "
        f"in memory {rates['memory']}; {found['columns'][0]:,} pairs each"
    )


def measure_broadcast(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Rules for 100 groups, one of them replaced in every epoch; the other two variants know them from the start."""
    records = sizes.broadcast_records
    rules = Feed(Rules(1), RULE_TYPE, [Rules(100)])
    with (
        GatedJob(session, TASKS, Sales(records), SALE_TYPE, by_broadcast_state, TASKS, beside=rules) as broadcast,
        GatedJob(session, TASKS, Sales(records), SALE_TYPE, by_process_function, TASKS) as process,
        GatedJob(session, TASKS, Sales(records), SALE_TYPE, by_dictionary, TASKS) as plain,
    ):
        contestants = {"broadcast": broadcast.epoch_s, "process": process.epoch_s, "plain": plain.epoch_s}
        took = take_turns(contestants, sizes.broadcast_rounds)
    ratio = median_ratio(took["process"], took["broadcast"])
    report.add(at_least("broadcast: enriched from broadcast state, to a process function", ratio, 0.8))
    ratio = median_ratio(took["plain"], took["broadcast"])
    report.add(at_least("broadcast: enriched from broadcast state, to a plain map", ratio, 0.6))
    rates = {name: _rate(records, times_s) for name, times_s in took.items()}
    report.note(f"{rates['broadcast']}, process function {rates['process']}, plain map {rates['plain']}")


def measure_exchanges(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Two light functions with an exchange before the first, or before both: in columns, and by key and record.

    In columns the functions cost next to nothing, so one exchange is nearly the whole program: the requirement is that
    the second is not more expensive than the first.
    """
    kinds = {"rebalance": (dealt_out, sizes.exchange_records, 2.0), "key_by": (keyed_again, sizes.keyed_records, 2.0)}
    for name, (program, records, bound) in kinds.items():
        input_ = Amounts(records, 100_000)
        with (
            GatedJob(session, TASKS, input_, AMOUNT_TYPE, partial(program, exchanges=1), TASKS) as one,
            GatedJob(session, TASKS, input_, AMOUNT_TYPE, partial(program, exchanges=2), TASKS) as two,
        ):
            took = take_turns({"one": one.epoch_s, "two": two.epoch_s}, sizes.exchange_rounds)
        report.add(at_most(f"exchanges: two by {name}, to one", median_ratio(took["two"], took["one"]), bound))
        report.note(f"{_rate(records, took['two'])}, with one {_rate(records, took['one'])}")


def _rate(records: int, took_s: list[float]) -> str:
    return f"{records / statistics.median(took_s) / 1e6:.2f} M/s"


def _asking(port: int, capacity: int) -> Callable[[DataStream], DataStream]:
    def program(numbers: DataStream) -> DataStream:
        return AsyncDataStream.ordered_wait(numbers, Ask(port), Time.seconds(60), capacity, ANSWER_TYPE)

    return program


def measure_async(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Both in one subtask: the waiting is compared. Sequentially a service of 20 ms responds 50 times a second, so
    that side has fewer records; calls per second are compared.
    """
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
    "interval-join": measure_interval_join,
    "broadcast": measure_broadcast,
    "exchanges": measure_exchanges,
    "async": measure_async,
}


if __name__ == "__main__":
    sys.exit(run_parts("streams", "several streams, and calls to services", PARTS, Sizes(), QUICK, tasks=TASKS))
