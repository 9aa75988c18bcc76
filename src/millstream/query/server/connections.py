"""HTTP connections that do not wait for ever: one that is slow to ask, or to read what it asked for, is let go.

Uvicorn bounds how long an idle connection is kept, but a client that sends a header a minute is not idle. Here these
are bounded too:

- the time from the first byte of a request to the end of its head, and until the first byte of a new connection (408);
- the time that the rest of a body is still taken in, and thrown away, after the request was refused;
- the time in which a client takes in nothing of an answer that waits for it;
- how many connections there are: the one that has waited longest without asking makes room for a new one.

How long a body may take is the guard's affair.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from millstream.errors import ConfigurationError
from millstream.query.server.settings import Limits, ServerSettings
from millstream.query.wire.refusals import MalformedError, SlowRequestError, TooManyError, answer_to

__all__ = ["StoppableServer", "impatient_loop", "impatient_protocol", "tls_checked", "tls_context"]

_LINGER_S = 1.0
_HEAD_BYTES_MAX = 64 << 10


class WholeAnswers(h11.Connection):
    """Gives the head of an answer out together with its body, where the length of that is known: one packet in place of
    two, and who waits for the answer is woken once."""

    _head = b""

    def send(self, event: Any) -> Any:
        """What is to be written for it."""
        data, head = super().send(event), self._head
        self._head = b""
        if isinstance(event, h11.Response) and any(name == b"content-length" for name, _ in event.headers):
            self._head = data or b""
            return b""
        return head + data if data is not None else None


class ImpatientProtocol(H11Protocol):
    """One connection. `waiting` are those of the same server that ask for nothing now, longest waiting first."""

    limits: Limits
    waiting: dict[ImpatientProtocol, None]
    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head; the one that waits longest makes room."""
        self.conn = WholeAnswers(h11.SERVER, _HEAD_BYTES_MAX)
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=1, low=0)  # so that what is not taken in is heard of
        if len(self.connections) > self.limits.connections_max:
            idlest = min(self.waiting, key=lambda one: one.cycle is not None, default=None)
            if idlest is None:
                return self._refuse(TooManyError("as many clients are connected as may be. Ask again in a moment."))
            idlest.transport.abort()
        self._wait(self.limits.header_timeout_s)
        return None

    def data_received(self, data: bytes) -> None:
        """Bytes of a head, of a body, or of the rest of a body that was refused."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            if self._timer is None:  # else it waits already: a byte more does not make it younger
                self._wait(self.limits.header_timeout_s)
        elif self.conn.our_state is not h11.DONE:
            self._cancel()

    def on_response_complete(self) -> None:
        """The connection is idle, or still sends what nobody reads."""
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE:
            # Hanging up at once would have the client's machine throw away the refusal that it has not read yet.
            self._unset_keepalive_if_required()
            self._wait(_LINGER_S)
        else:
            self._rest()

    def pause_writing(self) -> None:
        """Something waits to be taken in by the client, who is not idle then."""
        super().pause_writing()
        self.waiting.pop(self, None)
        if self._unread is None:
            self._watch_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """All is taken in."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        self._rest()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing of it is left."""
        super().connection_lost(exc)
        self.resume_writing()
        self._cancel()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP."""
        self._refuse(
            MalformedError(
                "the request is no HTTP/1.1, or its head has more than 64 KiB. /openapi.json says how to ask."
            )
        )

    def _watch_reading(self, left: int) -> None:
        def look() -> None:
            now = self.transport.get_write_buffer_size()
            if now >= left:
                self.transport.abort()
            else:
                self._watch_reading(now)

        self._unread = self.loop.call_later(self.limits.unread_timeout_s, look)

    def _wait(self, patience_s: float) -> None:
        self._cancel()
        self.waiting[self] = None
        self._timer = self.loop.call_later(patience_s, self._give_up)

    def _rest(self) -> None:
        """It is idle, if all is said and taken in."""
        is_done = self.cycle is not None and self.cycle.response_complete and self.conn.their_state is h11.IDLE
        if is_done and not self.flow.write_paused and not self.transport.is_closing():
            self.waiting[self] = None

    def _cancel(self) -> None:
        self.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._cancel()
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(
                SlowRequestError(f"the head of the request was not there within {self.limits.header_timeout_s:g} s.")
            )
        elif not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, error: Exception) -> None:
        """Say it, where nothing else is being said, and hang up."""
        self._cancel()
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = answer_to(error)
            body = json.dumps(answer.body())
            self.transport.write(
                f"HTTP/1.1 {answer.status} Refused\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
                f"connection: close\r\n\r\n{body}".encode("ascii")
            )
        self.transport.close()


def impatient_protocol(server_limits: Limits) -> type[asyncio.Protocol]:
    """The class of the connections of one server."""

    class OfOneServer(ImpatientProtocol):
        limits = server_limits
        waiting: dict[ImpatientProtocol, None] = {}  # noqa: RUF012 - of one server, and so of its class

    return OfOneServer


def impatient_loop(limits: Limits) -> asyncio.AbstractEventLoop:
    """A loop for the server, on which a client must be done with the handshake of TLS in the time of a head.

    Until then there is no connection that a protocol could let go, and asyncio's own patience is a minute.
    """

    class ImpatientLoop(asyncio.SelectorEventLoop):
        async def create_server(self, *args: Any, ssl: Any = None, **options: Any) -> asyncio.Server:
            if ssl is not None:
                options["ssl_handshake_timeout"] = limits.header_timeout_s
            return await super().create_server(*args, ssl=ssl, **options)

    return ImpatientLoop()


def tls_context(settings: ServerSettings) -> ssl.SSLContext | None:
    """What TLS needs, None without; ConfigurationError where the files are no certificate and key of it."""
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
            f"certificate with its key: {error}. Give both as PEM."
        ) from error


def tls_checked(settings: ServerSettings) -> dict[str, Any]:
    """Uvicorn's options for TLS, which makes a context of its own; ConfigurationError as `tls_context`."""
    if tls_context(settings) is None:
        return {}
    return {"ssl_certfile": str(settings.certificate), "ssl_keyfile": str(settings.private_key)}


class StoppableServer(uvicorn.Server):
    """A server that ends event streams, and connections that came meanwhile, before it waits for the rest."""

    def __init__(self, config: uvicorn.Config, before_stop: Any) -> None:
        super().__init__(config)
        self._before_stop = before_stop

    async def shutdown(self, sockets: Any = None) -> None:
        """Uvicorn's, after telling the streams."""
        self._before_stop()
        closing = asyncio.create_task(self._keep_closing())
        try:
            await super().shutdown(sockets)
        finally:
            closing.cancel()

    async def _keep_closing(self) -> None:
        # A connection that was being accepted when uvicorn closed the others would go on asking, and be waited for.
        while True:
            await asyncio.sleep(0.02)
            for connection in list(self.server_state.connections):
                connection.shutdown()
