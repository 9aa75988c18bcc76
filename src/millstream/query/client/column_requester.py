"""Fetches columns of values for columns of keys over Arrow Flight: for many keys, with Arrow's own types.

The server is chosen as for single keys. All rows of one server belong to one epoch, which is in the table's metadata;
`QueryClient` fetches the rows of several servers at a common epoch. An answer is accepted if it belongs to the
requested job, has a row for every key, and is not larger than what a server sends.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from millstream.query.client.discovery import Directory, Trust
from millstream.query.client.requester import AllServersFailed
from millstream.query.client.responses import (
    ANSWER_BYTES_MAX,
    InvalidAnswer,
    JobIdentity,
    QueryRefusedError,
    check_epoch,
    json_of_body,
)
from millstream.query.wire.servers import ServerPlace

__all__ = ["ColumnRequester"]

_ROWS_PER_BATCH = 65_536
_SMALLER_FACTOR = 16  # if an answer would be too large, requests shrink by this factor
_COLUMNS = ["key", "found", "value"]
_FACTS = (b"job", b"job_id", b"epoch", b"watermark", b"committed_ms", b"age_ms")
_ELSEWHERE = (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightInternalError)


class ColumnRequester:
    """Queries the servers of a directory that speak Flight."""

    def __init__(
        self,
        directory: Directory,
        trust: Trust,
        identity: Callable[[], JobIdentity],
        timeout_s: float,
        root_certificates: bytes | None,
        now_s: Callable[[], float],
    ) -> None:
        self._directory, self._timeout_s, self._now_s = directory, timeout_s, now_s
        self._trust, self._identity = trust, identity
        self._roots = root_certificates
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    def fetch_once(self, question: dict[str, Any], keys: pa.Array, groups: set[int], until_s: float) -> pa.Table:
        """The columns key, found and value for these keys, from a server that holds their groups. Raises
        AllServersFailed if no server answered."""
        excuse = "none of them speaks Flight: start them with --flight-port"
        for place in self._directory.candidates(groups):
            if place.flight_url is None or not self._trust.may_contact(place):
                continue
            try:
                answer = self._in_batches(place.flight_url, question, keys, until_s)
                self._trust.note_answer(place.flight_url)
                return answer
            except _ELSEWHERE as error:
                excuse = str(error).partition(". Detail")[0]
                self._discard(place)
            except InvalidAnswer as error:
                excuse = str(error)
                self._discard(place)
        raise AllServersFailed(f"no query server answered in columns within {self._timeout_s:g} s: {excuse}.")

    def _in_batches(self, url: str, question: dict[str, Any], keys: pa.Array, until_s: float) -> pa.Table:
        """Request in large batches, and in smaller ones if their answer would be too large."""
        rows = _ROWS_PER_BATCH
        while True:
            try:
                return self._exchange(url, question, keys, rows, until_s)
            except _ELSEWHERE:
                raise
            except (flight.FlightError, pa.ArrowException) as error:
                refusal = _refusal(error)
                if refusal.code != "too-large" or rows == 1 or len(keys) == 1:
                    raise refusal from error
                rows = max(1, min(rows, len(keys)) // _SMALLER_FACTOR)

    def _client(self, url: str) -> Any:
        with self._lock:
            if url not in self._clients:
                roots = {} if self._roots is None else {"tls_root_certs": self._roots}
                bounds = [("grpc.max_receive_message_length", ANSWER_BYTES_MAX)]
                self._clients[url] = flight.connect(url, generic_options=bounds, **roots)
            return self._clients[url]

    def _exchange(self, url: str, question: dict[str, Any], keys: pa.Array, rows: int, until_s: float) -> pa.Table:
        client = self._client(url)
        headers = [(name.encode(), value.encode()) for name, value in self._trust.headers(url).items()]
        options = flight.FlightCallOptions(timeout=max(0.05, until_s - self._now_s()), headers=headers)
        descriptor = flight.FlightDescriptor.for_command(json.dumps(question).encode())
        writer, reader = client.do_exchange(descriptor, options)
        parts = []
        with writer:
            writer.begin(pa.schema([pa.field("key", keys.type)]))
            # Batches are sent and answered alternately: neither side ever waits with a full pipe for the other to read.
            for start in range(0, max(1, len(keys)), rows):
                piece = keys.slice(start, rows)
                writer.write_batch(pa.RecordBatch.from_arrays([piece], ["key"]))
                if start + rows >= len(keys):
                    writer.done_writing()  # sent with the last batch, so that its answer also ends the call
                parts.append(_batch_of(reader, len(piece)))
        facts = _facts(parts[0].schema)
        self._identity().check(facts)
        check_epoch(facts["epoch"], question.get("epoch"), question.get("epoch_min", 0))
        metadata = {name: json.dumps(facts[name]) for name in facts}
        return pa.Table.from_batches(parts).replace_schema_metadata(metadata)

    def _discard(self, place: ServerPlace) -> None:
        self._directory.note_failure(place)
        with self._lock:
            self._clients.pop(place.flight_url or "", None)  # not closed: other threads may be using it

    def close(self) -> None:
        """Close connections."""
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()


def _batch_of(reader: Any, rows: int) -> pa.RecordBatch:
    """The answer to one batch."""
    try:
        batch = reader.read_chunk().data
    except StopIteration:
        batch = None
    if batch is None or batch.schema.names != _COLUMNS or batch.num_rows != rows:
        raise InvalidAnswer(f"its answer to {rows} keys is not the columns key, found and value of {rows} rows")
    try:
        batch.validate(full=True)  # a received offset may be out of bounds
    except pa.ArrowException as error:
        raise InvalidAnswer(f"its answer is damaged ({error})") from error
    return batch


def _facts(schema: pa.Schema) -> dict[str, Any]:
    """The facts of an answer's epoch; every value is JSON."""
    metadata = schema.metadata or {}
    return json_of_body(b"{%s}" % b",".join(b'"%s":%s' % (name, metadata[name]) for name in _FACTS if name in metadata))


def _refusal(error: Exception) -> QueryRefusedError:
    """The server's own message and code, without gRPC's additions."""
    text = str(error).partition(". Detail")[0].partition(". gRPC")[0]
    message, _, code = text.removesuffix("]").rpartition(" [")
    return QueryRefusedError(message or text, 0, code if message else "")
