"""Files of lines: plain text, and JSON with a document on each line.

A line belongs to the range in which it starts. A reader that is put down in the middle of a line goes to the next
one; the reader of the range before reads that line to its end. The byte before a position says whether a
line starts there, so the start of a range and the offset of a later epoch are treated alike.

Lines end at '\\n' or '\\r\\n'. Charsets in which '\\n' is not that one byte (UTF-16, UTF-32) are for `wide_text`.

JSON goes straight into columns where that is certain to give what parsing document by document gives. Arrow's reader is
many times faster and a little more generous: it does not care where lines end, and it has its own idea of dates and
decimals. So it is only asked about blocks in which every line is plainly one object, and only for types that both read
alike. In every other case, an error included, the answer is None and the slow way decides.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Generator
from functools import lru_cache
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from millstream.common.typeinfo import BasicType, BasicTypeInfo, RowTypeInfo, TypeInformation, Types
from millstream.connectors.contracts import Offset, Read, Split
from millstream.connectors.files.formats import BadRecords, ByteFormat, opened_bytes
from millstream.connectors.files.unpacking import is_compressed
from millstream.connectors.files.values import json_converter
from millstream.connectors.messages.json_values import NESTING_MAX, holds_decimals, parse
from millstream.errors import ProgramError, TypeMismatchError
from millstream.records.batch import is_typed
from millstream.records.columns import stream_schema, to_record_batch
from millstream.records.shapes import is_byte_array, is_sequence, plain_type

__all__ = ["JsonLines", "TextLines", "json_columns", "line_blocks"]

_ALIKE = frozenset(
    {
        BasicType.STRING,
        BasicType.BOOLEAN,
        BasicType.BYTE,
        BasicType.SHORT,
        BasicType.INT,
        BasicType.LONG,
        BasicType.DOUBLE,
    }
)
# To Python a whole -0 is 0, to Arrow it is -0.0; '-0' also stands in every date.
_MINUS_ZERO = re.compile(rb"-0[^.\deE]")
_MANY_DIGITS = re.compile(rb"[0-9]{1000}")


def json_columns(block: bytes, type_info: TypeInformation) -> pa.RecordBatch | None:
    r"""The lines of `block` as a batch of `type_info`, or None when only the slow way can say.

    >>> from millstream.common.typeinfo import Types
    >>> row = Types.ROW_NAMED(["n"], [Types.LONG()])
    >>> json_columns(b'{"n":1}\n{"x":2}\n', row).to_pylist()
    [{'n': 1}, {'n': None}]
    >>> json_columns(b'{"n":1}{"n":2}\n', row) is None
    True
    """
    schema = _schema(type_info)
    body = block.removesuffix(b"\n")
    breaks = body.count(b"\n")
    # A line that starts with '{' does not go on with a document of the line before, if that ended with '}'.
    if schema is None or body[:1] != b"{" or body[-1:] != b"}" or body.count(b"}\n{") != breaks:
        return None
    if (b"-0" in body and _MINUS_ZERO.search(body)) or _holds_excess(body):
        return None
    try:
        body.decode("utf-8")
        table = pj.read_json(
            pa.BufferReader(body),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(body) + 1),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return None
    if table.num_rows != breaks + 1 or not table.schema.equals(schema):
        return None
    [batch] = table.combine_chunks().to_batches()
    return batch


def _holds_excess(body: bytes) -> bool:
    """Whether a line may be nested deeper, or hold a longer number, than Python reads. Arrow reads over both where the
    type lacks the field, and whether a line is a record must not depend on its neighbours."""
    ends = np.flatnonzero(np.frombuffer(body, np.uint8) == ord("\n"))
    starts = np.concatenate([[0], ends + 1])
    lengths = np.append(ends, len(body)) - starts
    for start, length in zip(starts[lengths > NESTING_MAX], lengths[lengths > NESTING_MAX], strict=True):
        line = body[start : start + length]
        if line.count(b"[") + line.count(b"{") > NESTING_MAX or _MANY_DIGITS.search(line):
            return True
    return False


@lru_cache(maxsize=256)
def _schema(type_info: TypeInformation) -> pa.Schema | None:
    """The columns to ask Arrow for; None for types it reads otherwise than we do."""
    plain = plain_type(type_info)
    return stream_schema(plain) if isinstance(plain, RowTypeInfo) and _is_alike(plain) else None


def _is_alike(type_info: TypeInformation) -> bool:
    plain = plain_type(type_info)
    if isinstance(plain, RowTypeInfo):
        return bool(plain.get_field_types()) and all(_is_alike(field) for field in plain.get_field_types())
    if is_sequence(plain):
        return not is_byte_array(plain) and _is_alike(plain.element_type)
    return isinstance(plain, BasicTypeInfo) and plain.basic_type in _ALIKE


_BLOCK_BYTES = 4 * 1024 * 1024
# What says of a line that it is no record; the last, that its lists or objects are nested deeper than Python can read.
_NO_RECORD = (ValueError, TypeMismatchError, RecursionError)


def line_blocks(
    file: BinaryIO, start: int, stop: int, size: int | None, block_bytes: int = _BLOCK_BYTES
) -> Generator[tuple[int, bytes], None, tuple[int, bool]]:
    r"""Whole lines that start in [start, stop), in blocks with the position of each; returns the position after them.

    `size` is where the file ends, None when only reading on will tell; the second value returned says whether it ended.

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


class LineFormat(ByteFormat):
    """Reads blocks of lines and leaves to `decode` what a line means."""

    charset: str = "UTF-8"
    ignore_parse_errors: bool = False

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        if isinstance(start, dict):
            return start
        remedy = ", or leave such records out with ignore_parse_errors=True"
        bad = BadRecords(split.info["path"], self.name, self.ignore_parse_errors, remedy)
        size = None if is_compressed(split.info["path"]) else split.info["size"]
        with opened_bytes(split) as file:
            blocks = line_blocks(file, start, stop, size)
            while True:
                try:
                    position, block = next(blocks)
                except StopIteration as end:
                    position_reached, has_ended = end.value
                    break
                yield self.decode(position, block, bad)
        bad.report()
        return {"end": position_reached} if size is None and has_ended else position_reached

    @abstractmethod
    def decode(self, position: int, block: bytes, bad: BadRecords) -> Any:
        """The records in a block of whole lines: a list of values or a record batch."""

    def lines(self, block: bytes) -> list[str]:
        """The lines of a block, without their ends."""
        # As Flink does, bytes that are no text of the charset become U+FFFD rather than stop the job.
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
            raise ProgramError(f"Charset {charset!r} is not known. Give a name such as 'UTF-8'.") from error
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

    def decode(self, position: int, block: bytes, bad: BadRecords) -> Any:
        if position == 0:
            block = block.removeprefix(b"\xef\xbb\xbf")
        if self.type_info is not None and not self.fail_on_missing_field:
            columns = json_columns(block, self.type_info)
            if columns is not None:
                return columns
        return self.decode_values(position, block, bad)

    def decode_values(self, position: int, block: bytes, bad: BadRecords) -> Any:
        """Document by document: the slow way, which defines what the fast one must give."""
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
        """One by one: the lines that parse, when the bad ones may be ignored."""
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
