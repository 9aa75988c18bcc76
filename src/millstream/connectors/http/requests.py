"""Sends one request to a web service and classifies its response. Uses Python's HTTP client; no redirects, no proxies.

A status of 2xx means accepted. Transient failures (no response, 408, 425, 429, any 5xx) are `ConnectorAwayError`,
so that publishing is retried; others (any other status) are `ConnectorError`: `RefusedRequestError` if caused by the
content. Paths and queries of URLs and values of headers are never shown.
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
"""Statuses about one request's content. Any other concerns all requests: a wrong address, no permission."""
_SHOWN_BYTES_MAX = 300
_ANSWER_BYTES_MAX = 65_536
"""Only this much of a response is read: it has no further use, and might never end."""


class RefusedRequestError(ConnectorError):
    """The service refuses the content of a request."""


@dataclass(frozen=True)
class Destination:
    """The target of requests, with headers. `headers` may contain secrets: they are not shown."""

    url: str = field(repr=False)
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        parts = checked_url(self.url, "HttpSink", ("http", "https"))
        if parts.username or parts.password:
            raise ProgramError("HttpSink: the url holds a user or a password. Use an Authorization header instead")
        for name, value in self.headers.items():
            if not isinstance(name, str) or not isinstance(value, str) or "\n" in name + value or "\r" in name + value:
                raise ProgramError(f"HttpSink: the header {name!r} is not a pair of single-line strings")
            if name.lower() == "idempotency-key":
                raise ProgramError(f"HttpSink: the header {name!r} is reserved for the sink, which sets it per request")

    @property
    def place(self) -> str:
        """Host and port, for display. A webhook's path is its password, so it is hidden.

        >>> Destination("https://hooks.example.com/services/T0/B0/secret?token=1").place
        'https://hooks.example.com/…'
        """
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}" + ("/…" if parts.path not in ("", "/") else "")


class HttpConnection:
    """A persistent connection to one destination. Reopened after the server has closed it."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._connection: http.client.HTTPConnection | None = None

    def send(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send one request; returns when it was accepted, and raises otherwise."""
        place, was_reused = self._destination.place, self._connection is not None
        try:
            status, answer = self._exchange(body, headers)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            if was_reused:
                # Servers close connections that were quiet for a while. The request's idempotency key makes a repeat
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
            raise RefusedRequestError(f"{message}. The request was not accepted")
        raise ConnectorError(f"{message}. The request was not accepted. Correct the service, or the program")

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
            self.close()  # the rest would be read as the next response
        return answer.status, shown

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
