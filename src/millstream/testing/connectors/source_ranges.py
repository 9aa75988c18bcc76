"""Reads a source as the engine does: in ranges planned by `reach`, with offsets converted by JSON and records by their
type."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from millstream.connectors.contract_checks import (
    is_finished,
    item_error,
    listed_splits,
    offset_at_end,
    reach_of,
    read_items,
    source_watermark,
)
from millstream.connectors.contracts import Json, Offset, Source, SourceContext, Split
from millstream.connectors.messages.dead_letters import DeadLetters
from millstream.records.batch import Batch
from millstream.records.columns import checked_batch

__all__ = ["RangeRead", "SourceReader", "Stamped", "Walk", "through_json", "values_of"]


def through_json(value: Json) -> Json:
    """The value as restored from a manifest."""
    return json.loads(json.dumps(value, allow_nan=False))


class Stamped(NamedTuple):
    """A record with its timestamp."""

    value: Any
    timestamp_ms: int


def values_of(records: Sequence[Any]) -> list[Any]:
    """The records without their timestamps."""
    return [record.value if isinstance(record, Stamped) else record for record in records]


@dataclass(frozen=True)
class RangeRead:
    """One range that was read: its records and its end."""

    split: Split
    start: Offset
    stop: Offset
    end: Offset
    records: tuple[Any, ...]

    def __str__(self) -> str:
        return f"split {self.split.name!r} from {self.start!r} to {self.stop!r}"


@dataclass(frozen=True)
class Walk:
    """One split, read range after range. `ended`: whether all available input was read."""

    split: Split
    ranges: tuple[RangeRead, ...]
    ended: bool

    @property
    def records(self) -> list[Any]:
        return [record for range_ in self.ranges for record in range_.records]

    @property
    def positions(self) -> list[Offset]:
        """The bounds of the ranges, starting with the first start."""
        return [self.split.start, *(range_.end for range_ in self.ranges)]


class SourceReader:
    """A source opened for a driver, and reads of it."""

    def __init__(self, source: Source, context: SourceContext) -> None:
        self.source = source
        self.context = context

    def splits(self) -> list[Split]:
        """All splits, as restored from a manifest."""
        listed = listed_splits(self.source, self.context)
        return [Split(split.name, through_json(split.start), through_json(split.info)) for split in listed]

    def read(self, split: Split, start: Offset, stop: Offset, bytes_max: int | None = None) -> RangeRead:
        """Read one range, whole or up to its byte limit."""
        steps = self.steps(split, start, stop, bytes_max)
        records: list[Any] = []
        while True:
            try:
                records.extend(next(steps))
            except StopIteration as end:
                return RangeRead(split, start, stop, end.value, tuple(records))

    def steps(
        self, split: Split, start: Offset, stop: Offset, bytes_max: int | None = None
    ) -> Generator[list[Any], None, Offset]:
        """Read one range, item by item, up to about `bytes_max`; returns the end position."""
        items = read_items(self.source, split, start, stop, bytes_max)
        try:
            while True:
                try:
                    item = next(items)
                except StopIteration as end:
                    reached = through_json(offset_at_end(self.source, split, start, stop, end.value))
                    source_watermark(self.source, split, reached)
                    return reached
                yield self._records(item)
        finally:
            if callable(getattr(items, "close", None)):
                items.close()  # type: ignore[attr-defined]

    def walk(
        self, split: Split, budget: int, ranges_max: int, start: Offset = ..., task: SourceReader | None = None
    ) -> Walk:
        """Read the split from its start (or `start`), about `budget` records at a time; by `task`, if passed."""
        offset = split.start if start is ... else start
        ranges: list[RangeRead] = []
        while len(ranges) < ranges_max:
            if is_finished(self.source, split, offset):
                return Walk(split, tuple(ranges), True)
            stop = through_json(reach_of(self.source, split, offset, budget, self.context))
            if stop == offset:
                return Walk(split, tuple(ranges), True)
            ranges.append((task or self).read(split, offset, stop))
            offset = ranges[-1].end
        return Walk(split, tuple(ranges), False)

    def _records(self, item: Any) -> list[Any]:
        """The records that `read` yielded, with timestamps if it provides them."""
        type_info = self.source.type_info
        if isinstance(item, pa.RecordBatch):
            assert type_info is not None, "it yields Arrow batches but declares no type. Set its type_info"
            return list(Batch.of_columns(checked_batch(item, type_info), type_info).values())
        if isinstance(item, Batch):
            values = list(item.values())
            if item.timestamps is None:
                return values
            return [Stamped(*pair) for pair in zip(values, item.timestamps.tolist(), strict=True)]
        if isinstance(item, DeadLetters):
            return [("dead letter", value) for value in item.batch.values()]
        if isinstance(item, list):
            return list(Batch.of_values(item, type_info).values())
        raise item_error(self.source, item)
