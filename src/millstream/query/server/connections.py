"""HTTP connections that do not wait for ever: a request whose head is not there in time is let go.

Uvicorn bounds how many connections there are and how long an idle one is kept, but a client that sends a header a
minute is neither. Here the time from the first byte of a request to the end of its head is bounded, and so is the
time until the first byte of a new connection. Bodies are bounded by the guard.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from millstream.errors import ConfigurationError

__all__ = ["impatient_protocol", "tls_checked"]


def impatient_protocol(header_timeout_s: float) -> type[asyncio.Protocol]:
    """The class of connections whose heads must be there within this time."""

    class ImpatientProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._cancel()
            elif self._timer is None:
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel()
            super().connection_lost(exc)

        def _wait(self) -> None:
            self._timer = self.loop.call_later(header_timeout_s, self._give_up)

        def _cancel(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _give_up(self) -> None:
            self._timer = None
            if not self.transport.is_closing():
                self.transport.close()

    return ImpatientProtocol


def tls_checked(certificate: Path | None, private_key: Path | None) -> dict[str, Any]:
    """Uvicorn's options for TLS; ConfigurationError where the files are no certificate and key of it."""
    if certificate is None or private_key is None:
        return {}
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, private_key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigurationError(
            f"{certificate} and {private_key} are no certificate with its key: {error}. Give both as PEM."
        ) from error
    return {"ssl_certfile": str(certificate), "ssl_keyfile": str(private_key)}


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
