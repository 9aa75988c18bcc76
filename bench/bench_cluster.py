"""`make bench-cluster`: a standalone cluster of Spark and an object store, both on this machine; ratios in one run.

    places    how many tasks of a job in its steady state run where they ran before
    sticky    an epoch of a job with much state, against the same with subtasks without preferred executors
    far       a store that takes 50 ms longer for every request, against a folder: rate of small epochs, throughput
    away      a store outage: input is still read, and committed soon after the outage
    restart   a job with much state restarts on the same machines: the share of its bytes read from the store
    cores     two executors of one core each, against one

The cluster is that of the tests (`cluster_stage`). The store is MinIO behind a proxy that adds latency, or blocks
(`store_road`). Ours is always a real job, to its manifests in the store. All processes share the cores of this machine,
so in addition to wall-clock time the processor time of each part is reported.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src"), str(FOLDER.parent / "tests")]

from cluster_stage import FAR_MS, WORKERS, Spending, Stage, newest_of  # noqa: E402
from gated import GatedJob  # noqa: E402
from keyed_programs import Amounts, Population  # noqa: E402
from measure import Report, at_least, at_most, median_ratio, take_turns  # noqa: E402
from parts import run_parts  # noqa: E402
from store_road import CLOSED, FAR, OPEN  # noqa: E402

STALLED_S = 300.0


@dataclass(frozen=True)
class Sizes:
    """The size of the measurement."""

    loaded_keys: int = 1_000_000
    restarted_keys: int = 10_000_000
    loading_epoch: int = 500_000
    small_epoch: int = 20_000
    large_epoch: int = 1_000_000
    record_epoch: int = 5_000_000  # that of bench-state's per-record job
    epochs: int = 10
    rounds: int = 5
    away_s: float = 60.0


QUICK = Sizes(
    loaded_keys=100_000, restarted_keys=200_000, loading_epoch=100_000, small_epoch=5_000, large_epoch=100_000,
    record_epoch=500_000, epochs=4, rounds=2, away_s=8.0,
)  # fmt: skip


def _populations(keys: int, per_epoch: int) -> list[Population]:
    """All keys below `keys`, in epochs."""
    return [Population(first, min(first + per_epoch, keys), 1) for first in range(0, keys, per_epoch)]


def _epoch_s(job: GatedJob, epochs: int) -> float:
    """The duration of an epoch, averaged over this many in a row: several may be committed as one."""
    began_s = time.perf_counter()
    job.pass_epochs(epochs)
    return (time.perf_counter() - began_s) / epochs


def _places_of_newest(place: str) -> tuple[int, int]:
    """The number of tasks of the newest epoch, and how many of them ran on their previous executor."""
    told = newest_of(place).counters["epoch"]
    assert isinstance(told, dict)
    return int(told["tasks"]), int(told["tasks_stayed"])  # type: ignore[arg-type]


@dataclass
class _WatchedJob:
    """A job, and the cost of its turns; with a store at `place` also how many of its tasks stayed."""

    stage: Stage
    job: GatedJob
    place: str | None = None
    tasks: int = 0
    stayed: int = 0
    epochs: int = 0
    spent: list[Spending] = field(default_factory=list)

    def turn(self, epochs: int) -> float:
        before = self.stage.spending()
        took_s = _epoch_s(self.job, epochs)
        self.spent.append(self.stage.spending().since(before))
        self.epochs = epochs
        if self.place is not None:
            tasks, stayed = _places_of_newest(self.place)
            self.tasks, self.stayed = self.tasks + tasks, self.stayed + stayed
        return took_s

    def spent_line(self) -> str:
        """The cost of the median turn by processor time of executors."""
        spent = sorted(self.spent, key=lambda spent: spent.executors_s)
        return spent[len(spent) // 2].line(self.epochs)


def measure_places(stage: Stage, report: Report, sizes: Sizes) -> None:
    """From the statistics in the job's own manifests."""
    small, place = Amounts(sizes.small_epoch, sizes.loaded_keys), stage.place()
    with stage.job(place, small) as job:
        job.pass_epochs(5)
        tasks, stayed = 0, 0
        for _ in range(2 * sizes.epochs):
            job.pass_epochs(1)
            tasks_of_epoch, stayed_of_epoch = _places_of_newest(place)
            tasks, stayed = tasks + tasks_of_epoch, stayed + stayed_of_epoch
    report.add(at_least("tasks that stay where they were", stayed / tasks, 0.99, "", f"{stayed} of {tasks}"))


def measure_sticky(stage: Stage, report: Report, sizes: Sizes) -> None:
    """Two jobs with the same state take turns: one whose machines all come to store the whole state, and one whose
    disks have room for their own subtasks' state, twice over, and not for all of it, which is the purpose of
    placement. The first again with a distant store, where a moved subtask waits for files that another machine
    uploads: reported only.
    """
    what = f"epoch, subtasks that stay to those that move, {sizes.loaded_keys:,} keys"
    share_bytes = sizes.loaded_keys * _KEY_BYTES // WORKERS
    cases = (
        ("room for all", 1 << 30, OPEN),
        ("room for its share", 2 * share_bytes, OPEN),
        (f"room for all, store {FAR_MS:.0f} ms away", 1 << 30, FAR),
    )
    for case, bytes_max, condition in cases:
        jobs, took = _race(stage, sizes, bytes_max, condition)
        ratio = median_ratio(took["sticky"], took["moving"])
        if condition == OPEN:
            report.add(at_most(f"{what}, {case}", ratio, 0.7))
        else:
            report.note(f"{what}, {case}: {ratio:.2f} ×")
        for way, job in jobs.items():
            took_ms = 1000 * statistics.median(took[way])
            report.note(f"{way}: {took_ms:.0f} ms, {job.stayed} of {job.tasks} tasks stayed; {job.spent_line()}")


_KEY_BYTES = 37
"""What a key of `Totals` takes in a segment."""


def _race(
    stage: Stage, sizes: Sizes, tier_bytes_max: int, condition: str
) -> tuple[dict[str, _WatchedJob], dict[str, list[float]]]:
    """Load both, and let them take turns with the store's proxy in that condition."""
    loading = _populations(sizes.loaded_keys, sizes.loading_epoch)
    jobs = {}
    with ExitStack() as stack:
        for way in ("sticky", "moving"):
            place = stage.place()
            settings = {
                "millstream.placement.sticky": str(way == "sticky").lower(),
                "millstream.tier.max-bytes": str(tier_bytes_max),
                # Relative to each executor's folder: a tier for this job alone.
                "millstream.tier.folder": f"tier-of-{place.rpartition('/')[2]}",
            }
            job = stack.enter_context(
                stage.job(place, Amounts(sizes.small_epoch, sizes.loaded_keys), loading, settings)
            )
            job.pass_epochs(len(loading) + 2)
            jobs[way] = _WatchedJob(stage, job, place)
        stage.road.become(condition)
        took = take_turns({way: partial(job.turn, sizes.epochs) for way, job in jobs.items()}, sizes.rounds)
        stage.road.become(OPEN)
    for watched in jobs.values():
        stage.remove_store(watched.place or "")
    return jobs, took


def measure_far(stage: Stage, report: Report, sizes: Sizes) -> None:
    """The distant store is slow while its own job runs, and at no other time."""
    for what, records, bound in (
        ("rate of small epochs", sizes.small_epoch, 0.8),
        ("throughput", sizes.large_epoch, 0.9),
    ):
        batches, far_place = Amounts(records, sizes.loaded_keys), stage.place()
        settings = {"millstream.retention.epochs": "2"}  # for the disk of this machine
        stage.road.become(FAR)
        with (
            stage.job(None, batches, settings=settings) as near,
            stage.job(far_place, batches, settings=settings) as far,
        ):
            for job in (near, far):
                job.pass_epochs(5)
            watched = {"near": _WatchedJob(stage, near), "far": _WatchedJob(stage, far)}
            took = take_turns({way: partial(job.turn, sizes.epochs) for way, job in watched.items()}, sizes.rounds)
        stage.road.become(OPEN)
        stage.remove_store(far_place)
        ratio = median_ratio(took["near"], took["far"])
        report.add(at_least(f"{what}, store {FAR_MS:.0f} ms away, to a local one", ratio, bound))
        for way, of_way in took.items():
            report.note(f"{way}: {1000 * statistics.median(of_way):.0f} ms; {watched[way].spent_line()}")


def measure_away(stage: Stage, report: Report, sizes: Sizes) -> None:
    """An epoch is granted every half second, if the previous one has begun: waiting for a busy machine is not
    waiting for the store. Input is measured by planned epochs.
    """
    settings = {"millstream.ahead.max-epochs": "1000"}
    with stage.job(stage.place(), Amounts(sizes.small_epoch, sizes.loaded_keys), settings=settings) as job:
        job.pass_epochs(5)
        job.source.grant(0)  # drops the times of earlier epochs
        stage.road.become(CLOSED)
        began_s, granted, planned = time.perf_counter(), 0, []
        while time.perf_counter() - began_s < sizes.away_s:
            if granted <= len(job.source.planned_s):
                job.source.grant_more(1)
                granted += 1
            time.sleep(0.5)
            planned.append(len(job.source.planned_s))
        committed = len(job.source.committed_s)
        stage.road.become(OPEN)
        back_s = time.perf_counter()
        is_done = job.source.wait(granted, STALLED_S)
        late_s = time.perf_counter() - back_s
    longest = max((len(list(run)) for run in _runs(planned)), default=0) / 2
    report.add(at_most(f"store away for {sizes.away_s:.0f} s: the longest time without input read", longest, 5, "s"))
    report.add(at_most("until all of it is committed after the store is back", late_s, 10, "s"))
    report.add(at_least("epochs that were let through and are committed", float(is_done), 1, ""))
    report.note(f"{planned[-1]} of {granted} epochs were begun while it was away, {committed} committed")


def _runs(counts: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for count in counts:
        if runs and runs[-1][-1] == count:
            runs[-1].append(count)
        else:
            runs.append([count])
    return runs


def measure_restart(stage: Stage, report: Report, sizes: Sizes) -> None:
    """The bytes read from the store while the job restarts, and in an epoch that touches keys of all segments."""
    loading, place = _populations(sizes.restarted_keys, sizes.loading_epoch), stage.place()
    small = Amounts(sizes.small_epoch, sizes.restarted_keys)
    with stage.job(place, small, loading) as job:
        job.pass_epochs(len(loading) + 2)
    state_bytes = sum(operator["bytes"] for operator in newest_of(place).counters["epoch"]["operators"].values())  # type: ignore[index,call-overload,union-attr]
    *_, before_bytes = stage.road.counts()
    with stage.job(place, small, loading, epochs_before=len(loading) + 2) as job:
        job.pass_epochs(2)
        read_bytes = stage.road.counts()[-1] - before_bytes
    ratio = read_bytes / state_bytes
    report.add(at_most(f"restart with {sizes.restarted_keys:,} keys: read of its bytes", ratio, 0.05, ""))
    report.note(f"{read_bytes / 1e6:.1f} MB of {state_bytes / 1e6:.1f} MB")


def measure_cores(stage: Stage, report: Report, sizes: Sizes) -> None:
    """The per-record job of bench-state, in one subtask and in two. A subtask keeps one core busy; the driver and
    the store need some of these cores, too. So the busiest executor's time per epoch is reported as well.
    """
    batches = Amounts(sizes.record_epoch, 100_000)
    busiest_s: dict[int, list[float]] = {1: [], 2: []}
    with ExitStack() as stack:
        contestants: dict[str, Callable[[], float]] = {}
        jobs = {}
        for count, busiest_of_count_s in busiest_s.items():
            job = stack.enter_context(stage.job(None, batches, parallelism=count))
            job.pass_epochs(4)
            jobs[count] = _WatchedJob(stage, job)
            contestants[f"{count}"] = partial(_busy_epoch_s, stage, jobs[count], busiest_of_count_s)
        took = take_turns(contestants, sizes.rounds)
    report.add(at_least("two executors of one core, to one", median_ratio(took["1"], took["2"]), 1.7))
    by_processor = median_ratio(busiest_s[1], busiest_s[2])
    report.note(f"by the processor time of the busiest executor: {by_processor:.2f} ×")
    for count, watched in jobs.items():
        report.note(f"{count}: {1000 * statistics.median(took[f'{count}']):.0f} ms; {watched.spent_line()}")


def _busy_epoch_s(stage: Stage, job: _WatchedJob, busiest_s: list[float]) -> float:
    before = stage.by_executor_s()
    took_s = job.turn(2)
    busiest_s.append(max(after - before.get(executor, 0.0) for executor, after in stage.by_executor_s().items()))
    return took_s


def main() -> int:
    """Measure; the exit code says whether every requirement holds."""
    stage = Stage()
    parts = {
        "places": measure_places,
        "sticky": measure_sticky,
        "far": measure_far,
        "away": measure_away,
        "restart": measure_restart,
        "cores": measure_cores,
    }
    try:
        return run_parts(
            "cluster",
            "a cluster and an object store",
            {},
            Sizes(),
            QUICK,
            tasks=WORKERS,
            without_spark={name: partial(measure, stage) for name, measure in parts.items()},
        )
    finally:
        stage.close()


if __name__ == "__main__":
    sys.exit(main())
