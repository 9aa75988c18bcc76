"""`millstream query-server`: answer questions about a job's state until interrupted. What can be typed is in `main`."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from millstream.errors import ConfigurationError, MillstreamError, PlatformError

if TYPE_CHECKING:
    from millstream.query.server import QueryServer, ServerSettings

__all__ = ["ServerRequest", "listen_address", "serve_queries"]


@dataclass(frozen=True)
class ServerRequest:
    """What was typed."""

    job: str
    root: str | None = None
    listen: str = "127.0.0.1:8787"
    flight_port: int | None = None
    advertise: str | None = None
    key_groups: str | None = None
    tokens: Path | None = None
    certificate: Path | None = None
    private_key: Path | None = None
    allow_anonymous: bool = False
    allow_undeclared: bool = False
    allow_origins: tuple[str, ...] = ()
    requests_per_s: float | None = None
    cache_folder: Path | None = None
    registers: bool = True


def serve_queries(request: ServerRequest, screen: TextIO | None = None) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code."""
    screen = screen or sys.stdout
    stopped = threading.Event()
    try:
        server = _server(request)
        with server, _stopping(stopped):
            print(f"answering at {server.url}, described at {server.url}/openapi.json", file=screen, flush=True)
            if server.flight_url is not None:
                print(f"Arrow Flight at {server.flight_url}", file=screen, flush=True)
            stopped.wait()
    except MillstreamError as error:
        print(f"millstream: {error}", file=sys.stderr)
        return 2
    return 0


def _server(request: ServerRequest) -> QueryServer:
    try:
        from millstream.query.server import OpenedJob, QueryServer
    except ImportError as error:
        raise PlatformError(
            f"the query server needs {error.name}. Install it with `pip install 'millstream[query-server]'`."
        ) from error
    from millstream import query
    from millstream.cli.job_argument import named_store

    settings = _settings(request).checked()
    view = query.open(
        named_store(request.job, request.root),
        cache_folder=request.cache_folder,
        allow_undeclared=request.allow_undeclared,
    )
    return QueryServer(OpenedJob(view), settings, view.store if request.registers else None)


def _settings(request: ServerRequest) -> ServerSettings:
    from millstream.query.server import Limits, ServerSettings, key_group_span, read_rights

    host, port = listen_address(request.listen)
    return ServerSettings(
        host=host,
        port=port,
        flight_port=request.flight_port,
        advertised_host=request.advertise,
        key_groups=None if request.key_groups is None else key_group_span(request.key_groups),
        rights=None if request.tokens is None else read_rights(request.tokens),
        allow_anonymous=request.allow_anonymous,
        allowed_origins=request.allow_origins,
        certificate=request.certificate,
        private_key=request.private_key,
        limits=Limits(requests_per_s=request.requests_per_s),
    )


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of `--listen`: HOST:PORT, :PORT, PORT or [ADDRESS]:PORT.

    >>> [listen_address(text) for text in ("0.0.0.0:80", "8080", "[::1]:80")]
    [('0.0.0.0', 80), ('127.0.0.1', 8080), ('::1', 80)]
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise ConfigurationError(f"--listen {text!r} has no port. Write HOST:PORT, such as 127.0.0.1:8787.")
    return host.strip("[]") or "127.0.0.1", int(port)


@contextmanager
def _stopping(stopped: threading.Event) -> Iterator[None]:
    """Within it, SIGINT and SIGTERM ask for an orderly end."""
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
