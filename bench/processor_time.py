"""The processor time that something takes, in this process and in all that descend from it.

A machine that others use too makes a clock on the wall say more of them than of what is measured; the time that the
processor worked for it does not. Counted are user and system time of every process, also of those that have ended since
and that their parents have waited for. Servers beside are left out by their process ids.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

import psutil

__all__ = ["processor_s", "taken_s"]


def processor_s(action: Callable[[], object], without: Collection[int] = ()) -> float:
    """The seconds of processor time that `action` took, all threads and processes together."""
    before = taken_s(os.getpid(), without)
    action()
    return taken_s(os.getpid(), without) - before


def taken_s(pid: int, without: Collection[int] = ()) -> float:
    """What a process and its descendants have taken since they began."""
    root = psutil.Process(pid)
    return sum(_seconds_of(process) for process in [root, *root.children(recursive=True)] if process.pid not in without)


def _seconds_of(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # its parent has its time now
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
