"""The contract of a file format: a file can be read in ranges, repeatedly, with the same result.

`FileFormat` is the contract. `ByteFormat` is shared by formats that consist of bytes: a file is cut into byte
ranges, an offset is a byte position, and a compressed file, whose length is unknown before its end, is read from
the front; its last offset, `{"end": n}`, marks its end.
"""

from __future__ import annotations

import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, cast

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Offset, Read, Split
from millstream.connectors.files.places import InputFile, is_remote, missing_error, opened_file
from millstream.connectors.files.unpacking import FILES, NOT_WHOLE, is_compressed, packing_of, unpacked
from millstream.errors import JobFailedError, MillstreamError, TypeMismatchError
from millstream.storage.store import is_transient

__all__ = [
    "BadRecords",
    "ByteFormat",
    "FileFormat",
    "RowCountedFormat",
    "bounded_batches",
    "explained_file_errors",
    "opened_bytes",
    "split_info",
    "split_name",
]

_BATCH_RECORDS_MAX = 65_536
_SAMPLE_BYTES = 64 * 1024
_LOG = logging.getLogger(__name__)


class FileFormat(ABC):
    """Cuts a file into splits and reads them. Holds only settings; it is sent to the tasks."""

    type_info: TypeInformation | None = None
    name: str = "file"

    @abstractmethod
    def plan(self, file: InputFile, split_bytes_max: int) -> Sequence[Split]:
        """The splits of a file; `info` holds at least its `path`."""

    @abstractmethod
    def reach(self, split: Split, offset: Offset, budget: int) -> Offset:
        """The offset about `budget` records after `offset`."""

    @abstractmethod
    def finished(self, split: Split, offset: Offset) -> bool:
        """Whether the split ends at `offset`."""

    @abstractmethod
    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        """The records that begin in [start, stop); returns where the next one begins."""


class RowCountedFormat(FileFormat):
    """A format whose offsets are row numbers, with rows of any size: a byte limit may shorten a range."""

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        return self.read_within(split, start, stop, None)

    @abstractmethod
    def read_within(self, split: Split, start: Offset, stop: Offset, bytes_max: int | None) -> Read:
        """As `read`, but stops when the rows have about `bytes_max` bytes, after at least one; None: read all."""


def bounded_batches(table: pa.Table, bytes_max: int | None) -> list[pa.RecordBatch]:
    """The table in batches of some ten thousand rows, or fewer if a batch would exceed about `bytes_max` bytes."""
    rows_max = _BATCH_RECORDS_MAX
    if bytes_max is not None and table.nbytes > bytes_max:
        rows_max = min(rows_max, max(1, bytes_max * table.num_rows // table.nbytes))
    batches: list[pa.RecordBatch] = table.to_batches(max_chunksize=rows_max)
    return batches


_SPLIT_SUFFIX = re.compile(r"#\d+")


def split_name(file: InputFile, start: int) -> str:
    """The name of the split that starts there. The first has the file's own name, unless it resembles a later split's.

    >>> [split_name(InputFile(path, 9, 0), start) for path, start in (("/a", 0), ("/a", 5), ("/a#5", 0))]
    ['/a', '/a#5', '/a#5#0']
    """
    plain = start == 0 and (file.cut_by_content or not _SPLIT_SUFFIX.fullmatch(file.path[file.path.rfind("#") :]))
    return file.path if plain else f"{file.path}#{start}"


def split_info(file: InputFile, end: int | None) -> dict[str, str | int | None]:
    """The file facts that a task needs to read a split that ends at `end`; None: at the end of the file."""
    info: dict[str, str | int | None] = {"path": file.path, "end": end, "size": file.size}
    return {**info, "mark": file.mark} if file.mark else info


class ByteFormat(FileFormat):
    """Files whose offsets are byte positions (in the uncompressed bytes if they are compressed)."""

    cuttable: bool = True
    """Whether a record's start can be located from any byte position."""

    def plan(self, file: InputFile, split_bytes_max: int) -> Sequence[Split]:
        if file.size == 0:
            return ()
        whole = is_compressed(file.path) or not self.cuttable
        step = file.size if whole else split_bytes_max
        return tuple(
            Split(
                split_name(file, start),
                start,
                split_info(file, min(file.size, start + step)),
            )
            for start in range(0, file.size, step)
        )

    def reach(self, split: Split, offset: Offset, budget: int) -> Offset:
        if self.finished(split, offset):
            return offset
        stop = offset + max(1, budget) * _record_bytes(
            split.info["path"], split.info["size"], split.info.get("mark", "")
        )
        return stop if is_compressed(split.info["path"]) else min(stop, split.info["end"])

    def finished(self, split: Split, offset: Offset) -> bool:
        if is_compressed(split.info["path"]):
            return isinstance(offset, dict)
        return bool(offset >= split.info["end"])


@contextmanager
def opened_bytes(split: Split) -> Iterator[BinaryIO]:
    """The uncompressed bytes of a split's file; raises if the file has changed since it was planned."""
    path, size, mark = split.info["path"], split.info["size"], split.info.get("mark", "")
    with explained_file_errors(path, f"{packing_of(path)} data" if is_compressed(path) else None):
        if not is_remote(path):  # the first range request checks an object's mark
            size_now = os.stat(path).st_size
            # Lines may be appended after the planned end; a compressed file is read to its actual end.
            if size_now < size or (size_now > size and is_compressed(path)):
                raise JobFailedError(
                    f"File {path} has {size_now} bytes, and had {size} when it was first listed: it was changed or "
                    "replaced. No data was skipped. Put the original back, and store changed data under a new name."
                )
        if is_compressed(path):
            with FILES.borrow(path, size, mark) as unpacked_file:
                yield cast(BinaryIO, unpacked_file)
        else:
            with opened_file(path, size, mark) as file:
                yield file


@contextmanager
def explained_file_errors(path: str, kind: str | None) -> Iterator[None]:
    """Reports read errors with the name of the file. `kind`: the format the whole file should have, if known."""
    try:
        yield
    except MillstreamError:
        raise
    except FileNotFoundError as error:
        raise missing_error(path) from error
    except MemoryError as error:
        raise JobFailedError(
            f"File {path} has parts that need more memory than is available ({error}). Write it in smaller parts, "
            "or leave "
            "it out."
        ) from error
    except (*NOT_WHOLE, pa.ArrowException, OSError) as error:
        if kind is None or is_transient(error):
            raise
        raise JobFailedError(
            f"File {path} is not complete {kind} ({error}). Replace it with a complete copy."
        ) from error


def _record_bytes(path: str, size: int, mark: str) -> int:
    """Approximate length of a line of this file, from its first lines; only the size of an epoch depends on it.

    Objects of one folder are assumed to be similar: inspecting each of them would cost a request."""
    sample_name = f"{path.rpartition('/')[0]}/*{packing_of(path) or ''}" if is_remote(path) else path
    length = _RECORD_BYTES.get(sample_name)
    if length is None:
        while len(_RECORD_BYTES) >= _SAMPLES_MAX:
            _RECORD_BYTES.pop(next(iter(_RECORD_BYTES)), None)
        length = _RECORD_BYTES[sample_name] = _sampled_record_bytes(path, size, mark)
    return length


_RECORD_BYTES: dict[str, int] = {}
_SAMPLES_MAX = 4096


def _sampled_record_bytes(path: str, size: int, mark: str) -> int:
    packing = packing_of(path)
    try:
        with opened_file(path, size, mark) as file:
            sample = (unpacked(file, packing) if packing else file).read(_SAMPLE_BYTES)
    except (MillstreamError, OSError, *NOT_WHOLE):
        # Reading the records will report the error, with the file and the position.
        return 100
    return max(1, len(sample) // max(1, sample.count(b"\n")))


class BadRecords:
    """Handles records that cannot be parsed: raises at the first, or counts them. `remedy`: advice in addition to
    correcting the file or the type."""

    def __init__(self, path: str, format_name: str, ignore: bool, remedy: str = "") -> None:
        self._path = path
        self._format_name = format_name
        self._ignore = ignore
        self._remedy = remedy
        self._count = 0
        self._first_message = ""

    def add(self, position: int, text: str, reason: str) -> None:
        excerpt = text if len(text) <= 200 else text[:200] + "…"
        message = f"{self._path}, byte {position}: not a {self._format_name} record of this type: {reason}"
        if not self._ignore:
            raise TypeMismatchError(
                f"{message}. The record is {excerpt!r}. Correct the file, or the declared type{self._remedy}.",
                value=text,
            )
        self._count += 1
        self._first_message = self._first_message or f"{message}: {excerpt!r}"

    def report(self) -> None:
        """Log how many records were ignored."""
        if self._count:
            _LOG.warning("%d records ignored; the first: %s", self._count, self._first_message)
