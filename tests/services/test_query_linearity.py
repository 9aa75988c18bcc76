"""Answers never go backwards: a job counts, crashes, is restarted at another parallelism, and its query servers are
replaced one after the other, while clients query. For every client the counts of a key never decrease, all keys of an
answer belong to one epoch, and the last answer matches the input. A seed determines the events.

`tests/kill/test_kill_queries.py` does the same with processes, on a real Spark. This module adds rare events: servers
that lag, and that die without unregistering.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import httpx
import pyarrow as pa
import pytest
from programs.queryable import keeping
from services.served_counts import CountedJob

from millstream import query
from millstream.checkpoint.job_record import claim
from millstream.common import Types
from millstream.query.client import QueryClient
from millstream.query.server import QueryServer, ServerSettings
from millstream.query.wire.servers import register
from millstream.storage import Store, open_store
from millstream.testing import CRASH, EPOCH, run

# FastAPI silences this warning while it creates a server, process-wide: not thread-safe.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.UnsupportedFieldAttributeWarning")

STORES = count()
KEYS = [f"key {i}" for i in range(6)]
ROUNDS = 12
RANGES = (range(64), range(64, 128))


def server(store: str, groups: range | None) -> QueryServer:
    view = query.open(f"memory://{store}")
    return QueryServer(view, ServerSettings(port=0, key_groups=groups), view.store)


class Reader(threading.Thread):
    """A client that queries repeatedly, and records errors."""

    def __init__(self, store: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._store, self._halt = store, stop
        self.wrong: list[object] = []
        self.answers = 0

    def run(self) -> None:
        last = [0] * len(KEYS)
        with QueryClient(f"memory://{self._store}", timeout_s=60) as client:
            while not self._halt.is_set() and not self.wrong:
                try:
                    found = client.get_many("total", KEYS)
                except Exception as error:
                    self.wrong.append(error)
                    return
                counts = [answer.value or 0 for answer in found]
                if len({answer.epoch for answer in found}) != 1 or any(
                    a < b for a, b in zip(counts, last, strict=True)
                ):
                    self.wrong.append((last, found))
                if len(set(counts)) != 1:  # every epoch counts each key once
                    self.wrong.append(counts)
                last = counts
                self.answers += 1


@contextmanager
def replaced(store: str, choice: random.Random) -> Iterator[None]:
    """Servers of two halves, or of all, that are replaced in turn, the new one first."""
    stop = threading.Event()
    servers = [server(store, groups).start() for groups in RANGES]

    def roll() -> None:
        while not stop.wait(choice.random() / 4):
            i = choice.randrange(2)
            new = server(store, choice.choice([RANGES[i], None])).start()
            servers[i].stop()
            servers[i] = new

    rolling = threading.Thread(target=roll, daemon=True)
    rolling.start()
    try:
        yield
    finally:
        stop.set()
        rolling.join(60)
        for one in servers:
            one.stop()


def final_totals(store: str) -> list[Any]:
    """The final answers of a new client: a server polls for epochs every few ms, so the first may be older."""
    deadline = time.monotonic() + 60
    with QueryClient(f"memory://{store}") as client:
        while True:
            found = [answer.value for answer in client.get_many("total", KEYS)]
            if found == [ROUNDS] * len(KEYS) or time.monotonic() > deadline:
                return found
            time.sleep(0.01)


@pytest.mark.parametrize("seed", range(3))
def test_answers_never_go_backwards_through_crashes_rescales_and_replaced_servers(seed: int) -> None:
    choice = random.Random(seed)
    items: list[Any] = []
    for _ in range(ROUNDS):
        items += [(key, 1) for key in choice.sample(KEYS, len(KEYS))] + [EPOCH] + [CRASH] * (choice.random() < 0.2)
    store = f"test-query-linearity-{seed}"
    build = keeping(*items, key_type=Types.STRING())
    run(build, store=store, epochs=1)
    stop = threading.Event()
    readers = [Reader(store, stop) for _ in range(3)]
    with replaced(store, choice):
        for reader in readers:
            reader.start()
        for stops in (3, 4):
            run(build, store=store, parallelism=choice.randint(1, 4), epochs=stops)
        run(build, store=store, parallelism=choice.randint(1, 4))
        assert final_totals(store) == [ROUNDS] * len(KEYS)
        stop.set()
        for reader in readers:
            reader.join(60)
    assert [reader.wrong for reader in readers] == [[], [], []]
    assert all(reader.answers for reader in readers)


# --- lagging and dead servers -----------------------------------------------------------------------------------


def counted(epochs: int) -> CountedJob:
    job = CountedJob()
    for number in range(1, epochs + 1):
        job.commit(totals=dict.fromkeys(KEYS, number))
    return job


def registered(job: CountedJob, store: Store, groups: range | None = None) -> QueryServer:
    return QueryServer(job, ServerSettings(port=0, flight_port=0, key_groups=groups), store)


def new_store() -> Store:
    store = open_store(f"memory://test-query-linearity-lag-{next(STORES)}")
    claim(store, CountedJob.job, job_id=CountedJob.job_id, now_ms=0)
    return store


def test_a_dead_server_of_all_keys_does_not_prevent_servers_of_halves_from_answering() -> None:
    job, store = counted(2), new_store()
    with registered(job, store) as dead:
        gone = dead._registration()
    register(store, gone)  # like one that was killed
    with registered(job, store, RANGES[0]), registered(job, store, RANGES[1]):
        for _ in range(2):
            with QueryClient(store.url, timeout_s=60) as client:
                assert [answer.value for answer in client.get_many("totals", KEYS)] == [2] * len(KEYS)
            with QueryClient(store.url, timeout_s=60) as client:
                assert client.get_columns("totals", pa.array(KEYS))["value"].to_pylist() == [2] * len(KEYS)


def test_a_new_watch_receives_nothing_older_than_earlier_answers() -> None:
    ahead, behind, store = counted(3), counted(2), new_store()
    with QueryClient(store.url, timeout_s=60) as client, registered(behind, store):
        with registered(ahead, store):
            while client.epoch_seen < 3:
                client.get("totals", KEYS[0])
        threading.Timer(0.5, lambda: behind.commit(totals={KEYS[0]: 3})).start()
        told = client.watch("totals", KEYS[0])
        assert next(told).value == 3
        told.close()


def test_a_watch_resumed_at_a_lagging_server_receives_nothing_older() -> None:
    behind, store = counted(1), new_store()
    with registered(behind, store) as server, httpx.Client(trust_env=False) as http:
        url = f"{server.url}/v1/jobs/counts/states/totals/watch/{KEYS[0]}"
        for number in (2, 3, 4):
            threading.Timer(0.4 * number, lambda n=number: behind.commit(totals={KEYS[0]: n})).start()
        with http.stream("GET", url, headers={"last-event-id": "3"}, timeout=20) as response:
            told = next(line for line in response.iter_lines() if line.startswith("id: "))
    assert told == "id: 4"
