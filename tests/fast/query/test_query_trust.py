"""Whom a client of query servers asks and tells its token, and what it believes of what comes back."""

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
MINE = {"authorization": "Bearer secret"}


def urls(places: list[ServerPlace]) -> list[str]:
    return [place.url for place in places]


# --- the token ------------------------------------------------------------------------------------------------------


def test_a_token_is_told_to_named_hosts_and_to_this_machine_and_to_nobody_else() -> None:
    trust = Trust("secret", ["https://db1:8787"], ["*.mine.example", "10.0.0.7"])
    for url in ("https://db1:9999", "http://127.0.0.1:1", "grpc+tls://a.mine.example:1", "https://10.0.0.7"):
        assert trust.headers(url) == MINE, url
    for url in ("https://db2:8787", "https://mine.example", "https://db1.evil.example", "https://10.0.0.70", "no"):
        assert trust.headers(url) == {}, url
    assert Trust(None).headers("https://db1:8787") == {}


def test_a_registered_host_that_nobody_named_is_not_asked_with_a_token_and_the_error_says_what_to_pass() -> None:
    stranger = ServerPlace("https://10.0.0.9:8787", flight_url="grpc+tls://10.0.0.9:8788")
    with pytest.raises(ConfigurationError, match=r"allow_hosts=\['10\.0\.0\.9'\]"):
        Trust("secret").admitted([stranger])
    assert Trust("secret", allow_hosts=["10.0.0.9"]).admitted([stranger]) == [stranger]
    assert Trust("secret", allow_hosts="10.0.0.9").admitted([stranger]) == [stranger]
    assert Trust(None).admitted([stranger]) == [stranger]
    here = ServerPlace("http://127.0.0.1:8787")
    assert Trust("secret").admitted([stranger, here]) == [here]


def test_a_flight_address_on_another_host_is_not_told_the_token_either() -> None:
    trust = Trust("secret", allow_hosts=["db1"])
    (place,) = trust.admitted([ServerPlace("https://db1:1", flight_url="grpc+tls://elsewhere:2")])
    assert place.flight_url is None
    for wrong in ("grpc+unix:///a", "https://db1:2", "grpc://db1:2", "nonsense"):
        (place,) = trust.admitted([ServerPlace("https://db1:1", flight_url=wrong)])
        assert place.flight_url is None, wrong


# --- no TLS after TLS -------------------------------------------------------------------------------------------------


def test_who_named_tls_is_never_led_to_a_server_without() -> None:
    trust = Trust(None, ["https://db1:8787"])
    assert urls(trust.admitted([ServerPlace("https://db1:8787"), ServerPlace("http://db1:8080")])) == [
        "https://db1:8787"
    ]
    with pytest.raises(ConfigurationError, match="does not speak TLS"):
        trust.admitted([ServerPlace("http://db2:8787")])


def test_once_a_server_was_asked_over_tls_none_is_asked_without() -> None:
    trust, plain = Trust(None), ServerPlace("http://db2:8787", flight_url="grpc://db2:1")
    assert trust.admitted([plain]) == [plain]
    trust.note_answer("https://db1:8787")
    with pytest.raises(ConfigurationError, match="does not speak TLS"):
        trust.admitted([plain])
    named = Trust(None, ["http://db2:8787"])
    named.note_answer("https://db1:8787")
    assert urls(named.admitted([plain])) == ["http://db2:8787"], "the user said so"


def test_a_host_that_is_registered_with_tls_is_not_asked_without() -> None:
    trust = Trust(None)
    both = [ServerPlace("http://db1:1"), ServerPlace("https://db1:2"), ServerPlace("http://db2:1")]
    assert urls(trust.admitted(both)) == ["https://db1:2", "http://db2:1"]
    assert urls(trust.admitted([both[0], both[2]])) == ["http://db2:1"], "the registration may have been taken away"


@pytest.mark.parametrize("url", ["http://user:password@db1", "http://", "http://a:99999", "http://a?x=1"])
def test_an_address_that_is_none_is_refused_where_it_is_given(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an address"):
        Trust(None, [url])


# --- answers --------------------------------------------------------------------------------------------------------


def test_an_answer_of_another_job_is_none() -> None:
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
ASKED = {"reads": [{"state": "a", "keys": [1, 2]}]}


@given(st.dictionaries(st.sampled_from([*FACTS, "value", "reads", "rows", "points"]), JSON), JSON)
def test_whatever_a_server_says_it_is_an_answer_or_none(said: dict[str, Any], other: Any) -> None:
    try:
        told = json_of_body(json.dumps({**FACTS, **said}).encode())
        JobIdentity("j1").check(told)
        for part in ("value", "reads", "rows", "points", "states", "windows"):
            check_form(told, part, ASKED)
    except InvalidAnswer:
        pass
    assert ServerPlace.parsed(other) is None or isinstance(ServerPlace.parsed(other), ServerPlace)
    ServedState.parsed(other)


def test_a_state_whose_type_is_endless_is_none() -> None:
    plain = {"name": "totals", "kind": "value", "key_type": "LONG", "value_type": {"list": "LONG"}, "key_groups": 128}
    assert ServedState.parsed(plain) is not None
    endless: Any = "LONG"
    for _ in range(500):
        endless = {"list": endless}
    assert ServedState.parsed({**plain, "key_type": endless}) is None
    assert ServedState.parsed({**plain, "key_groups": 10**9}) is None


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5_000])
def test_a_body_that_is_no_object_is_no_answer(body: bytes) -> None:
    with pytest.raises(InvalidAnswer):
        json_of_body(body)


def test_a_server_of_another_job_at_the_same_address_is_passed_by() -> None:
    with pytest.raises(ServerFailed):
        answer_of(404, b'{"error": "unknown-job", "message": "not here"}')
    with pytest.raises(QueryRefusedError, match="no such"):
        answer_of(404, b'{"error": "unknown-state", "message": "no such"}')


def test_a_server_without_tls_that_is_known_already_is_not_asked_once_another_answered_over_it() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.scheme)
        return httpx.Response(200, stream=httpx.ByteStream(json.dumps({**FACTS, "value": 7}).encode()))

    trust = Trust(None)
    places = trust.admitted([ServerPlace("https://a:1"), ServerPlace("http://b:1")])
    assert len(places) == 2
    directory = Directory(lambda: places, lambda: 0.0)
    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        asking = Requester(directory, http, trust, lambda: JobIdentity("j1"), 5.0, 1.0)
        for _ in range(6):
            assert asking.fetch(Question("/value", "value"))["value"] == 7
        asking.close()
    assert asked.count("https") >= 5 and asked[1:].count("http") == 0


@pytest.mark.parametrize("status", [204, 206, 302, 304, 401, 403, 404, 418, 501, 599])
@pytest.mark.parametrize("body", [b"<html>", b"", b"{}", b'{"error": 7, "message": ["a"]}'])
def test_a_status_without_the_words_of_a_query_server_says_nothing_of_the_job(status: int, body: bytes) -> None:
    with pytest.raises(ServerFailed, match=f"status {status}"):
        answer_of(status, body)


@pytest.mark.parametrize("status", [206, 302, 304, 501, 599])
def test_only_a_status_of_refusals_refuses_for_good(status: int) -> None:
    with pytest.raises(ServerFailed, match="unknown-state"):
        answer_of(status, b'{"error": "unknown-state", "message": "no such"}')


class Endless(httpx.SyncByteStream):
    """A body without an end."""

    def __init__(self, part: bytes) -> None:
        self._part, self.sent = part, 0

    def __iter__(self) -> Any:
        while True:
            self.sent += len(self._part)
            yield self._part


def test_an_answer_or_an_event_without_an_end_is_given_up() -> None:
    endless = Endless(b"a" * 1000)
    with pytest.raises(InvalidAnswer, match="more than 5000 bytes"):
        body_of(httpx.Response(200, stream=endless), 5_000)
    with pytest.raises(InvalidAnswer, match="more than 5000 bytes"):
        list(lines_of(httpx.Response(200, stream=endless), 5_000))
    assert endless.sent <= 12_000
    lines = lines_of(httpx.Response(200, stream=Endless(b"ab\r\ncd")))
    assert [next(lines) for _ in range(3)] == [b"ab", b"cdab", b"cdab"]


def test_an_answer_that_is_packed_is_not_unpacked() -> None:
    packed = httpx.Response(200, headers={"content-encoding": "gzip"}, stream=Endless(b"a"))
    for read in (body_of, lambda response: list(lines_of(response))):
        with pytest.raises(InvalidAnswer, match="compressed"):
            read(packed)
