"""A real Redis for the benchmark, and its Python client, neither of which Millstream depends on.

The server is Debian's package; the client is installed in `build/peers` (scripts/peers), where the job's workers import
it. The server is a child on a free port of this machine, in a folder of its own, without persistence.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["fetch_redis", "keys_held", "redis_server"]

_SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
_START_S = 20.0


def fetch_redis() -> None:
    """Install server and client if they are missing."""
    subprocess.run([str(_SCRIPTS / "debian"), "redis-server", "redis-server"], check=True)
    subprocess.run([str(_SCRIPTS / "peers"), sys.executable, "redis"], check=True)


@contextmanager
def redis_server() -> Iterator[int]:
    """A running server; yields its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="millstream-bench-redis-") as folder:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        command += ["--save", "", "--appendonly", "no"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ) as child:
            try:
                _await(port)
                yield port
            finally:
                child.terminate()
                child.wait(60)


def keys_held(port: int) -> int:
    """Its number of keys."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"DBSIZE\r\n")
        return int(connection.recv(64).strip(b":\r\n"))


def _await(port: int) -> None:
    until_s = time.monotonic() + _START_S
    while True:
        try:
            keys_held(port)
            return
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.05)
