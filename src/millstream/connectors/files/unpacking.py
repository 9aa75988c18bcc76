"""Decompresses files while they are read, and continues where the last epoch stopped.

A compressed file can only be unpacked from its front, and each epoch reads the next part of it. A task that started at
the front each time would unpack a file that takes a hundred epochs fifty times over. So a worker caches the files it
has begun, each with its last unpacked window, and a read that continues there unpacks nothing twice. Any other read
works too: after a failure, one that starts at an earlier position starts at the front again. The cache holds the few
most recently used files; a file that was replaced under the same name is reopened. The cache only saves time: every
result equals that of a freshly opened file.

The extension of a file determines its compression, as in Flink: .gz .gzip .bz2 .xz .zst .lz4 .deflate. Files that
consist of several concatenated streams are read as one.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import pyarrow as pa

from millstream.connectors.files.places import identity_of, opened_file

__all__ = ["FILES", "NOT_WHOLE", "UnpackedFile", "UnpackedFiles", "is_compressed", "packing_of", "unpacked"]

NOT_WHOLE = (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, pa.ArrowInvalid)
"""The errors, besides some kinds of OSError, raised when a file is not complete data of its kind."""


class _Inflated(io.RawIOBase):
    """The content of a zlib stream (.deflate)."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file, self._inflater = file, zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data:
            if self._inflater.eof:
                rest = self._inflater.unused_data or self._file.read(1)
                if not rest:
                    return 0
                self._inflater = zlib.decompressobj()
            else:
                rest = self._inflater.unconsumed_tail or self._file.read(_HEAD_BYTES)
                if not rest:
                    raise EOFError("the file ends in the middle of its data")
            data = self._inflater.decompress(rest, len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _by_arrow(codec: str) -> Callable[[BinaryIO], BinaryIO]:
    def unpack(file: BinaryIO) -> BinaryIO:
        return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec))

    return unpack


def _gunzip(file: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb"))


def _bunzip(file: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, bz2.BZ2File(file))


def _unxz(file: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, lzma.LZMAFile(file))


_UNPACKERS: dict[str, Callable[[BinaryIO], BinaryIO]] = {
    "gzip": _gunzip,
    "bzip2": _bunzip,
    "xz": _unxz,
    "zstd": _by_arrow("zstd"),
    "lz4": _by_arrow("lz4"),
    "zlib": lambda file: cast(BinaryIO, _Inflated(file)),
}


_ENDINGS = {
    "gz": "gzip",
    "gzip": "gzip",
    "bz2": "bzip2",
    "xz": "xz",
    "zst": "zstd",
    "lz4": "lz4",
    "deflate": "zlib",
}


def packing_of(path: str) -> str | None:
    """The compression of the file, by its extension; None if uncompressed.

    >>> packing_of("a/log.txt.GZ"), packing_of("a/log.txt"), packing_of("a/gz")
    ('gzip', None, None)
    """
    _, dot, ending = path.rpartition("/")[2].rpartition(".")
    return _ENDINGS.get(ending.lower()) if dot else None


def is_compressed(path: str) -> bool:
    """Whether the file is decompressed while it is read.

    >>> is_compressed("a/log.txt.zst"), is_compressed("a/log.txt")
    (True, False)
    """
    return packing_of(path) is not None


def unpacked(file: BinaryIO, packing: str) -> BinaryIO:
    """The uncompressed content of `file`, from its front."""
    return _UNPACKERS[packing](file)


_STEP_BYTES = 1 << 20
_HEAD_BYTES = 64 << 10
_SMALL_BYTES = 64 << 10
_FILES_MAX = 16


class UnpackedFile:
    """The bytes of a compressed file. Any position may be sought; positions near the last read are cheap."""

    def __init__(self, file: BinaryIO, packing: str = "gzip") -> None:
        self._file = file
        self._packing = packing
        self._head = b""  # the start of the file, which holds column names in some formats
        self._at = 0
        self.unpacked_bytes = 0
        self._start_over()

    def _start_over(self) -> None:
        self._file.seek(0)
        self._stream = unpacked(self._file, self._packing)
        self._window, self._window_start, self.is_at_end = b"", 0, False

    def seek(self, position: int) -> None:
        """Continue at `position`."""
        self._at = position

    def read(self, size: int) -> bytes:
        """Some of the next bytes, at most `size`; empty only at the end of the file."""
        if self._at + size <= len(self._head):
            data = self._head[self._at : self._at + size]
        else:
            offset = self._window_offset(min(size, _SMALL_BYTES))
            data = self._window[offset : offset + size]
        self._at += len(data)
        return data

    def readline(self, size: int = -1) -> bytes:
        """The rest of the line, with its end, or of the file; at most `size` bytes unless negative."""
        end = self._head.find(b"\n", self._at) + 1
        line = self._head[self._at : end] if end else self._line_of_window(size)
        line = line if size < 0 else line[:size]
        self._at += len(line)
        return line

    def _line_of_window(self, size: int) -> bytes:
        """The rest of the line, or as many of its windows as hold `size` bytes. Gathered window by window: a growing
        window would be copied and searched again at every step."""
        start, pieces = self._at, []
        while size < 0 or self._at - start < size:
            offset = self._window_offset(1)
            end = self._window.find(b"\n", offset) + 1
            pieces.append(self._window[offset : end or len(self._window)])
            self._at += len(pieces[-1])
            if end or not pieces[-1]:
                break
        self._at = start
        return b"".join(pieces)

    def _window_offset(self, size: int) -> int:
        """The position in the window of the next bytes: at least `size` of them, unless the file ends earlier."""
        if self._at < self._window_start:
            self._start_over()
        while self._window_start + len(self._window) < self._at + size and not self.is_at_end:
            fresh = self._stream.read(_STEP_BYTES)
            self.unpacked_bytes += len(fresh)
            self.is_at_end = not fresh
            self.trim()
            self._window += fresh
            if self._window_start <= len(self._head) < _HEAD_BYTES:
                self._head += self._window[len(self._head) - self._window_start :][: _HEAD_BYTES - len(self._head)]
        return min(self._at - self._window_start, len(self._window))

    def trim(self) -> None:
        """Discard the bytes read, except the byte before the position: it shows whether a line starts there."""
        passed = min(max(0, self._at - 1 - self._window_start), len(self._window))
        self._window, self._window_start = self._window[passed:], self._window_start + passed

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __del__(self) -> None:
        self.close()  # some readers are still cached when a process ends


class UnpackedFiles:
    """The compressed files that this process has open; each is used by one reader at a time."""

    def __init__(self, files_max: int = _FILES_MAX) -> None:
        self._files_max = files_max
        self._lock = threading.Lock()
        self._idle: OrderedDict[str, tuple[tuple[int | str, ...], UnpackedFile]] = OrderedDict()

    @property
    def idle(self) -> list[str]:
        """The cached files, most recently used last."""
        return list(self._idle)

    @contextmanager
    def borrow(self, path: str, size: int = 0, mark: str = "") -> Iterator[UnpackedFile]:
        """The file at `path`, at its last position, else at its front. It is cached for the next reader
        unless it is at its end, or reading fails."""
        identity = identity_of(path, mark)
        with self._lock:
            known_identity, idle_file = self._idle.pop(path, ((), None))
        if idle_file is not None and known_identity != identity:
            idle_file.close()
            idle_file = None
        file = idle_file or UnpackedFile(opened_file(path, size, mark), packing_of(path) or "gzip")
        try:
            yield file
        except BaseException:
            file.close()
            raise
        self._cache(path, identity, file)

    def _cache(self, path: str, identity: tuple[int | str, ...], file: UnpackedFile) -> None:
        surplus = [file] if file.is_at_end else []
        file.trim()  # its buffer may hold a very long line
        with self._lock:
            if not file.is_at_end:
                if path in self._idle:
                    surplus.append(self._idle.pop(path)[1])
                self._idle[path] = (identity, file)
                while len(self._idle) > self._files_max:
                    surplus.append(self._idle.popitem(last=False)[1][1])
        for unused in surplus:
            unused.close()


FILES = UnpackedFiles()
"""The files of this process."""
