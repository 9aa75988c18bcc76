"""Savepoints: an epoch of a job that people keep.

*By reference* it is a pin in the job's own store (`pins.py`): there at once, sharing every file. *Self-contained* it is
a folder that can be copied anywhere: a store of its own with the one manifest and every file it names, under the same
relative names, and `savepoint.json`, which lists each with its length and checksum. The list is written last, and a
folder without it is no savepoint: half a copy is never taken for a whole one.

An epoch can be saved once it is published. What it has staged is the business of the job that committed it; whoever
starts from the savepoint must not publish it again, and must not miss it either.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.manifest import JSON, Manifest, ManifestLog, encode
from millstream.checkpoint.pins import pins_of
from millstream.checkpoint.receipts import known_published
from millstream.checkpoint.removals import put_back
from millstream.checkpoint.retention import named_files
from millstream.checkpoint.sealed import seal as sealed
from millstream.checkpoint.sealed import unseal
from millstream.checkpoint.snapshot_names import SnapshotName
from millstream.errors import StoreDamagedError, StoreError
from millstream.storage.layered_stores import ReadOnlyStore, layered_store
from millstream.storage.names import job_name, leaving_name, manifest_name, savepoint_name
from millstream.storage.store import Store, open_store

__all__ = ["StoredSnapshot", "copy_savepoint", "epoch_ranges", "find_snapshot", "open_job_store", "seal"]

_LOG = logging.getLogger(__name__)
_RANGES_SHOWN = 4

FORMAT = 1


@dataclass(frozen=True)
class StoredSnapshot:
    """A committed epoch that somebody named. `store` holds all that its manifest names; `is_savepoint`: it is in a
    folder of its own, whose manifest has no output; `parts` are then the names of the files that it published, by sink.
    """

    name: str
    store: Store
    manifest: Manifest
    is_savepoint: bool = False
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def published(self, sink: str) -> tuple[JSON, ...]:
        """What this very epoch has published of a sink; of a savepoint's folder, the names of files alone."""
        payloads: list[JSON] = [{"part": name} for name in self.parts.get(sink, ())]
        return (*payloads, *(staged.payload for staged in self.manifest.staged.get(sink, ())))


def open_job_store(url: str, *, read_only: bool = False) -> Store:
    """The store of a job, on top of those it was forked from. `read_only`: nothing will be written to any of them."""

    def open_at(address: str) -> Store:
        store = open_store(address)
        return ReadOnlyStore(store) if read_only else store

    store = open_at(url)
    if not read_only and store.exists(leaving_name()):
        # A savepoint is there also where nobody starts the job again, whose sweeper would put its epoch back.
        pinned = {pin.epoch for pin in pins_of(store)}
        put_back(store, lambda name, problem: _LOG.warning("%s", problem), pinned)
    record = read_job_record(store)
    bases = () if record is None else tuple(map(open_at, record.bases))
    return layered_store(store, bases)


def find_snapshot(name: SnapshotName) -> StoredSnapshot:
    """The snapshot people mean; StoreError saying what there is when there is none."""
    store = open_job_store(name.store)
    if store.exists(savepoint_name()):
        return _savepoint(name, store)
    if not store.exists(job_name()):
        half = store.list("manifests")
        what = "is a savepoint that was not copied whole" if half else "holds neither a job nor a savepoint"
        raise StoreError(f"{name.store} {what}. Give a job's store, STORE@EPOCH, or a savepoint's folder.")
    log = ManifestLog(store)
    if isinstance(name.at, str):
        pins = {pin.name: pin.epoch for pin in pins_of(store)}
        if name.at not in pins:
            have = ", ".join(sorted(pins)) or "none"
            raise StoreError(f"{name.store} has no savepoint '{name.at}'; it has {have}.")
        return StoredSnapshot(str(name), store, log.read(pins[name.at]))
    epochs = log.epochs()
    if not epochs:
        raise StoreError(f"{name.store} has no epoch yet: the job has committed nothing. Start it first.")
    if name.at is None:
        return StoredSnapshot(str(name), store, _newest_published(store, log, epochs))
    manifest = log.read_if_there(name.at)
    if manifest is None:
        raise StoreError(
            f"{name.store} has no epoch {name.at}; it retains {epoch_ranges(log.epochs())}. Keep more of the past with "
            "millstream.retention.epochs, or save an epoch with `millstream savepoint`."
        )
    return StoredSnapshot(str(name), store, manifest)


def _newest_published(store: Store, log: ManifestLog, epochs: list[int]) -> Manifest:
    """The newest epoch known to be published; where none is, the newest."""
    newest = log.newest()
    assert newest is not None  # there are epochs, and the newest is never removed
    published = known_published(store, newest, newest.job_id)
    return (log.read_if_there(published) if published in epochs else None) or newest


def _savepoint(name: SnapshotName, store: Store) -> StoredSnapshot:
    """A savepoint's folder, with every file that its list names (what is in them is checked on use)."""
    where = f"{savepoint_name()} of {name.store}"
    listed = unseal(store.get(savepoint_name()), "savepoint", FORMAT, where)
    if name.at not in (None, listed["epoch"]):
        raise StoreError(f"{name.store} is a savepoint of epoch {listed['epoch']}; it has no {name.at!r}.")
    missing = [file for file in listed["files"] if not store.exists(file)]
    if missing:
        raise StoreDamagedError(
            f"savepoint {name.store} was not copied whole: {len(missing)} of {len(listed['files'])} files are missing, "
            f"the first is {missing[0]}. Copy it again."
        )
    manifest = ManifestLog(store).read(listed["epoch"])
    return StoredSnapshot(str(name), store, manifest, is_savepoint=True, parts=listed.get("parts", {}))


def seal(store: Store, manifest: Manifest, parts: Mapping[str, Sequence[str]] | None = None) -> None:
    """Make a folder that already holds all files of `manifest` a savepoint: write the manifest, then the list. `parts`:
    the names of files that its epoch published, by sink."""
    store.put(manifest_name(manifest.epoch), encode(manifest))
    names = [manifest_name(manifest.epoch), *sorted(named_files(manifest))]
    files = {name: _facts(store.get(name)) for name in names}
    fields = {"job": manifest.job, "job_id": manifest.job_id, "epoch": manifest.epoch, "files": files}
    store.put(savepoint_name(), sealed("savepoint", FORMAT, {**fields, "parts": parts} if parts else fields))


def copy_savepoint(snapshot: StoredSnapshot, target: Store, note: Callable[[int, int], None] | None = None) -> None:
    """Write a self-contained savepoint into an empty folder; `note` is told (files copied, files in all).

    If it fails, what was copied is removed, and in any case there is no list: nobody takes it for whole.
    """
    if target.list(""):
        raise StoreError(f"{target.url} is not empty. A savepoint needs a folder of its own: give another --to.")
    manifest = replace(snapshot.manifest, staged={}, published_through=snapshot.manifest.epoch)
    names = sorted(named_files(manifest))
    copied: list[str] = []
    try:
        for name in names:
            copied.append(name)
            target.put(name, snapshot.store.get(name))
            if note is not None:
                note(len(copied), len(names))
        seal(target, manifest, _published_parts(snapshot))
    except BaseException:
        for name in (*copied, manifest_name(manifest.epoch)):
            _forget(target, name)
        raise


def _published_parts(snapshot: StoredSnapshot) -> dict[str, list[str]]:
    """The names of the files that the epoch published, by sink."""
    published = {sink: snapshot.published(sink) for sink in {*snapshot.manifest.staged, *snapshot.parts}}
    return {
        sink: parts
        for sink, entries in sorted(published.items())
        if (parts := [str(entry["part"]) for entry in entries if isinstance(entry, dict) and "part" in entry])
    }


def _forget(store: Store, name: str) -> None:
    with suppress(StoreError):  # without its list the folder is no savepoint; the first error is the one to tell
        store.delete(name)


def _facts(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def epoch_ranges(epochs: Sequence[int]) -> str:
    """Epochs as people write them; of very many ranges the first and the last.

    >>> epoch_ranges([1, 2, 3, 7, 9, 10])
    '1-3, 7, 9-10'
    >>> epoch_ranges(range(10, 2_000, 10))
    '10, 20, 30, 40, ..., 1960, 1970, 1980, 1990 (199 epochs)'
    """
    runs: list[list[int]] = []
    for epoch in epochs:
        if runs and runs[-1][1] == epoch - 1:
            runs[-1][1] = epoch
        else:
            runs.append([epoch, epoch])
    ranges = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    if len(ranges) <= 2 * _RANGES_SHOWN + 1:
        return ", ".join(ranges)
    return f"{', '.join([*ranges[:_RANGES_SHOWN], '...', *ranges[-_RANGES_SHOWN:]])} ({len(epochs)} epochs)"
