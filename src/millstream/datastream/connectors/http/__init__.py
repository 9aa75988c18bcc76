"""Sends records as requests to a web service, such as a webhook (beyond PyFlink). Requires no extra package.

A request may be repeated after a failure, always with the same unique `Idempotency-Key`.

>>> from millstream.common.serialization import SimpleStringSchema
>>> HttpSink("https://example.org/hook", SimpleStringSchema(), body="lines", headers={"Authorization": "Bearer 1"})
HttpSink(POST https://example.org/…)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from millstream.common.serialization import SerializationSchema
from millstream.connectors.http import sink as http_sink
from millstream.connectors.http.requests import Destination
from millstream.datastream.connectors.base import Sink
from millstream.datastream.streams.argument_checks import at_users_line, checked_count, refuse

__all__ = ["HttpSink"]

_METHODS = ("POST", "PUT", "PATCH")


class HttpSink(Sink):
    """Sends records, serialised by `schema`, to `url`, at most `records_max` per request.

    `body`: "json-array" sends an array of all records, "lines" one record per line (NDJSON), "single" one record per
    request. `headers` are sent with every request and never displayed. Anything but a 2xx response within `timeout_s`
    is an error; it is retried if it may be transient (no response, 408, 425, 429, 5xx).
    """

    def __init__(
        self,
        url: str,
        schema: SerializationSchema,
        *,
        body: Literal["json-array", "lines", "single"] = "json-array",
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        records_max: int = 500,
        timeout_s: float = 30.0,
    ) -> None:
        if not isinstance(schema, SerializationSchema):
            raise refuse(f"HttpSink: found {schema!r}, expected a SerializationSchema, such as SimpleStringSchema()")
        if body not in ("json-array", "lines", "single"):
            raise refuse(f"HttpSink: body is {body!r}, expected 'json-array', 'lines' or 'single'")
        if method not in _METHODS:
            raise refuse(f"HttpSink: method is {method!r}, expected one of {', '.join(_METHODS)}")
        checked_count("HttpSink records_max", records_max, least=1)
        with at_users_line():
            destination = Destination(url, method, dict(headers or {}), timeout_s)
        self._sink = http_sink.HttpSink(destination, schema, body, records_max)
        super().__init__(self._sink)

    def __repr__(self) -> str:
        return f"HttpSink({self._sink.describe()})"
