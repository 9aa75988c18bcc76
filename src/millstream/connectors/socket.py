"""Lines from a TCP socket, for experiments.

A socket cannot be read again. A thread on the driver therefore writes arriving lines to the job's store, and
the job reads them there (`received_input`): a stored line is processed exactly once. Lines sent while the job
is down, and lines that had arrived but were not stored at a crash, are lost silently. The source therefore
declares itself not replayable.
"""

from __future__ import annotations

import socket
import time

from millstream.common.typeinfo import TypeInformation, Types
from millstream.connectors.received_input import ReceivedSource, Receiver
from millstream.errors import JobFailedError, ProgramError
from millstream.storage.names import INPUT
from millstream.storage.path_parts import safe
from millstream.storage.store import Store

__all__ = ["SocketSource"]

_CHUNK_LINES_MAX = 10_000
_FLUSH_S = 0.05
_CONNECT_TIMEOUT_S = 10.0


class SocketSource(ReceivedSource):
    """Text lines from `host:port`; ends when the peer closes the connection, as Flink's does.

    >>> SocketSource("localhost", 9999).describe()
    'lines from localhost:9999 (lines sent while the job is down are lost)'
    """

    split_name = "socket"

    def __init__(self, host: str, port: int, charset: str = "UTF-8") -> None:
        if not 0 < port < 65_536:
            raise ProgramError(f"SocketSource: port is {port}. Use a number from 1 to 65535.")
        super().__init__(f"{INPUT}/socket-{safe(host)}-{port}")
        self.host = host
        self.port = port
        self.charset = charset
        self.type_info: TypeInformation = Types.STRING()

    @property
    def subject(self) -> str:
        return f"{self.host}:{self.port}"

    def copied(self) -> SocketSource:
        return SocketSource(self.host, self.port, self.charset)

    def connected(self, store: Store, bases: tuple[Store, ...], folder: str) -> Receiver:
        try:
            connection = socket.create_connection((self.host, self.port), timeout=_CONNECT_TIMEOUT_S)
        except OSError as error:
            raise JobFailedError(
                f"SocketSource: {self.host}:{self.port} does not answer ({error}). "
                f"Start a server first, for instance: nc -lk {self.port}"
            ) from error
        connection.settimeout(_FLUSH_S)
        return _LineReceiver(connection, store, bases, folder, self.charset)

    def records_of(self, data: bytes, count: int) -> list[str]:
        lines = data.decode("utf-8", "surrogatepass").split("\n")
        if len(lines) != count:
            raise ValueError(f"it has {len(lines)} lines, but {count} were received")
        return lines

    def describe(self) -> str:
        return f"lines from {self.host}:{self.port} (lines sent while the job is down are lost)"


class _LineReceiver(Receiver):
    def __init__(
        self, connection: socket.socket, store: Store, bases: tuple[Store, ...], folder: str, charset: str
    ) -> None:
        super().__init__("socket", store, bases, folder)
        self._connection, self._charset = connection, charset

    def receive(self) -> None:
        partial_line, since = b"", time.monotonic()
        lines: list[str] = []
        while not self.stop_requested.is_set():
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
        if partial_line and not self.stop_requested.is_set():
            lines.append(partial_line.decode(self._charset, "replace"))
        self._flush(lines)

    def _flush(self, lines: list[str]) -> list[str]:
        if lines:
            self.keep("\n".join(lines).encode("utf-8", "surrogatepass"), len(lines))
        return []

    def disconnect(self) -> None:
        self._connection.close()
