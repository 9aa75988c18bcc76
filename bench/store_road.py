"""A proxy from this machine to an object store: it can add latency, or block. A process of its own, so that its cost is
attributed to nothing else and is low: bytes are moved from socket to socket by the system (`splice`).

    open      requests pass unchanged
    far       every request arrives some milliseconds later
    closed    a request ends its connection, and never arrives

Run as a program (`store_road.py PORT DELAY_MS`) it prints its own port, reads the names of conditions from its input,
answers each with a line, `count` with the requests so far and the bytes in both directions, and ends with its input.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
from types import TracebackType

__all__ = ["CLOSED", "FAR", "OPEN", "StoreRoad"]

OPEN, FAR, CLOSED = "open", "far", "closed"
_HOST = "127.0.0.1"
_HEAD_END = b"\r\n\r\n"
_PIPE_BYTES = 1 << 20


class StoreRoad:
    """The proxy to the server at `port` of this machine, with `delay_ms` of latency in condition `far`. Clients use
    `url`.
    """

    def __init__(self, port: int, delay_ms: float) -> None:
        command = [sys.executable, __file__, str(port), str(delay_ms)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://{_HOST}:{self._answer()}"

    def __enter__(self) -> StoreRoad:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=60)

    def become(self, condition: str) -> None:
        """Switch to a condition."""
        self._ask(condition)

    def counts(self) -> tuple[int, int, int]:
        """The number of requests, the bytes sent, and the bytes answered."""
        requests, sent_bytes, answered_bytes = self._ask("count").split()
        return int(requests), int(sent_bytes), int(answered_bytes)

    def _ask(self, word: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the road to the store has ended with {self._process.wait(10)}")
        return line.strip()


# --- the process ------------------------------------------------------------------------------------------------------


class _Side:
    """One side of a connection: bytes read beyond a head belong to the following body."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self._ahead = b""

    def read_until(self, end: bytes) -> bytes:
        """Up to and including `end`."""
        while end not in self._ahead:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError
            self._ahead += data
        at = self._ahead.index(end) + len(end)
        head, self._ahead = self._ahead[:at], self._ahead[at:]
        return head

    def pass_on(self, length: int, target: _Side, pipe: tuple[int, int]) -> None:
        """Move this many bytes to the other side."""
        first, self._ahead = self._ahead[:length], self._ahead[length:]
        target.socket.sendall(first)
        length -= len(first)
        while length:
            moved = os.splice(self.socket.fileno(), pipe[1], min(length, _PIPE_BYTES))
            if not moved:
                raise ConnectionError
            length -= moved
            while moved:
                moved -= os.splice(pipe[0], target.socket.fileno(), moved)


class _Road:
    """State shared by all connections."""

    def __init__(self, port: int, delay_s: float) -> None:
        self.condition = OPEN
        self.requests = self.sent_bytes = self.answered_bytes = 0
        self._port, self._delay_s = port, delay_s
        self._lock = threading.Lock()

    def serve(self, listener: socket.socket) -> None:
        while True:
            near, _ = listener.accept()
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        pipe = os.pipe()
        try:
            fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            with near, socket.create_connection((_HOST, self._port)) as far, contextlib.suppress(OSError):
                far.settimeout(None)
                self._exchange(_Side(near), _Side(far), pipe)
        except OSError:
            pass  # the server has disconnected, so this connection ends
        finally:
            os.close(pipe[0])
            os.close(pipe[1])

    def _exchange(self, near: _Side, far: _Side, pipe: tuple[int, int]) -> None:
        """Requests and their answers, until one side ends the connection."""
        while True:
            head = near.read_until(_HEAD_END)
            with self._lock:
                self.requests += 1
            if self.condition == CLOSED:
                return
            if self.condition == FAR:
                time.sleep(self._delay_s)
            far.socket.sendall(head)
            near.pass_on(_length_of(head), far, pipe)
            sent = len(head) + _length_of(head)
            answer = far.read_until(_HEAD_END)
            near.socket.sendall(answer)
            length = len(answer) + self._answer_body(head, answer, near, far, pipe)
            with self._lock:
                self.sent_bytes += sent
                self.answered_bytes += length
            if b"connection: close" in answer.lower():
                return

    def _answer_body(self, head: bytes, answer: bytes, near: _Side, far: _Side, pipe: tuple[int, int]) -> int:
        """Forward the body of an answer; returns its length."""
        if head.startswith(b"HEAD ") or answer.split(b" ", 2)[1] in (b"204", b"304"):
            return 0
        if b"transfer-encoding: chunked" not in answer.lower():
            length = _length_of(answer)
            far.pass_on(length, near, pipe)
            return length
        total = 0
        while True:
            line = far.read_until(b"\r\n")
            length = int(line.split(b";")[0], 16)
            near.socket.sendall(line)
            far.pass_on(length + 2, near, pipe)
            total += length
            if not length:
                return total


def _length_of(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def _main(port: int, delay_ms: float) -> None:
    listener = socket.create_server((_HOST, 0), backlog=1_000)
    road = _Road(port, delay_ms / 1000)
    threading.Thread(target=road.serve, args=(listener,), daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "count":
            print(road.requests, road.sent_bytes, road.answered_bytes, flush=True)
        else:
            road.condition = word
            print(word, flush=True)
    os._exit(0)  # connected clients are not notified


if __name__ == "__main__":
    _main(int(sys.argv[1]), float(sys.argv[2]))
