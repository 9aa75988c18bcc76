"""What a file format must say so that a file can be read in ranges, again and again with the same answer.

`FileFormat` is the contract. `ByteFormat` is the part that formats made of bytes share: a file is cut into byte
ranges, an offset is a byte position, and a compressed file, whose length nobody knows before its end, is read from
the front and says with its last offset, `{"end": n}`, that it is over.

A gzip file can only be unpacked from its front. An epoch reads a part of it, and the next epoch the part behind: a task
that began at the front each time would unpack a file of a hundred epochs fifty times over. So a worker keeps the files
open that it has begun, each with what it unpacked last, and a read that goes on there unpacks nothing twice. Any other
read is answered too: one that goes back, after a failure, begins at the front again. A few files are kept open, those
used last; a file that has changed under its name is opened anew. This only saves time: every answer is the one that a
fresh file would give.
"""

from __future__ import annotations

import gzip
import logging
import os
import threading
import zlib
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import BinaryIO, cast

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Offset, Read, Split
from millstream.connectors.files.discovery import InputFile
from millstream.errors import JobFailedError, TypeMismatchError

__all__ = [
    "FILES",
    "BadRecords",
    "ByteFormat",
    "FileFormat",
    "UnpackedFile",
    "UnpackedFiles",
    "is_compressed",
    "opened_bytes",
]

_STEP_BYTES = 1 << 20
_HEAD_BYTES = 64 << 10
_SMALL_BYTES = 64 << 10
_FILES_MAX = 16


class UnpackedFile:
    """The unpacked bytes of a gzip file: positions may be sought freely, and those near the last read cost nothing."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._head = b""  # the beginning of the file, where formats have their names
        self._at = 0
        self.unpacked_bytes = 0
        self._start_over()

    def _start_over(self) -> None:
        self._file.seek(0)
        self._gzip = gzip.GzipFile(fileobj=self._file, mode="rb")
        self._window, self._window_start, self.is_at_end = b"", 0, False

    def seek(self, position: int) -> None:
        """Read on at `position`."""
        self._at = position

    def read(self, size: int) -> bytes:
        """Some of the next bytes, at most `size`; none only at the end of the file."""
        if self._at + size <= len(self._head):
            data = self._head[self._at : self._at + size]
        else:
            offset = self._window_offset(min(size, _SMALL_BYTES))
            data = self._window[offset : offset + size]
        self._at += len(data)
        return data

    def readline(self, size: int = -1) -> bytes:
        """The rest of the line, with its end, or of the file; at most `size` bytes unless that is negative."""
        end = self._head.find(b"\n", self._at) + 1
        line = self._head[self._at : end] if end else self._line_of_window(size)
        line = line if size < 0 else line[:size]
        self._at += len(line)
        return line

    def _line_of_window(self, size: int) -> bytes:
        """The rest of the line, or as many windows of it as hold `size` bytes. It is gathered window by window: one
        that grew with its line would be copied and searched again for every step."""
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
        """Where in the window the next bytes stand: `size` of them at least, unless the file ends before."""
        if self._at < self._window_start:
            self._start_over()
        while self._window_start + len(self._window) < self._at + size and not self.is_at_end:
            fresh = self._gzip.read(_STEP_BYTES)
            self.unpacked_bytes += len(fresh)
            self.is_at_end = not fresh
            self.trim()
            self._window += fresh
            if self._window_start <= len(self._head) < _HEAD_BYTES:
                self._head += self._window[len(self._head) - self._window_start :][: _HEAD_BYTES - len(self._head)]
        return min(self._at - self._window_start, len(self._window))

    def trim(self) -> None:
        """Forget what was read, but for the byte before the position: it tells whether a line starts there."""
        passed = min(max(0, self._at - 1 - self._window_start), len(self._window))
        self._window, self._window_start = self._window[passed:], self._window_start + passed

    def close(self) -> None:
        """Let the file go."""
        self._file.close()

    def __del__(self) -> None:
        self.close()  # a process ends with some of them kept


class UnpackedFiles:
    """The compressed files that this process has begun to read; each is used by one reader at a time."""

    def __init__(self, files_max: int = _FILES_MAX) -> None:
        self._files_max = files_max
        self._lock = threading.Lock()
        self._idle: OrderedDict[str, tuple[tuple[int, ...], UnpackedFile]] = OrderedDict()

    @property
    def idle(self) -> list[str]:
        """The files that are kept, those used last at the end."""
        return list(self._idle)

    @contextmanager
    def borrow(self, path: str) -> Iterator[UnpackedFile]:
        """The file at `path`, at the position where it was left, else at its front. It is kept for the next reader
        unless it is at its end, or reading fails."""
        identity = _identity(path)
        with self._lock:
            known_identity, idle_file = self._idle.pop(path, ((), None))
        if idle_file is not None and known_identity != identity:
            idle_file.close()
            idle_file = None
        file = idle_file or UnpackedFile(open(path, "rb"))  # noqa: SIM115 (it outlives this call)
        try:
            yield file
        except BaseException:
            file.close()
            raise
        self._keep(path, identity, file)

    def _keep(self, path: str, identity: tuple[int, ...], file: UnpackedFile) -> None:
        surplus = [file] if file.is_at_end else []
        file.trim()  # it may have read a very long line
        with self._lock:
            if not file.is_at_end:
                if path in self._idle:
                    surplus.append(self._idle.pop(path)[1])
                self._idle[path] = (identity, file)
                while len(self._idle) > self._files_max:
                    surplus.append(self._idle.popitem(last=False)[1][1])
        for unused in surplus:
            unused.close()


def _identity(path: str) -> tuple[int, ...]:
    """What tells a file from another that was put under its name."""
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


FILES = UnpackedFiles()
"""The files of this process."""


_SAMPLE_BYTES = 64 * 1024
_LOG = logging.getLogger(__name__)


class FileFormat(ABC):
    """Cuts a file into splits and reads them. Holds settings only; it travels to the tasks."""

    type_info: TypeInformation | None = None
    name: str = "file"

    @abstractmethod
    def plan(self, file: InputFile, split_bytes_max: int) -> Sequence[Split]:
        """The splits of a file; `info` holds at least its `path`."""

    @abstractmethod
    def reach(self, split: Split, offset: Offset, budget: int) -> Offset:
        """How far about `budget` records from `offset` go."""

    @abstractmethod
    def finished(self, split: Split, offset: Offset) -> bool:
        """Whether the split ends at `offset`."""

    @abstractmethod
    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        """The records that begin in [start, stop); returns where the next one begins."""


class ByteFormat(FileFormat):
    """Files whose offsets are byte positions (of the uncompressed bytes where they are compressed)."""

    cuttable: bool = True
    """Whether a record's start can be found from any byte position."""

    def plan(self, file: InputFile, split_bytes_max: int) -> Sequence[Split]:
        if file.size == 0:
            return ()
        whole = is_compressed(file.path) or not self.cuttable
        step = file.size if whole else split_bytes_max
        return tuple(
            Split(
                # The first range has the file's own name, so that a small file's split is simply called like it.
                file.path if start == 0 else f"{file.path}#{start}",
                start,
                {"path": file.path, "end": min(file.size, start + step), "size": file.size},
            )
            for start in range(0, file.size, step)
        )

    def reach(self, split: Split, offset: Offset, budget: int) -> Offset:
        if self.finished(split, offset):
            return offset
        stop = offset + max(1, budget) * _record_bytes(split.info["path"])
        return stop if is_compressed(split.info["path"]) else min(stop, split.info["end"])

    def finished(self, split: Split, offset: Offset) -> bool:
        if is_compressed(split.info["path"]):
            return isinstance(offset, dict)
        return bool(offset >= split.info["end"])


def is_compressed(path: str) -> bool:
    """Whether the file is read through gzip.

    >>> is_compressed("a/log.txt.gz"), is_compressed("a/log.txt")
    (True, False)
    """
    return path.endswith(".gz")


@contextmanager
def opened_bytes(split: Split) -> Iterator[BinaryIO]:
    """The bytes of a split's file, uncompressed; a file that is not what it was planned to be is refused."""
    path, size = split.info["path"], split.info["size"]
    try:
        size_now = os.stat(path).st_size
        # What is added to a file of lines lies behind its planned end; a compressed one is read to whatever end it has.
        if size_now < size or (size_now > size and is_compressed(path)):
            raise JobFailedError(
                f"File {path} has {size_now} bytes, and had {size} when it was first seen: it was changed or replaced. "
                f"Nothing of it was skipped. Put the original back, and give changed data a new name."
            )
        if is_compressed(path):
            with FILES.borrow(path) as unpacked:
                yield cast(BinaryIO, unpacked)
        else:
            with open(path, "rb") as file:
                yield file
    except FileNotFoundError as error:
        raise JobFailedError(
            f"File {path} is gone, and its records were not all read. Put it back under its name and start again."
        ) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise JobFailedError(f"File {path} is not whole gzip data ({error}). Replace it by a whole copy.") from error


@lru_cache(maxsize=4096)
def _record_bytes(path: str) -> int:
    """About how long a line of this file is, from its first lines; only the size of an epoch depends on it."""
    try:
        with (gzip.open if is_compressed(path) else open)(path, "rb") as file:
            sample = file.read(_SAMPLE_BYTES)
    except (OSError, EOFError, zlib.error):
        # Reading the records will say what is wrong, with the file and the position.
        return 100
    return max(1, len(sample) // max(1, sample.count(b"\n")))


class BadRecords:
    """What to do with records that cannot be parsed: stop at the first, or count them and go on."""

    def __init__(self, path: str, format_name: str, ignore: bool) -> None:
        self._path = path
        self._format_name = format_name
        self._ignore = ignore
        self._count = 0
        self._first_message = ""

    def add(self, position: int, text: str, reason: str) -> None:
        excerpt = text if len(text) <= 200 else text[:200] + "…"
        message = f"{self._path}, byte {position}: not a {self._format_name} record of this type: {reason}"
        if not self._ignore:
            raise TypeMismatchError(
                f"{message}. The record is {excerpt!r}. Correct the file, or the declared type, or ignore parse "
                "errors.",
                value=text,
            )
        self._count += 1
        self._first_message = self._first_message or f"{message}: {excerpt!r}"

    def report(self) -> None:
        """Say in the log how many there were."""
        if self._count:
            _LOG.warning("%d records ignored; the first: %s", self._count, self._first_message)
