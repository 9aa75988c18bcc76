"""Checks every HTTP request: its client, rate, size and time.

In this order: the rate of the client, the host it names, its token, the size of the body, the time of the whole
request. The guard reads the body, up to the limit and not a byte further, before any other component receives it. So
neither a gigabyte of keys nor a body sent at a byte per minute costs more than the limit. Only event streams have no
time limit.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.query.server.rights import EVERYONE, Reader
from millstream.query.server.settings import ServerSettings
from millstream.query.wire.refusals import (
    DETAILS_IN_LOG,
    MalformedError,
    NotJsonError,
    NoTokenError,
    RefusalAnswer,
    SlowRequestError,
    TooLargeError,
    TooManyError,
    answer_to,
)

__all__ = ["OPEN_PATHS", "Guard", "HostNames", "Rates", "refusal_headers"]

_LOG = logging.getLogger(__name__)
OPEN_PATHS = ("/", "/healthz", "/openapi.json")
"""Paths without a token: they reveal nothing about the job."""
_CLIENTS_MAX = 10_000
_BURST_S = 2.0
_EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")


class Rates:
    """Limits each client's requests per second, with bursts of twice that: a token bucket per client.

    The number of stored clients is bounded: the client with the oldest last request is evicted, which refills its
    bucket. So a flood of unknown clients does not use memory.

    >>> rates = Rates(1.0)
    >>> [rates.wait_s("a", now_s) for now_s in (0.0, 0.0, 0.0, 1.0)]
    [0.0, 0.0, 1.0, 0.0]
    """

    def __init__(self, requests_per_s: float | None) -> None:
        self._per_s = requests_per_s
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str, now_s: float) -> float:
        """Zero if the request may be answered, otherwise how long the client should wait."""
        if self._per_s is None:
            return 0.0
        full = max(1.0, self._per_s * _BURST_S)
        left, then_s = self._buckets.pop(client, (full, now_s))
        left = min(full, left + max(0.0, now_s - then_s) * self._per_s)
        allowed = left >= 1.0
        self._buckets[client] = (left - 1.0 if allowed else left, now_s)
        if len(self._buckets) > _CLIENTS_MAX:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - left) / self._per_s


@dataclass(frozen=True)
class HostNames:
    """The accepted host names; `option` adds one."""

    names: frozenset[str]
    option: str

    @classmethod
    def of(cls, settings: ServerSettings) -> HostNames | None:
        """The names of a server; None if any name is accepted, because a token is required anyway.

        A page of another site may resolve its own name to this machine (DNS rebinding), and then send requests from a
        browser that can reach the server, although the page's author cannot. Such requests name the other site as the
        host, so without tokens only known names of the server are accepted. An address cannot be rebound, so addresses
        are always accepted.
        """
        if settings.rights is not None and not settings.allowed_hosts:
            return None
        names = ("localhost", settings.host, settings.advertised_host or "", *settings.allowed_hosts)
        option = settings.called("allow-host", "allow-hosts")
        return cls(frozenset(host_of(name) for name in names if name), option)

    def check(self, host_header: str) -> None:
        """Raises MalformedError for any other name.

        >>> HostNames(frozenset({"localhost"}), "--allow-host").check("[::1]:8787")
        >>> HostNames(frozenset({"localhost"}), "--allow-host").check("evil.example")
        Traceback (most recent call last):
        millstream.query.wire.refusals.MalformedError: this server does not answer for host 'evil.example'. Use its \
address, or allow the name (--allow-host).
        """
        host = host_of(host_header)
        if host not in self.names and not _is_address(host):
            raise MalformedError(
                f"this server does not answer for host {host[:100]!r}. Use its address, or allow the name "
                f"({self.option})."
            )


def host_of(authority: str) -> str:
    """The host of HOST, HOST:PORT or [ADDRESS]:PORT, in lower case.

    >>> host_of("Localhost:8787"), host_of("[::1]:8787"), host_of("::1")
    ('localhost', '::1', '::1')
    """
    text = authority.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text if text.count(":") > 1 else text.partition(":")[0].rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def refusal_headers(answer: RefusalAnswer) -> dict[str, str]:
    """The response headers of a refusal."""
    headers = {"cache-control": "no-store"}
    if answer.status == 401:
        headers["www-authenticate"] = "Bearer"
    if answer.status in (429, 503):
        headers["retry-after"] = str(answer.facts.get("retry_after_s", 1))
    return headers


class Guard:
    """Forwards allowed requests; `scope["state"]` then has the `reader`, and `reader_now`, which determines it
    again."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, now_s: Callable[[], float]) -> None:
        self._app, self._settings, self._now_s = app, settings, now_s
        self._rates = Rates(settings.limits.requests_per_s)
        self._host_names = HostNames.of(settings)
        self._logged = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun, limit = False, None

        async def send_noting(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            if limit is not None and _EVENTS in message.get("headers", ()):
                limit.reschedule(None)
            await send(message)

        try:
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
            self._check_rate(scope)
            if self._host_names is not None:
                self._host_names.check(headers.get("host", ""))
            state = scope.setdefault("state", {})
            # A watcher's token is checked again before every event: a revoked token ends the stream.
            state["reader_now"] = reader_now = partial(self._reader, scope["path"], headers.get("authorization"))
            state["reader"] = reader_now()
            until_s = asyncio.get_running_loop().time() + self._settings.limits.request_timeout_s
            body = await self._body(headers, receive, until_s)
            if body and scope["method"] == "POST":
                _check_kind(headers)
            async with asyncio.timeout_at(until_s) as limit:
                await self._app(scope, _receiving(body, receive), send_noting)
        except Exception as error:
            if has_begun:
                raise  # part of an answer is sent: the only option is to close the connection
            answer = answer_to(error)
            self._log(answer, error)
            await _send(answer, send)

    def _log(self, answer: RefusalAnswer, error: Exception) -> None:
        """Log the details that the client does not receive; a repeated error only once."""
        if answer.code in DETAILS_IN_LOG and str(error) != self._logged:
            self._logged = str(error)
            _LOG.error("a request failed: %s", error, exc_info=error if answer.code == "internal" else None)

    def _check_rate(self, scope: Scope) -> None:
        client = scope.get("client")
        wait_s = self._rates.wait_s(client[0] if client else "", self._now_s())
        if wait_s:
            raise TooManyError(
                f"requests come faster than {self._settings.limits.requests_per_s:g} a second. Request many keys in "
                "one request, or watch a key instead of polling it.",
                retry_after_s=max(1, round(wait_s)),
            )

    def _reader(self, path: str, authorization: str | None) -> Reader:
        rights = self._settings.rights
        if rights is None or path in OPEN_PATHS:
            return EVERYONE
        try:
            return rights.reader_of(authorization)
        except UnicodeError as error:
            raise NoTokenError("the token is not text. Send the header `Authorization: Bearer TOKEN`.") from error

    async def _body(self, headers: dict[str, str], receive: Receive, until_s: float) -> bytes:
        bytes_max = self._settings.limits.body_bytes_max
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 15 or int(length) > bytes_max):
            raise _too_large(bytes_max)
        if not length and "transfer-encoding" not in headers:
            return b""
        try:
            async with asyncio.timeout_at(until_s):
                return await _read(receive, bytes_max)
        except TimeoutError as error:
            limit_s = self._settings.limits.request_timeout_s
            raise SlowRequestError(f"the body of the request was not complete within {limit_s:g} s.") from error


def _check_kind(headers: dict[str, str]) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    encoding = headers.get("content-encoding", "identity")
    if kind != "application/json" or encoding != "identity":
        raise NotJsonError(
            f"the body is {kind[:60] or 'of no kind'!r}, encoded as {encoding[:60]!r}. Send uncompressed JSON, with "
            "the header `Content-Type: application/json`."
        )


async def _read(receive: Receive, bytes_max: int) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > bytes_max:
            raise _too_large(bytes_max)
        parts.append(part)
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return b"".join(parts)


def _too_large(bytes_max: int) -> TooLargeError:
    return TooLargeError(
        f"the request has more than {bytes_max} bytes. Request fewer keys at once, or use Arrow Flight."
    )


def _receiving(body: bytes, receive: Receive) -> Receive:
    """Returns the buffered body first, then further messages, i.e. the end of the connection."""
    is_received = False

    async def receive_again() -> Message:
        nonlocal is_received
        if is_received:
            return await receive()
        is_received = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


async def _send(answer: RefusalAnswer, send: Send) -> None:
    body = json.dumps(answer.body()).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal_headers(answer)}
    raw_headers = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw_headers})
    await send({"type": "http.response.body", "body": body})
