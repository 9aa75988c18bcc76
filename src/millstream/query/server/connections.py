"""HTTP connections with time limits: a client that is slow to send a request, or to read its answer, is disconnected.

Uvicorn bounds how long a connection is idle, but a client that sends a header a minute is not idle. This module
also bounds:

- the time from the first byte of a request to the end of its head, and until the first byte of a new connection (408);
- the time in which the rest of a body is still received, and discarded, after the request was refused;
- the time in which a client reads nothing of a pending answer, and the pending bytes of all clients: the slowest is
  disconnected;
- the number of connections: the one that has been idle longest makes room for a new one;
- the size of a head, and the number of requests that are queued after the current one.

The guard limits the time of a body. Parser and loop are those of uvicorn's that are written in C (httptools, uvloop):
they cause most of the cost of a small answer.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from millstream.errors import ConfigurationError
from millstream.query.server.settings import Limits, ServerSettings
from millstream.query.wire.refusals import MalformedError, SlowRequestError, TooManyError, answer_to

__all__ = ["StoppableServer", "impatient_loop", "impatient_protocol", "tls_checked", "tls_context"]

_LINGER_S = 1.0
_HEAD_BYTES_MAX = 64 << 10
_HEADER_COST_BYTES = 4  # separators between a name, its value and the next
_HEAD_END = b"\r\n\r\n"
_PIPELINED_MAX = 16
_COPIED_BYTES_MAX = 64 << 10


class WholeAnswers:
    """The transport of one answer. It sends the head together with the body, if the length of that is known: one packet
    instead of two, and the client wakes up once."""

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def write(self, data: bytes) -> None:
        """Writes a part of the answer. The first is its head, unless it is "100 Continue"."""
        if self._transport.is_closing():
            return
        if data.endswith(_HEAD_END) and data.startswith(b"HTTP/1.1 ") and b"\r\ncontent-length: " in data:
            self._head = data
            return
        head, self._head = self._head, b""
        if head and len(data) > _COPIED_BYTES_MAX:
            self._transport.write(head)
            head = b""
        self._transport.write(head + data if head else data)

    def close(self) -> None:
        """Close the connection when everything is written."""
        if self._head:
            self.write(b"")
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether the connection ends."""
        return self._transport.is_closing()


class ImpatientProtocol(HttpToolsProtocol):
    """One connection. `waiting` are the idle connections of the same server, longest first, `unread` those with unread
    answers.

    The parser reports the state of a request: a head has begun (`_is_in_head`), or a body is incomplete
    (`_is_in_body`). It checks no sizes, so head sizes are counted here.
    """

    limits: Limits
    waiting: dict[ImpatientProtocol, None]
    unread: dict[ImpatientProtocol, None]
    _timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _is_in_head = False
    _is_in_body = False
    _head_bytes = 0
    _partial_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head; if there are too many connections, the one that has waited longest is closed."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=1, low=0)  # so that unread data triggers `pause_writing`
        if len(self.connections) > self.limits.connections_max:
            idlest = min(self.waiting, key=lambda connection: connection.cycle is not None, default=None)
            if idlest is None:
                return self._refuse(TooManyError("the maximum number of clients is connected. Try again in a moment."))
            idlest.transport.abort()
        self._wait(self.limits.header_timeout_s)
        return None

    def data_received(self, data: bytes) -> None:
        """Bytes of a head, of a body, or of the rest of a body that was refused."""
        was_in_head = self._is_in_head
        super().data_received(data)
        if self.transport.is_closing():
            return
        if was_in_head and self._is_in_head:
            self._partial_bytes += len(data)  # the parser does not report an endless header
            if self._partial_bytes > _HEAD_BYTES_MAX:
                return self.send_400_response("")
        if self._is_idle:
            if self._timer is None:  # otherwise the time already runs: another byte does not extend it
                self._wait(self.limits.header_timeout_s)
        elif not self._has_late_body:
            self._cancel()
        return None

    # --- events of the parser ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._is_in_head, self._head_bytes, self._partial_bytes = True, 0, 0

    def on_url(self, url: bytes) -> None:
        """A piece of the path."""
        self._count(len(url))
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A complete header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The request is answered, if it has a valid path and exactly one host."""
        self._is_in_head, self._is_in_body = False, True
        hosts = [value for name, value in self.headers if name == b"host"]
        if not self.url.startswith(b"/") or len(hosts) > 1 or (not hosts and self.parser.get_http_version() != "1.0"):
            raise ValueError("not for this server")
        if len(self.pipeline) >= _PIPELINED_MAX:
            raise ValueError("too many pipelined requests")
        super().on_headers_complete()
        if self.scope["method"] != "HEAD":  # its answer is a head only
            self.cycle.transport = WholeAnswers(self.transport)  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._is_in_body = False
        super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        self.cycle.keep_alive = False  # an upgrade: the remaining data would be of another protocol

    def _count(self, size: int) -> None:
        self._head_bytes += size + _HEADER_COST_BYTES
        if self._head_bytes > _HEAD_BYTES_MAX:
            raise ValueError("too large a head")

    @property
    def _is_idle(self) -> bool:
        """Whether no request is pending, and no body incomplete."""
        return not self._is_in_body and (self.cycle is None or self.cycle.response_complete)

    @property
    def _has_late_body(self) -> bool:
        """Whether a body is still received although the request is answered."""
        return self._is_in_body and self.cycle is not None and self.cycle.response_complete

    # --- events of the answer ---------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        """The connection is idle, or still sends unread data."""
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._has_late_body:
            # Closing at once would make the client's machine discard the refusal that it has not read yet.
            self._unset_keepalive_if_required()
            self._wait(_LINGER_S)
        else:
            self._note_idle()

    def pause_writing(self) -> None:
        """Part of an answer waits until the client reads it; the connection is not idle then."""
        super().pause_writing()
        self.waiting.pop(self, None)
        if self._unread_timer is None:
            self._watch_reading(self.transport.get_write_buffer_size())
        self.unread[self] = None
        excess = sum(slow.transport.get_write_buffer_size() for slow in self.unread) - self.limits.unread_bytes_max
        for slow in list(self.unread) if excess > 0 else ():
            excess -= slow.transport.get_write_buffer_size()
            slow.transport.abort()
            if excess <= 0:
                return

    def resume_writing(self) -> None:
        """The client has read everything."""
        super().resume_writing()
        self.unread.pop(self, None)
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        self._note_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything of the connection."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self.resume_writing()
        self._cancel()

    def send_400_response(self, msg: str) -> None:
        """The data received is not HTTP."""
        self._refuse(
            MalformedError(
                "the request is not HTTP/1.1 for one host and a path of it, or its head has more than 64 KiB. "
                "/openapi.json describes the requests."
            )
        )

    def _watch_reading(self, left: int) -> None:
        def check_progress() -> None:
            now = self.transport.get_write_buffer_size()
            if now >= left:
                self.transport.abort()
            else:
                self._watch_reading(now)

        self._unread_timer = self.loop.call_later(self.limits.unread_timeout_s, check_progress)

    def _wait(self, patience_s: float) -> None:
        self._cancel()
        self.waiting[self] = None
        self._timer = self.loop.call_later(patience_s, self._time_out)

    def _note_idle(self) -> None:
        """Note that the connection waits for the next request, if the last answer was read completely."""
        if self.cycle is not None and self._is_idle and not self.flow.write_paused and not self.transport.is_closing():
            self.waiting[self] = None

    def _cancel(self) -> None:
        self.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._cancel()
        if self._is_idle and self._is_in_head:
            self._refuse(
                SlowRequestError(f"the head of the request was not complete within {self.limits.header_timeout_s:g} s.")
            )
        elif not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, error: Exception) -> None:
        """Send the refusal, unless an answer is partly sent, and close the connection."""
        self._cancel()
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            answer = answer_to(error)
            body = json.dumps(answer.body())
            self.transport.write(
                f"HTTP/1.1 {answer.status} Refused\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
                f"connection: close\r\n\r\n{body}".encode("ascii")
            )
        if cycle is not None:
            cycle.disconnected = True  # nothing may be sent after this
        self.transport.close()


def impatient_protocol(server_limits: Limits) -> type[asyncio.Protocol]:
    """The class of the connections of one server."""

    class OfOneServer(ImpatientProtocol):
        limits = server_limits
        waiting: dict[ImpatientProtocol, None] = {}  # noqa: RUF012 - of one server, and so of its class
        unread: dict[ImpatientProtocol, None] = {}  # noqa: RUF012

    return OfOneServer


class _ImpatientLoop(uvloop.Loop):
    """Bounds the TLS handshake: until it is complete, no protocol object exists that could close the connection."""

    handshake_timeout_s: float

    async def create_server(self, *args: Any, ssl: Any = None, **options: Any) -> Any:
        if ssl is not None:
            options["ssl_handshake_timeout"] = self.handshake_timeout_s
        return await super().create_server(*args, ssl=ssl, **options)


def impatient_loop(limits: Limits) -> asyncio.AbstractEventLoop:
    """A loop for the server, on which a client must complete the TLS handshake within the time limit of a head."""
    loop = _ImpatientLoop()
    loop.handshake_timeout_s = limits.header_timeout_s
    return loop


def tls_context(settings: ServerSettings) -> ssl.SSLContext | None:
    """The TLS context, None without TLS; raises ConfigurationError if the files are not a certificate and its key."""
    certificate, private_key = settings.certificate, settings.private_key
    if certificate is None or private_key is None:
        return None
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, private_key)
        return context
    except (ssl.SSLError, OSError) as error:
        raise ConfigurationError(
            f"{settings.called('certificate')} {certificate} and {settings.called('private-key')} {private_key} are no "
            f"certificate with its key: {error}. Set both as PEM."
        ) from error


def tls_checked(settings: ServerSettings) -> dict[str, Any]:
    """The TLS options for uvicorn, which makes its own context; raises ConfigurationError like `tls_context`."""
    if tls_context(settings) is None:
        return {}
    return {"ssl_certfile": str(settings.certificate), "ssl_keyfile": str(settings.private_key)}


class StoppableServer(uvicorn.Server):
    """A server that ends event streams, and connections accepted in the meantime, before it waits for the other
    requests."""

    def __init__(self, config: uvicorn.Config, before_stop: Any) -> None:
        super().__init__(config)
        self._before_stop = before_stop

    async def shutdown(self, sockets: Any = None) -> None:
        """Notify the streams, then shut down uvicorn."""
        self._before_stop()
        closing = asyncio.create_task(self._keep_closing())
        try:
            await super().shutdown(sockets)
        finally:
            closing.cancel()

    async def _keep_closing(self) -> None:
        # A connection that was being accepted when uvicorn closed the others would continue to send requests.
        while True:
            await asyncio.sleep(0.02)
            for connection in list(self.server_state.connections):
                connection.shutdown()
