"""Whom a client asks, and whom it tells its token.

Where servers are is told by registrations in the store and by other servers, and who can write there, or answer in a
server's place, can name any address. So:

- a token goes to hosts that the user named (`allow_hosts=`, or addresses given in the first place) and to this machine;
- once a server was asked over TLS, or TLS was named by the user, no other is asked without it; and a host that is
  registered with TLS is not asked without;
- an address that the user gave is asked as it was given.
"""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Sequence
from dataclasses import replace

from millstream.errors import ConfigurationError
from millstream.query.client.directory import ServerPlace
from millstream.query.wire.addresses import ServerAddress, is_loopback

__all__ = ["Trust"]

_PLACES_MAX = 1_000
_SHOWN = 3


class Trust:
    """What one client trusts. `named` are the addresses that the user gave."""

    def __init__(self, token: str | None, named: Sequence[str] = (), allow_hosts: Sequence[str] = ()) -> None:
        self._token = token
        addresses = [ServerAddress.parsed(url) for url in named]
        wrong = next((url for url, address in zip(named, addresses, strict=True) if address is None), None)
        if wrong is not None:
            raise ConfigurationError(f"{wrong[:100]!r} is no address of a server. Give one as https://HOST:PORT.")
        self._named = {address for address in addresses if address is not None}
        patterns = [allow_hosts] if isinstance(allow_hosts, str) else allow_hosts
        self._hosts = [pattern.strip("[]").lower() for pattern in patterns] + [one.host for one in self._named]
        self._needs_tls = any(address.has_tls for address in self._named)
        self._tls_hosts: set[str] = set()
        self._lock = threading.Lock()
        self._known_headers: dict[str, dict[str, str]] = {}

    def headers(self, url: str) -> dict[str, str]:
        """What a request to this server says of who asks: the token, where it may go."""
        known = self._known_headers.get(url)
        if known is None:
            address = ServerAddress.parsed(url)
            is_told = self._token is not None and address is not None and self._may_know(address.host)
            known = {"authorization": f"Bearer {self._token}"} if is_told else {}
            if len(self._known_headers) < _PLACES_MAX:
                self._known_headers[url] = known
        return dict(known)

    def answered(self, url: str) -> None:
        """A server of the job has answered there."""
        if url.startswith(("https:", "grpc+tls:")):
            self._needs_tls = True

    def may_ask(self, place: ServerPlace) -> bool:
        """Whether a server that was admitted may be asked still: TLS may have been seen since."""
        return self._refusal(place.url, is_flight=False) is None

    def admitted(self, places: Sequence[ServerPlace]) -> list[ServerPlace]:
        """Those that may be asked; ConfigurationError where there are some, and none of them may."""
        with self._lock:
            for place in places:
                address = ServerAddress.parsed(place.url)
                if address is not None and address.has_tls and len(self._tls_hosts) < _PLACES_MAX:
                    self._tls_hosts.add(address.host)
        refused: dict[str, str] = {}
        found: list[ServerPlace] = []
        for place in places[:_PLACES_MAX]:
            why = self._refusal(place.url, is_flight=False)
            if why is None:
                flight_url = place.flight_url
                if flight_url is not None and self._refusal(flight_url, True, place.url) is not None:
                    flight_url = None
                found.append(replace(place, flight_url=flight_url))
            else:
                refused[str(place.url)[:100]] = why
        if refused and not found:
            shown = "; ".join(f"{url}: {why}" for url, why in list(refused.items())[:_SHOWN])
            raise ConfigurationError(f"no query server that is known may be asked. {shown}")
        return found

    def _refusal(self, url: str, is_flight: bool, beside: str = "") -> str | None:
        """Why a server may not be asked; None if it may."""
        address = ServerAddress.parsed(url)
        if address is None or address.is_flight is not is_flight:
            return "that is no address of a server. Whoever writes registrations there should not."
        if address in self._named:
            return None
        own = ServerAddress.parsed(beside)
        needs_tls = own.has_tls if own is not None else self._needs_tls or address.host in self._tls_hosts
        if needs_tls and not address.has_tls:
            return (
                "it does not speak TLS, and servers of this job do. Start it with a certificate, or give its address."
            )
        if self._token is not None and not self._may_know(address.host):
            return (
                f"the token is not sent to a host that was not named. If {address.host} is one of yours, pass "
                f"QueryClient(..., allow_hosts=[{address.host!r}])."
            )
        return None

    def _may_know(self, host: str) -> bool:
        return is_loopback(host) or any(fnmatch.fnmatchcase(host, pattern) for pattern in self._hosts)
