"""Savepoints: epochs of a job that a user retains.

A savepoint *by reference* is a pin in the job's own store (`pins.py`): immediate, and sharing every file. A
*self-contained* one is a folder that can be copied anywhere: a store with the one manifest and every file it names,
under the same relative names, and `savepoint.json`, which lists each file with its length and checksum. The list is
written last, and a folder without it is not a savepoint: an incomplete copy is never mistaken for a complete one.

An epoch can be saved once it is published. Its staged output belongs to the job that committed it; a job that starts
from the savepoint must neither publish it again nor lose it.
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
from millstream.checkpoint.removals import restore_set_aside
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
    """A named committed epoch. `store` holds every file that its manifest names. `is_savepoint`: it is a self-contained
    folder, whose manifest has no output; `parts` then holds the names of its published files, by sink.
    """

    name: str
    store: Store
    manifest: Manifest
    is_savepoint: bool = False
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def published(self, sink: str) -> tuple[JSON, ...]:
        """The output of a sink published by exactly this epoch; for a savepoint's folder, only file names."""
        payloads: list[JSON] = [{"part": name} for name in self.parts.get(sink, ())]
        return (*payloads, *(staged.payload for staged in self.manifest.staged.get(sink, ())))


def open_job_store(url: str, *, read_only: bool = False) -> Store:
    """The store of a job, layered on those it was forked from. `read_only`: none of them is written to."""

    def open_at(address: str) -> Store:
        store = open_store(address)
        return ReadOnlyStore(store) if read_only else store

    store = open_at(url)
    if not read_only and store.exists(leaving_name()):
        # A pinned epoch must be available even if no sweeper of a restarted job restores it.
        pinned = {pin.epoch for pin in pins_of(store)}
        restore_set_aside(store, lambda name, problem: _LOG.warning("%s", problem), pinned)
    record = read_job_record(store)
    bases = () if record is None else tuple(map(open_at, record.bases))
    return layered_store(store, bases)


def find_snapshot(name: SnapshotName) -> StoredSnapshot:
    """The snapshot of this name; StoreError, listing the existing ones, if it does not exist."""
    store = open_job_store(name.store)
    if store.exists(savepoint_name()):
        return _savepoint(name, store)
    if not store.exists(job_name()):
        manifests = store.list("manifests")
        problem = "is an incomplete copy of a savepoint" if manifests else "contains neither a job nor a savepoint"
        raise StoreError(f"{name.store} {problem}. Use a job's store, STORE@EPOCH, or a savepoint's folder.")
    log = ManifestLog(store)
    if isinstance(name.at, str):
        pins = {pin.name: pin.epoch for pin in pins_of(store)}
        if name.at not in pins:
            existing = ", ".join(sorted(pins)) or "none"
            raise StoreError(f"{name.store} has no savepoint '{name.at}'; it has {existing}.")
        return StoredSnapshot(str(name), store, log.read(pins[name.at]))
    epochs = log.epochs()
    if not epochs:
        raise StoreError(f"{name.store} has no epoch yet: the job has committed nothing. Start it first.")
    if name.at is None:
        return StoredSnapshot(str(name), store, _newest_published(store, log, epochs))
    manifest = log.read_if_present(name.at)
    if manifest is None:
        raise StoreError(
            f"{name.store} has no epoch {name.at}; it retains {epoch_ranges(log.epochs())}. Retain more epochs with "
            "millstream.retention.epochs, or save an epoch with `millstream savepoint`."
        )
    return StoredSnapshot(str(name), store, manifest)


def _newest_published(store: Store, log: ManifestLog, epochs: list[int]) -> Manifest:
    """The newest epoch known to be published, otherwise the newest epoch."""
    newest = log.newest()
    assert newest is not None  # epochs exist, and the newest is never removed
    published = known_published(store, newest, newest.job_id)
    return (log.read_if_present(published) if published in epochs else None) or newest


def _savepoint(name: SnapshotName, store: Store) -> StoredSnapshot:
    """A savepoint's folder, after checking that every listed file exists (contents are checked on use)."""
    where = f"{savepoint_name()} of {name.store}"
    listed = unseal(store.get(savepoint_name()), "savepoint", FORMAT, where)
    if name.at not in (None, listed["epoch"]):
        raise StoreError(f"{name.store} is a savepoint of epoch {listed['epoch']}; it has no {name.at!r}.")
    missing = [file for file in listed["files"] if not store.exists(file)]
    if missing:
        raise StoreDamagedError(
            f"savepoint {name.store} is an incomplete copy: {len(missing)} of {len(listed['files'])} files are "
            f"missing, the first is {missing[0]}. Copy it again."
        )
    manifest = ManifestLog(store).read(listed["epoch"])
    return StoredSnapshot(str(name), store, manifest, is_savepoint=True, parts=listed.get("parts", {}))


def seal(store: Store, manifest: Manifest, parts: Mapping[str, Sequence[str]] | None = None) -> None:
    """Completes a folder with all files of `manifest` as a savepoint: writes the manifest, then the list. `parts`: the
    names of the files that its epoch published, by sink."""
    store.put(manifest_name(manifest.epoch), encode(manifest))
    names = [manifest_name(manifest.epoch), *sorted(named_files(manifest))]
    files = {name: _facts(store.get(name)) for name in names}
    fields = {"job": manifest.job, "job_id": manifest.job_id, "epoch": manifest.epoch, "files": files}
    store.put(savepoint_name(), sealed("savepoint", FORMAT, {**fields, "parts": parts} if parts else fields))


def copy_savepoint(
    snapshot: StoredSnapshot, target: Store, on_progress: Callable[[int, int], None] | None = None
) -> None:
    """Writes a self-contained savepoint to an empty folder; calls `on_progress` with (files copied, total files).

    If it fails, the copied files are removed; in any case the list is missing, so the folder is not a savepoint.
    """
    if target.list(""):
        raise StoreError(f"{target.url} is not empty. A savepoint needs a folder of its own: use another --to.")
    manifest = replace(snapshot.manifest, staged={}, published_through=snapshot.manifest.epoch)
    names = sorted(named_files(manifest))
    copied: list[str] = []
    try:
        for name in names:
            copied.append(name)
            target.put(name, snapshot.store.get(name))
            if on_progress is not None:
                on_progress(len(copied), len(names))
        seal(target, manifest, _published_parts(snapshot))
    except BaseException:
        for name in (*copied, manifest_name(manifest.epoch)):
            _remove_copy(target, name)
        raise


def _published_parts(snapshot: StoredSnapshot) -> dict[str, list[str]]:
    """The names of the files that the epoch published, by sink."""
    published = {sink: snapshot.published(sink) for sink in {*snapshot.manifest.staged, *snapshot.parts}}
    return {
        sink: parts
        for sink, entries in sorted(published.items())
        if (parts := [str(entry["part"]) for entry in entries if isinstance(entry, dict) and "part" in entry])
    }


def _remove_copy(store: Store, name: str) -> None:
    with suppress(StoreError):  # without its list the folder is not a savepoint; the first error is the relevant one
        store.delete(name)


def _facts(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def epoch_ranges(epochs: Sequence[int]) -> str:
    """Formats epoch numbers as ranges; abbreviates very many ranges to the first and last ones.

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
