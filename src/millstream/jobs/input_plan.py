"""How far the next epoch reads: asked of every source, decided here, recorded only by the manifest.

The plan is not written down before it is run: if the epoch dies, the next one is planned anew, perhaps with other
ranges. Only what a manifest says was read has been read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from millstream.checkpoint.manifest import SplitPosition
from millstream.connectors.contracts import Source, SourceContext, Split
from millstream.runtime.barrier import MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.spec import ReadRange

__all__ = ["InputPlan", "PlannedSource", "plan_input"]

Positions = Mapping[str, Mapping[str, SplitPosition]]


@dataclass(frozen=True)
class PlannedSource:
    """A source of the job, by the uid of its node."""

    uid: str
    source: Source
    parallelism: int


@dataclass(frozen=True)
class InputPlan:
    """The ranges of one epoch, and the splits each source listed. `exhausted`: nothing will ever follow them."""

    reads: Mapping[str, tuple[ReadRange, ...]]
    floors: Mapping[str, int]
    listed: Mapping[str, frozenset[str]]
    has_input: bool
    exhausted: bool


def plan_input(
    sources: tuple[PlannedSource, ...], positions: Positions, budget: int, context: SourceContext
) -> InputPlan:
    """Ask every source how far it can be read; share `budget` records among the splits that are not finished."""
    listed = [
        (planned, list(planned.source.splits(replace(context, parallelism=planned.parallelism)))) for planned in sources
    ]
    standing = {p.uid: {s.name: _standing(p, s, positions) for s in splits} for p, splits in listed}
    open_splits = sum(not at.finished for splits in standing.values() for at in splits.values())
    share = max(1, budget // max(1, open_splits))
    reads: dict[str, tuple[ReadRange, ...]] = {}
    floors: dict[str, int] = {}
    exhausted = True
    for planned, splits in listed:
        own = replace(context, parallelism=planned.parallelism)
        ranges, floor, ends = _plan_source(planned, splits, standing[planned.uid], share, own)
        reads[planned.uid], floors[planned.uid] = ranges, floor
        exhausted = exhausted and ends and planned.source.complete(own)
    has_input = any(reads.values())
    names = {planned.uid: frozenset(split.name for split in splits) for planned, splits in listed}
    return InputPlan(reads, floors, names, has_input, exhausted)


def _standing(planned: PlannedSource, split: Split, positions: Positions) -> SplitPosition:
    known = positions.get(planned.uid, {}).get(split.name)
    if known is not None:
        return known
    return SplitPosition(split.start, planned.source.finished(split, split.start), None)


def _plan_source(
    planned: PlannedSource,
    splits: list[Split],
    standing: Mapping[str, SplitPosition],
    share: int,
    context: SourceContext,
) -> tuple[tuple[ReadRange, ...], int, bool]:
    """Ranges, what holds event time back besides them, and whether all splits end with these ranges."""
    ranges: list[ReadRange] = []
    floor, ends = MAX_WATERMARK, True
    for split in splits:
        at = standing[split.name]
        if at.finished:
            continue
        watermark = MIN_WATERMARK if at.watermark is None else at.watermark
        stop = planned.source.reach(split, at.offset, share, context)
        if stop == at.offset:
            floor = min(floor, watermark)
            ends = ends and planned.source.finished(split, at.offset)
            continue
        ranges.append(ReadRange(split, at.offset, stop, len(ranges) % planned.parallelism, watermark))
        ends = ends and planned.source.finished(split, stop)
    return tuple(ranges), floor, ends
