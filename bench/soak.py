"""Whether a job that runs for thousands of epochs stays stable: memory, shuffle files, open files, store.

Samples are taken every few epochs, without forcing a collection, so that the job runs as it would alone. Only the heap
is sampled after a collection, at four moments (the ends of the thirds), since before one it is meaningless.

*Flat* means: after a warm-up, the median of the last third is at most a tenth above that of the first third, or has
grown by less than a small absolute amount.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from measure import Requirement
from pyspark.sql import SparkSession

__all__ = ["Flatness", "Probe", "flatness", "watch"]

GROWTH_MAX = 1.10
_MEGABYTE = 1 << 20
_GROWTH_SMALL = {"MB": 20.0, "files": 20.0}


@dataclass(frozen=True)
class Flatness:
    """A quantity in the first and in the last third."""

    name: str
    unit: str
    first: float
    last: float

    @property
    def flat(self) -> bool:
        return self.last <= GROWTH_MAX * self.first or self.last - self.first < _GROWTH_SMALL[self.unit]

    def requirement(self, epochs: int) -> Requirement:
        """As a line: the growth, with both figures."""
        growth = self.last / self.first if self.first else (1.0 if not self.last else float("inf"))
        note = f"{self.first:.1f} → {self.last:.1f} {self.unit}; or under {_GROWTH_SMALL[self.unit]:g} {self.unit} more"
        name = f"{self.name}, last third to first of {epochs:,} epochs"
        return Requirement(name, growth, f"≤ {GROWTH_MAX:g}", "×", self.flat, note)


def flatness(name: str, unit: str, samples: Sequence[float]) -> Flatness:
    """Compare the thirds of a series.

    >>> flatness("disk", "MB", [100, 100, 130, 130, 150, 150]).flat
    False
    """
    third = max(1, len(samples) // 3)
    return Flatness(name, unit, statistics.median(samples[:third]), statistics.median(samples[-third:]))


class Probe:
    """Reads the resource usage of the driver, its JVM and its Python workers."""

    def __init__(self, session: SparkSession, store: str) -> None:
        self._session, self._store = session, Path(store)
        self._driver = psutil.Process()
        jvm: Any = session._jvm
        self._jvm = jvm
        self._java = psutil.Process(int(jvm.java.lang.ProcessHandle.current().pid()))
        # Spark's own list of its folders is out of reach: py4j breaks on the classes it hangs on. Where there is a
        # memory file system, `make_session` gives each application a folder of its own.
        places = session.conf.get("spark.local.dir", "")
        if not places:
            raise RuntimeError("spark.local.dir is not set: there is no folder of this application alone to measure")
        self._shuffle = [Path(place) for place in places.split(",")]

    def sample(self) -> dict[str, float]:
        """One reading; names carry their unit."""
        workers = [child for child in self._java.children(recursive=True) if "python" in _name(child)]
        return {
            "driver memory, Python (MB)": self._driver.memory_info().rss / _MEGABYTE,
            "worker memory, all workers (MB)": _total(workers, lambda p: p.memory_info().rss) / _MEGABYTE,
            "shuffle disk (MB)": sum(map(_bytes_below, self._shuffle)) / _MEGABYTE,
            "shuffle files (files)": float(sum(map(_files_below, self._shuffle))),
            "open files, driver, JVM and workers (files)": _total([self._driver, self._java, *workers], _open_files),
            "job store (files)": float(_files_below(self._store)),
        }

    def java_resident_mb(self) -> float:
        """The JVM's resident memory: its heap grows to its limit whatever lives in it."""
        return float(self._java.memory_info().rss / _MEGABYTE)

    def heap_mb(self) -> float:
        """The JVM's heap in use after a collection."""
        self._jvm.java.lang.System.gc()
        runtime = self._jvm.java.lang.Runtime.getRuntime()
        return float((runtime.totalMemory() - runtime.freeMemory()) / _MEGABYTE)


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _total(processes: Sequence[psutil.Process], read: Callable[[psutil.Process], float]) -> float:
    total = 0.0
    for process in processes:
        try:
            total += read(process)
        except psutil.NoSuchProcess:  # a worker may end between listing and reading
            continue
    return total


def _open_files(process: psutil.Process) -> float:
    return float(process.num_fds())


def _bytes_below(place: Path) -> int:
    total = 0
    for folder, _, files in os.walk(place):
        for name in files:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:  # removed in the meantime
                continue
    return total


def _files_below(place: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(place))


def watch(
    probe: Probe, run_epochs: Callable[[int], object], epochs: int, warm_up_epochs: int, every_epochs: int
) -> list[Flatness]:
    """Run `epochs` epochs, sampling; returns how every quantity has changed after the warm-up."""
    run_epochs(warm_up_epochs)
    steps = max(3, (epochs - warm_up_epochs) // every_epochs)
    heap = [probe.heap_mb()]
    series: dict[str, list[float]] = {}
    for step in range(1, steps + 1):
        run_epochs(every_epochs)
        _keep(series, probe.sample())
        if step % max(1, steps // 3) == 0:
            heap.append(probe.heap_mb())
    results = [flatness(*_named(name), values) for name, values in series.items()]
    return [*results, Flatness("driver memory, JVM heap after collection", "MB", heap[0], heap[-1])]


def _keep(series: dict[str, list[float]], sample: Mapping[str, float]) -> None:
    for name, value in sample.items():
        series.setdefault(name, []).append(value)


def _named(name: str) -> tuple[str, str]:
    label, _, unit = name.rpartition(" (")
    return label, unit.rstrip(")")
