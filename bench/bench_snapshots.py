"""`make bench-snapshots`: the cost of saving, restoring and rescaling a job, in one run on one machine.

    savepoint    a savepoint by reference of a large state, against one small epoch of the same job
    restore      from the start of a job to its first epoch: from a snapshot of a large state, against an empty store
    rescale      2 → 4 → 2 tasks while the job runs: the extra cost of the epochs after it, against those that follow
    growth       an epoch's snapshot cost, with few changes in a large state and in a small one
    history      epochs of a job that retains ten thousand, against one that retains its own, and the driver's memory

Ours is always a whole epoch of a real job, to its manifest. Choose parts with --only; --quick for a smoke test.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# Workers import modules of this folder, too; they inherit this when the JVM starts.
os.environ["PYTHONPATH"] = os.pathsep.join([str(FOLDER), str(FOLDER.parent / "src"), os.environ.get("PYTHONPATH", "")])
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src")]

import psutil  # noqa: E402
from gated import Batches, GatedJob  # noqa: E402
from keyed_programs import AMOUNT_TYPE, TOTAL_TYPE, Population, Spread, Totals  # noqa: E402
from measure import Report, at_most, median_ratio, take_turns, timed_s  # noqa: E402
from parts import run_parts  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

from millstream.checkpoint.manifest import Manifest, ManifestLog, encode  # noqa: E402
from millstream.checkpoint.retention import named_files  # noqa: E402
from millstream.datastream import DataStream  # noqa: E402
from millstream.jobs.epochs.epoch_statistics import statistics_of  # noqa: E402
from millstream.storage import open_store  # noqa: E402
from millstream.storage.names import manifest_name, segment_name  # noqa: E402

TASKS = 2
FROM = "execution.state-recovery.path"
_SETTLING_MAX = 12
_CYCLE_EPOCHS = 3
KEEP = {"millstream.retention.epochs": "20000"}


@dataclass(frozen=True)
class Sizes:
    """The size of the measurement."""

    keys: int = 10_000_000
    fewer_keys: int = 1_000_000
    loading_epoch: int = 1_000_000
    small_epoch: int = 100_000
    rounds: int = 9
    restores: int = 3
    settled: int = 5
    rescales: int = 3
    snapshots: int = 27
    history: int = 10_000
    history_epochs: int = 120


QUICK = Sizes(
    keys=400_000, fewer_keys=40_000, loading_epoch=200_000, small_epoch=20_000,
    rounds=4, restores=2, settled=3, rescales=1,
    snapshots=6,
    history=1_000, history_epochs=60,
)  # fmt: skip


def _totals(stream: DataStream) -> DataStream:
    return stream.key_by(0).process(Totals(), TOTAL_TYPE).uid("totals")


def _populations(keys: int, per_epoch: int) -> list[Batches]:
    """All keys below `keys`, in epochs."""
    return [Population(first, min(first + per_epoch, keys), 1) for first in range(0, keys, per_epoch)]


def _job(
    session: SparkSession, amounts: Batches, loading: Sequence[Batches] = (), snapshot: str = "", epochs_before: int = 0
) -> GatedJob:
    settings = {**KEEP, **({FROM: snapshot} if snapshot else {})}
    return GatedJob(session, TASKS, amounts, AMOUNT_TYPE, _totals, TASKS, loading, settings, epochs_before)


def _loaded(session: SparkSession, sizes: Sizes, keys: int) -> GatedJob:
    """A job with this many keys, after the compactions caused by loading them."""
    loading = _populations(keys, sizes.loading_epoch)
    job = _job(session, Spread(sizes.small_epoch, keys), loading)
    for _ in loading:
        job.epoch_s()
    for _ in range(_SETTLING_MAX):
        job.epochs_s(2 * _CYCLE_EPOCHS)
        written = [cost.new_bytes for cost in _snapshot_costs(job, 2 * _CYCLE_EPOCHS)]
        if max(written) < 2 * min(written):
            break
    return job


def _newest(job: GatedJob) -> Manifest:
    newest = ManifestLog(open_store(job.store)).newest()
    assert newest is not None
    return newest


def _ms(took_s: Sequence[float]) -> str:
    return f"{1000 * statistics.median(took_s):.0f} ms"


def measure_savepoint(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Savepoints of a running job, in turn with its epochs."""
    with _loaded(session, sizes, sizes.keys) as job:

        def save() -> float:
            return timed_s(lambda: job.client.trigger_savepoint(None).result())

        took = take_turns({"savepoint": save, "epoch": job.epoch_s}, sizes.rounds)
    ratio = median_ratio(took["savepoint"], took["epoch"])
    report.add(at_most(f"savepoint by reference of {sizes.keys:,} keys, to an epoch", ratio, 1.5))
    report.note(f"savepoint {_ms(took['savepoint'])}, epoch of {sizes.small_epoch:,} records {_ms(took['epoch'])}")


def measure_restore(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Jobs that start with a large state and with none: from their start to their first epoch."""
    with _loaded(session, sizes, sizes.keys) as job:
        store, manifest = open_store(job.store), _newest(job)
        files = sorted(named_files(manifest))
        epochs = _epochs_read(manifest)
        amounts = Spread(sizes.small_epoch, sizes.keys)

        def first_epoch_s(snapshot: str = "", epochs_before: int = 0) -> float:
            started = time.perf_counter()
            with _job(session, amounts, (), snapshot, epochs_before) as begun:
                begun.epoch_s()
                return time.perf_counter() - started

        took = take_turns(
            {
                "restored": lambda: first_epoch_s(f"{job.store}@{manifest.epoch}", epochs),
                "empty": first_epoch_s,
                "read": lambda: timed_s(lambda: [store.get(name) for name in files]),
            },
            sizes.restores,
        )
    allowed = [3 * empty + read for empty, read in zip(took["empty"], took["read"], strict=True)]
    name = f"restore of {sizes.keys:,} keys to an epoch, to 3 × empty + reading"
    report.add(at_most(name, median_ratio(took["restored"], allowed), 1))
    read = f"reading {len(files)} files {_ms(took['read'])}"
    report.note(f"restored {_ms(took['restored'])}, empty {_ms(took['empty'])}, {read}")


def measure_rescale(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """The number of epochs' worth of time lost when the job is rescaled."""
    lost: dict[tuple[int, int], list[float]] = {(2, 4): [], (4, 2): []}
    usual: dict[int, list[float]] = {2: [], 4: []}
    with _loaded(session, sizes, sizes.keys) as job:
        for _ in range(sizes.rescales + 1):  # the first round starts Python workers, and does not count
            for (_, tasks), found in lost.items():
                job.client.rescale(tasks)
                took = [job.epoch_s() for _ in range(2 * sizes.settled)]
                settled = statistics.median(took[sizes.settled :])
                usual[tasks].append(settled)
                found.append(sum(took[: sizes.settled]) / settled - sizes.settled)
    for (before, after), found in lost.items():
        name = f"rescale {before} → {after} with {sizes.keys:,} keys, lost time in epochs"
        report.add(at_most(name, statistics.median(found[1:]), 2, ""))
    report.note(
        f"epochs of {sizes.small_epoch:,}: {_ms(usual[2])} with 2 tasks, {_ms(usual[4])} with 4, on {TASKS} cores"
    )


def measure_growth(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """The tasks' time to write their state and the driver's to write the manifest, with equal changes in both
    states.
    """
    with _loaded(session, sizes, sizes.keys) as large, _loaded(session, sizes, sizes.fewer_keys) as small:
        jobs = {sizes.keys: large, sizes.fewer_keys: small}
        # The duration of an epoch's commit is in the next manifest.
        take_turns({str(keys): job.epoch_s for keys, job in jobs.items()}, sizes.snapshots + 1, warm_up_rounds=0)
        costs = {keys: _snapshot_costs(job, sizes.snapshots) for keys, job in jobs.items()}
    # Compaction has a cycle of some epochs: a figure is the mean of one cycle.
    cycles = {
        keys: [statistics.mean(cost.ms for cost in cycle) for cycle in _cycles(found)] for keys, found in costs.items()
    }
    name = f"snapshot of {sizes.small_epoch:,} changes, {sizes.keys:,} to {sizes.fewer_keys:,} keys"
    report.add(at_most(name, median_ratio(cycles[sizes.keys], cycles[sizes.fewer_keys]), 1.2))
    told = (
        f"{keys:,} keys: {statistics.median(cycles[keys]):.0f} ms, "
        f"{statistics.mean(cost.new_bytes for cost in found) / 1e6:.1f} MB new of {found[-1].bytes / 1e6:.0f} MB"
        for keys, found in costs.items()
    )
    report.note("; ".join(told))


def _cycles(costs: Sequence[_Cost]) -> list[Sequence[_Cost]]:
    return [costs[first : first + _CYCLE_EPOCHS] for first in range(0, len(costs), _CYCLE_EPOCHS)]


@dataclass(frozen=True)
class _Cost:
    """The snapshot cost of one epoch: time of all tasks and of the commit, and bytes."""

    ms: float
    new_bytes: int
    bytes: int


def _snapshot_costs(job: GatedJob, epochs: int) -> list[_Cost]:
    """The last epochs but one: the duration of a commit is in the next manifest."""
    log = ManifestLog(open_store(job.store))
    found = [statistics_of(log.read(epoch)) or {} for epoch in log.epochs()[-epochs - 1 :]]
    return [
        _Cost(
            sum(one["write_us"] for one in told["operators"].values()) / 1000 + after["before"]["commit_ms"],
            told["new_bytes"],
            told["bytes"],
        )
        for told, after in pairwise(found)
    ]


def measure_history(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Epochs of two equal jobs in turn, one of them with a generated history. Both collect every 50 epochs."""
    changes = Spread(sizes.small_epoch, 10 * sizes.small_epoch)
    with _job(session, changes) as seed:
        seed.epochs_s(2)
        newest = _newest(seed)
        committed = replace(newest, epoch=sizes.history + 1, parent=newest.epoch, staged={}, published_through=0)
        assert ManifestLog(open_store(seed.store)).commit(committed)
        snapshot, before = f"{seed.store}@{committed.epoch}", _epochs_read(newest)
        with _job(session, changes, (), snapshot, before) as plain, _job(session, changes, (), snapshot, before) as old:
            jobs = {"plain": plain.epoch_s, "old": old.epoch_s}
            take_turns(jobs, sizes.history_epochs // 2)
            memory = _memory_bytes()
            _write_history(old, sizes.history)
            # Every manifest of the history is read once, in the collector's first pass after it was written.
            take_turns(jobs, sizes.history_epochs)
            took = take_turns(jobs, sizes.history_epochs)
            grown = (_memory_bytes() - memory) / 1e6
            retained = len(ManifestLog(open_store(old.store)).epochs())
    assert retained > sizes.history
    name = f"an epoch with {sizes.history:,} retained, to one without"
    report.add(at_most(name, median_ratio(took["old"], took["plain"]), 1.1))
    report.add(at_most(f"the driver's memory for {sizes.history:,} retained epochs", grown, 50, " MB"))
    report.note(f"with a past {_ms(took['old'])}, without {_ms(took['plain'])}")


def _epochs_read(manifest: Manifest) -> int:
    (splits,) = manifest.sources.values()
    return next(int(str(at.offset)) for at in splits.values())


def _write_history(job: GatedJob, epochs: int) -> None:
    """Manifests as large as those of the job, each of which references two files shared only with the next one."""
    store, newest = open_store(job.store, fsync=False), _newest(job)
    for epoch in range(1, epochs + 1):
        files = [segment_name("totals", "past", n, s, "a") for n in (epoch - 1, epoch) if n for s in range(TASKS)]
        for file in files[-TASKS:]:
            store.put(file, b"rows")
        states = {**newest.states, "past": {"files": files}}
        past = replace(newest, epoch=epoch, parent=epoch - 1, states=states, staged={}, published_through=epoch - 1)
        store.put(manifest_name(epoch), encode(past))


def _memory_bytes() -> int:
    """The memory of this process, the driver; the JVM is another one."""
    gc.collect()
    return psutil.Process().memory_info().rss


PARTS: dict[str, Callable[[Report, SparkSession, Sizes], None]] = {
    "savepoint": measure_savepoint,
    "restore": measure_restore,
    "rescale": measure_rescale,
    "growth": measure_growth,
    "history": measure_history,
}


if __name__ == "__main__":
    sys.exit(run_parts("snapshots", "snapshots: saving, restoring, rescaling", PARTS, Sizes(), QUICK, tasks=TASKS))
