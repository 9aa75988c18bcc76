"""Processes that die in the middle of a commit, as with kill -9.

Forking the test's process would be fast but wrong: a client library's threads do not exist in the child, and its locks
may be held forever. So a nursery is started, a fresh interpreter without threads: for each commit it forks a child,
which opens the sink and dies at its line.

    python -c "...serve()"      stdin: lengths, the world and a packed commit; stdout: a line with the exit code
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from millstream.compiler.passes.check_functions import packed, unpacked
from millstream.connectors.contract_checks import opened_sink
from millstream.connectors.contracts import CommitId, Json, Sink
from millstream.storage.store import Store
from millstream.testing.connectors.crash_points import KILLED, CrashPoints

__all__ = ["NURSERY", "DoomedCommit", "Nursery"]

_LENGTH = struct.Struct(">Q")
_TIMEOUT_S = 60.0
_STARTED_TIMEOUT_S = 120.0
_SERVE = "from millstream.testing.connectors.crash_processes import serve; serve()"


@dataclass(frozen=True)
class DoomedCommit:
    """A commit, and the step at which its process dies."""

    sink: Sink
    commit: CommitId
    publish: list[Json]
    store: Store
    moment: int

    def run(self) -> None:
        """Run the commit, in the child."""
        opened = opened_sink(self.sink, None)
        points = CrashPoints(self.sink)
        points.run_to_death(lambda: opened.commit(self.commit, self.publish, self.store), self.moment)


class Nursery:
    """The client of the nursery, started on first use. It ends with this process, when its input is closed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def crash(self, commit: DoomedCommit) -> bool:
        """Kill a process in this commit; returns whether it got there. Any other end of the process is raised."""
        # The child uses the current environment and import path, not those at the nursery's start.
        world = json.dumps({"path": sys.path, "environment": dict(os.environ)}).encode()
        line = self._ask(b"".join(_LENGTH.pack(len(part)) + part for part in (world, packed(commit))))
        assert line in ("0", str(KILLED)), f"a commit in a process of its own ended with {line or 'nothing'}"
        return line == str(KILLED)

    def _ask(self, request: bytes) -> str:
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(request)
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], _STARTED_TIMEOUT_S + _TIMEOUT_S)[0]:
            self._end()
            raise AssertionError(f"a commit in a process of its own does not end within {_TIMEOUT_S:g} s")
        return self._process.stdout.readline().decode().strip()

    def _start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        atexit.register(self._end)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


NURSERY = Nursery()


def serve() -> None:
    """Run the nursery: one child per commit, one after the other, until the input ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # output of connectors must not mix with answers
    while (world := _part()) is not None:
        data = _part()
        try:
            _become(json.loads(world))
            # Unpacked here, so that modules are imported once and not by every child. Settings start no threads.
            commit: DoomedCommit = unpacked(data or b"")
        except Exception as error:
            os.write(answers, f"{type(error).__name__}: {error}\n".replace("\n", " ").encode() + b"\n")
            continue
        child = os.fork()
        if child == 0:
            _die(commit)
        os.write(answers, f"{_ended(child)}\n".encode())


def _part() -> bytes | None:
    header = sys.stdin.buffer.read(_LENGTH.size)
    return sys.stdin.buffer.read(*_LENGTH.unpack(header)) if header else None


def _become(world: dict[str, Any]) -> None:
    """Adopt the environment of the requesting process."""
    sys.path[:] = world["path"]
    os.environ.clear()
    os.environ.update(world["environment"])


def _die(commit: DoomedCommit) -> None:
    """Run the commit and die, in the child."""
    try:
        commit.run()
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _ended(child: int) -> int | str:
    """The exit code of a child, killed when it takes too long."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"no answer within {_TIMEOUT_S:g} s"
