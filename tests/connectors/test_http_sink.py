"""HttpSink against a real HTTP server: requests, retries and idempotency keys."""

from __future__ import annotations

import json
from typing import Any

import pytest
from servers.http_service import HttpService

from millstream.common import RestartStrategies, Row, Types
from millstream.common.serialization import SimpleStringSchema
from millstream.datastream.connectors.http import HttpSink
from millstream.datastream.formats.json import JsonRowSerializationSchema
from millstream.errors import MillstreamError, ProgramError
from millstream.testing import run

CLICKS = Types.ROW_NAMED(["ad", "clicks"], [Types.STRING(), Types.LONG()])


def json_schema() -> JsonRowSerializationSchema:
    return JsonRowSerializationSchema.builder().with_type_info(CLICKS).build()


def send(sink: HttpSink, rows: list[Any], type_info: Any = CLICKS, restarts: int = 0) -> None:
    restart = RestartStrategies.fixed_delay_restart(restarts, 0) if restarts else None
    run(lambda env: env.from_collection(rows, type_info).sink_to(sink), restart=restart)


def test_records_arrive_in_order_in_arrays_of_bounded_length(http_service: HttpService) -> None:
    send(HttpSink(http_service.url, json_schema(), records_max=2), [Row("a", n) for n in range(5)])
    assert [len(json.loads(body)) for _, _, body in http_service.requests] == [2, 2, 1]
    assert [record["clicks"] for record in http_service.records()] == [0, 1, 2, 3, 4]
    assert {headers["content-type"] for _, headers, _ in http_service.requests} == {"application/json"}


def test_lines_and_single_records(http_service: HttpService) -> None:
    send(HttpSink(http_service.url, SimpleStringSchema(), body="lines"), ["x", "y"], Types.STRING())
    own = {"Content-Type": "text/plain"}
    send(HttpSink(http_service.url, SimpleStringSchema(), body="single", headers=own), ["x", "y"], Types.STRING())
    assert [body for _, _, body in http_service.requests] == [b"x\ny\n", b"x", b"y"]
    assert [headers["content-type"] for _, headers, _ in http_service.requests] == [
        "application/x-ndjson",
        "text/plain",
        "text/plain",
    ]


def test_an_empty_text_is_one_line_and_a_text_of_two_lines_is_rejected(http_service: HttpService) -> None:
    own = {"Content-Type": "text/plain"}
    send(HttpSink(http_service.url, SimpleStringSchema(), body="lines"), ["", "x"], Types.STRING())
    send(HttpSink(http_service.url, SimpleStringSchema(), body="single", headers=own), ["", "x\ny"], Types.STRING())
    assert [body for _, _, body in http_service.requests] == [b"\nx\n", b"", b"x\ny"]
    with pytest.raises(MillstreamError, match=r"'x\\ny' is encoded as more than one line.*body='single'"):
        send(HttpSink(http_service.url, SimpleStringSchema(), body="lines"), ["x\ny"], Types.STRING())


def test_an_endless_response_is_not_read_to_its_end(http_service: HttpService) -> None:
    http_service.answer_bytes = 1 << 40
    send(HttpSink(http_service.url, json_schema(), records_max=1), [Row("a", n) for n in range(3)])
    assert [record["clicks"] for record in http_service.records()] == [0, 1, 2]


def test_the_path_of_a_webhook_is_never_shown(http_service: HttpService) -> None:
    http_service.statuses = [404]
    with pytest.raises(MillstreamError) as caught:
        send(HttpSink(http_service.url + "/s3cret", json_schema()), [Row("a", 1)])
    assert "s3cret" not in str(caught.value) + repr(caught.value.__cause__)
    assert f"127.0.0.1:{http_service.server_port}/… answered 404 Not Found" in str(caught.value)


def test_a_constant_idempotency_key_is_rejected(http_service: HttpService) -> None:
    """A service that honours it would accept the first request and drop all others."""
    with pytest.raises(ProgramError, match="'idempotency-key' is reserved for the sink"):
        send(HttpSink(http_service.url, json_schema(), headers={"idempotency-key": "1"}), [Row("a", 1)])


def test_every_request_has_a_key_of_its_own(http_service: HttpService) -> None:
    for _ in range(2):
        send(HttpSink(http_service.url, json_schema(), records_max=1), [Row("a", 1), Row("b", 2)])
    assert len({headers["idempotency-key"] for _, headers, _ in http_service.requests}) == 4


@pytest.mark.parametrize("trouble", [[503], [429], [204, 500], [204, 0], [0], [204, 0, 503, 0]])
def test_a_retried_request_has_the_same_key_and_body(http_service: HttpService, trouble: list[int]) -> None:
    http_service.statuses = list(trouble)
    send(HttpSink(http_service.url, json_schema(), records_max=2), [Row("a", n) for n in range(5)], restarts=10)
    bodies: dict[str, bytes] = {}
    for _, headers, body in http_service.requests:
        assert bodies.setdefault(headers["idempotency-key"], body) == body
    assert len(bodies) == 3 and [record["clicks"] for record in http_service.records()] == [0, 1, 2, 3, 4]


def test_a_rejection_is_reported_with_its_response_and_without_secrets(http_service: HttpService) -> None:
    http_service.statuses = [403]
    sink = HttpSink(http_service.url + "?token=s3cret", json_schema(), headers={"Authorization": "Bearer s3cret"})
    with pytest.raises(
        MillstreamError, match=r"/… answered 403 Forbidden: no!\. The request was not accepted"
    ) as refusal:
        send(sink, [Row("a", 1)])
    assert "s3cret" not in str(refusal.value) and "s3cret" not in repr(sink)
    assert http_service.requests[0][1]["authorization"] == "Bearer s3cret"


def test_an_unreachable_service_is_reported(http_service: HttpService) -> None:
    http_service.server_close()
    with pytest.raises(MillstreamError, match=r"http://127\.0\.0\.1:\d+/… does not answer"):
        send(HttpSink(http_service.url, json_schema()), [Row("a", 1)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "ftp://x"}, "has another scheme, expected http://host:port, or https://"),
        ({"url": "http://me:word@x/"}, "holds a user or a password"),
        ({"schema": "json"}, "expected a SerializationSchema"),
        ({"body": "xml"}, "expected 'json-array', 'lines' or 'single'"),
        ({"method": "GET"}, "expected one of POST, PUT, PATCH"),
        ({"records_max": 0}, "records_max"),
        ({"headers": {"A": "b\nc"}}, "not a pair of single-line strings"),
    ],
)
def test_invalid_http_settings_are_rejected_before_the_job_starts(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        HttpSink(**{"url": "http://x", "schema": SimpleStringSchema(), **arguments})
