"""`millstream query-server`: answers queries of a job's state until interrupted. `main` declares its command line."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from millstream.cli.refusals import refuse
from millstream.errors import MillstreamError, PlatformError
from millstream.query.server_request import ServerRequest, server_settings

if TYPE_CHECKING:
    from millstream.query.server import QueryServer

__all__ = ["ServerCommand", "serve_queries"]

_POLL_S = 1.0
_TURN_S = 0.0002


@dataclass(frozen=True)
class ServerCommand:
    """The parsed command line: the job, the kind of server, and where files of a remote store are cached."""

    job: str
    request: ServerRequest
    root: str | None = None
    cache_folder: Path | None = None
    registers: bool = True
    read_only: bool = False


def serve_queries(command: ServerCommand, screen: TextIO | None = None) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code."""
    screen = screen or sys.stdout
    stopped = threading.Event()
    try:
        server = _server(command)
        with server, _stopping(stopped), _swift():
            print(f"answering at {server.url}, described at {server.url}/openapi.json", file=screen, flush=True)
            if server.flight_url is not None:
                print(f"Arrow Flight at {server.flight_url}", file=screen, flush=True)
            while not stopped.wait(_POLL_S):
                if not server.is_answering:
                    raise PlatformError("the query server ended unexpectedly. Its log has the reason; start it again.")
    except MillstreamError as error:
        return refuse(error)
    return 0


def _server(command: ServerCommand) -> QueryServer:
    settings = server_settings(command.request)

    from millstream import query
    from millstream.cli.job_argument import find_store
    from millstream.query.server import QueryServer

    view = query.open(
        find_store(command.job, command.root),
        cache_folder=command.cache_folder,
        allow_undeclared=command.request.allow_undeclared,
        read_only=command.read_only,
    )
    registers = command.registers and not command.read_only
    return QueryServer(view, settings, view.store if registers else None)


@contextmanager
def _swift() -> Iterator[None]:
    """Context manager that keeps latency low: threads have short time slices, and the garbage collector skips existing
    objects, whose traversal would take tens of milliseconds."""
    turn_s = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(turn_s)


@contextmanager
def _stopping(stopped: threading.Event) -> Iterator[None]:
    """Context manager: SIGINT and SIGTERM request an orderly end."""
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
