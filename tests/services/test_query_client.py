"""A client and several servers on this machine: keys are routed to their server; dead, slow or stale ones do no
harm.
"""

from __future__ import annotations

import hashlib
import math
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from inputs.nested_keys import nan_of
from programs.keyed import counted
from programs.queries_page import run_queries_page
from programs.queryable import keeping
from services.served_counts import CountedJob

from millstream import query
from millstream.checkpoint.job_record import claim
from millstream.common import Types
from millstream.query.client import NoServerError, QueryClient, QueryRefusedError
from millstream.query.client.discovery import in_order
from millstream.query.client.epoch_agreement import bodies_of, shares_of
from millstream.query.server import Limits, QueryServer, Reader, Rights, ServerSettings
from millstream.query.wire.servers import Registration, ServerPlace, register
from millstream.storage import Store, open_store
from millstream.testing import EPOCH, run

STORES = count()
LOW, HIGH = range(64), range(64, 128)
KEYS = [f"key {i}" for i in range(40)]
QUICK = Limits(min_epoch_wait_s=0.2)


def new_store(job: CountedJob) -> Store:
    store = open_store(f"memory://test-query-client-{next(STORES)}")
    claim(store, job.job, job_id=job.job_id, now_ms=0)
    return store


def serve(job: CountedJob, store: Store, groups: range | None = None, **more: Any) -> QueryServer:
    return QueryServer(job, ServerSettings(port=0, key_groups=groups, limits=QUICK, **more), store)


def counting(n: int = 1) -> CountedJob:
    job = CountedJob()
    for _ in range(n):
        job.commit(totals=dict.fromkeys(KEYS, len(job._epochs) + 1))
    return job


def test_a_key_is_requested_from_the_server_of_its_key_group() -> None:
    job = counting()
    store = new_store(job)
    with serve(job, store, LOW), serve(job, store, HIGH), QueryClient(store.url) as client:
        assert [client.get("totals", key).value for key in KEYS] == [1] * len(KEYS)
        answers = client.get_many("totals", [*KEYS, "nobody"])
        assert [answer.value for answer in answers] == [1] * len(KEYS) + [None]
        assert client.windows("open", "x").value[0]["end_ms"] == 10_000
        assert [answer.value for answer in client.series("totals", KEYS[0])] == [1]
        assert len(client.scan("totals", prefix="key 1", limit=5)) == 5


def test_many_keys_of_servers_at_different_epochs_belong_to_one_epoch() -> None:
    ahead, behind = counting(3), counting(2)
    store = new_store(ahead)
    with serve(ahead, store, LOW), serve(behind, store, HIGH), QueryClient(store.url) as client:
        answers = client.get_many("totals", KEYS)
        assert {(answer.epoch, answer.value) for answer in answers} == {(2, 2)}


def test_several_states_are_read_at_one_epoch_from_servers_at_different_epochs() -> None:
    ahead, behind = CountedJob(), CountedJob()
    for job, epochs in ((ahead, 3), (behind, 2)):
        for n in range(1, epochs + 1):
            job.commit(totals=dict.fromkeys(KEYS, n), numbers=dict.fromkeys(range(40), 10 * n), untyped={"u": 100 * n})
    store = new_store(ahead)
    questions = [("totals", KEYS), ("numbers", [3, 99]), ("totals", []), ("untyped", ["u"]), ("numbers", range(40))]
    with serve(ahead, store, LOW), serve(behind, store, HIGH), QueryClient(store.url) as client:
        totals, numbers, nothing, untyped, more = client.read(questions)
        assert [answer.value for answer in totals] == [2] * len(KEYS)
        assert [answer.value for answer in numbers] == [20, None]
        assert nothing == []
        assert [answer.value for answer in untyped] == [200]
        assert [answer.value for answer in more] == [20] * 40
        assert {answer.epoch for found in (totals, numbers, untyped, more) for answer in found} == {2}
        assert client.read(questions, epoch=1)[1][0].value == 10
        assert client.read([("totals", []), ("numbers", [])]) == [[], []]
        with pytest.raises(QueryRefusedError) as caught:
            client.read([("totals", KEYS), ("nope", ["x"])])
        assert caught.value.code == "unknown-state"


def test_keys_and_states_beyond_the_request_limit_are_split_into_several_requests() -> None:
    rows = [(0, f"{i}") for i in range(12_000)] + [(n, "x") for n in range(1, 250)]
    bodies = list(bodies_of([f"state {n}" for n in range(250)], rows))
    assert max(sum(len(read["keys"]) for read in body["reads"]) for body in bodies) == 5_000
    assert max(len(body["reads"]) for body in bodies) == 100
    asked = [(read["state"], key) for body in bodies for read in body["reads"] for key in read["keys"]]
    assert asked == [(f"state {n}", key) for n, key in rows]


def test_servers_of_halves_take_over_the_queries_of_a_server_of_all_keys() -> None:
    job = counting()
    store = new_store(job)
    whole = serve(job, store).start()
    with QueryClient(store.url, timeout_s=20) as client:
        assert client.get_many("totals", KEYS)[0].value == 1
        whole.stop()
        with serve(job, store, LOW), serve(job, store, HIGH):
            assert [answer.value for answer in client.get_many("totals", KEYS)] == [1] * len(KEYS)


def test_answers_never_go_backwards_at_a_lagging_server() -> None:
    ahead, behind = counting(3), counting(2)
    store = new_store(ahead)
    with serve(behind, store), QueryClient(store.url) as client:
        with serve(ahead, store):
            client._directory._refreshed_s = float("-inf")
            deadline = time.monotonic() + 60
            while client.epoch_seen < 3 and time.monotonic() < deadline:  # servers take turns
                client.get("totals", KEYS[0])
            assert {client.get("totals", KEYS[0]).epoch for _ in range(6)} == {3}
        threading.Timer(0.3, lambda: behind.commit(totals={KEYS[0]: 3})).start()
        assert client.get("totals", KEYS[0]).value == 3  # waits until the remaining server has reached this epoch


def test_a_dead_server_costs_no_answer() -> None:
    job = counting()
    store = new_store(job)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}"
    register(store, Registration.of("dead", job.job_id, dead, None, None, int(time.time() * 1000)))
    with serve(job, store), QueryClient(store.url) as client:
        assert [client.get("totals", KEYS[0]).value for _ in range(5)] == [1] * 5


def test_a_slow_server_is_hedged_by_another() -> None:
    slow, quick = counting(), counting()
    slow.newest().gate.clear()
    store = new_store(quick)
    with serve(slow, store), serve(quick, store), QueryClient(store.url, hedge_after_s=0.05) as client:
        assert [client.get("totals", KEYS[0]).value for _ in range(4)] == [1] * 4
        slow.newest().gate.set()


def test_a_client_closed_during_a_slow_request_releases_its_connections_afterwards() -> None:
    slow, quick = counting(), counting()
    slow.newest().gate.clear()
    store = new_store(quick)
    with serve(slow, store), serve(quick, store):
        client = QueryClient(store.url, hedge_after_s=0.05)
        for _ in range(2):  # servers take turns, so one of them was the slow one
            client.get("totals", KEYS[0])
        client.close()
        assert not client._requester._http.is_closed
        slow.newest().gate.set()
        deadline = time.monotonic() + 60
        while not client._requester._http.is_closed and time.monotonic() < deadline:
            time.sleep(0.01)
        assert client._requester._http.is_closed


def test_replacing_servers_one_after_the_other_loses_no_query() -> None:
    job = counting()
    store = new_store(job)
    stop, seen, failures = threading.Event(), [], []

    def read() -> None:
        last = 0
        with QueryClient(store.url) as client:
            while not stop.is_set():
                try:
                    answers = client.get_many("totals", KEYS[:10])
                    assert len({answer.epoch for answer in answers}) == 1
                    assert answers[0].value >= last
                    last = answers[0].value
                    seen.append(last)
                except Exception as error:
                    failures.append(error)
                    return

    servers = [serve(job, store, LOW).start(), serve(job, store, HIGH).start()]
    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for _ in range(2):
        for i, groups in enumerate((LOW, HIGH)):
            new = serve(job, store, groups).start()
            job.commit(totals=dict.fromkeys(KEYS, len(job._epochs) + 1))
            servers[i].stop()
            servers[i] = new
    deadline = time.monotonic() + 60
    while max(seen, default=0) < 5 and not failures and time.monotonic() < deadline:
        time.sleep(0.01)
    stop.set()
    for reader in readers:
        reader.join(60)
    for server in servers:
        server.stop()
    assert not failures
    assert max(seen) == 5


def test_one_address_is_enough_to_discover_all_servers() -> None:
    job = counting()
    store = new_store(job)
    with serve(job, store, LOW) as low, serve(job, store, HIGH), QueryClient([low.url]) as client:
        assert {answer.value for answer in client.get_many("totals", KEYS)} == {1}


def test_a_key_group_without_a_server_is_reported() -> None:
    job = counting()
    store = new_store(job)
    nobody = pytest.raises(NoServerError, match="that holds key group")
    with serve(job, store, LOW), QueryClient(store.url, timeout_s=2) as client, nobody:
        client.get_many("totals", KEYS)


def test_without_servers_the_error_explains_how_to_start_one() -> None:
    store = new_store(counting())
    with QueryClient(store.url, timeout_s=0.2) as client, pytest.raises(NoServerError, match="millstream query-server"):
        client.get("totals", "x")


def test_a_query_invalid_at_every_server_is_rejected_without_retries() -> None:
    job = counting()
    store = new_store(job)
    rights = Rights({hashlib.sha256(b"a-token-of-some-length").digest(): Reader("dash", ("tot*",))})
    with serve(job, store, rights=rights), QueryClient(store.url, token="a-token-of-some-length") as client:
        for state, key, code in (
            ("totale", "x", "unknown-state"),
            ("pairs", "x", "not-allowed"),
            ("totals", 7, "key-type"),
        ):
            with pytest.raises(QueryRefusedError) as caught:
                client.get(state, key)
            assert caught.value.code == code
        with QueryClient(store.url) as stranger, pytest.raises(QueryRefusedError, match="Authorization"):
            stranger.get("totals", "x")


def test_a_watch_continues_at_another_server() -> None:
    job = counting()
    store = new_store(job)
    first = serve(job, store).start()
    with serve(job, store), QueryClient(store.url) as client:
        answers = client.watch("totals", KEYS[0])
        assert next(answers).value == 1
        job.commit(totals={KEYS[0]: 2})
        assert next(answers).value == 2
        first.stop()
        job.commit(totals={KEYS[0]: 3})
        assert next(answers).value == 3


def test_earlier_epochs_are_queried_by_number() -> None:
    job = counting(3)
    store = new_store(job)
    with serve(job, store), QueryClient(store.url) as client:
        assert client.get("totals", KEYS[0]).epoch == 3
        assert client.get("totals", KEYS[0], epoch=1).value == 1
        assert {answer.value for answer in client.get_many("totals", KEYS, epoch=2)} == {2}
        assert client.get_many("totals", []) == []


def test_columns_of_keys_are_answered_by_all_servers_together_at_one_epoch() -> None:
    ahead, behind = counting(2), counting(3)
    store = new_store(ahead)
    keys = pa.array([*KEYS, "nobody"])
    low, high = (serve(job, store, groups, flight_port=0) for job, groups in ((ahead, LOW), (behind, HIGH)))
    with low, high, QueryClient(store.url) as client:
        table = client.get_columns("totals", keys)
        assert table["key"].to_pylist() == keys.to_pylist()
        epoch = int(table.schema.metadata[b"epoch"])
        assert set(table["value"].to_pylist()) == {epoch, None}
        assert client.epoch_seen == epoch
        with pytest.raises(QueryRefusedError) as caught:
            client.get_columns("things", keys)
        assert caught.value.code == "pickled-state"


def test_columns_cannot_be_requested_from_a_server_without_flight() -> None:
    job = counting()
    store = new_store(job)
    nobody = pytest.raises(NoServerError, match="--flight-port")
    with serve(job, store), QueryClient(store.url, timeout_s=2) as client, nobody:
        client.get_columns("totals", pa.array(KEYS))


# --- choosing a server: decisions -----------------------------------------------------------------------------------


def test_failed_servers_are_tried_last_and_not_dropped() -> None:
    places = [ServerPlace(name) for name in "abc"]
    order = in_order(places, [], {"a": 9.9, "b": 9.0}, 10.0, turn=0)
    assert [place.url for place in order] == ["c", "b", "a"]


def test_keys_are_distributed_to_as_few_servers_as_possible() -> None:
    places = [ServerPlace("low", 0, 63), ServerPlace("all"), ServerPlace("high", 64, 127)]
    assert shares_of([1, 99, 2], places) == [[0, 1, 2]]


# --- a real job -----------------------------------------------------------------------------------------------------


@contextmanager
def served(*story: Any) -> Iterator[QueryClient]:
    """A job that ran in memory, with its server."""
    name = f"test-query-client-{next(STORES)}"
    run(keeping(*story), store=name)
    view = query.open(f"memory://{name}", allow_undeclared=True)
    with (
        QueryServer(view, ServerSettings(port=0), view.store),
        QueryClient(f"memory://{name}") as client,
    ):
        yield client


@pytest.mark.parametrize("key_type", [None, Types.DOUBLE()], ids=repr)
def test_a_key_is_routed_and_looked_up_by_any_equal_value(key_type: Any) -> None:
    name, nan = f"test-query-client-{next(STORES)}", nan_of((0xFFF8 << 48) + 3)
    items = [(0.0,), (nan,), (7.0,), EPOCH, (-0.0,), (float("nan"),), (1,)]
    counted("process", items, key_type, 2, store=name)
    view, settings = query.open(f"memory://{name}"), ServerSettings(port=0, flight_port=0)
    with (
        QueryServer(view, replace(settings, key_groups=LOW), view.store),
        QueryServer(view, replace(settings, key_groups=HIGH), view.store),
        QueryClient(f"memory://{name}") as client,
    ):
        for keys in ([0, nan, 7], [-0.0, math.nan, 7.0]):
            assert [client.get("count", key).value for key in keys] == [2, 2, 1]
            assert [answer.value for answer in client.get_many("count", keys)] == [2, 2, 1]
            column = client.get_columns("count", pa.array(map(float, keys), pa.float64()))
            assert column.column("value").to_pylist() == [2, 2, 1]
        assert client.get("count", True if key_type is None else 1.0).value == 1


def test_answers_of_servers_match_those_of_the_library() -> None:
    with served(("a", 1), ("b", 2), EPOCH, ("a", 5), EPOCH) as client:
        kinds = {state.name: state.kind for state in client.states()}
        assert kinds["total"] == "value" and kinds["seen"] == "list"
        assert client.get("total", "a").value == 6
        assert client.get("total", "a", epoch=1).value == 1
        assert client.get("place", "a").value == {"name": "a", "visits": 5}
        assert client.get("seen", "a").value == [1, 5]
        assert client.get("names", "b").value == [[2, "2"]]
        assert [answer.value for answer in client.get_many("total", ["b", "nobody"])] == [2, None]
        assert [answer.value for answer in client.series("total", "a")][:2] == [1, 6]
        assert {row["key"]: row["value"] for row in client.scan("total")} == {"a": 6, "b": 2}
        with pytest.raises(QueryRefusedError) as caught:
            client.get("anything", "a")
        assert caught.value.code == "pickled-state"
        assert any("::" in state.name for state in client.states())


def test_the_pages_queries_of_values_and_open_windows_run() -> None:
    name = f"test-query-client-{next(STORES)}"
    page = run_queries_page(name)
    view = query.open(f"memory://{name}")
    with QueryServer(view, ServerSettings(port=0, key_groups=range(128)), view.store) as server:
        assert page["clicks_of"](f"memory://{name}", ["ann", "cy"]) == {"ann": 2, "cy": None}
        with QueryClient([server.url]) as client:
            (window,) = client.windows("spend-per-hour", "ann").value
            assert (window["start_ms"], window["result"]) == (0, {"spend": 50, "clicks": 2})
            assert client.get("last-click", "ann").value == {"user": "ann", "at": 9, "cents": 20}
            assert client.series("spend-per-hour", "ann")[0].value == [window]
            assert next(client.watch("spend-per-hour", "ann")).value == [window]


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_answers_until_it_is_stopped(tmp_path: Path) -> None:
    name = f"test-query-client-{next(STORES)}"
    run(keeping(("a", 1), EPOCH, ("a", 5), EPOCH), store=name)
    memory, folder = open_store(f"memory://{name}"), open_store(str(tmp_path))
    for file in memory.list(""):
        folder.put(file, memory.get(file))
    command = [
        sys.executable,
        "-m",
        "millstream.cli",
        "query-server",
        "--job",
        str(tmp_path),
        "--listen",
        "127.0.0.1:0",
        "--flight-port",
        "0",
        "--page",
        str(tmp_path / "page.html"),
    ]
    (tmp_path / "page.html").write_text("<title>clicks</title>")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().removeprefix("answering at ").partition(",")[0]
            assert server.stdout.readline().startswith("Arrow Flight at grpc://127.0.0.1:")
            with QueryClient([address]) as client:
                assert client.get("total", "a").value == 6
            assert httpx.get(address).text == "<title>clicks</title>"
            with QueryClient(str(tmp_path)) as client:
                assert client.get_columns("total", pa.array(["a", "b"]))["value"].to_pylist() == [6, None]
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    assert folder.list("servers") == []


def test_the_command_rejects_a_network_address_without_tokens(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "millstream.cli", "query-server", "--job", str(tmp_path), "--listen", "0.0.0.0:0"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "without tokens" in refused.stderr and "--allow-anonymous" in refused.stderr
