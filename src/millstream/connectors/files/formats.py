"""What a file format must say so that a file can be read in ranges, again and again with the same answer.

`FileFormat` is the contract. `ByteFormat` is the part that formats made of bytes share: a file is cut into byte
ranges, an offset is a byte position, and a compressed file, whose length nobody knows before its end, is read from
the front and says with its last offset, `{"end": n}`, that it is over.
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
from millstream.connectors.files.places import InputFile, gone_error, is_remote, opened_file
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


class RowCountedFormat(FileFormat):
    """A format whose offsets are numbers of rows, which may be of any size: a range is read as far as bytes allow."""

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        return self.read_within(split, start, stop, None)

    @abstractmethod
    def read_within(self, split: Split, start: Offset, stop: Offset, bytes_max: int | None) -> Read:
        """As `read`, but end when the rows have about `bytes_max` bytes, with at least one; None: read all."""


def bounded_batches(table: pa.Table, bytes_max: int | None) -> list[pa.RecordBatch]:
    """The table in pieces of some ten thousand rows, or of so few that one has about `bytes_max` bytes."""
    rows_max = _BATCH_RECORDS_MAX
    if bytes_max is not None and table.nbytes > bytes_max:
        rows_max = min(rows_max, max(1, bytes_max * table.num_rows // table.nbytes))
    batches: list[pa.RecordBatch] = table.to_batches(max_chunksize=rows_max)
    return batches


_LOOKS_CUT = re.compile(r"#\d+")


def split_name(file: InputFile, start: int) -> str:
    """The name of the split that begins there. The first has the file's own name, unless it looks like another's.

    >>> [split_name(InputFile(path, 9, 0), start) for path, start in (("/a", 0), ("/a", 5), ("/a#5", 0))]
    ['/a', '/a#5', '/a#5#0']
    """
    plain = start == 0 and (file.cut_by_content or not _LOOKS_CUT.fullmatch(file.path[file.path.rfind("#") :]))
    return file.path if plain else f"{file.path}#{start}"


def split_info(file: InputFile, end: int | None) -> dict[str, str | int | None]:
    """What a task must know of the file to read a split that reaches to `end`; None: to wherever the file ends."""
    info: dict[str, str | int | None] = {"path": file.path, "end": end, "size": file.size}
    return {**info, "mark": file.mark} if file.mark else info


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
    """The bytes of a split's file, unpacked; a file that is not what it was planned to be is refused."""
    path, size, mark = split.info["path"], split.info["size"], split.info.get("mark", "")
    with explained_file_errors(path, f"{packing_of(path)} data" if is_compressed(path) else None):
        if not is_remote(path):  # an object is refused by its mark, with the first range of it
            size_now = os.stat(path).st_size
            # What is added to a file of lines lies behind its planned end; a packed one is read to whatever end it has.
            if size_now < size or (size_now > size and is_compressed(path)):
                raise JobFailedError(
                    f"File {path} has {size_now} bytes, and had {size} when it was first seen: it was changed or "
                    f"replaced. Nothing of it was skipped. Put the original back, and give changed data a new name."
                )
        if is_compressed(path):
            with FILES.borrow(path, size, mark) as unpacked_file:
                yield cast(BinaryIO, unpacked_file)
        else:
            with opened_file(path, size, mark) as file:
                yield file


@contextmanager
def explained_file_errors(path: str, kind: str | None) -> Iterator[None]:
    """What goes wrong while the file is read, said with its name. `kind`: what it should hold whole, if known."""
    try:
        yield
    except MillstreamError:
        raise
    except FileNotFoundError as error:
        raise gone_error(path) from error
    except MemoryError as error:
        raise JobFailedError(
            f"File {path} has parts that need more memory than there is ({error}). Write it in smaller parts, or leave "
            "it out."
        ) from error
    except (*NOT_WHOLE, pa.ArrowException, OSError) as error:
        if kind is None or is_transient(error):
            raise
        raise JobFailedError(f"File {path} is not whole {kind} ({error}). Replace it by a whole copy.") from error


def _record_bytes(path: str, size: int, mark: str) -> int:
    """About how long a line of this file is, from its first lines; only the size of an epoch depends on it.

    Objects of one folder are taken to be alike: asking about each of them would cost a request."""
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
        # Reading the records will say what is wrong, with the file and the position.
        return 100
    return max(1, len(sample) // max(1, sample.count(b"\n")))


class BadRecords:
    """What to do with records that cannot be parsed: stop at the first, or count them and go on. `remedy`: what else
    the user can do than to correct the file or the type."""

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
        """Say in the log how many there were."""
        if self._count:
            _LOG.warning("%d records ignored; the first: %s", self._count, self._first_message)
