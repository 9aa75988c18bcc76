"""Every possible error of a query has a status, a code and a sentence that lists what exists and the next step. A
real job, its store on disk, a real server.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from programs.queryable import keeping

from millstream import query
from millstream.common import Types
from millstream.errors import StoreError
from millstream.query.client import NoServerError, QueryClient, QueryRefusedError
from millstream.query.server import QueryServer, ServerSettings, read_rights
from millstream.query.wire.servers import registrations_of
from millstream.storage import Store, open_store
from millstream.storage.local import LocalStore
from millstream.storage.names import MANIFESTS, manifest_name
from millstream.testing import EPOCH, run

STORES = count()
TOKEN = "0123456789abcdef"
VALUE = "/states/total/keys/a"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """The store of a finished job: `total` of key a is 1, 3 and 6 at epochs 1, 2 and 3."""
    name = f"query-bad-input-{next(STORES)}"
    run(keeping(("a", 1), EPOCH, ("a", 2), EPOCH, ("a", 3), key_type=Types.STRING()), store=name, job_name="clicks")
    memory, folder = open_store(f"memory://{name}"), open_store(str(tmp_path / "a-machine-s-own-folder"))
    for file in memory.list(""):
        folder.put(file, memory.get(file))
    return folder


@contextmanager
def served(store: Store, view: query.JobView | None = None, **settings: Any) -> Iterator[httpx.Client]:
    view = view or query.open(store.url)
    with (
        QueryServer(view, ServerSettings(port=0, **settings)) as server,
        httpx.Client(base_url=f"{server.url}/v1/jobs/clicks", timeout=20) as client,
    ):
        yield client


def refused(answer: httpx.Response, status: int, code: str, *words: str) -> None:
    """The response is this rejection, and contains nothing about this machine."""
    said = answer.json()
    assert (answer.status_code, said["error"]) == (status, code), said
    for word in words:
        assert word in said["message"], said
    assert "a-machine-s-own-folder" not in said["message"], said


# --- absent ---------------------------------------------------------------------------------------------------------


def test_an_unknown_job(store: Store) -> None:
    with served(store) as client:
        other = client.get(str(client.base_url).replace("clicks", "orders").rstrip("/") + VALUE)
        refused(other, 404, "unknown-job", "'orders'", "'clicks'", "query that")
    with pytest.raises(query.UnknownJobError, match="holds the job 'clicks', not 'orders'"):
        query.open(store.url, "orders")


def test_an_unknown_state(store: Store) -> None:
    with served(store) as client:
        refused(client.get("/states/totl/keys/a"), 404, "unknown-state", "Did you mean 'total'", "'seen'")
        asked = {"reads": [{"state": "total", "keys": ["a"]}, {"state": "nothing", "keys": ["a"]}]}
        refused(client.post("/read", json=asked), 404, "unknown-state", "'nothing'", "'total'")


def test_a_key_of_another_type(store: Store) -> None:
    with served(store) as client:
        number = client.get("/states/total/keys/7", params={"key_format": "json"})
        refused(number, 422, "key-type", "key 7 is a number", "STRING", "Send a string")


def test_a_key_group_that_no_replica_holds(store: Store) -> None:
    with served(store, key_groups=range(3)) as client:
        refused(client.get(VALUE), 421, "not-here", "key group 76", "0 to 2", "Query the server that holds it")
    view = query.open(store.url)
    with (
        QueryServer(view, ServerSettings(port=0, key_groups=range(3)), view.store),
        QueryClient(store.url, timeout_s=2) as asking,
    ):
        assert len(registrations_of(store)) == 1
        for ask in (lambda: asking.get("total", "a"), lambda: asking.get_many("total", ["a"])):
            with pytest.raises(NoServerError, match="no query server that holds key group 76"):
                ask()


# --- epochs ---------------------------------------------------------------------------------------------------------


def test_a_collected_epoch_and_a_future_one(store: Store) -> None:
    store.delete(manifest_name(1))
    with served(store) as client:
        gone = client.get(VALUE, params={"epoch": 1})
        refused(gone, 410, "epoch-gone", "no longer retains epoch 1", "it has 2-4", "millstream.retention.epochs")
        refused(client.get(VALUE, params={"epoch": 99}), 412, "too-old", "the newest epoch here is 4", "99")
        with QueryClient([str(client.base_url.copy_with(path="")).rstrip("/")]) as asking:
            with pytest.raises(QueryRefusedError) as caught:
                asking.get("total", "a", epoch=1)
            assert (caught.value.status, caught.value.code) == (410, "epoch-gone")


def test_a_time_in_the_future_and_one_before_all_retained_epochs(store: Store) -> None:
    with served(store) as client:
        ahead = client.get(VALUE, params={"time": "2999-01-01T00:00:00Z"})
        refused(ahead, 422, "ahead-of-clock", "ahead of this server's clock", "Correct the clock")
        before = client.get(VALUE, params={"time": "1969-12-31T00:00:00Z"})
        refused(before, 410, "epoch-gone", "the oldest is 1", "millstream.retention.epochs")
        refused(client.get(VALUE, params={"time": "yesterday"}), 422, "bad-question", "ISO 8601")


def test_a_client_with_a_wrong_clock_is_answered_like_any_other(store: Store) -> None:
    years_s = 30 * 365 * 86_400.0
    view = query.open(store.url)
    with QueryServer(view, ServerSettings(port=0), view.store):
        for wrong_s in (-years_s, years_s):
            with QueryClient(store.url, now_s=lambda wrong_s=wrong_s: wrong_s) as client:
                assert client.get("total", "a").value == 6


# --- the store ------------------------------------------------------------------------------------------------------


def test_a_store_without_a_job(tmp_path: Path) -> None:
    with pytest.raises(query.UnknownJobError, match="Open one store"):
        query.open(str(tmp_path))
    with pytest.raises(query.UnknownJobError, match="holds no job"):
        QueryClient(str(tmp_path)).get("total", "a")


def test_a_job_that_has_committed_nothing(store: Store) -> None:
    for file in store.list(MANIFESTS):
        store.delete(file)
    with served(store) as client:
        for path in (VALUE, f"{VALUE}?epoch=1", f"{VALUE}?time=1000", "/states"):
            answer = client.get(path)
            refused(answer, 503, "no-epoch", "committed nothing", "Query again later")
            assert answer.headers["retry-after"]


def test_a_store_that_is_emptied_under_a_server(store: Store) -> None:
    view = query.open(store.url)
    with served(store, view) as client:
        assert client.get(VALUE).json()["value"] == 6
        for file in store.list(""):
            store.delete(file)
        assert client.get(VALUE).json()["value"] == 6  # open snapshots stay correct
        refused(client.get(VALUE, params={"epoch": 2}), 410, "epoch-gone", "it has none")
        refused(client.get(VALUE, params={"time": "1000"}), 410, "epoch-gone", "it has none any more")


def test_a_manifest_that_is_cut_short(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    name = store.list(MANIFESTS)[-1]
    data = store.get(name)
    store.put(name, data[: len(data) // 2])
    with served(store) as client:
        refused(client.get(VALUE), 500, "store-damaged", "damaged or missing", "millstream verify")
        refused(client.get(VALUE), 500, "store-damaged")
        assert caplog.text.count("is damaged: it is cut short") == 1 and "intact epoch is 3" in caplog.text
        store.put(name, data)
        assert client.get(VALUE).json()["value"] == 6  # restored, it is read again


def test_a_truncated_newer_manifest_is_reported_to_every_client(store: Store) -> None:
    name = store.list(MANIFESTS)[-1]
    data = store.get(name)
    store.delete(name)
    with served(store) as client:
        assert client.get(VALUE, params={"key_format": "text"}).json()["epoch"] == 3
        store.put(name, data[: len(data) // 2])
        time.sleep(0.2)  # long ago, so that the folder's mtime shows any change
        answers = [client.get(VALUE, params={"key_format": "text"}) for _ in range(5)]
        assert {answer.status_code for answer in answers} == {500}
        store.put(name, data)
        assert client.get(VALUE, params={"key_format": "text"}).json()["epoch"] == 4


@pytest.mark.parametrize("harm", ["changed", "gone"])
def test_a_segment_that_is_damaged(store: Store, harm: str, caplog: pytest.LogCaptureFixture) -> None:
    for name in store.list("segments"):
        if harm == "gone":
            store.delete(name)
        else:
            store.put(name, store.get(name)[:-9] + b"not again")
    with served(store) as client:
        refused(client.get(VALUE), 500, "store-damaged", "damaged or missing", "millstream verify")
        assert "segment segments/" in caplog.text


class AwayStore(LocalStore):
    """A store that cannot be reached."""

    is_away = False

    def list(self, prefix: str) -> list[str]:
        if self.is_away:
            raise StoreError("the store is away")
        return super().list(prefix)


def test_an_unreachable_store(store: Store, tmp_path: Path) -> None:
    from millstream.query.job_lookup import open_store_of_job

    away = AwayStore(tmp_path / "a-machine-s-own-folder")
    view = open_store_of_job(away, lambda: 10_000)
    away.is_away = True
    with served(store, view) as client:
        answer = client.get(VALUE)
        refused(answer, 503, "store", "cannot be reached", "Try again")
        assert answer.headers["retry-after"]
        away.is_away = False
        assert client.get(VALUE).json()["value"] == 6
        away.is_away = True
        assert client.get(VALUE).json()["value"] == 6
        refused(client.get(VALUE, params={"epoch": 1}), 503, "store", "not in memory")


# --- clients --------------------------------------------------------------------------------------------------------


def test_a_missing_or_wrong_token_and_one_for_another_state(store: Store, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps({"dash": {"token": TOKEN, "states": ["seen"]}}))
    with served(store, rights=read_rights(tokens)) as client:
        refused(client.get(VALUE), 401, "no-token", "Authorization: Bearer TOKEN")
        for wrong in ("Bearer nobody-has-this-one", "Basic abc", "Bearer", f"Token {TOKEN}"):
            refused(client.get(VALUE, headers={"authorization": wrong}), 401, "no-token", "token")
        mine = {"authorization": f"Bearer {TOKEN}"}
        refused(client.get(VALUE, headers=mine), 403, "not-allowed", "token 'dash'", "It may read seen", "use another")
        assert client.get("/states/seen/keys/a", headers=mine).json()["value"] == [1, 2, 3]
        server = str(client.base_url.copy_with(path="")).rstrip("/")
        for token, status in ((None, 401), ("nobody-has-this-one", 401), (TOKEN, 403)):
            with QueryClient([server], token=token) as asking, pytest.raises(QueryRefusedError) as caught:
                asking.get("total", "a")
            assert caught.value.status == status
