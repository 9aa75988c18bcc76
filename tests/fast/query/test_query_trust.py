"""Trust of a query client: which servers it queries, which it sends its token to, and which responses it accepts."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import ConfigurationError
from millstream.query.client.discovery import Directory, Trust
from millstream.query.client.requester import Question, Requester, ServerFailed, answer_of
from millstream.query.client.responses import (
    InvalidAnswer,
    JobIdentity,
    QueryRefusedError,
    body_of,
    check_form,
    json_of_body,
    lines_of,
)
from millstream.query.wire.servers import ServedState, ServerPlace

FACTS = {"job": "clicks", "job_id": "j1", "epoch": 7, "watermark": None, "committed_ms": 5, "age_ms": 2}
TOKEN_HEADERS = {"authorization": "Bearer secret"}


def urls(places: list[ServerPlace]) -> list[str]:
    return [place.url for place in places]


# --- the token ------------------------------------------------------------------------------------------------------


def test_a_token_is_sent_only_to_named_hosts_and_to_localhost() -> None:
    trust = Trust("secret", ["https://db1:8787"], ["*.mine.example", "10.0.0.7"])
    for url in ("https://db1:9999", "http://127.0.0.1:1", "grpc+tls://a.mine.example:1", "https://10.0.0.7"):
        assert trust.headers(url) == TOKEN_HEADERS, url
    for url in ("https://db2:8787", "https://mine.example", "https://db1.evil.example", "https://10.0.0.70", "no"):
        assert trust.headers(url) == {}, url
    assert Trust(None).headers("https://db1:8787") == {}


def test_a_registered_host_that_is_not_allowed_is_not_queried_with_a_token_and_the_error_names_the_option() -> None:
    unnamed_host = ServerPlace("https://10.0.0.9:8787", flight_url="grpc+tls://10.0.0.9:8788")
    with pytest.raises(ConfigurationError, match=r"allow_hosts=\['10\.0\.0\.9'\]"):
        Trust("secret").admitted([unnamed_host])
    assert Trust("secret", allow_hosts=["10.0.0.9"]).admitted([unnamed_host]) == [unnamed_host]
    assert Trust("secret", allow_hosts="10.0.0.9").admitted([unnamed_host]) == [unnamed_host]
    assert Trust(None).admitted([unnamed_host]) == [unnamed_host]
    local_server = ServerPlace("http://127.0.0.1:8787")
    assert Trust("secret").admitted([unnamed_host, local_server]) == [local_server]


def test_a_flight_address_on_another_host_does_not_receive_the_token() -> None:
    trust = Trust("secret", allow_hosts=["db1"])
    (place,) = trust.admitted([ServerPlace("https://db1:1", flight_url="grpc+tls://elsewhere:2")])
    assert place.flight_url is None
    for wrong in ("grpc+unix:///a", "https://db1:2", "grpc://db1:2", "nonsense"):
        (place,) = trust.admitted([ServerPlace("https://db1:1", flight_url=wrong)])
        assert place.flight_url is None, wrong


# --- no plain connections after TLS ---------------------------------------------------------------------------------


def test_naming_a_tls_server_excludes_plain_servers() -> None:
    trust = Trust(None, ["https://db1:8787"])
    assert urls(trust.admitted([ServerPlace("https://db1:8787"), ServerPlace("http://db1:8080")])) == [
        "https://db1:8787"
    ]
    with pytest.raises(ConfigurationError, match="does not speak TLS"):
        trust.admitted([ServerPlace("http://db2:8787")])


def test_after_a_tls_response_plain_servers_are_not_queried() -> None:
    trust, plain = Trust(None), ServerPlace("http://db2:8787", flight_url="grpc://db2:1")
    assert trust.admitted([plain]) == [plain]
    trust.note_answer("https://db1:8787")
    with pytest.raises(ConfigurationError, match="does not speak TLS"):
        trust.admitted([plain])
    named = Trust(None, ["http://db2:8787"])
    named.note_answer("https://db1:8787")
    assert urls(named.admitted([plain])) == ["http://db2:8787"], "the user named it"


def test_a_host_registered_with_tls_is_not_queried_without() -> None:
    trust = Trust(None)
    both = [ServerPlace("http://db1:1"), ServerPlace("https://db1:2"), ServerPlace("http://db2:1")]
    assert urls(trust.admitted(both)) == ["https://db1:2", "http://db2:1"]
    assert urls(trust.admitted([both[0], both[2]])) == ["http://db2:1"], (
        "the registration over TLS may have been removed"
    )


@pytest.mark.parametrize("url", ["http://user:password@db1", "http://", "http://a:99999", "http://a?x=1"])
def test_an_invalid_address_is_rejected_where_it_is_passed(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an address"):
        Trust(None, [url])


# --- responses ------------------------------------------------------------------------------------------------------


def test_a_response_of_another_job_is_rejected() -> None:
    by_id, by_name = JobIdentity("j1"), JobIdentity("clicks")
    for job in (by_id, by_name):
        job.check(FACTS)
        for other in ({"job_id": "j2"}, {"job": "orders", "job_id": "j2"}, {"job_id": None}, {"job_id": ["j1"]}):
            with pytest.raises(InvalidAnswer, match="it answers for job"):
                job.check({**FACTS, **other})
    with pytest.raises(InvalidAnswer):
        JobIdentity("j1").check({"epoch": 7})


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=9), st.just("j1")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=9), inner, max_size=3)),
    max_leaves=6,
)
REQUEST = {"reads": [{"state": "a", "keys": [1, 2]}]}


@given(st.dictionaries(st.sampled_from([*FACTS, "value", "reads", "rows", "points"]), JSON), JSON)
def test_any_response_is_valid_or_rejected(overrides: dict[str, Any], other: Any) -> None:
    try:
        response = json_of_body(json.dumps({**FACTS, **overrides}).encode())
        JobIdentity("j1").check(response)
        for part in ("value", "reads", "rows", "points", "states", "windows"):
            check_form(response, part, REQUEST)
    except InvalidAnswer:
        pass
    assert ServerPlace.parsed(other) is None or isinstance(ServerPlace.parsed(other), ServerPlace)
    ServedState.parsed(other)


def test_a_deeply_nested_state_type_is_rejected() -> None:
    plain = {"name": "totals", "kind": "value", "key_type": "LONG", "value_type": {"list": "LONG"}, "key_groups": 128}
    assert ServedState.parsed(plain) is not None
    endless: Any = "LONG"
    for _ in range(500):
        endless = {"list": endless}
    assert ServedState.parsed({**plain, "key_type": endless}) is None
    assert ServedState.parsed({**plain, "key_groups": 10**9}) is None


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5_000])
def test_a_body_that_is_not_an_object_is_rejected(body: bytes) -> None:
    with pytest.raises(InvalidAnswer):
        json_of_body(body)


def test_an_unknown_job_response_is_skipped_and_an_unknown_state_raises() -> None:
    with pytest.raises(ServerFailed):
        answer_of(404, b'{"error": "unknown-job", "message": "not here"}')
    with pytest.raises(QueryRefusedError, match="no such"):
        answer_of(404, b'{"error": "unknown-state", "message": "no such"}')


def test_a_known_plain_server_is_not_queried_after_another_responded_over_tls() -> None:
    schemes: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        schemes.append(request.url.scheme)
        return httpx.Response(200, stream=httpx.ByteStream(json.dumps({**FACTS, "value": 7}).encode()))

    trust = Trust(None)
    places = trust.admitted([ServerPlace("https://a:1"), ServerPlace("http://b:1")])
    assert len(places) == 2
    directory = Directory(lambda: places, lambda: 0.0)
    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        requester = Requester(directory, http, trust, lambda: JobIdentity("j1"), 5.0, 1.0)
        for _ in range(6):
            assert requester.fetch(Question("/value", "value"))["value"] == 7
        requester.close()
    assert schemes.count("https") >= 5 and schemes[1:].count("http") == 0


@pytest.mark.parametrize("status", [204, 206, 302, 304, 401, 403, 404, 418, 501, 599])
@pytest.mark.parametrize("body", [b"<html>", b"", b"{}", b'{"error": 7, "message": ["a"]}'])
def test_a_status_without_a_query_servers_error_body_counts_as_server_failure(status: int, body: bytes) -> None:
    with pytest.raises(ServerFailed, match=f"status {status}"):
        answer_of(status, body)


@pytest.mark.parametrize("status", [206, 302, 304, 501, 599])
def test_only_query_error_statuses_reject_a_query_permanently(status: int) -> None:
    with pytest.raises(ServerFailed, match="unknown-state"):
        answer_of(status, b'{"error": "unknown-state", "message": "no such"}')


class Endless(httpx.SyncByteStream):
    """A body of infinite length."""

    def __init__(self, part: bytes) -> None:
        self._part, self.sent = part, 0

    def __iter__(self) -> Any:
        while True:
            self.sent += len(self._part)
            yield self._part


def test_an_endless_response_or_event_is_aborted() -> None:
    endless = Endless(b"a" * 1000)
    with pytest.raises(InvalidAnswer, match="more than 5000 bytes"):
        body_of(httpx.Response(200, stream=endless), 5_000)
    with pytest.raises(InvalidAnswer, match="more than 5000 bytes"):
        list(lines_of(httpx.Response(200, stream=endless), 5_000))
    assert endless.sent <= 12_000
    lines = lines_of(httpx.Response(200, stream=Endless(b"ab\r\ncd")))
    assert [next(lines) for _ in range(3)] == [b"ab", b"cdab", b"cdab"]


def test_a_compressed_response_is_not_decompressed() -> None:
    compressed = httpx.Response(200, headers={"content-encoding": "gzip"}, stream=Endless(b"a"))
    for read in (body_of, lambda response: list(lines_of(response))):
        with pytest.raises(InvalidAnswer, match="compressed"):
            read(compressed)
