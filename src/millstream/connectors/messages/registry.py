"""A client of Confluent's schema registry: a message starts with a zero byte and the number of its writer's schema.

The client sends one HTTP request per number and process, and caches results permanently: a registry never
reuses a number. An unknown number is cached for a short time only. Requests to an unavailable registry are
retried for a while, and then fail as an error of the job, never of a message; an unknown number is an error of
the message.

No string form of this object contains the password. Redirections are not followed: they would send it to another
server.
"""

from __future__ import annotations

import base64
import json
import random
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from millstream.connectors.messages.avro_schemas import AvroSource
from millstream.connectors.service_urls import checked_url
from millstream.errors import ConnectorAwayError, ConnectorError, ProgramError
from millstream.redaction import redact, redacted_address
from millstream.storage.certificates import certificate_refusal

__all__ = ["SchemaRegistry", "UnknownSchemaError", "registered_head", "schema_id_of"]

_MAGIC = b"\x00"
_HEAD_BYTES = 5
_PATIENCE_S = 30.0
_TIMEOUT_S = 10.0
_UNKNOWN_TTL_S = 5.0
_UNKNOWN_MAX = 1_000
_ANSWER_BYTES_MAX = 16 << 20


class UnknownSchemaError(ValueError):
    """The registry has no schema with this number."""


def schema_id_of(message: bytes) -> int:
    """The number of the schema that a message was written with; its record starts at byte 5.

    >>> schema_id_of(bytes([0, 0, 0, 0, 7, 14]))
    7
    """
    if message[:1] != _MAGIC or len(message) < _HEAD_BYTES:
        raise ValueError("it does not start like a message of a schema registry, with a zero byte and a number")
    return int.from_bytes(message[1:_HEAD_BYTES], "big")


def registered_head(schema_id: int) -> bytes:
    """The first bytes of a message with this schema."""
    return _MAGIC + schema_id.to_bytes(4, "big")


class _NoRedirections(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        return None


@dataclass(frozen=True)
class SchemaRegistry:
    """A registry at `url`; `user` and `password` if it requires them. It has only settings, because it is sent to
    tasks."""

    url: str = field(repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    patience_s: float = _PATIENCE_S

    def __post_init__(self) -> None:
        checked_url(self.url, "schema registry", ("http", "https"))
        if "@" in self.url:
            raise ProgramError(
                "schema registry: pass user= and password= instead of putting them into the address, which is shown."
            )

    @property
    def shown(self) -> str:
        """The address for display: values of sensitive parameters are hidden."""
        return redacted_address(self.url)

    def schema(self, schema_id: int) -> AvroSource:
        """The schema of this number. Raises UnknownSchemaError, or ConnectorAwayError for an unavailable registry."""
        memory = _cache_of(self)
        with memory.lock:
            if (known := memory.schemas.get(schema_id)) is not None:
                return known
            if time.monotonic() < memory.unknown_until.get(schema_id, 0.0):
                raise UnknownSchemaError(f"the schema registry has no schema {schema_id}")
            answer = self._request("GET", f"/schemas/ids/{schema_id}", None)
            if answer is None:
                memory.expire_unknown()
                memory.unknown_until[schema_id] = time.monotonic() + _UNKNOWN_TTL_S
                raise UnknownSchemaError(f"the schema registry has no schema {schema_id}")
            if answer.get("schemaType", "AVRO") != "AVRO" or not isinstance(answer.get("schema"), str):
                raise UnknownSchemaError(f"schema {schema_id} of the registry is {answer.get('schemaType')}, not AVRO")
            memory.schemas[schema_id] = AvroSource(answer["schema"])
            return memory.schemas[schema_id]

    def register(self, subject: str, schema: AvroSource) -> int:
        """The number of the schema under a subject; registers it if it is new."""
        memory = _cache_of(self)
        with memory.lock:
            if (known := memory.numbers.get((subject, schema.text))) is None:
                path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"
                answer = self._request("POST", path, {"schema": schema.text})
                if answer is None or not isinstance(answer.get("id"), int):
                    raise ConnectorError(
                        f"schema registry {self.shown}: registering a schema under {subject!r} returned {answer!r}, "
                        "expected a number. Is this the address of a schema registry?"
                    )
                known = memory.numbers[(subject, schema.text)] = answer["id"]
            return known

    def _request(self, method: str, path: str, body: Any) -> dict[str, Any] | None:
        """The registry's response, with retries; None for an unknown name."""
        deadline, pause_s = time.monotonic() + self.patience_s, 0.1
        while True:
            try:
                return self._request_once(method, path, body)
            except ConnectorAwayError:
                if time.monotonic() + pause_s > deadline:
                    raise
            time.sleep(pause_s * (0.5 + random.random()))
            pause_s = min(2 * pause_s, 5.0)

    def _request_once(self, method: str, path: str, body: Any) -> dict[str, Any] | None:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if body is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        if self.user is not None:
            secret = base64.b64encode(f"{self.user}:{self.password or ''}".encode()).decode()
            headers["Authorization"] = f"Basic {secret}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url.rstrip("/") + path, data, headers, method=method)
        try:
            with urllib.request.build_opener(_NoRedirections).open(request, timeout=_TIMEOUT_S) as response:
                text = response.read(_ANSWER_BYTES_MAX)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404 and method == "GET":
                    return None
                raise self._refusal(error, method, path) from None
        except (OSError, urllib.error.URLError, TimeoutError) as error:
            if (refusal := certificate_refusal(error)) is not None:
                raise ConnectorError(f"schema registry {self.shown}: {refusal}. Correct its address") from None
            reason = getattr(error, "reason", error)
            raise ConnectorAwayError(
                f"schema registry {self.shown} does not answer ({reason}). Start it, or correct its address"
            ) from error
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ConnectorError(
                f"schema registry {self.shown} answered {method} {path} with {text[:100]!r}, not an object"
            )
        return answer

    def _refusal(self, error: urllib.error.HTTPError, method: str, path: str) -> ConnectorError:
        message = redact(error.read(500).decode("utf-8", "replace"), [self.password])
        response = f"schema registry {self.shown} answered {method} {path} with {error.code}: {message!r}"
        if error.code in (408, 429) or error.code >= 500:
            return ConnectorAwayError(f"{response}. It may answer later")
        if error.code in (401, 403):
            return ConnectorError(f"{response}. Pass user= and password= that it accepts")
        return ConnectorError(response)


class _Cache:
    """The responses of a registry cached in this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.schemas: dict[int, AvroSource] = {}
        self.numbers: dict[tuple[str, str], int] = {}
        self.unknown_until: dict[int, float] = {}

    def expire_unknown(self) -> None:
        """Expire unknown numbers, which may be registered later; invalid messages may contain very many of them."""
        now = time.monotonic()
        if len(self.unknown_until) > _UNKNOWN_MAX:
            self.unknown_until = {number: until for number, until in self.unknown_until.items() if until > now}


_CACHES: dict[tuple[str, str | None], _Cache] = {}
_CACHES_LOCK = threading.Lock()


def _cache_of(registry: SchemaRegistry) -> _Cache:
    with _CACHES_LOCK:
        return _CACHES.setdefault((registry.url, registry.user), _Cache())
