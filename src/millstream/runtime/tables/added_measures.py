"""Aggregates added to a query after its groups were stored.

A group stored without an aggregate has NULL in the aggregate's accumulator columns. Over append-only input the
aggregate starts with the rows that arrive from then on. Over a changelog it cannot: deletes of rows it never saw would
arrive, and a count would fall below zero. So it is **unknown**, with a NULL result, in every existing group until the
group becomes empty; it sees all rows that arrive afterwards. Known results are exact. COUNT(*) is always known, since
groups over a changelog count their rows anyway.

Rows emitted earlier had no such column, so their retractions have NULL in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Parts
from millstream.state.keys.key_columns import Bools
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["AddedMeasures", "Unseen", "masked"]

Unseen = Sequence[Bools | None]
"""For each measure, a mask of the groups stored without it; None if all groups have it."""


@dataclass(frozen=True)
class AddedMeasures:
    """The measures added to a query after its groups were stored. `measures`: as in partials; `stored`: as in group
    rows. `is_signed`: the input has deletes, and the last measure counts rows."""

    measures: Sequence[BoundAggregate]
    stored: Sequence[BoundAggregate]
    is_signed: bool

    def unseen(self, was_stored: Bools, parts: Parts) -> Unseen:
        """The groups that were stored without a measure. `parts` has the accumulators of the stored groups."""
        masks: list[Bools | None] = []
        at = 0
        for measure in self.stored:
            mask = None
            if parts[at].null_count:
                mask = np.zeros(len(was_stored), dtype=np.bool_)
                mask[was_stored] = np.asarray(parts[at].is_null())
            masks.append(mask)
            at += len(measure.parts)
        return masks

    def with_counts(self, parts: Parts) -> Parts:
        """The stored accumulators, with added row counts filled in."""
        if not self.is_signed:
            return parts
        parts = list(parts)
        at = 0
        for measure in self.stored:
            if _counts_rows(measure) and parts[at].null_count:
                parts[at] = _counts_or_rows(parts[at], parts[-1])
            at += len(measure.parts)
        return parts

    def unknown(self, unseen: Unseen) -> Unseen:
        """Mask of the unknown results."""
        return [
            mask if self.is_signed and not _counts_rows(measure) else None
            for measure, mask in zip(self.stored, unseen, strict=True)
        ]

    def known_parts(self, parts: Parts, unknown: Unseen) -> Parts:
        """An epoch's partials, with NULL where the result stays unknown."""
        # Partials of append-only input are not laid out by measure (`distinct_arguments`); all of them are known.
        return _without_unknown(self.measures, parts, unknown) if self.is_signed else parts

    def storable(self, parts: Parts, unknown: Unseen) -> tuple[Parts, Unseen]:
        """The accumulators to store, and the results that are still unknown, for non-empty groups."""
        if not any(mask is not None for mask in unknown):
            return parts, unknown
        has_rows = parts[-1].to_numpy() > 0
        unknown = [None if mask is None else mask & has_rows for mask in unknown]
        return _without_unknown(self.stored, parts, unknown), unknown


def _counts_rows(measure: BoundAggregate) -> bool:
    return measure.kind == "count" and not measure.arguments


def _counts_or_rows(counts: pa.Array, rows: pa.Array) -> pa.Array:
    """Counts, and the number of rows where a count is NULL."""
    known = np.asarray(counts.is_valid())
    return pa.array(np.where(known, counts.fill_null(0).to_numpy(), rows.to_numpy()))


def _without_unknown(measures: Sequence[BoundAggregate], parts: Parts, unknown: Unseen) -> Parts:
    """Accumulator columns with NULL where a measure is unknown."""
    parts = list(parts)
    at = 0
    for measure, mask in zip(measures, unknown, strict=True):
        stop = at + len(measure.parts)
        if mask is not None:
            parts[at:stop] = [masked(part, mask) for part in parts[at:stop]]
        at = stop
    return parts


def masked(column: pa.Array, mask: Bools | None) -> pa.Array:
    """The column with NULL at the masked rows."""
    return column if mask is None else column.take(pa.array(np.arange(len(column)), mask=mask))
