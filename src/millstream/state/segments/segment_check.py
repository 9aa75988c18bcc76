"""Finds all damage of a segment without the job's program, to verify a store.

A running job checks the chunks that it reads (`segment`). Here every byte is checked, a chunk at a time, so that memory
is bounded by one chunk. Each step names the damage:

1. the file exists and has the length in the manifest;
2. its footer, schema and tail have their checksums, and the rows, epoch and key groups of the manifest;
3. each chunk has its checksum and the rows in the footer, sorted, after the rows of the previous chunk;
4. all keys lie in the segment's key groups, in the order of their hashes, and no row occurs twice;
5. due and expiry times lie within the bounds by which a scan skips chunks.

Damage in one chunk does not hide damage in the next. The check changes nothing and decodes nothing that could run code.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from millstream.errors import StoreError
from millstream.state.keys.hashing import Int64s, xxhash64_column
from millstream.state.keys.key_columns import plain_view, same
from millstream.state.schemas.stored_layout import stored_layout
from millstream.state.segments.segment_footer import (
    ChunkEntry,
    SegmentFile,
    SegmentFooter,
    read_chunk,
    read_footer,
    read_schema,
)
from millstream.state.segments.version import SegmentRef
from millstream.state.tables.layout import (
    CLEAR,
    PUT,
    TableLayout,
    kinds_of,
    order_of_group,
    orders_in,
    orders_of,
    rests_of,
    sub_orders_in,
)

__all__ = ["KeyHashes", "segment_problems"]

KeyHashes = Callable[[pa.Array, TableLayout], Int64s | None]
"""Computes the expected hashes of keys; None where they are unknown."""


def segment_problems(file: SegmentFile, ref: SegmentRef, state: str, key_hashes: KeyHashes) -> list[str]:
    """The problems of the segment that the manifest names by `ref`; empty if it is intact."""
    if file.size != ref.file_bytes:
        return [f"it has {file.size} bytes, the manifest says {ref.file_bytes}"]
    try:
        footer = read_footer(file, "it")
        layout = stored_layout(file, "it")
        schema = read_schema(file, footer, "it")
    except StoreError as error:
        return [error.message.removeprefix("it is damaged: ").split(". Nothing was overwritten", 1)[0]]
    except (pa.ArrowException, KeyError, ValueError) as error:
        return [f"its schema cannot be read ({error})"]
    problems = list(_footer_problems(footer, ref, state))
    last_order = -1
    for number, entry in enumerate(footer.chunks):
        problem, last_order = _chunk_problem(file, schema, entry, layout, footer.groups, last_order, key_hashes)
        if problem is not None:
            problems.append(f"chunk {number}: {problem}")
    return problems


def _footer_problems(footer: SegmentFooter, ref: SegmentRef, state: str) -> Iterator[str]:
    facts = (
        ("state", footer.state, state),
        ("epoch", footer.epoch, ref.epoch),
        ("rows", footer.rows, ref.rows),
        ("key groups", footer.groups, (ref.file_group_start, ref.file_group_stop)),
    )
    for name, in_footer, in_manifest in facts:
        if in_footer != in_manifest:
            yield f"its footer has {name} {in_footer!r}, the manifest {in_manifest!r}"
    due_min_ms = min((chunk.due_min_ms for chunk in footer.chunks), default=ref.due_min_ms)
    if due_min_ms != ref.due_min_ms:
        yield f"its earliest due time is {due_min_ms}, the manifest says {ref.due_min_ms}"


def _chunk_problem(
    file: SegmentFile,
    schema: pa.Schema,
    entry: ChunkEntry,
    layout: TableLayout,
    groups: tuple[int, int],
    last_order: int,
    key_hashes: KeyHashes,
) -> tuple[str | None, int]:
    """The first problem of a chunk, and its last order."""
    data = file.read(entry.offset, entry.offset + entry.length)
    if zlib.crc32(data) != entry.crc32:
        return "its checksum does not match its content", max(last_order, entry.last_order)
    try:
        rows = read_chunk(data, schema)
        rows.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        return str(error), max(last_order, entry.last_order)
    return _rows_problem(rows, entry, layout, groups, last_order, key_hashes), max(last_order, entry.last_order)


def _rows_problem(
    rows: pa.RecordBatch,
    entry: ChunkEntry,
    layout: TableLayout,
    groups: tuple[int, int],
    last_order: int,
    key_hashes: KeyHashes,
) -> str | None:
    orders = orders_in(rows)
    if rows.num_rows != entry.rows or not rows.num_rows:
        return f"it has {rows.num_rows} rows, its footer says {entry.rows}"
    if (int(orders[0]), int(orders[-1])) != (entry.first_order, entry.last_order):
        return "its first and last keys do not match its footer"
    if not (orders[1:] >= orders[:-1]).all() or int(orders[0]) <= last_order:
        return "its rows are not sorted"
    if not order_of_group(groups[0]) <= int(orders[0]) <= int(orders[-1]) < order_of_group(groups[1]):
        return f"it has keys outside the key groups {groups[0]} to {groups[1] - 1} of its segment"
    if int(kinds_of(rows).max()) > CLEAR:
        return "it has rows of an unknown kind"
    return (
        _hash_problem(rows, layout, key_hashes)
        or _order_problem(rows, layout)
        or _extent_problem(rows, "due_ms", entry.due_min_ms, entry.due_max_ms)
        or _extent_problem(rows, "expires_ms", entry.expires_min_ms, entry.expires_max_ms)
    )


def _hash_problem(rows: pa.RecordBatch, layout: TableLayout, key_hashes: KeyHashes) -> str | None:
    hashes = key_hashes(rows.column("key"), layout)
    if hashes is not None:
        rests = plain_view(rows.column("rest")).view(np.uint16)
        misplaced = (orders_of(hashes, layout.max_parallelism) != orders_in(rows)) | (rests_of(hashes) != rests)
        if misplaced.any():
            return f"{int(misplaced.sum())} keys are not in the order of their hashes"
    if layout.sub_type is not None and not layout.has_ordered_sub:
        has_sub = kinds_of(rows) != CLEAR
        if (xxhash64_column(rows.column("sub"))[has_sub] != sub_orders_in(rows, layout)[has_sub]).any():
            return "map keys are not in the order of their hashes"
    return None


def _order_problem(rows: pa.RecordBatch, layout: TableLayout) -> str | None:
    """Checks neighbours of one hash: a key's rows are contiguous, sorted by sub, and unique."""
    orders, rests = orders_in(rows), plain_view(rows.column("rest")).view(np.uint16)
    ties = np.flatnonzero(orders[1:] == orders[:-1])
    if (rests[ties + 1] < rests[ties]).any():
        return "its rows are not sorted"
    ties = ties[rests[ties + 1] == rests[ties]]
    if not ties.size:
        return None
    keys = rows.column("key")
    ties = ties[same(keys.take(pa.array(ties)), keys.take(pa.array(ties + 1)))]
    if layout.sub_type is None:
        return "a key occurs twice" if ties.size else None
    subs, kinds = sub_orders_in(rows, layout), kinds_of(rows)
    after_clear = kinds[ties] == CLEAR
    if (subs[ties + 1] < subs[ties]).any() or (kinds[ties + 1] == CLEAR).any():
        return "its rows are not sorted"
    ties = ties[(subs[ties + 1] == subs[ties]) & ~after_clear]
    column = rows.column("sub")
    is_double = same(column.take(pa.array(ties)), column.take(pa.array(ties + 1)))
    return "a row occurs twice" if is_double.any() else None


def _extent_problem(rows: pa.RecordBatch, column: str, low: int, high: int) -> str | None:
    if column not in rows.schema.names:
        return None
    times = plain_view(rows.column(column))[kinds_of(rows) == PUT]
    if times.size and (int(times.min()), int(times.max())) != (low, high):
        return f"its {column} are not within the bounds in its footer"
    return None
