"""Checks addresses of services when a program is built: a bad port is reported before any commit.

A rejected address is not repeated: the text parsed as a host or a path may be part of a password.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from millstream.errors import ProgramError
from millstream.redaction import scheme_of

__all__ = ["checked_host_and_port", "checked_url"]

_PORT_MAX = 65_535
_WEB = ("http", "https")


def checked_url(url: object, subject: str, schemes: Sequence[str]) -> SplitResult:
    """The parsed parts of an address. `subject` is the prefix of messages, and names its purpose.

    >>> checked_url("https://example.org:8443/hook", "HttpSink", ("http", "https")).port
    8443
    >>> checked_url("redis://:p/w@cache", "RedisSink", ("redis",))
    Traceback (most recent call last):
    millstream.errors.ProgramError: RedisSink: the address 'redis:…' (not shown) has a port that is not a number from \
1 to 65535, or / ? # @ in a user's name or password, expected redis://host:port. Write them as %2F %3F %23 %40
    """
    expected = f"expected {schemes[0]}://host:port" + "".join(f", or {scheme}://…" for scheme in schemes[1:])
    shown = f"the address {scheme_of(url)}"
    if not isinstance(url, str):
        raise ProgramError(f"{subject}: the address is not a string ({type(url).__name__}), {expected}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(f"{schemes[0]}://"), 0
    if parts.scheme not in schemes:
        raise ProgramError(f"{subject}: {shown} has another scheme, {expected}")
    # The rest of a login that was cut at one of these characters. Paths and queries may also contain an @.
    has_rest_of_login = parts.scheme not in _WEB and "@" in parts.path + parts.query + parts.fragment
    if port == 0 or has_rest_of_login:
        raise ProgramError(
            f"{subject}: {shown} (not shown) has a port that is not a number from 1 to {_PORT_MAX}, or / ? # @ in a "
            f"user's name or password, {expected}. Write them as %2F %3F %23 %40"
        )
    if not parts.hostname and parts.scheme != "unix":
        raise ProgramError(f"{subject}: {shown} has no host, {expected}")
    return parts


def checked_host_and_port(text: str, subject: str) -> None:
    """Raise a ProgramError for a `host:port` with an invalid port; a port may be absent.

    >>> checked_host_and_port("broker:9092", "Kafka")
    """
    host, _, port = text.rpartition(":")
    if not host or host.count("[") != host.count("]"):
        return
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) <= _PORT_MAX):
        raise ProgramError(f"{subject}: {text!r} is not host:port, expected a port from 1 to {_PORT_MAX}")
