"""The executors of an application: which there are, asked by the driver, and which one this is, asked by a task.

Spark tells Python neither. The driver asks the scheduler in the JVM for the ids, in one call, and for host and cores of
those that are new. Those that are being decommissioned get no tasks any more, and are left out. A worker process looks
at the command lines of the processes above it: one of them is its executor, which was started with its id and host.
Where neither can be told (in `local[...]`, on systems without /proc), the answer is that nothing is known, and nobody
depends on more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from millstream.spark.placement import Executor, place_of

__all__ = ["ExecutorList", "own_place", "place_in"]

_GENERATIONS = 4  # a worker, the daemon that forked it, the executor; one more for a shell between them


class ExecutorList:
    """The executors of a Spark context that run tasks now."""

    def __init__(self, context: Any) -> None:
        self._scheduler = context._jsc.sc()
        self._backend = self._scheduler.schedulerBackend()
        try:
            self._leaving = self._backend.executorsPendingDecommission()
        except Exception:
            self._leaving = None  # of a manager that does not know it: they are noticed when they take no task
        self._known: dict[str, Executor] = {}

    def now(self) -> tuple[Executor, ...]:
        """All of them, in the order of their ids."""
        ids = [number for number in self._scheduler.getExecutorIds().mkString(",").split(",") if number]
        if self._leaving is not None and self._leaving.size():
            ids = [number for number in ids if self._backend.isExecutorActive(number)]
        for number in ids:
            if number not in self._known:
                self._learn(number)
        # As numbers, where they are numbers: 10 comes after 9.
        ordered = sorted(ids, key=lambda number: (len(number), number))
        return tuple(self._known[number] for number in ordered if number in self._known)

    def _learn(self, number: str) -> None:
        try:
            summary = self._scheduler.statusStore().executorSummary(number)
        except Exception:
            return  # it has just come, and is not listed yet: it will be before the next epoch
        host = summary.hostPort().rpartition(":")[0]
        self._known[number] = Executor(number, host, max(1, summary.totalCores()))


@cache
def own_place() -> str:
    """The executor that this worker process belongs to, as a place; empty if that is not known. Looked for once."""
    process = os.getpid()
    for _ in range(_GENERATIONS):
        place = place_in(_command_line(process))
        if place:
            return place
        process = _parent(process)
    return ""


def place_in(command_line: list[str]) -> str:
    """The place that the command line of an executor names.

    >>> place_in(["java", "Backend", "--executor-id", "3", "--hostname", "10.0.0.7", "--cores", "1"])
    '3@10.0.0.7'
    >>> place_in(["java", "SparkSubmit"])
    ''
    """
    named = dict(pairwise(command_line))
    number = named.get("--executor-id", "")
    return place_of(Executor(number, named.get("--hostname", ""))) if number else ""


def _command_line(process: int) -> list[str]:
    return _read(process, "cmdline", lambda data: data.decode(errors="replace").split("\0")) or []


def _parent(process: int) -> int:
    # The name of the program stands in brackets and may hold anything; what follows is separated by blanks.
    return _read(process, "stat", lambda data: int(data.rpartition(b")")[2].split()[1])) or 0


def _read(process: int, name: str, reading: Callable[[bytes], Any]) -> Any:
    try:
        return reading(Path("/proc", str(process), name).read_bytes())
    except (OSError, ValueError, IndexError):
        return None
