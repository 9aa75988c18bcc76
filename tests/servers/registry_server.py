"""A tiny schema registry for tests: Confluent's responses to the few requests that are made."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RegistryServer:
    """Serves at `url` inside a `with`; `requests` are those received, `failures` the number of next ones to reject."""

    def __init__(self, authorization: str | None = None) -> None:
        self.schemas: dict[int, str] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.failures = 0
        self.authorization = authorization
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(None)

            def do_POST(self) -> None:
                self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def answer(self, body: Any) -> None:
                registry.requests.append(f"{self.command} {self.path}")
                status, answer = registry.answer(self.path, body, self.headers.get("Authorization"))
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> RegistryServer:
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def add(self, schema: Any) -> int:
        """Register a schema; returns its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        for number, known in self.schemas.items():
            if known == text:
                return number
        self.schemas[len(self.schemas) + 1] = text
        return len(self.schemas)

    def answer(self, path: str, body: Any, authorization: str | None) -> tuple[int, Any]:
        if self.failures:
            self.failures -= 1
            return 503, {"error_code": 50301, "message": "not now"}
        if self.authorization is not None and authorization != self.authorization:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        parts = path.strip("/").split("/")
        if parts[:2] == ["schemas", "ids"] and int(parts[2]) in self.schemas:
            return 200, {"schema": self.schemas[int(parts[2])]}
        if parts[0] == "subjects" and body is not None:
            number = self.add(body["schema"])
            self.subjects.setdefault(parts[1], []).append(number)
            return 200, {"id": number}
        return 404, {"error_code": 40403, "message": "Schema not found"}
