"""Executes a compaction step (`compaction.py`): merges its segments into one.

Overwritten rows are always dropped; deletes, clears and expired rows only if no older segment has rows that they may
hide. Otherwise an expired row becomes a delete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.state.keys.key_columns import plain_view
from millstream.state.segments.compaction import CompactionStep, replace_merged
from millstream.state.segments.lookup import Layer
from millstream.state.segments.merging import live_rows, merged_blocks
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.segments.segment_writer import CHUNK_BYTES, CHUNK_ROWS, rechunked, write_segment
from millstream.state.segments.version import Refs, SegmentRef, order_of_place
from millstream.state.tables.layout import DELETE, NEVER_MS, PUT, TableLayout, kinds_of

__all__ = ["compact"]


def compact(
    segments: OpenSegments,
    layout: TableLayout,
    refs: Sequence[SegmentRef],
    step: CompactionStep,
    now_ms: int,
    *,
    name: str,
    epoch: int,
    chunk_rows: int = CHUNK_ROWS,
    chunk_bytes: int = CHUNK_BYTES,
) -> Refs:
    """Merge the pieces of the step into the segment `name`, durably, and return the new refs of the table.

    The old files are deleted when no retained manifest names them.
    """
    rows_max = sum(refs[at].rows for piece in step.pieces for at in piece.positions)
    # A type change may have made values larger than when written.
    large_max = 4 * step.cost_bytes(refs) // chunk_bytes
    merged_rows = _merged_rows(segments, layout, refs, step, now_ms, chunk_rows, chunk_bytes)
    merged_ref = write_segment(
        segments.store,
        name,
        layout,
        epoch,
        step.groups,
        rechunked(merged_rows, chunk_rows, chunk_bytes, large_max),
        chunks_max=rows_max // chunk_rows + large_max + 2,
    )
    return replace_merged(refs, step, None if merged_ref is None else merged_ref.of_file_places(step.places))


def _merged_rows(
    segments: OpenSegments,
    layout: TableLayout,
    refs: Sequence[SegmentRef],
    step: CompactionStep,
    now_ms: int,
    block_rows: int,
    block_bytes: int,
) -> Iterator[pa.RecordBatch]:
    for piece in step.pieces:
        edges = order_of_place(piece.places.start), order_of_place(piece.places.stop)
        layers = [Layer(segments.segment(refs[at], layout), *edges) for at in piece.positions]
        for block in merged_blocks(layers, layout, *edges, block_rows, block_bytes):
            live = live_rows(block, layout, now_ms)
            if piece.is_bottom:
                yield block if live.all() else block.filter(pa.array(live))
            else:
                yield _with_deletes(block, (kinds_of(block) == PUT) & ~live)


def _with_deletes(rows: pa.RecordBatch, expired: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.RecordBatch:
    """The rows, with expired rows as deletes, since they must still hide older rows."""
    if not expired.any():
        return rows
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns["kind"] = pa.array(np.where(expired, np.uint8(DELETE), kinds_of(rows)))
    for name in ("due_ms", "expires_ms"):
        if name in columns:
            columns[name] = pa.array(np.where(expired, NEVER_MS, plain_view(columns[name])))
    if "value" in columns:
        columns["value"] = columns["value"].take(pa.array(np.arange(rows.num_rows), mask=expired))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=rows.schema)
