"""A program in an operating-system session of its own, so that it can be killed with all it has started.

A process group is not enough: Spark's Python workers make one of their own. None of them leaves the session, so
everything whose session is the program's is killed, again and again until nothing is left. Tests that are killed
themselves leave none behind either (`servers.guard`).
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from servers.guard import GUARD

__all__ = ["ProcessSession"]


class ProcessSession:
    """A running program; its lines of output arrive as they are printed."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path, errors: Path) -> None:
        self._errors = errors
        with errors.open("ab") as stderr:
            self._process = subprocess.Popen(
                list(command),
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        GUARD.watch(self._process.pid)
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        """Of the program itself."""
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            for line in stdout:
                self._lines.put(line.decode(errors="replace").rstrip("\n"))
        self._lines.put(None)

    def say(self, line: str) -> None:
        """Give the program a line of input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def next_line(self, timeout_s: float) -> str | None:
        """The next line, or None when the program has ended. queue.Empty when neither comes in time."""
        return self._lines.get(timeout=timeout_s)

    def wait(self, timeout_s: float) -> int:
        """The exit code."""
        code = self._process.wait(timeout_s)
        GUARD.unregister(self._process.pid)
        return code

    def exit_code(self) -> int | None:
        """None while it runs."""
        code = self._process.poll()
        if code is not None:
            GUARD.unregister(self._process.pid)
        return code

    def run_out(self, patience_s: float) -> None:
        """Let it come to its end, which must be a good one, and leave nothing behind. It says something meanwhile."""
        try:
            while self.next_line(patience_s) is not None:
                pass
            assert self.wait(60) == 0, self.errors()[-4000:]
        finally:
            self.kill()

    def errors(self) -> str:
        """What it wrote to stderr, over all its starts."""
        return self._errors.read_text(errors="replace")

    def alive(self) -> list[int]:
        """The processes of the session that still run."""
        return [pid for pid in psutil.pids() if self._is_ours(pid)]

    def workers(self) -> list[int]:
        """Of those the Python workers of Spark: what its daemon has started."""
        return [pid for pid in self.alive() if "pyspark.daemon" in _command(_parent(pid))]

    def _is_ours(self, pid: int) -> bool:
        try:
            return os.getsid(pid) == self._process.pid and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, ProcessLookupError, PermissionError):
            return False

    def stop(self, timeout_s: float) -> int:
        """Ask the program to end; returns its exit code."""
        self._process.terminate()
        return self.wait(timeout_s)

    def kill(self, timeout_s: float = 30.0) -> int:
        """Kill everything with -9; returns how many processes that were."""
        killed: set[int] = set()
        deadline = time.monotonic() + timeout_s
        while alive := self.alive():
            for pid in alive:
                try:
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
                except ProcessLookupError:
                    pass
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes {alive} survive kill -9")
        self.wait(timeout_s)
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        return len(killed)


def _parent(pid: int) -> int:
    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return 0


def _command(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""
