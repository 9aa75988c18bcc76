"""Shared code of all servers: a folder, ports, a process that is started, polled until it is ready, stopped and
killed.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from servers.guard import GUARD

__all__ = ["HOST", "ROOT", "ServerProcess", "binaries", "free_port"]

HOST = "127.0.0.1"
ROOT = Path(__file__).resolve().parents[2]
_POLL_S = 0.02
_START_TIMEOUT_S = 120.0


def binaries() -> Path:
    """The folder in which scripts/servers installs servers that are no Debian packages."""
    return Path(os.environ.get("MILLSTREAM_SERVERS") or ROOT / "build" / "servers")


def free_port() -> int:
    """A port without a listener, below the ephemeral range.

    Otherwise an outgoing connection could take the port of a server that is down for a moment.
    """
    for _ in range(1000):
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port between 10000 and 32000")


class ServerProcess:
    """One server. Subclasses define the `command` and the check `is_ready`."""

    name = "server"

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix=f"millstream-{self.name}-"))
        self.log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    # --- defined by each server ---

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return {}

    def is_ready(self) -> bool:
        """Whether it serves. An error counts as no."""
        raise NotImplementedError

    # --- operations ---

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, with its existing data, and wait until it serves."""
        self.launch()
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def launch(self) -> None:
        """Start it without waiting."""
        assert not self.is_running(), f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                list(self.command()),
                env={**os.environ, **self.environment()},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        GUARD.watch(self._process.pid, self.folder)

    def wait_until_ready(self, timeout_s: float = _START_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        refusal: Exception | None = None
        while time.monotonic() < deadline:
            if not self.is_running():
                raise RuntimeError(
                    f"{self.name} has ended with {self._process and self._process.returncode}:{self.last_lines()}"
                )
            try:
                if self.is_ready():
                    return
            except Exception as error:
                refusal = error
            time.sleep(_POLL_S)
        raise TimeoutError(f"{self.name} does not serve after {timeout_s:.0f} s ({refusal}):{self.last_lines()}")

    def last_lines(self) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n" + (text[-3000:] or "it has printed nothing")

    def kill(self) -> None:
        """Kill it with -9, with all its child processes. Its data are unchanged."""
        if self._process is None:
            return
        family = self._family()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=30)
        self._ended()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Terminate it; kill it after the timeout."""
        if self.is_running():
            assert self._process is not None
            self._process.send_signal(self.stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        self.kill()

    stop_signal = signal.SIGTERM

    def restart(self) -> None:
        """Kill it with -9 if it runs, and start it again with the same data and ports."""
        self.kill()
        self.start()

    def remove(self) -> None:
        """Kill it and delete its data: it is no longer needed."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _family(self) -> list[psutil.Process]:
        """The process and its descendants, and others of its group whose parent has ended."""
        assert self._process is not None
        leader = self._process.pid
        members = []
        for process in psutil.process_iter():
            try:
                if process.pid == leader or os.getpgid(process.pid) == leader:
                    members += [process, *process.children(recursive=True)]
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        return list(dict.fromkeys(members))

    def _ended(self) -> None:
        assert self._process is not None
        self._process.wait(30)
        GUARD.unregister(self._process.pid)
        self._process = None


def accepts(port: int) -> bool:
    """Whether the port accepts connections."""
    with socket.create_connection((HOST, port), timeout=1):
        return True
