"""`make bench-cluster`: a standalone cluster of Spark and an object store, both on this machine; ratios in one run.

    places    how many tasks of a job in its steady state run where they ran before
    sticky    an epoch of a job with much state, against the same with subtasks that have no place of their own
    far       a store that takes 50 ms longer for every request, against a folder: rate of small epochs, throughput
    away      a store that is away for a while: input is read meanwhile, and committed soon after it is back
    restart   a job with much state starts again on the same machines: what it reads of its bytes from the store
    cores     two executors of one core each, against one

The cluster is that of the tests: a master and three workers with a core each, executors without millstream. The store
is MinIO behind a proxy that can be slow, or away. Ours is always a real job, to its manifests in the store.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src"), str(FOLDER.parent / "tests")]

from gated import Batches, GatedJob  # noqa: E402
from keyed_programs import AMOUNT_TYPE, TOTAL_TYPE, Amounts, Population, Totals  # noqa: E402
from measure import Report, at_least, at_most, median_ratio, take_turns  # noqa: E402
from parts import run_parts  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from servers.http_proxy import Fate, HttpProxy, Request  # noqa: E402
from servers.minio import MinioServer  # noqa: E402
from servers.spark_cluster import SparkCluster  # noqa: E402

from millstream.checkpoint.manifest import ManifestLog  # noqa: E402
from millstream.datastream import DataStream  # noqa: E402
from millstream.spark.session import make_session  # noqa: E402
from millstream.storage import open_store  # noqa: E402

WORKERS = 3
FAR_MS = 50.0
STALLED_S = 300.0


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    loaded_keys: int = 1_000_000
    restarted_keys: int = 10_000_000
    loading_epoch: int = 500_000
    small_epoch: int = 20_000
    large_epoch: int = 1_000_000
    epochs: int = 10
    rounds: int = 5
    away_s: float = 60.0


QUICK = Sizes(
    loaded_keys=100_000, restarted_keys=200_000, loading_epoch=100_000, small_epoch=5_000, large_epoch=100_000,
    epochs=4, rounds=2, away_s=8.0,
)  # fmt: skip


def _totals(stream: DataStream) -> DataStream:
    return stream.key_by(0).process(Totals(), TOTAL_TYPE)


def _passes(request: Request) -> Fate:
    return Fate()


def _is_far(request: Request) -> Fate:
    return Fate(delay_ms=FAR_MS)


def _is_away(request: Request) -> Fate:
    return Fate(cut="before")


class Stage:
    """The cluster, the store and the session, started when a part first needs them; `close` ends all."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._session: SparkSession | None = None
        self._jobs = 0

    def session(self) -> SparkSession:
        """The application on the cluster."""
        if self._session is None:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="millstream-bench-cluster-")))
            minio = MinioServer()
            minio.start()
            self._stack.callback(minio.remove)
            self._bucket = minio.create_bucket("bench")
            self.proxy = self._stack.enter_context(HttpProxy(minio.port))
            os.environ.update(minio.environment_for_clients() | {"AWS_ENDPOINT_URL": self.proxy.url})
            cluster = SparkCluster(folder / "cluster", workers=WORKERS, memory_mb=1024)
            self._cluster = self._stack.enter_context(cluster)
            for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
                os.environ.pop(name, None)
            self._session = make_session(cluster.master_url, cluster.settings(), folder / "spark.log")
            self._stack.callback(self._session.stop)
        return self._session

    def processor_s(self) -> dict[str, float]:
        """What each executor, with its Python workers, has spent so far."""
        executors = [pair for worker in self._cluster.workers for pair in worker.executors().items()]
        return {
            number: sum(
                process.cpu_times().user + process.cpu_times().system
                for process in (executor, *executor.children(recursive=True))
            )
            for number, executor in executors
        }

    def place(self) -> str:
        """The address of a store that nobody has used."""
        self.session()
        self._jobs += 1
        return f"s3://{self._bucket}/job-{self._jobs}"

    def job(
        self,
        place: str | None,
        batches: Batches,
        loading: Sequence[Batches] = (),
        settings: Mapping[str, str] | None = None,
        *,
        parallelism: int = WORKERS,
        epochs_before: int = 0,
    ) -> GatedJob:
        """A job with its store there; None: in a folder of this machine."""
        where = {"millstream.store.shared": "true"} if place is None else {"millstream.store": place}
        chosen = {**where, **(settings or {})}
        session = self.session()
        return GatedJob(
            session, parallelism, batches, AMOUNT_TYPE, _totals, parallelism, loading, chosen, epochs_before
        )

    def close(self) -> None:
        """End all of it."""
        self._stack.close()


def _populations(keys: int, per_epoch: int) -> list[Population]:
    """All keys below `keys`, in epochs."""
    return [Population(first, min(first + per_epoch, keys), 1) for first in range(0, keys, per_epoch)]


def _epoch_s(job: GatedJob, epochs: int) -> float:
    """What an epoch takes, of so many in a row: several may be committed as one."""
    began_s = time.perf_counter()
    job.pass_epochs(epochs)
    return (time.perf_counter() - began_s) / epochs


def _places_of_newest(place: str) -> tuple[int, int]:
    """How many tasks the newest epoch had, and how many of them ran where they ran before."""
    newest = ManifestLog(open_store(place)).newest()
    assert newest is not None
    told = newest.counters["epoch"]
    assert isinstance(told, dict)
    return int(told["tasks"]), int(told["tasks_stayed"])  # type: ignore[arg-type]


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
    """Two jobs with the same state take turns: on a store beside them, which is judged, and on one that is far."""
    loading = _populations(sizes.loaded_keys, sizes.loading_epoch)
    ways: dict[str, dict[str, str]] = {"sticky": {}, "moving": {"millstream.placement.sticky": "false"}}
    with ExitStack() as stack:
        jobs = {way: _placed_job(stage, stack, sizes, loading, settings) for way, settings in ways.items()}
        contestants = {way: partial(job.turn, sizes.epochs) for way, job in jobs.items()}
        took = take_turns(contestants, sizes.rounds)
        stage.proxy.rule = _is_far
        took_far = take_turns(contestants, sizes.rounds)
        stage.proxy.rule = _passes
    what = f"epoch, subtasks that stay to those that move, {sizes.loaded_keys:,} keys"
    report.add(at_most(what, median_ratio(took["sticky"], took["moving"]), 0.7))
    report.note(", ".join(f"{way} {1000 * statistics.median(of_way):.0f} ms" for way, of_way in took.items()))
    far_ratio = median_ratio(took_far["sticky"], took_far["moving"])
    report.note(f"the same with {FAR_MS:.0f} ms for every request to the store: {far_ratio:.2f} ×")
    report.note(", ".join(f"{way}: {job.stayed} of {job.tasks} tasks stayed" for way, job in jobs.items()))


@dataclass
class _PlacedJob:
    """A job, and how many of its tasks were seen to stay."""

    job: GatedJob
    place: str
    tasks: int = 0
    stayed: int = 0

    def turn(self, epochs: int) -> float:
        took_s = _epoch_s(self.job, epochs)
        tasks, stayed = _places_of_newest(self.place)
        self.tasks, self.stayed = self.tasks + tasks, self.stayed + stayed
        return took_s


def _placed_job(
    stage: Stage, stack: ExitStack, sizes: Sizes, loading: Sequence[Population], settings: Mapping[str, str]
) -> _PlacedJob:
    place = stage.place()
    small = Amounts(sizes.small_epoch, sizes.loaded_keys)
    job = stack.enter_context(stage.job(place, small, loading, settings))
    job.pass_epochs(len(loading) + 2)
    return _PlacedJob(job, place)


def measure_far(stage: Stage, report: Report, sizes: Sizes) -> None:
    """The slow store is slow while its own job runs, and nothing else does."""
    for what, records, bound in (
        ("rate of small epochs", sizes.small_epoch, 0.8),
        ("throughput", sizes.large_epoch, 0.9),
    ):
        batches = Amounts(records, sizes.loaded_keys)
        far_place = stage.place()
        stage.proxy.rule = _is_far
        with stage.job(None, batches) as near, stage.job(far_place, batches) as far:
            for job in (near, far):
                job.pass_epochs(5)
            contestants = {"near": partial(_epoch_s, near, sizes.epochs), "far": partial(_epoch_s, far, sizes.epochs)}
            took = take_turns(contestants, sizes.rounds)
        stage.proxy.rule = _passes
        ratio = median_ratio(took["near"], took["far"])
        report.add(at_least(f"{what}, store {FAR_MS:.0f} ms away, to a local one", ratio, bound))
        report.note(", ".join(f"{way} {1000 * statistics.median(of_way):.0f} ms" for way, of_way in took.items()))


def measure_away(stage: Stage, report: Report, sizes: Sizes) -> None:
    """An epoch is let through every half second, if the one before has begun: what waits for a busy machine does not
    wait for the store. What was read is counted by the epochs that were planned."""
    settings = {"millstream.ahead.max-epochs": "1000"}
    with stage.job(stage.place(), Amounts(sizes.small_epoch, sizes.loaded_keys), settings=settings) as job:
        job.pass_epochs(5)
        job.source.grant(0)  # forgets the times of those before
        stage.proxy.rule = _is_away
        began_s, granted, planned = time.perf_counter(), 0, []
        while time.perf_counter() - began_s < sizes.away_s:
            if granted <= len(job.source.planned_s):
                job.source.grant_more(1)
                granted += 1
            time.sleep(0.5)
            planned.append(len(job.source.planned_s))
        committed = len(job.source.committed_s)
        stage.proxy.rule = _passes
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
    """What passes the proxy while the job starts again, and in an epoch that touches keys of all segments."""
    loading, place = _populations(sizes.restarted_keys, sizes.loading_epoch), stage.place()
    small = Amounts(sizes.small_epoch, sizes.restarted_keys)
    with stage.job(place, small, loading) as job:
        job.pass_epochs(len(loading) + 2)
    objects = open_store(place)
    newest = ManifestLog(objects).newest()
    assert newest is not None
    state_bytes = sum(operator["bytes"] for operator in newest.counters["epoch"]["operators"].values())  # type: ignore[index,call-overload,union-attr]
    before_bytes = stage.proxy.answered_bytes
    with stage.job(place, small, loading, epochs_before=len(loading) + 2) as job:
        job.pass_epochs(2)
        read_bytes = stage.proxy.answered_bytes - before_bytes
    ratio = read_bytes / state_bytes
    report.add(at_most(f"restart with {sizes.restarted_keys:,} keys: read of its bytes", ratio, 0.05, ""))
    report.note(f"{read_bytes / 1e6:.1f} MB of {state_bytes / 1e6:.1f} MB")


def measure_cores(stage: Stage, report: Report, sizes: Sizes) -> None:
    """The per-record job of bench-state, in one subtask and in two. A subtask keeps one core busy; the driver and the
    store need some of these cores, too. So it is also told what the busiest executor spends on an epoch."""
    batches = Amounts(sizes.large_epoch, 100_000)
    with ExitStack() as stack:
        contestants: dict[str, Callable[[], float]] = {}
        busiest_s: dict[str, list[float]] = {}
        for count in (1, 2):
            job = stack.enter_context(stage.job(None, batches, parallelism=count))
            job.pass_epochs(4)
            contestants[f"{count}"] = partial(_watched_epoch_s, stage, job, busiest_s.setdefault(f"{count}", []))
        took = take_turns(contestants, sizes.rounds)
    report.add(at_least("two executors of one core, to one", median_ratio(took["1"], took["2"]), 1.7))
    by_processor = median_ratio(busiest_s["1"], busiest_s["2"])
    report.note(f"by the processor time of the busiest executor: {by_processor:.2f} ×")


def _watched_epoch_s(stage: Stage, job: GatedJob, busiest_s: list[float]) -> float:
    before = stage.processor_s()
    took_s = _epoch_s(job, 2)
    busiest_s.append(max(after - before.get(executor, 0.0) for executor, after in stage.processor_s().items()))
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
