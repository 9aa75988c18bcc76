"""A manifest names everything that makes up one epoch. Once written it never changes.

Writing the manifest, atomically and under a name that only one writer can create, *is* the commit of its epoch: without
a manifest an epoch never happened. It is a small, human-readable JSON file:

    {
     "format": "millstream-manifest-1",
     "job": "clicks",
     "epoch": 7,
     ...                                  the other fields, sorted
     "checksum": "<sha-256 of every byte above this line>"
    }

The checksum covers bytes, not values, so that any flipped bit is detected; a large manifest is packed
(`manifest_bytes`). `Manifest` checks its own invariants, hence on every write and again on every read:

- epochs count from 1 and a manifest follows an older one (`parent < epoch`; parent 0: no previous epoch);
- an epoch is never listed as published by a manifest that still has output for it;
- a closing manifest (FINISHED, SUSPENDED) has no output.

This module does not repair: the error for a damaged file names the file and the newest intact epoch, and the file is
left unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, TypeVar, get_args

from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.manifest_bytes import PACKED, damaged, fields_of, to_bytes
from millstream.checkpoint.plain import JSON, plain
from millstream.checkpoint.program import program_of
from millstream.errors import ProgramError, StoreAwayError, StoreDamagedError, StoreError
from millstream.storage.names import MANIFESTS, epoch_of_manifest, manifest_name
from millstream.storage.store import Store

__all__ = [
    "FORMAT",
    "JSON",
    "Manifest",
    "ManifestLog",
    "ManifestOwner",
    "SplitFile",
    "SplitPosition",
    "Staged",
    "Status",
    "decode",
    "encode",
]

FORMAT = PACKED
"""The newest readable format. Format 2 has `finished`; a manifest without it is still written in format 1, for older
programs. A large manifest of either format is packed, which is format 3 (`manifest_bytes`)."""

Status = Literal["RUNNING", "DRAINED", "FINISHED", "SUSPENDED"]
"""RUNNING: more may follow. DRAINED: all input is read, the last output may be unpublished.
FINISHED: drained and published. SUSPENDED: stopped on request, published, resumable."""

_HEADER_FIELDS = ("job", "epoch")

T = TypeVar("T")


@dataclass(frozen=True)
class SplitPosition:
    """The position of one split: the offset where the next epoch starts, and the split's watermark."""

    offset: JSON
    finished: bool = False
    watermark: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "offset", plain(self.offset, "The offset of a split"))


@dataclass(frozen=True)
class SplitFile:
    """A file that lists splits finished before the manifest's epoch (`finished_splits`)."""

    file: str
    splits: int
    sha256: str


@dataclass(frozen=True)
class Staged:
    """The staged output of one subtask of a sink's writer; small, the data itself is in files."""

    subtask: int
    payload: JSON

    def __post_init__(self) -> None:
        object.__setattr__(self, "payload", plain(self.payload, f"The staged output of subtask {self.subtask}"))


@dataclass(frozen=True)
class Manifest:
    """The complete record of one epoch: source positions, state, output, and the newest published epoch. `run` names
    the driver's run that committed it. Many fields: those of the file.

    >>> first = Manifest(job="clicks", job_id="j1", epoch=1, parent=0, created_ms=0, run="a1",
    ...                  sources={"in": {"0": SplitPosition(offset=10)}})
    >>> decode(encode(first), "manifests/000000000001.json") == first
    True
    >>> print(encode(first).decode().splitlines()[1:4])
    [' "format": "millstream-manifest-1",', ' "job": "clicks",', ' "epoch": 1,']
    """

    job: str
    job_id: str
    epoch: int
    parent: int
    created_ms: int
    run: str
    status: Status = "RUNNING"
    sources: Mapping[str, Mapping[str, SplitPosition]] = field(default_factory=dict)
    states: Mapping[str, JSON] = field(default_factory=dict)
    staged: Mapping[str, tuple[Staged, ...]] = field(default_factory=dict)
    published_through: int = 0
    watermark: int | None = None
    counters: Mapping[str, JSON] = field(default_factory=dict)
    program: Mapping[str, JSON] = field(default_factory=dict)
    finished: Mapping[str, tuple[SplitFile, ...]] = field(default_factory=dict)
    meanings: Mapping[str, JSON] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("states", "counters", "program", "meanings"):
            object.__setattr__(self, name, plain(getattr(self, name), f"{name!r} of the manifest"))
        object.__setattr__(self, "sources", {uid: dict(splits) for uid, splits in self.sources.items()})
        object.__setattr__(self, "finished", {uid: tuple(files) for uid, files in self.finished.items()})
        object.__setattr__(self, "staged", {uid: tuple(parts) for uid, parts in self.staged.items()})
        wrong = _broken_invariant(self)
        if wrong:
            raise ValueError(f"manifest of epoch {self.epoch} of job {self.job!r}: {wrong}")

    def operator_name(self, uid: str) -> str:
        """The name of the operator with this uid; the uid itself if the program lacks the operator."""
        operator = program_of(self).get(uid)
        return uid if operator is None else operator.name

    def derived(self, make: Callable[[Manifest], T]) -> T:
        """A cached result of `make`, computed from the states or the program, which never change."""
        results: dict[Any, Any] = self.__dict__.setdefault("_derived", {})
        if make not in results:
            results[make] = make(self)
        return results[make]  # type: ignore[no-any-return]

    def with_counters(self, counters: Mapping[str, JSON]) -> Manifest:
        """A copy with these counters. The other fields are already validated, and are not checked again."""
        changed = copy(self)
        object.__setattr__(changed, "counters", plain(counters, "'counters' of the manifest"))
        changed.__dict__["_derived"] = dict(self.__dict__.get("_derived", {}))
        return changed


_FIELDS = tuple(Manifest.__dataclass_fields__)
_KEYS = {name: name for name in _FIELDS} | {"run": "attempt"}
"""The names of fields in the file. Format 1 calls a run of the driver an attempt."""
_OPTIONAL = ("finished", "meanings")
"""Omitted if empty. Older programs ignore `meanings` and continue without checking them."""


def encode(manifest: Manifest) -> bytes:
    """Encodes the manifest as the bytes of its file."""
    document: dict[str, Any] = {"format": f"millstream-manifest-{2 if manifest.finished else 1}"}
    values = {
        _KEYS[name]: getattr(manifest, name) for name in _FIELDS if name not in _OPTIONAL or getattr(manifest, name)
    }
    if manifest.finished:
        values["finished"] = {uid: list(map(vars, files)) for uid, files in manifest.finished.items()}
    values["sources"] = {uid: _positions(splits) for uid, splits in manifest.sources.items()}
    values["staged"] = {
        uid: [{"subtask": part.subtask, "payload": part.payload} for part in parts]
        for uid, parts in manifest.staged.items()
    }
    for name in (*_HEADER_FIELDS, *sorted(set(values) - set(_HEADER_FIELDS))):
        document[name] = values[name]
    return to_bytes(document)


def decode(data: bytes, name: str) -> Manifest:
    """Decodes the manifest in `data`; StoreDamagedError names the file and the problem."""
    fields = fields_of(data, name)
    try:
        return _from_document(fields)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, ProgramError) as error:
        # The checksum matches, so the bytes are as written: the writer was faulty, or the file is forged.
        raise damaged(name, f"its content breaks the format ({type(error).__name__}: {error})") from error


def _from_document(document: dict[str, Any]) -> Manifest:
    document = {**{name: {} for name in _OPTIONAL}, **document}
    values = {name: document[_KEYS[name]] for name in _FIELDS}
    values["finished"] = {
        uid: tuple(SplitFile(**entry) for entry in files) for uid, files in document["finished"].items()
    }
    for name in ("epoch", "parent", "created_ms", "published_through"):
        if type(values[name]) is not int:
            raise TypeError(f"{name} is {values[name]!r}, expected a whole number")
    values["sources"] = {
        uid: {split: SplitPosition(**position) for split, position in splits.items()}
        for uid, splits in document["sources"].items()
    }
    values["staged"] = {uid: tuple(Staged(**part) for part in parts) for uid, parts in document["staged"].items()}
    return Manifest(**values)


def _positions(splits: Mapping[str, SplitPosition]) -> dict[str, JSON]:
    return {
        split: {"offset": at.offset, "finished": at.finished, "watermark": at.watermark} for split, at in splits.items()
    }


def _broken_invariant(manifest: Manifest) -> str | None:
    epoch, published = manifest.epoch, manifest.published_through
    if epoch < 1 or not 0 <= manifest.parent < epoch:
        return f"epoch {epoch} cannot follow epoch {manifest.parent}"
    if manifest.status not in get_args(Status):
        return f"unknown status {manifest.status!r}"
    if not 0 <= published <= epoch:
        return f"published through {published}, which is outside 0..{epoch}"
    has_output = any(manifest.staged.values())
    if has_output and published == epoch:
        return "its own output cannot be published before it is committed"
    if has_output and manifest.status in ("FINISHED", "SUSPENDED"):
        return f"a closing manifest ({manifest.status}) cannot carry output"
    return None


class ManifestOwner(Enum):
    """The writer of the existing manifest of an epoch."""

    OWN = "own"
    OTHER = "other"
    ABSENT = "absent"


_READS_MAX = 10


class ManifestLog:
    """The committed epochs of the job that owns the store.

    >>> from millstream.storage import open_store
    >>> log = ManifestLog(open_store("memory://doctest-manifest-log"))
    >>> first = Manifest(job="clicks", job_id="j1", epoch=1, parent=0, created_ms=0, run="a1")
    >>> log.newest() is None, log.commit(first), log.newest() == first
    (True, True, True)
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def epochs(self) -> list[int]:
        """The epochs that have manifests, oldest first."""
        epochs = (epoch_of_manifest(name) for name in self._store.list(MANIFESTS))
        return sorted(epoch for epoch in epochs if epoch is not None)

    def epochs_from(self, epoch: int) -> list[int]:
        """The epochs from this one on. The cost is proportional to the result, regardless of the number of other
        epochs."""
        if epoch <= 1:
            return self.epochs()
        epochs = map(epoch_of_manifest, self._store.list_after(MANIFESTS, manifest_name(epoch - 1)))
        return [existing for existing in epochs if existing is not None]

    def has(self, epoch: int) -> bool:
        """Whether the manifest of `epoch` exists."""
        return epoch > 0 and self._store.exists(manifest_name(epoch))

    def read(self, epoch: int) -> Manifest:
        """The manifest of `epoch`; StoreDamagedError if it is absent, damaged, or of another epoch."""
        return self._decoded(epoch, self._store.get(manifest_name(epoch)))

    def read_if_present(self, epoch: int) -> Manifest | None:
        """The manifest of `epoch`, or None if it does not exist. A collector may remove and restore it concurrently."""
        name = manifest_name(epoch)
        for _ in range(_READS_MAX):
            if not self._store.exists(name):
                return None
            try:
                data = self._store.get(name)
            except StoreDamagedError:
                continue  # it existed when listed
            return self._decoded(epoch, data)
        return self.read(epoch)

    def _decoded(self, epoch: int, data: bytes) -> Manifest:
        name = manifest_name(epoch)
        manifest = decode(data, name)
        if manifest.epoch != epoch:
            raise StoreDamagedError(
                f"{name} is damaged: it holds the manifest of epoch {manifest.epoch}. Was a file copied or renamed?"
            )
        return manifest

    def newest(self, known: int = 0) -> Manifest | None:
        """The newest manifest, synced before it is used; None in a store without any. `known`: an epoch that existed,
        so that only this and newer ones are listed.

        A damaged newest manifest is an error that names the newest intact one. Falling back to that one would publish
        the damaged epoch's output again, so the user must decide.
        """
        epochs = self.epochs_from(known)
        while epochs:
            name = manifest_name(epochs[-1])
            try:
                # The writer may have died between creating the file and syncing it.
                self._store.settle(name)
                return self.read(epochs[-1])
            except StoreError as error:
                # A running driver may have committed newer epochs and removed this one since the listing.
                listed, epochs = epochs, self.epochs_from(known)
                if epochs[-1:] > listed[-1:] and not self._store.exists(name):
                    continue
                if isinstance(error, StoreDamagedError):
                    raise StoreDamagedError(f"{error.message} {self._newest_intact_before(listed[-1])}") from error
                raise
        return None

    def commit(self, manifest: Manifest) -> bool:
        """Commits `manifest` if its epoch is still free; False if another driver has taken the job over.

        1. Create the file. A service whose answer was lost may report "exists already" for our own write, so a lost
           race is decided by the stored bytes: identical bytes mean that this driver won.
        2. Check for a newer manifest. A driver that was suspended while another one committed *and removed* this epoch
           can create its name again; only newer manifests reveal that. If the parent does not exist either, the whole
           job may have been removed.
        """
        name, data = manifest_name(manifest.epoch), encode(manifest)
        if self._store.create(name, data):
            return not self._is_superseded(manifest)
        owner = self.find(manifest)
        if owner is ManifestOwner.ABSENT:
            # No driver has committed the epoch: treating that as a lost race would stop the only driver of the job.
            raise StoreAwayError(f"store {self._store.url}: {name!r} was reported to exist, but does not. Try again.")
        return owner is ManifestOwner.OWN

    def find(self, manifest: Manifest) -> ManifestOwner:
        """Determines the owner of the epoch after a commit with an unknown outcome."""
        name = manifest_name(manifest.epoch)
        if self._is_superseded(manifest):
            return ManifestOwner.OTHER
        if not self._store.exists(name):
            return ManifestOwner.ABSENT
        self._store.settle(name)
        return ManifestOwner.OWN if self._store.get(name) == encode(manifest) else ManifestOwner.OTHER

    def _is_superseded(self, manifest: Manifest) -> bool:
        epochs = self.epochs_from(manifest.parent)
        if epochs[-1:] > [manifest.epoch] or manifest.parent in epochs:
            return epochs[-1:] > [manifest.epoch]
        return self._is_removed(manifest)

    def _is_removed(self, manifest: Manifest) -> bool:
        """Whether the job's epochs were removed while this driver was suspended, which changes the job's id. A manifest
        written to the emptied store names missing files, and is deleted."""
        record = read_job_record(self._store)
        if record is None or record.job_id == manifest.job_id:
            return False
        name = manifest_name(manifest.epoch)
        if self._store.exists(name) and self._store.get(name) == encode(manifest):
            self._store.delete(name)
        return True

    def _newest_intact_before(self, damaged: int) -> str:
        for epoch in reversed(self.epochs()):
            if epoch >= damaged:
                continue
            try:
                self.read(epoch)
            except StoreDamagedError:
                continue
            return f"The newest intact epoch is {epoch}."
        return "No older epoch is intact."
