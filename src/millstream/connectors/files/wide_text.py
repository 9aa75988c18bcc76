"""Lines of text in UTF-16 and UTF-32, with code units of two and four bytes.

A line end is one code unit, and its bytes may also occur across two characters, so the search is by units. A file is
one split: only its byte order mark, at the start, defines the byte order. Without a mark, the charset's name determines
the order; for plain UTF-16 and UTF-32 it is big-endian, as in Java.

A mark at the start of a line is not part of its text: Flink's sinks write one before every record, and so do ours.
"""

from __future__ import annotations

import codecs
from collections.abc import Generator
from typing import BinaryIO

import numpy as np

from millstream.common.typeinfo import TypeInformation, Types
from millstream.connectors.contracts import Offset, Read, Split
from millstream.connectors.files.formats import ByteFormat, opened_bytes
from millstream.connectors.files.unpacking import is_compressed
from millstream.errors import ProgramError

__all__ = ["WideTextLines", "wide_charset"]

_BLOCK_BYTES = 4 * 1024 * 1024
_MARK = "\ufeff"
_CHARSETS = {
    "utf-16": ("utf-16-be", 2),
    "utf-16-be": ("utf-16-be", 2),
    "utf-16-le": ("utf-16-le", 2),
    "utf-32": ("utf-32-be", 4),
    "utf-32-be": ("utf-32-be", 4),
    "utf-32-le": ("utf-32-le", 4),
}
_MARKS = {
    "utf-16": {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"},
    "utf-32": {codecs.BOM_UTF32_LE: "utf-32-le", codecs.BOM_UTF32_BE: "utf-32-be"},
}


def wide_charset(charset: str) -> str | None:
    """The charset's name in this module, if it reads such files.

    >>> wide_charset("UTF-16LE"), wide_charset("UTF-8")
    ('utf-16-le', None)
    """
    try:
        name = codecs.lookup(charset).name
    except (LookupError, TypeError):
        return None
    return name if name in _CHARSETS else None


class WideTextLines(ByteFormat):
    """Every line is a record of type STRING."""

    name = "text"
    cuttable = False

    def __init__(self, charset: str) -> None:
        name = wide_charset(charset)
        if name is None:
            raise ProgramError(f"Charset {charset!r} is neither UTF-16 nor UTF-32.")
        self.charset = name
        self.type_info: TypeInformation = Types.STRING()

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        if isinstance(start, dict):
            return start
        size = None if is_compressed(split.info["path"]) else split.info["size"]
        with opened_bytes(split) as file:
            charset = self._order(file)
            unit = _CHARSETS[charset][1]
            blocks = unit_line_blocks(file, start, stop, size, unit, charset.endswith("le"))
            while True:
                try:
                    block = next(blocks)
                except StopIteration as end:
                    position, has_ended = end.value
                    break
                yield _lines(block.decode(charset, "replace"))
        return {"end": position} if size is None and has_ended else position

    def _order(self, file: BinaryIO) -> str:
        """The charset with its byte order, from the first bytes of the file."""
        marks = _MARKS.get(self.charset, {})
        file.seek(0)
        first = _full_read(file, _CHARSETS[self.charset][1]) if marks else b""
        return marks.get(first, _CHARSETS[self.charset][0])


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1] in ("", _MARK):
        lines.pop()
    return [line.removesuffix("\r").removeprefix(_MARK) for line in lines]


def unit_line_blocks(
    file: BinaryIO, start: int, stop: int, size: int | None, unit: int, is_little: bool, block_bytes: int = _BLOCK_BYTES
) -> Generator[bytes, None, tuple[int, bool]]:
    """Whole lines that start in [start, stop), in blocks; returns the position after them, and whether the file ended.

    `start` is the start of a line; `size` the end of the file, None if unknown.
    """
    at = start
    file.seek(at)
    while at < stop:
        block, is_last = b"", False
        ends = np.zeros(0, np.int64)
        while not len(ends) and not is_last:
            wanted = block_bytes if size is None else min(block_bytes, size - at - len(block))
            more = _full_read(file, wanted)
            is_last = len(more) < block_bytes
            block += more
            ends = _line_ends(block, unit, is_little)
        if not block:
            return at, True
        # Lines that start before `stop`: up to the end of the line that holds the byte before it.
        limit = stop - at
        behind = ends[np.searchsorted(ends, limit) :]
        is_behind = limit < len(block) and len(behind) > 0
        cut = int(behind[0]) if is_behind else len(block) if is_last else int(ends[-1])
        yield block[:cut]
        at += cut
        file.seek(at)
    return at, size is not None and at >= size


def _line_ends(block: bytes, unit: int, is_little: bool) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The positions of the line ends in a block."""
    letters = np.frombuffer(block, f"{'<' if is_little else '>'}u{unit}", len(block) // unit)
    return (np.flatnonzero(letters == ord("\n")) + 1) * unit


def _full_read(file: BinaryIO, size: int) -> bytes:
    """`size` bytes, fewer only at the end of the file."""
    pieces = [file.read(size)] if size > 0 else []
    while pieces and pieces[-1] and (missing := size - sum(map(len, pieces))):
        pieces.append(file.read(missing))
    return b"".join(pieces)
