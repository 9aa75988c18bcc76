"""`make bench-backlog`: a job that was down reads a backlog of Kafka records in bounded memory, and shows its lag.

The job counts, per key and window, the backlog of a topic of 100-byte JSON values: far more than an epoch may hold.
While it catches up, the memory of every process is sampled: the driver, its JVM and each worker, as private (anonymous)
bytes if the system reports them. Judged are

    driver     the driver's Python process stays under DRIVER_MB, however long the backlog is
    JVM        its heap's limit and OVERHEAD_MB for everything else
    worker     an epoch's limit in bytes, because several workers share it, and WORKER_MB in addition
    growth     the maximum of driver and workers together in the last third of the run, to that in the middle third. The
               JVM is excluded: its heap grows to its limit whatever lives in it
    console    lines of the console reported a rate, the backlog and the time to catch up; the backlog fell to nothing;
               and every record was counted

--quick for a smoke test.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# Workers import modules of this folder, too; they inherit this when the JVM starts.
os.environ["PYTHONPATH"] = os.pathsep.join([str(FOLDER), str(FOLDER.parent / "src"), os.environ.get("PYTHONPATH", "")])
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src"), str(FOLDER.parent / "tests")]

import json  # noqa: E402

import kafka_programs as programs  # noqa: E402
import psutil  # noqa: E402
from measure import Report, at_least, at_most  # noqa: E402
from parts import run_parts  # noqa: E402
from private_memory import anonymous_bytes  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from running_job import RunningJob  # noqa: E402
from servers.kafka import KafkaBroker  # noqa: E402

from millstream.common.options import EPOCH_MAX_BYTES  # noqa: E402
from millstream.datastream import StreamExecutionEnvironment  # noqa: E402
from millstream.datastream.connectors import DeliveryGuarantee  # noqa: E402
from millstream.jobs.console.console import attach_console  # noqa: E402

TASKS = 2
PARTITIONS = 4
DRIVER_MB = 400
OVERHEAD_MB = 512
WORKER_MB = 256
_EVERY_S = 0.25
_MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Sizes:
    """The size of the backlog."""

    records: int = 10_000_000


QUICK = Sizes(records=1_500_000)


@dataclass
class Samples:
    """The maximum of each kind of process, and the series of all Python processes together."""

    most_bytes: dict[str, int] = field(default_factory=dict)
    totals_bytes: list[int] = field(default_factory=list)

    def take(self, driver: psutil.Process, java: psutil.Process) -> None:
        """Sample all processes once."""
        sizes = [("driver", anonymous_bytes(driver.pid)), ("JVM", anonymous_bytes(java.pid))]
        sizes += [("worker", anonymous_bytes(child.pid)) for child in java.children(recursive=True)]
        for kind, size in sizes:
            self.most_bytes[kind] = max(self.most_bytes.get(kind, 0), size)
        self.totals_bytes.append(sum(size for kind, size in sizes if kind != "JVM"))

    def most_mb(self, kind: str) -> float:
        return self.most_bytes[kind] / _MEGABYTE

    def growth(self) -> float:
        """The last third to the middle one."""
        third = max(1, len(self.totals_bytes) // 3)
        return max(self.totals_bytes[-third:]) / max(self.totals_bytes[third : 2 * third] or self.totals_bytes)


def measure_backlog(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Fill a topic, then let a job read it."""
    broker = KafkaBroker({"log.retention.hours": "100000", "log.retention.check.interval.ms": "600000"})
    broker.start()
    try:
        source, target = (broker.create_topic(f"{name}-{uuid.uuid4().hex[:8]}", PARTITIONS) for name in ("in", "out"))
        programs.fill(broker.bootstrap, source, sizes.records, programs.short_record)
        samples, console, took_s = _watched_run(session, broker, source, target)
        counted = sum(json.loads(value)["records"] for value in programs.messages_in(broker.bootstrap, target))
    finally:
        broker.stop()
    if counted != sizes.records:
        raise RuntimeError(f"{counted:,} records were counted, of {sizes.records:,}")
    _judge(report, session, samples)
    lines = [line for line in console.splitlines() if " behind, caught up in " in line and "/s)" in line]
    report.add(at_least("lines of the console with rate, lag and when it ends", len(lines), 1, ""))
    if " behind" in console.splitlines()[-1]:
        raise RuntimeError(f"the console's last line tells of a lag: {console.splitlines()[-1]}")
    report.note(
        f"{sizes.records:,} records in {took_s:,.0f} s, {sizes.records / took_s / 1e3:,.0f} k/s, start and end included"
    )
    for line in (lines[0], lines[len(lines) // 2]) if lines else ():
        report.note(line)


def _watched_run(session: SparkSession, broker: KafkaBroker, source: str, target: str) -> tuple[Samples, str, float]:
    """Samples of the processes and the console, and the duration."""

    def add(env: StreamExecutionEnvironment) -> None:
        programs.count_in_windows(env, broker.bootstrap, source, target, DeliveryGuarantee.EXACTLY_ONCE)

    samples, ended = Samples(), threading.Event()
    driver = psutil.Process()
    java = psutil.Process(int(session._jvm.java.lang.ProcessHandle.current().pid()))  # type: ignore[union-attr]

    def sample() -> None:
        while not ended.wait(_EVERY_S):
            samples.take(driver, java)

    started_s, stream = time.perf_counter(), io.StringIO()
    with RunningJob(session, add, TASKS) as job:
        console = attach_console(job.client._control.board, "plain", stream)  # type: ignore[attr-defined]
        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            job.client.get_job_execution_result().result()
        finally:
            ended.set()
            sampler.join()
            console.close()
        took_s = time.perf_counter() - started_s
    return samples, stream.getvalue(), took_s


def _judge(report: Report, session: SparkSession, samples: Samples) -> None:
    heap_mb = session._jvm.java.lang.Runtime.getRuntime().maxMemory() / _MEGABYTE  # type: ignore[union-attr]
    epoch_mb = EPOCH_MAX_BYTES.default / _MEGABYTE
    report.add(at_most("driver's memory", samples.most_mb("driver"), DRIVER_MB, "MB"))
    report.add(at_most("JVM's memory", samples.most_mb("JVM"), heap_mb + OVERHEAD_MB, "MB"))
    report.add(at_most("memory of the largest worker", samples.most_mb("worker"), epoch_mb + WORKER_MB, "MB"))
    report.add(at_most("growth of driver and workers, last third to middle third", samples.growth(), 1.25))
    most_mb = max(samples.totals_bytes) / _MEGABYTE
    report.note(f"{len(samples.totals_bytes)} samples; driver and workers together at most {most_mb:,.0f} MB")


if __name__ == "__main__":
    raise SystemExit(
        run_parts(
            "bench-backlog",
            (__doc__ or "").splitlines()[0],
            {"backlog": measure_backlog},
            Sizes(),
            QUICK,
            tasks=TASKS,
        )
    )
