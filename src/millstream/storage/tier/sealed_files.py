"""A file of the local tier: the content, then a trailer with its length and checksum.

The file is written under another name and then renamed, so it is complete when it is visible; but files are not synced,
and after a power failure a name may survive without its content. So every read is checked: a whole read compares the
checksum; a mapping compares the length immediately, and the checksums in the content (a segment has one per chunk) on
access.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

__all__ = ["TRAILER_BYTES", "DamagedCopyError", "content_length", "read_content", "write_sealed"]

_TRAILER = struct.Struct("<8sQII")
_MAGIC = b"MSTIER1\n"
TRAILER_BYTES = _TRAILER.size
"""The length of the trailer."""


class DamagedCopyError(ValueError):
    """A file of the tier differs from what was written."""


def write_sealed(path: Path, data: bytes) -> None:
    """Write a new file that holds `data`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_sealed(Path(folder, "a"), b"abc")
    ...     content_length(Path(folder, "a")), read_content(Path(folder, "a"))
    (3, b'abc')
    """
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.write(_trailer(len(data), zlib.crc32(data)))


def content_length(path: Path) -> int:
    """The length of the content from the trailer; DamagedCopyError if it is inconsistent."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TRAILER_BYTES))
        return _checked(file.read(TRAILER_BYTES), size)[0]


def read_content(path: Path) -> bytes:
    """The content; DamagedCopyError if it differs from what was written."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(max(0, size - TRAILER_BYTES))
        _, crc32 = _checked(file.read(), size)
    if zlib.crc32(content) != crc32:
        raise DamagedCopyError("its checksum does not match its content")
    return content


def _trailer(length: int, crc32: int) -> bytes:
    return _TRAILER.pack(_MAGIC, length, crc32, zlib.crc32(_TRAILER.pack(_MAGIC, length, crc32, 0)))


def _checked(trailer: bytes, size: int) -> tuple[int, int]:
    """Length and checksum of the content of a file of `size` bytes with this trailer."""
    if len(trailer) != TRAILER_BYTES:
        raise DamagedCopyError(f"it has {size} bytes, too few for a file of the tier")
    _, length, crc32, _ = _TRAILER.unpack(trailer)
    if trailer != _trailer(length, crc32) or length != size - TRAILER_BYTES:
        raise DamagedCopyError("it has no valid trailer")
    return int(length), int(crc32)
