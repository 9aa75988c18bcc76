"""Lines from a TCP socket, for play.

A socket cannot be asked again. A thread on the driver therefore writes the lines that arrive to the job's store, and
the job reads them there: what is stored is processed exactly once. What the peer sends while the job is down, and
what had arrived but was not stored when it died, is lost, and nobody can tell. This source says so: it is not
replayable.

    input/socket-{host}-{port}/{first line}-{lines}      a chunk: the lines numbered first … first + lines - 1
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from millstream.common.typeinfo import TypeInformation, Types
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.errors import JobFailedError, NotAvailableError, ProgramError
from millstream.storage.names import safe
from millstream.storage.store import Store, open_store

__all__ = ["SocketSource"]

_CHUNK_LINES_MAX = 10_000
_FLUSH_S = 0.05
_CONNECT_TIMEOUT_S = 10.0


class SocketSource(Source):
    """Text lines from `host:port`; ends when the peer closes the connection, as Flink's does.

    >>> SocketSource("localhost", 9999).describe()
    'lines from localhost:9999 (lines sent while the job is down are lost)'
    """

    replayable = False
    single = True

    def __init__(self, host: str, port: int, charset: str = "UTF-8") -> None:
        if not 0 < port < 65_536:
            raise ProgramError(f"SocketSource: port is {port}. Give a number from 1 to 65535.")
        self.host = host
        self.port = port
        self.charset = charset
        self.type_info: TypeInformation = Types.STRING()
        self._receiver: _Receiver | None = None
        self._folder = f"input/socket-{safe(host)}-{port}"
        self._store_url = ""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_receiver": None}

    def opened(self, store: Store, session: Any) -> Source:
        source = SocketSource(self.host, self.port, self.charset)
        source._store_url = store.url
        try:
            connection = socket.create_connection((self.host, self.port), timeout=_CONNECT_TIMEOUT_S)
        except OSError as error:
            raise JobFailedError(
                f"SocketSource: {self.host}:{self.port} does not answer ({error}). "
                f"Start a server first, for instance: nc -lk {self.port}"
            ) from error
        connection.settimeout(_FLUSH_S)
        source._receiver = _Receiver(connection, store, self._folder, self.charset)
        source._receiver.start()
        return source

    def reopened(self, store: Store, session: Any) -> Source:
        raise NotAvailableError(
            f"SocketSource: what {self.host}:{self.port} sent is removed once it is committed, so an epoch that read "
            "it cannot be replayed. Run the job with millstream.record on: then its input is kept with its epochs"
        )

    def splits(self, context: SourceContext) -> Sequence[Split]:
        return (Split("socket", 0, {"store": self._store_url, "folder": self._folder}),)

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        assert self._receiver is not None, "the source is not opened"
        self._receiver.raise_failure()
        return max(offset, min(offset + budget, self._receiver.stored))

    def finished(self, split: Split, offset: Offset) -> bool:
        return self._receiver is not None and self._receiver.ended and bool(offset >= self._receiver.stored)

    def complete(self, context: SourceContext) -> bool:
        return self._receiver is not None and self._receiver.ended

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        store = open_store(split.info["store"])
        for name in store.list(split.info["folder"]):
            first, count = _span(name)
            if first < stop and first + count > start:
                lines = store.get(name).decode("utf-8", "surrogatepass").split("\n")
                yield lines[max(0, start - first) : min(count, stop - first)]
        return stop

    def committed(self, positions: dict[str, Offset]) -> None:
        if self._receiver is not None:
            self._receiver.forget(positions.get("socket", 0))

    def close(self) -> None:
        if self._receiver is not None:
            self._receiver.stop()

    def describe(self) -> str:
        return f"lines from {self.host}:{self.port} (lines sent while the job is down are lost)"


class _Receiver(threading.Thread):
    """Stores lines as they come. `stored` counts the lines that the job may read."""

    def __init__(self, connection: socket.socket, store: Store, folder: str, charset: str) -> None:
        super().__init__(name="millstream-socket", daemon=True)
        self._connection = connection
        self._store = store
        self._folder = folder
        self._charset = charset
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self.ended = False
        # The newest chunk is never removed, so its name says where the numbering goes on.
        self.stored = max((sum(_span(name)) for name in store.list(folder)), default=0)

    def run(self) -> None:
        try:
            self._receive()
        except Exception as error:
            self._failure = error
        finally:
            self._connection.close()
            self.ended = True

    def stop(self) -> None:
        self._stopping.set()
        self.join(timeout=10)

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise JobFailedError(
                f"SocketSource: lines could not be received or stored: {self._failure}."
            ) from self._failure

    def forget(self, offset: int) -> None:
        """Remove the chunks before `offset`, but for the newest one."""
        for name in self._store.list(self._folder)[:-1]:
            if sum(_span(name)) <= offset:
                self._store.delete(name)

    def _receive(self) -> None:
        rest, since = b"", time.monotonic()
        lines: list[str] = []
        while not self._stopping.is_set():
            try:
                data = self._connection.recv(64 * 1024)
                if not data:
                    break
                *whole, rest = (rest + data).split(b"\n")
                lines.extend(line.removesuffix(b"\r").decode(self._charset, "replace") for line in whole)
            except TimeoutError:
                pass
            if len(lines) >= _CHUNK_LINES_MAX or (lines and time.monotonic() - since >= _FLUSH_S):
                lines = self._flush(lines)
                since = time.monotonic()
        if rest and not self._stopping.is_set():
            lines.append(rest.decode(self._charset, "replace"))
        self._flush(lines)

    def _flush(self, lines: list[str]) -> list[str]:
        if lines:
            name = f"{self._folder}/{self.stored:018d}-{len(lines)}"
            self._store.put(name, "\n".join(lines).encode("utf-8", "surrogatepass"))
            self.stored += len(lines)
        return []


def _span(name: str) -> tuple[int, int]:
    """The number of the first line of a chunk, and how many it holds."""
    first, _, count = name.rpartition("/")[2].partition("-")
    return int(first), int(count)
