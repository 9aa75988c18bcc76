"""Validates the responses of servers: an answer must arrive in time, be of bounded size, be JSON, belong to the right
job, and have the expected form.

A server may be broken, of another job that has taken over its port, or not a server of ours at all. Its response is
then rejected and another server is queried; it never causes a wrong answer, a Python error, or unbounded memory use.

httpx bounds how long a client waits for the next bytes. A server that sends an occasional byte never exceeds that, and
would block the client's thread forever. So every read and write of a connection ends at the deadline of its request,
which `within` sets for the thread it runs in.

The results of a query, besides an answer:

    MillstreamError
    ├── QueryRefusedError    a server refused: unknown state, no right, wrong key; a retry is useless
    └── NoServerError        no server answered in time; lists the servers and the reason of each
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpcore
import httpx

from millstream.errors import MillstreamError

__all__ = [
    "ANSWER_BYTES_MAX",
    "Answer",
    "InvalidAnswer",
    "JobIdentity",
    "NoServerError",
    "PunctualTransport",
    "QueryRefusedError",
    "body_of",
    "check_epoch",
    "check_form",
    "json_of_body",
    "lines_of",
    "within",
]

ANSWER_BYTES_MAX = 256 << 20
"""More than a server sends for one request, by its own limit."""

_EPOCH_MAX = 10**12


class QueryRefusedError(MillstreamError):
    """A server refused; `status` and `code` are those of its answer."""

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status, self.code = status, code


class NoServerError(MillstreamError):
    """No server answered in time."""


class InvalidAnswer(ValueError):
    """A response is not an answer to the request."""


@dataclass(frozen=True)
class Answer:
    """One value, with the epoch it belongs to. `value` is None if nothing was found."""

    value: Any
    epoch: int
    watermark: int | None
    committed_ms: int
    age_ms: int

    @classmethod
    def of(cls, facts: Mapping[str, Any], value: Any) -> Answer:
        """A value, with the facts of its epoch from the same response.

        >>> Answer.of({"epoch": 7, "watermark": None, "committed_ms": 5, "age_ms": 2, "job": "clicks"}, "seven").epoch
        7
        """
        return cls(value, facts["epoch"], facts["watermark"], facts["committed_ms"], facts["age_ms"])


# --- in time ----------------------------------------------------------------------------------------------------------

_ends_s: ContextVar[float] = ContextVar("millstream_query_request_ends_s", default=float("inf"))


@contextmanager
def within(patience_s: float) -> Iterator[None]:
    """Context manager: this thread's sends and receives raise httpx.TimeoutException after `patience_s`."""
    token = _ends_s.set(time.monotonic() + patience_s)
    try:
        yield
    finally:
        _ends_s.reset(token)


def _left_s(timeout_s: float | None, late: type[Exception]) -> float | None:
    """How long to wait for the next bytes."""
    ends_s = _ends_s.get()
    if ends_s == float("inf"):
        return timeout_s
    left_s = ends_s - time.monotonic()
    if left_s <= 0:
        raise late("the answer did not arrive in time")
    return left_s if timeout_s is None else min(left_s, timeout_s)


class _PunctualStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left_s(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left_s(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left_s = _left_s(timeout, httpcore.ConnectTimeout)
        return _PunctualStream(self._stream.start_tls(ssl_context, server_hostname, left_s))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _PunctualBackend(httpcore.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left_s = _left_s(timeout, httpcore.ConnectTimeout)
        return _PunctualStream(super().connect_tcp(host, port, left_s, local_address, socket_options))


class PunctualTransport(httpx.HTTPTransport):
    """The transport of httpx, with connections that enforce deadlines."""

    def __init__(self, verify: Any, limits: httpx.Limits) -> None:
        # The environment is ignored, so that no proxy configured there can intercept requests.
        super().__init__(verify=verify, trust_env=False, limits=limits)
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpx.create_ssl_context(verify=verify, trust_env=False),
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_PunctualBackend(),
        )


# --- of bounded size, and JSON ----------------------------------------------------------------------------------------


def body_of(response: httpx.Response, bytes_max: int = ANSWER_BYTES_MAX) -> bytes:
    """The body of a response, up to `bytes_max` bytes. Compressed bodies are rejected: they may expand to any size."""
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise InvalidAnswer(f"its answer is compressed as {_shown(encoding)}, which was not requested")
    parts, size = [], 0
    for part in response.iter_raw():
        size += len(part)
        if size > bytes_max:
            raise InvalidAnswer(f"its answer has more than {bytes_max} bytes")
        parts.append(part)
    return b"".join(parts)


def lines_of(response: httpx.Response, bytes_max: int = ANSWER_BYTES_MAX) -> Iterator[bytes]:
    """The lines of a response as they arrive, each up to `bytes_max` bytes."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise InvalidAnswer("its events are compressed, which was not requested")
    parts: list[bytes] = []
    size = 0
    for part in response.iter_raw():
        *ends, rest = part.split(b"\n")
        for end in ends:
            yield b"".join([*parts, end]).removesuffix(b"\r")
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > bytes_max:
            raise InvalidAnswer(f"an event has more than {bytes_max} bytes")


def json_of_body(body: bytes) -> dict[str, Any]:
    """The JSON object in a body."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer("its answer is not JSON") from error
    if not isinstance(content, dict):
        raise InvalidAnswer("its answer is not a JSON object")
    return content


# --- of the right job, epoch and form ---------------------------------------------------------------------------------


class JobIdentity:
    """The requested job: its id, or the name by which its id is learnt from the first answer."""

    def __init__(self, job: str) -> None:
        self.job = job
        self._job_id: str | None = None

    def check(self, answer: Mapping[str, Any]) -> None:
        """Raises InvalidAnswer for an answer of another job, or one without an epoch.

        >>> job = JobIdentity("clicks")
        >>> job.check({"job": "clicks", "job_id": "1", "epoch": 7, "watermark": None, "committed_ms": 5, "age_ms": 2})
        >>> job.check({"job": "clicks", "job_id": "2", "epoch": 7, "watermark": None, "committed_ms": 5, "age_ms": 2})
        Traceback (most recent call last):
        millstream.query.client.responses.InvalidAnswer: it answers for job 'clicks' (id '2'), not for 'clicks' (id '1')
        """
        name, job_id = answer.get("job"), answer.get("job_id")
        if not isinstance(job_id, str) or self.job not in (name, job_id) or self._job_id not in (None, job_id):
            known = f" (id {self._job_id!r})" if self._job_id else ""
            raise InvalidAnswer(f"it answers for job {_shown(name)} (id {_shown(job_id)}), not for {self.job!r}{known}")
        for field in ("epoch", "committed_ms", "age_ms"):
            if not _is_whole(answer.get(field), 0, _EPOCH_MAX if field == "epoch" else 1 << 63):
                raise InvalidAnswer(f"its answer has no {field}")
        watermark = answer.get("watermark")
        if watermark is not None and not _is_whole(watermark, -(1 << 63), 1 << 63):
            raise InvalidAnswer("its answer has an invalid watermark")
        self._job_id = job_id


def check_epoch(epoch: int, wanted: int | None, epoch_min: int) -> None:
    """Raises InvalidAnswer for an answer of an epoch other than `wanted`, or older than the newest seen.

    >>> check_epoch(7, None, 7)
    >>> check_epoch(6, None, 7)
    Traceback (most recent call last):
    millstream.query.client.responses.InvalidAnswer: its answer is of epoch 6, and epoch 7 or a newer one was requested
    """
    if wanted is not None and epoch != wanted:
        raise InvalidAnswer(f"its answer is of epoch {epoch}, and epoch {wanted} was requested")
    if wanted is None and epoch < epoch_min:
        raise InvalidAnswer(f"its answer is of epoch {epoch}, and epoch {epoch_min} or a newer one was requested")


def check_form(answer: Mapping[str, Any], part: str, question: Any = None) -> None:
    """Raises InvalidAnswer unless the answer has the requested part, of the required size.

    >>> check_form({"reads": [{"values": [1, 2]}]}, "reads", {"reads": [{"state": "totals", "keys": ["a", "b"]}]})
    """
    content = answer.get(part)
    if part not in answer or (part != "value" and not isinstance(content, list)):
        raise InvalidAnswer(f"its answer has no {part}")
    if part == "reads":
        values = [read.get("values") if isinstance(read, Mapping) else None for read in content or ()]
        counts = [len(read["keys"]) for read in question["reads"]]
        if [len(column) if isinstance(column, list) else None for column in values] != counts:
            raise InvalidAnswer("its answer does not have a value for every key")
    if part == "points":
        for point in content or ():
            is_point = isinstance(point, Mapping) and "value" in point and _is_whole(point.get("epoch"), 0, _EPOCH_MAX)
            if not is_point or not _is_whole(point.get("committed_ms"), 0, 1 << 63):
                raise InvalidAnswer("its answer has a point without an epoch")


def _is_whole(value: Any, first: int, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and first <= value < end


def _shown(value: Any) -> str:
    return repr(value)[:100] if isinstance(value, str | int | None) else f"a {type(value).__name__}"
