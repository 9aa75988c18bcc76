"""Compaction: fewer, larger segments that give the same answers.

Every epoch adds a segment, and every lookup visits all of them, so segments of similar size are merged once there
are enough (size-tiered: what is merged grows by a factor each time, so a row is rewritten a logarithmic number of
times). `plan_compaction` decides, from the refs alone; `compact` does it and returns the refs of the same table.

A merge may be larger than an epoch can afford. It is then done for some key groups only: the merged segment takes
these groups over, and the old refs stay live for the others. So decisions are made per range of key groups over
which the same refs are stacked, and one step joins neighbouring ranges as far as its budget reaches.

What is dropped: overwritten rows always; deletes, clears and expired rows only where no older segment lies beneath
them, because there they have nothing left to hide. An expired row above older segments becomes a delete.
Invariant: no get or scan, at this or any later time, can tell that a compaction took place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.state.equality import plain_view
from millstream.state.layout import DELETE, NEVER_MS, PUT, TableLayout, order_of_group
from millstream.state.lookup import Layer
from millstream.state.merging import live_rows, merged_blocks
from millstream.state.open_segments import OpenSegments
from millstream.state.resolution import kinds_of
from millstream.state.segment_writer import CHUNK_ROWS, rechunked, write_segment
from millstream.state.version import Refs, SegmentRef, coalesced

__all__ = ["CompactionPiece", "CompactionStep", "compact", "plan_compaction", "plan_full_compaction"]

FAN_IN = 4
"""So many segments of similar size must stand on each other before they are merged."""


@dataclass(frozen=True)
class CompactionPiece:
    """For these key groups, merge the refs at these positions, which stand directly on each other."""

    groups: range
    merged: tuple[int, ...]
    is_bottom: bool
    """Nothing older lies beneath, in these key groups."""


@dataclass(frozen=True)
class CompactionStep:
    """Pieces side by side, merged into one segment, which is to stand before the ref at `position`."""

    pieces: tuple[CompactionPiece, ...]
    position: int

    @property
    def groups(self) -> range:
        """The key groups of the merged segment."""
        return range(self.pieces[0].groups.start, self.pieces[-1].groups.stop)


def plan_compaction(refs: Sequence[SegmentRef], budget_bytes: int, *, fan_in: int = FAN_IN) -> CompactionStep | None:
    """The next step worth taking, reading about `budget_bytes` at most (but at least one key group); or None.

    >>> refs = [SegmentRef(f"s{n}", n, 0, 128, 0, 128, rows=10, file_bytes=1280) for n in range(4)]
    >>> plan_compaction(refs, budget_bytes=10_000).pieces
    (CompactionPiece(groups=range(0, 128), merged=(0, 1, 2, 3), is_bottom=True),)
    >>> plan_compaction(refs, budget_bytes=1280).groups
    range(0, 32)
    >>> plan_compaction(refs[:3], budget_bytes=10_000) is None
    True
    """
    stacks = _stacks(refs)
    runs = [_similar_run([refs[at].live_bytes(groups) for at in stack], fan_in) for groups, stack in stacks]
    wanted = [at for at, run in enumerate(runs) if run is not None]
    if not wanted:
        return None
    # The tallest stack is what lookups suffer from most.
    first = max(wanted, key=lambda at: (len(stacks[at][1]), -at))
    pieces: list[CompactionPiece] = []
    window = (0, len(refs))
    left_bytes = budget_bytes
    for at in range(first, len(stacks)):
        groups, stack = stacks[at]
        run = runs[at]
        if run is None or (pieces and pieces[-1].groups.stop != groups.start):
            break
        merged = tuple(stack[i] for i in run)
        window = _narrowed(window, stack, run)
        cost = sum(refs[position].live_bytes(groups) for position in merged)
        # A share so small that it counts as nothing is always affordable.
        affordable = len(groups) if not cost or cost <= left_bytes else len(groups) * max(left_bytes, 0) // cost
        if window[0] > window[1] or (not affordable and pieces):
            break
        part = groups[: max(affordable, 1)]
        pieces.append(CompactionPiece(part, merged, is_bottom=run.start == 0))
        position = window[0]
        left_bytes -= cost
        if len(part) < len(groups):
            break
    return CompactionStep(tuple(pieces), position)


def plan_full_compaction(refs: Sequence[SegmentRef]) -> CompactionStep | None:
    """The step after which there is one segment, without a trace of anything deleted or expired.

    Only refs without a gap between their key groups can become one; None when there is nothing to merge.
    """
    stacks = _stacks(refs)
    pieces: list[CompactionPiece] = []
    for groups, stack in stacks:
        if pieces and pieces[-1].groups.stop != groups.start:
            break
        pieces.append(CompactionPiece(groups, tuple(stack), is_bottom=True))
    return CompactionStep(tuple(pieces), 0) if pieces else None


def _stacks(refs: Sequence[SegmentRef]) -> list[tuple[range, list[int]]]:
    """The ranges of key groups over which the same refs lie, and the positions of these, oldest first."""
    edges = sorted({edge for ref in refs for edge in (ref.group_start, ref.group_stop)})
    stacks = []
    for start, stop in itertools.pairwise(edges):
        stack = [at for at, ref in enumerate(refs) if ref.group_start <= start and stop <= ref.group_stop]
        if stack:
            stacks.append((range(start, stop), stack))
    return stacks


def _similar_run(sizes: Sequence[int], fan_in: int) -> range | None:
    """The youngest run of a stack worth merging: each older one is no larger than all younger ones together."""
    for stop in range(len(sizes), fan_in - 1, -1):
        start, total = stop - 1, sizes[stop - 1]
        while start > 0 and sizes[start - 1] <= total:
            start -= 1
            total += sizes[start]
        if stop - start >= fan_in:
            return range(start, stop)
    return None


def _narrowed(window: tuple[int, int], stack: list[int], run: range) -> tuple[int, int]:
    """Where the merged ref may still stand: after all that is older, before all that is younger."""
    after = stack[run.start - 1] + 1 if run.start else 0
    before = stack[run.stop] if run.stop < len(stack) else window[1]
    return max(window[0], after), min(window[1], before)


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
) -> Refs:
    """Merge what the step says into the segment `name`, durably, and return the refs of the same table.

    The old files stay; they are deleted when no retained manifest names them.
    """
    rows_max = sum(refs[at].rows for piece in step.pieces for at in piece.merged)
    merged = write_segment(
        segments.store,
        name,
        layout,
        epoch,
        step.groups,
        rechunked(_merged_rows(segments, layout, refs, step, now_ms, chunk_rows), chunk_rows),
        chunks_max=rows_max // chunk_rows + 2,
    )
    return _replaced(refs, step, merged)


def _merged_rows(
    segments: OpenSegments,
    layout: TableLayout,
    refs: Sequence[SegmentRef],
    step: CompactionStep,
    now_ms: int,
    block_rows: int,
) -> Iterator[pa.RecordBatch]:
    for piece in step.pieces:
        edges = order_of_group(piece.groups.start), order_of_group(piece.groups.stop)
        layers = [Layer(segments.segment(refs[at], layout), *edges) for at in piece.merged]
        for block in merged_blocks(layers, layout, *edges, block_rows):
            live = live_rows(block, layout, now_ms)
            if piece.is_bottom:
                yield block if live.all() else block.filter(pa.array(live))
            else:
                yield _with_deletes(block, (kinds_of(block) == PUT) & ~live)


def _with_deletes(rows: pa.RecordBatch, expired: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.RecordBatch:
    """The rows, the expired ones as deletes: they still have to hide what lies beneath them."""
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


def _replaced(refs: Sequence[SegmentRef], step: CompactionStep, merged: SegmentRef | None) -> Refs:
    """The refs without what was merged, and the merged one in its place."""
    result: list[SegmentRef] = []
    for at, ref in enumerate(refs):
        if at == step.position and merged is not None:
            result.append(merged)
        result.extend(_without(ref, (piece.groups for piece in step.pieces if at in piece.merged)))
    if step.position == len(refs) and merged is not None:
        result.append(merged)
    return coalesced(result)


def _without(ref: SegmentRef, taken: Iterable[range]) -> list[SegmentRef]:
    parts = [ref]
    for groups in taken:
        parts = [left for part in parts for left in part.without(groups)]
    return parts
