"""Reads several sources in sequence as one: for example files with old records, then a topic with newer ones.

Each source is a *stage*. A stage is finished when all its splits are read to their ends, according to the positions of
the last manifest: no separate record of the switch exists that could contradict them. Then the next stage lists its
splits, and only then decides where they start. So a job that crashes at the switch, or goes back to an earlier epoch,
switches again, at the same position of its input.

A split is named after its stage (`0/…`), so that splits of different stages may share names. Splits of a finished stage
stay listed until a split of a later stage has a position: otherwise a restarted job could mistake a finished stage for
one that was never read.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from millstream.connectors.contract_checks import is_complete, is_finished, listed_splits, opened_source, reach_of
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.errors import ProgramError
from millstream.storage.store import Store

__all__ = ["HybridSource"]

SPLITS_AT_ONCE = 256
"""The number of unfinished splits of a sequential stage that are read concurrently, unless it has more subtasks."""


class HybridSource(Source):
    """The records of `stages`, one source after the other. All except the last must be bounded.

    >>> from millstream.connectors.program_sources import NumberSequenceSource
    >>> HybridSource([NumberSequenceSource(1, 3), NumberSequenceSource(4, 6)]).describe()
    'numbers 1 to 3, then numbers 4 to 6'
    """

    keeps_starts = True

    def __init__(self, stages: Sequence[Source]) -> None:
        if not stages:
            raise ProgramError("HybridSource has no source. Pass at least one.")
        for number, source in enumerate(stages[:-1]):
            if not source.bounded:
                raise ProgramError(
                    f"HybridSource: source {number} ({source.describe()}) is unbounded, so later ones would never be "
                    "read. Make it bounded, or put it last."
                )
        types = {str(source.type_info): source for source in stages}
        if len(types) > 1:
            raise ProgramError(
                f"HybridSource: its sources have different record types: {' and '.join(types)}. Use one type, for "
                "example the same row type in their formats."
            )
        tags = {str(source.dead_letter_tag): source.dead_letter_tag for source in stages if source.dead_letter_tag}
        if len(tags) > 1:
            raise ProgramError(
                f"HybridSource: its sources have different tags for unreadable messages: {' and '.join(tags)}. Use one."
            )
        self.dead_letter_tag = next(iter(tags.values()), None)
        self.stages = tuple(stages)
        self.bounded = stages[-1].bounded
        self.type_info = stages[0].type_info
        self.replayable = all(source.replayable for source in stages)
        self.carries_timestamps = all(source.carries_timestamps for source in stages)
        self._positions: dict[str, Offset] = {}
        self._current = 0
        self._replays, self._lists_all = False, True

    def opened(self, store: Store, session: Any) -> Source:
        return self._opened(store, session, again=False)

    def reopened(self, store: Store, session: Any) -> Source:
        return self._opened(store, session, again=True)

    def _opened(self, store: Store, session: Any, *, again: bool) -> Source:
        source = copy.copy(self)
        source.stages = tuple(opened_source(stage, store, session, again=again) for stage in self.stages)
        source._positions, source._current, source._replays, source._lists_all = {}, 0, again, True
        return source

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_positions": {}}

    # --- stages -----------------------------------------------------------------------------------------------

    def splits(self, context: SourceContext) -> Sequence[Split]:
        if self._replays:
            return [split for number in range(len(self.stages)) for split in self._listed(number, context)]
        first = self._current = max((_stage_of(name) for name in self._positions), default=0)
        splits = self._listed(first, context)
        while self._current + 1 < len(self.stages) and self._is_over(self._current, splits, context):
            self._current += 1
            splits = [*splits, *self._listed(self._current, context)]
        begun = self._active(splits, context)
        self._lists_all = len(begun) == len(splits)
        return begun

    def _active(self, splits: list[Split], context: SourceContext) -> list[Split]:
        """The splits to list now: for a `sequential` stage, the first unfinished ones and all that were started. So
        thousands of files do not all receive a share of every epoch."""
        source = self.stages[self._current]
        if not source.sequential:
            return splits
        begun, left = [], max(SPLITS_AT_ONCE, context.parallelism)
        for split in splits:
            position = self._positions.get(split.name)
            is_unfinished = _stage_of(split.name) == self._current and not is_finished(
                source, _within(split), split.start if position is None else position
            )
            if left > 0 or position is not None or not is_unfinished:
                begun.append(split)
                left -= is_unfinished
        return begun

    def _listed(self, number: int, context: SourceContext) -> list[Split]:
        splits = listed_splits(self.stages[number], _of_stage(number, context))
        return [replace(split, name=f"{number}/{split.name}") for split in splits]

    def _is_over(self, number: int, splits: Sequence[Split], context: SourceContext) -> bool:
        source = self.stages[number]
        return is_complete(source, _of_stage(number, context)) and all(
            is_finished(source, _within(split), self._positions.get(split.name, split.start))
            for split in splits
            if _stage_of(split.name) == number
        )

    def complete(self, context: SourceContext) -> bool:
        last = len(self.stages) - 1
        return self._current == last and self._lists_all and is_complete(self.stages[last], _of_stage(last, context))

    def committed(self, positions: dict[str, Offset]) -> None:
        self._positions = dict(positions)
        for number, source in enumerate(self.stages):
            of_stage = _positions_of(number, positions)
            if of_stage:
                source.committed(of_stage)

    def released(self, retained_positions: Sequence[dict[str, Offset]]) -> None:
        # Overriding this makes the engine store all positions in the manifest, which show the finished stages.
        for number, source in enumerate(self.stages):
            of_stage = [_positions_of(number, positions) for positions in retained_positions]
            if all(of_stage):
                source.released(of_stage)

    def close(self) -> None:
        for source in self.stages:
            source.close()

    # --- splits of a stage ------------------------------------------------------------------------------------

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        number = _stage_of(split.name)
        return reach_of(self.stages[number], _within(split), offset, budget, _of_stage(number, context))

    def backlog(self, split: Split, offset: Offset, context: SourceContext) -> int | None:
        number = _stage_of(split.name)
        return self.stages[number].backlog(_within(split), offset, _of_stage(number, context))

    def finished(self, split: Split, offset: Offset) -> bool:
        return is_finished(self.stages[_stage_of(split.name)], _within(split), offset)

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        return self.stages[_stage_of(split.name)].read(_within(split), start, stop)

    def read_within(self, split: Split, start: Offset, stop: Offset, bytes_max: int) -> Read:
        return self.stages[_stage_of(split.name)].read_within(_within(split), start, stop, bytes_max)

    def watermark(self, split: Split, offset: Offset) -> int | None:
        return self.stages[_stage_of(split.name)].watermark(_within(split), offset)

    def describe(self) -> str:
        return ", then ".join(source.describe() for source in self.stages)


def _stage_of(name: str) -> int:
    return int(name.partition("/")[0])


def _within(split: Split) -> Split:
    """The split under its own source's name."""
    return replace(split, name=split.name.partition("/")[2])


def _positions_of(number: int, positions: dict[str, Offset]) -> dict[str, Offset]:
    return {name.partition("/")[2]: offset for name, offset in positions.items() if _stage_of(name) == number}


def _of_stage(number: int, context: SourceContext) -> SourceContext:
    return replace(context, uid=f"{context.uid}-{number}")
