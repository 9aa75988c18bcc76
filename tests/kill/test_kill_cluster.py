"""A job on a standalone cluster with its state and its output on MinIO, disturbed in every way: the output is exact.

Each seed runs the job once and disturbs it at random moments: executors are killed with -9, one or all at once; a
worker is gone with its disk, and comes back with an empty one; an executor is decommissioned; an executor keeps silent
until Spark gives it up, and wakes up; a task straggles, so that Spark runs a second attempt beside it; the driver is
killed with all it started here, and started again while its executors may still run; the connections between driver and
executors are cut, and can be made again some seconds later, or stay, and nothing passes until Spark has given all
executors up. Speculation is on for all of them.
The first eight seeds do each of these and some together; further ones (`make chaos SEEDS=50`) draw what they do.

One cluster, one store and, while nobody kills it, one application of Spark serve all seeds.
"""

from __future__ import annotations

import contextlib
import json
import queue
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cluster_program as program
import psutil
import pytest
from cluster_results import expected, results_of
from cluster_runs import driver_environment, millstream_run
from killing import SEEDS
from process_session import ProcessSession
from servers.minio import MinioServer
from servers.server_process import HOST, free_port
from servers.spark_cluster import SparkCluster
from servers.tcp_proxy import TcpProxy

PATIENCE_S = 400.0
SILENCE_S = 12.0
CUT_S, STALL_S = 2.0, 12.0
DRIVER_HOST = "127.0.0.9"
"""Where executors find the driver: a way to it that can be cut."""
WAYS = ("executor", "executors", "worker", "decommission", "silence", "straggler", "driver", "cut", "stall")
FIRST_SEEDS: tuple[tuple[str, ...], ...] = (
    ("cut", "stall"),
    ("executors",),
    ("worker",),
    ("decommission",),
    ("silence",),
    ("straggler",),
    ("driver",),
    ("executor", "driver", "worker"),
)
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "3",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.decommission.enabled": "true",
    # An executor that says nothing is given up after some seconds.
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "7s",
    "spark.network.timeoutInterval": "2s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "7s",
}


def ways_of(seed: int) -> tuple[str, ...]:
    """What a seed does, in this order."""
    if seed < len(FIRST_SEEDS):
        return FIRST_SEEDS[seed]
    rng = random.Random(f"ways-{seed}")
    return tuple(rng.choice(WAYS) for _ in range(rng.randrange(1, 4)))


class Drivers:
    """The application that runs the jobs; one that was killed is replaced when it is needed."""

    def __init__(self, cluster: SparkCluster, store: MinioServer, folder: Path) -> None:
        self._cluster, self._store, self._folder = cluster, store, folder
        self._process: ProcessSession | None = None
        self._ways: list[TcpProxy] = []

    def running(self) -> ProcessSession:
        """The process, which is ready for a job or runs one."""
        if self._process is None or self._process.exit_code() is not None:
            settings = {**SETTINGS, **self._reached_by_a_way()}
            command = millstream_run(self._cluster, Path(program.__file__), settings=settings)
            errors = self._folder / "driver.log"
            self._process = ProcessSession(command, driver_environment(self._store), self._folder, errors)
        return self._process

    def _reached_by_a_way(self) -> dict[str, str]:
        """Executors connect to the same ports as always, at another address: that of our way to the driver."""
        self._close_ways()
        ports = {name: free_port() for name in ("spark.driver.port", "spark.driver.blockManager.port")}
        self._ways = [TcpProxy(port, port, DRIVER_HOST) for port in ports.values()]
        addresses = {"spark.driver.host": DRIVER_HOST, "spark.driver.bindAddress": HOST}
        return addresses | {name: str(port) for name, port in ports.items()}

    def _close_ways(self) -> None:
        while self._ways:
            self._ways.pop().close()

    def cut(self) -> None:
        """No executor is connected to the driver, and none can connect, until it is mended."""
        for way in self._ways:
            way.cut()

    def stall(self) -> None:
        """Nothing passes between the driver and its executors, though they are connected, until it is mended."""
        for way in self._ways:
            way.stall()

    def mend(self) -> None:
        for way in self._ways:
            way.mend()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None
        self._close_ways()

    def losses_said(self) -> int:
        """How often it was said that an executor is lost."""
        log = self._folder / "driver.log"
        return log.read_text(errors="replace").count("lost: executor ") if log.exists() else 0

    def errors(self) -> str:
        """The end of what all of them wrote."""
        return (self._folder / "driver.log").read_text(errors="replace")[-4000:]


@pytest.fixture(scope="module")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drivers")


_DRIVERS: list[Drivers] = []


@pytest.fixture(scope="module", autouse=True)
def _no_driver_is_left() -> Iterator[None]:
    yield
    while _DRIVERS:
        _DRIVERS.pop().kill()


@pytest.fixture
def drivers(spark_cluster: SparkCluster, minio_server: MinioServer, driver_folder: Path) -> Drivers:
    if not _DRIVERS:
        _DRIVERS.append(Drivers(spark_cluster, minio_server, driver_folder))
    return _DRIVERS[0]


class Disturbance:
    """Does to the cluster what is asked, and remembers what has to be put right."""

    def __init__(self, cluster: SparkCluster, drivers: Drivers, rng: random.Random) -> None:
        self._cluster, self._drivers, self._rng = cluster, drivers, rng
        self._sleepers: list[psutil.Process] = []
        self._wakes_at = self._mends_at = 0.0
        self._lost: list[int] = []

    def strike(self, way: str) -> str:
        """Disturb in this way, now; returns what was done."""
        workers = [at for at, worker in enumerate(self._cluster.workers) if worker.is_running()]
        at = self._rng.choice(workers)
        match way:
            case "executor":
                return f"killed executors {self._cluster.kill_executor(at)}"
            case "executors":
                return f"killed executors {[self._cluster.kill_executor(every) for every in workers]}"
            case "worker":
                self._cluster.kill_worker(at)
                self._cluster.lose_disk(at)
                self._lost.append(at)
                return f"worker {at} is gone with its disk"
            case "decommission":
                return f"decommissioned {self._signal(at, signal.SIGPWR)}"
            case "silence":
                self._sleepers += self._with_children(at)
                for process in self._sleepers:
                    _send(process, signal.SIGSTOP)
                self._wakes_at = time.monotonic() + SILENCE_S
                return f"stopped {len(self._sleepers)} processes of worker {at}"
            case "driver":
                self._drivers.kill()
                return "killed the driver"
            case "cut":
                self._drivers.cut()
                self._mends_at = time.monotonic() + CUT_S
                return "cut the driver off"
            case "stall":
                self._drivers.stall()
                self._mends_at = time.monotonic() + STALL_S
                return "stalled the ways to the driver"
        return "a task is slow"

    def attend(self) -> None:
        """Called now and then: wake up what slept long enough, and mend what was cut."""
        if self._mends_at and time.monotonic() > self._mends_at:
            self._mends_at = 0.0
            self._drivers.mend()
        if self._sleepers and time.monotonic() > self._wakes_at:
            self.put_right()

    def put_right(self) -> None:
        """Wake up what sleeps, bring back what is gone, mend what is cut."""
        self._drivers.mend()
        for process in self._sleepers:
            _send(process, signal.SIGCONT)
        self._sleepers = []
        for at in self._lost:
            self._cluster.restart_worker(at)
        self._lost = []

    def _signal(self, at: int, number: signal.Signals) -> list[str]:
        executors = self._cluster.workers[at].executors()
        for process in executors.values():
            _send(process, number)
        return sorted(executors)

    def _with_children(self, at: int) -> list[psutil.Process]:
        executors = list(self._cluster.workers[at].executors().values())
        return [one for executor in executors for one in (executor, *_children(executor))]


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.Error):  # it has just ended
        process.send_signal(number)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_on_a_disturbed_cluster_publishes_every_record_once(
    seed: int, spark_cluster: SparkCluster, minio_server: MinioServer, unique_name: str, drivers: Drivers
) -> None:
    rng, ways = random.Random(f"cluster-{seed}"), ways_of(seed)
    bucket = minio_server.create_bucket(unique_name)
    order = {"store": f"s3://{bucket}/job", "output": f"s3://{bucket}/out", "straggles": "straggler" in ways}
    disturbance, said_before = Disturbance(spark_cluster, drivers, rng), drivers.losses_said()
    # Epochs after which each of them strikes, and how long after.
    moments = sorted((rng.randrange(2, 9), round(rng.random(), 2), rng.random()) for _ in ways)
    strikes = [(epoch, delay_s, way) for (epoch, delay_s, _), way in zip(moments, ways, strict=True)]
    try:
        history = run_job(drivers, order, strikes, disturbance)
    finally:
        disturbance.put_right()
    print(f"seed {seed}: {history}")
    results = results_of(minio_server.client(), bucket)
    repeat = f"MILLSTREAM_KILL_FIRST_SEED={seed} MILLSTREAM_KILL_SEEDS=1"
    if ways[-1] in ("executors", "stall"):
        assert drivers.losses_said() > said_before, f"seed {seed} ({repeat}): {history}\n{drivers.errors()}"
    assert results == expected(), f"seed {seed} ({repeat}): {history}\n{drivers.errors()}"


def run_job(
    drivers: Drivers, order: dict[str, Any], strikes: list[tuple[int, float, str]], disturbance: Disturbance
) -> list[str]:
    """Run it to its end, whatever happens to it; returns what happened."""
    history: list[str] = []
    ordered_from, left = None, list(strikes)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        process = drivers.running()
        if process is not ordered_from:
            process.say(json.dumps(order))
            ordered_from = process
        disturbance.attend()
        try:
            line = process.next_line(0.5)
        except queue.Empty:
            assert time.monotonic() < deadline, f"stuck after {history}:\n{drivers.errors()}"
            continue
        assert line is not None, f"the driver ended after {history}:\n{drivers.errors()}"
        if line.startswith("ENDED"):
            assert line == "ENDED finished", f"{line} after {history}:\n{drivers.errors()}"
            return history
        if line.startswith("PHASE epoch ") and left and int(line.split()[-1]) >= left[0][0]:
            _, delay_s, way = left.pop(0)
            time.sleep(delay_s)
            history.append(f"{line}: {disturbance.strike(way)}")
