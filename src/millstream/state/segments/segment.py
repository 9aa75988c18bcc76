"""A segment: the changes of one task in one epoch (or of a compaction), immutable, sorted, usually mapped.

A segment is read a chunk at a time. Opening one reads only its footer; a chunk's checksum and order are checked when it
is first read in this process, and not again while it is held, because a segment never changes. Damage is an error that
names the state, the epoch, the file and the part; it is never read as "no value". Chunks are numpy views and Arrow
arrays over the checked bytes. Of a mapped file, only the chunks in use are read, and the page cache retains them; of a
file that cannot be mapped, chunks are held in memory and evicted (`HeldSegment`).

The memory of segments that cannot be mapped is bounded (`SegmentMemory`): the least recently used part is evicted, and
its owner reads it again on demand. A part in use stays alive until its reader is done, so a process may temporarily
hold more. The parts of an owner are released with it.

All rows of one `order` are in one chunk: a lookup never has to continue in the next.
"""

from __future__ import annotations

import itertools
import threading
import weakref
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.errors import MillstreamError, StateSchemaError, StoreDamagedError
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, bits_view, plain_view, plain_view_type
from millstream.state.segments.segment_footer import (
    ChunkEntry,
    SegmentFile,
    SegmentFooter,
    read_chunk,
    read_footer,
    read_schema,
)
from millstream.state.segments.version import SegmentRef
from millstream.state.tables.layout import NEVER_MS, PUT, TableLayout, kinds_of, orders_in, sub_orders_in

__all__ = [
    "BYTES_MAX",
    "Chunk",
    "DownloadedFile",
    "HeldSegment",
    "PartOwner",
    "Segment",
    "SegmentMemory",
    "layout_document",
]

BYTES_MAX = 512 << 20
"""The bound of a process's bytes of unmapped segments."""


class PartOwner(Protocol):
    """An owner of parts in memory."""

    def let_go(self, part: int) -> None:
        """Evict a part; it is read again on demand."""


class SegmentMemory:
    """The parts held in memory, in LRU order.

    >>> class Owner:
    ...     def let_go(self, part):
    ...         print("let go of", part)
    >>> owner, memory = Owner(), SegmentMemory(bytes_max=10)
    >>> token = memory.join(owner)
    >>> memory.use(token, 1, 6); memory.use(token, 2, 4); memory.use(token, 1, 6); memory.use(token, 3, 4)
    let go of 2
    >>> memory.held_bytes
    10
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._tokens = itertools.count()
        self._owners: dict[int, weakref.ref[PartOwner]] = {}
        self._parts: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._dropped_tokens: deque[int] = deque()
        self.held_bytes = 0

    def join(self, owner: PartOwner) -> int:
        """Register an owner and return its token."""
        token = next(self._tokens)
        # The garbage collector may call back at any time, even while the lock is held, so the callback only records the
        # token.
        weakref.finalize(owner, self._dropped_tokens.append, token).atexit = False
        with self._lock:
            self._owners[token] = weakref.ref(owner)
        return token

    def use(self, token: int, part: int, size: int) -> None:
        """Record the use of a part of `size` bytes."""
        with self._lock:
            self._release_dropped()
            if (token, part) in self._parts:
                self._parts.move_to_end((token, part))
                return
            self._parts[token, part] = size
            self.held_bytes += size
            surplus = []
            while self.held_bytes > self._bytes_max and len(self._parts) > 1:
                (holder, number), freed = self._parts.popitem(last=False)
                self.held_bytes -= freed
                surplus.append((self._owners[holder](), number))
        for owner, number in surplus:
            if owner is not None:
                owner.let_go(number)

    def _release_dropped(self) -> None:
        while self._dropped_tokens:
            token = self._dropped_tokens.popleft()
            self._owners.pop(token, None)
            for key in [key for key in self._parts if key[0] == token]:
                self.held_bytes -= self._parts.pop(key)


PlainKeys: TypeAlias = NDArray[np.signedinteger[Any]]


class Chunk:
    """Some sorted rows: the columns that lookups need as numpy, the others as Arrow.

    Many attributes: each is a view of a column, created once, because lookups use them for every segment of every read.
    """

    __slots__ = (
        "batch",
        "due_ms",
        "expires_ms",
        "key_view",
        "keys",
        "kinds",
        "order_view",
        "orders",
        "rows",
        "sub_orders",
        "value_reader",
        "value_view",
        "values",
    )

    def __init__(self, batch: pa.RecordBatch, layout: TableLayout) -> None:
        self.batch = batch
        self.rows: int = batch.num_rows
        self.orders = orders_in(batch)
        self.order_view = self.orders.data  # as Python integers: faster for single lookups
        self.kinds = kinds_of(batch)
        self.keys: pa.Array = batch.column("key")
        self.key_view = key_view(self.keys)
        self.sub_orders: Int64s | None = sub_orders_in(batch, layout) if layout.sub_type is not None else None
        self.values: pa.Array | None = batch.column("value") if layout.value_type is not None else None
        self.value_view = None if self.values is None else bits_view(self.values)
        self.value_reader: Callable[[int], Any] | None = None  # created by the first point read
        self.due_ms: Int64s | None = plain_view(batch.column("due_ms")) if layout.has_due else None
        self.expires_ms: Int64s | None = plain_view(batch.column("expires_ms")) if layout.has_ttl else None

    def values_at(self, rows: Int64s) -> pa.Array | NDArray[np.signedinteger[Any]]:
        """The values of rows; non-null fixed-width values as numpy, which is faster for few rows."""
        assert self.values is not None
        return self.values.take(pa.array(rows)) if self.value_view is None else self.value_view[rows]

    def are_live(self, rows: Int64s, now_ms: int) -> Bools:
        """Mask of the rows with a value: put, and not expired."""
        live: Bools = self.kinds[rows] == PUT
        if self.expires_ms is not None:
            live &= self.expires_ms[rows] > now_ms
        return live


def key_view(keys: pa.Array) -> PlainKeys | None:
    """The keys as numpy, if they are numbers or times without nulls."""
    return plain_view(keys) if plain_view_type(keys.type) is not None and not keys.null_count else None


def layout_document(layout: TableLayout) -> dict[str, Any]:
    """The layout as stored in a footer: types as Arrow prints them."""
    document = {
        "key": "canonical" if layout.key_type is None else str(layout.key_type),
        "sub": None if layout.sub_type is None else str(layout.sub_type),
        "value": None if layout.value_type is None else str(layout.value_type),
        "pickled": layout.is_pickled,
        "due": layout.has_due,
        "ttl": layout.has_ttl,
        "max_parallelism": layout.max_parallelism,
    }
    return document if layout.serializer_version is None else {**document, "serializer": layout.serializer_version}


class Segment:
    """The sorted rows of one file, or of unwritten changes.

    `is_foreign`: the file may come from an untrusted user, so that a checksum proves nothing. Arrow crashes the process
    when an offset leads beyond its memory, so offsets are checked first. Tasks skip this: a user who can write their
    store can run code in them anyway. `fetch_again` fetches the file from its store if the local copy is damaged.
    """

    is_foreign = False

    def __init__(
        self, layout: TableLayout, subject: str, entries: tuple[ChunkEntry, ...], chunks: list[Chunk | None]
    ) -> None:
        self.layout = layout
        self.entries = entries
        self.fences = np.array([entry.first_order for entry in entries], dtype=np.uint64)
        self.fence_list: list[int] = self.fences.tolist()
        self._subject = subject
        self._chunks = chunks
        self._schema_number = 0
        self._file: SegmentFile | None = None
        self._schema: pa.Schema | None = None
        self.fetch_again: Callable[[], SegmentFile] | None = None

    @classmethod
    def of_rows(cls, batch: pa.RecordBatch, layout: TableLayout) -> Segment:
        """Rows in memory, already sorted, as a segment of one chunk."""
        if not batch.num_rows:
            return cls(layout, "changes", (), [])
        return cls(layout, "changes", (entry_of(batch, layout),), [Chunk(batch, layout)])

    @classmethod
    def of_file(cls, file: SegmentFile, layout: TableLayout, ref: SegmentRef) -> Self:
        """The segment in a file. Checks only the footer; chunks are checked when read."""
        subject = f"State {layout.state!r}, epoch {ref.epoch}: segment {ref.file}"
        footer = read_footer(file, subject)
        if file.size != ref.file_bytes or footer.rows != ref.rows or footer.epoch != ref.epoch:
            raise _damage_error(
                subject,
                f"the manifest says {ref.file_bytes} bytes and {ref.rows} rows of epoch {ref.epoch}, the file has "
                f"{file.size} bytes and {footer.rows} rows of epoch {footer.epoch}. Was a file copied or renamed?",
            )
        schema_number = _check_layout(footer, layout)
        segment = cls(layout, subject, footer.chunks, [None] * len(footer.chunks))
        segment._schema_number = schema_number
        segment._file, segment._schema = file, read_schema(file, footer, subject)
        return segment

    def chunk(self, number: int) -> Chunk:
        """A chunk, checked when it is first read."""
        return self._chunks[number] or self._checked_chunk(number)

    def _checked_chunk(self, number: int) -> Chunk:
        assert self._file is not None and self._schema is not None
        entry, subject = self.entries[number], f"{self._subject}, chunk {number}"
        data = self._file.read(entry.offset, entry.offset + entry.length)
        if zlib.crc32(data) != entry.crc32 and self.fetch_again is not None:
            self._file = self.fetch_again()
            data = self._file.read(entry.offset, entry.offset + entry.length)
        if zlib.crc32(data) != entry.crc32:
            raise _damage_error(subject, "its checksum does not match its content")
        try:
            rows = read_chunk(data, self._schema)
            if self.is_foreign:
                rows.validate(full=True)
        except ValueError as error:
            raise _damage_error(subject, str(error)) from error
        if self.layout.past is not None:
            rows = self.layout.past.present(rows, self._schema_number, self.layout.schema)
        chunk = Chunk(rows, self.layout)
        orders = chunk.orders
        if chunk.rows != entry.rows or (orders[0], orders[-1]) != (entry.first_order, entry.last_order):
            raise _damage_error(subject, "its rows do not match its footer")
        if not (orders[1:] >= orders[:-1]).all():
            raise _damage_error(subject, "its rows are not sorted")
        self._chunks[number] = chunk
        return chunk

    def touch(self, bytes_max: int) -> int:
        """Check chunks not yet read, up to `bytes_max`, so that later readers need not wait; returns the number of
        bytes. Errors are left to the reader of the chunk."""
        touched_bytes = 0
        for number, entry in enumerate(self.entries):
            if self._chunks[number] is None and touched_bytes + entry.length <= bytes_max:
                with suppress(MillstreamError):
                    self.chunk(number)
                touched_bytes += entry.length
        return touched_bytes

    @property
    def rows(self) -> int:
        """The number of changes in the segment."""
        return sum(entry.rows for entry in self.entries)


class DownloadedFile:
    """A file of a remote store, held whole in memory until it is evicted, and downloaded again on demand.

    >>> file = DownloadedFile(lambda: b"abcd", 4, "segment a")
    >>> file.read(1, 3).to_pybytes(), file.let_go(), file.read(0, 1).to_pybytes()
    (b'bc', None, b'a')
    """

    def __init__(self, download: Callable[[], bytes], size: int, subject: str) -> None:
        self._download, self.size, self._subject = download, size, subject
        self._data: pa.Buffer | None = None

    def read(self, start: int, stop: int) -> pa.Buffer:
        data = self._data
        if data is None:
            data = pa.py_buffer(self._download())
            if data.size != self.size:
                raise StoreDamagedError(
                    f"{self._subject} has {data.size} bytes, expected {self.size}. Restore the file from a copy, or "
                    "start the job from an older epoch."
                )
            self._data = data
        return data.slice(start, stop - start)

    def let_go(self) -> None:
        """Evict the bytes; parts in use stay alive."""
        self._data = None


class HeldSegment(Segment):
    """A segment whose chunks are in this process's memory, as long as `memory` has room for them.

    A chunk that was read is accounted individually; chunks of a downloaded file share the file's bytes and are evicted
    together.
    """

    def in_memory(self, memory: SegmentMemory) -> Self:
        """Account this segment's bytes in `memory`."""
        self._memory, self._token = memory, memory.join(self)
        if isinstance(self._file, DownloadedFile):  # already downloaded to read its footer
            memory.use(self._token, 0, self._file.size)
        return self

    def chunk(self, number: int) -> Chunk:
        chunk = self._chunks[number] or self._checked_chunk(number)
        if isinstance(self._file, DownloadedFile):
            self._memory.use(self._token, 0, self._file.size)
        else:
            self._memory.use(self._token, number, self.entries[number].length)
        return chunk

    def let_go(self, part: int) -> None:
        """Evict a chunk, or the whole of a downloaded file."""
        if isinstance(self._file, DownloadedFile):
            self._file.let_go()
            self._chunks[:] = [None] * len(self._chunks)
        else:
            self._chunks[part] = None


def entry_of(batch: pa.RecordBatch, layout: TableLayout) -> ChunkEntry:
    """The footer entry of a chunk that is not yet in a file."""
    orders = orders_in(batch)
    due = _extent(batch, "due_ms") if layout.has_due else (NEVER_MS, -1)
    expires = _extent(batch, "expires_ms") if layout.has_ttl else (NEVER_MS, -1)
    return ChunkEntry(0, 0, 0, batch.num_rows, int(orders[0]), int(orders[-1]), *due, *expires)


def _extent(batch: pa.RecordBatch, column: str) -> tuple[int, int]:
    times = plain_view(batch.column(column))[kinds_of(batch) == PUT]
    return (int(times.min()), int(times.max())) if times.size else (NEVER_MS, -NEVER_MS)


# The parts of a layout that may differ between segments if the layout has a past.
_OF_SCHEMA = frozenset({"value", "pickled", "ttl", "serializer"})


def _check_layout(footer: SegmentFooter, layout: TableLayout) -> int:
    """The index of the segment's schema in a layout with a past."""
    schema_number = 0 if layout.past is None else layout.past.entry_of(footer.layout, footer.epoch)
    now = layout_document(layout)
    for part in dict.fromkeys((*footer.layout, *now)):
        was, is_now = footer.layout.get(part), now.get(part)
        if was != is_now and not (layout.past is not None and part in _OF_SCHEMA):
            raise StateSchemaError(
                f"state {layout.state!r} was saved with {part} {was}, is now {is_now}. "
                "Give the state a new name, or declare it as it was."
            )
    return schema_number


def _damage_error(subject: str, reason: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"{subject} is damaged: {reason}. Nothing was overwritten; restore the file from a copy, or start the job "
        "from an older epoch."
    )
