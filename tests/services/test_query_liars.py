"""Servers that a client must not trust, or send its token to: of another job, of none, at an unconfigured address."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from services.served_counts import CountedJob
from services.test_query_server import TOKEN, rights

from millstream.checkpoint.job_record import claim
from millstream.checkpoint.leases import system_ms
from millstream.errors import ConfigurationError
from millstream.query.client import NoServerError, QueryClient
from millstream.query.server import Limits, QueryServer, ServerSettings
from millstream.query.wire.servers import Registration, register
from millstream.storage import Store, open_store

STORES = count()


def counting() -> CountedJob:
    job = CountedJob()
    job.commit(totals={"ada": 1, "eve": "a" * 3_000}, untyped={f"k{n}": "a" * 3_000 for n in range(40)})
    return job


def store_of(job: CountedJob) -> Store:
    store = open_store(f"memory://test-query-liars-{next(STORES)}")
    claim(store, job.job, job_id=job.job_id, now_ms=0)
    return store


def registered(store: Store, job: CountedJob, url: str, flight_url: str | None = None) -> None:
    register(store, Registration.of(f"{next(STORES):016x}", job.job_id, url, flight_url, None, system_ms()))


@contextmanager
def liar(answer: bytes, kind: str = "application/json") -> Iterator[tuple[int, list[str | None]]]:
    """A server with one response for all requests; returns its port, and the tokens it received."""
    tokens: list[str | None] = []

    class Liar(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(self.headers.get("authorization"))
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET  # noqa: N815 - as the library calls it

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Liar) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, tokens
        finally:
            server.shutdown()
            thread.join()


def answer(**changes: Any) -> bytes:
    facts = {"job": "counts", "job_id": "0f" * 16, "epoch": 9, "watermark": None, "committed_ms": 5, "age_ms": 2}
    return json.dumps({**facts, "state": "totals", "key": "ada", "found": True, "value": 666, **changes}).encode()


LIES: dict[str, bytes] = {
    "of another job": answer(job_id="ab" * 16),
    "of no job": json.dumps({"epoch": 9, "value": 666}).encode(),
    "without an epoch": answer(epoch="9"),
    "of an epoch that never comes": answer(epoch=10**15),
    "without a value": answer(value=None)[:-14] + b"}",
    "no object": b"[666]",
    "no JSON": b"<html>",
    "deep": b'{"value":' * 50_000,
    "nothing": b"",
}


@pytest.mark.parametrize("name", LIES)
def test_a_foreign_answer_is_rejected_and_another_server_is_queried(name: str) -> None:
    job = counting()
    store = store_of(job)
    with liar(LIES[name]) as (port, asked), QueryServer(job, ServerSettings(port=0), store):
        registered(store, job, f"http://127.0.0.1:{port}")
        with QueryClient(store.url) as client:
            for _ in range(3):
                assert client.get("totals", "ada").value == 1
            assert client.get_many("totals", ["ada", "bob"])[0].value == 1
            assert next(client.watch("totals", "ada")).value == 1
            assert client.epoch_seen == 1
    assert asked, "it was its turn"


def test_foreign_answers_of_all_servers_are_reported() -> None:
    job = counting()
    store = store_of(job)
    with liar(answer(job_id="ab" * 16)) as (port, _):
        registered(store, job, f"http://127.0.0.1:{port}")
        with QueryClient(store.url, timeout_s=2) as client, pytest.raises(NoServerError, match="it answers for job"):
            client.get("totals", "ada")


def test_a_token_is_not_sent_to_a_merely_registered_address() -> None:
    job = counting()
    store = store_of(job)
    with liar(answer()) as (port, tokens):
        registered(store, job, f"http://0.0.0.0:{port}", f"grpc://0.0.0.0:{port}")
        with QueryClient(store.url, token=TOKEN, timeout_s=2) as client:
            for ask in (
                lambda: client.get("totals", "ada"),
                lambda: client.get_many("totals", ["ada"]),
                lambda: next(client.watch("totals", "ada")),
                lambda: client.get_columns("totals", pa.array(["ada"])),
                client.states,
            ):
                with pytest.raises(ConfigurationError, match=r"allow_hosts=\['0\.0\.0\.0'\]"):
                    ask()
        assert tokens == []
        with QueryClient(store.url, token=TOKEN, allow_hosts=["0.0.0.0"]) as client:
            assert client.get("totals", "ada").value == 666
        assert tokens == [f"Bearer {TOKEN}"]
        with QueryClient(store.url) as client:
            assert client.get("totals", "ada").value == 666, "without a token there is none to lose"
        assert tokens[-1] is None


def test_a_token_is_sent_to_configured_servers_over_http_and_flight() -> None:
    job = counting()
    with (
        QueryServer(job, ServerSettings(port=0, flight_port=0, rights=rights("*")), store_of(job)) as server,
        QueryClient([server.url], token=TOKEN) as client,
    ):
        assert client.get("totals", "ada").value == 1
        assert client.get_columns("numbers", pa.array([1]))["found"].to_pylist() == [False]


class LyingFlight(flight.FlightServerBase):  # type: ignore[misc]
    """Answers every query with the same batch and metadata."""

    def __init__(self, batch: pa.RecordBatch, **facts: Any) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._batch = batch.replace_schema_metadata({name: json.dumps(value) for name, value in facts.items()})

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        reader.read_chunk()
        writer.begin(self._batch.schema)
        writer.write_batch(self._batch)


FACTS = {"job": "counts", "job_id": "0f" * 16, "epoch": 9, "watermark": None, "committed_ms": 5, "age_ms": 2}
ROW = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([True]), pa.array([666])], ["key", "found", "value"])
FLIGHT_LIES: dict[str, tuple[pa.RecordBatch, dict[str, Any]]] = {
    "of another job": (ROW, {**FACTS, "job_id": "ab" * 16}),
    "of no job": (ROW, {}),
    "without an epoch": (ROW, {**FACTS, "epoch": "nine"}),
    "too many rows": (pa.concat_batches([ROW, ROW]), FACTS),
    "other columns": (ROW.select(["key", "value"]), FACTS),
}


@pytest.mark.parametrize("name", FLIGHT_LIES)
def test_a_foreign_answer_is_rejected_over_flight_too(name: str) -> None:
    job, (batch, facts) = counting(), FLIGHT_LIES[name]
    store = store_of(job)
    with LyingFlight(batch, **facts) as lying, QueryServer(job, ServerSettings(port=0, flight_port=0), store):
        registered(store, job, "http://127.0.0.1:1", f"grpc://127.0.0.1:{lying.port}")
        with QueryClient(store.url) as client:
            for _ in range(3):
                assert client.get_columns("numbers", pa.array([1]))["found"].to_pylist() == [False]


def test_values_too_large_for_one_answer_are_requested_in_several() -> None:
    job = counting()
    names = [f"k{n}" for n in range(40)]
    settings = ServerSettings(port=0, limits=Limits(answer_bytes_max=20_000))
    with QueryServer(job, settings) as server, QueryClient([server.url]) as client:
        assert {len(one.value) for one in client.get_many("untyped", names)} == {3_000}


def test_an_answer_of_another_epoch_than_requested_is_rejected() -> None:
    job = counting()
    for _ in range(3):
        job.commit(totals={"ada": 5})
    store = store_of(job)
    with liar(answer(epoch=2, value=1)) as (port, asked), QueryServer(job, ServerSettings(port=0), store):
        with QueryClient(store.url) as client:
            assert client.get("totals", "ada").epoch == 4
        registered(store, job, f"http://127.0.0.1:{port}")
        with QueryClient(store.url) as client:
            client._epoch_seen = 4
            assert {client.get("totals", "ada").epoch for _ in range(4)} == {4}
            assert asked, "the server that has not come so far is asked, and not believed"
        with QueryClient(store.url) as client:
            assert {client.get("totals", "ada", epoch=3).epoch for _ in range(4)} == {3}


@contextmanager
def dripping(head: bytes) -> Iterator[int]:
    """A server that keeps sending its response, a byte now and then, without end: its port."""
    stopping = threading.Event()

    def answer_one(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65_536)
            connection.sendall(head)
            while not stopping.wait(0.02):
                connection.sendall(b" ")

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=answer_one, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=200) as listening:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listening.getsockname()[1]
        finally:
            stopping.set()
            listening.shutdown(socket.SHUT_RDWR)


DRIPS = {
    "a body": b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n",
    "a head": b"HTTP/1.1 200 OK\r\nx-endless: ",
    "a refusal": b"HTTP/1.1 404 Not Found\r\ncontent-length: 100000000\r\n\r\n",
}


@pytest.mark.parametrize("part", DRIPS)
def test_an_endless_response_does_not_occupy_a_client_thread_forever(part: str) -> None:
    job = counting()
    store = store_of(job)
    with dripping(DRIPS[part]) as port, QueryServer(job, ServerSettings(port=0), store):
        registered(store, job, f"http://127.0.0.1:{port}")
        with QueryClient(store.url, timeout_s=3.0, hedge_after_s=0.01) as client:
            for _ in range(80):  # servers take turns, and a client has 32 threads
                client._directory._failed_s.clear()
                assert client.get("totals", "ada").value == 1


@pytest.mark.parametrize("part", DRIPS)
def test_an_endless_response_of_a_configured_server_is_aborted(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.query.client.discovery._REQUEST_S", 0.2)
    with dripping(DRIPS[part]) as port, QueryClient([f"http://127.0.0.1:{port}"], timeout_s=0.2) as client:
        with pytest.raises(NoServerError):
            client.get("totals", "ada")
        with pytest.raises(NoServerError):
            next(client.watch("totals", "ada"))
