"""Decides which splits to read first if their times are known in advance. Pure, except for querying the source.

A source may know the number of records left in a split and their earliest time (`Source.outlook`; for a Parquet file,
from its statistics). Then

- the watermark of a split starts shortly before its earliest record: a split that has not been begun holds event time
  back no further than that, its records are not late even if they are read last, and no session closes before records
  that belong to it are read;
- each subtask reads its splits in time order, as many as fit into the epoch, instead of all of them concurrently. Event
  time advances with them, so windows close during the read, and state holds only the windows that are open, not those
  of all files.

This affects cost only: the results are the same in any order. Time order is not used for a source that has a split of
unknown times or may gain more splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.contract_checks import outlook_of, reach_of
from millstream.connectors.contracts import Offset, Outlook, Source, SourceContext, Split
from millstream.graph.table_nodes import ColumnWatermarks
from millstream.graph.time_columns import time_column
from millstream.jobs.epochs.input_plan import LiveSplit, PlannedSource, share_out
from millstream.records.watermarks import REAL_WATERMARK_MAX

__all__ = ["earliest_first", "outlooks_of", "reading_stops", "watermark_from"]

Outlooks = Mapping[str, Outlook]
Stops = dict[str, dict[str, tuple[Any, int]]]
"""How far each split is read, and the share it was planned with; by uid and split."""

_BEFORE_MS = 2
"""A record joins a session that ends where the record begins. That session ends when time is 1 ms before the record."""

_WORTH_OPENING = 16
"""A subtask begins another split if at least this part of its share is left for it: opening a file has a cost."""


def outlooks_of(source: Source, strategy: WatermarkStrategy | None, splits: Iterable[tuple[Split, Offset]]) -> Outlooks:
    """The source's outlooks on its unfinished splits, by name; empty if any split lacks one."""
    if type(source).outlook is Source.outlook or not isinstance(strategy, ColumnWatermarks):
        return {}
    column = time_column(strategy.rowtime, strategy.watermark)
    if column is None:
        return {}
    outlooks: dict[str, Outlook] = {}
    for split, offset in splits:
        outlook = outlook_of(source, split, offset, column)
        if outlook is None:
            return {}
        outlooks[split.name] = outlook
    return outlooks


def watermark_from(watermark: int, outlook: Outlook | None) -> int:
    """The watermark of a split that had reached `watermark`: later, if the rest of the split is later.

    >>> watermark_from(40, Outlook(records=7, earliest_ms=100)), watermark_from(40, None)
    (98, 40)
    """
    return watermark if outlook is None else max(watermark, min(outlook.earliest_ms - _BEFORE_MS, REAL_WATERMARK_MAX))


def earliest_first(live: Sequence[LiveSplit], outlooks: Outlooks, budget: int, parallelism: int) -> dict[str, int]:
    """The number of records to read of each split; splits not listed wait."""
    shares: dict[str, int] = {}
    fair = max(1, budget // parallelism)
    for subtask in range(parallelism):
        left = fair
        own = (each for each in live if each.subtask == subtask)
        for each in sorted(own, key=lambda one: outlooks[one.split.name].earliest_ms):
            if left < fair and left < max(1, fair // _WORTH_OPENING):
                break
            share = max(1, min(left, outlooks[each.split.name].records))
            shares[each.split.name] = share
            left -= share
    return shares


def reading_stops(
    sources: tuple[PlannedSource, ...],
    live: Mapping[str, list[LiveSplit]],
    outlooks: Mapping[str, Outlooks],
    held_splits: frozenset[tuple[str, str]],
    budget: int,
    context: SourceContext,
) -> tuple[Stops, frozenset[tuple[str, str]]]:
    """The stop offset of each split, and the splits that wait: `held_splits` and splits with later times.

    Each source with outlooks gets an equal part of the budget; the rest is shared out among the splits of the others.
    """
    stops: Stops = {planned.uid: {} for planned in sources}
    busy = sum(1 for planned in sources if live[planned.uid])
    readers: list[tuple[PlannedSource, SourceContext, LiveSplit]] = []
    left = budget
    for planned in sources:
        uid, source_context = planned.uid, planned.in_context(context)
        readable = [each for each in live[uid] if (uid, each.split.name) not in held_splits]
        if not outlooks.get(uid):
            readers += ((planned, source_context, each) for each in readable)
            continue
        shares = earliest_first(readable, outlooks[uid], budget // busy, planned.parallelism)
        held_splits |= {(uid, each.split.name) for each in readable if each.split.name not in shares}
        left -= sum(shares.values())
        for each in readable:
            share = shares.get(each.split.name, 0)
            if share:
                stops[uid][each.split.name] = (_reach(planned, source_context, each, share), share)
    offsets = [each.offset for _, _, each in readers]
    shared = share_out(offsets, max(left, 0), lambda number, share: _reach(*readers[number], share))
    for (planned, _, each), stop in zip(readers, shared, strict=True):
        stops[planned.uid][each.split.name] = stop
    return stops, held_splits


def _reach(planned: PlannedSource, context: SourceContext, live: LiveSplit, share: int) -> Any:
    return reach_of(planned.source, live.split, live.offset, share, context)
