"""One request to a web service: sent, answered, and judged. Python's own HTTP client; no redirects, no proxies.

An answer of 2xx is taken. What may pass by itself (no answer, 408, 425, 429, any 5xx) is `ConnectorAwayError`, so that
the publishing is tried again; what will not (any other status) is `ConnectorError`. Nothing of an URL's user, password
or query and of a header's value is ever shown.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from millstream.errors import ConnectorAwayError, ConnectorError, ProgramError

__all__ = ["Destination", "HttpConnection"]

_PASSING = frozenset((408, 425, 429))
_SHOWN_BYTES_MAX = 300
_ANSWER_BYTES_MAX = 65_536
"""More of an answer is not read: nobody needs it, and it might never end."""


@dataclass(frozen=True)
class Destination:
    """Where requests go, and with what. `headers` may hold secrets: they are not shown."""

    url: str = field(repr=False)
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ProgramError("HttpSink: the url is no http:// or https:// address with a host")
        if parts.username or parts.password:
            raise ProgramError("HttpSink: the url holds a user or a password. Give an Authorization header instead")
        for name, value in self.headers.items():
            if not isinstance(name, str) or not isinstance(value, str) or "\n" in name + value or "\r" in name + value:
                raise ProgramError(f"HttpSink: the header {name!r} is no pair of texts of one line")

    @property
    def place(self) -> str:
        """Host, port and path, for people."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


class HttpConnection:
    """A kept connection to one destination. Made again when the other side has closed it."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._connection: http.client.HTTPConnection | None = None

    def send(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send one request; returns when it was taken, and raises when it was not."""
        place, was_kept = self._destination.place, self._connection is not None
        try:
            status, answer = self._exchange(body, headers)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            if was_kept:
                # Servers close connections that were quiet for a while. The request's own key makes sending it twice
                # harmless.
                return self.send(body, headers)
            if isinstance(error, ssl.SSLCertVerificationError):
                raise ConnectorError(f"{place}: its certificate is not accepted ({error.verify_message})") from error
            raise ConnectorAwayError(f"{place} does not answer ({error or type(error).__name__})") from error
        if 200 <= status < 300:
            return None
        shown = answer[:_SHOWN_BYTES_MAX].decode("utf-8", "replace").strip()
        message = f"{place} answered {status} {http.client.responses.get(status, '')}".rstrip() + (
            f": {shown}" if shown else ""
        )
        if status in _PASSING or status >= 500:
            raise ConnectorAwayError(message)
        raise ConnectorError(f"{message}. Nothing of the request was taken. Mend the service, or the program")

    def _exchange(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        destination = self._destination
        parts = urlsplit(destination.url)
        if self._connection is None:
            kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            assert parts.hostname is not None
            self._connection = kind(parts.hostname, parts.port, timeout=destination.timeout_s)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._connection.request(destination.method, path, body, {**destination.headers, **headers})
        answer = self._connection.getresponse()
        shown = answer.read(_ANSWER_BYTES_MAX)
        if not answer.isclosed():
            self.close()  # the rest of it would be taken for the next answer
        return answer.status, shown

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
