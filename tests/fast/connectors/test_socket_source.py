"""The socket source: stored lines are read once and can be read again; the rest is honestly not promised."""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from millstream.connectors.contracts import Source, SourceContext
from millstream.connectors.socket import SocketSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import JobFailedError, ProgramError, StoreDamagedError
from millstream.storage.layered_stores import layered_store
from millstream.storage.store import Store, open_store
from millstream.testing import Collect, run

NOW = SourceContext(now_ms=0, run_started_ms=0, parallelism=1)


@contextmanager
def peer() -> Iterator[tuple[int, Callable[[], socket.socket]]]:
    """A server, and a function that gives its side of the next connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1], lambda: server.accept()[0]


def stored(source: Source, count: int) -> int:
    """Wait until so many lines may be read."""
    [split] = source.splits(NOW)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        reached = source.reach(split, 0, 10**9, NOW)
        if reached >= count:
            return int(reached)
        time.sleep(0.005)
    raise AssertionError(f"only {reached} of {count} lines arrived")


def lines(source: Source, start: int, stop: int) -> list[str]:
    """Read as a task does: from a copy, with the store alone."""
    [split] = source.splits(NOW)
    task = pickle.loads(pickle.dumps(source))
    return [line for chunk in task.read(split, start, stop) for line in chunk]


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    return open_store(f"memory://socket-{request.node.name}")


def test_lines_are_stored_in_order_and_any_range_can_be_read_again(store: Store) -> None:
    with peer() as (port, accept):
        source = SocketSource("127.0.0.1", port).opened(store, None)
        with accept() as connection:
            connection.sendall("eins\r\nzwölf\n\nvi".encode())
            assert stored(source, 3) == 3
            connection.sendall(b"er\n")
            assert stored(source, 4) == 4
        for _ in range(2):
            assert lines(source, 0, 4) == ["eins", "zwölf", "", "vier"]
            assert lines(source, 1, 2) == ["zwölf"]
        source.close()


def test_the_job_ends_when_the_peer_closes_and_a_last_line_without_its_end_counts(store: Store) -> None:
    with peer() as (port, accept):
        source = SocketSource("127.0.0.1", port).opened(store, None)
        [split] = source.splits(NOW)
        connection = accept()
        connection.sendall(b"a\nb")
        assert stored(source, 1) == 1
        assert not source.complete(NOW) and not source.finished(split, 1)
        connection.close()
        assert stored(source, 2) == 2
        source.close()
        assert source.complete(NOW) and source.finished(split, 2) and not source.finished(split, 1)
        assert lines(source, 0, 2) == ["a", "b"]


def chunks(store: Store) -> list[str]:
    """The files that hold lines."""
    return [name for name in store.list("input") if name.rpartition("/")[2] != "receiver"]


def test_a_resumed_job_goes_on_counting_where_the_stored_lines_end(store: Store) -> None:
    with peer() as (port, accept):
        for round_, text in enumerate((b"a\nb\n", b"c\n")):
            source = SocketSource("127.0.0.1", port).opened(store, None)
            with accept() as connection:
                connection.sendall(text)
                stored(source, 2 + round_)
                source.committed({"socket": 2 + round_})
                assert len(chunks(store)) == 1 + round_, "an older epoch may be gone back to"
            source.close()
        assert lines(source, 2, 3) == ["c"]
        source.released([{"socket": 3}, {"socket": 1}])
        assert lines(source, 1, 3) == ["b", "c"]
        source.released([{"socket": 3}, {"socket": 2}])
        assert len(chunks(store)) == 1
        with pytest.raises(StoreDamagedError, match=r"record 1 from .* is no longer in"):
            lines(source, 1, 3)


def test_a_fork_reads_the_lines_of_its_origin_and_counts_on_after_them(store: Store) -> None:
    with peer() as (port, accept):
        origin = SocketSource("127.0.0.1", port).opened(store, None)
        with accept() as connection:
            connection.sendall(b"a\nb\nc\n")
            stored(origin, 3)
            fork = SocketSource("127.0.0.1", port).opened(
                layered_store(open_store(f"{store.url}-fork"), (store,)), None
            )
            fork.committed({"socket": 2})
            with accept() as other:
                other.sendall(b"x\n")
                connection.sendall(b"d\n")
                assert (stored(fork, 4), stored(origin, 4)) == (4, 4)
                assert lines(fork, 2, 4) == ["c", "x"] and lines(origin, 2, 4) == ["c", "d"]
        origin.close()
        fork.close()


def test_a_job_without_its_stored_lines_uses_no_number_twice(store: Store) -> None:
    with peer() as (port, accept):
        source = SocketSource("127.0.0.1", port).opened(store, None)
        source.committed({"socket": 500})
        with accept() as connection:
            connection.sendall(b"a\n")
            assert stored(source, 501) == 501 and lines(source, 500, 501) == ["a"]
        source.close()


def test_a_missing_peer_is_reported_with_a_command_that_helps() -> None:
    with peer() as (port, _):
        pass
    with pytest.raises(JobFailedError, match=f"nc -lk {port}"):
        SocketSource("127.0.0.1", port).opened(open_store("memory://socket-none"), None)
    with pytest.raises(ProgramError, match="port is 0"):
        SocketSource("localhost", 0)


def test_the_weaker_guarantee_is_shown() -> None:
    source = SocketSource("localhost", 9999)
    assert not source.replayable and "lost" in source.describe()


def test_a_truncated_chunk_is_refused_and_an_unrelated_file_is_not_read(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    with peer() as (port, accept):
        source = SocketSource("127.0.0.1", port).opened(store, None)
        source.splits(NOW)
        with accept() as connection:
            connection.sendall(b"one\ntwo\nthree\n")
            assert stored(source, 3) == 3
        source.close()
        names = chunks(store)
        store.put(f"{names[0].rpartition('/')[0]}/notes.txt", b"mine")
        again = SocketSource("127.0.0.1", port).opened(store, None)
        [split] = again.splits(NOW)
        assert [line for lines in again.read(split, 0, 3) for line in lines] == ["one", "two", "three"]
        again.released([{"socket": 3}])
        again.close()
        store.put(names[-1], store.get(names[-1])[:-6])
        with pytest.raises(StoreDamagedError, match=r"has \d lines, but \d were received"):
            list(again.read(split, 0, 3))


class Ending(SocketSource):
    """Lines from a peer that is known to close."""

    bounded = True


def test_a_forked_job_reads_the_lines_stored_by_its_original_job() -> None:
    def program(out: Collect, port: int, begins: str | None = None) -> Callable[[StreamExecutionEnvironment], object]:
        def build(env: StreamExecutionEnvironment) -> object:
            if begins is not None:
                env._configuration.set_string("execution.state-recovery.path", begins)
            return env.add_source(Ending("127.0.0.1", port)).uid("in").sink_to(out).uid("out")

        return build

    def served(data: bytes) -> Thread:
        def serve() -> None:
            with accept() as connection:
                connection.sendall(data)

        thread = Thread(target=serve)
        thread.start()
        return thread

    out, forked = Collect(), Collect()
    with peer() as (port, accept):
        peers = [served(b"a\nb\nc\nd\n")]
        run(program(out, port), store="socket-origin", epoch_records=1)
        peers.append(served(b"e\n"))
        run(program(forked, port, "memory://socket-origin@1"), store="socket-fork", epoch_records=1)
        for thread in peers:
            thread.join()
    early = [record.value for record in out.records if record.epoch <= 1]
    assert len(early) < 4 and early + forked.values == ["a", "b", "c", "d", "e"]


def test_input_that_ended_by_a_failure_has_not_come_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a job would end well that has lost its input."""
    store = open_store("memory://socket-failure")

    def full(name: str, data: bytes) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(store, "create", full)
    with peer() as (port, accept):
        source = SocketSource("127.0.0.1", port).opened(store, None)
        assert isinstance(source, SocketSource)
        [split] = source.splits(NOW)
        with accept() as connection:
            connection.sendall(b"a\n")
            receiver = source._receiver
            assert receiver is not None
            receiver.join(10)
        assert receiver.has_ended
        for ask in (
            lambda: source.finished(split, 0),
            lambda: source.complete(NOW),
            lambda: source.reach(split, 0, 1, NOW),
        ):
            with pytest.raises(JobFailedError, match="no space left"):
                ask()
        source.close()
