"""A job that serves queries while it runs, by its configuration; and the possible errors.

The jobs run in this process. A record that is held back lets the test query while its epoch is uncommitted.
"""

from __future__ import annotations

import io
import json
import logging
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from programs.queryable import PAIR, Keeps
from stores.watched_store import WatchedStore
from waits.refusals import Refused

from millstream.common import Configuration, RestartStrategies, Types
from millstream.common.job_status import JobStatus
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ConfigurationError, PlatformError, StoreError
from millstream.jobs.clock import SystemClock
from millstream.jobs.console.console import attach_console
from millstream.jobs.console.console_view import ConsoleView, render
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.query.client import QueryClient
from millstream.query.wire.servers import registrations_of
from millstream.runtime.task.local import LocalRunner
from millstream.storage import Store, open_store
from millstream.storage.memory import MemoryStore
from millstream.storage.names import job_name
from millstream.testing import CRASH, EPOCH, Collect, Script, run

STORES = count()
HELD: dict[str, threading.Event] = {}
ANYWHERE = {"millstream.query.listen": "127.0.0.1:0"}


def held(value: tuple[str, int]) -> tuple[str, int]:
    """Pass a record once the test has released it."""
    if value[0] in HELD:
        assert HELD[value[0]].wait(30)
    return value


@contextmanager
def holding() -> Iterator[str]:
    """The key of a record that is held back; released at the end in any case."""
    key = f"held {len(HELD)}"
    HELD[key] = threading.Event()
    try:
        yield key
    finally:
        HELD[key].set()


def environment(items: Any, settings: dict[str, str]) -> StreamExecutionEnvironment:
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    stream = env.add_source(Script(items, type_info=PAIR)).map(held, PAIR)
    stream.key_by(lambda value: value[0], Types.STRING()).process(Keeps()).uid("keeper").sink_to(Collect())
    return env


def started(*items: Any, store: Store | None = None, restarts: int = 0, **more: str) -> Job:
    """A serving job in memory; options by their last component."""
    settings = {**ANYWHERE, **{f"millstream.query.{name.replace('_', '-')}": value for name, value in more.items()}}
    env = environment(items, settings)
    graph, job_settings = env._graph("served"), env._job_settings()
    job_settings = replace(job_settings, restart=RestartStrategies.fixed_delay_restart(restarts, 0))
    env.close()
    store = store or open_store(f"memory://query-serving-{next(STORES)}")
    return Launch(SystemClock(), LocalRunner(), store).start(graph, job_settings)


def until(is_so: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < ends_s
        time.sleep(0.005)


def asked(job: Job, path: str, **options: Any) -> httpx.Response:
    return httpx.get(f"{job.board.now.query_url}/v1/jobs/served{path}", timeout=60, **options)


# --- from the start to the end --------------------------------------------------------------------------------------


def test_a_job_answers_from_committed_epochs_from_its_start_until_its_end() -> None:
    with holding() as first, holding() as second:
        job = started((first, 0), ("a", 1), EPOCH, (second, 0), ("a", 2))
        early = asked(job, "/states/total/keys/a")
        assert (early.status_code, early.json()["error"]) == (503, "no-epoch")
        assert "Query again later" in early.json()["message"] and early.headers["retry-after"]
        HELD[first].set()
        until(lambda: job.board.now.epoch == 1)
        answer = asked(job, "/states/total/keys/a").json()
        assert (answer["value"], answer["epoch"]) == (1, 1)
        (found,) = registrations_of(job.store)
        assert found.url == job.board.now.query_url
        url = found.url
    job.result()
    assert registrations_of(job.store) == [] and job.board.now.query_url == ""
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_a_restarted_job_continues_to_answer_at_the_same_address() -> None:
    with holding() as key:
        job = started(("a", 1), EPOCH, CRASH, ("a", 2), EPOCH, (key, 0), restarts=1)
        url = job.board.now.query_url
        until(lambda: job.board.now.epoch == 2)
        assert job.board.now.restarts == 1
        assert job.board.now.query_url == url
        assert asked(job, "/states/total/keys/a").json()["value"] == 3
    job.result()


@pytest.mark.parametrize("end", ["cancelled", "stopped", "failed"])
def test_a_server_ends_with_its_job_however_it_ends(end: str) -> None:
    with holding() as key:
        job = started(("a", 1), EPOCH, (key, 0), EPOCH, CRASH)
        url = job.board.now.query_url
        until(lambda: job.board.now.epoch == 1)
        if end == "cancelled":
            job.cancel()
        elif end == "stopped":
            job.stop()
    assert job.wait(60)
    ends = {"cancelled": JobStatus.CANCELED, "stopped": JobStatus.SUSPENDED, "failed": JobStatus.FAILED}
    assert job.status() is ends[end]
    assert registrations_of(job.store) == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_a_watcher_receives_every_epoch_and_the_end() -> None:
    with holding() as key:
        job = started(("a", 1), EPOCH, (key, 0), ("a", 2), EPOCH)
        until(lambda: job.board.now.epoch == 1)
        url = f"{job.board.now.query_url}/v1/jobs/served/states/total/watch/a"
        values = []
        with httpx.stream("GET", url, timeout=60) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    values.append(json.loads(line.removeprefix("data: "))["value"])
                    HELD[key].set()
    assert values[0] == 1 and values == sorted(values)
    job.result()


def test_a_client_discovers_the_server_of_a_job_in_its_store() -> None:
    with holding() as key:
        job = started(("a", 1), EPOCH, (key, 0))
        until(lambda: job.board.now.epoch == 1)
        with QueryClient(job.store.url) as client:
            assert client.get("total", "a").value == 1
    job.result()


def test_run_of_the_testing_package_serves_too() -> None:
    env = environment([("a", 1), EPOCH, ("a", 2)], ANYWHERE)
    env.set_parallelism(1)
    assert run(env).status == "FINISHED"


def test_a_commit_is_pushed_to_the_server_without_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.query.job_view.POLL_MS", 3_600_000)
    with holding() as first, holding() as second:
        job = started(("a", 1), EPOCH, (first, 0), ("a", 2), EPOCH, (second, 0))
        until(lambda: job.board.now.epoch == 1)
        until(lambda: asked(job, "/states/total/keys/a").json()["epoch"] == 1)
        HELD[first].set()
        until(lambda: asked(job, "/states/total/keys/a").json()["epoch"] == 2)
    job.result()


# --- failures of the server -----------------------------------------------------------------------------------------


class Unregistrable(WatchedStore):
    """A store in which servers cannot register."""

    def before_write(self) -> None:
        return None

    def put(self, name: str, data: bytes) -> None:
        if name.startswith("servers/"):
            raise StoreError("the store is away")
        super().put(name, data)


def test_a_server_that_cannot_register_answers_nevertheless(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), holding() as key:
        job = started(("a", 1), EPOCH, (key, 0), store=Unregistrable(f"query-serving-{next(STORES)}"))
        until(lambda: job.board.now.epoch == 1)
        assert asked(job, "/states/total/keys/a").json()["value"] == 1
        assert "could not register in the store, and tries again: the store is away" in caplog.text
    job.result()


class UnreadableJobRecord(MemoryStore):
    """A store whose job record cannot be read."""

    def get(self, name: str) -> bytes:
        if name == job_name() and any("/millstream/query/" in frame.filename for frame in traceback.extract_stack()):
            raise StoreError("the store is away")
        return super().get(name)


def test_a_server_that_cannot_start_does_not_stop_its_job(caplog: pytest.LogCaptureFixture) -> None:
    store = UnreadableJobRecord(f"query-serving-{next(STORES)}")
    env = environment([("a", 1)], ANYWHERE)
    job = Launch(SystemClock(), LocalRunner(), store).prepare(env._graph("served"), env._job_settings())
    with caplog.at_level(logging.WARNING):
        job.start().result()
    assert job.status() is JobStatus.FINISHED
    assert "the job runs without its query server, which could not start: the store is away" in caplog.text


def test_a_rejected_job_releases_its_port() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store = f"query-serving-{next(STORES)}"
    started(("a", 1), store=MemoryStore(store)).result()
    env = environment([("a", 1)], {"millstream.query.listen": str(port), "execution.state-recovery.path": "nowhere"})
    graph, settings = env._graph("served"), env._job_settings()
    with pytest.raises(StoreError):
        Launch(SystemClock(), LocalRunner(), MemoryStore(store)).prepare(graph, settings)
    with socket.create_server(("127.0.0.1", port)):
        pass


# --- rejected before the start ----------------------------------------------------------------------------------------


def refused_program(**settings: str) -> StreamExecutionEnvironment:
    told = {f"millstream.query.{name.replace('_', '-')}": value for name, value in settings.items()}
    return environment([("a", 1)], told)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listen": "nowhere"}, ("millstream.query.listen", "has no port", "HOST:PORT")),
        ({"listen": "127.0.0.1:99999"}, ("millstream.query.listen", "has no port")),
        ({"listen": "no.such.host.invalid:0"}, ("millstream.query.allow-anonymous",)),
        ({"listen": "0.0.0.0:0"}, ("without tokens", "millstream.query.allow-anonymous")),
        ({"listen": "0", "tokens": "no-such-file.json"}, ("millstream.query.tokens", "no-such-file.json")),
        ({"listen": "0", "certificate": "a.pem"}, ("millstream.query.certificate", "millstream.query.private-key")),
        (
            {"listen": "0", "certificate": "a.pem", "private_key": "b.pem"},
            ("millstream.query.certificate a.pem does not exist",),
        ),
        ({"listen": "0", "page": "no-such-page.html"}, ("millstream.query.page", "no-such-page.html", "HTML")),
        ({"listen": "0", "flight_port": "70000"}, ("millstream.query.flight-port", "not a port")),
        ({"listen": "0", "flight_port": "x"}, ("millstream.query.flight-port", "whole number")),
        ({"page": "page.html"}, ("millstream.query.page", "millstream.query.listen")),
    ],
)
def test_invalid_settings_are_rejected_at_the_users_line(settings: dict[str, str], words: tuple[str, ...]) -> None:
    env = refused_program(**settings)
    with Refused(*words, kind=ConfigurationError):
        env.execute()


@pytest.mark.parametrize("option", ["listen", "flight_port"])
def test_an_occupied_port_is_rejected_before_the_job_starts(option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        env = refused_program(**{"listen": "0", option: port})
        with Refused(f"millstream.query.{option.replace('_', '-')}", port, "port 0", kind=ConfigurationError):
            env.execute()


def test_without_the_packages_of_a_server_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("millstream.query.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    env = refused_program(listen="0")
    with pytest.raises(PlatformError, match=r"needs fastapi.*millstream\[query-server\]"):
        env.execute()


# --- the page -------------------------------------------------------------------------------------------------------


def test_only_the_page_is_served_at_the_root_without_a_token(tmp_path: Path) -> None:
    page, tokens = tmp_path / "page.html", tmp_path / "tokens.json"
    page.write_text("<p>é</p>", encoding="utf-8")
    tokens.write_text(json.dumps({"page": {"token": "0123456789abcdef", "states": ["total"]}}))
    with holding() as key:
        job = started(("a", 1), EPOCH, (key, 0), page=str(page), tokens=str(tokens))
        until(lambda: job.board.now.epoch == 1)
        url = job.board.now.query_url
        page.write_text("something else")
        answer = httpx.get(url)
        assert (answer.status_code, answer.text) == (200, "<p>é</p>")
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert httpx.head(url).status_code == 200
        for path in ("/page.html", "/tokens.json", "/../tokens.json", "//", "/index.html"):
            assert httpx.get(url + path).status_code in (401, 404), path
        assert asked(job, "/states/total/keys/a").status_code == 401
        mine = {"authorization": "Bearer 0123456789abcdef"}
        assert asked(job, "/states/total/keys/a", headers=mine).json()["value"] == 1
    job.result()


def test_without_a_page_the_root_is_not_found() -> None:
    with holding() as key:
        job = started((key, 0))
        refused = httpx.get(job.board.now.query_url)
        assert (refused.status_code, refused.json()["error"]) == (404, "not-a-path")
    job.result()


# --- on the console ---------------------------------------------------------------------------------------------------


def test_the_address_is_on_the_console_while_the_job_runs() -> None:
    from rich.console import Console

    with holding() as key:
        job = started((key, 0))
        url = job.board.now.query_url
        screen = Console(width=100)
        with screen.capture() as capture:
            screen.print(render(ConsoleView(job.board.now)))
        assert f"queries: {url}" in capture.get()
        lines = io.StringIO()
        attach_console(job.board, "plain", lines).close()
        assert f"served answers queries at {url}\n" in lines.getvalue()
    job.result()
