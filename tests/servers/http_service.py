"""A web service for tests: accepts requests, fails as configured, and records them."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

__all__ = ["HttpService", "http_service"]


class HttpService(ThreadingHTTPServer):
    """Accepts requests, and first responds with the configured statuses; 0: accepts the request and disconnects."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/hook"
        self.statuses: list[int] = []
        self.judge: Callable[[bytes], int] = lambda body: 204
        self.answer_bytes = 0  # the length of its response to an accepted request, of which clients may read a part
        self.requests: list[tuple[str, dict[str, str], bytes]] = []

    def records(self) -> list[Any]:
        """The accepted records, each key once: like a service that deduplicates by key."""
        taken = {headers["idempotency-key"]: body for status, headers, body in self.requests if status != "refused"}
        return [record for body in taken.values() for record in json.loads(body)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HttpService

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.statuses.pop(0) if self.server.statuses else self.server.judge(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(("taken" if status in (0, 204) else "refused", headers, body))
        if status == 0:
            self.close_connection = True
            return
        if status == 204 and self.server.answer_bytes:
            self.send_response(200)
            self.send_header("Content-Length", str(self.server.answer_bytes))
            self.end_headers()
            with contextlib.suppress(OSError):
                for _ in range(0, self.server.answer_bytes, 1 << 16):
                    self.wfile.write(b"x" * (1 << 16))
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"no!") if status != 204 else None

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def http_service() -> Iterator[HttpService]:
    with HttpService() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
