"""Compaction: replaces segments with fewer, larger ones of the same content.

Every epoch adds a segment, and every lookup visits all of them, so segments of similar size are merged once there are
enough (size-tiered: each merge grows by a factor, so a row is rewritten a logarithmic number of times).
`plan_compaction` plans a step from the refs alone; `compact` (`segment_merge.py`) executes it and returns the new refs
of the table.

A merge may be larger than an epoch can afford. Then it covers only some key groups: the merged segment replaces the
inputs for these groups, and the old refs stay live for the others. If a single group is too large, the merge covers
some of its slices (*places*, `version.py`), with a minimum size, because every piece leaves a file. So merges are
planned per range of places with the same stack of refs, and one step combines neighbouring ranges within its budget.
While a large merge advances over the places, young segments accumulate on the places ahead: these are merged with one
another first, which removes the most segments from a stack for the fewest bytes.

The merge budget of an epoch follows the bytes it wrote (`budget_of`): every byte written is rewritten a few times, so
an epoch that writes more must merge more, or segments accumulate without bound. `compaction_debt` is the number of
overdue bytes, which may limit the size of epochs. In any case no key group is left with more than `SEGMENTS_MAX`
segments.

Merging serves lookups. A table that is written often and rarely read, such as the rows of a join whose matches arrived
before them, may stack more segments (`RARE_FAN_IN`).

Values that only a user function can read (`upgrade=`) are rewritten in the following epochs, each within the budget of
a quiet epoch (`plan_rewriting`), since readers do not have that function.

Invariant: compaction never changes the result of any present or later get or scan.
"""

from __future__ import annotations

import itertools
from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millstream.state.segments.version import SLICES, Refs, SegmentRef, coalesced

__all__ = [
    "FAN_IN",
    "RARE_FAN_IN",
    "CompactionPiece",
    "CompactionStep",
    "budget_of",
    "compaction_debt",
    "next_compaction",
    "plan_compaction",
    "plan_full_compaction",
    "plan_rewriting",
    "replace_merged",
]

FAN_IN = 4
"""The number of stacked segments of similar size that triggers a merge."""

RARE_FAN_IN = 6
"""`FAN_IN` for tables with few lookups: rows are rewritten less often, and the extra segments cost little."""

SEGMENTS_MAX = 32
"""The largest stack of segments that an epoch may leave, whatever the cost of merging."""

_SEGMENTS_IN_TIME = SEGMENTS_MAX // 2
# Some tens of milliseconds, which any epoch can afford.
_BUDGET_BYTES_MIN = 16 << 20
# The size of a merge of part of a key group: a few tenths of a second. A smaller one would leave too many files: a
# table of 10 GB has at most about 160 of them at each level.
_PIECE_BYTES_MIN = 64 << 20
# A row is merged about once each time its table grows fourfold; this covers growth from megabytes to tens of gigabytes.
_MERGES_PER_BYTE = 6
_STEPS_MAX = 4


def budget_of(written_bytes: int) -> int:
    """The number of bytes that an epoch may merge after writing `written_bytes`.

    >>> budget_of(1_000) >> 20, budget_of(64 << 20) >> 20
    (16, 384)
    """
    return max(_BUDGET_BYTES_MIN, _MERGES_PER_BYTE * written_bytes)


@dataclass(frozen=True)
class CompactionPiece:
    """A merge of the refs at these positions, adjacent in the stack, for these places."""

    places: range
    positions: tuple[int, ...]
    is_bottom: bool
    """No older segment has rows in these places."""

    @property
    def groups(self) -> range:
        """The key groups that the piece merges, in whole or in part."""
        return _groups_of(self.places)


@dataclass(frozen=True)
class CompactionStep:
    """Adjacent pieces merged into one segment, which is inserted before the ref at `position`."""

    pieces: tuple[CompactionPiece, ...]
    position: int

    @property
    def places(self) -> range:
        """The places of the merged segment."""
        return range(self.pieces[0].places.start, self.pieces[-1].places.stop)

    @property
    def groups(self) -> range:
        """The key groups of the merged segment, in whole or in part."""
        return _groups_of(self.places)

    def cost_bytes(self, refs: Sequence[SegmentRef]) -> int:
        """The approximate number of bytes read."""
        return sum(refs[at].live_bytes(piece.places) for piece in self.pieces for at in piece.positions)


def next_compaction(
    refs: Sequence[SegmentRef], left_bytes: int, steps: int, fan_in: int = FAN_IN
) -> CompactionStep | None:
    """The next step of an epoch after `steps` others, with `left_bytes` of the budget left; None if no step is due."""
    if len(refs) < fan_in:
        return None
    if left_bytes > 0 and steps < _STEPS_MAX:
        return plan_compaction(refs, left_bytes, fan_in=fan_in)
    tallest = max((len(stack) for _, stack in _stacks(refs)), default=0)
    return plan_compaction(refs, _BUDGET_BYTES_MIN) if tallest > SEGMENTS_MAX else None


def compaction_debt(refs: Sequence[SegmentRef]) -> int:
    """The number of bytes overdue for merging: segments worth merging, in stacks taller than those of a table that is
    merged in time.

    >>> refs = [SegmentRef(f"s{n}", n, 0, 128, 0, 128, rows=10, file_bytes=1280) for n in range(17)]
    >>> compaction_debt(refs), compaction_debt(refs[:16])
    (21760, 0)
    """
    if len(refs) <= _SEGMENTS_IN_TIME:
        return 0
    debt = 0
    for places, stack in _stacks(refs):
        if len(stack) > _SEGMENTS_IN_TIME:
            sizes = [refs[at].live_bytes(places) for at in stack]
            run = _similar_run(sizes, FAN_IN)
            debt += 0 if run is None else sum(sizes[run.start : run.stop])
    return debt


def plan_compaction(refs: Sequence[SegmentRef], budget_bytes: int, *, fan_in: int = FAN_IN) -> CompactionStep | None:
    """The next worthwhile step, reading about `budget_bytes` at most (but at least one piece of minimum size); or None.

    >>> refs = [SegmentRef(f"s{n}", n, 0, 128, 0, 128, rows=10, file_bytes=1280) for n in range(4)]
    >>> plan_compaction(refs, budget_bytes=10_000).pieces
    (CompactionPiece(places=range(0, 8388608), positions=(0, 1, 2, 3), is_bottom=True),)
    >>> plan_compaction(refs, budget_bytes=1280).groups
    range(0, 32)
    >>> plan_compaction(refs[:3], budget_bytes=10_000) is None
    True
    """
    stacks = _stacks(refs)
    runs = [
        _run_within([refs[at].live_bytes(places) for at in stack], fan_in, budget_bytes) for places, stack in stacks
    ]
    return _planned(refs, stacks, runs, budget_bytes)


def plan_rewriting(
    refs: Sequence[SegmentRef], since: int, budget_bytes: int = _BUDGET_BYTES_MIN
) -> CompactionStep | None:
    """The next step that rewrites segments older than the epoch `since`, whatever their sizes; None if all are
    rewritten.

    >>> refs = [SegmentRef(f"s{n}", n, 0, 128, 0, 128, rows=10, file_bytes=1280) for n in range(4)]
    >>> plan_rewriting(refs, since=2).pieces
    (CompactionPiece(places=range(0, 8388608), positions=(0, 1), is_bottom=True),)
    >>> plan_rewriting(refs, since=0) is None
    True
    """
    stacks = _stacks(refs)
    return _planned(
        refs, stacks, [_old_run([refs[at].epoch < since for at in stack]) for _, stack in stacks], budget_bytes
    )


def _planned(
    refs: Sequence[SegmentRef],
    stacks: Sequence[tuple[range, list[int]]],
    runs: Sequence[range | None],
    budget_bytes: int,
) -> CompactionStep | None:
    """The step that merges the run of the tallest stack that has one, and its neighbours' runs within the budget."""
    candidates = [at for at, run in enumerate(runs) if run is not None]
    if not candidates:
        return None
    # The tallest stack costs lookups most.
    start_at = max(candidates, key=lambda at: (len(stacks[at][1]), -at))
    pieces: list[CompactionPiece] = []
    window = (0, len(refs))
    left_bytes = budget_bytes
    for at in range(start_at, len(stacks)):
        places, stack = stacks[at]
        run = runs[at]
        if run is None or (pieces and pieces[-1].places.stop != places.start):
            break
        positions = tuple(stack[i] for i in run)
        window = _narrow(window, stack, run)
        cost = sum(refs[position].live_bytes(places) for position in positions)
        part = _affordable(places, cost, left_bytes, is_first=not pieces)
        if window[0] > window[1] or not part:
            break
        pieces.append(CompactionPiece(part, positions, is_bottom=run.start == 0))
        position = window[0]
        left_bytes -= cost
        if len(part) < len(places):
            break
    return CompactionStep(tuple(pieces), position)


def _affordable(places: range, cost_bytes: int, left_bytes: int, *, is_first: bool) -> range:
    """The places, from the first on, that the remaining budget can merge if all of them cost `cost_bytes`.

    Returns whole key groups, if at least one fits; otherwise a part of a group, but only as the first piece of a step.
    """
    # A share whose cost rounds to zero is always affordable.
    if not cost_bytes or cost_bytes <= left_bytes:
        return places
    reach = places.start + len(places) * max(left_bytes, 0) // cost_bytes
    whole_groups = reach // SLICES * SLICES
    if whole_groups > places.start:
        return range(places.start, whole_groups)
    if not is_first:
        return range(0)
    smallest = places.start + -(-len(places) * _PIECE_BYTES_MIN // cost_bytes)
    end_of_group = min((places.start // SLICES + 1) * SLICES, places.stop)
    return range(places.start, min(max(reach, smallest), end_of_group))


def plan_full_compaction(refs: Sequence[SegmentRef]) -> CompactionStep | None:
    """The step that merges everything into one segment, without deleted or expired rows.

    Only refs without gaps between their key groups can be merged; None if there is nothing to merge.
    """
    stacks = _stacks(refs)
    pieces: list[CompactionPiece] = []
    for places, stack in stacks:
        if pieces and pieces[-1].places.stop != places.start:
            break
        pieces.append(CompactionPiece(places, tuple(stack), is_bottom=True))
    return CompactionStep(tuple(pieces), 0) if pieces else None


def _stacks(refs: Sequence[SegmentRef]) -> list[tuple[range, list[int]]]:
    """The ranges of places with the same stack of refs, and the positions of these refs, oldest first."""
    begin: dict[int, list[int]] = {}
    end: dict[int, list[int]] = {}
    for at, ref in enumerate(refs):
        begin.setdefault(ref.places.start, []).append(at)
        end.setdefault(ref.places.stop, []).append(at)
    stacks: list[tuple[range, list[int]]] = []
    open_refs: list[int] = []
    for start, stop in itertools.pairwise(sorted({*begin, *end})):
        for at in end.get(start, ()):
            open_refs.remove(at)
        for at in begin.get(start, ()):
            insort(open_refs, at)
        if open_refs:
            stacks.append((range(start, stop), open_refs.copy()))
    return stacks


def _run_within(sizes: Sequence[int], fan_in: int, budget_bytes: int) -> range | None:
    """The youngest run worth merging. If the budget does not cover it, the youngest part that removes the most segments
    for the fewest bytes.

    >>> _run_within([8, 4, 1, 1, 1, 1], 4, budget_bytes=16), _run_within([8, 4, 1, 1, 1, 1], 4, budget_bytes=15)
    (range(0, 6), range(2, 6))
    """
    run = _similar_run(sizes, fan_in)
    if run is None or sum(sizes[run.start : run.stop]) <= budget_bytes:
        return run
    total = sum(sizes[run.stop - fan_in + 1 : run.stop])
    best_start, best = run.stop - fan_in, float("inf")
    for start in range(run.stop - fan_in, run.start - 1, -1):
        total += sizes[start]
        cost = total / (run.stop - start - 1)
        if cost <= best:
            best_start, best = start, cost
    return range(best_start, run.stop)


def _old_run(are_old: Sequence[bool]) -> range | None:
    """The part of a stack from its oldest to its youngest old segment.

    >>> _old_run([False, True, False, True, False]), _old_run([False])
    (range(1, 4), None)
    """
    places = [at for at, is_old in enumerate(are_old) if is_old]
    return range(places[0], places[-1] + 1) if places else None


def _similar_run(sizes: Sequence[int], fan_in: int) -> range | None:
    """The youngest run of a stack worth merging: no segment is larger than all younger ones together."""
    for stop in range(len(sizes), fan_in - 1, -1):
        start, total = stop - 1, sizes[stop - 1]
        while start > 0 and sizes[start - 1] <= total:
            start -= 1
            total += sizes[start]
        if stop - start >= fan_in:
            return range(start, stop)
    return None


def _narrow(window: tuple[int, int], stack: list[int], run: range) -> tuple[int, int]:
    """The remaining positions for the merged ref: after all older refs, before all younger ones."""
    after = stack[run.start - 1] + 1 if run.start else 0
    before = stack[run.stop] if run.stop < len(stack) else window[1]
    return max(window[0], after), min(window[1], before)


def replace_merged(refs: Sequence[SegmentRef], step: CompactionStep, merged_ref: SegmentRef | None) -> Refs:
    """The refs with the merged ones replaced by `merged_ref`."""
    result: list[SegmentRef] = []
    for at, ref in enumerate(refs):
        if at == step.position and merged_ref is not None:
            result.append(merged_ref)
        result.extend(_without(ref, (piece.places for piece in step.pieces if at in piece.positions)))
    if step.position == len(refs) and merged_ref is not None:
        result.append(merged_ref)
    return coalesced(result)


def _without(ref: SegmentRef, ranges: Iterable[range]) -> list[SegmentRef]:
    parts = [ref]
    for places in ranges:
        parts = [left for part in parts for left in part.without(places)]
    return parts


def _groups_of(places: range) -> range:
    return range(places.start // SLICES, (places.stop - 1) // SLICES + 1)
