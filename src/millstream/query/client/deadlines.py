"""The time of a whole request, also of one that is answered a byte at a time.

httpx bounds how long a client waits for the next bytes. A server that sends one now and then, in the head of its answer
or in the body, is never late by that, and would have the thread that asks it for ever. Here every read and write of a
connection ends at the deadline of the request that it is done for, which `within` sets for the thread it runs in.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpcore
import httpx

__all__ = ["PunctualTransport", "within"]

_ends_s: ContextVar[float] = ContextVar("millstream_query_request_ends_s", default=float("inf"))


@contextmanager
def within(patience_s: float) -> Iterator[None]:
    """What this thread sends and receives in the block ends after so many seconds, with httpx.TimeoutException."""
    token = _ends_s.set(time.monotonic() + patience_s)
    try:
        yield
    finally:
        _ends_s.reset(token)


def _left_s(timeout_s: float | None, late: type[Exception]) -> float | None:
    """How long to wait for the next bytes."""
    ends_s = _ends_s.get()
    if ends_s == float("inf"):
        return timeout_s
    left_s = ends_s - time.monotonic()
    if left_s <= 0:
        raise late("the answer was not there in time")
    return left_s if timeout_s is None else min(left_s, timeout_s)


class _PunctualStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left_s(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left_s(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left_s = _left_s(timeout, httpcore.ConnectTimeout)
        return _PunctualStream(self._stream.start_tls(ssl_context, server_hostname, left_s))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _PunctualBackend(httpcore.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left_s = _left_s(timeout, httpcore.ConnectTimeout)
        return _PunctualStream(super().connect_tcp(host, port, left_s, local_address, socket_options))


class PunctualTransport(httpx.HTTPTransport):
    """httpx's own, with connections that know of deadlines."""

    def __init__(self, verify: Any, limits: httpx.Limits) -> None:
        # Nothing of the environment counts: no proxy that it names may come in between.
        super().__init__(verify=verify, trust_env=False, limits=limits)
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpx.create_ssl_context(verify=verify, trust_env=False),
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_PunctualBackend(),
        )
