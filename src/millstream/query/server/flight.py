"""Arrow Flight for bulk reads: takes columns of keys, returns columns of values, all of one epoch.

A question is a JSON object, `{"state": "totals"}`, optionally with `epoch` (a number), `time` or `epoch_min`:

- `do_exchange` with it as the command of the descriptor: the client writes batches with one column of keys, the server
  answers each with the columns key, found and value;
- `do_get` with it as the ticket, and `keys` (JSON) in it for those keys, or `prefix` and `limit` for a scan.

The schema of the answer has the epoch and its other facts in its metadata. Tokens are in the header `authorization`.
Invalid questions end only the call, with an error.
"""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from millstream.query.epoch_view import EpochView
from millstream.query.server.answer_bytes import check_size
from millstream.query.server.connections import tls_context
from millstream.query.server.flight_gate import FlightGate
from millstream.query.server.flight_keys import key_columns, too_many_keys
from millstream.query.server.job_answers import JobAnswers, Moment
from millstream.query.server.rights import EVERYONE, Reader
from millstream.query.server.settings import ServerSettings
from millstream.query.wire.json_values import key_of_json
from millstream.query.wire.refusals import BadQuestionError, RefusalAnswer, TooLargeError, TooManyError, answer_to

__all__ = ["FlightEndpoint"]

_CALLS_MAX = 32
_FOLDER = "millstream-flight-"
_STARTED_S = 60.0
_QUESTION_BYTES_MAX = 1 << 20
_NAME_CHARACTERS_MAX = 1_000  # refusals quote it, and are sent in the head of an answer
_FIELDS = {"state", "epoch", "time", "epoch_min", "keys", "prefix", "limit"}


class _TokenMiddleware(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, reader: Reader) -> None:
        self.reader = reader


class _TokenFactory(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Determines the caller and the method before anything else in the call is examined."""

    def __init__(self, settings: ServerSettings) -> None:
        self._rights = settings.rights

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> _TokenMiddleware:
        if info.method not in (flight.FlightMethod.DO_GET, flight.FlightMethod.DO_EXCHANGE):
            message = "this call is not supported. Use do_get or do_exchange; the HTTP interface lists the states."
            raise _flight_error(answer_to(BadQuestionError(message)))
        if self._rights is None:
            return _TokenMiddleware(EVERYONE)
        authorization = next(
            (values[0] for name, values in headers.items() if name.lower() == "authorization" and values), None
        )
        try:
            return _TokenMiddleware(self._rights.reader_of(authorization))
        except Exception as error:
            raise _flight_error(answer_to(error)) from None


class FlightEndpoint(flight.FlightServerBase):  # type: ignore[misc]
    """The Flight interface of a server; it answers from its creation, on its own threads."""

    def __init__(self, answers: JobAnswers, settings: ServerSettings, listening: socket.socket) -> None:
        self._answers, self._limits = answers, settings.limits
        self._calls = threading.BoundedSemaphore(_CALLS_MAX)
        _sweep(Path(tempfile.gettempdir()))
        self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER))  # other users cannot read it
        inner = self._folder / "server"
        super().__init__(f"grpc+unix://{inner}", middleware={"token": _TokenFactory(settings)})
        self._gate = FlightGate(listening, inner, settings.limits, _tls(settings))

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._gate.port

    def close(self) -> None:
        """Complete the calls in progress, then end."""
        self._gate.close()
        self.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.GeneratorStream:
        """Rows of a state, or of the keys in the ticket. The call counts as running until all are sent."""
        try:
            with ExitStack() as call:
                call.enter_context(self._call())
                reader, question = _reader(context), _question(ticket.ticket)
                with self._answers.epoch(_moment(question)) as epoch:
                    table = self._table(reader, question, epoch)
                return flight.GeneratorStream(table.schema, _Batches(table, call.pop_all()))
        except Exception as error:
            raise _flight_error(answer_to(error)) from error

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """The values of every batch of keys, in order."""
        try:
            with self._call():
                question = _question(descriptor.command or b"")
                caller, name = _reader(context), question["state"]
                self._answers.readable(caller, name)
                with self._answers.epoch(_moment(question)) as epoch:
                    self._exchange(caller, name, epoch, reader, writer)
        except Exception as error:
            raise _flight_error(answer_to(error)) from error

    def _exchange(self, caller: Reader, name: str, epoch: EpochView, reader: Any, writer: Any) -> None:
        schema: pa.Schema | None = None
        for keys in key_columns(reader, self._limits):
            values = self._answers.columns(caller, name, keys, epoch)
            if schema is None:
                schema = self._with_facts(values.schema, epoch)
                writer.begin(schema)
            writer.write_batch(pa.RecordBatch.from_arrays(values.columns, schema=schema))

    def _table(self, caller: Reader, question: dict[str, Any], epoch: EpochView) -> pa.Table:
        name = question["state"]
        state = self._answers.readable(caller, name)
        if "keys" in question:
            keys = question["keys"]
            if not isinstance(keys, list):
                raise BadQuestionError("keys is not an array. Send an array of keys.")
            if len(keys) > self._limits.flight_keys_max:
                raise too_many_keys(self._limits.flight_keys_max)
            typed = [key_of_json(key, state.key_type) for key in keys]
            try:
                column = state.column(typed)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise BadQuestionError(f"the keys are not a column of one type: {error}.") from error
            batch = self._answers.columns(caller, name, column, epoch)
            table = pa.Table.from_batches([batch])
        else:
            limit, prefix = question.get("limit", self._limits.scan_rows_max), question.get("prefix")
            if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= self._limits.flight_keys_max:
                raise TooLargeError(f"limit is {str(limit)[:40]}. Send a number up to {self._limits.flight_keys_max}.")
            if prefix is not None and not (isinstance(prefix, str) and _is_text(prefix)):
                raise BadQuestionError("prefix is not a string. Send the beginning of the keys, as a string.")
            table = self._bounded(self._answers.scanned(epoch, name, prefix, limit))
        return table.replace_schema_metadata(self._with_facts(table.schema, epoch).metadata)

    def _bounded(self, rows: pa.RecordBatchReader) -> pa.Table:
        batches, size = [], 0
        for batch in rows:
            size += batch.nbytes
            check_size(size, self._limits.answer_bytes_max)
            batches.append(batch)
        return pa.Table.from_batches(batches, rows.schema)

    def _with_facts(self, schema: pa.Schema, epoch: EpochView) -> pa.Schema:
        facts = {key: json.dumps(value) for key, value in self._answers.facts(epoch).items()}
        return schema.with_metadata(facts)

    def _call(self) -> _Call:
        if not self._calls.acquire(blocking=False):
            raise TooManyError(f"{_CALLS_MAX} calls are in progress, the maximum. Try again in a moment.")
        return _Call(self._calls)


class _Call:
    """A call, counted as running until it ends."""

    def __init__(self, calls: threading.BoundedSemaphore) -> None:
        self._calls = calls

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._calls.release()


class _Batches:
    """The batches of an answer. Its `call` ends with the last batch, or when the batches are no longer consumed."""

    def __init__(self, table: pa.Table, call: ExitStack) -> None:
        self._batches, self._call = iter(table.to_batches()), call

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._batches)
        except StopIteration:
            self._call.close()
            raise

    def __del__(self) -> None:
        self._call.close()


def _sweep(folder: Path) -> None:
    """Remove the folders of servers that were killed: sockets without a listener."""
    for socket_file in folder.glob(f"{_FOLDER}*/server"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(0.1)
            try:
                is_new = time.time() - socket_file.stat().st_mtime < _STARTED_S
                probe.connect(str(socket_file))
            except ConnectionRefusedError:
                if not is_new:  # a starting server has no listener for a moment
                    shutil.rmtree(socket_file.parent, ignore_errors=True)
            except OSError:
                continue  # another user's, or removed in the meantime


def _tls(settings: ServerSettings) -> ssl.SSLContext | None:
    context = tls_context(settings)
    if context is not None:
        context.set_alpn_protocols(["h2"])
    return context


def _reader(context: Any) -> Reader:
    reader: Reader = context.get_middleware("token").reader
    return reader


def _question(data: bytes) -> dict[str, Any]:
    if len(data) > _QUESTION_BYTES_MAX:
        raise TooLargeError(
            f"the question has {len(data)} bytes, of {_QUESTION_BYTES_MAX} at most. Send many keys by do_exchange."
        )
    try:
        question = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise BadQuestionError('the question is not a JSON object. Send {"state": "NAME"}.') from error
    if not isinstance(question, dict) or not isinstance(question.get("state"), str):
        raise BadQuestionError('the question names no state. Send {"state": "NAME"}.')
    if len(question["state"]) > _NAME_CHARACTERS_MAX:
        raise BadQuestionError(f"the state {question['state'][:100]!r}… has a name that is too long.")
    unknown = sorted(set(question) - _FIELDS)
    if unknown:
        raise BadQuestionError(
            f"the question has {', '.join(unknown)[:100]}. It may have {', '.join(sorted(_FIELDS))}."
        )
    return question


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeError:
        return False
    return True


def _moment(question: dict[str, Any]) -> Moment:
    epoch, time, epoch_min = (question.get(name) for name in ("epoch", "time", "epoch_min"))
    for name, value in (("epoch", epoch), ("epoch_min", epoch_min)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 10**12):
            raise BadQuestionError(f"{name} is {str(value)[:40]!r}. Send the number of an epoch.")
    if time is not None and not isinstance(time, str):
        raise BadQuestionError("time is not a string. Send milliseconds since 1970, or ISO 8601, in quotes.")
    return Moment(epoch, time, epoch_min)


_KINDS = {
    401: flight.FlightUnauthenticatedError,
    403: flight.FlightUnauthorizedError,
    412: flight.FlightUnavailableError,
    421: flight.FlightUnavailableError,
    429: flight.FlightUnavailableError,
    500: flight.FlightInternalError,
    503: flight.FlightUnavailableError,
    504: flight.FlightTimedOutError,
}


def _flight_error(answer: RefusalAnswer) -> Exception:
    """Flight has few error types; each carries the message and our code."""
    kind = _KINDS.get(answer.status, flight.FlightServerError)
    message = f"{answer.message} [{answer.code}]".encode(errors="backslashreplace").decode()  # lone surrogates
    error: Exception = kind(message, json.dumps(answer.body()).encode())
    return error
