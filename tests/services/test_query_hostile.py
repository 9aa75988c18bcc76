"""A query server exposed to hostile clients: it reports the error, disconnects, and keeps answering others."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from services.hostile_child import Child, hostile_child, keys
from services.served_counts import CountedJob
from services.test_query_server import TOKEN, certified, rights

from millstream.query.server import Limits, QueryServer, ServerSettings
from millstream.query.server.answer_bytes import encoded
from millstream.query.server.flight_frames import PREFACE

CROWD = 250
ENOUGH_S = 60.0


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with hostile_child(request_timeout_s=1.0, header_timeout_s=1.0, unread_timeout_s=1.0, connections_max=200) as child:
        yield child


def status_of(answer: bytes) -> int:
    """The status of an HTTP response; 0 if there was none."""
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0


def read_all(connection: socket.socket) -> bytes:
    """All data until the other side closes."""
    answer = b""
    with suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            answer += part
    return answer


def head(path: str, *headers: str, method: str = "POST") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: localhost", *headers, "", ""]).encode()


# --- a gigabyte of keys ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body_of", ["content-length: 1000000000", "transfer-encoding: chunked"])
def test_a_gigabyte_of_keys_over_http_is_rejected_before_it_is_read(child: Child, body_of: str) -> None:
    piece = b'"a",' * (1 << 18)
    chunk = b"%x\r\n%s\r\n" % (len(piece), piece) if "chunked" in body_of else piece
    with child.unharmed(), child.connected() as connection:
        connection.sendall(head(f"{child.path}/states/total/keys", "content-type: application/json", body_of))
        answer = b""
        with suppress(ConnectionError):  # the server disconnects a client that keeps sending
            for _ in range(1_000):
                connection.sendall(chunk)
                if select.select([connection], [], [], 0)[0]:
                    answer += connection.recv(1 << 16)
        assert status_of(answer) == 413
        assert b"too-large" in answer


def test_a_gigabyte_of_keys_over_flight_is_rejected_before_it_is_read(child: Child) -> None:
    one = pa.LargeStringArray.from_buffers(
        1, pa.py_buffer(bytes(8) + (10**9).to_bytes(8, "little")), pa.py_buffer(bytes(10**9))
    )
    with child.unharmed(), pytest.raises(pa.ArrowException, match=r"of 33554432 at most.*\[too-large\]"):
        child.flown("total", pa.RecordBatch.from_arrays([one], ["key"]))


def test_a_gigabyte_of_keys_in_many_batches_is_rejected_after_a_part_of_it(child: Child) -> None:
    large = keys("a" * (8 << 20))
    # Timing decides which error is detected first: too many keys, or unread answers.
    refused = pytest.raises((flight.FlightError, pa.ArrowException), match=r"too-large|slow-request")
    with child.unharmed(), refused:
        child.flown("total", *[large] * 125)


# --- slow clients ---------------------------------------------------------------------------------------------------


def responses_to_slow_clients(connections: list[socket.socket], drip: bytes) -> list[bytes]:
    """The responses to slow clients before they are disconnected, while all keep sending byte by byte."""
    body_of = dict.fromkeys(connections, b"")
    ended: set[socket.socket] = set()
    until_s = time.monotonic() + ENOUGH_S
    while len(ended) < len(connections):
        assert time.monotonic() < until_s, f"{len(connections) - len(ended)} are still connected"
        for one in select.select([one for one in connections if one not in ended], [], [], 0.1)[0]:
            try:
                part = one.recv(1 << 16)
            except ConnectionError:
                part = b""
            body_of[one] += part
            if not part:
                ended.add(one)
        for one in connections:
            if one not in ended:
                with suppress(ConnectionError):
                    one.sendall(drip)
    return list(body_of.values())


def crowd(child: Child, requests: list[bytes], drip: bytes) -> list[int]:
    """The statuses with which this many slow clients are rejected."""
    connections = [child.connected() for _ in requests]
    try:
        for one, request in zip(connections, requests, strict=True):
            with suppress(ConnectionError):
                one.sendall(request)
        return [status_of(body_of) for body_of in responses_to_slow_clients(connections, drip)]
    finally:
        for one in connections:
            one.close()


def test_hundreds_of_slow_heads_are_evicted_or_timed_out(child: Child) -> None:
    with child.unharmed():
        statuses = crowd(child, [b"GET /v1/jobs HTTP/1.1\r\nhost: localhost\r\nx: "] * CROWD, b"a")
    # There are two hundred slots: the longest waiting clients were evicted for the others.
    assert set(statuses) == {0, 408}
    assert 408 in statuses  # their number depends on how quickly the machine accepts them


def test_slow_bodies_are_timed_out(child: Child) -> None:
    bodies = [
        head(f"{child.path}/states/total/keys", "content-type: application/json", "content-length: 9999"),
        head(f"{child.path}/states/total/keys", "content-type: application/json", "transfer-encoding: chunked"),
        head(f"{child.path}/states/total/watch/a", "content-length: 9999", method="GET"),
    ]
    with child.unharmed():
        assert set(crowd(child, bodies[:1] * 50 + bodies[2:] * 50, b" ")) == {408}
        assert set(crowd(child, [bodies[1] + b"fff\r\n"], b" ")) == {408}


def test_silent_connections_are_timed_out(child: Child) -> None:
    with child.unharmed():
        assert set(crowd(child, [b""] * 100, b"")) == {0}


def test_an_unfinished_tls_handshake_is_timed_out(tmp_path: Path) -> None:
    certificate, key = certified(tmp_path)
    settings = ServerSettings(
        port=0, flight_port=0, certificate=certificate, private_key=key, limits=Limits(header_timeout_s=0.3)
    )
    with QueryServer(CountedJob(), settings) as server:
        for url in (server.url, server.flight_url):
            with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=ENOUGH_S) as connection:
                connection.sendall(b"\x16\x03\x01")
                assert read_all(connection) == b""


def test_a_request_over_the_connection_limit_is_rejected() -> None:
    job = CountedJob()
    job.commit(is_slow=True, totals={"ada": 1})
    limits = Limits(connections_max=2)
    with QueryServer(job, ServerSettings(port=0, limits=limits)) as server:
        port = int(server.url.rsplit(":", 1)[1])
        asking = [socket.create_connection(("127.0.0.1", port), timeout=ENOUGH_S) for _ in range(2)]
        for one in asking:
            one.sendall(head("/v1/jobs/counts/states/totals/keys/ada", "connection: close", method="GET"))
            assert job.newest().waiting.acquire(timeout=ENOUGH_S)
        with socket.create_connection(("127.0.0.1", port), timeout=ENOUGH_S) as late:
            assert status_of(read_all(late)) == 429
        job.newest().gate.set()
        assert [status_of(read_all(one)) for one in asking] == [200, 200]
        for one in asking:
            one.close()


def large_answers() -> CountedJob:
    job = CountedJob()
    job.commit(totals={"ada": "a" * (16 << 20), **{f"eve-{n}": "a" * (1 << 20) for n in range(64)}})
    return job


def test_an_unread_answer_is_aborted() -> None:
    limits = Limits(unread_timeout_s=0.3, connections_max=1)
    with QueryServer(large_answers(), ServerSettings(port=0, limits=limits)) as server:
        address = ("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
        with socket.create_connection(address, timeout=ENOUGH_S) as deaf:
            deaf.sendall(head("/v1/jobs/counts/states/totals/keys/ada", method="GET"))
            # It holds the only slot: another request is answered once it is disconnected.
            until_s = time.monotonic() + ENOUGH_S
            while status_of(asked(address, "/healthz")) != 200:
                assert time.monotonic() < until_s
            assert len(read_all(deaf)) < 16 << 20


def test_unread_answers_have_a_common_memory_limit() -> None:
    limits = Limits(unread_bytes_max=20 << 20)
    with QueryServer(large_answers(), ServerSettings(port=0, limits=limits)) as server:
        address = ("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
        deaf = [socket.create_connection(address, timeout=ENOUGH_S) for _ in range(4)]
        for one in deaf:
            one.sendall(head("/v1/jobs/counts/states/totals/keys/ada", "connection: close", method="GET"))
            select.select([one], [], [], ENOUGH_S)
            assert status_of(asked(address, "/healthz")) == 200
        sizes = [len(read_all(one)) for one in deaf]
        for one in deaf:
            one.close()
    assert sizes[0] < 16 << 20, "who is slowest to read is let go"
    assert sizes[-1] > 16 << 20, "and who asked last is answered"


def test_a_watcher_that_does_not_read_is_disconnected() -> None:
    job = large_answers()
    limits = Limits(unread_timeout_s=3.0, watchers_max=1)
    with QueryServer(job, ServerSettings(port=0, limits=limits)) as server:
        address = ("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
        path = "/v1/jobs/counts/states/totals/watch/ada"
        with socket.create_connection(address, timeout=ENOUGH_S) as deaf:
            deaf.sendall(head(path, method="GET"))
            deaf.recv(100)
            assert status_of(asked(address, path)) == 429
            until_s = time.monotonic() + ENOUGH_S
            while status_of(asked(address, path)) == 429:
                assert time.monotonic() < until_s
                time.sleep(0.05)


def test_a_slowly_read_answer_is_sent_completely() -> None:
    limits = Limits(unread_timeout_s=3.0)
    with QueryServer(large_answers(), ServerSettings(port=0, limits=limits)) as server:
        address = ("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
        with socket.create_connection(address, timeout=ENOUGH_S) as slow:
            slow.sendall(head("/v1/jobs/counts/states/totals/keys/ada", "connection: close", method="GET"))
            size = 0
            while part := slow.recv(1 << 20):
                size += len(part)
                time.sleep(0.2)  # at least 16 times: longer in total than an answer may stay unread
        assert size > 16 << 20


def asked(address: tuple[str, int], path: str) -> bytes:
    """The beginning of the response to one request."""
    with socket.create_connection(address, timeout=ENOUGH_S) as connection, suppress(ConnectionError):
        connection.sendall(head(path, "connection: close", method="GET"))
        return connection.recv(1000)
    return b""


# --- malformed requests ---------------------------------------------------------------------------------------------

TOTAL, NUMBERS = "/states/total/keys", "/states/by-number/keys"
DEEP = 100_000
STRANGE_PATHS: dict[str, tuple[str, int]] = {
    "a key with ends of lines": (f"{TOTAL}/a%0d%0aset-cookie:%20x=1", 200),
    "a key of nothing": (f"{TOTAL}/", 200),
    "a key that is no UTF-8": (f"{TOTAL}/%ff%fe", 200),
    "a key of zeros": (f"{TOTAL}/%00", 200),
    "a lone surrogate": (f"{TOTAL}/%22%5Cud800%22?key_format=json", 422),
    "a key of sixty thousand letters": (f"{TOTAL}/{'a' * 60_000}", 200),
    "deep JSON": (f"{TOTAL}/{'[' * 20_000}?key_format=json", 422),
    "a state with ends of lines": ("/states/a%0d%0ax:%20y/keys/a", 404),
    "a path out of here": ("/states/..%2f..%2f..%2fetc%2fpasswd/keys/a", 404),
    "dots": ("/../../../etc/passwd", 404),
    "a state that was not declared": ("/states/keeper::hidden/keys/a", 404),
    "a number of five thousand digits": (f"{NUMBERS}/{'9' * 5_000}", 422),
    "no number": (f"{NUMBERS}/NaN", 422),
    "an epoch of five thousand digits": (f"{TOTAL}/a?epoch={'9' * 5_000}", 422),
    "an epoch to come": (f"{TOTAL}/a?epoch=99", 412),
    "two moments": (f"{TOTAL}/a?epoch=1&time=5", 422),
    "the year one": (f"{TOTAL}/a?time=0001-01-01T00:00:00%2B23:59", 410),
    "the year ten thousand": (f"{TOTAL}/a?time=9999-12-31T23:59:59-23:59", 422),
    "no time": (f"{TOTAL}/a?time=NaN", 422),
    "a misspelt parameter": (f"{TOTAL}/a?epcoh=1", 422),
    "a prefix of a number": ("/states/by-number/scan?prefix=1", 422),
    "minus one row": ("/states/total/scan?limit=-1", 422),
}


def body_of(answer: bytes, status: int) -> dict[str, Any]:
    """The body of a response with this status, which is an answer or an error message."""
    start, _, body = answer.partition(b"\r\n\r\n")
    assert status_of(answer) == status, answer[:300]
    assert b"content-type: application/json" in start and b"set-cookie" not in start
    said: dict[str, Any] = json.loads(body)
    assert status == 200 or (said["error"] and said["message"])
    return said


def sent(child: Child, request: bytes) -> bytes:
    with child.connected() as connection:
        connection.sendall(request)
        return read_all(connection)


@pytest.mark.parametrize("name", STRANGE_PATHS)
def test_strange_paths_are_answered_or_rejected_with_a_message(child: Child, name: str) -> None:
    path, status = STRANGE_PATHS[name]
    said = body_of(sent(child, head(f"{child.path}{path}", "connection: close", method="GET")), status)
    assert "memory://" not in str(said), "where the store is, is nobody's business"


STRANGE_BODIES: dict[str, tuple[str, bytes, int]] = {
    "deep arrays": (TOTAL, b'{"keys":' + b"[" * DEEP + b"}", 400),
    "closed deep arrays": (TOTAL, b'{"keys":' + b"[" * 900 + b"]" * 900 + b"}", 422),
    "deep keys of any type": ("/states/by-pair/keys", b'{"keys":[' + b"[" * 900 + b"]" * 900 + b"]}", 422),
    "odd keys of any type": ("/states/by-pair/keys", b'{"keys":[NaN, 1e400, null, [[]], true]}', 200),
    "deep objects": (TOTAL, b'{"keys":[' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"]}", 422),
    "many digits": (NUMBERS, b'{"keys":[' + b"9" * 5_000 + b"]}", 400),
    "a huge number": (NUMBERS, b'{"keys":[1e400]}', 422),
    "no number": (NUMBERS, b'{"keys":[NaN, -Infinity]}', 422),
    "a lone surrogate for a key": (TOTAL, b'{"keys":["\\ud800"]}', 422),
    "a lone surrogate for a number": (NUMBERS, b'{"keys":["\\ud800"]}', 422),
    "a lone surrogate for a name": (TOTAL, b'{"keys":[],"\\ud800":1}', 422),
    "a lone surrogate for a state": ("/read", b'{"reads":[{"state":"\\ud800","keys":[]}]}', 404),
    "null keys": (TOTAL, b'{"keys":[null, "a", null]}', 200),
    "too many keys": (TOTAL, b'{"keys":[' + b"1," * 20_000 + b"1]}", 413),
    "too many states": ("/read", b'{"reads":[' + b'{"state":"total","keys":[]},' * 200 + b"{}]}", 422),
}


@pytest.mark.parametrize("name", STRANGE_BODIES)
def test_strange_bodies_are_answered_or_rejected_with_a_message(child: Child, name: str) -> None:
    path, body, status = STRANGE_BODIES[name]
    headers = ("connection: close", "content-type: application/json", f"content-length: {len(body)}")
    body_of(sent(child, head(f"{child.path}{path}", *headers) + body), status)


STRANGE_REQUESTS: dict[str, tuple[bytes, int]] = {
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200) + b"\r\n\r\n", 400),
    "an endless head": (head("/v1/jobs", *[f"x-{i}: {'a' * 1_000}" for i in range(100)], method="GET")[:-4], 400),
    "an endless header": (b"GET /v1/jobs HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * (1 << 20), 400),
    "an endless path": (b"GET /" + b"a" * (1 << 20), 400),
    "two hosts": (head("/v1/jobs", "host: other", method="GET"), 400),
    "two lengths": (head("/v1/jobs", "content-length: 1", "content-length: 2") + b"ab", 400),
    "a length below zero": (head("/v1/jobs", "content-length: -1"), 400),
    "a chunk of no size": (head("/v1/jobs", "transfer-encoding: chunked") + b"zz\r\n", 400),
    "an unknown method": (head("/v1/jobs", "connection: close", method="BREW"), 400),
    "a method for nobody": (head("/v1/jobs", "connection: close", method="DELETE"), 405),
    "a place of its own": (head("http://elsewhere/v1/jobs", "connection: close", method="GET"), 400),
    "everything": (head("*", "connection: close", method="OPTIONS"), 400),
    "nobody to answer for": (b"GET /v1/jobs HTTP/1.1\r\n\r\n", 400),
    "another protocol": (head("/v1/jobs", "connection: upgrade, close", "upgrade: websocket", method="GET"), 200),
    "strange bytes in a header": (
        head("/v1/jobs", "connection: close", method="GET")[:-2]
        + b'if-none-match: "\xff\xfe"\r\nauthorization: \xff\r\n\r\n',
        200,
    ),
}


@pytest.mark.parametrize("name", STRANGE_REQUESTS)
def test_malformed_http_is_rejected_with_a_message(child: Child, name: str) -> None:
    request, status = STRANGE_REQUESTS[name]
    body_of(sent(child, request), status)


def test_pipelined_requests_are_answered_in_order_and_limited(child: Child) -> None:
    one = head(f"{child.path}{TOTAL}/b", method="GET")
    last = head(f"{child.path}{TOTAL}/a", "connection: close", method="GET")
    for path, status in (("/healthz", b"200"), ("/nothing", b"404")):
        answer = sent(child, one + head(path, method="HEAD") + head(path, method="GET") + last)
        assert answer.count(b"HTTP/1.1 ") == 4
        assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]][0::3] == [b"200", b"200"]
        assert status in answer and answer.endswith(b'"value":4}')
    with child.unharmed():
        assert b" 400 " in sent(child, one * 5_000)


def test_an_upgrade_request_is_answered_once_and_the_connection_closed(child: Child) -> None:
    answer = sent(child, head(f"{child.path}{TOTAL}/a", "connection: upgrade", "upgrade: h2c", method="GET"))
    assert status_of(answer) == 200 and answer.endswith(b'"value":4}')


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "application/x-www-form-urlencoded", ""])
def test_a_body_without_a_json_content_type_is_rejected(child: Child, kind: str) -> None:
    headers = ("connection: close", f"content-type: {kind}", "content-length: 14")
    assert body_of(sent(child, head(f"{child.path}{TOTAL}", *headers) + b'{"keys":["a"]}'), 415)["error"] == "not-json"


def test_guessing_tokens_is_rate_limited() -> None:
    settings = ServerSettings(port=0, rights=rights("*"), limits=Limits(requests_per_s=5))
    with QueryServer(CountedJob(), settings) as server, httpx.Client(base_url=server.url) as client:
        statuses = [
            client.get("/v1/jobs", headers={"authorization": f"Bearer guess-{n:030d}"}).status_code for n in range(60)
        ]
    assert set(statuses) == {401, 429}
    assert statuses.count(401) < 30


def test_a_token_does_not_reveal_states_outside_its_rights() -> None:
    job = CountedJob()
    job.commit()
    with QueryServer(job, ServerSettings(port=0, rights=rights("tot*"))) as server:
        url = f"{server.url}/v1/jobs/counts/states/totality/keys/a"
        refused = httpx.get(url, headers={"authorization": f"Bearer {TOKEN}"})
    assert refused.status_code == 404
    assert "totals" in refused.json()["message"] and "numbers" not in refused.json()["message"]


# --- Flight ---------------------------------------------------------------------------------------------------------

DAMAGED = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"\xffa"))
STRANGE_COLUMNS: dict[str, tuple[list[pa.Array], str]] = {
    "numbers for texts": ([pa.array([1, 2])], "key-type"),
    "lists for texts": ([pa.array([["a"]])], "key-type"),
    "rows for texts": ([pa.array([{"a": 1}])], "key-type"),
    "times that no calendar has": ([pa.array([10**14], pa.timestamp("s"))], "key-type"),
    "bytes that are no text": ([pa.array([b"\xff"])], "key-type"),
    "two columns": ([pa.array(["a"]), pa.array(["b"])], "bad-question"),
    "no column": ([], "bad-question"),
    "a text that is no UTF-8": ([DAMAGED], "bad-question"),
}


@pytest.mark.parametrize("name", STRANGE_COLUMNS)
def test_invalid_key_columns_end_the_call_with_a_message(child: Child, name: str) -> None:
    columns, code = STRANGE_COLUMNS[name]
    batch = pa.RecordBatch.from_arrays(columns, [f"c{n}" for n in range(len(columns))])
    with pytest.raises(flight.FlightServerError, match=rf"\[{code}\]"):
        child.flown("total", batch)


def test_a_decompression_bomb_is_rejected(child: Child) -> None:
    bomb = keys("a" * (256 << 20))
    with child.unharmed(), pytest.raises(pa.ArrowException, match="compressed"):
        child.flown("total", bomb, compression="zstd")


def test_an_expanding_dictionary_column_is_rejected(child: Child) -> None:
    indices = pa.array([0] * 2_000, pa.int32())
    bomb = pa.DictionaryArray.from_arrays(indices, pa.array(["a" * (1 << 20)]))
    with child.unharmed(), pytest.raises(flight.FlightServerError, match=r"once they are decoded.*\[too-large\]"):
        child.flown("total", pa.RecordBatch.from_arrays([bomb], ["key"]))


def test_repeated_requests_of_one_large_value_are_rejected_before_copying_it() -> None:
    settings = ServerSettings(port=0, flight_port=0, limits=Limits(answer_bytes_max=40 << 20))
    job = large_answers()
    with QueryServer(job, settings) as server, httpx.Client(base_url=f"{server.url}/v1/jobs/counts") as client:
        many = client.post("/states/untyped/keys", json={"keys": ["eve"] * 10_000}, timeout=20)
        assert many.status_code == 200 and len(many.json()["values"]) == 10_000
        job.commit(untyped={"eve": "a" * (1 << 20)})
        for answer in (
            client.post("/states/untyped/keys", json={"keys": ["eve"] * 10_000}, timeout=20),
            client.post("/read", json={"reads": [{"state": "untyped", "keys": ["eve"]}] * 50}, timeout=20),
            client.get("/states/totals/scan?prefix=eve", timeout=20),
        ):
            assert (answer.status_code, answer.json()["error"]) == (413, "too-large")
        assert job.newest().asked < 500


def test_an_answer_is_encoded_in_the_reader_thread_and_not_in_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    from millstream.query.server import application, watchers

    places: list[str] = []

    def noting(content: Any) -> bytes:
        places.append(threading.current_thread().name)
        return encoded(content)

    for module in (application, watchers):
        monkeypatch.setattr(module, "encoded", noting)
    with QueryServer(large_answers(), ServerSettings(port=0)) as server, httpx.Client(timeout=20) as client:
        states = f"{server.url}/v1/jobs/counts/states"
        for path in ("/totals/keys/ada", "/totals/scan?limit=5", "/totals/series/ada"):
            assert client.get(states + path).status_code == 200
        assert client.post(f"{states}/totals/keys", json={"keys": ["ada"]}).status_code == 200
        with client.stream("GET", f"{states}/totals/watch/ada") as stream:
            assert any(line.startswith("data") for line in stream.iter_lines())
    assert len(places) >= 6 and "query-server" not in places


def test_an_unread_flight_answer_is_aborted() -> None:
    settings = ServerSettings(port=0, flight_port=0, limits=Limits(unread_timeout_s=0.3))
    with QueryServer(large_answers(), settings) as server, flight.connect(server.flight_url) as client:
        answer = client.do_get(flight.Ticket(b'{"state": "totals", "prefix": "eve"}'))
        assert server._flight is not None
        passages, until_s = server._flight._gate.passages, time.monotonic() + ENOUGH_S
        while passages:
            assert time.monotonic() < until_s, "nobody hangs up"
            time.sleep(0.05)
        with pytest.raises((flight.FlightError, pa.ArrowException, OSError)):
            answer.read_all()
        names = flight.Ticket(b'{"state": "totals", "prefix": "bob"}')
        assert client.do_get(names).read_all().num_rows == 0


def test_flight_answers_being_sent_count_as_calls_until_received(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millstream.query.server.flight._CALLS_MAX", 3)
    large, small = (flight.Ticket(b'{"state": "totals", "prefix": "%s"}' % prefix) for prefix in (b"eve", b"bob"))
    settings = ServerSettings(port=0, flight_port=0)

    def rows_once_there_is_room(client: Any) -> int:
        until_s = time.monotonic() + 20
        while True:
            try:
                return int(client.do_get(small).read_all().num_rows)
            except flight.FlightUnavailableError:
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.05)

    with QueryServer(large_answers(), settings) as server, flight.connect(server.flight_url) as client:
        slow = [client.do_get(large) for _ in range(3)]
        for answer in slow:
            answer.read_chunk()  # it has begun
        with pytest.raises(flight.FlightUnavailableError, match="the maximum"):
            client.do_get(small).read_all()
        slow[0].cancel()
        assert rows_once_there_is_room(client) == 0
        assert slow[1].read_all().num_rows > 0
        slow[2].cancel()
        for _ in range(10):  # a received answer no longer counts
            assert rows_once_there_is_room(client) == 0


def test_a_state_name_longer_than_an_error_message_is_rejected_readably() -> None:
    settings = ServerSettings(port=0, flight_port=0)
    with (
        QueryServer(large_answers(), settings) as server,
        flight.connect(server.flight_url) as client,
        pytest.raises(flight.FlightServerError, match="name that is too long"),
    ):
        client.do_get(flight.Ticket(b'{"state": "%s"}' % (b"a" * 100_000))).read_all()


def test_guessing_tokens_over_flight_is_rate_limited() -> None:
    settings = ServerSettings(port=0, flight_port=0, rights=rights("*"), limits=Limits(requests_per_s=5))
    guess = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer guess")])
    said = []
    with QueryServer(CountedJob(), settings) as server:
        for _ in range(14):
            refused = pytest.raises((flight.FlightError, pa.ArrowException))
            with flight.connect(server.flight_url) as client, refused as caught:
                client.do_get(flight.Ticket(b"{}"), guess).read_all()
            said.append("no-token" in str(caught.value))
    assert any(said) and not all(said)


def test_equivalent_key_columns_are_accepted(child: Child) -> None:
    texts = pa.array(["a", None, "b"])
    for column in (texts, texts.dictionary_encode(), texts.cast(pa.large_string()), texts.cast(pa.string_view())):
        found = child.flown("total", pa.RecordBatch.from_arrays([column], ["key"]))
        assert found["value"].to_pylist() == [4, None, 2], column.type
    assert child.flown("total", keys()).num_rows == 0
    small = pa.RecordBatch.from_arrays([pa.array([3], pa.int8())], ["key"])
    assert child.flown("by-number", small)["found"].to_pylist() == [True]


STRANGE_TICKETS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "bad-question"),
    "half a JSON": (b"{", "bad-question"),
    "a number": (b"7", "bad-question"),
    "no text": (b"\xff", "bad-question"),
    "deep JSON": (b"[" * DEEP, "bad-question"),
    "a state that is no text": (b'{"state": 7}', "bad-question"),
    "a state that is no UTF-8": (b'{"state": "\\ud800"}', "unknown-state"),
    "a pickled state": (b'{"state": "anything"}', "pickled-state"),
    "windows": (b'{"state": "per-window", "keys": ["a"]}', "state-kind"),
    "more": (b'{"state": "total", "more": 1}', "bad-question"),
    "keys that are none": (b'{"state": "total", "keys": 7}', "bad-question"),
    "keys of another type": (b'{"state": "total", "keys": [7]}', "key-type"),
    "a key that is no UTF-8": (b'{"state": "total", "keys": ["\\ud800"]}', "bad-question"),
    "many digits": (b'{"state": "by-number", "keys": [%s]}' % (b"9" * 5_000), "bad-question"),
    "no number": (b'{"state": "by-number", "keys": [NaN]}', "key-type"),
    "keys of many types": (b'{"state": "by-pair", "keys": [["a", 1], 7, "x"]}', "bad-question"),
    "deep keys of any type": (b'{"state": "by-pair", "keys": [%s%s]}' % (b"[" * 300, b"]" * 300), "key-type"),
    "an epoch that is true": (b'{"state": "total", "epoch": true}', "bad-question"),
    "an epoch to come": (b'{"state": "total", "epoch": 99}', "too-old"),
    "a time that is a number": (b'{"state": "total", "time": 5}', "bad-question"),
    "no rows": (b'{"state": "total", "limit": 0}', "too-large"),
    "true rows": (b'{"state": "total", "limit": true}', "too-large"),
    "a prefix that is a number": (b'{"state": "total", "prefix": 7}', "bad-question"),
    "a prefix that is no UTF-8": (b'{"state": "total", "prefix": "\\ud800"}', "bad-question"),
    "two megabytes": (b'{"state": "total", "keys": [%s"a"]}' % (b'"a",' * 500_000), "too-large"),
    "forty megabytes": (b" " * (40 << 20), "too-large"),
}


@pytest.mark.parametrize("name", STRANGE_TICKETS)
def test_malformed_tickets_end_the_call_with_a_message(child: Child, name: str) -> None:
    ticket, code = STRANGE_TICKETS[name]
    refused = pytest.raises((flight.FlightError, pa.ArrowException), match=rf"\. .*\[{code}\]")
    with flight.connect(child.flight_url) as client, refused:
        client.do_get(flight.Ticket(ticket)).read_all()


OTHER_CALLS: dict[str, Callable[[flight.FlightClient], object]] = {
    "list_flights": lambda client: list(client.list_flights()),
    "get_flight_info": lambda client: client.get_flight_info(flight.FlightDescriptor.for_path("a")),
    "get_schema": lambda client: client.get_schema(flight.FlightDescriptor.for_path("a")),
    "do_action": lambda client: list(client.do_action("drop")),
    "list_actions": lambda client: client.list_actions(),
}


@pytest.mark.parametrize("name", OTHER_CALLS)
def test_unsupported_calls_list_the_supported_ones(child: Child, name: str) -> None:
    refused = pytest.raises((flight.FlightError, OSError), match="do_get or do_exchange")
    with flight.connect(child.flight_url) as client, refused:
        OTHER_CALLS[name](client)


def http2(*frames: tuple[int, int, int, bytes]) -> bytes:
    return b"".join(
        len(content).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + content
        for kind, flags, stream, content in frames
    )


GARBAGE: dict[str, bytes] = {
    "random bytes": Random(1).randbytes(5_000),
    "HTTP/1": b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n" * 3,
    "half a preface": PREFACE[:10],
    "nothing": b"",
    "random frames": PREFACE + Random(2).randbytes(50_000),
    "padded data": PREFACE + http2((4, 0, 0, b""), (1, 4, 1, b"\x82"), (0, 8, 1, b"\x01a\x00")),
    "many streams": PREFACE + http2((4, 0, 0, b""), *((1, 4, 2 * n + 1, b"\x82") for n in range(1_000))),
    "a frame that never ends": PREFACE + http2((4, 0, 0, b"")) + b"\xff\xff\xff\x01\x04\x00\x00\x00\x01" + bytes(100),
}


def test_garbage_on_the_flight_port_is_disconnected(child: Child) -> None:
    with child.unharmed():
        connections = []
        for data in GARBAGE.values():
            connection = socket.create_connection(child.flight_address, timeout=ENOUGH_S)
            connections.append(connection)
            with suppress(ConnectionError):
                connection.sendall(data)
        for name, connection in zip(GARBAGE, connections, strict=True):
            try:
                read_all(connection)
            except TimeoutError:
                pytest.fail(f"{name} is still connected")
            finally:
                connection.close()


def begun_call(client: flight.FlightClient) -> tuple[Any, Any]:
    """A call with one query, in which more may follow."""
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b'{"state": "total"}'))
    with suppress(pa.ArrowException, flight.FlightError):
        writer.begin(keys().schema)
        writer.write_batch(keys("a"))
    return writer, reader


def refusal_of(client: flight.FlightClient) -> str:
    writer, reader = begun_call(client)
    with pytest.raises((flight.FlightError, pa.ArrowException)) as caught:
        reader.read_all()
    with suppress(pa.ArrowException, flight.FlightError):
        writer.close()
    return str(caught.value)


def test_unfinished_calls_are_timed_out(child: Child) -> None:
    # More than are answered concurrently. They share a connection, which is closed with the first of them.
    with child.unharmed(), flight.connect(child.flight_url) as client, ThreadPoolExecutor(40) as pool:
        said = list(pool.map(refusal_of, [client] * 40))
    assert any("slow-request" in one for one in said), said


def test_clients_that_disconnect_during_a_call_leak_nothing(child: Child) -> None:
    with child.unharmed():
        for _ in range(20):
            with flight.connect(child.flight_url) as client:
                writer, reader = begun_call(client)
                reader.cancel()
                with suppress(pa.ArrowException, flight.FlightError):
                    writer.close()
