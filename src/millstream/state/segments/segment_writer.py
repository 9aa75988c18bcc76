"""Writes a segment, chunk by chunk, and makes it durable before any manifest names it.

Rows must be sorted and unique, which is checked: an unsorted segment would silently lose keys. The steps:

1. write each chunk with Arrow's file writer, and record its position;
2. read the file back and compute the checksum of its head and of every chunk, so that they are the checksums of the
   bytes that were written, not of the bytes in memory;
3. write the footer over its blanks;
4. sync (local store) or put (remote store); only then return a `SegmentRef`.

A writer that dies leaves a file that no manifest names. Names contain a nonce and are never reused.
"""

from __future__ import annotations

import errno
import itertools
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from millstream.errors import StoreError, StoreFullError
from millstream.state.keys.hashing import Int64s, UInt64s
from millstream.state.keys.key_columns import plain_view, same
from millstream.state.segments.segment import entry_of, layout_document
from millstream.state.segments.segment_footer import ChunkEntry, SegmentFooter, blank_footer, written_tail
from millstream.state.segments.version import SegmentRef
from millstream.state.tables.layout import NEVER_MS, TableLayout, kinds_of, order_of_group, orders_in, sub_orders_in
from millstream.storage.store import Store

__all__ = ["CHUNK_BYTES", "CHUNK_ROWS", "chunk_cuts", "rechunked", "write_segment"]

CHUNK_ROWS = 65_536
"""Rows per chunk; the rows of one key are never split."""

CHUNK_BYTES = 64 << 20
"""A chunk of this size may have fewer rows. An Arrow column is limited to 2 GiB."""


def chunk_cuts(orders: UInt64s, chunk_rows: int) -> list[int]:
    """Positions to cut sorted rows into chunks without splitting an order; starts with 0, ends with the end.

    >>> chunk_cuts(np.array([1, 2, 2, 2, 3], dtype=np.uint64), 2)
    [0, 4, 5]
    """
    cuts = [0]
    while cuts[-1] < len(orders):
        last = min(cuts[-1] + chunk_rows, len(orders)) - 1
        cuts.append(int(orders.searchsorted(orders[last], "right")))
    return cuts


def write_segment(
    store: Store,
    name: str,
    layout: TableLayout,
    epoch: int,
    groups: range,
    chunks: Iterable[pa.RecordBatch],
    *,
    chunks_max: int,
) -> SegmentRef | None:
    """Write sorted chunks as the segment `name`, live for `groups`; None if there are no rows."""
    layout.check_groups(groups)
    present = (chunk for chunk in chunks if chunk.num_rows)
    first = next(present, None)
    if first is None:
        return None
    checked_chunks = _checked_chunks(itertools.chain((first,), present), layout, groups)
    path = store.local_path(name)
    blanks = blank_footer(chunks_max, layout.state, layout_document(layout))
    if path is not None:
        try:
            with pa.OSFile(str(path), "wb") as sink:
                spans = _write_chunks(sink, layout, checked_chunks, blanks)
            footer, size = _seal_file(path, layout, epoch, groups, spans)
        except OSError as error:
            with suppress(OSError):  # a partial file would occupy the full disk
                os.unlink(path)
            kind = StoreFullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
            raise kind(
                f"State {layout.state!r}: segment {name} cannot be written: {error}. Free some space or give another "
                "--store, then start the job again."
            ) from error
        store.settle(name)
    else:
        buffer = pa.BufferOutputStream()
        spans = _write_chunks(buffer, layout, checked_chunks, blanks)
        data = memoryview(buffer.getvalue())
        footer, tail = _sealed(data, layout, epoch, groups, spans)
        size = len(data)
        store.put(name, b"".join((data[: size - len(tail)], tail)))
    due_min_ms = min((chunk.due_min_ms for chunk in footer.chunks), default=NEVER_MS)
    edges = (groups.start, groups.stop)
    return SegmentRef(name, epoch, *edges, *edges, footer.rows, size, due_min_ms)


_Span = tuple[ChunkEntry, int, int]


def _write_chunks(
    sink: pa.NativeFile, layout: TableLayout, chunks: Iterator[pa.RecordBatch], blanks: bytes
) -> list[_Span]:
    """Write every chunk; returns the entry, start and end of each."""
    spans: list[_Span] = []
    with pa.ipc.new_file(sink, layout.schema, metadata={"millstream": blanks}) as writer:
        for chunk in chunks:
            start = sink.tell()
            writer.write_batch(chunk)
            spans.append((entry_of(chunk, layout), start, sink.tell()))
    return spans


def _sealed(
    data: memoryview, layout: TableLayout, epoch: int, groups: range, spans: list[_Span]
) -> tuple[SegmentFooter, bytes]:
    """The footer for the written bytes, and the file's tail that contains it."""
    entries = []
    for entry, start, stop in spans:
        place = {"offset": start, "length": stop - start, "crc32": zlib.crc32(data[start:stop])}
        entries.append(ChunkEntry(**{**vars(entry), **place}))
    footer = SegmentFooter(
        state=layout.state,
        epoch=epoch,
        groups=(groups.start, groups.stop),
        layout=layout_document(layout),
        rows=sum(entry.rows for entry in entries),
        head_crc32=zlib.crc32(data[: spans[0][1]]),
        chunks=tuple(entries),
    )
    return footer, written_tail(bytes(data[spans[-1][2] :]), footer)


def _seal_file(
    path: Path, layout: TableLayout, epoch: int, groups: range, spans: list[_Span]
) -> tuple[SegmentFooter, int]:
    with pa.memory_map(str(path)) as source:
        data = memoryview(source.read_buffer())
        size = len(data)
        footer, tail = _sealed(data, layout, epoch, groups, spans)
    with open(path, "r+b") as file:
        file.seek(size - len(tail))
        file.write(tail)
    return footer, size


def _checked_chunks(chunks: Iterator[pa.RecordBatch], layout: TableLayout, groups: range) -> Iterator[pa.RecordBatch]:
    """Yields the chunks, each checked against the invariants of a segment."""
    last_order = -1
    start, stop = order_of_group(groups.start), order_of_group(groups.stop)
    for chunk in chunks:
        orders = orders_in(chunk)
        if int(orders[0]) <= last_order or not (orders[1:] >= orders[:-1]).all():
            raise AssertionError(f"state {layout.state!r}: rows of a segment are not sorted")
        if not start <= int(orders[0]) <= int(orders[-1]) < stop:
            raise AssertionError(f"state {layout.state!r}: rows outside the key groups {groups} of their segment")
        _check_unique(chunk, layout, np.flatnonzero(orders[1:] == orders[:-1]))
        last_order = int(orders[-1])
        yield chunk


def _check_unique(chunk: pa.RecordBatch, layout: TableLayout, ties: Int64s) -> None:
    """Check that no two neighbours of one order are the same row; `ties` are the first of such neighbours."""
    if layout.sub_type is not None and ties.size:
        subs, kinds = sub_orders_in(chunk, layout), kinds_of(chunk)
        ties = ties[(subs[ties] == subs[ties + 1]) & (kinds[ties] == kinds[ties + 1])]
    if not ties.size:
        return
    rests = plain_view(chunk.column("rest"))
    ties = ties[rests[ties] == rests[ties + 1]]
    columns = ["key"] if layout.sub_type is None else ["key", "sub"]
    is_double = np.ones(ties.size, dtype=np.bool_)
    for name in columns:
        column = chunk.column(name)
        is_double &= same(column.take(pa.array(ties)), column.take(pa.array(ties + 1)))
    if is_double.any():
        raise AssertionError(f"state {layout.state!r}: a segment would hold two changes of one row")


def rechunked(
    blocks: Iterable[pa.RecordBatch], chunk_rows: int, chunk_bytes: int, large_max: int
) -> Iterator[pa.RecordBatch]:
    """Sorted blocks, which do not split an order, as chunks of at least `chunk_rows` except the last; up to `large_max`
    of them may have fewer rows if they reach `chunk_bytes`."""
    pending_blocks: list[pa.RecordBatch] = []
    rows = size = 0
    for block in blocks:
        pending_blocks.append(block)
        rows += block.num_rows
        size += block.nbytes if large_max else 0
        if rows >= chunk_rows:
            whole = pa.concat_batches(pending_blocks)
            cuts = chunk_cuts(orders_in(whole), chunk_rows)
            is_last_short = cuts[-1] - cuts[-2] < chunk_rows
            for start, stop in itertools.pairwise(cuts[:-1] if is_last_short else cuts):
                yield whole.slice(start, stop - start)
            pending_blocks = [whole.slice(cuts[-2])] if is_last_short else []
        elif large_max and size >= chunk_bytes:
            large_max -= 1
            yield pa.concat_batches(pending_blocks)
            pending_blocks = []
        else:
            continue
        rows, size = sum(part.num_rows for part in pending_blocks), sum(part.nbytes for part in pending_blocks)
    if rows:
        yield pa.concat_batches(pending_blocks)
