"""Lines from a TCP socket, for play.

A socket cannot be asked again. A thread on the driver therefore writes the lines that arrive to the job's store, and
the job reads them there: what is stored is processed exactly once. What the peer sends while the job is down, and
what had arrived but was not stored when it died, is lost without a trace. This source says so: it is not
replayable.

    input/socket-{host}-{port}/{first line}-{lines}      a chunk: the lines numbered first … first + lines - 1
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from millstream.common.typeinfo import TypeInformation, Types
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.errors import JobFailedError, NotAvailableError, ProgramError, StoreDamagedError
from millstream.storage.layered_stores import LayeredStore
from millstream.storage.names import INPUT
from millstream.storage.path_parts import safe
from millstream.storage.store import Store, open_store

__all__ = ["SocketSource"]

_CHUNK = re.compile(r"\d{18,}-\d+")
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
        self._folder = f"{INPUT}/socket-{safe(host)}-{port}"
        self._stores: list[str] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_receiver": None}

    def opened(self, store: Store, session: Any) -> Source:
        source = SocketSource(self.host, self.port, self.charset)
        try:
            connection = socket.create_connection((self.host, self.port), timeout=_CONNECT_TIMEOUT_S)
        except OSError as error:
            raise JobFailedError(
                f"SocketSource: {self.host}:{self.port} does not answer ({error}). "
                f"Start a server first, for instance: nc -lk {self.port}"
            ) from error
        connection.settimeout(_FLUSH_S)
        bases = store.bases if isinstance(store, LayeredStore) else ()
        source._stores = [store.url, *(base.url for base in bases)]
        source._receiver = _Receiver(connection, store, bases, self._folder, self.charset)
        return source

    def reopened(self, store: Store, session: Any) -> Source:
        raise NotAvailableError(
            f"SocketSource: what {self.host}:{self.port} sent is kept only while an epoch needs it to go on, so an "
            "epoch that read it cannot be replayed. Run the job with millstream.record on: then its input is kept with "
            "its epochs"
        )

    def splits(self, context: SourceContext) -> Sequence[Split]:
        if self._receiver is not None:
            self._receiver.begin()
        return (Split("socket", 0, {"stores": self._stores, "folder": self._folder}),)

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        assert self._receiver is not None, "the source is not opened"
        self._receiver.raise_failure()
        return max(offset, min(offset + budget, self._receiver.stored))

    def finished(self, split: Split, offset: Offset) -> bool:
        return self._receiver is not None and self._receiver.has_ended and bool(offset >= self._receiver.stored)

    def complete(self, context: SourceContext) -> bool:
        return self._receiver is not None and self._receiver.has_ended

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        # A job that was forked finds the lines before its own in the store of the job it came from: nearest first.
        stores = [open_store(url) for url in split.info["stores"]]
        chunks = [(store, name, *_span(name)) for store in stores for name in _chunks(store, split.info["folder"])]
        while start < stop:
            matching_chunks = [chunk for chunk in chunks if chunk[2] <= start < chunk[2] + chunk[3]]
            if not matching_chunks:
                raise StoreDamagedError(
                    f"SocketSource: line {start} from {self.host}:{self.port} is not in {stores[0].url} any more, nor "
                    "in a store that the job began with. Restore the files from a copy, or start from a newer epoch."
                )
            store, name, first, count = matching_chunks[0]
            lines = _lines(store, name, count)
            yield lines[start - first : min(count, stop - first)]
            start = first + count
        return stop

    def committed(self, positions: dict[str, Offset]) -> None:
        if self._receiver is not None:
            self._receiver.go_on_from(positions.get("socket", 0))

    def released(self, kept_positions: Sequence[dict[str, Offset]]) -> None:
        if self._receiver is not None:
            self._receiver.forget(min((positions.get("socket", 0) for positions in kept_positions), default=0))

    def close(self) -> None:
        if self._receiver is not None:
            self._receiver.stop()

    def describe(self) -> str:
        return f"lines from {self.host}:{self.port} (lines sent while the job is down are lost)"


class _Receiver(threading.Thread):
    """Stores lines as they come. `stored` counts the lines that the job may read.

    It begins when the job has said where it goes on: no line gets a number that another one had.
    """

    def __init__(
        self, connection: socket.socket, store: Store, bases: tuple[Store, ...], folder: str, charset: str
    ) -> None:
        super().__init__(name="millstream-socket", daemon=True)
        self._connection = connection
        self._store = store
        self._folder = folder
        self._charset = charset
        self._stop_requested = threading.Event()
        self._failure: Exception | None = None
        self.has_ended = False
        # The newest chunk is never removed, so its name says where the numbering goes on.
        chunks = next((names for holder in (store, *bases) if (names := _chunks(holder, folder))), [])
        self.stored = max((sum(_span(name)) for name in chunks), default=0)

    def go_on_from(self, position: int) -> None:
        """The job has read the lines before `position`, perhaps from another store."""
        if self.ident is None:
            self.stored = max(self.stored, position)

    def begin(self) -> None:
        if self.ident is None:
            self.start()

    def run(self) -> None:
        try:
            self._receive()
        except Exception as error:
            self._failure = error
        finally:
            self._connection.close()
            self.has_ended = True

    def stop(self) -> None:
        self._stop_requested.set()
        if self.ident is None:
            self._connection.close()
        else:
            self.join(timeout=10)

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise JobFailedError(
                f"SocketSource: lines could not be received or stored: {self._failure}."
            ) from self._failure

    def forget(self, offset: int) -> None:
        """Remove the chunks before `offset`, but for the newest one."""
        for name in _chunks(self._store, self._folder)[:-1]:
            if sum(_span(name)) <= offset:
                self._store.delete(name)

    def _receive(self) -> None:
        partial_line, since = b"", time.monotonic()
        lines: list[str] = []
        while not self._stop_requested.is_set():
            try:
                data = self._connection.recv(64 * 1024)
                if not data:
                    break
                *whole, partial_line = (partial_line + data).split(b"\n")
                lines.extend(line.removesuffix(b"\r").decode(self._charset, "replace") for line in whole)
            except TimeoutError:
                pass
            if len(lines) >= _CHUNK_LINES_MAX or (lines and time.monotonic() - since >= _FLUSH_S):
                lines = self._flush(lines)
                since = time.monotonic()
        if partial_line and not self._stop_requested.is_set():
            lines.append(partial_line.decode(self._charset, "replace"))
        self._flush(lines)

    def _flush(self, lines: list[str]) -> list[str]:
        if lines:
            name = f"{self._folder}/{self.stored:018d}-{len(lines)}"
            self._store.put(name, "\n".join(lines).encode("utf-8", "surrogatepass"))
            self.stored += len(lines)
        return []


def _chunks(store: Store, folder: str) -> list[str]:
    """The chunks that a store holds, in their order, without stray files."""
    return [name for name in store.list(folder) if _CHUNK.fullmatch(name.rpartition("/")[2])]


def _lines(store: Store, name: str, count: int) -> list[str]:
    try:
        lines = store.get(name).decode("utf-8", "surrogatepass").split("\n")
    except UnicodeDecodeError as error:
        raise StoreDamagedError(f"Store {store.url}: {name!r} is damaged ({error}). Restore it from a copy.") from error
    if len(lines) != count:
        raise StoreDamagedError(
            f"Store {store.url}: {name!r} has {len(lines)} lines, and {count} were received. Restore it from a copy."
        )
    return lines


def _span(name: str) -> tuple[int, int]:
    """The number of the first line of a chunk, and how many it holds."""
    first, _, count = name.rpartition("/")[2].partition("-")
    return int(first), int(count)
