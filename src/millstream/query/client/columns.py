"""Columns of keys in, columns of values out, over Arrow Flight: for many keys, with Arrow's own types.

Who answers is chosen as for single keys. All rows that one server gives belong to one epoch, which the metadata of the
table tells; `QueryClient` brings those of several servers to one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from millstream.query.client.asking import NobodyAnswered
from millstream.query.client.directory import Directory, ServerPlace
from millstream.query.client.errors import QueryRefusedError

__all__ = ["ColumnAsking"]

_ROWS_PER_BATCH = 65_536
_ELSEWHERE = (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightInternalError)


class ColumnAsking:
    """Asks the servers of a directory that speak Flight."""

    def __init__(
        self,
        directory: Directory,
        token: str | None,
        timeout_s: float,
        root_certificates: bytes | None,
        now_s: Callable[[], float],
    ) -> None:
        self._directory, self._timeout_s, self._now_s = directory, timeout_s, now_s
        self._roots = root_certificates
        self._headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    def ask_once(self, question: dict[str, Any], keys: pa.Array, groups: set[int], until_s: float) -> pa.Table:
        """The columns key, found and value for these keys, of a server that holds their groups; NobodyAnswered when
        each was asked and none answered."""
        said = "none of them speaks Flight: start them with --flight-port"
        for place in self._directory.candidates(groups):
            if place.flight_url is None:
                continue
            try:
                return self._exchange(place.flight_url, question, keys, until_s)
            except _ELSEWHERE as error:
                said = str(error).partition(". Detail")[0]
                self._forget(place)
            except (flight.FlightError, pa.ArrowException) as error:
                raise _refused(error) from error
        raise NobodyAnswered(f"no query server answered in columns within {self._timeout_s:g} s: {said}.")

    def _exchange(self, url: str, question: dict[str, Any], keys: pa.Array, until_s: float) -> pa.Table:
        with self._lock:
            if url not in self._clients:
                roots = {} if self._roots is None else {"tls_root_certs": self._roots}
                self._clients[url] = flight.connect(url, **roots)
            client = self._clients[url]
        options = flight.FlightCallOptions(timeout=max(0.05, until_s - self._now_s()), headers=self._headers)
        descriptor = flight.FlightDescriptor.for_command(json.dumps(question).encode())
        writer, reader = client.do_exchange(descriptor, options)
        parts = []
        with writer:
            writer.begin(pa.schema([pa.field("key", keys.type)]))
            # One batch out, one batch back: neither side ever waits with a full pipe for the other to read.
            for start in range(0, max(1, len(keys)), _ROWS_PER_BATCH):
                piece = keys.slice(start, _ROWS_PER_BATCH)
                writer.write_batch(pa.RecordBatch.from_arrays([piece], ["key"]))
                parts.append(reader.read_chunk().data)
            writer.done_writing()
        return pa.Table.from_batches(parts)

    def _forget(self, place: ServerPlace) -> None:
        self._directory.failed(place)
        with self._lock:
            self._clients.pop(place.flight_url or "", None)  # not closed: others may be asking with it

    def close(self) -> None:
        """Let connections go."""
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()


def _refused(error: Exception) -> QueryRefusedError:
    """The server's own sentence and code; gRPC's additions are left out."""
    text = str(error).partition(". Detail")[0].partition(". gRPC")[0]
    message, _, code = text.removesuffix("]").rpartition(" [")
    return QueryRefusedError(message or text, 0, code if message else "")
