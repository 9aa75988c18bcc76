"""Addresses of servers, as registrations and answers name them: parts of a URL, checked, or nothing."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["ServerAddress", "is_loopback"]

_TLS = {"http": False, "https": True, "grpc": False, "grpc+tcp": False, "grpc+tls": True}


@dataclass(frozen=True)
class ServerAddress:
    """Where a server says it is: `https://HOST:PORT`, `grpc+tls://HOST:PORT` and the like."""

    scheme: str
    host: str
    port: int | None

    @property
    def has_tls(self) -> bool:
        """Whether what is sent there is encrypted."""
        return _TLS[self.scheme]

    @property
    def is_flight(self) -> bool:
        """Whether it is one of Arrow Flight."""
        return self.scheme.startswith("grpc")

    @classmethod
    def parsed(cls, url: object) -> ServerAddress | None:
        """The parts of it; None for what is no address of a server.

        >>> ServerAddress.parsed("https://DB1:8787")
        ServerAddress(scheme='https', host='db1', port=8787)
        >>> [ServerAddress.parsed(url) for url in ("file:///etc", "http://user@a:1", "http://a?b", "grpc+unix:///a", 7)]
        [None, None, None, None, None]
        """
        if not isinstance(url, str) or len(url) > 300:
            return None
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            return None
        if parts.scheme not in _TLS or not host or "@" in parts.netloc:
            return None
        return None if parts.query or parts.fragment else cls(parts.scheme, host.lower(), port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0")]
    [True, True, True, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
