"""Process identity: identifies a process so that other processes can check whether it still runs.

A process id alone is ambiguous: it is reused after a process ends, and denotes a different process on another machine
or in another container. So an identity holds the host's name, the *kernel* (its boot, and the process id namespace) and
the start time of the process. Only for a process of the same kernel can it be determined whether it has ended; for
others this is unknown.
"""

from __future__ import annotations

import os
import socket
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["ProcessIdentity", "has_surely_ended", "is_of_this_machine", "is_this_process", "this_process"]

_PROCESSES = Path("/proc")
_ENDED_STATES = ("Z", "X", "x")
_STARTED, _STATE = 19, 0  # positions of fields after the command's name in /proc/PID/stat


@dataclass(frozen=True)
class ProcessIdentity:
    """A process. `kernel` and `started` are opaque, and empty where the system does not provide them."""

    host: str
    kernel: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> ProcessIdentity:
    """The calling process.

    >>> is_this_process(this_process()), has_surely_ended(this_process())
    (True, False)
    """
    return _identity(os.getpid())


@cache
def _identity(pid: int) -> ProcessIdentity:
    return ProcessIdentity(socket.gethostname(), _kernel(), pid, _start_of(pid) or "")


def is_this_process(process: ProcessIdentity) -> bool:
    """Whether the identity is the calling process."""
    return process == this_process()


def is_of_this_machine(process: ProcessIdentity) -> bool:
    """Whether the process runs, or ran, on the kernel of the calling process.

    >>> is_of_this_machine(this_process()), is_of_this_machine(ProcessIdentity("x", "", 1, ""))
    (True, False)
    """
    here = this_process()
    return (process.host, process.kernel) == (here.host, here.kernel)


def has_surely_ended(process: ProcessIdentity) -> bool:
    """Whether the process ran on this kernel and has ended. False if unknown.

    >>> from dataclasses import replace
    >>> has_surely_ended(replace(this_process(), started="long ago")), has_surely_ended(ProcessIdentity("x", "", 1, ""))
    (True, False)
    """
    if not is_of_this_machine(process) or process.pid < 1:
        return False
    if not _has_ended(process.pid):
        start = _start_of(process.pid)
        # A different start time means that the id was reused.
        return bool(start and process.started and start != process.started)
    return True


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # ids of this size do not exist
        return True
    except OSError:
        return False  # another user's process
    fields = _stat(pid)
    return fields is not None and fields[_STATE] in _ENDED_STATES


def _start_of(pid: int) -> str | None:
    """The start time of a process in the system's unit; None if unavailable."""
    fields = _stat(pid)
    if fields is not None:
        return fields[_STARTED]
    if _PROCESSES.joinpath("self").exists():
        return None
    try:
        answer = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def _stat(pid: int) -> list[str] | None:
    try:
        text = (_PROCESSES / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the command's name may contain any character
    return fields if len(fields) > _STARTED else None


@cache
def _kernel() -> str:
    """The boot of the machine, and the process id namespace; empty if the system provides neither."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
