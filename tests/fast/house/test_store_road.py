"""The latency proxy that `bench_cluster` places in front of its store: what it changes of a request, and what not."""

from __future__ import annotations

import http.client
import importlib
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "bench"))
road: Any = importlib.import_module("store_road")


class Echo(BaseHTTPRequestHandler):
    """Returns what it receives, in chunks on request."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        if self.path != "/chunks":
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in (body[:1000], body[1000:], b""):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")  # of a body that is not sent
        self.end_headers()

    def do_DELETE(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *words: Any) -> None:
        """Log nothing."""


@pytest.fixture
def server_port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_requests_and_responses_pass_unchanged_and_are_counted(server_port: int) -> None:
    large = bytes(range(256)) * 20_000
    with road.StoreRoad(server_port, 50) as way:
        connection = http.client.HTTPConnection(way.url.removeprefix("http://"), timeout=30)
        try:
            for path, body in (("/", b""), ("/", b"a"), ("/", large), ("/chunks", large), ("/", b"b")):
                for method in ("HEAD", "PUT", "DELETE"):  # over one connection, none consumes a byte of another
                    connection.request(method, path, body if method == "PUT" else None)
                    answer = connection.getresponse()
                    assert answer.read() == (body if method == "PUT" else b"")
            requests, sent_bytes, answered_bytes = way.counts()
        finally:
            connection.close()
    assert requests == 15
    for moved_bytes in (sent_bytes, answered_bytes):
        assert 2 * len(large) < moved_bytes < 2 * len(large) + 15 * 500


def test_a_long_road_adds_latency_and_a_closed_one_ends_the_connection(server_port: int) -> None:
    with road.StoreRoad(server_port, 80) as way:
        address = way.url.removeprefix("http://")
        way.become(road.FAR)
        began = time.monotonic()
        assert _respond(address) == b"a"
        assert time.monotonic() - began >= 0.08
        way.become(road.CLOSED)
        with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
            _respond(address)
        way.become(road.OPEN)
        assert _respond(address) == b"a"
        assert way.counts()[0] == 3


def _respond(address: str) -> bytes:
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("PUT", "/", b"a")
        return connection.getresponse().read()
    finally:
        connection.close()
