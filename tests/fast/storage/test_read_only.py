"""Read-only readers change nothing in a store, not even a folder or a modification time, in any operation."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs.queryable import Keeps
from stores.stored_leases import leases_of
from typer.testing import CliRunner

from millstream import query, state_reader
from millstream.checkpoint.savepoints import open_job_store
from millstream.cli.main import app
from millstream.cli.query_server import ServerCommand, _server
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import StoreError
from millstream.query.server_request import ServerRequest
from millstream.query.wire.servers import registrations_of
from millstream.state_reader.stored_jobs import jobs
from millstream.state_reader.verifying import verify
from millstream.storage.layered_stores import ReadOnlyStore
from millstream.storage.store import open_store
from millstream.testing import EPOCH, Collect, Script, run

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def build(env: StreamExecutionEnvironment) -> None:
    stream = env.add_source(Script([("a", 1), ("b", 2), EPOCH, ("a", 5)], type_info=PAIR))
    stream.key_by(lambda value: value[0], Types.STRING()).process(Keeps()).uid("keeper").sink_to(Collect())


@pytest.fixture(scope="module")
def saved_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in a folder, with the files of a finished job."""
    run(build, store="read-only-story")
    folder = tmp_path_factory.mktemp("read-only") / "store"
    memory, local = open_store("memory://read-only-story"), open_store(str(folder))
    for name in memory.list(""):
        local.put(name, memory.get(name))
    return folder


def stamps(folder: Path) -> dict[str, tuple[int, ...]]:
    """Everything below a folder with its modification times."""
    places = (folder, *folder.rglob("*"))
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_ctime_ns, path.stat().st_size) for path in places}


@pytest.fixture
def unchanged(saved_store: Path) -> Iterator[Path]:
    before = stamps(saved_store)
    yield saved_store
    assert stamps(saved_store) == before


def test_state_is_read_without_a_lease(unchanged: Path) -> None:
    with state_reader.open(str(unchanged), read_only=True).at(epoch=1) as snapshot:
        assert not snapshot.is_held and not leases_of(snapshot.store)
        assert snapshot.read("keeper", "total").to_arrow().read_all().num_rows == 2
        assert pickle.loads(pickle.dumps(snapshot.store)).__class__ is ReadOnlyStore


def test_a_reader_with_write_permission_pins_its_epoch(saved_store: Path) -> None:
    with state_reader.open(str(saved_store)).at(epoch=1) as snapshot:
        assert snapshot.is_held and len(leases_of(open_store(str(saved_store)))) == 1


def test_queries_of_the_newest_and_older_epochs_write_nothing(unchanged: Path) -> None:
    view = query.open(str(unchanged), read_only=True)
    assert view.newest().get("total", "a") == 6
    with view.at(epoch=1) as older:
        assert older.get("total", "a") == 1


def test_a_read_only_server_does_not_register(unchanged: Path) -> None:
    command = ServerCommand(str(unchanged), ServerRequest(listen="127.0.0.1:0"), read_only=True)
    with _server(command) as server:
        assert server.is_answering and not registrations_of(open_store(str(unchanged)))


def test_verify_and_list_never_write(unchanged: Path) -> None:
    assert verify(str(unchanged)).is_whole
    assert [job.store for job in jobs(str(unchanged.parent))] == [str(unchanged)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("state", "ls", "STORE", "--read-only"),
        ("state", "show", "STORE@1", "keeper", "total", "--read-only"),
        ("state", "diff", "STORE@1", "STORE@2", "--read-only"),
        ("verify", "STORE"),
        ("list", "STORE", "--snapshots"),
    ],
)
def test_commands_leave_no_trace(arguments: tuple[str, ...], unchanged: Path) -> None:
    done = CliRunner().invoke(app, [part.replace("STORE", str(unchanged)) for part in arguments])
    assert done.exit_code == 0, done.output


def test_every_write_is_rejected_and_no_folder_is_created(unchanged: Path) -> None:
    store = open_job_store(str(unchanged), read_only=True)
    for write in (
        lambda: store.put("a", b""),
        lambda: store.create("a", b""),
        lambda: store.delete("job.json"),
        store.check_writable,
        lambda: store.remove_unfinished(0),
    ):
        with pytest.raises(StoreError, match="opened to be read only"):
            write()
    assert store.local_path("segments/not/there/a.arrow") == unchanged / "segments/not/there/a.arrow"
    store.settle("job.json")
