"""Jobs whose store is a real S3 with high latency, or unreachable: epochs run ahead of commits, and the output is
exact.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.http_proxy import Fate, HttpProxy, Request
from servers.minio import MinioServer
from waits.job_moments import when

from millstream.checkpoint.manifest import ManifestLog
from millstream.common import Configuration, JobStatus, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.jobs.clock import SystemClock
from millstream.jobs.epochs.epoch_statistics import statistics_of
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.objects import ObjectStore
from millstream.testing import Collect

RECORDS, PER_EPOCH = 3_000, 50


def far(request: Request) -> Fate:
    return Fate(delay_ms=50)


def away(request: Request) -> Fate:
    return Fate(cut="before")


@pytest.fixture
def proxy(minio_server: MinioServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpProxy]:
    """A proxy to MinIO with 50 ms latency."""
    with HttpProxy(minio_server.port, far) as way:
        for name, value in minio_server.environment_for_clients().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.url)
        yield way


class Count(KeyedProcessFunction):
    """Emits each record with the count of its key so far: the count shows lost and duplicated state, the number lost
    input.
    """

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterable[str]:
        self.count.update((self.count.value() or 0) + 1)
        yield f"key {ctx.get_current_key()}: {self.count.value()}"
        yield f"number {value}"


def prepared(url: str, tier: Path, out: Collect, records: int = RECORDS, **settings: str) -> Job:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    configuration = Configuration().set_string("millstream.tier.folder", str(tier))
    configuration.set_string("millstream.epoch.max-records", str(PER_EPOCH))
    for key, value in settings.items():
        configuration.set_string(f"millstream.{key.replace('_', '.', 1).replace('_', '-')}", value)
    env.configure(configuration)
    source = DataGeneratorSource(lambda number: number, records, type_info=Types.LONG())
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers.key_by(lambda number: number % 3, Types.LONG()).process(Count()).uid("totals").sink_to(out).uid("out")
    launch = Launch(SystemClock(), LocalRunner(), ObjectStore(url))
    return launch.prepare(env._graph("far"), env._job_settings())


def expected(records: int = RECORDS) -> Counter[str]:
    totals = Counter(number % 3 for number in range(records))
    counts = [f"key {key}: {count}" for key, total in totals.items() for count in range(1, total + 1)]
    return Counter(counts + [f"number {number}" for number in range(records)])


def test_a_store_with_high_latency_does_not_slow_the_job(
    minio_server: MinioServer, proxy: HttpProxy, unique_name: str, tmp_path: Path
) -> None:
    url, out = f"s3://{minio_server.create_bucket(unique_name)}/job", Collect()
    job = prepared(url, tmp_path, out)
    ahead: list[int] = []
    job.board.listen(lambda now: ahead.append(now.ahead))
    job.start().result()
    assert Counter(out.values) == expected()
    log = ManifestLog(ObjectStore(url))
    steps = [(statistics_of(log.read(epoch)) or {}).get("steps", 1) for epoch in log.epochs()]
    assert max(ahead) >= 2 and max(steps) >= 2


def test_input_read_during_an_outage_of_the_store_is_published_after_it(
    minio_server: MinioServer, proxy: HttpProxy, unique_name: str, tmp_path: Path
) -> None:
    url, out = f"s3://{minio_server.create_bucket(unique_name)}/job", Collect()
    job = prepared(url, tmp_path, out, ahead_max_epochs="4", store_patience="1 s")
    moments: dict[str, float] = {}

    def disconnect() -> None:
        moments["away"] = time.monotonic()
        proxy.rule = away

    def reconnect() -> None:
        moments["back"] = time.monotonic()
        proxy.rule = far

    when(job, lambda now: now.published >= 2, disconnect)
    when(job, lambda now: now.store_unreachable and now.ahead >= 12, reconnect)
    job.start().result()
    assert {"away", "back"} <= moments.keys()
    assert Counter(out.values) == expected()
    assert job.board.now.restarts == 0 and not job.board.now.store_unreachable


def test_a_killed_job_with_a_distant_store_publishes_every_record_once(
    minio_server: MinioServer, proxy: HttpProxy, unique_name: str, tmp_path: Path
) -> None:
    url, out = f"s3://{minio_server.create_bucket(unique_name)}/job", Collect()
    for number in range(4):
        # Each time on another machine: files not yet uploaded are lost.
        job = prepared(url, tmp_path / str(number), out)
        if number < 3:
            began = len(out.publications)
            when(job, lambda now, b=began: now.ahead >= 3 and len(out.publications) >= b + 2, job.cancel)  # type: ignore[misc]
        job.start().wait()
    assert job.status() is JobStatus.FINISHED
    assert Counter(out.values) == expected()
