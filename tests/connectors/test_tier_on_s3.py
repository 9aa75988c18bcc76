"""A job on a real S3 with a local tier: reads from the service after a restart, on the same machine and on another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.minio import MinioServer

from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.state.segments import open_segments
from millstream.storage.objects import ObjectStore
from millstream.storage.store import open_store
from millstream.storage.tier import tiered_store
from millstream.testing import EPOCH, Collect, ManualClock, Script
from millstream.testing.in_memory import _stop_after

KEYS, EPOCHS = 30_000, 12


@pytest.fixture
def store_url(minio_server: MinioServer, monkeypatch: pytest.MonkeyPatch, unique_name: str) -> str:
    for name, value in {**minio_server.environment_for_clients(), "AWS_ENDPOINT_URL": minio_server.url}.items():
        monkeypatch.setenv(name, value)
    return f"s3://{minio_server.create_bucket(unique_name)}/job"


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """The reads from the service: the name of each file, and the bytes."""
    reads: list[tuple[str, int]] = []
    get, get_range = ObjectStore.get, ObjectStore.get_range

    def counted_get(self: ObjectStore, name: str) -> bytes:
        data = get(self, name)
        reads.append((name, len(data)))
        return data

    def counted_range(self: ObjectStore, name: str, start: int, stop: int) -> bytes:
        data = get_range(self, name, start, stop)
        reads.append((name, len(data)))
        return data

    monkeypatch.setattr(ObjectStore, "get", counted_get)
    monkeypatch.setattr(ObjectStore, "get_range", counted_range)
    yield reads


def run(store_url: str, tier: Path, epochs: int | None, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One process of the job: all keys once, then a few of them in each epoch; stops after a number of epochs."""
    monkeypatch.setattr(tiered_store, "_TIERS", {})  # the process starts without any cache
    items: list[Any] = [*range(KEYS), EPOCH]
    for epoch in range(1, EPOCHS):
        items += [*range(epoch, KEYS, 3_000), EPOCH]
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    configuration = Configuration().set_string("millstream.tier.folder", str(tier))
    env.configure(configuration.set_string("millstream.ahead.max-epochs", "1"))
    out = Collect()
    read = env.add_source(Script([(item, 1) if item != EPOCH else item for item in items], type_info=PAIR), "numbers")
    summed = read.uid("numbers").key_by(lambda pair: pair[0], Types.LONG())
    summed.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sums").sink_to(out).uid("out")
    runner = LocalRunner()
    job = Launch(ManualClock(), runner, open_store(store_url)).prepare(env._graph("sums"), env._job_settings())
    if epochs is not None:
        _stop_after(job, epochs)
    job.start()
    assert job.wait(120)
    job.result()
    runner.close()
    return [tuple(value) for value in out.values]


PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


def expected() -> list[tuple[int, int]]:
    """The combined output of both processes."""
    later = [(key, 2) for epoch in range(1, EPOCHS) for key in range(epoch, KEYS, 3_000)]
    return sorted([*((key, 1) for key in range(KEYS)), *later])


def segment_bytes(reads: list[tuple[str, int]]) -> int:
    return sum(size for name, size in reads if name.startswith("segments/"))


def test_a_restart_on_the_same_machine_reads_no_cached_file(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetched: list[tuple[str, int]]
) -> None:
    before = run(store_url, tmp_path / "machine", 2, monkeypatch)
    assert segment_bytes(fetched) == 0  # the files it wrote were cached
    store = open_store(store_url)
    state_bytes = sum(len(store.get(name)) for name in store.list("segments"))
    fetched.clear()
    assert sorted(before + run(store_url, tmp_path / "machine", None, monkeypatch)) == expected()
    assert segment_bytes(fetched) == 0 and sum(size for _, size in fetched) < 0.05 * state_bytes


def test_another_machine_reads_each_needed_file_once(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetched: list[tuple[str, int]]
) -> None:
    before = run(store_url, tmp_path / "machine", 2, monkeypatch)
    fetched.clear()
    assert sorted(before + run(store_url, tmp_path / "another", None, monkeypatch)) == expected()
    names = [name for name, _ in fetched if name.startswith("segments/")]
    assert names and len(names) == len(set(names))


def test_another_machine_reads_large_files_partially(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetched: list[tuple[str, int]]
) -> None:
    monkeypatch.setattr(open_segments, "WHOLE_BYTES_MAX", 1_000)
    before = run(store_url, tmp_path / "machine", 2, monkeypatch)
    fetched.clear()
    assert sorted(before + run(store_url, tmp_path / "another", None, monkeypatch)) == expected()
    parts = [read for read in fetched if read[0].startswith("segments/")]
    assert parts and list((tmp_path / "another").glob("stores/*/parts/**/*-*"))
    monkeypatch.undo()


def test_a_full_disk_costs_requests_but_loses_no_output(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    before = run(store_url, tmp_path / "file" / "no-folder", 2, monkeypatch)
    assert sorted(before + run(store_url, tmp_path / "file" / "no-folder", None, monkeypatch)) == expected()
    assert "there is no local tier" in caplog.text
