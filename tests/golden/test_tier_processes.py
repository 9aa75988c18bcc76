"""The local tier shared by real processes: they concurrently write, read, evict and are killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from millstream.storage.local import LocalStore
from millstream.storage.tier.local_tier import LocalTier
from millstream.storage.tier.tiered_store import TieredStore

BYTES_MAX = 60_000
PROCESSES, KILLS = 3, 8

_PROCESS = """
import random, sys
from pathlib import Path
from millstream.storage.local import LocalStore
from millstream.storage.tier.local_tier import LocalTier
from millstream.storage.tier.tiered_store import TieredStore
from test_tier_processes import BYTES_MAX, content

folder, seed, is_deferred = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "deferred"
rng = random.Random(seed)
store = TieredStore(LocalStore(folder / "store", fsync=False), LocalTier(folder / "tier", BYTES_MAX))
for number in range(1_000_000):
    store.adopt()
    name = f"segments/u/s/{seed}-{number}"
    store.put(name, content(name))
    if not is_deferred or rng.random() < 0.1:
        store.flush()
    print(name, flush=True)  # acknowledged
    known = [line.strip() for path in folder.glob("log-*") for line in open(path) if line.endswith("\\n")]
    for name in rng.sample(known, min(4, len(known))):
        data = content(name)
        assert store.get(name) == data, name
        assert store.get_range(name, 5, 50) == data[5:50], name
        held = store.hold(name, len(data))
        if held is not None:
            assert held.read_bytes()[: len(data)] == data, name
            if rng.random() < 0.7:
                store.release(held)
"""


def content(name: str) -> bytes:
    return name.encode() * (10 + sum(name.encode()) % 60)


def start(folder: Path, seed: str, mode: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    with open(folder / f"log-{seed}", "wb") as log, open(folder / f"errors-{seed}", "wb") as errors:
        command = [sys.executable, "-c", _PROCESS, str(folder), seed, mode]
        return subprocess.Popen(command, stdout=log, stderr=errors, env=environment)


def acknowledged(folder: Path) -> list[str]:
    """Names printed completely: a process may be killed while it prints."""
    texts = [path.read_text() for path in folder.glob("log-*")]
    return [line for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")]


@pytest.mark.parametrize("mode", ["flushed", "deferred"])
def test_killed_processes_lose_no_acknowledged_file(tmp_path: Path, mode: str) -> None:
    rng = random.Random(f"{mode}-{time.time_ns()}")
    running = {f"{mode}x{number}": start(tmp_path, f"{mode}x{number}", mode) for number in range(PROCESSES)}
    try:
        for kill in range(KILLS):
            count, deadline_s = len(acknowledged(tmp_path)), time.monotonic() + 60
            while len(acknowledged(tmp_path)) < count + 10 and time.monotonic() < deadline_s:
                assert all(process.poll() is None for process in running.values()), errors_in(tmp_path)
                time.sleep(rng.random() * 0.05)
            victim = rng.choice(sorted(running))
            process = running.pop(victim)
            process.send_signal(signal.SIGKILL)
            process.wait(30)
            running[f"{mode}k{kill}"] = start(tmp_path, f"{mode}k{kill}", mode)
    finally:
        for process in running.values():
            process.kill()
            process.wait(30)
    names = [line.strip() for line in acknowledged(tmp_path)]
    below = LocalStore(tmp_path / "store", fsync=False)
    if mode == "flushed":
        assert all(below.exists(name) for name in names)
    last = TieredStore(below, LocalTier(tmp_path / "tier", BYTES_MAX))
    last.adopt()
    last.flush()
    assert errors_in(tmp_path) == ""
    assert all(below.get(name) == content(name) for name in names) and len(names) >= KILLS * 10
    assert last.tier.unsent_bytes() == 0
    left = [path.name for path in (tmp_path / "tier" / "processes").iterdir() if not path.name.startswith(".")]
    assert left == [last.tier._process.path.name]
    copies = [path for path in (tmp_path / "tier" / "stores").rglob("*") if path.is_file()]
    in_flight_max = PROCESSES * max(len(content(name)) for name in names)
    assert sum(path.stat().st_size for path in copies) <= BYTES_MAX + in_flight_max
    last.tier.close()


def errors_in(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("errors-*"))
