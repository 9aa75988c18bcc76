"""The footer of a segment: the index of its chunks, with checksums over every byte of the file.

    format millstream-segment-1: an Arrow IPC file
      head     magic and schema                      checked by head_crc32
      chunk…   record batches                        each checked by its own crc32
      tail     Arrow's footer, which carries this    checked by tail_crc32, itself taken as zeros
               text as its metadata entry `millstream`

The text is JSON. It is located by its first words, not through Arrow, so that nothing is interpreted before its
checksum is verified. Arrow requires a file's metadata when the file is created, so blanks are reserved and overwritten
when all chunks are known. The blanks are long enough for the longest numbers.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, astuple, dataclass
from typing import Any, Protocol

import pyarrow as pa

from millstream.errors import StoreDamagedError
from millstream.state.keys.key_columns import MAX_PARALLELISM_MAX

__all__ = [
    "FORMAT",
    "ChunkEntry",
    "SegmentFile",
    "SegmentFooter",
    "blank_footer",
    "read_chunk",
    "read_footer",
    "read_schema",
    "written_tail",
]

FORMAT = 1

_OPENING = b'{"format":"millstream-segment-'
_NO_CRC = b'"tail_crc32":"00000000"'
_CRC_AT = b'"tail_crc32":"'
_HEAD_ROOM, _CHUNK_ROOM = 512, 224
_MAGIC = b"ARROW1"
_ARROW_START = 8
_ORDERED = ("int64", "timestamp", "time64", "duration", "date64")  # map keys that sort by themselves


class SegmentFile(Protocol):
    """The bytes of one file, which never changes."""

    @property
    def size(self) -> int:
        """The number of bytes."""

    def read(self, start: int, stop: int) -> pa.Buffer:
        """The bytes from `start` to `stop`; StoreDamagedError if the file no longer has them."""


@dataclass(frozen=True)
class ChunkEntry:
    """One record batch: its bytes in the file, and the bounds by which a scan can skip it.

    The due and expiry times are those of its PUTs; in a chunk without PUTs the minimum is above the maximum.
    """

    offset: int
    length: int
    crc32: int
    rows: int
    first_order: int
    last_order: int
    due_min_ms: int
    due_max_ms: int
    expires_min_ms: int
    expires_max_ms: int


@dataclass(frozen=True)
class SegmentFooter:
    """A segment's description of itself. `layout` is a string: types as Arrow prints them, compared but never
    parsed."""

    state: str
    epoch: int
    groups: tuple[int, int]
    layout: dict[str, Any]
    rows: int
    head_crc32: int
    chunks: tuple[ChunkEntry, ...]


def blank_footer(chunks_max: int, state: str, layout: dict[str, Any]) -> bytes:
    """The blanks to be overwritten; they start like a footer, so that they can be located."""
    return _OPENING.ljust(_HEAD_ROOM + len(json.dumps([state, layout])) + chunks_max * _CHUNK_ROOM)


def written_tail(tail: bytes, footer: SegmentFooter) -> bytes:
    """The bytes after the last chunk, with the footer written over its blanks and their checksum in it."""
    at = tail.find(_OPENING)
    room = _room(tail, at)
    document = {"format": f"millstream-segment-{FORMAT}", "tail_crc32": "00000000", **asdict(footer)}
    document["chunks"] = [astuple(chunk) for chunk in footer.chunks]
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True).encode()
    if len(text) > room:
        raise AssertionError(f"a segment's footer of {len(text)} bytes does not fit the {room} bytes left for it")
    whole = tail[:at] + text.ljust(room) + tail[at + room :]
    crc = b'"tail_crc32":"%08x"' % zlib.crc32(whole)
    return whole.replace(_NO_CRC, crc, 1)


def _room(tail: bytes, at: int) -> int:
    rest = tail[at + len(_OPENING) :]
    return len(_OPENING) + len(rest) - len(rest.lstrip(b" "))


def read_footer(file: SegmentFile, subject: str) -> SegmentFooter:
    """The footer of a file; StoreDamagedError naming `subject` if any byte of it is wrong."""
    size = file.size
    if size < 24 or file.read(0, 6).to_pybytes() != _MAGIC:
        raise _damage_error(subject, "it is empty" if not size else "it is not a segment from its first bytes on")
    end = file.read(size - 10, size).to_pybytes()
    if end[4:] != _MAGIC:
        raise _damage_error(subject, "it is cut short, or its end was overwritten")
    length = int.from_bytes(end[:4], "little", signed=True)
    if not 0 < length <= size - 18:
        raise _damage_error(subject, "the length of its footer is wrong")
    arrow_footer = file.read(size - 10 - length, size).to_pybytes()
    start = arrow_footer.find(_OPENING)
    if start < 0:
        raise _damage_error(subject, "its footer has no description of a segment")
    text = arrow_footer[start:]
    version = text[len(_OPENING) :].split(b'"', 1)[0]
    try:
        document, _ = json.JSONDecoder().raw_decode(text.decode("latin-1"))
        chunks = tuple(map(_chunk_entry, document["chunks"])) if version == b"1" else ()
        tail_start = chunks[-1].offset + chunks[-1].length if chunks else None
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise _damage_error(subject, "its footer cannot be read") from error
    if version.isdigit() and len(version) < 10 and int(version) > FORMAT:
        raise StoreDamagedError(
            f"{subject} has segment format {version.decode()}, this Millstream reads up to {FORMAT}: it was written "
            "by a newer Millstream. Upgrade Millstream, then start the job again."
        )
    if tail_start is None or not 0 < tail_start <= size - 10 - length:
        raise _damage_error(subject, "its footer does not fit the file")
    if not _is_sealed(file.read(tail_start, size).to_pybytes()):
        raise _damage_error(subject, "the checksum of its footer does not match")
    return _from_document(document, chunks, file, subject)


def read_schema(file: SegmentFile, footer: SegmentFooter, subject: str) -> pa.Schema:
    """The types of a file's columns, from its verified tail."""
    last = footer.chunks[-1]
    # Arrow locates its own footer from the end of a file, and needs only some bytes before it.
    tail = file.read(last.offset + last.length, file.size).to_pybytes()
    try:
        reader = pa.ipc.open_file(pa.py_buffer(bytes(_ARROW_START) + tail))
        chunks, schema = reader.num_record_batches, reader.schema
        columns = {field.name: str(field.type) for field in schema}
    except (pa.ArrowException, OSError, ValueError) as error:  # names may not be valid UTF-8
        raise _damage_error(subject, f"its schema cannot be read ({error})") from error
    if chunks != len(footer.chunks):
        raise _damage_error(subject, f"it has {chunks} chunks, not {len(footer.chunks)}")
    if len(columns) != len(schema) or not _fits(columns, footer.layout):
        raise _damage_error(subject, "its columns do not match its footer")
    return schema


def read_chunk(data: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in the bytes of a chunk with these columns; ValueError if it has others. Arrow's bytes at the start of a
    file belong to the first chunk."""
    try:
        if data.size >= _ARROW_START and data.slice(0, len(_MAGIC)).to_pybytes() == _MAGIC:
            rows = pa.ipc.open_stream(data.slice(_ARROW_START)).read_next_batch()
        else:
            rows = pa.ipc.read_record_batch(data, schema)
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise ValueError(f"it cannot be read ({error})") from error
    if rows.schema != schema:
        raise ValueError("its columns do not match its segment")
    return rows


def _is_sealed(tail: bytes) -> bool:
    at = tail.find(_CRC_AT)
    crc = tail[at + len(_CRC_AT) : at + len(_CRC_AT) + 8]
    return at >= 0 and crc == b"%08x" % zlib.crc32(tail.replace(_CRC_AT + crc + b'"', _NO_CRC, 1))


def _from_document(
    document: dict[str, Any], chunks: tuple[ChunkEntry, ...], file: SegmentFile, subject: str
) -> SegmentFooter:
    """Parses a verified footer: errors in it stem from its writer and may be arbitrary."""
    try:
        footer = SegmentFooter(
            state=document["state"],
            epoch=document["epoch"],
            groups=tuple(document["groups"]),
            layout=document["layout"],
            rows=document["rows"],
            head_crc32=document["head_crc32"],
            chunks=chunks,
        )
    except (KeyError, TypeError) as error:
        raise _damage_error(subject, f"its footer breaks the format ({type(error).__name__}: {error})") from error
    numbers = (footer.epoch, footer.rows, footer.head_crc32, *footer.groups)
    if not (isinstance(footer.state, str) and all(type(number) is int for number in numbers)):
        raise _damage_error(subject, "its footer breaks the format (a part of it is of another type)")
    if not _is_layout(footer.layout):
        raise _damage_error(subject, "its footer breaks the format (layout)")
    if len(footer.groups) != 2 or not 0 <= footer.groups[0] <= footer.groups[1] <= MAX_PARALLELISM_MAX:
        raise _damage_error(subject, "its footer breaks the format (key groups)")
    if footer.rows != sum(chunk.rows for chunk in chunks):
        raise _damage_error(subject, f"its chunks do not have the {footer.rows} rows in its footer")
    if not all(0 <= chunk.offset <= chunk.offset + chunk.length <= file.size for chunk in chunks):
        raise _damage_error(subject, "its footer does not fit the file")
    if zlib.crc32(file.read(0, chunks[0].offset)) != footer.head_crc32:
        raise _damage_error(subject, "the checksum of its schema does not match")
    return footer


def _chunk_entry(fields: Any) -> ChunkEntry:
    entry = ChunkEntry(*fields)
    orders, times = (entry.first_order, entry.last_order), fields[6:]
    is_sound = (
        all(type(number) is int for number in fields)
        and entry.rows > 0
        and all(0 <= order < 1 << 64 for order in orders)
        and all(-(1 << 63) <= time_ms < 1 << 63 for time_ms in times)
    )
    if not is_sound:
        raise ValueError("no entry of a chunk")
    return entry


def _is_layout(layout: Any) -> bool:
    """Whether a document is a layout in the form written by `segment.layout_document`."""
    if not isinstance(layout, dict) or not isinstance(layout.get("key"), str):
        return False
    is_typed = all(layout.get(part) is None or isinstance(layout[part], str) for part in ("sub", "value"))
    is_flagged = all(isinstance(layout.get(part), bool) for part in ("pickled", "due", "ttl"))
    numbers = [layout.get("max_parallelism"), layout.get("serializer", 0)]
    is_numbered = all(type(number) is int for number in numbers) and 0 < numbers[0] <= MAX_PARALLELISM_MAX
    return is_typed and is_flagged and is_numbered and (not layout["pickled"] or layout.get("value") == "binary")


def _fits(columns: dict[str, str], layout: dict[str, Any]) -> bool:
    """Whether a file has the columns of the layout in its footer."""
    types = {"order": "uint64", "rest": "uint16", "kind": "uint8"}
    types["key"] = "binary" if layout["key"] == "canonical" else layout["key"]
    types |= {part: layout[part] for part in ("sub", "value") if layout.get(part) is not None}
    types |= {"sub_order": "int64"} if "sub" in types and not types["sub"].startswith(_ORDERED) else {}
    types |= {"due_ms": "int64"} if layout["due"] else {}
    return columns == types | ({"expires_ms": "int64"} if layout["ttl"] else {})


def _damage_error(subject: str, reason: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"{subject} is damaged: {reason}. Nothing was overwritten; restore the file from a copy, or start the job "
        "from an older epoch."
    )
