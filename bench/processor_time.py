"""The processor time of an action, in this process and all its descendants.

On a shared machine wall-clock time depends on other processes; the processor time spent on the action does not. It
includes user and system time of every process, also of those that have ended since and were waited for by their
parents. Servers of the benchmark are excluded by their process ids.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

import psutil

__all__ = ["processor_s", "taken_s"]


def processor_s(action: Callable[[], object], without: Collection[int] = ()) -> float:
    """The seconds of processor time of `action`, all threads and processes together."""
    before = taken_s(os.getpid(), without)
    action()
    return taken_s(os.getpid(), without) - before


def taken_s(pid: int, without: Collection[int] = ()) -> float:
    """The processor time of a process and its descendants since their start."""
    root = psutil.Process(pid)
    return sum(_seconds_of(process) for process in [root, *root.children(recursive=True)] if process.pid not in without)


def _seconds_of(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # its time is now part of its parent's
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
