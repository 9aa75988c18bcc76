"""One request to a web service: sent, answered, and judged. Python's own HTTP client; no redirects, no proxies.

An answer of 2xx is taken. What may pass by itself (no answer, 408, 425, 429, any 5xx) is `ConnectorAwayError`, so that
the publishing is tried again; what will not (any other status) is `ConnectorError`: `RefusedRequestError` where it is
about what was sent. Nothing of an URL's path or query and of a header's value is ever shown.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from millstream.connectors.refused_rows import printable
from millstream.connectors.service_urls import checked_url
from millstream.errors import ConnectorAwayError, ConnectorError, ProgramError
from millstream.storage.certificates import certificate_refusal

__all__ = ["Destination", "HttpConnection", "RefusedRequestError"]

_PASSING = frozenset((408, 425, 429))
_ABOUT_THE_REQUEST = frozenset((400, 406, 409, 411, 412, 413, 414, 415, 417, 422, 431))
"""Another request may be taken. Any other status is about all of them: a wrong address, no right to send."""
_SHOWN_BYTES_MAX = 300
_ANSWER_BYTES_MAX = 65_536
"""More of an answer is not read: nobody needs it, and it might never end."""


class RefusedRequestError(ConnectorError):
    """The service refuses what is in a request."""


@dataclass(frozen=True)
class Destination:
    """Where requests go, and with what. `headers` may hold secrets: they are not shown."""

    url: str = field(repr=False)
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        parts = checked_url(self.url, "HttpSink", ("http", "https"))
        if parts.username or parts.password:
            raise ProgramError("HttpSink: the url holds a user or a password. Give an Authorization header instead")
        for name, value in self.headers.items():
            if not isinstance(name, str) or not isinstance(value, str) or "\n" in name + value or "\r" in name + value:
                raise ProgramError(f"HttpSink: the header {name!r} is no pair of texts of one line")
            if name.lower() == "idempotency-key":
                raise ProgramError(f"HttpSink: the header {name!r} is the sink's own: every request has another")

    @property
    def place(self) -> str:
        """Host and port, for people. A webhook's path is its password, so it is not shown.

        >>> Destination("https://hooks.example.com/services/T0/B0/secret?token=1").place
        'https://hooks.example.com/…'
        """
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}" + ("/…" if parts.path not in ("", "/") else "")


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
            if (reason := certificate_refusal(error)) is not None:
                raise ConnectorError(f"{place}: {reason}. Check the address, and the certificate") from error
            raise ConnectorAwayError(f"{place} does not answer ({error or type(error).__name__})") from error
        if 200 <= status < 300:
            return None
        shown = printable(answer[:_SHOWN_BYTES_MAX].decode("utf-8", "replace").strip())
        message = f"{place} answered {status} {http.client.responses.get(status, '')}".rstrip() + (
            f": {shown}" if shown else ""
        )
        if status in _PASSING or status >= 500:
            raise ConnectorAwayError(message)
        if status in _ABOUT_THE_REQUEST:
            raise RefusedRequestError(f"{message}. Nothing of the request was taken")
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
