"""The hourly jobs of examples/impressions: one that serves queries itself, and one that feeds Redis."""

from __future__ import annotations

import importlib
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream import query
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import PlatformError
from millstream.testing import Collect, run

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "impressions"
STORES = count()
ADS, PER_SECOND, EPOCHS = 200, 1_000.0, 12
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def example() -> Iterator[tuple[ModuleType, ModuleType]]:
    names = ("hourly", "hourly_redis")
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module(names[0]), importlib.import_module(names[1])
    finally:
        sys.path.remove(str(FOLDER))
        for name in names:
            sys.modules.pop(name, None)


def counted(hourly: ModuleType, records: int) -> Counter[tuple[int, int]]:
    """Impressions of each ad in each hour, by a plain count of the first records: (ad, start of the hour)."""
    seen = hourly.AdServer(ADS, PER_SECOND)(np.arange(records))
    hours = [at_ms // HOUR_MS * HOUR_MS for at_ms in seen.column("at_ms").to_pylist()]
    return Counter(zip(seen.column("ad").to_pylist(), hours, strict=True))


def run_some(hourly: ModuleType, parallelism: int, build: Any) -> str:
    """Run a program for some epochs of 8,000 impressions each; returns its store."""
    store = f"hourly-example-{next(STORES)}"

    def building(env: StreamExecutionEnvironment) -> None:
        build(hourly.impressions(env, hourly.AdServer(ADS, PER_SECOND), None, paced=False))

    run(building, store=store, parallelism=parallelism, epochs=EPOCHS, epoch_records=8_000, job_name="hourly")
    return store


@pytest.mark.parametrize("parallelism", [1, 2])
def test_past_hours_are_in_files_and_open_ones_can_be_queried(
    example: tuple[ModuleType, ModuleType], tmp_path: Path, parallelism: int
) -> None:
    hourly, _ = example
    store = run_some(hourly, parallelism, lambda seen: hourly.program(seen, str(tmp_path)))
    found: Counter[tuple[int, int]] = Counter()
    for file in tmp_path.glob("*.parquet"):
        for row in pq.read_table(file).to_pylist():
            found[row["ad"], row["window_start"]] += row["impressions"]
    closed = {start for _, start in found}
    view = query.open(f"memory://{store}").newest()
    for ad, windows in enumerate(view.windows_many(hourly.NAME, range(ADS))):
        for window in windows:
            assert window.start not in closed and window.end == window.start + HOUR_MS
            found[ad, window.start] += window.result["impressions"]
    assert len(closed) >= 2
    assert found == counted(hourly, found.total())


def test_impressions_are_deterministic_and_skewed_to_small_numbers(
    example: tuple[ModuleType, ModuleType],
) -> None:
    hourly, _ = example
    many = hourly.AdServer()(np.arange(500_000))
    assert hourly.AdServer()(np.arange(7, 400_000, 16)) == many.take(pa.array(np.arange(7, 400_000, 16)))
    ads = many.column("ad").to_numpy()
    assert ads.min() >= 0 and ads.max() < hourly.ADS
    assert np.count_nonzero(ads == 0) > 10 * np.count_nonzero((ads >= 500_000) & (ads < 500_010))
    assert len(np.unique(ads)) > 250_000


def test_flushed_counts_cover_every_hour(example: tuple[ModuleType, ModuleType], tmp_path: Path) -> None:
    hourly, hourly_redis = example
    out = Collect("redis")
    run_some(hourly, 2, lambda seen: hourly_redis.program(seen, str(tmp_path), out))

    flushed = counts_of(out)
    assert flushed == counted(hourly, sum(flushed.values()))


def counts_of(out: Collect) -> dict[tuple[int, int], int]:
    """The last count of each ad and hour."""
    return {(place & 2**32 - 1, (place >> 32) * HOUR_MS): total for place, total in (one.value for one in out.records)}


@contextmanager
def redis_server(folder: Path) -> Iterator[int]:
    """A separate Redis without persistence; yields its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = f"--port {port} --bind 127.0.0.1 --appendonly no --loglevel warning --dir {folder}"
    server = subprocess.Popen(["redis-server", *options.split(), "--save", ""])
    try:
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < until, "redis-server does not answer"
                time.sleep(0.02)
        yield port
    finally:
        server.kill()
        server.wait()


def test_redis_has_the_counts_of_every_flushed_hour(
    example: tuple[ModuleType, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "build" / "peers"))  # installed by `make redis`; it is no dependency
    redis = importlib.import_module("redis")
    hourly, hourly_redis = example
    with redis_server(tmp_path) as port:
        sink = hourly_redis.RedisHours("127.0.0.1", port)
        run_some(hourly, 1, lambda seen: hourly_redis.program(seen, str(tmp_path / "hours"), sink))
        with redis.Redis("127.0.0.1", port) as client:
            found = {
                (int(ad), int(name.rsplit(b":", 1)[1])): int(impressions)
                for name in client.keys("impressions:*")
                for ad, impressions in client.hgetall(name).items()
            }
            assert all(client.ttl(name) > 0 for name in client.keys("*"))
    assert found == counted(hourly, sum(found.values()))


def test_without_the_redis_client_the_job_reports_what_to_install(
    example: tuple[ModuleType, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)  # as if it were not installed
    with pytest.raises(PlatformError, match="pip install redis"):
        example[1].RedisHours("127.0.0.1", 6379)
