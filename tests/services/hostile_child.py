"""A query server in a child process, so that the resources that hostile clients use can be measured from outside."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pyarrow as pa
import pyarrow.flight as flight
from waits.patience import PATIENCE_S

SERVICES = Path(__file__).parent
GROWN_MAX_BYTES = 64 << 20


class Child:
    """The server, and its resources."""

    def __init__(self, url: str, flight_url: str, process: psutil.Process) -> None:
        self.url, self.flight_url, self.process = url, flight_url, process
        self.address = (urlsplit(url).hostname or "", urlsplit(url).port or 0)
        self.flight_address = (urlsplit(flight_url).hostname or "", urlsplit(flight_url).port or 0)
        (job,) = httpx.get(f"{url}/v1/jobs").json()["jobs"]
        self.path = f"/v1/jobs/{job['job_id']}"

    def connected(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=PATIENCE_S)

    def used(self) -> tuple[int, int]:
        """Open files and threads."""
        return self.process.num_fds(), self.process.num_threads()

    def answer(self) -> int:
        return int(httpx.get(f"{self.url}{self.path}/states/total/keys/a", timeout=PATIENCE_S).json()["value"])

    def flown(self, state: str, *batches: pa.RecordBatch, compression: str | None = None) -> pa.Table:
        """The result of one exchange."""
        with flight.connect(self.flight_url) as client:
            descriptor = flight.FlightDescriptor.for_command(json.dumps({"state": state}).encode())
            writer, reader = client.do_exchange(descriptor)
            with writer:
                writer.begin(batches[0].schema, options=pa.ipc.IpcWriteOptions(compression=compression))
                for batch in batches:
                    writer.write_batch(batch)
                writer.done_writing()
                return reader.read_all()

    @contextmanager
    def unharmed(self) -> Iterator[None]:
        """Within the block, other clients are always answered and memory is bounded; afterwards nothing leaks."""
        assert self.answer() == 4
        assert self.flown("total", keys("a"))["value"].to_pylist() == [4]
        files, threads = self.used()
        before = self.process.memory_info().rss
        grown, answers, over = [0], [self.answer()], threading.Event()

        def ask() -> None:
            while not over.wait(0.02):
                answers.append(self.answer())
                grown.append(self.process.memory_info().rss - before)

        other = threading.Thread(target=ask)
        other.start()
        try:
            yield
        finally:
            over.set()
            other.join()
        assert set(answers) == {4} and self.answer() == 4
        assert self.flown("total", keys("a"))["value"].to_pylist() == [4]
        assert max(grown) < GROWN_MAX_BYTES
        until_s = time.monotonic() + PATIENCE_S
        while any(now > was + 4 for now, was in zip(self.used(), (files, threads), strict=True)):
            assert time.monotonic() < until_s, f"{self.used()} files and threads, {files} and {threads} before"
            time.sleep(0.05)


def keys(*names: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(names, pa.string())], ["key"])


@contextmanager
def hostile_child(**limits: float) -> Iterator[Child]:
    """A server with these limits, of the job of `served_program`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SERVICES.parent), *sys.path])}
    command = [sys.executable, str(SERVICES / "served_program.py"), json.dumps(limits)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            told = json.loads(process.stdout.readline())
            yield Child(told["url"], told["flight_url"], psutil.Process(process.pid))
        finally:
            process.stdin.close()
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()
        assert process.returncode == 0
