"""Which hosts a request may name as the one it is for.

A page of another site may have its own name lead to this machine (DNS rebinding), and then asks from a browser that can
reach the server what the page's author cannot. The name is then that of the other site, so where no token stands
between, only names that are known to be the server's are answered. An address cannot be made to lead elsewhere, so
addresses are always answered.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from millstream.query.wire.refusals import MalformedError

__all__ = ["HostNames", "host_of"]


@dataclass(frozen=True)
class HostNames:
    """The names that are answered; `option` adds one."""

    names: frozenset[str]
    option: str

    def check(self, host_header: str) -> None:
        """MalformedError for another name.

        >>> HostNames(frozenset({"localhost"}), "--allow-host").check("[::1]:8787")
        >>> HostNames(frozenset({"localhost"}), "--allow-host").check("evil.example")
        Traceback (most recent call last):
        millstream.query.wire.refusals.MalformedError: this server does not answer for host 'evil.example'. Ask by its \
address, or have the name allowed (--allow-host).
        """
        host = host_of(host_header)
        if host not in self.names and not _is_address(host):
            raise MalformedError(
                f"this server does not answer for host {host[:100]!r}. Ask by its address, or have the name allowed "
                f"({self.option})."
            )


def host_of(authority: str) -> str:
    """The host of HOST, HOST:PORT or [ADDRESS]:PORT, in lower case.

    >>> host_of("Localhost:8787"), host_of("[::1]:8787"), host_of("::1")
    ('localhost', '::1', '::1')
    """
    text = authority.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text if text.count(":") > 1 else text.partition(":")[0].rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
