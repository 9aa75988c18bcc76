"""Checks every file of a store, and reports which epochs are intact.

Each file is checked once, no matter how many epochs name it: segments by `state.segments.segment_check`, a chunk at a
time, lists of operator state and the files of a savepoint by their checksums; files that no manifest names by
`small_files`. Local files are mapped or streamed; files of a remote store are fetched one after another. The store may
be in use: an epoch that is removed during the check is omitted.

Staged output may wait in the job's own store or, for a file sink, next to the published files. There it is checked as
well, up to the length in the manifest. A file under its final name is published and no longer belongs to the job. Files
of an archive do belong to it: the state names them, and queries need them. A job can continue without them, so their
problems belong to no epoch.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Hashable, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from millstream.checkpoint.finished_splits import names_in
from millstream.checkpoint.job_record import check_owner
from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.manifest import Manifest, ManifestLog, SplitFile
from millstream.checkpoint.pins import Pin, read_pins
from millstream.checkpoint.receipts import known_published
from millstream.checkpoint.savepoints import FORMAT as SAVEPOINT_FORMAT
from millstream.checkpoint.savepoints import epoch_ranges, open_job_store
from millstream.checkpoint.sealed import unseal
from millstream.checkpoint.snapshot_names import SnapshotName, parse_snapshot_name
from millstream.checkpoint.verification import (
    EpochReport,
    NamedFile,
    Problem,
    StagedFile,
    StoreReport,
    epoch_report,
    staged_files,
)
from millstream.connectors.archives.archived_files import ArchivedFile, check_file, entries_of
from millstream.errors import StoreDamagedError, StoreError
from millstream.state.keys.hashing import Int64s, xxhash64_column
from millstream.state.keys.key_columns import key_column_of_arrow
from millstream.state.schemas.past import entry_of_segment, footer_misfit
from millstream.state.schemas.schema_history import entry_at
from millstream.state.schemas.stored_layout import stored_layout
from millstream.state.segments.open_segments import OpenSegments, ReadFile, WholeFile
from millstream.state.segments.segment import layout_document
from millstream.state.segments.segment_check import segment_problems
from millstream.state.segments.segment_footer import SegmentFile
from millstream.state.segments.version import SegmentRef
from millstream.state.stored.accounts import ListEntry
from millstream.state.stored.table_names import ARCHIVED_FILES
from millstream.state.tables.layout import TableLayout
from millstream.state.windows.places import place_hashes
from millstream.state_reader.catalog import StoredState, states_of
from millstream.state_reader.forms import Canonical, key_form
from millstream.state_reader.small_files import is_stray, small_file_problems, stored_input_problems
from millstream.state_reader.table_source import is_of_windows, layout_of, view_of
from millstream.storage.content import content_of
from millstream.storage.layered_stores import ReadOnlyStore
from millstream.storage.names import job_name, manifest_name, savepoint_name
from millstream.storage.store import Store, open_store, shown_address

__all__ = ["staged_problems", "verify"]

_CHUNK_BYTES = 1 << 20
_MISSING = "it is missing"


def verify(name: str, note: Callable[[str], None] | None = None) -> StoreReport:
    """The report on a store, one epoch (`STORE@EPOCH`, `STORE@SAVEPOINT`) or a savepoint's folder.

    `note` is called with the name of every file before its check. Nothing is ever written.
    """
    address = parse_snapshot_name(name)
    try:
        store = open_job_store(address.store, read_only=True)
    except StoreDamagedError:  # the stores it shares files with are unknown; the report says so
        store = ReadOnlyStore(open_store(address.store))
    is_savepoint = store.exists(savepoint_name())
    if not is_savepoint and not store.exists(job_name()) and not store.list("manifests"):
        raise StoreError(f"{address.store} contains neither a job nor a savepoint. Give a job's store or a savepoint.")
    return _Verifier(store, note or (lambda file: None)).report(address, is_savepoint)


class _Verifier:
    def __init__(self, store: Store, note: Callable[[str], None]) -> None:
        self._store, self._note = store, note
        self._log = ManifestLog(store)
        self._problems: dict[Hashable, list[str]] = {}
        self._archive_problems: dict[Problem, None] = {}

    def report(self, address: SnapshotName, is_savepoint: bool) -> StoreReport:
        problems: list[Problem] = []
        if is_savepoint:
            problems += self._savepoint_problems()
        elif not self._store.exists(job_name()):
            lost = f"it is missing: a savepoint that was not copied whole, or a job that has lost its {job_name()}"
            problems.append(Problem(savepoint_name(), lost))
        else:
            problems += self._record_problems()
        problems += [*small_file_problems(self._store), *stored_input_problems(self._store)]
        epochs = self._log.epochs()
        pins = {pin.name: pin.epoch for _, pin in read_pins(self._store) if isinstance(pin, Pin)}
        problems += [
            Problem("pins", f"savepoint '{name}' is of epoch {epoch}, which is not there")
            for name, epoch in pins.items()
            if epoch not in epochs
        ]
        if address.at is not None:
            epochs = [self._epoch_at(address, pins, epochs)]
        newest = self._newest_readable()
        published = 0 if newest is None else self._published_through(newest)
        reports = tuple(r for r in (self._epoch(epoch, published, is_savepoint) for epoch in epochs) if r is not None)
        strays = tuple(name for name in self._store.list("") if is_stray(name))
        return StoreReport(str(address), reports, (*problems, *self._archive_problems), strays)

    def _epoch_at(self, address: SnapshotName, pins: dict[str, int], epochs: list[int]) -> int:
        epoch = address.at if isinstance(address.at, int) else pins.get(str(address.at))
        if epoch is None or epoch not in epochs:
            have = ", ".join(filter(None, [epoch_ranges(epochs), *sorted(pins)])) or "none"
            raise StoreError(f"{address.store} has no epoch or savepoint {address.at!r}; it has {have}.")
        return epoch

    def _newest_readable(self) -> Manifest | None:
        for epoch in reversed(self._log.epochs()):
            try:
                return self._log.read(epoch)
            except StoreDamagedError:
                continue
        return None

    def _published_through(self, newest: Manifest) -> int:
        try:
            return known_published(self._store, newest, newest.job_id)
        except StoreDamagedError:
            return newest.published_through

    def _record_problems(self) -> Iterator[Problem]:
        try:
            record, newest = read_job_record(self._store), self._newest_readable()
            if record is not None and newest is not None:
                check_owner(self._store, record, newest.job_id, newest.epoch)
            if record is not None:
                known_published(self._store, newest, record.job_id)
        except StoreDamagedError as error:
            yield Problem(job_name(), error.message)

    # --- an epoch -------------------------------------------------------------------------------------------------

    def _epoch(self, epoch: int, published_through: int, is_savepoint: bool) -> EpochReport | None:
        name = manifest_name(epoch)
        try:
            manifest = self._log.read(epoch)
            files = list(self._files(manifest, epoch if is_savepoint else published_through))
        except StoreDamagedError as error:
            if not self._store.exists(name):
                return None  # removed in the meantime
            return EpochReport(epoch, 1, 0, (Problem(name, error.message),))
        report = epoch_report(epoch, files)
        return report if report.is_whole or self._store.exists(name) else None

    def _files(self, manifest: Manifest, published_through: int) -> Iterator[tuple[NamedFile, list[str]]]:
        """The files that an epoch needs, with the problems of each."""
        for state in states_of(manifest):
            is_whole = True
            for ref in state.refs:
                # The file's facts in the manifest identify the check; the live key groups are not among them.
                problems = self._once(ref.file, (ref.whole, state.uid, state.name), partial(self._segment, ref, state))
                is_whole = is_whole and not problems
                yield NamedFile(ref.file, ref.file_bytes, state.what), problems
            if state.name == ARCHIVED_FILES and state.refs and is_whole:
                self._check_archive(state)
            for number, entry in enumerate(state.entries):
                if entry is not None:
                    within = f"{manifest_name(manifest.epoch)}, operator state '{state.name}' of subtask {number}"
                    place = entry.file or within
                    problems = self._once(place, (place, entry.bytes, entry.sha256), partial(self._entry, entry))
                    yield NamedFile(place, entry.bytes, state.what), problems
        for uid, lists in manifest.finished.items():
            for listed in lists:
                problems = self._once(listed.file, listed, partial(self._split_list, listed))
                yield NamedFile(listed.file, 0, f"splits of '{uid}' that were read to their end"), problems
        newest = self._log.epochs_from(manifest.epoch)[-1:] == [manifest.epoch]
        for staged in staged_files(manifest, published_through):
            name = staged.file if staged.target is None else f"{staged.target}/{staged.file}"
            problems = self._once(name, (staged, newest), partial(staged_problems, self._store, staged, newest))
            yield NamedFile(name, staged.bytes or 0, "staged output"), problems

    def _check_archive(self, state: StoredState) -> None:
        """Check the files of a table's archived rows."""
        segments = OpenSegments(self._store, maps=False, is_foreign=True)
        rows = view_of(segments, state, layout_of(segments, state)).scan()
        for entry in entries_of(block.column("value") for block in rows):
            name = f"{shown_address(entry.url)}/{entry.file}"
            for finding in self._once(name, entry, partial(_archive_problems, entry)):
                self._archive_problems[Problem(name, finding, state.what)] = None

    def _once(self, file: str, facts: Hashable, check: Callable[[], list[str]]) -> list[str]:
        """The problems of a file with these expected `facts`; each is checked once."""
        if facts not in self._problems:
            self._note(file)
            try:
                self._problems[facts] = check()
            except (StoreError, OSError) as error:
                self._problems[facts] = [f"it cannot be read: {error}"]
        return self._problems[facts]

    def _split_list(self, listed: SplitFile) -> list[str]:
        if not self._store.exists(listed.file):
            return [_MISSING]
        try:
            names_in(listed, self._store.get(listed.file))
        except StoreDamagedError as error:
            return [error.message]
        return []

    def _segment(self, ref: SegmentRef, state: StoredState) -> list[str]:
        if not self._store.exists(ref.file):
            return [_MISSING]

        def hashes(keys: pa.Array, layout: TableLayout) -> Int64s | None:
            return _key_hashes(keys, layout, is_of_windows(state, layout))

        file = self._file(ref.file)
        return segment_problems(file, ref, state.name, hashes) or _type_problems(file, ref, state)

    def _file(self, file: str) -> SegmentFile:
        path = self._store.local_path(file)
        # Read, not mapped: checking a damaged store must not crash the process.
        return WholeFile(pa.py_buffer(self._store.get(file))) if path is None else ReadFile(path, file)

    def _entry(self, entry: ListEntry) -> list[str]:
        if entry.file is not None:
            return self._checksum_problem(entry.file, entry.bytes, entry.sha256)
        try:
            data = base64.b64decode(entry.inline or "", validate=True)
        except binascii.Error as error:
            return [f"it cannot be decoded ({error})"]
        is_same = len(data) == entry.bytes and hashlib.sha256(data).hexdigest() == entry.sha256
        return [] if is_same else ["its checksum does not match its content"]

    # --- files with a checksum of their own -----------------------------------------------------------------------

    def _checksum_problem(self, file: str, expected_bytes: int, sha256: str) -> list[str]:
        """Check that a file has this length and checksum."""
        if not self._store.exists(file):
            return [_MISSING]
        digest, length = hashlib.sha256(), 0
        for part in self._parts(file):
            digest.update(part)
            length += len(part)
        if length != expected_bytes:
            return [f"it has {length} bytes, expected {expected_bytes}"]
        return [] if digest.hexdigest() == sha256 else ["its checksum does not match its content"]

    def _parts(self, file: str) -> Iterator[bytes]:
        path = self._store.local_path(file)
        if path is None:
            yield self._store.get(file)
            return
        with path.open("rb") as opened:
            while part := opened.read(_CHUNK_BYTES):
                yield part

    def _savepoint_problems(self) -> Iterator[Problem]:
        name = savepoint_name()
        try:
            listed = unseal(self._store.get(name), "savepoint", SAVEPOINT_FORMAT, name)
        except StoreDamagedError as error:
            yield Problem(name, error.message)
            return
        for file, facts in listed["files"].items():
            self._note(file)
            for problem in self._checksum_problem(file, facts["bytes"], facts["sha256"]):
                yield Problem(file, problem, "listed by savepoint.json")


def _type_problems(file: SegmentFile, ref: SegmentRef, state: StoredState) -> list[str]:
    """Check that an intact segment has the type in the manifest; manifests of older versions lack it."""
    if not state.history:
        return []
    layout, at = layout_document(stored_layout(file, "it")), entry_at(state.history, ref.epoch)
    is_covered = state.history[0].since <= ref.epoch  # otherwise a job trusts the file (`history_repair`)
    if not is_covered or entry_of_segment(state.history, layout, ref.epoch) is not None:
        return []
    return [f"it is one {footer_misfit(layout, state.history[at])}"]


def _key_hashes(keys: pa.Array, layout: TableLayout, of_windows: bool) -> Int64s | None:
    """The expected hashes of keys. For keys without a type only strings and whole numbers are checked: others would
    have to be decoded one by one, and would import the user's classes."""
    if of_windows:
        inner = keys.field("key")
        is_canonical = layout.stored_key_type.field("key").type == pa.binary()
        own = _canonical_hashes(inner) if is_canonical else key_column_of_arrow(inner).hashes
        if own is None:
            return None
        return place_hashes(own, xxhash64_column(keys.field("window")), layout.max_parallelism)
    if layout.key_type is None:
        return _canonical_hashes(keys)
    return xxhash64_column(keys)


def _canonical_hashes(keys: pa.Array) -> Int64s | None:
    form = key_form("key", [keys])
    if not isinstance(form, Canonical) or form.kind not in "si" or pc.any(pc.equal(keys, b"n")).as_py():
        return None
    [column] = form.arrays(keys)
    return xxhash64_column(column)


def _archive_problems(entry: ArchivedFile) -> list[str]:
    try:
        check_file(entry)
    except StoreDamagedError as error:
        return [error.message]
    return []


def staged_problems(job_store: Store, staged: StagedFile, needed: bool) -> list[str]:
    """The problems of a staged file. `needed`: the file belongs to the newest epoch, so it cannot have been published
    since."""
    store = job_store if staged.target is None else open_store(staged.target)
    if not store.exists(staged.file):
        is_lost = needed if staged.target is not None else True
        is_published = bool(staged.part) and store.exists(staged.part)
        return ["it is missing"] if is_lost and not is_published else []
    if staged.bytes is None:
        return []
    length, checksum = content_of(store, staged.file, staged.bytes)
    if length != staged.bytes:
        return [f"it has {'more' if length > staged.bytes else length} bytes, expected {staged.bytes}"]
    return [] if checksum == staged.crc32 else ["its checksum does not match its content"]
