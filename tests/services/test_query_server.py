"""A query server over real sockets on this machine: answers, rejections, robustness."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from services.served_counts import CountedJob

from millstream.errors import ConfigurationError, MillstreamError
from millstream.query.client import QueryClient
from millstream.query.server import Limits, QueryServer, Reader, Rights, ServerSettings, read_rights
from millstream.query.server.job_answers import JobAnswers
from millstream.query.server.rights import EVERYONE
from millstream.query.wire.refusals import TooLargeError
from millstream.query.wire.servers import registrations_of
from millstream.storage import open_store

NOW_MS = 10_000
TOKEN = "a-token-of-some-length"


def counted() -> CountedJob:
    job = CountedJob()
    job.commit(
        totals={"ada": 1, "a/b c": 7}, numbers={42: 5}, pairs={("a", 1): 3}, untyped={42: 1, "42": 2}, open={"x": 9}
    )
    return job


@contextmanager
def serving(job: CountedJob, **changes: Any) -> Iterator[httpx.Client]:
    settings = replace(ServerSettings(port=0, limits=Limits(min_epoch_wait_s=0.3)), **changes)
    with (
        QueryServer(job, settings, now_ms=lambda: NOW_MS) as server,
        httpx.Client(base_url=f"{server.url}/v1/jobs/counts", timeout=60) as client,
    ):
        yield client


def test_an_answer_has_job_state_epoch_watermark_commit_time_and_age() -> None:
    with serving(counted()) as client:
        assert client.get("/states/totals/keys/ada").json() == {
            "job": "counts",
            "job_id": "0f" * 16,
            "epoch": 1,
            "watermark": 5_000,
            "committed_ms": 1_000,
            "age_ms": 9_000,
            "state": "totals",
            "key": "ada",
            "found": True,
            "value": 1,
        }
        absent = client.get("/states/totals/keys/bob").json()
        assert (absent["found"], absent["value"]) == (False, None)


def test_keys_have_the_types_declared_by_the_state() -> None:
    with serving(counted()) as client:
        assert client.get("/states/totals/keys/a%2Fb%20c").json()["value"] == 7
        assert client.get("/states/numbers/keys/42").json()["value"] == 5
        assert client.get('/states/pairs/keys/["a",1]').json()["value"] == 3
        assert client.get("/states/untyped/keys/42").json()["value"] == 2
        assert client.get("/states/untyped/keys/42?key_format=json").json()["value"] == 1
        for path in ("numbers/keys/ada", f"numbers/keys/{2**70}", "pairs/keys/[1]", "pairs/keys/nope"):
            refused = client.get(f"/states/{path}")
            assert refused.status_code == 422, path
        assert client.get("/states/numbers/keys/ada").json()["error"] == "key-type"


def test_many_keys_and_several_states_are_read_at_one_epoch() -> None:
    with serving(counted()) as client:
        many = client.post("/states/totals/keys", json={"keys": ["ada", "bob"]}).json()
        assert (many["values"], many["found"], many["epoch"]) == ([1, None], [True, False], 1)
        both = {"reads": [{"state": "totals", "keys": ["ada"]}, {"state": "numbers", "keys": [42]}]}
        assert [one["values"] for one in client.post("/read", json=both).json()["reads"]] == [[1], [5]]


def test_windows_scans_and_series_are_answered() -> None:
    job = counted()
    job.commit(totals={"ada": 2})
    with serving(job) as client:
        windows = client.get("/states/open/windows/x").json()["windows"]
        assert windows == [{"start_ms": 0, "end_ms": 10_000, "result": 9, "is_accumulator": False}]
        scan = client.get("/states/totals/scan?limit=1").json()
        assert (scan["rows"], scan["is_cut"]) == ([{"key": "a/b c", "value": 7}], True)
        assert client.get("/states/totals/scan?prefix=ad").json()["rows"] == [{"key": "ada", "value": 2}]
        points = client.get("/states/totals/series/ada").json()["points"]
        assert [(point["epoch"], point["value"]) for point in points] == [(1, 1), (2, 2)]


def test_a_series_that_is_too_large_is_read_no_further() -> None:
    job, read = counted(), []

    def endless(state: str, key: Any) -> Iterator[tuple[int, int, Any]]:
        for epoch in range(1, 1_000):
            read.append(epoch)
            yield epoch, 0, "a" * 1_000

    job.points = endless  # type: ignore[method-assign]
    answers = JobAnswers(job, None, Limits(answer_bytes_max=10_000), lambda: NOW_MS)  # type: ignore[arg-type]
    with pytest.raises(TooLargeError, match="more than 10000 bytes"):
        answers.series(EVERYONE, "totals", "ada", "text")
    assert len(read) == 10


def test_earlier_epochs_are_queried_by_number_or_by_time() -> None:
    job = counted()
    job.commit(totals={"ada": 2})
    with serving(job) as client:
        path = "/states/totals/keys/ada"
        assert client.get(f"{path}?epoch=1").json()["value"] == 1
        assert client.get(f"{path}?time=1970-01-01T00:00:01.500Z").json()["value"] == 1
        assert client.get(f"{path}?time=2000").json()["value"] == 2
        assert client.get(f"{path}?epoch=9").status_code == 412
        ahead = client.get(f"{path}?time=9999999999999")
        assert ahead.status_code == 422 and "ahead of this server's clock" in ahead.json()["message"]
        assert client.get(f"{path}?time=soon").status_code == 422
        job.gone = 1
        gone = client.get(f"{path}?epoch=1")
        assert (gone.status_code, gone.json()["error"]) == (410, "epoch-gone")
        assert "It has 2 to 2" in gone.json()["message"]
        assert client.get(f"{path}?time=1500&epoch=1").status_code == 422


def test_an_epoch_is_sent_once_to_a_client_that_sends_its_etag() -> None:
    job = counted()
    with serving(job) as client:
        first = client.get("/states/totals/keys/ada")
        again = client.get("/states/totals/keys/ada", headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        job.commit(totals={"ada": 2})
        newer = client.get("/states/totals/keys/ada", headers={"if-none-match": first.headers["etag"]})
        assert (newer.status_code, newer.json()["value"]) == (200, 2)


def test_a_server_waits_briefly_for_a_requested_epoch_and_then_reports_its_newest() -> None:
    job = counted()
    with serving(job) as client:
        threading.Timer(0.1, lambda: job.commit(totals={"ada": 2})).start()
        assert client.get("/states/totals/keys/ada", headers={"if-min-epoch": "2"}).json()["value"] == 2
        old = client.get("/states/totals/keys/ada", headers={"if-min-epoch": "3"})
        assert (old.status_code, old.json()["error"], old.json()["epoch"]) == (412, "too-old", 2)


def test_each_invalid_query_has_a_status_and_a_message_that_lists_what_exists() -> None:
    with serving(counted()) as client:
        asked = {
            "/states/total/keys/ada": (404, "unknown-state", "It has: totals"),
            "/states/things/keys/ada": (406, "pickled-state", "Declare a type"),
            "/states/open/keys/x": (409, "state-kind", "windows"),
            "/states/totals/keys/ada?epoch=x": (422, "bad-question", "epoch"),
            "/states/totals/scan?limit=1000000": (413, "too-large", "10000 at most"),
            "/nothing": (404, "not-a-path", "/openapi.json"),
        }
        for path, (status, code, words) in asked.items():
            refused = client.get(path)
            assert (refused.status_code, refused.json()["error"]) == (status, code), path
            assert words in refused.json()["message"]
        other = client.get(str(client.base_url.copy_with(path="/v1/jobs/clicks")))
        assert (other.status_code, other.json()["error"]) == (404, "unknown-job")
        assert "'counts'" in other.json()["message"]


def test_a_job_without_a_commit_asks_to_retry_later() -> None:
    with serving(CountedJob()) as client:
        refused = client.get("/states/totals/keys/ada")
        assert (refused.status_code, refused.json()["error"]) == (503, "no-epoch")
        assert refused.headers["retry-after"] == "1"


def test_a_server_of_some_key_groups_reports_the_group_of_a_foreign_key() -> None:
    with serving(counted(), key_groups=range(64)) as client:
        answers = [client.get(f"/states/totals/keys/{name}") for name in "abcdefgh"]
        here = [one for one in answers if one.status_code == 200]
        foreign = [one for one in answers if one.status_code == 421]
        assert here and foreign and len(here) + len(foreign) == 8
        assert all(one.json()["key_group"] >= 64 for one in foreign)
        assert client.get(str(client.base_url).rstrip("/")).json()["held"] == [0, 63]


def test_a_watched_key_is_sent_only_when_it_changes() -> None:
    job = counted()
    with serving(job) as client, client.stream("GET", "/states/totals/watch/ada") as stream:
        lines = stream.iter_lines()

        def event() -> tuple[int, Any]:
            found = {}
            for line in lines:
                name, _, text = line.partition(": ")
                found[name] = text
                if not line and "data" in found:
                    return int(found["id"]), json.loads(found["data"])["value"]
            raise AssertionError("the stream ended")

        assert event() == (1, 1)
        job.commit(totals={"bob": 1})
        time.sleep(0.1)
        job.commit(totals={"ada": 2})
        assert event() == (3, 2)


def test_a_watch_of_an_absent_state_is_rejected_before_it_starts() -> None:
    with serving(counted(), limits=Limits(watchers_max=0)) as client:
        assert client.get("/states/nope/watch/ada").status_code == 404
        assert client.get("/states/totals/watch/ada").status_code == 429


def test_a_stopping_server_ends_its_watchers() -> None:
    server = QueryServer(counted(), ServerSettings(port=0)).start()
    with httpx.stream("GET", f"{server.url}/v1/jobs/counts/states/totals/watch/ada", timeout=60) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "retry: 1000"
        server.stop()
        assert list(lines)[-1] == ""


# --- authorisation ----------------------------------------------------------------------------------------------


def rights(*states: str) -> Rights:
    import hashlib

    return Rights({hashlib.sha256(TOKEN.encode()).digest(): Reader("dash", states)})


def test_tokens_grant_only_the_states_they_name() -> None:
    with serving(counted(), rights=rights("totals", "num*")) as client:
        mine = {"authorization": f"Bearer {TOKEN}"}
        missing = client.get("/states/totals/keys/ada")
        assert (missing.status_code, missing.headers["www-authenticate"]) == (401, "Bearer")
        assert client.get("/states/totals/keys/ada", headers={"authorization": "Bearer other"}).status_code == 401
        assert client.get("/states/totals/keys/ada", headers=mine).json()["value"] == 1
        for path in ("/states/pairs/keys/x", "/states/nope/keys/x", "/states/pairs/scan", "/states/pairs/watch/x"):
            refused = client.get(path, headers=mine)
            assert (refused.status_code, refused.json()["error"]) == (403, "not-allowed"), path
        both = {"reads": [{"state": "totals", "keys": ["ada"]}, {"state": "pairs", "keys": []}]}
        assert client.post("/read", json=both, headers=mine).status_code == 403
        listed = client.get("/states", headers=mine).json()["states"]
        assert [state["name"] for state in listed] == ["totals", "numbers"]


def test_an_etag_does_not_bypass_authorisation() -> None:
    with serving(counted(), rights=rights("numbers")) as client:
        mine = {"authorization": f"Bearer {TOKEN}"}
        tag = client.get("/states/numbers/keys/42", headers=mine).headers["etag"]
        refused = client.get("/states/totals/keys/ada", headers={**mine, "if-none-match": tag})
        assert refused.status_code == 403


def test_a_server_listening_on_the_network_requires_tokens() -> None:
    with pytest.raises(ConfigurationError, match="without tokens"):
        QueryServer(counted(), ServerSettings(host="0.0.0.0", port=0))


def test_a_page_of_another_site_cannot_reach_a_server_without_tokens_by_a_name_of_its_own() -> None:
    with serving(counted()) as client:
        assert client.get("/states", headers={"host": "evil.example"}).status_code == 400


def test_a_page_of_another_site_cannot_reach_an_open_server_of_the_network_either() -> None:
    with serving(counted(), host="0.0.0.0", allow_anonymous=True, advertised_host="127.0.0.1") as client:
        refused = client.get("/states", headers={"host": "evil.example"})
        assert refused.status_code == 400 and "--allow-host" in refused.json()["message"]
        assert client.get("/states").status_code == 200


def test_a_forwarded_client_address_is_accepted_only_from_a_trusted_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn's own trust settings are not ours

    def statuses(client: httpx.Client) -> list[int]:
        return [client.get("/states", headers={"x-forwarded-for": f"10.0.0.{n}"}).status_code for n in range(9)]

    slow = Limits(requests_per_s=0.001)
    with serving(counted(), limits=slow) as client:
        assert 429 in statuses(client)
    with serving(counted(), limits=slow, trusted_proxies=("127.0.0.1",)) as client:
        assert set(statuses(client)) == {200}


def test_revoking_a_token_ends_its_watches(tmp_path: Path) -> None:
    path, job = tmp_path / "tokens.json", counted()
    path.write_text(json.dumps({"a": {"token": TOKEN, "states": ["*"]}}))
    mine = {"authorization": f"Bearer {TOKEN}"}
    with serving(job, rights=read_rights(path)) as client:
        with client.stream("GET", "/states/totals/watch/ada", headers=mine) as stream:
            lines = stream.iter_lines()
            assert any(line.startswith("data: ") for line in lines)
            path.write_text(json.dumps({"a": {"token": TOKEN[::-1], "states": ["*"]}}))
            assert client.get("/states/totals/keys/ada", headers=mine).status_code == 401
            job.commit(totals={"ada": 2})
            rest = list(lines)
        assert "event: refused" in rest and not any('"value":' in line for line in rest), rest


def test_an_incomplete_token_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    for text in ("", "{}", '{"a": {"token": "short", "states": ["*"]}}', json.dumps({"a": {"token": TOKEN}})):
        path.write_text(text)
        with pytest.raises(ConfigurationError, match=r"tokens\.json"):
            read_rights(path)
    path.write_text(json.dumps({"a": {"token": TOKEN, "states": ["*"]}}))
    assert read_rights(path).reader_of(f"Bearer {TOKEN}").name == "a"


def certified(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    options = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    command = ["openssl", *options.split(), "-keyout", str(key), "-out", str(certificate)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no openssl to make a certificate with")
    return certificate, key


def test_traffic_is_encrypted_with_a_certificate(tmp_path: Path) -> None:
    certificate, key = certified(tmp_path)
    import ssl

    trusting = ssl.create_default_context(cafile=str(certificate))
    with QueryServer(
        counted(), ServerSettings(port=0, flight_port=0, certificate=certificate, private_key=key)
    ) as server:
        assert server.url.startswith("https://")
        path = f"{server.url}/v1/jobs/counts/states/totals/keys/ada"
        assert httpx.get(path, verify=trusting).json()["value"] == 1
        with flight.connect(server.flight_url, tls_root_certs=certificate.read_bytes()) as client:
            assert exchanged(client, {"state": "totals"}, NAMES)["value"].to_pylist() == [1, None]
        # A client that trusts it over HTTP, but has no authority for Flight, sends nothing there.
        with (
            QueryClient([server.url], verify=trusting, timeout_s=2) as client,
            pytest.raises(MillstreamError, match=r"CERTIFICATE_VERIFY_FAILED|certificate") as refusal,
        ):
            client.get_columns("totals", pa.array(["ada"]))
        assert server.flight_url.rpartition("//")[2] in str(refusal.value)
    with pytest.raises(ConfigurationError, match="no certificate"):
        QueryServer(counted(), ServerSettings(port=0, certificate=key, private_key=certificate)).start()


# --- limits -------------------------------------------------------------------------------------------------------


def test_too_many_keys_in_a_request_are_rejected() -> None:
    with serving(counted(), limits=Limits(keys_max=3)) as client:
        refused = client.post("/states/totals/keys", json={"keys": ["a"] * 4})
        assert (refused.status_code, refused.json()["error"]) == (413, "too-large")


def test_requests_over_the_rate_limit_are_rejected_with_a_wait_time() -> None:
    with serving(counted(), limits=Limits(requests_per_s=0.001)) as client:
        answers = [client.get("/states/totals/keys/ada") for _ in range(4)]
        assert answers[0].status_code == 200
        assert answers[-1].status_code == 429
        assert int(answers[-1].headers["retry-after"]) >= 1


def test_a_read_over_its_time_limit_is_aborted() -> None:
    job = counted()
    job.commit(is_slow=True)
    with serving(job, limits=Limits(request_timeout_s=2)) as client:
        refused = client.get("/states/totals/keys/ada")
        assert (refused.status_code, refused.json()["error"]) == (504, "too-slow")
        job.newest().gate.set()
        assert client.get("/states/totals/keys/ada").status_code == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"", b""), (b"GET /v1/jobs/counts HTTP/1.1\r\nhost: loc", b"408")],
    ids=["nothing", "half a head"],
)
def test_a_client_that_does_not_finish_its_request_is_disconnected(sent: bytes, status: bytes) -> None:
    with serving(counted(), limits=Limits(header_timeout_s=1)) as client:
        address = (client.base_url.host, client.base_url.port or 0)
        with socket.create_connection(address, timeout=60) as connection:
            connection.sendall(sent)
            assert connection.recv(1000).partition(b" ")[2][:3] == status
            assert connection.recv(1000) == b""
        assert client.get("/states/totals/keys/ada").status_code == 200


def test_a_body_sent_byte_by_byte_is_aborted() -> None:
    with serving(counted(), limits=Limits(request_timeout_s=0.3)) as client:
        address = (client.base_url.host, client.base_url.port or 0)
        with socket.create_connection(address, timeout=60) as connection:
            head = "POST /v1/jobs/counts/states/totals/keys HTTP/1.1\r\nhost: localhost\r\ncontent-length: 90\r\n\r\n{"
            connection.sendall(head.encode())
            assert b"408" in connection.recv(1000)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"keys": 7}', b'{"keys": [], "limit": 1}', b"\xff\xfe", b"[" * 5_000, b"null"]
)
def test_malformed_bodies_are_rejected_with_a_message(body: bytes) -> None:
    with serving(counted()) as client:
        refused = client.post("/states/totals/keys", content=body, headers={"content-type": "application/json"})
        assert refused.status_code in (400, 422)
        assert "/openapi.json" in refused.json()["message"]


# --- registration -------------------------------------------------------------------------------------------------


def test_a_server_is_registered_in_the_store_only_while_it_answers() -> None:
    store = open_store("memory://query-server-registered")
    with QueryServer(counted(), ServerSettings(port=0, key_groups=range(64)), store) as server:
        (found,) = registrations_of(store)
        assert (found.url, found.first_group, found.last_group) == (server.url, 0, 63)
    assert registrations_of(store) == []


def test_an_occupied_port_is_reported() -> None:
    with QueryServer(counted(), ServerSettings(port=0)) as server:
        port = int(server.url.rsplit(":", 1)[1])
        with pytest.raises(ConfigurationError, match="cannot be listened on"):
            QueryServer(counted(), ServerSettings(port=port)).start()


# --- Flight ---------------------------------------------------------------------------------------------------------


@contextmanager
def flying(job: CountedJob, **changes: Any) -> Iterator[flight.FlightClient]:
    with (
        QueryServer(job, replace(ServerSettings(port=0, flight_port=0), **changes)) as server,
        flight.connect(server.flight_url) as client,
    ):
        yield client


def exchanged(client: flight.FlightClient, question: object, keys: pa.RecordBatch, **options: Any) -> pa.Table:
    command = json.dumps(question).encode()
    writer, reader = client.do_exchange(
        flight.FlightDescriptor.for_command(command), flight.FlightCallOptions(**options)
    )
    with writer:
        writer.begin(keys.schema)
        writer.write_batch(keys)
        writer.done_writing()
        return reader.read_all()


NAMES = pa.RecordBatch.from_arrays([pa.array(["ada", "bob"])], ["key"])


def test_columns_of_keys_are_exchanged_for_columns_of_values_of_one_epoch() -> None:
    job = counted()
    job.commit(totals={"ada": 2})
    with flying(job) as client:
        table = exchanged(client, {"state": "totals"}, NAMES)
        assert table.to_pydict() == {"key": ["ada", "bob"], "found": [True, False], "value": [2, None]}
        assert table.schema.metadata[b"epoch"] == b"2"
        assert exchanged(client, {"state": "totals", "epoch": 1}, NAMES)["value"].to_pylist() == [1, None]
        ticket = flight.Ticket(json.dumps({"state": "totals", "keys": ["ada"]}).encode())
        assert client.do_get(ticket).read_all()["value"].to_pylist() == [2]
        scan = flight.Ticket(json.dumps({"state": "totals", "prefix": "ad"}).encode())
        assert client.do_get(scan).read_all().to_pydict() == {"key": ["ada"], "value": [2]}


def test_flight_requires_tokens_too() -> None:
    with flying(counted(), rights=rights("totals")) as client:
        with pytest.raises(flight.FlightUnauthenticatedError):
            exchanged(client, {"state": "totals"}, NAMES)
        mine = [(b"authorization", f"Bearer {TOKEN}".encode())]
        assert exchanged(client, {"state": "totals"}, NAMES, headers=mine)["value"].to_pylist() == [1, None]
        with pytest.raises(flight.FlightUnauthorizedError):
            exchanged(client, {"state": "untyped"}, NAMES, headers=mine)


def test_flight_limits_the_keys_of_a_call() -> None:
    too_many = pytest.raises((flight.FlightError, pa.ArrowException), match="more than 1 keys")
    with flying(counted(), limits=Limits(flight_keys_max=1)) as client, too_many:
        exchanged(client, {"state": "totals"}, NAMES)
