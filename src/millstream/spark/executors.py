"""The executors of an application, for the driver, and the executor of the current process, for a task.

Spark exposes neither to Python. The driver queries the scheduler in the JVM for all ids in one call, and for host and
cores of new ones; executors being decommissioned get no more tasks and are excluded. A worker process examines the
command lines of its ancestor processes, one of which is its executor, started with its id and host. Where this is
impossible (`local[...]`, systems without /proc) the result is empty, which all callers accept.
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
    """The executors of a Spark context that accept tasks."""

    def __init__(self, context: Any) -> None:
        self._scheduler = context._jsc.sc()
        self._backend = self._scheduler.schedulerBackend()
        try:
            self._decommissioning = self._backend.executorsPendingDecommission()
        except Exception:
            self._decommissioning = None  # not supported by this cluster manager: they are noticed by running no task
        self._executors: dict[str, Executor] = {}

    def now(self) -> tuple[Executor, ...]:
        """All current executors, ordered by id."""
        ids = [number for number in self._scheduler.getExecutorIds().mkString(",").split(",") if number]
        if self._decommissioning is not None and self._decommissioning.size():
            ids = [number for number in ids if self._backend.isExecutorActive(number)]
        for number in ids:
            if number not in self._executors:
                self._add(number)
        # In numeric order: 10 after 9.
        ordered = sorted(ids, key=lambda number: (len(number), number))
        return tuple(self._executors[number] for number in ordered if number in self._executors)

    def _add(self, number: str) -> None:
        try:
            summary = self._scheduler.statusStore().executorSummary(number)
        except Exception:
            return  # just registered and not listed yet: it will be before the next epoch
        host = summary.hostPort().rpartition(":")[0]
        self._executors[number] = Executor(number, host, max(1, summary.totalCores()))


@cache
def own_place() -> str:
    """The executor of this worker process, as a place; empty if unknown. Determined once."""
    process = os.getpid()
    for _ in range(_GENERATIONS):
        place = place_in(_command_line(process))
        if place:
            return place
        process = _parent(process)
    return ""


def place_in(command_line: list[str]) -> str:
    """The place named by the command line of an executor.

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
    # The program's name is in parentheses and may contain anything; the fields after it are separated by blanks.
    return _read(process, "stat", lambda data: int(data.rpartition(b")")[2].split()[1])) or 0


def _read(process: int, name: str, parse: Callable[[bytes], Any]) -> Any:
    try:
        return parse(Path("/proc", str(process), name).read_bytes())
    except (OSError, ValueError, IndexError):
        return None
