"""The open segments of a process, and the bytes of their files: each file is mapped and checked once.

Segments never change, so a mapping may be held for any length of time. Files of a local store are mapped in place. A
file of a store with a local tier (`storage.tier`) is mapped in the tier: it was written there, or is downloaded once if
it is small. A copy that proves to be damaged is fetched again. `keep_only` closes segments that no version names any
more, since a mapping retains the disk space of a deleted file.

A mapping costs nothing until it is read, and the page cache retains the pages that were read. But the system ends a
process with SIGBUS if it reads the mapping of a file that was truncated, and no error handling helps. So only processes
that may die use mappings: tasks, and separate readers. The process that drives a job reads instead (`ReadFile`, if
`maps` is False): there a truncated file is an error like any other. Files of a remote store that are not in a tier
cannot be mapped either: a small file is fetched whole, by one request; of a large file only the required parts are
fetched (and cached by a tier). Parts that were read or fetched are held in memory, up to a bound for the whole process
(`segment.SegmentMemory`), and fetched again on demand.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from millstream.errors import StoreAwayError, StoreDamagedError
from millstream.state.schemas.stored_layout import stored_layout
from millstream.state.segments.segment import DownloadedFile, HeldSegment, Segment, SegmentMemory
from millstream.state.segments.segment_footer import SegmentFile
from millstream.state.segments.version import SegmentRef
from millstream.state.tables.layout import TableLayout
from millstream.storage.store import Store, is_transient
from millstream.storage.tier.tiered_store import TieredStore

__all__ = ["WHOLE_BYTES_MAX", "OpenSegments", "RangedFile", "ReadFile", "WholeFile", "mapped_file"]

WHOLE_BYTES_MAX = 16 << 20
"""The largest remote file that is fetched whole."""

_DESCRIPTORS_MAX = 256
_HEAD_BYTES, _TAIL_BYTES = 16 << 10, 64 << 10


class WholeFile:
    """A file whose bytes are mapped or in memory.

    >>> WholeFile(pa.py_buffer(b"abcd")).read(1, 3).to_pybytes()
    b'bc'
    """

    def __init__(self, data: pa.Buffer) -> None:
        self._data = data

    @property
    def size(self) -> int:
        return int(self._data.size)

    def read(self, start: int, stop: int) -> pa.Buffer:
        return self._data.slice(start, stop - start)


def mapped_file(path: Path, length: int | None = None) -> WholeFile:
    """A mapped local file, or its first `length` bytes."""
    if not path.stat().st_size:
        return WholeFile(pa.py_buffer(b""))
    with pa.memory_map(str(path)) as source:
        return WholeFile(source.read_buffer(length))


class ReadFile:
    """A local file that is read in parts.

    The file is held open, so that it can be read to the end even if the job deletes it. If a process has very many
    files open, later files are opened for each part; reading a deleted one is then an error.
    """

    _holding: ClassVar[weakref.WeakSet[ReadFile]] = weakref.WeakSet()

    def __init__(self, path: Path, subject: str, length: int | None = None) -> None:
        self._path, self._subject = path, subject
        self._descriptor: int | None = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self._descriptor).st_size if length is None else length
        if len(ReadFile._holding) >= _DESCRIPTORS_MAX:
            os.close(self._descriptor)
            self._descriptor = None
        else:
            ReadFile._holding.add(self)
            weakref.finalize(self, os.close, self._descriptor).atexit = False

    def read(self, start: int, stop: int) -> pa.Buffer:
        try:
            if self._descriptor is not None:
                return self._part(self._descriptor, start, stop)
            descriptor = os.open(self._path, os.O_RDONLY)
            try:
                return self._part(descriptor, start, stop)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise (StoreAwayError if is_transient(error) else StoreDamagedError)(
                f"{self._subject} cannot be read: {error}. Check whether it was moved or removed, and restore it."
            ) from error

    def _part(self, descriptor: int, start: int, stop: int) -> pa.Buffer:
        parts: list[bytes] = []
        at = start
        while at < stop:
            part = os.pread(descriptor, stop - at, at)
            if not part:
                raise StoreDamagedError(
                    f"{self._subject} was truncated while open: it had {self.size} bytes, and ends before {stop}. "
                    "Nothing may change a file of a store. Restore it from a copy, or start from an older epoch."
                )
            parts.append(part)
            at += len(part)
        return pa.py_buffer(parts[0] if len(parts) == 1 else b"".join(parts))


class RangedFile:
    """A file of a remote store that is fetched in parts. Its head and tail, which hold the index, are fetched on
    opening.

    >>> RangedFile(lambda start, stop: bytes(range(start, stop)), 200, "segment a").read(1, 3).to_pybytes()
    b'\\x01\\x02'
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int, subject: str) -> None:
        self._fetch, self.size, self._subject = fetch, size, subject
        self._tail_start = max(0, size - _TAIL_BYTES)
        self._head, self._tail = self._part(0, min(size, _HEAD_BYTES)), self._part(self._tail_start, size)

    def read(self, start: int, stop: int) -> pa.Buffer:
        if stop <= self._head.size:
            return self._head.slice(start, stop - start)
        if start >= self._tail_start:
            return self._tail.slice(start - self._tail_start, stop - start)
        return self._part(start, stop)

    def _part(self, start: int, stop: int) -> pa.Buffer:
        data = self._fetch(start, stop)
        if len(data) != stop - start:
            raise StoreDamagedError(
                f"{self._subject} ends at {start + len(data)}, expected {self.size} bytes. Restore the file from a "
                "copy, or start the job from an older epoch."
            )
        return pa.py_buffer(data)


_OF_THIS_PROCESS = SegmentMemory()


class OpenSegments:
    """Opens and caches the segments of one store.

    >>> from millstream.storage import open_store
    >>> OpenSegments(open_store("memory://doctest-open-segments")).open_files
    []
    """

    def __init__(
        self,
        store: Store,
        *,
        maps: bool = True,
        is_foreign: bool = False,
        memory: SegmentMemory = _OF_THIS_PROCESS,
    ) -> None:
        self.store, self._is_foreign = store, is_foreign
        self._maps, self._memory = maps, memory
        self._open: dict[tuple[str, TableLayout], Segment] = {}
        self.read_ns = 0  # time that views of these segments spent in lookups, for statistics

    @property
    def open_files(self) -> list[str]:
        """The names of the open files."""
        return sorted({file for file, _ in self._open})

    def segment(self, ref: SegmentRef, layout: TableLayout) -> Segment:
        """The segment a ref names; StoreDamagedError if it is missing or damaged."""
        segment = self._open.get((ref.file, layout))
        if segment is None:
            try:
                segment = self._opened(self._file(ref, layout.state), ref, layout)
            except StoreDamagedError:
                if not isinstance(self.store, TieredStore):
                    raise
                segment = self._opened(self._fetched_again(ref, layout.state), ref, layout)
            self._open[ref.file, layout] = segment
        return segment

    def _opened(self, file: SegmentFile, ref: SegmentRef, layout: TableLayout) -> Segment:
        if isinstance(file, WholeFile):
            segment = Segment.of_file(file, layout, ref)
        else:
            segment = HeldSegment.of_file(file, layout, ref).in_memory(self._memory)
        segment.is_foreign = self._is_foreign
        if isinstance(self.store, TieredStore):
            segment.fetch_again = partial(self._fetched_again, ref, layout.state)
        return segment

    @contextmanager
    def holding(self, ref: SegmentRef, segment: Segment) -> Iterator[None]:
        """Inside the context, `ref` refers to rows in memory, which are merged and never written."""
        self._open[ref.file, segment.layout] = segment
        try:
            yield
        finally:
            del self._open[ref.file, segment.layout]

    def fetch(self, refs: Iterable[SegmentRef]) -> None:
        """Prefetches segments that are about to be opened: with a tier, small files that are not on this machine are
        downloaded concurrently."""
        if isinstance(self.store, TieredStore):
            open_files = {file for file, _ in self._open}
            files = {ref.file for ref in refs if ref.file_bytes <= WHOLE_BYTES_MAX}
            self.store.fetch_all(sorted(files - open_files))

    def stored_layout(self, ref: SegmentRef, state: str) -> TableLayout:
        """The layout that a segment was written with, from the file itself."""
        return stored_layout(self._file(ref, state), _subject(ref, state))

    def keep_only(self, refs: Iterable[SegmentRef], layout: TableLayout) -> None:
        """Close the segments of this table that `refs` do not name."""
        live_files = {ref.file for ref in refs}
        for file, table in list(self._open):
            # After a schema change the segments were reopened with another layout.
            if table.state != layout.state or (file in live_files and table == layout):
                continue
            del self._open[file, table]

    def _file(self, ref: SegmentRef, state: str) -> SegmentFile:
        if isinstance(self.store, TieredStore):
            return self._from_tier(self.store, ref, state) or self._remote(ref, state)
        path = self.store.local_path(ref.file)
        if path is None:
            return self._remote(ref, state)
        try:
            return mapped_file(path) if self._maps else ReadFile(path, _subject(ref, state))
        except FileNotFoundError as error:
            raise _missing_error(ref, state) from error
        except (OSError, pa.ArrowException) as error:
            raise (StoreAwayError if is_transient(error) else StoreDamagedError)(
                f"{_subject(ref, state)} cannot be opened: {error}. "
                "Restore the file from a copy, or start the job from an older epoch."
            ) from error

    def _from_tier(self, store: TieredStore, ref: SegmentRef, state: str) -> SegmentFile | None:
        """The file if the tier has it whole; None if it is large and not in the tier, or cannot be cached."""
        held = store.hold(ref.file, ref.file_bytes)
        if held is None and ref.file_bytes <= WHOLE_BYTES_MAX:
            self._download(ref, state)  # which caches it
            held = store.hold(ref.file, ref.file_bytes)
        if held is None:
            return None
        try:
            length = ref.file_bytes
            file = mapped_file(held, length) if self._maps else ReadFile(held, _subject(ref, state), length)
        except (OSError, pa.ArrowException):
            store.release(held)
            return None
        # Views of the file may live longer. They retain its bytes, but not its space in the tier.
        weakref.finalize(file, store.release, held).atexit = False
        return file

    def _fetched_again(self, ref: SegmentRef, state: str) -> SegmentFile:
        assert isinstance(self.store, TieredStore)
        self.store.discard(ref.file)
        return self._file(ref, state)

    def _remote(self, ref: SegmentRef, state: str) -> SegmentFile:
        subject = _subject(ref, state)
        if ref.file_bytes <= WHOLE_BYTES_MAX:
            return DownloadedFile(lambda: self._download(ref, state), ref.file_bytes, subject)

        def fetch(start: int, stop: int) -> bytes:
            try:
                return self.store.get_range(ref.file, start, stop)
            except StoreDamagedError as error:
                raise _missing_error(ref, state) from error

        return RangedFile(fetch, ref.file_bytes, subject)

    def _download(self, ref: SegmentRef, state: str) -> bytes:
        try:
            return self.store.get(ref.file)
        except StoreDamagedError as error:
            raise _missing_error(ref, state) from error


def _subject(ref: SegmentRef, state: str) -> str:
    return f"State {state!r}, epoch {ref.epoch}: segment {ref.file}"


def _missing_error(ref: SegmentRef, state: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"{_subject(ref, state)} is missing, though the manifest names it. "
        "Check whether it was moved or removed by hand and restore it, or start the job from an older epoch."
    )
