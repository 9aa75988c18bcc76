"""`make bench-state`: keyed state, its speed, its growth, its memory, in one run on one machine.

    records      sum and count in a ValueState by a KeyedProcessFunction, few keys, many, very many; and against a
                 hand-written loop with a Python dictionary
    columns      the same in columns, against hand-written numpy with a Parquet file as state
    growth       small epochs on a large state, against the same on an empty one
    memory       a state larger than memory: the private memory of every Python process
    points       single keys of an open version, one thread
    maps         a large map of one key: the cost of touching some entries, and the memory of iterating over it
    timers       an epoch in which none of many timers is due, against one without timers
    compaction   the slowest epochs against the usual ones during compaction

Ours is always a whole epoch of a real job, to its manifest. Choose parts with --only; --quick for a smoke test.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# Workers import modules of this folder, too; they inherit this when the JVM starts.
os.environ["PYTHONPATH"] = os.pathsep.join([str(FOLDER), str(FOLDER.parent / "src"), os.environ.get("PYTHONPATH", "")])
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src")]

import keyed_baselines as hand  # noqa: E402
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
from gated import Batches, GatedJob  # noqa: E402
from hand_written import collect  # noqa: E402
from hot_maps import HotMap  # noqa: E402
from keyed_programs import (  # noqa: E402
    AMOUNT_TYPE,
    TOTAL_TYPE,
    Amounts,
    ColumnTotals,
    Payloads,
    Population,
    TimedTotals,
    Totals,
)
from measure import Report, at_least, at_most, median_ratio, take_turns, timed_s  # noqa: E402
from parts import run_parts  # noqa: E402
from private_memory import PrivateMemory  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

from millstream.common.typeinfo import Types  # noqa: E402
from millstream.datastream import DataStream  # noqa: E402
from millstream.state.keys.key_columns import key_column  # noqa: E402
from millstream.state.segments.open_segments import OpenSegments  # noqa: E402
from millstream.state.tables.changes import TableChanges  # noqa: E402
from millstream.state.tables.layout import TableLayout  # noqa: E402
from millstream.state.tables.table import TableView  # noqa: E402
from millstream.storage import open_store  # noqa: E402

TASKS = 2


@dataclass(frozen=True)
class Sizes:
    """The size of the measurement."""

    records: int = 5_000_000
    few_keys: int = 100
    many_keys: int = 100_000
    most_keys: int = 2_000_000
    rounds: int = 3
    loaded_keys: int = 10_000_000
    loading_epoch: int = 1_000_000
    small_epoch: int = 100_000
    small_epochs: int = 15
    memory_keys: int = 30_000_000
    memory_updates: int = 5_000_000
    memory_bytes_max: int = 1 << 30
    point_keys: int = 2_000_000
    point_reads: int = 300_000
    map_entries: int = 1_000_000
    map_touched: int = 5_000
    timers: int = 1_000_000
    compaction_epochs: int = 200


QUICK = Sizes(
    records=500_000, many_keys=10_000, most_keys=200_000, loaded_keys=500_000, loading_epoch=250_000,
    small_epoch=20_000, small_epochs=8, memory_keys=600_000, memory_updates=200_000, point_keys=200_000,
    point_reads=100_000, map_entries=1_000_000, timers=100_000, compaction_epochs=30,
)  # fmt: skip

Program = Callable[[DataStream], DataStream]


def _by_record(stream: DataStream) -> DataStream:
    return stream.key_by(0).process(Totals(), TOTAL_TYPE)


def _by_column(stream: DataStream) -> DataStream:
    return stream.key_by(0).process_batches(ColumnTotals(), TOTAL_TYPE)


def _with_timers(stream: DataStream) -> DataStream:
    return stream.key_by(0).process(TimedTotals(), TOTAL_TYPE)


def _payloads(stream: DataStream) -> DataStream:
    return stream.key_by(0).process(Payloads(), Types.LONG())


def _job(session: SparkSession, batches: Batches, program: Program, loading: Sequence[Batches] = ()) -> GatedJob:
    return GatedJob(session, TASKS, batches, AMOUNT_TYPE, program, TASKS, loading)


def _execution_s(frame: object) -> float:
    return timed_s(lambda: collect(frame))  # type: ignore[arg-type]


def _populations(keys: int, per_epoch: int, amount: int = 1) -> list[Population]:
    """All keys below `keys`, in epochs."""
    return [Population(first, min(first + per_epoch, keys), amount) for first in range(0, keys, per_epoch)]


def _rate(records: int, took_s: Sequence[float]) -> str:
    return f"{records / statistics.median(took_s) / 1e6:.2f} M/s"


def _median_ms(took_s: Sequence[float]) -> str:
    return f"{1000 * statistics.median(took_s):.0f} ms"


def measure_records(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """A function per record: very many keys against few, and few against a loop over a dictionary."""
    inputs = [Amounts(sizes.records, keys) for keys in (sizes.few_keys, sizes.many_keys, sizes.most_keys)]
    with ExitStack() as stack:
        contestants = {
            str(amounts.keys): stack.enter_context(_job(session, amounts, _by_record)).epoch_s for amounts in inputs
        }
        # Typed rows cross the JVM faster with Spark's own settings.
        for amounts in inputs:
            frame = hand.dict_totals(session.newSession(), amounts, str(amounts.keys))
            contestants[f"dict {amounts.keys}"] = partial(_execution_s, frame)
        took = take_turns(contestants, sizes.rounds)
    few, most = str(sizes.few_keys), str(sizes.most_keys)
    ratio = median_ratio(took[few], took[most])
    report.add(at_least(f"per record: {sizes.most_keys:,} keys to {sizes.few_keys} keys", ratio, 0.8))
    ratio = median_ratio(took[f"dict {few}"], took[few])
    report.add(at_least(f"per record, {sizes.few_keys} keys, to a loop with a dict", ratio, 0.7))
    for amounts in inputs:
        ours, theirs = took[str(amounts.keys)], took[f"dict {amounts.keys}"]
        report.note(f"{amounts.keys:,} keys: {_rate(sizes.records, ours)}, dict {_rate(sizes.records, theirs)}")


def measure_columns(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Sum and count in columns against numpy and Parquet."""
    for keys in (sizes.few_keys, sizes.many_keys, sizes.most_keys):
        amounts = Amounts(sizes.records, keys)
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="millstream-bench-"))
            job = stack.enter_context(_job(session, amounts, _by_column))
            frame = hand.column_totals(session.newSession(), amounts, folder)
            took = take_turns({"ours": job.epoch_s, "theirs": partial(_execution_s, frame)}, sizes.rounds)
        name, ratio = f"columns, {keys:,} keys, to numpy and Parquet", median_ratio(took["theirs"], took["ours"])
        report.add(at_least(name, ratio, 0.8))
        report.note(f"{_rate(sizes.records, took['ours'])}, hand-written {_rate(sizes.records, took['theirs'])}")


def measure_growth(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Small epochs on a large state and on an empty one."""
    amounts = Amounts(sizes.small_epoch, sizes.loaded_keys)
    loading = _populations(sizes.loaded_keys, sizes.loading_epoch)
    with _job(session, amounts, _by_record, loading) as large, _job(session, amounts, _by_record) as empty:
        load_s = sum(large.epoch_s() for _ in loading)
        took = take_turns({"large": large.epoch_s, "empty": empty.epoch_s}, sizes.small_epochs, warm_up_rounds=3)
    name = f"epoch of {sizes.small_epoch:,} on {sizes.loaded_keys:,} keys, to empty"
    report.add(at_most(name, median_ratio(took["large"], took["empty"]), 1.3))
    loaded = f"loaded at {sizes.loaded_keys / load_s / 1e6:.2f} M keys/s"
    report.note(f"{_median_ms(took['large'])}, empty {_median_ms(took['empty'])}; {loaded}")


def measure_memory(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Many keys of 100 bytes, loaded and updated, while every Python process is watched."""
    amounts = Amounts(sizes.memory_updates, sizes.memory_keys)
    loading = _populations(sizes.memory_keys, sizes.loading_epoch)
    with PrivateMemory() as memory, _job(session, amounts, _payloads, loading) as job:
        took_s = sum(job.epoch_s() for _ in range(len(loading) + 1))
        stored = sum(path.stat().st_size for path in Path(job.store).rglob("*") if path.is_file())
    bound = sizes.memory_bytes_max / (1 << 20)
    name = f"private memory of a Python process, {sizes.memory_keys:,} keys"
    report.add(at_most(name, memory.most_bytes / (1 << 20), bound, "MiB"))
    report.note(f"{stored / 1e9:.1f} GB stored, {took_s:.0f} s, {memory.samples} samples of {memory.seen} processes")


def measure_points(report: Report, sizes: Sizes) -> None:
    """Single keys from a view that stays open, in a version of four segments."""
    layout = TableLayout("total", pa.int64(), value_type=pa.int64())
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        store = open_store(folder)
        refs = []
        for part in range(4):
            keys = list(range(part, sizes.point_keys, 4))
            changes = TableChanges(layout)
            changes.put(key_column(keys, Types.LONG()), pa.array(keys, pa.int64()))
            ref = changes.write(store, f"segments/{part}.arrow", part + 1, range(128))
            assert ref is not None
            refs.append(ref)
        view = TableView(OpenSegments(store), layout, refs, range(128), now_ms=0)
        asked = np.random.default_rng(1).integers(0, sizes.point_keys, sizes.point_reads).tolist()
        rates = []
        for _ in range(sizes.rounds + 1):
            started = time.perf_counter()
            found = list(map(view.get_value, asked))
            rates.append(len(asked) / (time.perf_counter() - started) / 1000)
            assert found == asked
    report.add(at_least("point reads of an open version, one thread", statistics.median(rates[1:]), 100, "k/s"))


def measure_maps(report: Report, sizes: Sizes) -> None:
    """Entries of a large map against those of one a hundredth its size."""
    small = sizes.map_entries // 100
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        maps = {str(entries): HotMap(f"{folder}/{entries}", entries) for entries in (small, sizes.map_entries)}
        contestants = {name: partial(hot_map.touched_s, sizes.map_touched) for name, hot_map in maps.items()}
        took = take_turns(contestants, 3 * sizes.rounds, warm_up_rounds=2)
        passed_bytes = maps[str(sizes.map_entries)].passed_bytes()
    large, ratio = str(sizes.map_entries), median_ratio(took[str(sizes.map_entries)], took[str(small)])
    name = f"{sizes.map_touched:,} put and get, map of {sizes.map_entries:,} to {small:,}"
    report.add(at_most(name, ratio, 3))
    report.note(f"{_median_ms(took[large])}, of {small:,} entries {_median_ms(took[str(small)])}, processor time")
    name = f"memory to go through {sizes.map_entries:,} entries"
    report.add(at_most(name, passed_bytes / (1 << 20), 64, "MiB"))


def measure_timers(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Epochs in which no timer is due, with many pending and with none."""
    amounts = Amounts(sizes.small_epoch, sizes.many_keys)
    loading = _populations(sizes.timers, sizes.loading_epoch, amount=-1)
    with _job(session, amounts, _with_timers, loading) as pending, _job(session, amounts, _with_timers) as none:
        for _ in loading:
            pending.epoch_s()
        took = take_turns({"pending": pending.epoch_s, "none": none.epoch_s}, sizes.small_epochs, warm_up_rounds=3)
    name = f"epoch with {sizes.timers:,} pending timers (of each kind), to none"
    report.add(at_most(name, median_ratio(took["pending"], took["none"]), 1.2))
    report.note(f"{_median_ms(took['pending'])}, without {_median_ms(took['none'])}")


def measure_compaction(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Epoch after epoch of changes all over the keys: the slowest against the usual."""
    amounts = Amounts(sizes.small_epoch, sizes.most_keys)
    with _job(session, amounts, _by_record) as job:
        job.epochs_s(5)
        took = sorted(job.epochs_s(sizes.compaction_epochs))
        merged = sum(path.name.endswith("c.arrow") for path in Path(job.store).rglob("*.arrow"))
    usual, slowest = statistics.median(took), took[min(len(took) - 1, int(len(took) * 0.99))]
    report.add(at_most("epoch p99 to p50 while segments are merged", slowest / usual, 3))
    report.note(f"p50 {1000 * usual:.0f} ms, p99 {1000 * slowest:.0f} ms; {merged} merged segments among the files")


PARTS: dict[str, Callable[[Report, SparkSession, Sizes], None]] = {
    "records": measure_records,
    "columns": measure_columns,
    "growth": measure_growth,
    "memory": measure_memory,
    "timers": measure_timers,
    "compaction": measure_compaction,
}


if __name__ == "__main__":
    sys.exit(
        run_parts(
            "state",
            "keyed state: speed, growth, memory",
            PARTS,
            Sizes(),
            QUICK,
            tasks=TASKS,
            without_spark={"points": measure_points, "maps": measure_maps},
        )
    )
