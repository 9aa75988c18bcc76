"""Requests to a running job: each is executed once and answered, and an invalid one neither fails the job nor blocks
the next.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs.running_totals import Total

from millstream.checkpoint.pins import pins_of
from millstream.checkpoint.sealed import seal
from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.errors import JobFailedError, ProgramError, StoreError
from millstream.jobs.clock import SystemClock
from millstream.jobs.control.command import Command, Parameter
from millstream.jobs.control.requests import Answer, Mailbox, RequestServer, answer_of, request_of
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore
from millstream.storage.shared_names import answer_name, request_name
from millstream.storage.store import Store, open_store
from millstream.testing import Collect

_STORES = itertools.count()
WHOLE: dict[str, Any] = {"id": "a1", "command": "stop", "created_ms": 1, "arguments": {}}


def new_store() -> MemoryStore:
    return MemoryStore(f"requests-{next(_STORES)}")


@contextmanager
def serving(store: Store, call: Callable[..., str], unfetched_s: float = 60.0) -> Iterator[None]:
    """A server whose only command is `stop`."""
    commands = {"stop": Command(call, {"n": Parameter(int)})}
    server = RequestServer(store, commands, unfetched_s=unfetched_s, every_s=0.01).start()
    try:
        yield
    finally:
        server.close()


def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.01)


# --- request and response -------------------------------------------------------------------------------------


def test_a_request_is_executed_once_and_answered() -> None:
    store, heard = new_store(), []
    with serving(store, lambda n: heard.append(n) or f"at {n}"):
        assert Mailbox(store).send("stop", {"n": 3}, now_ms=5, timeout_s=60) == "at 3"
        with pytest.raises(JobFailedError, match="fly: unknown request; this job understands stop"):
            Mailbox(store).send("fly", {}, now_ms=5, timeout_s=60)
        assert heard == [3] and not store.list("control")


def test_an_exception_of_a_command_is_the_answer() -> None:
    def refuse() -> str:
        raise ProgramError("stop: not now")

    store = new_store()
    with serving(store, refuse), pytest.raises(JobFailedError, match=r"^stop: not now"):
        Mailbox(store).send("stop", {}, now_ms=5, timeout_s=60)


def test_a_request_without_a_response_is_withdrawn() -> None:
    store = new_store()
    with pytest.raises(JobFailedError, match=r"stop: no running job answered .* Is it running\?"):
        Mailbox(store).send("stop", {"drain": False}, now_ms=5, timeout_s=0.01)
    assert not store.list("control")


# --- age is measured by the job's observations, never by clocks ------------------------------------------------


def test_a_client_whose_clock_is_an_hour_or_a_century_behind_is_served() -> None:
    store = new_store()
    with serving(store, lambda: "stopped"):
        for now_ms in (SystemClock().now_ms() - 3_600_000, 0, SystemClock().now_ms() + 3_600_000):
            assert Mailbox(store).send("stop", {}, now_ms, timeout_s=60) == "stopped"


def test_a_request_older_than_the_run_is_rejected_whatever_its_timestamp() -> None:
    store, heard = new_store(), []
    store.put(request_name("a1"), seal("request", 1, {**WHOLE, "created_ms": SystemClock().now_ms() + 10**9}))
    with serving(store, lambda: heard.append(1) or "stopped"):
        until(lambda: store.exists(answer_name("a1")))
        answer = answer_of(store.get(answer_name("a1")))
        assert answer.done and not answer.ok and "made before the job started. Send it again" in answer.text
        assert Mailbox(store).send("stop", {}, 0, timeout_s=60) == "stopped" and heard == [1]


def test_a_query_older_than_the_run_is_answered() -> None:
    """`millstream savepoint` sends its request while the driver starts."""
    store = new_store()
    store.put(request_name("q1"), request_document(command="newest", arguments={})("q1"))
    server = RequestServer(store, {"newest": Command(lambda: "7", is_question=True)}, every_s=0.01).start()
    try:
        until(lambda: store.exists(answer_name("q1")) and answer_of(store.get(answer_name("q1"))).done)
        assert answer_of(store.get(answer_name("q1"))) == Answer(done=True, ok=True, text="7")
    finally:
        server.close()


def test_an_error_names_the_requested_command() -> None:
    with pytest.raises(JobFailedError, match=r"^savepoint: no running job answered"):
        Mailbox(new_store()).send("published", {}, 0, timeout_s=0.01, purpose="savepoint")


def test_requests_and_answers_of_gone_clients_are_removed() -> None:
    store = new_store()
    store.put(request_name("old"), seal("request", 1, {**WHOLE, "id": "old"}))
    store.put(answer_name("orphan"), seal("answer", 1, {"done": True, "ok": True, "text": ""}))
    with serving(store, lambda: "stopped", unfetched_s=0.0):
        until(lambda: not store.list("control"))


# --- invalid requests are rejected with a message ---------------------------------------------------------------


def request_document(kind: str = "request", version: int = 1, **changes: Any) -> Callable[[str], bytes]:
    """Returns a function from an id to a request document with these fields replaced."""
    return lambda id: seal(kind, version, {**WHOLE, "id": id, **changes})


REFUSALS: tuple[tuple[Callable[[str], bytes], str], ...] = (
    (request_document(unless="busy"), "has a field 'unless', which is not known here"),
    (request_document(version=2), "written by a newer Millstream"),
    (lambda id: seal("request", 1, {"id": id, "created_ms": 1}), "has no field 'command'"),
    (request_document(command=["stop"]), "field 'command' of the request is ['stop']"),
    (request_document(arguments="n=1"), "field 'arguments' of the request is 'n=1', expected dict"),
    (request_document(created_ms=True), "field 'created_ms' of the request is True"),
    (request_document(id="../job"), "called '../job' but stored under"),
    (request_document(arguments={"n": 2.5}), "found 2.5 for 'n', expected a whole number"),
    (request_document(arguments={"n": True}), "found True for 'n', expected a whole number"),
    (request_document(arguments={"m": 1}), "found the argument 'm', which is unknown"),
    (lambda id: request_document()(id).replace(b"stop", b"halt"), "checksum does not match"),
    (request_document("pin"), "it is a millstream-pin-1"),
    (lambda id: b"[]", "is not a complete request"),
    (lambda id: b"", "is not a complete request"),
    (lambda id: b"\xff\xfe", "is not a complete request"),
)


def test_malformed_requests_are_answered_and_the_next_one_is_served() -> None:
    store, heard = new_store(), []
    with serving(store, lambda n=0: heard.append(n) or "stopped"):
        ids = [f"a{at}" for at in range(1, 1 + len(REFUSALS))]
        for id, (document, _) in zip(ids, REFUSALS, strict=True):
            store.put(request_name(id), document(id))
        until(lambda: all(store.exists(answer_name(id)) for id in ids))
        until(lambda: all(answer_of(store.get(answer_name(id))).done for id in ids))
        for id, (_, reason) in zip(ids, REFUSALS, strict=True):
            answer = answer_of(store.get(answer_name(id)))
            assert not answer.ok and reason in answer.text
        assert Mailbox(store).send("stop", {}, 0, timeout_s=60) == "stopped" and heard == [0]


@given(
    st.dictionaries(
        st.sampled_from([*WHOLE, "other"]),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text("ab./"), st.just({})),
    )
)
def test_any_document_is_a_valid_request_or_rejected(fields: dict[str, Any]) -> None:
    for data in (seal("request", 1, fields), seal("request", 1, {**WHOLE, **fields})):
        try:
            request = request_of(data, "a1")
        except JobFailedError:
            continue
        assert (request.id, type(request.command), type(request.arguments)) == ("a1", str, dict)


def test_a_stray_file_among_the_requests_is_ignored() -> None:
    store = new_store()
    with serving(store, lambda: "stopped"):
        store.put("control/notes.txt", b"")
        store.put("control/=2E=2E.json", b"{}")
        assert Mailbox(store).send("stop", {}, 0, timeout_s=60) == "stopped"
    assert store.list("control") == ["control/=2E=2E.json", "control/notes.txt"]


def test_an_unreadable_request_does_not_block_the_others() -> None:
    class Closed(MemoryStore):
        def get(self, name: str) -> bytes:
            if name == request_name("0"):
                raise StoreError("permission denied")
            return super().get(name)

    store = Closed(f"requests-{next(_STORES)}")
    with serving(store, lambda: "stopped"):
        store.put(request_name("0"), b"")
        assert Mailbox(store).send("stop", {}, 0, timeout_s=60) == "stopped"


def test_a_failure_of_the_request_loop_does_not_end_it() -> None:
    class FailingList(MemoryStore):
        looks = 0

        def list(self, prefix: str) -> list[str]:
            self.looks += 1
            if self.looks in (2, 3):
                raise RuntimeError("a mistake of ours")
            return super().list(prefix)

    store = FailingList(f"requests-{next(_STORES)}")
    with serving(store, lambda: "stopped"):
        assert Mailbox(store).send("stop", {}, 0, timeout_s=60) == "stopped"


# --- a whole job ----------------------------------------------------------------------------------------------


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Job]:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).configure(Configuration().set_string("millstream.epoch.min-interval", "20 ms"))
    source = DataGeneratorSource(lambda n: n, rate_per_second=2000, type_info=Types.LONG())
    numbers = env.add_source(source, "numbers").uid("numbers")
    numbers.key_by(lambda n: n % 3, Types.LONG()).process(Total()).uid("totals").sink_to(Collect()).uid("out")
    store = open_store(str(tmp_path / "store"), fsync=False)
    job = Launch(SystemClock(), LocalRunner(), store).start(env._graph("numbers"), env._job_settings())
    try:
        until(lambda: job.board.now.published >= 2 or job.wait(0))
        yield job
    finally:
        job.cancel()
        job.wait(60)


def test_a_job_survives_every_bad_request_and_answers_it(running: Job, tmp_path: Path) -> None:
    mailbox = Mailbox(running.store)
    for command, arguments, reason in (
        ("rescale", {"parallelism": 2.5}, "found 2.5 for 'parallelism', expected a whole number"),
        ("rescale", {"parallelism": "3"}, "found '3' for 'parallelism'"),
        ("rescale", {}, "found no 'parallelism'"),
        ("stop", {"drain": "no"}, "found 'no' for 'drain', expected true or false"),
        ("cancel", {"now": True}, "found the argument 'now'"),
        ("savepoint", {"to": str(tmp_path / "saved"), "name": "../../outside"}, "cannot name a savepoint"),
        ("savepoint", {"name": "7"}, "it is a number, which means an epoch"),
        ("savepoint", {"name": "a@b"}, "it has a '@'"),
    ):
        with pytest.raises(JobFailedError, match=command) as refusal:
            mailbox.send(command, arguments, 0, timeout_s=60)
        assert reason in str(refusal.value)
    with pytest.raises(ProgramError, match=r"rescale: found 2\.5, expected 1 to 128"):
        running.rescale(2.5)  # type: ignore[arg-type]
    at = running.board.now.epoch
    until(lambda: running.board.now.epoch > at + 1 or running.wait(0))
    assert mailbox.send("rescale", {"parallelism": 3}, 0, timeout_s=60).endswith("parallelism 3 with its next epoch")
    assert not running.wait(0) and not pins_of(running.store)
    assert not (tmp_path / "outside").exists() and not (tmp_path.parent / "outside").exists()


def test_an_answer_is_retried_while_the_store_is_unavailable() -> None:
    away = threading.Event()

    class Flaky(MemoryStore):
        def put(self, name: str, data: bytes) -> None:
            if away.is_set() and name.endswith(".answer.json"):
                away.clear()
                raise OSError("away")
            super().put(name, data)

    store = Flaky(f"requests-{next(_STORES)}")
    with serving(store, lambda: away.set() or "stopped"):
        assert Mailbox(store).send("stop", {}, 0, timeout_s=60, patience_s=20) == "stopped"
