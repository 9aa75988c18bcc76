"""Sends records to a web service, several per request, in order, after their epoch is committed.

A service cannot report whether it accepted a request whose response was lost, so a request may be repeated: at least
once. Every request has a unique name that is the same when it is repeated,

    Idempotency-Key: 3f9a….webhook.000000000007-00002

so a service that remembers accepted names receives every record exactly once. Records are divided into requests
by number and staged in this form: a repeat sends the same bytes under the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.common.serialization import SerializationSchema
from millstream.connectors.contracts import CommitId, Json, RestorePoint, Sink, SinkWriter, WriterContext
from millstream.connectors.http.requests import Destination, HttpConnection, RefusedRequestError
from millstream.connectors.messages.codecs import encoder_of
from millstream.connectors.refused_rows import REFUSED, RefusedRow, RefusedRowsError, json_line
from millstream.connectors.staged_columns import StagedColumns, read_numbered_columns
from millstream.errors import ProgramError
from millstream.records.batch import Batch
from millstream.storage.store import Store

__all__ = ["BodyForm", "HttpSink"]

BodyForm = str
"""'json-array', 'lines' or 'single'."""

_CONTENT_TYPES = {"json-array": "application/json", "lines": "application/x-ndjson", "single": "application/json"}
_SHOWN_BYTES = 200
_REFUSED_AT_ONCE = 1_000
_REQUESTS = pa.schema([pa.field("body", pa.large_binary())])


class HttpSink(Sink):
    """Sends requests of at most `records_max` records each, as one body: an array, lines, or one record each."""

    guarantee = "at-least-once"
    reports_refused_rows = True

    def __init__(self, destination: Destination, schema: SerializationSchema, form: BodyForm, records_max: int) -> None:
        self._destination, self._schema, self._form, self._records_max = destination, schema, form, records_max
        self._connection: HttpConnection | None = None
        self._answered_requests: set[str] = set()  # the number of accepted requests in an unfinished commit

    def __getstate__(self) -> dict[str, Any]:
        # A connection belongs to the driver.
        return {**self.__dict__, "_connection": None, "_answered_requests": set()}

    def writer(self, context: WriterContext) -> SinkWriter:
        return _RequestWriter(self._schema, self._form, 1 if self._form == "single" else self._records_max, context)

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        if self._connection is None:
            self._connection = HttpConnection(self._destination)
        # If refused requests are set aside, the others are sent first; only then is no request repeated.
        sets_aside = self.dead_letters is not None or any(REFUSED in staged for staged in publish)
        refused_requests: list[RefusedRow] = []
        first = 0  # omitted requests keep their numbers: no name is reused for another request
        for item, staged in enumerate(publish):
            for columns, numbers in read_numbered_columns(staged, store):
                for row, body in zip(numbers.tolist(), columns.column(0), strict=True):
                    name = f"{commit}-{first + row:05d}"
                    if name in self._answered_requests:  # sent before others were refused or the service failed
                        continue
                    try:
                        self._send(self._connection, name, body.as_py())
                        self._answered_requests.add(name)
                    except RefusedRequestError as error:
                        shown = json_line(body.as_py()[:_SHOWN_BYTES])
                        refused_requests.append(RefusedRow(item, row, error.message, shown))
                        if not sets_aside or len(refused_requests) >= _REFUSED_AT_ONCE:
                            raise RefusedRowsError(error.message, refused_requests) from error
            first += staged["records"]
        if refused_requests:
            raise RefusedRowsError(refused_requests[0].reason, refused_requests)
        self._answered_requests.clear()

    def _send(self, connection: HttpConnection, name: str, body: bytes) -> None:
        headers = {"Content-Type": _CONTENT_TYPES[self._form], "Idempotency-Key": name}
        connection.send(body, {**headers, **self._own_headers()})

    def _own_headers(self) -> dict[str, str]:
        """The program's headers override ours, such as its own Content-Type."""
        return {name: value for name, value in self._destination.headers.items() if name.lower() == "content-type"}

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        return pending, "output sent after that epoch remains sent, and is repeated under other keys"

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def describe(self) -> str:
        return f"{self._destination.method} {self._destination.place}"


class _RequestWriter(SinkWriter):
    """Divides records into requests, across the batches of an epoch."""

    def __init__(self, schema: SerializationSchema, form: BodyForm, records_max: int, context: WriterContext) -> None:
        self._encoder = encoder_of(schema, context.input_type)
        self._form, self._records_max = form, records_max
        self._waiting: list[bytes] = []
        self._staged = StagedColumns(context)

    def write(self, batch: Batch) -> None:
        messages = [b"null" if message is None else message for message in self._encoder.encode(batch).to_pylist()]
        if self._form == "lines":
            for at, message in enumerate(messages):
                if b"\n" in message:
                    raise ProgramError(
                        f"HttpSink: {batch.values()[at]!r} is encoded as more than one line, but body='lines' sends "
                        "a line per record. Write records as JSON, or use body='single'"
                    )
        self._waiting += messages
        whole = len(self._waiting) - len(self._waiting) % self._records_max
        self._add(self._waiting[:whole])
        del self._waiting[:whole]

    def stage(self) -> Sequence[Json]:
        self._add(self._waiting)
        return self._staged.stage()

    def _add(self, messages: Sequence[bytes]) -> None:
        step = self._records_max
        bodies = [_body(messages[at : at + step], self._form) for at in range(0, len(messages), step)]
        self._staged.add(pa.RecordBatch.from_arrays([pa.array(bodies, pa.large_binary())], schema=_REQUESTS))


def _body(messages: Sequence[bytes], form: BodyForm) -> bytes:
    r"""Some records as the body of one request.

    >>> _body([b'{"a":1}', b'2'], "json-array"), _body([b'{"a":1}', b'2'], "lines"), _body([b"3"], "single")
    (b'[{"a":1},2]', b'{"a":1}\n2\n', b'3')
    """
    if form == "json-array":
        return b"[" + b",".join(messages) + b"]"
    return b"".join(message + b"\n" for message in messages) if form == "lines" else messages[0]
