"""What stands before every HTTP request: who asks, how often, how much, and for how long.

In this order: the rate of the client, the host it names, its token, the size of the body, the time of the whole
request. A body is read here, up to the limit and not a byte further, before anything looks at it; so neither a gigabyte
of keys nor a body that comes a byte a minute costs more than the limit says. Event streams are the one thing without a
time limit.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.query.server.rates import Rates
from millstream.query.server.rights import EVERYONE, Reader
from millstream.query.server.settings import ServerSettings
from millstream.query.wire.refusals import (
    DETAILS_IN_LOG,
    NotJsonError,
    NoTokenError,
    RefusalAnswer,
    SlowRequestError,
    TooLargeError,
    TooManyError,
    answer_to,
)

__all__ = ["OPEN_PATHS", "Guard", "refusal_headers"]

_LOG = logging.getLogger(__name__)
OPEN_PATHS = ("/", "/healthz", "/openapi.json")
"""What is told without a token: nothing of the job."""
_EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")


def refusal_headers(answer: RefusalAnswer) -> dict[str, str]:
    """The headers that belong to a refusal."""
    headers = {"cache-control": "no-store"}
    if answer.status == 401:
        headers["www-authenticate"] = "Bearer"
    if answer.status in (429, 503):
        headers["retry-after"] = str(answer.facts.get("retry_after_s", 1))
    return headers


class Guard:
    """Lets through what is allowed; `scope["state"]` then has the `reader`, and `reader_now`, which finds it again."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, now_s: Callable[[], float]) -> None:
        self._app, self._settings, self._now_s = app, settings, now_s
        self._rates = Rates(settings.limits.requests_per_s)
        self._host_names = settings.host_names
        self._noted = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, limit = False, None

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            if limit is not None and _EVENTS in message.get("headers", ()):
                limit.reschedule(None)
            await send(message)

        try:
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
            self._check_rate(scope)
            if self._host_names is not None:
                self._host_names.check(headers.get("host", ""))
            state = scope.setdefault("state", {})
            # Who watches is asked again before every event: a token that was taken back ends the stream.
            state["reader_now"] = reader_now = partial(self._reader, scope["path"], headers.get("authorization"))
            state["reader"] = reader_now()
            until_s = asyncio.get_running_loop().time() + self._settings.limits.request_timeout_s
            body = await self._body(headers, receive, until_s)
            if body and scope["method"] == "POST":
                _check_kind(headers)
            async with asyncio.timeout_at(until_s) as limit:
                await self._app(scope, _given(body, receive), sending)
        except Exception as error:
            if begun:
                raise  # half an answer is out: all that is left is to end the connection
            answer = answer_to(error)
            self._note(answer, error)
            await _send(answer, send)

    def _note(self, answer: RefusalAnswer, error: Exception) -> None:
        """Log what the client is not told; what is the same again and again, once."""
        if answer.code in DETAILS_IN_LOG and str(error) != self._noted:
            self._noted = str(error)
            _LOG.error("a request failed: %s", error, exc_info=error if answer.code == "internal" else None)

    def _check_rate(self, scope: Scope) -> None:
        client = scope.get("client")
        wait_s = self._rates.wait_s(client[0] if client else "", self._now_s())
        if wait_s:
            raise TooManyError(
                f"requests come faster than {self._settings.limits.requests_per_s:g} a second. Ask for many keys in "
                "one request, or watch a key instead of asking again and again.",
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
        most = self._settings.limits.body_bytes_max
        told = headers.get("content-length", "")
        if told.isdecimal() and (len(told) > 15 or int(told) > most):
            raise _too_large(most)
        if not told and "transfer-encoding" not in headers:
            return b""
        try:
            async with asyncio.timeout_at(until_s):
                return await _read(receive, most)
        except TimeoutError as error:
            limit_s = self._settings.limits.request_timeout_s
            raise SlowRequestError(f"the body of the request was not there within {limit_s:g} s.") from error


def _check_kind(headers: dict[str, str]) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    encoding = headers.get("content-encoding", "identity")
    if kind != "application/json" or encoding != "identity":
        raise NotJsonError(
            f"the body is {kind[:60] or 'of no kind'!r}, encoded as {encoding[:60]!r}. Send JSON as it is, with the "
            "header `Content-Type: application/json`."
        )


async def _read(receive: Receive, most: int) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return b"".join(parts)


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(f"the request has more than {most} bytes. Ask for fewer keys at once, or use Arrow Flight.")


def _given(body: bytes, receive: Receive) -> Receive:
    """The body that was read, once; then whatever comes, which is the end of the connection."""
    given = False

    async def receiving() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving


async def _send(answer: RefusalAnswer, send: Send) -> None:
    body = json.dumps(answer.body()).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal_headers(answer)}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
