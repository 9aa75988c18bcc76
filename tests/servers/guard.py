"""Servers never outlive the tests, not even tests killed with -9.

One small process watches: it receives the process groups of the servers through a pipe, and when the pipe closes or its
parent ends, it kills the remaining ones. PR_SET_PDEATHSIG is no alternative: it fires when the *thread* ends that
started the server, and a change of user (PostgreSQL's) clears it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["GUARD", "Guard"]


@dataclass
class Guard:
    """The near end: starts the watching process at the first use, once for each process that starts servers."""

    _watcher: subprocess.Popen[bytes] | None = None
    _owner: int = 0

    def watch(self, group: int, folder: Path | None = None) -> None:
        """Kill the process group and remove the folder, if any, when this process has ended."""
        self._send(f"watch {group}" if folder is None else f"watch {group} {folder}")

    def unregister(self, group: int) -> None:
        """The group has ended. The folder is still removed at the end."""
        self._send(f"forget {group}")

    def _send(self, line: str) -> None:
        if self._watcher is None or self._owner != os.getpid():
            self._owner = os.getpid()
            self._watcher = subprocess.Popen(
                [sys.executable, "-S", __file__, str(os.getpid())], stdin=subprocess.PIPE, start_new_session=True
            )
            atexit.register(self._end)
        assert self._watcher.stdin is not None
        self._watcher.stdin.write(line.encode() + b"\n")
        self._watcher.stdin.flush()

    def _end(self) -> None:
        if self._watcher is not None and self._owner == os.getpid():
            assert self._watcher.stdin is not None
            self._watcher.stdin.close()
            self._watcher.wait(30)
            self._watcher = None


def _watch(parent: int) -> None:
    groups: set[int] = set()
    folders: set[str] = set()
    unread = b""
    while True:
        # The pipe is read to its end, even if the parent ends before this process has started.
        if not select.select([0], [], [], 1.0)[0]:
            if os.getppid() != parent:
                break
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            break
        *lines, unread = (unread + chunk).split(b"\n")
        for line in lines:
            verb, group, *folder = line.decode().split(" ", 2)
            (groups.add if verb == "watch" else groups.discard)(int(group))
            folders.update(folder)
    for number in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(number, signal.SIGKILL)
    for name in folders:
        shutil.rmtree(name, ignore_errors=True)


GUARD = Guard()

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with its parent, never before
    _watch(int(sys.argv[1]))
