"""One small file that cannot be read: it is told of, and neither kills the job nor stops collection."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable
from functools import partialmethod

import pytest
from running_totals import expected, totals
from watched_store import make_older

from millstream.checkpoint.leases import DURATION_MS, LeasedEpoch
from millstream.checkpoint.manifest import ManifestLog, encode
from millstream.checkpoint.pins import Pin, pin_epoch, pins_of, unpin
from millstream.checkpoint.retention import RetentionPolicy, named_files
from millstream.checkpoint.sealed import seal
from millstream.jobs.sweeper import Sweeper
from millstream.state_reader.verifying import verify
from millstream.storage.memory import MemoryStore
from millstream.storage.names import leaving_name, manifest_name, pin_name
from millstream.testing import Collect, run

_STORES = itertools.count()


def begun(epochs: int = 4) -> MemoryStore:
    """The store of a job that has stopped after so many epochs."""
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
def test_a_job_goes_on_and_is_swept_whatever_one_small_file_holds(
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
    # What came after the file goes like everything else; what it may be of stays.
    assert len(set(ManifestLog(store).epochs()) - set(before)) == 2
    assert "could not be swept" not in caplog.text and "could not be" not in caplog.text
    if "pin" in what or "manifest with" in what or "empty leaving" in what:
        assert name.rpartition("/")[2] in caplog.text


def test_an_unreadable_pin_holds_the_epochs_it_may_be_of_and_no_later_one() -> None:
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


def test_a_lease_of_a_newer_millstream_holds_the_epoch_in_its_name_while_it_is_written_again() -> None:
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


def test_what_is_whole_of_a_damaged_leaving_file_is_put_back() -> None:
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


def test_files_that_a_damaged_manifest_may_name_stay_until_it_goes() -> None:
    store = begun(5)
    log = ManifestLog(store)
    newest, files = log.newest(), named_files(log.read(3))
    store.put(manifest_name(3), b"{")
    Sweeper(store, lambda: 0, RetentionPolicy(4)).sweep(newest)
    assert log.epochs() == [2, 3, 4, 5, 6] and all(store.exists(file) for file in files)
    Sweeper(store, lambda: 0, RetentionPolicy(2)).sweep(newest)
    assert log.epochs() == [5, 6]
    assert verify(store.url).is_whole


@pytest.mark.parametrize("what", SMALL_FILES)
def test_verify_tells_of_every_file_that_cannot_be_read_and_of_strays(what: str) -> None:
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
def test_verify_looks_at_small_files_of_every_kind(folder: str) -> None:
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
