"""Runs a query server: on its own thread, or in the foreground until it is stopped.

Steps of a start: check the settings; open the ports, unless that was done before (`Ports`), so that errors appear
before anything has begun; begin to answer; then register in the store, so that clients never discover a server that
does not answer yet. Steps of a stop: remove the registration; complete the requests in progress; end event streams. So
replacing servers one after the other loses no query.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import uvicorn

from millstream.checkpoint.leases import system_ms
from millstream.errors import ConfigurationError, MillstreamError
from millstream.query.job_view import JobView
from millstream.query.server.application import Neighbourhood, application
from millstream.query.server.connections import StoppableServer, impatient_loop, impatient_protocol, tls_checked
from millstream.query.server.flight import FlightEndpoint
from millstream.query.server.settings import ServerSettings
from millstream.query.wire.servers import RENEW_S, Registration, deregister, register, registrations_of
from millstream.storage.store import Store

__all__ = ["Ports", "QueryServer"]

_LOG = logging.getLogger(__name__)
_START_S = 20.0
_STOP_S = 10


@dataclass(frozen=True)
class Ports:
    """The listening sockets. Connections wait in them until the server answers."""

    http: socket.socket
    flight: socket.socket | None = None

    @classmethod
    def take(cls, settings: ServerSettings) -> Ports:
        """Open the ports; raises ConfigurationError if a port is in use or the TLS files are invalid."""
        tls_checked(settings)
        http = _listening(settings, "listen", settings.port)
        if settings.flight_port is None:
            return cls(http)
        try:
            return cls(http, _listening(settings, "flight-port", settings.flight_port))
        except ConfigurationError:
            http.close()
            raise

    @property
    def http_port(self) -> int:
        """The actual HTTP port, also if any free port was requested."""
        port: int = self.http.getsockname()[1]
        return port

    def close(self) -> None:
        """Close them."""
        self.http.close()
        if self.flight is not None:
            self.flight.close()


def _listening(settings: ServerSettings, option: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # TCP is passed explicitly: asyncio disables Nagle's algorithm only for sockets created with it, and otherwise every
    # answer would wait 40 ms for an acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, port))
        listening.listen(512)
        return listening
    except (OSError, OverflowError) as error:
        listening.close()
        raise ConfigurationError(
            f"{settings.called(option)}: {settings.host}:{port} cannot be listened on: {error}. Set another: port 0 "
            "takes any that is free."
        ) from error


class QueryServer:
    """Serves one job. Without a `store` it does not register, and clients must know its address.

    Use it in a `with` block: it answers from `start` on, at `url`.
    """

    def __init__(
        self,
        job: JobView,
        settings: ServerSettings,
        store: Store | None = None,
        now_ms: Callable[[], int] = system_ms,
        ports: Ports | None = None,
    ) -> None:
        self._job, self._settings, self._store, self._now_ms = job, settings.checked(), store, now_ms
        self.id = secrets.token_hex(8)
        self._stopping = threading.Event()
        self._ports = ports
        self._flight: FlightEndpoint | None = None
        self._server: StoppableServer | None = None
        self._threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        """The HTTP address."""
        assert self._ports is not None, "start the server first"
        scheme = "https" if self._settings.has_tls else "http"
        return f"{scheme}://{self._settings.shown_host}:{self._ports.http_port}"

    @property
    def flight_url(self) -> str | None:
        """The Arrow Flight address, if there is one."""
        if self._flight is None:
            return None
        scheme = "grpc+tls" if self._settings.has_tls else "grpc"
        return f"{scheme}://{self._settings.shown_host}:{self._flight.port}"

    def start(self) -> QueryServer:
        """Begin to answer; returns once the server answers."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        self._ports = self._ports or Ports.take(self._settings)
        for warning in self._settings.warnings:
            _LOG.warning("%s", warning)
        neighbourhood = Neighbourhood(
            lambda: {"url": self.url, "flight_url": self.flight_url},
            lambda: [] if self._store is None else registrations_of(self._store),
        )
        app = application(self._job, self._settings, self._now_ms, neighbourhood=neighbourhood)
        limits = self._settings.limits
        config = uvicorn.Config(
            app,
            http=impatient_protocol(limits),
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="error",  # invalid requests of untrusted clients are not logged
            access_log=False,
            # Clients are identified by their connection, unless a trusted proxy forwards another address.
            proxy_headers=bool(self._settings.trusted_proxies),
            forwarded_allow_ips=list(self._settings.trusted_proxies),
            backlog=min(2048, limits.connections_max),
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_STOP_S,
            server_header=False,
            **tls_checked(self._settings),
        )
        self._server = StoppableServer(config, app.state.endpoints.bell.close)
        self._begin(self._answer, "query-server")
        self._await_start(self._server)
        if self._ports.flight is not None:
            self._flight = FlightEndpoint(app.state.endpoints.answers, self._settings, self._ports.flight)
        if self._store is not None:
            self._register(self._store)
            self._begin(self._renew, "query-server-registration")

    def stop(self) -> None:
        """Complete the requests in progress, then end."""
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
        if self._ports is not None:
            self._ports.close()

    @property
    def is_answering(self) -> bool:
        """Whether the server was started, and has neither been stopped nor died."""
        return bool(self._threads) and self._threads[0].is_alive() and not self._stopping.is_set()

    def __enter__(self) -> QueryServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _begin(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _answer(self) -> None:
        assert self._server is not None and self._ports is not None
        with asyncio.Runner(loop_factory=lambda: impatient_loop(self._settings.limits)) as runner:
            runner.run(self._server.serve(sockets=[self._ports.http]))

    def _await_start(self, server: StoppableServer) -> None:
        until_s = time.monotonic() + _START_S
        while not server.started:
            if not self._threads[0].is_alive() or time.monotonic() > until_s:
                raise ConfigurationError(f"the server did not start at {self.url}. Its log has the reason.")
            time.sleep(0.005)

    def _registration(self) -> Registration:
        span = self._settings.held_span
        return Registration.of(self.id, self._job.job_id, self.url, self.flight_url, span, self._now_ms())

    def _register(self, store: Store) -> None:
        """Register the server's address. While the store is unreachable, clients that know the address are still
        answered."""
        try:
            register(store, self._registration())
        except (MillstreamError, OSError) as error:
            _LOG.warning("the query server at %s could not register in the store, and tries again: %s", self.url, error)

    def _renew(self) -> None:
        assert self._store is not None
        while not self._stopping.wait(RENEW_S) and self.is_answering:
            self._register(self._store)
        with suppress(MillstreamError, OSError):
            deregister(self._store, self.id)  # a renewal may have raced the stop, or the server no longer answers
