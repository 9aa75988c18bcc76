"""Statements of untrusted clients run in child processes: they can crash, fill or slow only their own process, not the
job.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from waits.live_answers import eventually

from millstream import query
from millstream.query.server import Limits, QueryServer, Reader, Rights, ServerSettings
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

YEARS = f"SELECT REGEXP_EXTRACT('{'a' * 60}!', '(a+)+$', 0)"
COUNT = "SELECT COUNT(*) FROM counts"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    """The store of a finished job with a table of 100 rows."""
    with jobs_in_memory():
        env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        env.get_config().set("millstream.store", str(tmp_path / "store"))
        env.get_config().set("pipeline.name", "clicks")
        env.execute_sql(
            "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
            "'fields.n.start' = '1', 'fields.n.end' = '100')"
        )
        env.execute_sql(
            "CREATE TABLE counts (n BIGINT NOT NULL, PRIMARY KEY (n) NOT ENFORCED) WITH ('connector' = 'state')"
        )
        env.execute_sql("INSERT INTO counts SELECT n FROM numbers").wait()
        yield str(tmp_path / "store")


@contextmanager
def server_and_client(store: str, rights: Rights | None = None, **limits: float) -> Iterator[httpx.Client]:
    """A server of the job, and a client of it."""
    settings = ServerSettings(port=0, rights=rights, limits=Limits(**limits))  # type: ignore[arg-type]
    with (
        QueryServer(query.open(store), settings) as server,
        httpx.Client(base_url=f"{server.url}/v1/jobs/clicks", timeout=60) as client,
    ):
        yield client


def answer(client: httpx.Client, statement: str) -> httpx.Response:
    return client.post("/sql", json={"statement": statement})


def children() -> set[int]:
    """The child processes that run statements."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = re.search(r"^PPid:\s*(\d+)", (path / "status").read_text(), re.MULTILINE)
            command = (path / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended in the meantime
        if parent and int(parent[1]) == os.getpid() and b"statement_worker" in command:
            found.add(int(path.name))
    return found


def test_a_catastrophic_pattern_does_not_block_other_clients(store: str) -> None:
    with server_and_client(store, request_timeout_s=5.0) as client:
        eventually(lambda: answer(client, COUNT).status_code, lambda status: status == 200)
        before = children()  # two on a busy machine, where an earlier attempt may have exceeded the time limit
        # In this process it would hold the GIL, and no request would be answered.
        assert answer(client, YEARS).status_code == 504
        eventually(children, lambda now: before - now)
        eventually(lambda: answer(client, COUNT).status_code, lambda status: status == 200)
    assert not children(), "a child outlives its server"


def test_slow_statements_do_not_delay_key_lookups(store: str) -> None:
    with (
        server_and_client(store, request_timeout_s=8.0, reads_at_once_max=4) as client,
        ThreadPoolExecutor(12) as strangers,
    ):
        eventually(lambda: answer(client, COUNT).status_code, lambda status: status == 200)
        statements = [strangers.submit(answer, client, YEARS) for _ in range(12)]
        eventually(lambda: len(children()), lambda count: count == 2)
        assert client.get("/states").status_code == 200  # it is read on a thread, like everything without a fast path
        assert not any(statement.done() for statement in statements)
        assert {statement.result().status_code for statement in statements} == {504}


def test_a_huge_text_exhausts_only_the_childs_memory(store: str) -> None:
    with server_and_client(store, request_timeout_s=50.0, answer_bytes_max=50_000) as client:
        # Ten columns of half a gigabyte each; a single text of that size is rejected earlier.
        columns = ", ".join(f"RPAD(CAST(n AS STRING), 5000000, '{letter}')" for letter in "abcdefghij")
        told = answer(client, f"SELECT {columns} FROM counts")
        assert told.status_code == 413 and "exceeded the limit of memory" in told.json()["message"], told.json()
        told = answer(client, "SELECT RPAD('x', 1000, 'y') FROM counts")
        assert told.status_code == 413 and "more than 50000 bytes" in told.json()["message"]
        assert answer(client, COUNT).json()["rows"] == [[100]]


def test_an_answer_is_limited_by_its_encoded_size(store: str) -> None:
    with server_and_client(store, request_timeout_s=50.0, answer_bytes_max=50_000) as client:
        # A hundred texts of 100 characters, which JSON encodes as six bytes each; as columns they take 10,000 bytes.
        told = answer(client, "SELECT REPEAT(CHR(1), 100), n FROM counts")
        assert told.status_code == 413 and "more than 50000 bytes" in told.json()["message"]
        few = answer(client, "SELECT REPEAT(CHR(1), 10), n FROM counts")
        assert sorted(few.json()["rows"]) == [["\1" * 10, n] for n in range(1, 101)]


def test_the_rows_of_an_answer_are_passed_on_as_bytes(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    loads = json.loads

    def watched(text: str | bytes) -> object:
        opened.append(len(text))
        return loads(text)

    monkeypatch.setattr("millstream.table.operations.statement_processes.json.loads", watched)
    with server_and_client(store, request_timeout_s=50.0) as client:
        body = answer(client, "SELECT REPEAT('x', 100000), n FROM counts").content
    assert len(body) > 10_000_000 and max(opened) < 10_000


def test_a_child_process_of_a_large_server_is_reused(store: str) -> None:
    with server_and_client(store, request_timeout_s=50.0) as client:
        ballast = b"x" * 1_200_000_000
        assert answer(client, COUNT).status_code == 200
        before = children()
        del ballast
        assert answer(client, COUNT).status_code == 200 and len(before) == 1 and children() == before


def test_a_slowly_starting_child_process_serves_the_next_statement(store: str) -> None:
    # No process starts this fast. If every statement started a new one, none would ever be answered.
    with server_and_client(store, request_timeout_s=0.4) as client:
        first = answer(client, COUNT)
        assert first.status_code in (504, 200)
        eventually(lambda: answer(client, COUNT).status_code, lambda status: status == 200)
        assert len(children()) <= 2


def test_an_unauthorised_statement_uses_no_child_process(store: str) -> None:
    token = "a-token-of-some-length"
    rights = Rights({hashlib.sha256(token.encode()).digest(): Reader("dash", ("other",))})
    with server_and_client(store, rights, request_timeout_s=50.0) as client:
        client.headers["authorization"] = f"Bearer {token}"
        assert answer(client, "SELECT 1").status_code == 200
        before = children()
        for table in ("counts", "nowhere"):
            told = answer(client, f"SELECT * FROM {table}")
            assert told.status_code == 403 and "may not read" in told.json()["message"]
        assert children() == before and len(before) == 1


def test_an_error_names_neither_the_store_nor_a_line_of_the_server(store: str) -> None:
    with server_and_client(store, request_timeout_s=50.0) as client:
        for statement, status, words in (
            ("SELECT n FROM counts FOR SYSTEM_TIME AS OF 4711", 503, "job 'clicks' has no epoch 4711"),
            ("SELECT 1 / (n - n) FROM counts", 422, "division by zero"),
            ("SELECT nothing FROM counts", 422, "Column 'nothing' not found"),
            ("SELECT n FROM nowhere", 422, "not found"),
        ):
            told = answer(client, statement)
            assert told.status_code == status and words in told.json()["message"], told.text
            assert store not in told.text and ".py" not in told.text


def test_epochs_of_answers_by_children_and_server_never_decrease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with jobs_in_memory():
        env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        env.get_config().set("millstream.store", str(tmp_path / "store"))
        env.get_config().set("millstream.epoch.max-records", "5")
        env.execute_sql(
            "CREATE TABLE slow (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100', "
            "'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '1000000')"
        )
        env.execute_sql("CREATE MATERIALIZED TABLE clicks AS SELECT COUNT(*) AS c FROM slow")
        [store] = eventually(lambda: list(tmp_path.glob("store*")), bool)
        view = query.open(str(store))
        eventually(view.newest, lambda epoch: epoch.epoch > 0)
        monkeypatch.setattr(
            "millstream.query.job_view.POLL_MS", 600_000
        )  # this process polls for epochs only when it has to
        with server_and_client(str(store), request_timeout_s=50.0) as client:
            epochs: list[int] = []
            while len(set(epochs)) < 20:
                epochs.append(answer(client, "SELECT c FROM clicks").json()["epoch"])
                epochs.append(client.get("/states").json()["epoch"])
            assert epochs == sorted(epochs)
        env.execute_sql("DROP MATERIALIZED TABLE clicks")
