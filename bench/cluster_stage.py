"""The setup of `bench_cluster`: a standalone Spark cluster, MinIO, the proxy to it, one application; and their
resource usage. It is that of the tests: a master and three workers with a core each, executors without millstream.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
from gated import Batches, GatedJob
from keyed_programs import AMOUNT_TYPE, TOTAL_TYPE, Totals
from pyspark.sql import SparkSession
from servers.minio import MinioServer
from servers.spark_cluster import SparkCluster
from store_road import StoreRoad

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.datastream import DataStream
from millstream.spark.session import make_session
from millstream.storage import open_store

__all__ = ["FAR_MS", "WORKERS", "Spending", "Stage", "newest_of"]

FAR_MS = 50.0
"""How much later a request comes to the store when the road to it is long."""
WORKERS = 3
_TIER_BYTES_MAX = 2 << 30
"""So much of this machine's disk at most for each worker."""
_PARTS = {
    "CoarseGrainedExecutorBackend": "executors, JVM",
    "pyspark.daemon": "executors, Python",
    "SparkSubmit": "driver, JVM",
    "store_road": "road to the store",
    "minio": "MinIO",
    "deploy.master": "Spark's daemons",
    "deploy.worker": "Spark's daemons",
}


@dataclass(frozen=True)
class Spending:
    """The resources used so far, or between two moments: processor time in seconds by part, bytes received and sent
    by the store, requests to it.
    """

    processor_s: Counter[str]
    sent_bytes: int
    fetched_bytes: int
    requests: int

    def since(self, before: Spending) -> Spending:
        """The usage since then."""
        processor_s = Counter({part: s - before.processor_s[part] for part, s in self.processor_s.items()})
        return Spending(
            processor_s,
            self.sent_bytes - before.sent_bytes,
            self.fetched_bytes - before.fetched_bytes,
            self.requests - before.requests,
        )

    @property
    def executors_s(self) -> float:
        """Of all executors, JVM and Python."""
        return self.processor_s["executors, JVM"] + self.processor_s["executors, Python"]

    def line(self, epochs: int) -> str:
        """A line for people, per epoch."""
        times = ", ".join(f"{part} {1000 * s / epochs:.0f}" for part, s in sorted(self.processor_s.items()) if s >= 0)
        moved = f"{self.sent_bytes / epochs / 1e6:.2f} MB sent, {self.fetched_bytes / epochs / 1e6:.2f} MB fetched"
        return f"an epoch in ms of a core: {times}; {self.requests / epochs:.1f} requests, {moved}"


def newest_of(place: str) -> Manifest:
    """The newest manifest of the job with this store."""
    newest = ManifestLog(open_store(place)).newest()
    assert newest is not None
    return newest


def _totals(stream: DataStream) -> DataStream:
    return stream.key_by(0).process(Totals(), TOTAL_TYPE)


def _processor_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:  # it has just ended
        return 0.0
    return float(times.user + times.system)


def _part_of(process: psutil.Process) -> str:
    try:
        command = " ".join(process.cmdline())
    except psutil.Error:
        return "others"
    return next((part for word, part in _PARTS.items() if word in command), "others")


class Stage:
    """The cluster, the store and the session, started when a part first needs them; `close` stops all of them."""

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
            self.road = self._stack.enter_context(StoreRoad(minio.port, FAR_MS))
            os.environ.update(minio.environment_for_clients() | {"AWS_ENDPOINT_URL": self.road.url})
            cluster = SparkCluster(folder / "cluster", workers=WORKERS, memory_mb=1024)
            self._cluster = self._stack.enter_context(cluster)
            for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
                os.environ.pop(name, None)
            self._session = make_session(cluster.master_url, cluster.settings(), folder / "spark.log")
            self._stack.callback(self._session.stop)
        return self._session

    def by_executor_s(self) -> dict[str, float]:
        """The processor time of each executor so far, with its Python workers."""
        executors = [pair for worker in self._cluster.workers for pair in worker.executors().items()]
        return {
            number: sum(_processor_s(process) for process in (executor, *executor.children(recursive=True)))
            for number, executor in executors
        }

    def spending(self) -> Spending:
        """The resources used so far."""
        times: Counter[str] = Counter()
        times["driver, Python"] = _processor_s(psutil.Process())
        for process in psutil.Process().children(recursive=True):
            times[_part_of(process)] += _processor_s(process)
        requests, sent_bytes, fetched_bytes = self.road.counts()
        return Spending(times, sent_bytes, fetched_bytes, requests)

    def place(self) -> str:
        """The address of a new store."""
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
        chosen = {"millstream.tier.max-bytes": str(_TIER_BYTES_MAX), **where, **(settings or {})}
        session = self.session()
        return GatedJob(
            session, parallelism, batches, AMOUNT_TYPE, _totals, parallelism, loading, chosen, epochs_before
        )

    def remove_store(self, place: str) -> None:
        """Remove a store, so that the output of one part does not fill the disk for later ones."""
        store = open_store(place)
        store.delete_many(list(store.list("")))

    def close(self) -> None:
        """Stop everything."""
        self._stack.close()
