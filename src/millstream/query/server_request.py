"""A request for a server, as strings and paths, and the settings derived from it.

The command line and a job's configuration have different names for the same options: `--listen`,
`millstream.query.listen`. Both are parsed here, and errors use the name of the option that was set. This module can be
imported without the server's packages; a request for a server then raises an error about that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import ConfigurationError, PlatformError

if TYPE_CHECKING:
    from millstream.query.server import ServerSettings

__all__ = ["ServerRequest", "listen_address", "server_settings"]


@dataclass(frozen=True)
class ServerRequest:
    """The requested options. The name of an option is that of its field, with dashes, after `option_prefix`. Many
    fields: each is one option."""

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
    allow_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    requests_per_s: float | None = None
    page: Path | None = None
    option_prefix: str = "--"


def server_settings(request: ServerRequest) -> ServerSettings:
    """The settings of the server, checked; raises ConfigurationError with the name of the invalid option."""
    try:
        from millstream.query.server import Limits, ServerSettings, key_group_span, read_rights
    except ImportError as error:
        raise PlatformError(
            f"the query server needs {error.name}. Install it with `pip install 'millstream[query-server]'`."
        ) from error

    prefix = request.option_prefix
    host, port = listen_address(request.listen, f"{prefix}listen")
    if request.flight_port is not None and not 0 <= request.flight_port < 65536:
        raise ConfigurationError(f"{prefix}flight-port {request.flight_port} is not a port. Set a port, or 0 for any.")
    return ServerSettings(
        host=host,
        port=port,
        flight_port=request.flight_port,
        advertised_host=request.advertise,
        key_groups=None if request.key_groups is None else key_group_span(request.key_groups),
        rights=None if request.tokens is None else read_rights(request.tokens, f"{prefix}tokens"),
        allow_anonymous=request.allow_anonymous,
        allowed_origins=request.allow_origins,
        allowed_hosts=request.allow_hosts,
        trusted_proxies=request.trusted_proxies,
        certificate=request.certificate,
        private_key=request.private_key,
        page=None if request.page is None else _page(request.page, f"{prefix}page"),
        limits=Limits(requests_per_s=request.requests_per_s),
        option_prefix=prefix,
    ).checked()


def _page(path: Path, option: str) -> bytes:
    """The page in a file, read once: no other file in its folder can be reached."""
    try:
        page = path.read_bytes()
        page.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{option} {path} is not a page: {error}. Set one HTML file in UTF-8.") from error
    return page


def listen_address(text: str, option: str = "--listen") -> tuple[str, int]:
    """Parses a listen address: HOST:PORT, :PORT, PORT or [ADDRESS]:PORT.

    >>> [listen_address(text) for text in ("0.0.0.0:80", "8080", "[::1]:80")]
    [('0.0.0.0', 80), ('127.0.0.1', 8080), ('::1', 80)]
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise ConfigurationError(f"{option} {text!r} has no port. Write HOST:PORT, such as 127.0.0.1:8787.")
    return host.strip("[]") or "127.0.0.1", int(port)
