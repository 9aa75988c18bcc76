"""Stores: whole files or none, one winner per name, and errors that say what to do."""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import LocalStore as ObstoreLocal
from obstore.store import MemoryStore as ObstoreMemory

from millstream.errors import ConfigurationError, StoreDamagedError, StoreError
from millstream.storage import Store, open_store
from millstream.storage.layered_stores import LayeredStore, ReadOnlyStore, TrialStore
from millstream.storage.local import LocalStore, is_private, make_private
from millstream.storage.memory import MemoryStore
from millstream.storage.names import epoch_of_manifest, manifest_name, parse_staged, staged_name, staged_prefix
from millstream.storage.objects import ObjectStore
from millstream.storage.path_parts import checked_name, safe
from millstream.storage.patience import PatientStore

MakeStore = Callable[[Path], Store]

STORES: dict[str, MakeStore] = {
    "local": lambda folder: open_store(str(folder / "store")),
    "local-unsynced": lambda folder: open_store(str(folder / "store"), fsync=False),
    "memory": lambda folder: MemoryStore(str(folder)),
    "objects-memory": lambda folder: ObjectStore("s3://unused", ObstoreMemory()),
    "objects-local": lambda folder: ObjectStore("s3://unused", ObstoreLocal(str(folder / "store"), mkdir=True)),
}


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return STORES[request.param](tmp_path)


def test_every_kind_of_store_is_a_store(store: Store) -> None:
    assert isinstance(store, Store)


def test_names_after_one_are_those_of_the_folder_that_sort_behind_it(store: Store) -> None:
    for name in ("a/3", "a/1", "a/2", "ab/4", "b/5", "a/leaving-1"):
        store.put(name, b"1")
    assert store.list_after("a", "a/1") == ["a/2", "a/3", "a/leaving-1"]
    assert store.list_after("a", "a/15") == ["a/2", "a/3", "a/leaving-1"]
    assert store.list_after("a", "a/leaving-1") == [] and store.list_after("absent", "absent/1") == []
    below = [ReadOnlyStore(store), LayeredStore(store, ()), PatientStore(store), TrialStore(MemoryStore("t"), store)]
    assert all(over.list_after("a", "a/2") == ["a/3", "a/leaving-1"] for over in below)


def test_a_range_is_a_part_of_the_whole_and_ends_where_it_does(store: Store) -> None:
    store.put("a/b", bytes(range(100)))
    assert store.get_range("a/b", 10, 20) == bytes(range(10, 20))
    assert store.get_range("a/b", 90, 200) == bytes(range(90, 100)) and store.get_range("a/b", 5, 5) == b""
    with pytest.raises(StoreDamagedError, match="no file 'a/c'"):
        store.get_range("a/c", 0, 1)


def test_put_replaces_and_get_returns_the_whole(store: Store) -> None:
    store.put("a/b.json", b"one")
    store.put("a/b.json", b"")
    assert store.get("a/b.json") == b""
    store.put("a/b.json", b"\0three" * 100_000)
    assert store.get("a/b.json") == b"\0three" * 100_000


def test_create_takes_a_name_once_and_keeps_the_first_content(store: Store) -> None:
    assert store.create("m/1", b"first")
    assert not store.create("m/1", b"second")
    assert store.get("m/1") == b"first"


def test_a_deleted_name_is_free_again_and_deleting_twice_is_fine(store: Store) -> None:
    store.create("m/1", b"first")
    store.delete("m/1")
    store.delete("m/1")
    store.delete("never/was")
    assert not store.exists("m/1")
    assert store.create("m/1", b"again")


def test_an_absent_file_is_damage_that_names_the_file(store: Store) -> None:
    with pytest.raises(StoreDamagedError, match=r"manifests/9\.json"):
        store.get("manifests/9.json")
    assert not store.exists("manifests/9.json")


def test_list_is_sorted_recursive_and_ends_its_prefix_at_a_slash(store: Store) -> None:
    for name in ("s/b", "s/a/2", "s/a/10", "sx/1", "job.json"):
        store.put(name, b"")
    assert store.list("s") == store.list("s/") == ["s/a/10", "s/a/2", "s/b"]
    assert store.list("") == ["job.json", "s/a/10", "s/a/2", "s/b", "sx/1"]
    assert store.list("nothing/here") == []


def test_settle_and_check_writable_leave_nothing_behind(store: Store) -> None:
    store.check_writable()
    store.put("a", b"")
    store.settle("a")
    assert store.list("") == ["a"]


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/./b", "a\\b", "x/.tmp-1", "a\0b"])
def test_names_that_leave_the_store_are_refused(store: Store, name: str) -> None:
    with pytest.raises(ValueError, match="not a name inside a store"):
        store.put(name, b"")
    with pytest.raises(ValueError, match="not a name inside a store"):
        store.get(name)


def test_of_many_threads_exactly_one_creates(store: Store) -> None:
    for turn in range(8):
        gate = threading.Barrier(8)
        wins: list[int] = []

        def race(me: int, turn: int = turn, gate: threading.Barrier = gate, wins: list[int] = wins) -> None:
            gate.wait()
            if store.create(f"race/{turn}", f"writer {me}".encode()):
                wins.append(me)

        racers = [threading.Thread(target=race, args=(me,)) for me in range(8)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert len(wins) == 1
        assert store.get(f"race/{turn}") == f"writer {wins[0]}".encode()


RACE = """
import json, sys
from millstream.storage import open_store

folder, me, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store = open_store(folder)
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps([turn for turn in range(turns) if store.create(f"race/{turn}", bytes([me]) * 4096)]))
"""


def test_of_many_processes_exactly_one_creates(tmp_path: Path) -> None:
    store, turns = open_store(str(tmp_path)), 60
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(tmp_path), str(me), str(turns)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for me in range(3)
    ]  # fmt: skip
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    wins = [json.loads(racer.communicate()[0]) for racer in racers]
    assert sorted(turn for mine in wins for turn in mine) == list(range(turns))
    for me, mine in enumerate(wins):
        assert all(store.get(f"race/{turn}") == bytes([me]) * 4096 for turn in mine)


@pytest.mark.slow
def test_a_reader_never_sees_a_part_of_a_file(tmp_path: Path) -> None:
    store, stop, torn = open_store(str(tmp_path), fsync=False), threading.Event(), []
    store.put("f", b"0" * 300_000)

    def read() -> None:
        while not stop.is_set():
            data = store.get("f")
            if len(data) != 300_000 or len(set(data)) != 1:
                torn.append(data[:20])

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(200):
        store.put("f", str(turn % 10).encode() * 300_000)
    stop.set()
    reader.join()
    assert torn == []


# --- local disk ---------------------------------------------------------------------------------------------


def test_a_local_store_pickles_as_its_address_and_keeps_its_durability(tmp_path: Path) -> None:
    folder = tmp_path / "a folder with % and ü#?"
    store = LocalStore(folder, fsync=False)
    store.put("a", b"1")
    copy = pickle.loads(pickle.dumps(store))
    assert copy.get("a") == b"1"
    assert copy.url == store.url
    assert copy._fsync is False
    assert open_store(store.url).get("a") == b"1"


def test_a_relative_path_is_fixed_when_the_store_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("jobs/one")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.put("a", b"1")
    assert (tmp_path / "jobs" / "one" / "a").read_bytes() == b"1"


def test_opening_and_reading_an_absent_folder_makes_nothing(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "absent"))
    assert store.list("") == []
    assert not store.exists("a")
    assert list(tmp_path.iterdir()) == []


def test_a_task_may_write_at_the_local_path(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    path = store.local_path("staged/sink/part")
    assert path is not None
    path.write_bytes(b"rows")
    store.settle("staged/sink/part")
    assert store.get("staged/sink/part") == b"rows"


def test_left_over_temporary_files_are_not_listed(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("manifests/1", b"")
    (tmp_path / "manifests" / ".tmp-0123").write_bytes(b"half")
    assert store.list("") == ["manifests/1"]


def test_a_file_where_the_folder_should_be_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("I am a file")
    for address in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError, match=r"is not a folder: .*Give a folder as --store"):
            open_store(str(address)).check_writable()
    assert (tmp_path / "file").read_text() == "I am a file"


def test_a_folder_without_permission_is_a_clear_error() -> None:
    # Below the system's folder for temporary files: everybody may pass through it, unlike pytest's own.
    folder = Path(tempfile.mkdtemp(prefix="millstream-closed-"))
    me = os.geteuid()
    folder.chmod(0o555)
    try:
        if me == 0:
            os.seteuid(_NOBODY)  # root may write everywhere
        with pytest.raises(StoreError, match=r"not writable: Permission denied"):
            open_store(str(folder)).check_writable()
    finally:
        os.seteuid(me)
        folder.chmod(0o700)
        folder.rmdir()


_NOBODY = 65534


@pytest.mark.parametrize(("number", "says"), [(errno.EACCES, "not writable"), (errno.EROFS, "not writable")])
def test_what_the_system_refuses_is_told_with_path_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, says: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(StoreError, match=rf"{says}: {os.strerror(number)}.*--store") as caught:
        open_store(str(tmp_path)).check_writable()
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("method", "failing"), [("put", "fsync"), ("put", "rename"), ("create", "fsync"), ("create", "link")]
)
def test_a_full_disk_is_told_and_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, failing: str
) -> None:
    store = open_store(str(tmp_path))
    store.put("other", b"")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        broken.setattr(os, failing, full)
        with pytest.raises(StoreError, match=r"disk full while writing 'm'.*then start the job again"):
            getattr(store, method)("m", b"x" * 1000)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other"]
    assert store.create("m", b"y")


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", unsupported)
    with pytest.raises(StoreError, match="without hard links"):
        open_store(str(tmp_path)).check_writable()
    assert list(tmp_path.iterdir()) == []


def test_every_write_is_synced_before_its_name_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, seen = open_store(str(tmp_path)), []
    real = {name: getattr(os, name) for name in ("fsync", "link", "rename")}

    def watch(name: str) -> None:
        def call(*args: object) -> object:
            if name == "fsync":
                seen.append("sync folder" if os.path.isdir(f"/proc/self/fd/{args[0]}") else "sync file")
            else:
                seen.append(name)
            return real[name](*args)

        monkeypatch.setattr(os, name, call)

    store.put("m/0", b"")
    for name in real:
        watch(name)
    store.create("m/1", b"x")
    store.put("m/2", b"x")
    assert seen == ["sync file", "link", "sync folder", "sync file", "rename", "sync folder"]


# --- addresses and names ------------------------------------------------------------------------------------


def test_addresses_open_the_right_kind_of_store() -> None:
    assert isinstance(open_store("memory://a"), MemoryStore)
    assert isinstance(open_store("file:///a/b"), LocalStore)
    assert open_store("file:///a/b").url == open_store("/a/b").url == "file:///a/b"
    for url in ("s3://bucket/job", "gs://bucket/job", "az://container/job"):
        assert isinstance(open_store(url), ObjectStore)
        assert pickle.loads(pickle.dumps(open_store(url))).url == url


@pytest.mark.parametrize(
    ("url", "says"),
    [("", "is empty"), ("ftp://x", "unknown scheme 'ftp'"), ("file://host/x", "three slashes")],
)
def test_an_address_that_leads_nowhere_is_a_clear_error(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        open_store(url)


def test_memory_stores_of_one_name_share_their_files() -> None:
    open_store("memory://shared").put("a", b"1")
    assert open_store("memory://shared").get("a") == b"1"
    assert not open_store("memory://other").exists("a")


def test_an_object_store_out_of_reach_is_told_in_a_sentence_and_not_in_a_dump() -> None:
    with pytest.raises(StoreError, match=r"Store s3://\[bad: 'a' cannot be reached: .*\. Check the address") as caught:
        ObjectStore("s3://[bad").get("a")
    assert "Debug source" not in str(caught.value)


def test_a_service_that_ignores_conditions_is_refused() -> None:
    class Careless(ObstoreMemory):
        def put(self, path: str, file: bytes, **_: object) -> object:  # type: ignore[override]
            return super().put(path, file)

    with pytest.raises(StoreError, match="two drivers could both commit"):
        ObjectStore("s3://careless", Careless()).check_writable()


@given(st.text())
def test_any_uid_makes_a_name_that_a_store_accepts(uid: str) -> None:
    part = safe(uid)
    assert part.isascii()
    assert len(part) <= 120
    assert checked_name(f"staged/{part}/x").startswith(staged_prefix(uid))


@given(st.text(max_size=30), st.text(max_size=30))
def test_different_uids_have_different_names(one: str, other: str) -> None:
    assert (safe(one) == safe(other)) == (one == other)
    assert safe(one * 40) != safe(other * 40) or one == other


@given(st.text(), st.integers(1, 10**14), st.integers(0, 10**6), st.integers(0, 10**6))
def test_staged_names_say_who_wrote_them(uid: str, epoch: int, subtask: int, part: int) -> None:
    said = parse_staged(staged_name(uid, epoch, subtask, "a1", part, ".tar.gz"))
    assert said is not None
    assert (said.uid, said.epoch, said.subtask, said.nonce, said.part) == (safe(uid), epoch, subtask, "a1", part)


def test_names_of_manifests_sort_as_their_epochs() -> None:
    epochs = [1, 9, 10, 99_999, 10**11]
    assert sorted(manifest_name(epoch) for epoch in epochs) == [manifest_name(epoch) for epoch in epochs]
    assert [epoch_of_manifest(manifest_name(epoch)) for epoch in epochs] == epochs


@pytest.mark.parametrize("attempt", ["", "a-b", "a/b"])
def test_an_attempt_that_would_blur_a_staged_name_is_refused(attempt: str) -> None:
    with pytest.raises(ValueError, match="not a staged name"):
        staged_name("sink", 1, 0, attempt, 0)


# --- who may read a folder ------------------------------------------------------------------------------------


def modes(root: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in (root, *root.rglob("*"))}


def test_files_of_a_store_are_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        open_store(str(tmp_path / "store")).put("a/b.json", b"1")
    finally:
        os.umask(before)
    assert modes(tmp_path / "store") == {0o755, 0o644}


def test_a_private_store_and_all_that_is_written_into_it_is_for_its_owner_alone(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir(mode=0o755)
    make_private(LocalStore(root))
    store = open_store(str(root))  # as a task, or another process, opens it
    store.put("manifests/1.json", b"1")
    store.create("pins/a.json", b"1")
    path = store.local_path("segments/count/total/a.arrow")
    assert path is not None
    path.write_bytes(b"written by a task")
    store.settle("segments/count/total/a.arrow")
    assert modes(root) == {0o700, 0o600} and is_private(store)
    assert pickle.loads(pickle.dumps(store)).is_private


def test_a_file_that_is_created_of_pieces_is_whole_or_not_there(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)

    def broken() -> Iterator[bytes]:
        yield b"one"
        raise StoreDamagedError("The second is gone.")

    with pytest.raises(StoreDamagedError, match="The second is gone"):
        store.create_of("a/parts", broken())
    assert store.list("") == [] and not list(tmp_path.rglob("*.*"))
    assert store.create_of("a/parts", iter([b"one", b"", b"two"])) and store.get("a/parts") == b"onetwo"
    assert not store.create_of("a/parts", [b"other"]) and store.get("a/parts") == b"onetwo"


def test_pieces_written_at_their_places_make_a_file_and_may_be_repeated(tmp_path: Path) -> None:
    make_private(LocalStore(tmp_path / "private"))
    store = LocalStore(tmp_path / "private")
    for start, piece in ((0, b"one"), (0, b"one"), (3, b"two"), (3, b"two")):
        store.write_at("a/pieces", start, piece)
    store.settle("a/pieces")
    assert store.get("a/pieces") == b"onetwo"
    assert (tmp_path / "private/a/pieces").stat().st_mode & 0o777 == 0o600
    with pytest.raises(StoreError, match="cannot be written"):
        store.write_at("a/others", 3, b"two")
    assert not store.exists("a/others")


def test_an_object_store_cannot_be_made_private_here() -> None:
    with pytest.raises(ConfigurationError, match=r"is not a folder, so it cannot be made private here.*the bucket"):
        make_private(ObjectStore("s3://bucket/job"))


def test_folders_above_a_file_are_synced_once_and_again_when_they_were_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr("millstream.storage.local._sync", lambda path: synced.append(path.name))
    store = LocalStore(tmp_path / "root")

    def settled(name: str) -> list[str]:
        path = store.local_path(name)
        assert path is not None
        path.write_bytes(b"data")
        synced.clear()
        store.settle(name)
        return list(synced)

    assert settled("a/b/first") == ["first", "b", "a", "root"]
    assert settled("a/b/second") == ["second", "b"]
    assert settled("a/c/first") == ["first", "c", "a", "root"]
    assert settled("top") == ["top", "root"]
    (tmp_path / "root" / "a" / "b").rename(tmp_path / "aside")  # so that its number is not given to the new one
    assert settled("a/b/third") == ["third", "b", "a", "root"]


def test_a_file_is_written_though_its_empty_folder_is_removed_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a sink that has checked whether it may write there, and leaves no empty folder."""
    store = open_store(str(tmp_path / "store"))
    removals = iter(range(5))
    open_file = os.open

    def open_late(path: Path, *given: int) -> int:
        if next(removals, None) is not None and Path(path).name.startswith(".tmp-"):
            Path(path).parent.rmdir()
        return open_file(path, *given)

    monkeypatch.setattr(os, "open", open_late)
    store.put("folder/name", b"data")
    assert store.get("folder/name") == b"data"


def test_a_folder_that_another_made_and_removed_while_it_was_made_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(str(tmp_path / "store"))
    store.put("name", b"data")
    losses = iter(range(5))
    make = Path.mkdir

    def made_by_another(place: Path, mode: int = 0o777, **options: bool) -> None:
        if next(losses, None) is None:
            make(place, mode, **options)
        elif not options.get("exist_ok") or not place.is_dir():
            raise FileExistsError(errno.EEXIST, "File exists", str(place))

    monkeypatch.setattr(Path, "mkdir", made_by_another)
    store.put("folder/name", b"data")
    assert store.get("folder/name") == b"data"
