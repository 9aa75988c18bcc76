"""The bytes of a segment's file, a part at a time: mapped, read when they are needed, or fetched from a remote store.

A mapping costs nothing until it is touched, and the page cache keeps what was touched. But a process that touches the
mapping of a file that was cut meanwhile is ended by the system with SIGBUS, and no error handling helps. So only
processes that may die use mappings: tasks, and separate readers. The process that drives a job reads instead
(`ReadFile`): there a file that was cut is an error like any other.

A small file of a remote store is fetched whole, by one call; of a large one, the parts that are needed are fetched.
Parts that were read or fetched lie in this process's memory, which `segment_memory` bounds.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol

import pyarrow as pa

from millstream.errors import StoreAwayError, StoreDamagedError
from millstream.storage.store import is_transient

__all__ = ["WHOLE_BYTES_MAX", "DownloadedFile", "RangedFile", "ReadFile", "SegmentFile", "WholeFile", "mapped_file"]

WHOLE_BYTES_MAX = 16 << 20
"""Up to this size a remote file is fetched whole."""

_DESCRIPTORS_MAX = 256
_HEAD_BYTES, _TAIL_BYTES = 16 << 10, 64 << 10


class SegmentFile(Protocol):
    """The bytes of one file, which never changes."""

    @property
    def size(self) -> int:
        """How many there are."""

    def read(self, start: int, stop: int) -> pa.Buffer:
        """Those from `start` to `stop`; StoreDamagedError when they are not there any more."""


class WholeFile:
    """Bytes that are at hand, mapped or in memory.

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


def mapped_file(path: Path) -> WholeFile:
    """A file of this machine, mapped."""
    if not path.stat().st_size:
        return WholeFile(pa.py_buffer(b""))
    with pa.memory_map(str(path)) as source:
        return WholeFile(source.read_buffer())


class ReadFile:
    """A file of this machine, of which parts are read.

    It is held open, so that it can be read to the end even if the job deletes it meanwhile. When a process has very
    many files open, later ones are opened for each part; one that was deleted is then an error.
    """

    _holding: ClassVar[weakref.WeakSet[ReadFile]] = weakref.WeakSet()

    def __init__(self, path: Path, subject: str) -> None:
        self._path, self._subject = path, subject
        self._descriptor: int | None = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self._descriptor).st_size
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
                f"{self._subject} cannot be read: {error}. Look whether it was moved or removed, and put it back."
            ) from error

    def _part(self, descriptor: int, start: int, stop: int) -> pa.Buffer:
        parts: list[bytes] = []
        at = start
        while at < stop:
            part = os.pread(descriptor, stop - at, at)
            if not part:
                raise StoreDamagedError(
                    f"{self._subject} was cut while it was open: it had {self.size} bytes, and ends before {stop}. "
                    "Nothing may change a file of a store. Restore it from a copy, or start from an older epoch."
                )
            parts.append(part)
            at += len(part)
        return pa.py_buffer(parts[0] if len(parts) == 1 else b"".join(parts))


class DownloadedFile:
    """A file of a remote store, whole in memory until it is let go, and downloaded again when it is needed again.

    >>> file = DownloadedFile(lambda: b"abcd", 4, "segment a")
    >>> file.read(1, 3).to_pybytes(), file.let_go(), file.read(0, 1).to_pybytes()
    (b'bc', None, b'a')
    """

    def __init__(self, download: Callable[[], bytes], size: int, subject: str) -> None:
        self._download, self.size, self._subject = download, size, subject
        self._data: pa.Buffer | None = None

    def read(self, start: int, stop: int) -> pa.Buffer:
        data = self._data
        if data is None:
            data = pa.py_buffer(self._download())
            if data.size != self.size:
                raise StoreDamagedError(
                    f"{self._subject} has {data.size} bytes, expected {self.size}. Restore the file from a copy, or "
                    "start the job from an older epoch."
                )
            self._data = data
        return data.slice(start, stop - start)

    def let_go(self) -> None:
        """Forget the bytes; parts of them that somebody holds stay alive."""
        self._data = None


class RangedFile:
    """A file of a remote store, of which parts are fetched. Its ends, which tell what is in it, are fetched at once.

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
