"""A query server that runs: in a thread beside other work, or in the foreground until it is told to stop.

Steps of a start: check the settings; take the port; answer; then register in the store, so that nobody is sent to a
server that does not answer yet. Steps of a stop: take the registration back; finish the requests that are being
answered; end event streams; let the job go. So replacing servers one after the other loses no query.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from millstream.errors import ConfigurationError, MillstreamError
from millstream.query.server.application import Neighbourhood, application
from millstream.query.server.connections import StoppableServer, impatient_protocol, tls_checked
from millstream.query.server.flight import FlightEndpoint
from millstream.query.server.reads import Reads
from millstream.query.server.settings import ServerSettings
from millstream.query.wire.registration import RENEW_S, Registration, deregister, register, registrations_of
from millstream.query.wire.served import ServedJob
from millstream.storage.store import Store

__all__ = ["QueryServer"]

_LOG = logging.getLogger(__name__)
_START_S = 20.0
_STOP_S = 10


class QueryServer:
    """Serves one job. Without a `store` it registers nowhere, and clients must know its address.

    Use it in a `with` block: it answers from `start` on, and `url` says where.
    """

    def __init__(
        self,
        served: ServedJob,
        settings: ServerSettings,
        store: Store | None = None,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._served, self._settings, self._store, self._now_ms = served, settings.checked(), store, now_ms
        self.id = secrets.token_hex(8)
        self._stopping = threading.Event()
        self._socket: socket.socket | None = None
        self._flight: FlightEndpoint | None = None
        self._server: StoppableServer | None = None
        self._threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        """Where it answers."""
        assert self._socket is not None, "start the server first"
        scheme = "https" if self._settings.has_tls else "http"
        return f"{scheme}://{self._settings.shown_host}:{self._socket.getsockname()[1]}"

    @property
    def flight_url(self) -> str | None:
        """Where it answers in Arrow Flight, if it does."""
        if self._flight is None:
            return None
        scheme = "grpc+tls" if self._settings.has_tls else "grpc"
        return f"{scheme}://{self._settings.shown_host}:{self._flight.port}"

    def start(self) -> QueryServer:
        """Begin to answer; returns once it does."""
        tls = tls_checked(self._settings.certificate, self._settings.private_key)
        self._socket = _listening(self._settings)
        neighbourhood = Neighbourhood(
            lambda: {"url": self.url, "flight_url": self.flight_url},
            lambda: [] if self._store is None else registrations_of(self._store),
        )
        app = application(self._served, self._settings, self._now_ms, neighbourhood=neighbourhood)
        limits = self._settings.limits
        config = uvicorn.Config(
            app,
            http=impatient_protocol(limits.header_timeout_s),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            limit_concurrency=limits.connections_max,
            backlog=min(2048, limits.connections_max),
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_STOP_S,
            server_header=False,
            **tls,
        )
        self._server = StoppableServer(config, app.state.endpoints.bell.close)
        self._begin(self._answering, "query-server")
        self._await_start(self._server)
        if self._settings.flight_port is not None:
            reads = Reads(self._served, self._settings.key_groups, limits, self._now_ms)
            self._flight = FlightEndpoint(reads, self._settings)
        if self._store is not None:
            register(self._store, self._registration())
            self._begin(self._renewing, "query-server-registration")
        return self

    def stop(self) -> None:
        """Answer what is asked already, then end."""
        self._stopping.set()
        if self._store is not None:
            with suppress(MillstreamError, OSError):
                deregister(self._store, self.id)
        if self._flight is not None:
            self._flight.close()
        if self._server is not None:
            self._server.should_exit = True
        for thread in self._threads:
            thread.join(_STOP_S + 5)
        if self._socket is not None:
            self._socket.close()

    def wait(self) -> None:
        """Until it is stopped, by another thread or by an interrupt."""
        while not self._stopping.wait(0.5):
            if self._server is None or self._server.should_exit:
                return

    def __enter__(self) -> QueryServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _begin(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _answering(self) -> None:
        assert self._server is not None and self._socket is not None
        self._server.run(sockets=[self._socket])

    def _await_start(self, server: StoppableServer) -> None:
        until_s = time.monotonic() + _START_S
        while not server.started:
            if not self._threads[0].is_alive() or time.monotonic() > until_s:
                raise ConfigurationError(f"the server did not start at {self.url}. Its log says why.")
            time.sleep(0.005)

    def _registration(self) -> Registration:
        held = self._settings.key_groups
        span = None if held is None else (held[0], held[-1])
        return Registration.of(self.id, self._served.job_id, self.url, self.flight_url, span, self._now_ms())

    def _renewing(self) -> None:
        assert self._store is not None
        while not self._stopping.wait(RENEW_S):
            try:
                register(self._store, self._registration())
            except (MillstreamError, OSError) as error:
                _LOG.warning("the query server could not renew its registration: %s", error)
        with suppress(MillstreamError, OSError):
            deregister(self._store, self.id)  # a renewal may have crossed the stop


def _listening(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol is named, since asyncio turns off Nagle's delay for connections of a socket that names TCP only:
    # without, every answer waits 40 ms for an acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
        listening.listen(512)
        return listening
    except (OSError, OverflowError) as error:
        listening.close()
        raise ConfigurationError(
            f"{settings.host}:{settings.port} cannot be listened on: {error}. Give another "
            "address (--listen HOST:PORT): port 0 takes any that is free."
        ) from error
