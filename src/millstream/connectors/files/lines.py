"""Files of lines: plain text, and JSON with a document on each line.

A line belongs to the range in which it starts. A reader that starts in the middle of a line skips to the next
one; the reader of the previous range reads that line to its end. The byte before a position shows whether a
line starts there, so the start of a range and the offset of a later epoch are treated alike.

Lines end at '\\n' or '\\r\\n'. `wide_text` reads charsets in which '\\n' is not that one byte (UTF-16, UTF-32).

JSON is parsed directly into columns if the result certainly equals parsing document by document: the lines of a block
are parsed like messages (`messages/json_reading`). If any line is doubtful, the slow parser reads the block.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import RowTypeInfo, TypeInformation, Types
from millstream.connectors.contracts import Offset, Read, Split
from millstream.connectors.files.formats import BadRecords, ByteFormat, opened_bytes
from millstream.connectors.files.unpacking import is_compressed
from millstream.connectors.files.values import json_converter
from millstream.connectors.messages.json_reading import JsonDecoder
from millstream.connectors.messages.json_values import holds_decimals, parse
from millstream.errors import ProgramError, TypeMismatchError
from millstream.records.batch import is_typed
from millstream.records.columns import to_record_batch
from millstream.records.shapes import plain_type

__all__ = ["JsonLines", "LineFormat", "TextLines", "line_array", "line_blocks", "read_blocks"]

_BLOCK_BYTES = 4 * 1024 * 1024
_DECODED_BYTES_MAX = 1 << 30
# Errors that mean that a line is not a record; the last one: nesting deeper than Python can parse.
_NO_RECORD = (ValueError, TypeMismatchError, RecursionError)


def line_blocks(
    file: BinaryIO, start: int, stop: int, size: int | None, block_bytes: int = _BLOCK_BYTES
) -> Generator[tuple[int, bytes], None, tuple[int, bool]]:
    r"""Whole lines that start in [start, stop), in blocks with the position of each; returns the position after them.

    `size` is the end of the file, None if unknown; the second value returned is whether the file ended.

    >>> import io
    >>> list(line_blocks(io.BytesIO(b"ab\ncd\nef\n"), 1, 4, 9))
    [(3, b'cd\n')]
    """
    at = start
    if start > 0:
        file.seek(start - 1)
        if file.read(1) != b"\n":
            at += len(file.readline(-1 if size is None else size - start))
    file.seek(at)
    while at < stop:
        block = file.read(block_bytes if size is None else min(block_bytes, size - at))
        if not block:
            return at, True
        limit = stop - at
        # Lines that start before `stop`: up to the end of the line that holds the byte before it.
        cut = block.find(b"\n", limit - 1) + 1 if limit < len(block) else block.rfind(b"\n") + 1
        if cut == 0:
            block += file.readline(-1 if size is None else size - at - len(block))
            cut = len(block)
        yield at, block[:cut]
        at += cut
        if cut < len(block):
            file.seek(at)
    return at, size is not None and at >= size


def line_array(block: bytes) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    r"""The lines of a block without their ends, as binary, and the position of each in the block.

    >>> lines, starts = line_array(b"ab\r\n\nc")
    >>> lines.to_pylist(), starts.tolist()
    ([b'ab', b'', b'c'], [0, 4, 5])
    """
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == 10)
    if not len(block) or len(ends) == 0 or ends[-1] != len(block) - 1:
        ends = np.append(ends, len(block))
    starts = np.concatenate([[0], ends[:-1] + 1])
    if b"\r\n" not in block and not block.endswith(b"\r"):
        # Line ends stay between the values: slicing removes them, with a single copy.
        lines = pa.Array.from_buffers(
            pa.large_binary(),
            len(starts),
            [None, pa.py_buffer(np.append(starts, ends[-1] + 1).astype(np.int64)), pa.py_buffer(block + b"\n")],
        )
        return pc.binary_slice(lines.cast(pa.binary()), 0, -1), starts
    return pa.array([line.removesuffix(b"\r") for line in _split(block)], pa.binary()), starts


def _split(block: bytes) -> list[bytes]:
    lines = block.split(b"\n")
    if block.endswith(b"\n"):
        lines.pop()
    return lines


def read_blocks(
    split: Split,
    start: Offset,
    stop: Offset,
    decode: Callable[[int, bytes], Any],
    read_rest: Callable[[BinaryIO, int, int | None], Generator[Any, None, tuple[int, bool]]] | None = None,
) -> Read:
    """Read a split of lines; `decode` converts a block at a position to records.

    Where `decode` returns None, `read_rest` reads the rest of the range: its arguments are the file, the position, and
    the file's end if known; it returns the position reached, and whether the file has ended.
    """
    if isinstance(start, dict):
        return start
    size = None if is_compressed(split.info["path"]) else split.info["size"]
    with opened_bytes(split) as file:
        blocks = line_blocks(file, start, stop, size)
        while True:
            try:
                position, block = next(blocks)
            except StopIteration as end:
                reached, has_ended = end.value
                break
            records = decode(position, block)
            if records is None and read_rest is not None:
                file.seek(position)
                reached, has_ended = yield from read_rest(file, position, size)
                break
            yield records
    return {"end": reached} if size is None and has_ended else reached


class LineFormat(ByteFormat):
    """Reads blocks of lines; `decode` interprets the lines."""

    charset: str = "UTF-8"
    ignore_parse_errors: bool = False

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        remedy = ", or skip such records with ignore_parse_errors=True"
        bad = BadRecords(split.info["path"], self.name, self.ignore_parse_errors, remedy)
        reached = yield from read_blocks(split, start, stop, lambda position, block: self.decode(position, block, bad))
        bad.report()
        return reached

    @abstractmethod
    def decode(self, position: int, block: bytes, bad: BadRecords) -> Any:
        """The records in a block of whole lines: a list of values or a record batch."""

    def lines(self, block: bytes) -> list[str]:
        """The lines of a block, without their ends."""
        # As in Flink, bytes that are invalid in the charset become U+FFFD instead of stopping the job.
        text = block.decode(self.charset, "replace")
        lines = text.split("\n")
        if text.endswith("\n"):
            lines.pop()
        return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


class TextLines(LineFormat):
    """Every line is a record of type STRING."""

    name = "text"

    def __init__(self, charset: str = "UTF-8") -> None:
        try:
            one_byte = "\n".encode(charset) == b"\n"
        except (LookupError, TypeError) as error:
            raise ProgramError(f"Charset {charset!r} is not known. Use a name such as 'UTF-8'.") from error
        if not one_byte:
            raise ProgramError(
                f"Charset {charset!r} does not end a line with one byte, so its files cannot be read in ranges. "
                f"Convert them to UTF-8, or to UTF-16, which StreamFormat.text_line_format reads."
            )
        self.charset = charset
        self.type_info: TypeInformation = Types.STRING()

    def decode(self, position: int, block: bytes, bad: BadRecords) -> list[str]:
        return self.lines(block)


class JsonLines(LineFormat):
    """A JSON document on every line: records of `type_info`, or plain Python values when it is None.

    Fields that a document lacks become None unless `fail_on_missing_field`; fields that the type lacks are dropped.
    """

    name = "JSON"

    def __init__(
        self,
        type_info: TypeInformation | None = None,
        ignore_parse_errors: bool = False,
        fail_on_missing_field: bool = False,
    ) -> None:
        self.type_info = type_info
        self.ignore_parse_errors = ignore_parse_errors
        self.fail_on_missing_field = fail_on_missing_field
        if type_info is not None:
            json_converter(type_info, fail_on_missing_field)
        plain = None if type_info is None else plain_type(type_info)
        self._decoder = JsonDecoder(plain, fail_on_missing_field) if isinstance(plain, RowTypeInfo) else None

    def decode(self, position: int, block: bytes, bad: BadRecords) -> Any:
        if position == 0:
            block = block.removeprefix(b"\xef\xbb\xbf")
        columns = self._decoded(block)
        return self.decode_values(position, block, bad) if columns is None else columns

    def _decoded(self, block: bytes) -> pa.RecordBatch | None:
        """Decode all lines at once; None if one of them is doubtful."""
        if self._decoder is None or not self._decoder.has_columns or len(block) > _DECODED_BYTES_MAX:
            return None
        lines, _ = line_array(block)
        lines = lines.filter(pc.greater(pc.binary_length(lines), 0))
        read = self._decoder.columns(lines) if len(lines) else None
        return read.batch if read is not None and read.is_read.all() else None

    def decode_values(self, position: int, block: bytes, bad: BadRecords) -> Any:
        """Decode document by document: the slow path, which defines the result of the fast one."""
        try:
            return self._records(self.lines(block))
        except _NO_RECORD:
            return self._records(self._good_lines(position, block, bad))

    def _records(self, lines: list[str]) -> Any:
        is_exact = self.type_info is not None and holds_decimals(self.type_info)
        values = [parse(line, is_exact) for line in lines if line and not line.isspace()]
        if self.type_info is None or not is_typed(self.type_info):
            return values
        convert = json_converter(self.type_info, self.fail_on_missing_field)
        return to_record_batch(values if convert is None else [convert(value) for value in values], self.type_info)

    def _good_lines(self, position: int, block: bytes, bad: BadRecords) -> list[str]:
        """Parse line by line, if bad lines may be ignored; returns those that parse."""
        good = []
        for raw in block.split(b"\n"):
            [line] = self.lines(raw + b"\n")
            try:
                self._records([line])
                good.append(line)
            except _NO_RECORD as error:
                bad.add(position, line, str(error).rstrip("."))
            position += len(raw) + 1
        return good
