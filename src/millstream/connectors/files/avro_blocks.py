"""Unpacks the blocks of an Avro file with bounded memory.

fastavro unpacks a block as a whole, regardless of its size, and reads as many records as the block claims to hold. So
it never sees the file: `PlainBlocks` reads the container itself, checks and unpacks one block after the other, and
presents them as an uncompressed file. Nothing in fastavro is patched: the program may read its own files with it.

Limits of each block: `BLOCK_BYTES_MAX` unpacked bytes, and no more records than its bytes can hold. Records that
take no bytes (all their fields are null) cannot be checked this way: a block has at most `EMPTY_RECORDS_MAX`.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

import pyarrow as pa

from millstream.connectors.messages.avro_bounds import bounded_schema, least_bytes
from millstream.connectors.messages.avro_schemas import fastavro_module

__all__ = ["BLOCK_BYTES_MAX", "EMPTY_RECORDS_MAX", "PlainBlocks"]

BLOCK_BYTES_MAX = 1 << 30
"""Maximum size of an unpacked block. Writers make blocks of some kilobytes."""
EMPTY_RECORDS_MAX = 1 << 16

_HEADER = {
    "type": "record",
    "name": "Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": 16}},
    ],
}
_PIECE_BYTES = 1 << 20  # a read may request more than the file has, but must not allocate a buffer of that size
_VARINT_BYTES_MAX = 10


class PlainBlocks:
    """A file for fastavro's readers: the header of `file`, then its unpacked blocks. fastavro never uses its position.

    `position` is the end, in `file`, of the block loaded last.
    """

    def __init__(self, file: BinaryIO) -> None:
        """Read the header. Raises ValueError; ProgramError where its schema is unsupported."""
        file.seek(0)
        self._file = file
        self.position = 0
        fastavro = fastavro_module()
        header = fastavro.schemaless_reader(_Readable(self._read_exactly), _HEADER)
        if header["magic"] != b"Obj\x01":
            raise ValueError("it does not start with an Avro header")
        codec = header["meta"].pop("avro.codec", b"null").decode()
        if codec not in _UNPACKERS:
            raise ValueError(f"its blocks are compressed with {codec!r}, expected one of {', '.join(_UNPACKERS)}")
        self._unpacked = _UNPACKERS[codec]
        self._sync: bytes = header["sync"]
        schema = json.loads(header["meta"]["avro.schema"])
        self._record_bytes = least_bytes(fastavro.parse_schema(schema, _force=True, _ignore_default_error=True))
        header["meta"]["avro.schema"] = json.dumps(bounded_schema(schema, fastavro)).encode()
        self._plain = io.BytesIO()
        fastavro.schemaless_writer(self._plain, _HEADER, header)
        self._plain.seek(0)

    def seek(self, position: int) -> None:
        """Continue with the block at `position`."""
        self._file.seek(position)
        self.position = position
        self._plain = io.BytesIO()

    def tell(self) -> int:
        """Part of the file interface: fastavro stores it for blocks and never uses it."""
        return 0

    def read(self, size: int) -> bytes:
        """The next bytes of the header or of one unpacked block."""
        return self._plain.read(size) or (self._plain.read(size) if self._load() else b"")

    def next_sizes(self) -> tuple[int, int] | None:
        """The size in the file and the record count of the next block; None at the end."""
        first = self._read_up_to(1)
        if not first:
            return None
        records, size = self._number(first), self._number(self._read_exactly(1))
        if records < 0 or size < 0:
            raise ValueError(f"a block claims to hold {records} records in {size} bytes")
        return size, records

    def _load(self) -> bool:
        sizes = self.next_sizes()
        if sizes is None:
            return False
        size, records = sizes
        content = self._unpacked(self._read_exactly(size))
        if self._read_exactly(len(self._sync)) != self._sync:
            raise ValueError("the sync marker after a block differs from the header's")
        if records * self._record_bytes > len(content) or (not self._record_bytes and records > EMPTY_RECORDS_MAX):
            raise ValueError(f"a block of {len(content)} bytes claims to hold {records} records")
        self._plain = io.BytesIO(b"".join((_varint(records), _varint(len(content)), content, self._sync)))
        return True

    def _number(self, data: bytes) -> int:
        """Reads the variable-length number that starts with this byte."""
        bits = data[0] & 127
        for place in range(1, _VARINT_BYTES_MAX + 1):
            if data[0] < 128:
                return bits >> 1 ^ -(bits & 1)
            data = self._read_exactly(1)
            bits |= (data[0] & 127) << 7 * place
        raise ValueError("a number has more than 64 bits")

    def _read_exactly(self, size: int) -> bytes:
        data = self._read_up_to(size)
        if len(data) < size:
            # Not EOFError: between blocks fastavro would treat it as the end of the file.
            raise ValueError(f"it ends within a block, {size - len(data)} bytes too early")
        return data

    def _read_up_to(self, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the file."""
        pieces: list[bytes] = []
        missing = size
        while missing > 0 and (piece := self._file.read(min(missing, _PIECE_BYTES))):
            pieces.append(piece)
            missing -= len(piece)
        self.position += size - missing
        return b"".join(pieces)


class _Readable:
    """A file-like object that implements only `read`."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self.read = read


def _varint(number: int) -> bytes:
    rest, data = number << 1, bytearray()
    while rest > 127:
        data.append(rest & 127 | 128)
        rest >>= 7
    data.append(rest)
    return bytes(data)


def _bounded(size: int) -> int:
    if size > BLOCK_BYTES_MAX:
        raise ValueError(f"a block is more than {BLOCK_BYTES_MAX >> 20} MiB unpacked")
    return size


def _by_python(unpacker: Callable[[], Any]) -> Callable[[bytes], bytes]:
    def unpack(packed: bytes) -> bytes:
        unpacking = unpacker()
        try:
            content: bytes = unpacking.decompress(packed, BLOCK_BYTES_MAX + 1)
        except (zlib.error, lzma.LZMAError, OSError) as error:
            raise ValueError(f"a packed block is damaged: {error}") from error
        _bounded(len(content))
        if not unpacking.eof:
            raise ValueError("a packed block is cut short")
        return content

    return unpack


def _snappy(packed: bytes) -> bytes:
    """Snappy stores its own length first; the checksum of the content follows the data."""
    size = 0
    for place, byte in enumerate(packed[:5]):
        size |= (byte & 127) << 7 * place
        if byte < 128:
            break
    content = _by_arrow("snappy", packed[:-4], size)
    if zlib.crc32(content) != int.from_bytes(packed[-4:]):
        raise ValueError("a packed block is damaged: its checksum differs")
    return content


def _lz4(packed: bytes) -> bytes:
    return _by_arrow("lz4_raw", packed[4:], int.from_bytes(packed[:4], "little"))


def _by_arrow(codec: str, packed: bytes, size: int) -> bytes:
    try:
        content: bytes = pa.Codec(codec).decompress(packed, _bounded(size), asbytes=True)
    except OSError as error:
        raise ValueError(f"a packed block is damaged: {error}") from error
    return content


def _zstandard(packed: bytes) -> bytes:
    pieces, size = [], 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as unpacking:
            while piece := unpacking.read(_PIECE_BYTES):
                pieces.append(piece)
                size = _bounded(size + len(piece))
    except OSError as error:
        raise ValueError(f"a packed block is damaged: {error}") from error
    return b"".join(pieces)


_UNPACKERS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda content: content,
    "deflate": _by_python(lambda: zlib.decompressobj(-15)),
    "bzip2": _by_python(bz2.BZ2Decompressor),
    "xz": _by_python(lzma.LZMADecompressor),
    "snappy": _snappy,
    "zstandard": _zstandard,
    "lz4": _lz4,
}
