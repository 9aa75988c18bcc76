"""One small unreadable file is reported, and neither fails the job nor stops garbage collection."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import itertools
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from programs.running_totals import expected, totals
from stores.watched_store import make_older

from millstream.checkpoint.leases import DURATION_MS, LeasedEpoch
from millstream.checkpoint.manifest import ManifestLog, SplitFile, encode
from millstream.checkpoint.pins import Pin, pin_epoch, pins_of, unpin
from millstream.checkpoint.retention import RetentionPolicy, named_files
from millstream.checkpoint.sealed import seal
from millstream.common import Types
from millstream.connectors.contracts import Split
from millstream.connectors.files.discovery import FileLog
from millstream.connectors.files.parts import TextParts
from millstream.connectors.files.sink import FileSink
from millstream.connectors.stored_batches import StoredBatches, read_stored
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import JobFailedError, StoreDamagedError, StoreError
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.runtime.task.spec import EpochSpec, ReadRange
from millstream.state_reader.verifying import verify
from millstream.storage.local import LocalStore
from millstream.storage.memory import MemoryStore
from millstream.storage.names import finished_name, job_name, leaving_name, manifest_name, spec_name
from millstream.storage.shared_names import pin_name
from millstream.testing import EPOCH, Collect, ManualClock, Script, run

_STORES = itertools.count()


def begun(epochs: int = 4) -> MemoryStore:
    """The store of a job that stopped after a number of epochs."""
    store = MemoryStore(f"damaged-{next(_STORES)}")
    run(totals(Collect()), store=store.url.removeprefix("memory://"), epochs=epochs)
    return store


def newer(kind: str) -> bytes:
    return seal(kind, 2, {"id": "x", "epoch": 2, "ends_ms": 0, "name": "x", "manifests": {}, "of tomorrow": []})


def flipped(data: bytes) -> bytes:
    return data[:40] + bytes([data[40] ^ 1]) + data[41:]


SMALL_FILES: dict[str, Callable[[MemoryStore], tuple[str, bytes]]] = {
    "an empty lease": lambda _: ("leases/0123456789abcdef.json", b""),
    "a lease of a newer Millstream": lambda _: ("leases/2-a1.json", newer("lease")),
    "a lease without an epoch": lambda _: ("leases/b1.json", seal("lease", 1, {"id": "b1"})),
    "an empty pin": lambda _: ("pins/before.json", b""),
    "a pin of a newer Millstream": lambda _: ("pins/before.json", newer("pin")),
    "a pin without an epoch": lambda _: ("pins/before.json", seal("pin", 1, {"name": "before"})),
    "a pin that is a list": lambda _: ("pins/before.json", b"[1, 2]"),
    "an empty leaving.json": lambda _: (leaving_name(), b""),
    "a leaving.json of a newer Millstream": lambda _: (leaving_name(), newer("leaving")),
    "a leaving.json with half a manifest": lambda _: (
        leaving_name(),
        json.dumps({"manifests": {"1": "{", "2": 7}}).encode(),
    ),
    "a stray manifest": lambda _: ("manifests/notes.txt", b"mine"),
    "a stray spec": lambda _: ("specs/notes.txt", b"mine"),
    "a stray segment": lambda _: ("segments/notes.txt", b"mine"),
    "a request that is none": lambda _: ("control/x.json", b"{}"),
    "an old manifest with a flipped bit": lambda store: (manifest_name(1), flipped(store.get(manifest_name(1)))),
}


@pytest.mark.parametrize("what", SMALL_FILES)
def test_a_job_continues_and_is_collected_despite_one_unreadable_file(
    what: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sweeper, "__init__", partialmethod(Sweeper.__init__, every_epochs=1))
    store, out = begun(), Collect()
    name, data = SMALL_FILES[what](store)
    before = ManifestLog(store).epochs()
    make_older(store, "manifests", 1_000)
    store.put(name, data)
    make_older(store, "pins", 500)
    with caplog.at_level(logging.WARNING):
        run(totals(out), store=store.url.removeprefix("memory://"))
        make_older(store, "leases", DURATION_MS + 1)
        newest = ManifestLog(store).newest()
        for _ in range(3):
            Sweeper(store, lambda: 0, RetentionPolicy(2)).sweep(newest)
    assert sorted(out.values) == expected(40, 40)
    # Files newer than the damaged one are collected as usual; those it may reference stay.
    assert len(set(ManifestLog(store).epochs()) - set(before)) == 2
    assert "could not be swept" not in caplog.text and "could not be" not in caplog.text
    if "pin" in what or "manifest with" in what or "empty leaving" in what:
        assert name.rpartition("/")[2] in caplog.text


def test_an_unreadable_pin_retains_the_epochs_it_may_pin_and_no_later_one() -> None:
    store = begun(6)
    make_older(store, "manifests", 100_000)
    pin_epoch(store, Pin("kept", 3, "savepoint", 0))
    store.put(pin_name("kept"), flipped(store.get(pin_name("kept"))))
    make_older(store, "pins", 50_000)
    for epoch in (5, 6, 7):
        make_older(store, manifest_name(epoch), 0)
        store._shelf.modified_ms[manifest_name(epoch)] += 100_000
    newest = ManifestLog(store).newest()
    assert newest is not None and newest.epoch == 7
    for _ in range(3):
        Sweeper(store, lambda: 0, RetentionPolicy(1)).sweep(newest)
    assert ManifestLog(store).epochs() == [1, 2, 3, 4, 7]
    assert pins_of(store) == []
    assert all(store.exists(file) for epoch in (1, 2, 3, 4) for file in named_files(ManifestLog(store).read(epoch)))
    unpin(store, "kept")
    Sweeper(store, lambda: 0, RetentionPolicy(1)).sweep(newest)
    assert ManifestLog(store).epochs() == [7]


def test_a_lease_of_a_newer_version_retains_its_epoch_while_it_is_renewed() -> None:
    store = begun(5)
    newest = ManifestLog(store).newest()
    held = LeasedEpoch(store, 2, lambda: 0)
    [name] = store.list("leases")
    store.put(name, newer("lease"))
    Sweeper(store, lambda: 0, RetentionPolicy(1)).sweep(newest)
    assert ManifestLog(store).epochs() == [2, 6]
    assert all(store.exists(file) for file in named_files(held.manifest))
    make_older(store, "leases", DURATION_MS + 1)
    Sweeper(store, lambda: 0, RetentionPolicy(1)).sweep(newest)
    assert ManifestLog(store).epochs() == [6] and not store.list("leases")


@pytest.mark.parametrize("folder", ["pins", "leases", "receipts", leaving_name(), "manifests"])
def test_a_file_without_read_permission_neither_fails_a_job_nor_stops_collection(folder: str) -> None:
    store, out = begun(4), Collect()

    class Forbidden(MemoryStore):
        def get(self, name: str) -> bytes:
            if name in (f"{folder}/other.json", leaving_name(), "manifests/000000000001.json", *receipts):
                raise StoreError(f"{name} cannot be read: permission denied")
            return super().get(name)

    receipts = store.list("receipts") if folder == "receipts" else []
    make_older(store, "manifests", 1_000)
    if folder in ("pins", "leases"):
        store.put(f"{folder}/other.json", seal("pin", 1, {}))
        make_older(store, folder, 500)
    elif folder == leaving_name():
        store.put(folder, b"{}")
    forbidden = Forbidden(store.url.removeprefix("memory://"))
    env = StreamExecutionEnvironment.get_execution_environment()
    totals(out)(env)
    launch = Launch(ManualClock(), LocalRunner(), forbidden)
    launch.prepare(env._graph("Millstream Job"), env._job_settings()).start().result()
    assert sorted(out.values) == expected(40, 40)
    Sweeper(forbidden, lambda: 0, RetentionPolicy(2)).sweep(ManifestLog(store).newest())
    assert set(ManifestLog(store).epochs()) - {1, 2, 3, 4, 5} == {7, 8}


def test_intact_entries_of_a_damaged_leaving_file_are_restored() -> None:
    store = begun(5)
    log = ManifestLog(store)
    newest, two = log.newest(), encode(log.read(2)).decode()
    store.put(leaving_name(), json.dumps({"manifests": {"1": "half", "2": two}}).encode())
    store.delete(manifest_name(1))
    store.delete(manifest_name(2))
    pin_epoch_later = Pin("kept", 2, "savepoint", 0)
    store.put(pin_name("kept"), seal("pin", 1, vars(pin_epoch_later)))
    Sweeper(store, lambda: 0, RetentionPolicy(1)).sweep(newest)
    assert log.epochs() == [2, 6] and not store.exists(leaving_name())


def test_files_a_damaged_manifest_may_reference_stay_until_it_is_removed() -> None:
    store = begun(5)
    log = ManifestLog(store)
    newest, files = log.newest(), named_files(log.read(3))
    store.put(manifest_name(3), b"{")
    Sweeper(store, lambda: 0, RetentionPolicy(4)).sweep(newest)
    assert log.epochs() == [2, 3, 4, 5, 6] and all(store.exists(file) for file in files)
    Sweeper(store, lambda: 0, RetentionPolicy(2)).sweep(newest)
    assert log.epochs() == [5, 6]
    assert verify(store.url).is_whole


def test_verify_accepts_the_specs_of_many_tasks_unless_they_were_changed() -> None:
    store = begun()
    ranges = tuple(ReadRange(Split(f"split-{n}"), 0, 9, n, 0) for n in range(3))
    text = EpochSpec(5, 1, 0, False, {"numbers": ranges}, {}, {}, {}).encode().encode()
    name = spec_name(5, hashlib.sha256(text).hexdigest()[:16])
    store.put(name, text)
    assert verify(store.url).is_whole
    store.put(name, text.replace(b"split-2", b"split-3"))
    [problem] = verify(store.url).problems
    assert problem.file == name and "its checksum does not match its name" in problem.finding


@pytest.mark.parametrize("what", SMALL_FILES)
def test_verify_reports_every_unreadable_file_and_stray_files(what: str) -> None:
    store = begun()
    assert verify(store.url).is_whole and not verify(store.url).strays
    name, data = SMALL_FILES[what](store)
    store.put(name, data)
    report = verify(store.url)
    if "stray" in what:
        assert report.is_whole and report.strays == (name,)
        assert f"1 file is none of Millstream's: {name}" in report.text()
    else:
        assert not report.is_whole and name in report.text()
        assert report.to_json()["strays"] == []


@pytest.mark.parametrize("folder", ["servers", "control", "pins", "leases"])
def test_verify_reads_small_files_of_every_kind(folder: str) -> None:
    store = begun()
    kind = {"servers": "server", "control": "request", "pins": "pin", "leases": "lease"}[folder]
    store.put(f"{folder}/a.json", flipped(seal(kind, 1, {"id": "a", "epoch": 1, "text": "x" * 80})))
    assert f"{folder}/a.json" in verify(store.url).text() and not verify(store.url).is_whole
    store.put(
        f"{folder}/a.json",
        seal(kind, 1, {"name": "a", "id": "a", "epoch": 1, "ends_ms": 0, "reason": "fork", "created_ms": 0}),
    )
    assert verify(store.url).is_whole
    store.put("control/b.answer.json", seal("answer", 1, {"done": True}))
    assert verify(store.url).is_whole
    store.put("control/b.answer.json", b"{}")
    assert "control/b.answer.json" in verify(store.url).text()


# --- output, and ownership of the store ------------------------------------------------------------------------------


def lines_into(folder: Path, store: MemoryStore, *, crash: bool = False) -> Job:
    """A job with a file sink; with a crash, one whose publishing fails, so that its last epoch stays pending."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    sink = FileSink(str(folder), TextParts())
    if crash:
        sink.commit = _fails  # type: ignore[method-assign]
    env.add_source(Script(["a", "b", EPOCH, "c"], type_info=Types.STRING())).uid("in").sink_to(sink).uid("out")
    return Launch(ManualClock(), LocalRunner(), store).prepare(env._graph("lines"), env._job_settings())


def _fails(*_: object) -> None:
    raise OSError("the folder is away")


def test_output_changed_before_publishing_is_reported_by_verify_and_not_published(
    tmp_path: Path,
) -> None:
    store = MemoryStore(f"damaged-{next(_STORES)}")
    with pytest.raises(JobFailedError, match="the folder is away"):
        lines_into(tmp_path, store, crash=True).start().result()
    chunk = min(tmp_path.rglob(".millstream-staging/*/*"))  # the next epoch may have run concurrently
    assert verify(store.url).is_whole
    right, wrong = chunk.read_bytes(), b"a\nX\n"
    assert len(right) == len(wrong)
    chunk.write_bytes(wrong)
    report = verify(store.url)
    assert not report.is_whole and f"{chunk.name}: its checksum does not match" in report.text()
    with pytest.raises(StoreDamagedError, match="none of it was published"):
        lines_into(tmp_path, store).start().result()
    assert not list(tmp_path.glob("part-*"))
    chunk.unlink()
    assert f"{chunk.name}: it is missing (staged output)" in verify(store.url).text()
    chunk.write_bytes(right)
    lines_into(tmp_path, store).start().result()
    assert sorted(path.read_text() for path in tmp_path.glob("part-*")) == ["a\nb\n", "c\n"]
    assert verify(store.url).is_whole


def test_verify_reports_output_changed_in_the_store() -> None:
    store, out = MemoryStore(f"damaged-{next(_STORES)}"), Collect()
    env = StreamExecutionEnvironment.get_execution_environment()
    out.commit = _fails  # type: ignore[method-assign]
    env.add_source(Script(["x" * 100_000], type_info=Types.STRING())).sink_to(out)
    with pytest.raises(JobFailedError):
        Launch(ManualClock(), LocalRunner(), store).prepare(env._graph("j"), env._job_settings()).start().result()
    [file] = store.list("staged")
    assert verify(store.url).is_whole
    store.put(file, flipped(store.get(file)))
    assert f"{file}: its checksum does not match" in verify(store.url).text()


def again(store: MemoryStore) -> None:
    run(totals(Collect()), store=store.url.removeprefix("memory://"))


def test_a_missing_changed_or_foreign_job_record_is_reported() -> None:
    store, other = begun(), begun()
    data = store.get(job_name())
    store.delete(job_name())
    with pytest.raises(StoreDamagedError, match=r"has epochs, but no job\.json that names their job"):
        again(store)
    assert not verify(store.url).is_whole and not store.exists(job_name())
    store.put(job_name(), other.get(job_name()))
    with pytest.raises(StoreDamagedError, match="Was a file copied from another store"):
        again(store)
    assert "Was a file copied" in verify(store.url).text()
    for at in range(0, len(data), 7):
        store.put(job_name(), data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        if b"checksum" in store.get(job_name()):
            assert not verify(store.url).is_whole, store.get(job_name())
    store.put(job_name(), data)
    again(store)
    assert verify(store.url).is_whole


def test_a_changed_input_file_list_is_reported_and_stray_files_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1")
    store = MemoryStore(f"damaged-{next(_STORES)}")
    FileLog([str(tmp_path)], store).discover()
    [name] = store.list("input")
    store.put(f"{name.rpartition('/')[0]}/notes.txt", b"mine")
    assert [Path(file.path).name for file in FileLog([str(tmp_path)], store).files] == ["a.txt"]
    data = store.get(name)
    files = FileLog([str(tmp_path)], store).files
    for at in range(len(data)):
        store.put(name, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with contextlib.suppress(StoreDamagedError):
            # Some bytes of a compressed file have no meaning, such as the operating system that wrote it.
            assert FileLog([str(tmp_path)], store).files == files
    store.put(name, gzip.compress(gzip.decompress(data).replace(b"a.txt", b"b.txt")))
    with pytest.raises(StoreDamagedError, match="a list of input files, is not readable"):
        FileLog([str(tmp_path)], store)
    other = begun()
    other.put(name, store.get(name))
    assert f"{name}: it cannot be read: its checksum does not match its content" in verify(other.url).text()


def test_changed_stored_input_is_reported_on_read_and_by_verify() -> None:
    store = begun()
    type_info = Types.ROW_NAMED(["n"], [Types.LONG()])
    batches = StoredBatches(store, "in", type_info)
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": list(range(1000))}), buffer, write_page_checksum=True, compression="NONE")
    file = f"{batches.folder(0)}/part.parquet"
    store.put(file, buffer.getvalue().to_pybytes())
    batches.add(0)
    assert verify(store.url).is_whole
    [split] = batches.splits()
    assert sum(batch.num_rows for batch in read_stored(split, 0, 1000, type_info)) == 1000
    data = store.get(file)
    store.put(file, data[:600] + bytes([data[600] ^ 1]) + data[601:])
    assert f"{file}: its length and checksum are not as written (stored input)" in verify(store.url).text()
    with pytest.raises(StoreDamagedError, match="missing or damaged"):
        list(read_stored(split, 0, 1000, type_info))
    store.delete(file)
    assert f"{file}: it is missing (stored input)" in verify(store.url).text()


def test_a_changed_digit_in_the_description_of_stored_input_is_reported() -> None:
    store = begun()
    type_info = Types.ROW_NAMED(["n"], [Types.LONG()])
    batches = StoredBatches(store, "in", type_info)
    batches.begin()
    for number in range(3):
        buffer = pa.BufferOutputStream()
        pq.write_table(pa.table({"n": [1, 2, 3]}), buffer)
        store.put(f"{batches.folder(number)}/part.parquet", buffer.getvalue().to_pybytes())
        batches.add(number)
    batches.released([{split.name: 3 for split in batches.splits()[:2]}])  # removes batch 0
    marker = store.list("input/in/markers")[-1]
    changes = [(marker, b'"rows": 3', b'"rows": 0'), ("input/in/consumed.json", b'"through": 0', b'"through": 1')]
    changes.append(("input/in/series.json", f'"{batches.series.series}"'.encode(), b'"abcdefabcdef"'))
    assert verify(store.url).is_whole
    for name, was, became in changes:
        data = store.get(name)
        assert was in data
        store.put(name, data.replace(was, became))
        with pytest.raises(StoreDamagedError, match="its checksum does not match"):
            StoredBatches(store, "in", type_info)
        assert f"{name}: it cannot be read" in verify(store.url).text()
        store.put(name, data)
    assert len(StoredBatches(store, "in", type_info)._batches) == 2


def test_verify_reports_a_changed_or_missing_list_of_finished_splits() -> None:
    store, data = begun(), seal("finished-splits", 1, {"splits": ["a"]})
    log, name = ManifestLog(store), finished_name("numbers", 1, "a1")
    newest = log.newest()
    assert newest is not None
    store.put(name, data)
    listed = SplitFile(name, 1, hashlib.sha256(data).hexdigest())
    store.put(manifest_name(newest.epoch), encode(replace(newest, finished={"numbers": (listed,)})))
    assert verify(store.url).is_whole and not verify(store.url).strays
    store.put(name, flipped(data))
    assert "does not match its checksum in the manifest" in verify(store.url).text()
    store.delete(name)
    assert f"{name}: it is missing (splits of 'numbers' that were read to their end)" in verify(store.url).text()


@pytest.mark.parametrize("name", ["manifests/000000000001.json", "pins/before.json", "leases/2-a1.json"])
def test_a_symlink_loop_is_ignored_and_stops_neither_collection_nor_verify(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, original = LocalStore(tmp_path, fsync=False), begun()
    for file in original.list(""):
        store.put(file, original.get(file))
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(path)
    with pytest.raises(StoreDamagedError, match="was expected there"):
        store.modified_ms(name)
    assert not store.exists(name)
    Sweeper(store, lambda: 0, RetentionPolicy(1)).sweep(ManifestLog(store).newest())
    assert ManifestLog(store).epochs()[-1:] == [5] and "could not be swept" not in caplog.text
    verify(store.url)


def test_a_folder_in_place_of_a_file_is_reported_with_a_helpful_message(tmp_path: Path) -> None:
    (tmp_path / "swept.json").mkdir()
    with pytest.raises(StoreError, match="a folder is in the place of 'swept"):
        LocalStore(tmp_path, fsync=False).put("swept.json", b"")
