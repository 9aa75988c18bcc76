"""A manifest names all that one epoch is made of. Once written it never changes.

Writing the manifest, atomically and under a name that only one writer can take, *is* the commit of its epoch: what no
manifest names never happened. It is a small JSON file, meant to be read by people as well:

    {
     "format": "millstream-manifest-1",
     "job": "clicks",
     "epoch": 7,
     ...                                  the other fields, sorted
     "checksum": "<sha-256 of every byte above this line>"
    }

The checksum covers bytes, not values, so that any flipped bit is found; a large manifest is packed (`manifest_bytes`).
`Manifest` checks its own invariants, hence on every write and again on every read:

- epochs count from 1 and a manifest follows an older one (`parent < epoch`; 0 is the empty beginning);
- an epoch is never listed as published by a manifest that still carries output for it;
- a closing manifest (FINISHED, SUSPENDED) carries no output.

This module refuses to repair: a damaged file is named, with the newest epoch that is still whole, and left as it is.
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
"""The newest format that is read. Format 2 has `finished`; a manifest without any is still written in format 1, which
older programs read. A large one of either is packed, which is format 3 (`manifest_bytes`)."""

Status = Literal["RUNNING", "DRAINED", "FINISHED", "SUSPENDED"]
"""RUNNING: more may follow. DRAINED: all input is in, its last output may be unpublished.
FINISHED: drained and published. SUSPENDED: stopped on request, published, to be resumed."""

_HEADER_FIELDS = ("job", "epoch")

T = TypeVar("T")


@dataclass(frozen=True)
class SplitPosition:
    """How far one split has been read: the offset where the next epoch starts, and the split's watermark."""

    offset: JSON
    finished: bool = False
    watermark: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "offset", plain(self.offset, "The offset of a split"))


@dataclass(frozen=True)
class SplitFile:
    """A file that lists splits which were read to their end before the manifest's epoch (`finished_splits`)."""

    file: str
    splits: int
    sha256: str


@dataclass(frozen=True)
class Staged:
    """What one subtask of a sink's writer handed over to be published; small, the data itself lies in files."""

    subtask: int
    payload: JSON

    def __post_init__(self) -> None:
        object.__setattr__(self, "payload", plain(self.payload, f"The staged output of subtask {self.subtask}"))


@dataclass(frozen=True)
class Manifest:
    """All of one epoch: where its sources stand, its state, its output, and what is known to be published. `run` names
    the driver's run that committed it. Many fields: they are those of the file.

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
        """How the operator of this uid is called; its uid where the program has none such."""
        operator = program_of(self).get(uid)
        return uid if operator is None else operator.name

    def derived(self, make: Callable[[Manifest], T]) -> T:
        """What `make` makes of the states or the program. They never change, so it is made once and kept here."""
        results: dict[Any, Any] = self.__dict__.setdefault("_derived", {})
        if make not in results:
            results[make] = make(self)
        return results[make]  # type: ignore[no-any-return]

    def with_counters(self, counters: Mapping[str, JSON]) -> Manifest:
        """The same manifest with these counters. The rest is plain and whole already, and is not gone through again."""
        changed = copy(self)
        object.__setattr__(changed, "counters", plain(counters, "'counters' of the manifest"))
        changed.__dict__["_derived"] = dict(self.__dict__.get("_derived", {}))
        return changed


_FIELDS = tuple(Manifest.__dataclass_fields__)
_KEYS = {name: name for name in _FIELDS} | {"run": "attempt"}
"""How fields are called in the file. The first Millstreams called a run of the driver an attempt."""
_OPTIONAL = ("finished", "meanings")
"""Left out where there are none. Older programs pass over `meanings`: they go on without judging them, as they did."""


def encode(manifest: Manifest) -> bytes:
    """The manifest as the bytes of its file."""
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
    """The manifest in `data`; StoreDamagedError naming the file and what is wrong with it."""
    fields = fields_of(data, name)
    try:
        return _from_document(fields)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, ProgramError) as error:
        # The checksum held, so these are the bytes that were written: a program wrote nonsense, or forged it.
        raise damaged(name, f"its content breaks the format ({type(error).__name__}: {error})") from error


def _from_document(document: dict[str, Any]) -> Manifest:
    document = {**{name: {} for name in _OPTIONAL}, **document}
    values = {name: document[_KEYS[name]] for name in _FIELDS}
    values["finished"] = {uid: tuple(SplitFile(**one) for one in files) for uid, files in document["finished"].items()}
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
    """Who wrote the manifest that stands under an epoch's name."""

    MINE = "mine"
    OTHER = "other"
    ABSENT = "absent"


_READS_MAX = 10


class ManifestLog:
    """The committed epochs of the job whose store this is.

    >>> from millstream.storage import open_store
    >>> log = ManifestLog(open_store("memory://doctest-manifest-log"))
    >>> first = Manifest(job="clicks", job_id="j1", epoch=1, parent=0, created_ms=0, run="a1")
    >>> log.newest() is None, log.commit(first), log.newest() == first
    (True, True, True)
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def epochs(self) -> list[int]:
        """The epochs whose manifests are there, oldest first."""
        found = (epoch_of_manifest(name) for name in self._store.list(MANIFESTS))
        return sorted(epoch for epoch in found if epoch is not None)

    def epochs_from(self, epoch: int) -> list[int]:
        """The same, from this epoch on. It costs what it returns, however many others there are."""
        if epoch <= 1:
            return self.epochs()
        found = map(epoch_of_manifest, self._store.list_after(MANIFESTS, manifest_name(epoch - 1)))
        return [found_epoch for found_epoch in found if found_epoch is not None]

    def has(self, epoch: int) -> bool:
        """Whether the manifest of `epoch` is there."""
        return epoch > 0 and self._store.exists(manifest_name(epoch))

    def read(self, epoch: int) -> Manifest:
        """The manifest of `epoch`; StoreDamagedError when it is absent, damaged, or says it is another epoch's."""
        return self._decoded(epoch, self._store.get(manifest_name(epoch)))

    def read_if_there(self, epoch: int) -> Manifest | None:
        """The manifest of `epoch`, or None when it is not there. A collector may take it away, and put it back, now."""
        name = manifest_name(epoch)
        for _ in range(_READS_MAX):
            if not self._store.exists(name):
                return None
            try:
                data = self._store.get(name)
            except StoreDamagedError:
                continue  # it was there a moment ago
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
        """The newest manifest, made durable before it is believed; None in a store without any. `known`: an epoch that
        was there, so that only this and newer ones are listed.

        A damaged newest manifest is an error that names the newest whole one: going back to it would publish again
        what the damaged one already published, so that is for a person to decide.
        """
        epochs = self.epochs_from(known)
        while epochs:
            name = manifest_name(epochs[-1])
            try:
                # Its writer may have died between giving the name and syncing it.
                self._store.settle(name)
                return self.read(epochs[-1])
            except StoreError as error:
                # A running driver may have committed and trimmed past it since we looked: then there is a newer one.
                looked, epochs = epochs, self.epochs_from(known)
                if epochs[-1:] > looked[-1:] and not self._store.exists(name):
                    continue
                if isinstance(error, StoreDamagedError):
                    raise StoreDamagedError(f"{error.message} {self._whole_before(looked[-1])}") from error
                raise
        return None

    def commit(self, manifest: Manifest) -> bool:
        """Commit `manifest` if its epoch is still free; False when another driver has taken the job over.

        1. Take the name. A service that lost its answer on the way may report "exists already" about our own write,
           so a lost race is settled by the bytes that stand there: ours, to the last one, means that we won.
        2. Look for a newer manifest. A driver that slept while another one committed *and trimmed* this epoch finds
           its name free again; only the newer manifests tell it so. Where the one before is gone, all may have been
           removed with the job.
        """
        name, data = manifest_name(manifest.epoch), encode(manifest)
        if self._store.create(name, data):
            return not self._is_passed(manifest)
        owner = self.find(manifest)
        if owner is ManifestOwner.ABSENT:
            # Nobody has the epoch: whoever takes that for a lost race stops a job that nobody else runs.
            raise StoreAwayError(f"store {self._store.url}: {name!r} is said to exist, and is not there. Ask again.")
        return owner is ManifestOwner.MINE

    def find(self, manifest: Manifest) -> ManifestOwner:
        """After a commit whose outcome is unknown: is it there, and does this driver still own the job?"""
        name = manifest_name(manifest.epoch)
        if self._is_passed(manifest):
            return ManifestOwner.OTHER
        if not self._store.exists(name):
            return ManifestOwner.ABSENT
        self._store.settle(name)
        return ManifestOwner.MINE if self._store.get(name) == encode(manifest) else ManifestOwner.OTHER

    def _is_passed(self, manifest: Manifest) -> bool:
        epochs = self.epochs_from(manifest.parent)
        if epochs[-1:] > [manifest.epoch] or manifest.parent in epochs:
            return epochs[-1:] > [manifest.epoch]
        return self._is_removed(manifest)

    def _is_removed(self, manifest: Manifest) -> bool:
        """Whether the job's epochs were removed while this driver slept: the job has another id since. What it wrote
        into the emptied store names files that are gone, and is taken back."""
        record = read_job_record(self._store)
        if record is None or record.job_id == manifest.job_id:
            return False
        name = manifest_name(manifest.epoch)
        if self._store.exists(name) and self._store.get(name) == encode(manifest):
            self._store.delete(name)
        return True

    def _whole_before(self, damaged: int) -> str:
        for epoch in reversed(self.epochs()):
            if epoch >= damaged:
                continue
            try:
                self.read(epoch)
            except StoreDamagedError:
                continue
            return f"The newest epoch that is still whole is {epoch}."
        return "No older epoch is whole."
